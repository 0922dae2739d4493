//! Sets of requirements measured on a pool's model, beside the service.

use std::io;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak};
use std::thread;

use tidegate_place::{Ability, AdmissionRule, Margin, Measured, judge};
use tidegate_sim::offer::{Load, Unmeasured};
use tidegate_units::ResourceName;

use super::api::Model;
use super::standing::{Basis, Set, Standing, Verdict};

/// The answer about a set of a pool.
#[derive(Debug)]
pub(crate) struct Judged {
    /// Of which contracts, since others may have come in the meantime.
    pub(crate) of: Weak<()>,
    pub(crate) pool: ResourceName,
    pub(crate) set: usize,
    pub(crate) verdict: Verdict,
}

/// Begins to measure what nothing is known of, one set at a time: what comes with a new configuration first. It ends early when nobody
/// holds these contracts any more.
///
/// # Errors
/// When there is no thread for it.
pub(crate) fn begin<E: From<Judged> + Send + 'static>(
    standings: &[Standing],
    held: &Arc<()>,
    events: SyncSender<E>,
) -> io::Result<()> {
    let mut order: Vec<_> = standings.iter().collect();
    order.sort_by_key(|standing| !standing.is_new);
    let mut questions = Vec::new();
    for standing in order {
        if let Basis::Model(model) = &standing.contracts().basis {
            let of = |(at, set)| (standing.pool().clone(), model.clone(), at, set);
            questions.extend(standing.unknown().into_iter().map(of));
        }
    }
    if questions.is_empty() {
        return Ok(());
    }
    let of = Arc::downgrade(held);
    let body = move || {
        for (pool, model, set, asked) in questions {
            if of.strong_count() == 0 {
                return;
            }
            let judged = Judged { of: Weak::clone(&of), pool, set, verdict: measure(&model, &asked) };
            if events.send(judged.into()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("admission".to_owned()).spawn(body).map(drop)
}

/// Whether a model can keep a set: by the same rule, and measured the same way, as `POST /v1/admit`.
fn measure(model: &Model, set: &Set) -> Verdict {
    verdict(model, set).unwrap_or_else(Verdict::Refused)
}

fn verdict(model: &Model, set: &Set) -> Result<Verdict, String> {
    let (demands, weights) = set.demands().map_err(|error| error.to_string())?;
    let loads = demands.as_slice().iter().zip(weights).map(|(demand, shares)| Load {
        shares,
        ..Load::random_reads(demand.name.clone(), demand.iops, demand.size)
    });
    let rule = AdmissionRule::default();
    let offer = model.offer(loads.collect(), &rule);
    let unmeasured = |error: Unmeasured| error.to_string();
    let failed = |error: tidegate_sim::ScenarioError| error.to_string();
    let ability =
        Ability { capacity: Some(offer.capacity().map_err(failed)?), alone: offer.alone().map_err(failed)? };
    demands.check(&ability).map_err(|error| error.to_string())?;
    let measured = offer.measured(1.0).map_err(unmeasured)?;
    let judged = judge(&demands, &rule, &measured).map_err(|error| error.to_string())?;
    match measured {
        Measured::Sustained(expected) if judged.is_admitted() => {
            let names = demands.as_slice().iter().map(|demand| demand.name.clone());
            Ok(Verdict::Admitted(names.zip(expected).collect()))
        }
        _ => {
            let broken =
                judged.tenants().iter().filter(|tenant| !tenant.is_kept()).map(|tenant| {
                    match tenant.margin() {
                        Margin::Short(short) => {
                            format!(
                                "`{}` asks for {}, which is {short} less than can be promised",
                                tenant.name, tenant.asked
                            )
                        }
                        Margin::Spare(_) | Margin::Unbounded => {
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
