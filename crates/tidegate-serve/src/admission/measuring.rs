//! Sets of requirements measured on a pool's model, beside the service.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::SyncSender;
use std::thread;

use tidegate_admission::schedule::{PromiseSet, SetVerdict, StandingAnswer, StandingQuestion, StorageModel};
use tidegate_admission::{AdmissionRule, LatencyMargin, OfferResult, StorageAbility, judge};
use tidegate_sim::offer::{ConsumerLoad, UnmeasuredReason};

use super::api::{measured, offer};

/// The most requests in each simulation, where it takes more than usual to have enough of every export: for
/// example of one whose rate is a twenty-thousandth of all. No user waits in front of a screen for it.
const MOST_REQUESTS: u32 = 200_000;

/// Measures in a thread of its own, which ends with the answer. Each asker has one question answered at a
/// time: a measurement is all a core can do, beside the service.
///
/// # Errors
/// When there is no thread for it.
pub(crate) fn begin<E: From<StandingAnswer> + Send + 'static>(
    question: StandingQuestion,
    events: SyncSender<E>,
) -> io::Result<()> {
    let body = move || {
        let verdict = answered(|| measure(&question.model, &question.set));
        // The service has ended: nothing waits for it any more.
        let _ = events.send(StandingAnswer { question, verdict }.into());
    };
    thread::Builder::new().name("admission".to_owned()).spawn(body).map(drop)
}

/// Returns the finding of a measurement. A measurement that fails answers, too: otherwise the service would
/// wait for it for ever.
fn answered(measure: impl FnOnce() -> SetVerdict) -> SetVerdict {
    catch_unwind(AssertUnwindSafe(measure)).unwrap_or_else(|_| {
        SetVerdict::Refused("the measurement failed, which is a fault of this program".to_owned())
    })
}

/// Returns the verdict of a model on a set: by the same rule, and measured the same way, as `POST /v1/admit`.
fn measure(model: &StorageModel, set: &PromiseSet) -> SetVerdict {
    verdict(model, set).unwrap_or_else(SetVerdict::Refused)
}

fn verdict(model: &StorageModel, set: &PromiseSet) -> Result<SetVerdict, String> {
    let (demands, weights) = set.demands().map_err(|error| error.to_string())?;
    let loads = demands.as_slice().iter().zip(weights).map(|(demand, shares)| ConsumerLoad {
        shares,
        ..ConsumerLoad::random_reads(demand.name.clone(), demand.iops, demand.size)
    });
    let rule = AdmissionRule::default();
    let mut offer = offer(model, loads.collect(), &rule);
    let unmeasured = |error: UnmeasuredReason| error.to_string();
    let failed = |error: tidegate_sim::ScenarioError| error.to_string();
    let ability = StorageAbility {
        capacity: Some(offer.capacity().map_err(failed)?),
        alone: offer.alone().map_err(failed)?,
    };
    demands.check(&ability).map_err(|error| error.to_string())?;
    let measured = measured(&mut offer, 1.0, MOST_REQUESTS).map_err(unmeasured)?;
    let judged = judge(&demands, &rule, &measured).map_err(|error| error.to_string())?;
    match measured {
        OfferResult::Sustained(expected) if judged.is_admitted() => {
            let names = demands.as_slice().iter().map(|demand| demand.name.clone());
            Ok(SetVerdict::Admitted(names.zip(expected).collect()))
        }
        _ => {
            let broken =
                judged.tenants().iter().filter(|tenant| !tenant.is_kept()).map(|tenant| {
                    match tenant.margin() {
                        LatencyMargin::Short(short) => {
                            format!(
                                "`{}` asks for {}, which is {short} less than can be promised",
                                tenant.name, tenant.asked
                            )
                        }
                        LatencyMargin::Spare(_) | LatencyMargin::Unbounded => {
                            format!(
                                "`{}` asks for {}, and the storage does not keep up",
                                tenant.name, tenant.asked
                            )
                        }
                    }
                });
            Err(broken.collect::<Vec<_>>().join("; "))
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::contract::{ContractRequirement, ContractTerms};
    use tidegate_control::Contract;
    use tidegate_device::Preset;
    use tidegate_sched::Discipline;
    use tidegate_units::{Bytes, ConsumerName, DailyPeriod, Iops, Latency, Shares};

    use super::*;

    /// Seven of 2000 requests are the second export's: over ten seeds fewer than a hundred.
    #[test]
    fn a_contract_with_few_requests_beside_many_is_no_refusal() {
        let held = |name: &str, iops: f64| {
            let contract =
                Contract::new(Iops::new(iops), Latency::from_millis(60), Latency::from_millis(50)).unwrap();
            let given = ContractTerms { contract, bucket: None };
            let requirement = ContractRequirement { given, expects: false, size: Some(Bytes::from_kib(4)) };
            (ConsumerName::new(name).unwrap(), Shares::DEFAULT, Some(requirement))
        };
        let model = StorageModel::new(Preset::Dnes309170w.config(), 1, Discipline::default());
        let set =
            PromiseSet { period: DailyPeriod::DAY, requirements: vec![held("many", 60.0), held("few", 0.2)] };
        assert!(matches!(measure(&model, &set), SetVerdict::Admitted(of) if of.len() == 2));
    }

    #[test]
    fn a_measurement_that_dies_answers_all_the_same() {
        let SetVerdict::Refused(why) = answered(|| panic!("on purpose")) else {
            panic!("it is no admission")
        };
        assert!(why.starts_with("the measurement failed"), "{why}");
    }
}
