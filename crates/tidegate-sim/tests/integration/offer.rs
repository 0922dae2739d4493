//! Measuring a storage model by offering it load: against queues with closed forms, and against Lee's disk.

use tidegate_admission::{AdmissionRule, LatencyProfile, OfferResult, TenantDemand, TenantDemands, judge};
use tidegate_device::{DeviceConfig, ExponentialConfig, Preset};
use tidegate_sim::ScenarioError;
use tidegate_sim::offer::{ArrivalPattern, ConsumerLoad, LoadOffer, TooFew, UnmeasuredReason};
use tidegate_sim::scenario::SizeWeights;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, Shares};

const ALL: [ArrivalPattern; 4] =
    [ArrivalPattern::InStep, ArrivalPattern::Even, ArrivalPattern::Drawn, ArrivalPattern::Poisson];

/// Exponential service, 100 per second.
fn server() -> DeviceConfig {
    let capacity = Bytes::from_gib(1);
    DeviceConfig::Exponential(ExponentialConfig { rate: Iops::new(100.0), servers: 1, capacity })
}

fn reads(name: &str, rate: f64) -> ConsumerLoad {
    ConsumerLoad::random_reads(ConsumerName::new(name).unwrap(), Iops::new(rate), Bytes::from_kib(4))
}

fn offer(device: DeviceConfig, arriving: ArrivalPattern, rates: &[f64]) -> LoadOffer {
    let loads = rates.iter().zip(1..).map(|(&rate, number)| reads(&format!("w{number}"), rate)).collect();
    LoadOffer { arriving, ..LoadOffer::new(device, loads) }
}

fn assert_close(found: f64, expected: f64, part: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= part, "{what}: {found} instead of {expected}");
}

/// M/M/1: response times are exponential with mean 1/(μ − λ).
#[test]
fn poisson_arrivals_at_an_exponential_server_are_the_textbooks_queue() {
    for rate in [20.0, 50.0, 70.0] {
        let response = offer(server(), ArrivalPattern::Poisson, &[rate]).at(1.0).unwrap();
        let mean = 1.0 / (100.0 - rate);
        assert!(response.sustained, "{rate}");
        assert_close(response.all.unwrap().mean.as_secs_f64(), mean, 0.06, "mean");
        assert_close(response.all.unwrap().quantile.as_secs_f64(), 20f64.ln() * mean, 0.08, "p95");
        assert_close(response.completed.per_second(), rate, 0.02, "completed");
    }
}

/// D/M/1: response times are exponential with mean 1/μ(1 − σ), where σ = exp(−(μ/λ)(1 − σ)).
#[test]
fn even_arrivals_are_the_textbooks_too() {
    let (rate, load) = (80.0, 0.8);
    let sigma = (0..200).fold(0.5, |sigma: f64, _| (-(1.0 - sigma) / load).exp());
    for arriving in [ArrivalPattern::InStep, ArrivalPattern::Even, ArrivalPattern::Drawn] {
        let response = offer(server(), arriving, &[rate]).at(1.0).unwrap();
        assert_close(response.all.unwrap().mean.as_secs_f64(), 0.01 / (1.0 - sigma), 0.06, "mean");
        assert_close(response.completed.per_second(), rate, 0.005, "completed");
    }
}

/// A mixture of even arrivals is still even, however many it is of; buckets in step are not.
#[test]
fn a_drawn_mixture_is_one_stream() {
    let mean = |arriving, rates: &[f64]| offer(server(), arriving, rates).at(1.0).unwrap().all.unwrap().mean;
    let one = mean(ArrivalPattern::Drawn, &[60.0]).as_secs_f64();
    let three = mean(ArrivalPattern::Drawn, &[30.0, 20.0, 10.0]).as_secs_f64();
    assert_close(three, one, 0.06, "three of them");
    assert!(mean(ArrivalPattern::InStep, &[20.0, 20.0, 20.0]).as_secs_f64() > 1.5 * one);
}

#[test]
fn everybody_gets_through_what_is_its_own() {
    for arriving in ALL {
        let mut offer = offer(server(), arriving, &[30.0, 15.0]);
        offer.loads[1].shares = Shares::new(1_000).unwrap();
        let response = offer.at(1.0).unwrap();
        assert_close(response.completed.per_second(), 45.0, 0.02, "completed");
        assert_close(response.offered.per_second(), 45.0, 1e-9, "offered");
        let [Some(first), Some(second)] = response.loads[..] else { panic!("two loads") };
        // The mean of all is that of both, each with its part.
        let weighted = (2.0 * first.mean.as_secs_f64() + second.mean.as_secs_f64()) / 3.0;
        assert_close(response.all.unwrap().mean.as_secs_f64(), weighted, 0.01, "all");
    }
}

#[test]
fn an_overloaded_storage_is_said_to_be() {
    for arriving in ALL {
        let offer = offer(server(), arriving, &[60.0, 60.0]);
        let response = offer.at(1.0).unwrap();
        assert!(!response.sustained, "{arriving:?}");
        assert_eq!(offer.measured(1.0).unwrap(), OfferResult::Overloaded);
        assert_close(response.completed.per_second(), 100.0, 0.03, "completed");
        assert!(offer.at(0.7).unwrap().sustained, "{arriving:?}");
    }
}

#[test]
fn of_whom_little_was_measured_nothing_is_said() {
    for arriving in [ArrivalPattern::InStep, ArrivalPattern::Even] {
        let mut offer = offer(server(), arriving, &[60.0, 0.2, 0.01]);
        let response = offer.at(1.0).unwrap();
        assert!(response.sustained && response.loads[2].is_none(), "{response:?}");
        offer.loads.pop();
        let Err(UnmeasuredReason::TooFew(TooFew { name, requests, needed })) = offer.measured(1.0) else {
            panic!("a percentile of a handful");
        };
        assert!(name.as_str() == "w2" && (40..100).contains(&requests), "{name} {requests}");
        offer.requests = needed.try_into().unwrap();
        let OfferResult::Sustained(measured) = offer.measured(1.0).unwrap() else { panic!("overloaded") };
        assert!(measured.iter().all(|measured| *measured > Latency::from_millis(5)), "{measured:?}");
    }
}

#[test]
fn alone_and_at_the_most() {
    let one = offer(server(), ArrivalPattern::InStep, &[40.0, 20.0]);
    for alone in one.alone().unwrap() {
        assert_close(alone.as_secs_f64(), 0.01, 0.06, "alone");
    }
    assert_close(one.capacity().unwrap().per_second(), 100.0, 0.05, "capacity");
    // Sixteen at once, each as slow as before.
    let many = ExponentialConfig { rate: Iops::new(1_600.0), servers: 16, capacity: Bytes::from_gib(1) };
    let many = offer(DeviceConfig::Exponential(many), ArrivalPattern::InStep, &[40.0]);
    assert_close(many.alone().unwrap()[0].as_secs_f64(), 0.01, 0.06, "alone");
    assert_close(many.capacity().unwrap().per_second(), 1_600.0, 0.05, "capacity");
}

/// An array with a cache of 64 MiB takes writes as fast as they come, until that is full: then as fast as its
/// disks do.
#[test]
fn a_cache_does_not_pass_for_the_storage_behind_it() {
    let mut offer = offer(Preset::FcRaid5.config(), ArrivalPattern::Poisson, &[100.0]);
    offer.seeds = 2;
    offer.loads[0].reads = 0.0;
    let capacity = offer.capacity().unwrap().per_second();
    // Ten disks, each of which does less than 300 operations per second, and each write takes four.
    assert!(capacity < 1_500.0, "{capacity}");
    assert!(offer.at(0.7 * capacity / 100.0).unwrap().sustained);
    assert!(!offer.at(1.3 * capacity / 100.0).unwrap().sustained);
}

#[test]
fn the_same_seeds_give_the_same_and_others_do_not() {
    for arriving in ALL {
        let one = offer(Preset::Dnes309170w.config(), arriving, &[40.0, 20.0]);
        let response = one.at(1.0).unwrap();
        assert_eq!(one.at(1.0).unwrap(), response);
        assert_ne!(LoadOffer { seed: 11, ..one }.at(1.0).unwrap(), response);
    }
}

#[test]
fn sizes_around_a_mean_have_it() {
    let normal = |mean, deviation| SizeWeights::normal(Bytes::new(mean), Bytes::new(deviation));
    assert_eq!(normal(4_096, 0), Some(SizeWeights::fixed(4_096)));
    assert_eq!(normal(4_096, 1_024).unwrap().greatest(), 8_192);
    assert_close(normal(4_096, 1_024).unwrap().mean(), 4_096.0, 1e-3, "mean");
    for (mean, deviation) in [(511, 0), (4_096, 4_097), (1 << 32, 0), (1 << 31, 1 << 31)] {
        assert_eq!(normal(mean, deviation), None, "{mean} ± {deviation}");
    }
    // What the head passes over is as long on average, so that the disk takes as long.
    let mut one = offer(Preset::Dnes309170w.config(), ArrivalPattern::InStep, &[40.0]);
    let fixed = one.alone().unwrap()[0].as_secs_f64();
    one.loads[0].sizes = normal(4_096, 1_024).unwrap();
    assert_close(one.alone().unwrap()[0].as_secs_f64(), fixed, 0.02, "alone");
}

#[test]
fn what_cannot_be_offered_is_refused() {
    let nobody = offer(server(), ArrivalPattern::InStep, &[]);
    assert!(matches!(nobody.at(1.0), Err(ScenarioError::Nothing(_))));
    assert!(matches!(nobody.capacity(), Err(ScenarioError::Nothing(_))));
    for arriving in ALL {
        let nothing = offer(server(), arriving, &[40.0, 0.0]);
        assert!(matches!(nothing.at(1.0), Err(ScenarioError::Workload { .. })), "{arriving:?}");
    }
    let mut large = offer(server(), ArrivalPattern::InStep, &[40.0]);
    large.loads[0].sizes = SizeWeights::fixed(1 << 31);
    assert!(matches!(large.at(1.0), Err(ScenarioError::Workload { .. })));
}

/// W1 and W2 of Lee's table 2, φ 2:1, on his disk.
fn lee(arriving: ArrivalPattern) -> LoadOffer {
    let mut offer = offer(Preset::Dnes309170w.config(), arriving, &[40.0, 20.0]);
    offer.loads[0].shares = Shares::new(200).unwrap();
    offer
}

/// Lee's table 3. He does not say how requests arrived. Evenly and drawn by chance (his text) they take 17 ms
/// here, in a Poisson process 65: docs/guide/contracts.md has all of them.
#[test]
fn lees_disk_delivers_the_response_times_of_his_table_3() {
    let response = lee(ArrivalPattern::InStep).at(1.0).unwrap();
    for (load, paper) in response.loads.iter().zip([29.08, 31.38]) {
        assert_close(load.unwrap().quantile.as_millis_f64(), paper, 0.15, "RT^E");
    }
}

#[test]
fn contracts_a_millisecond_above_what_can_be_delivered_are_admitted_and_below_refused() {
    let offer = lee(ArrivalPattern::InStep);
    let measured = offer.measured(1.0).unwrap();
    let rule = AdmissionRule::default();
    let contracts = |response_times: [Latency; 2]| {
        let contracts = offer.loads.iter().zip(response_times).map(|(load, response_time)| TenantDemand {
            name: load.name.clone(),
            iops: load.rate,
            size: Bytes::from_kib(4),
            response_time,
        });
        TenantDemands::new(contracts.collect()).unwrap()
    };
    let ask = |response_times| judge(&contracts(response_times), &rule, &measured).unwrap();
    // The paper's own pair.
    let verdict = ask([35, 38].map(Latency::from_millis));
    assert!(verdict.is_admitted(), "{verdict:?}");
    let targets: Vec<_> = verdict.tenants().iter().map(|tenant| tenant.measured.unwrap().1).collect();
    let millisecond = Latency::from_millis(1);
    let [first, second] = targets[..] else { panic!("two tenants") };
    assert!(ask([first, second].map(|target| target.saturating_add(millisecond))).is_admitted());
    assert!(!ask([first.saturating_sub(millisecond), second]).is_admitted());
    assert!(!ask([first, second.saturating_sub(millisecond)]).is_admitted());
}

/// The two of table 2 with a third that is refused: admitted all the same, more than one request in seven of
/// everybody's would take longer than was promised.
#[test]
fn a_third_tenant_is_refused_rightly() {
    let mut three = lee(ArrivalPattern::InStep);
    three.loads.push(reads("w3", 20.0));
    three.quantile = 0.85;
    let response = three.at(1.0).unwrap();
    assert!(response.sustained);
    for (load, promised) in response.loads.iter().zip([35.0, 38.0, 40.0]) {
        assert!(load.unwrap().quantile.as_millis_f64() > promised, "{load:?}");
    }
}

/// Figure 4: "the stable area is spread over 75 IOPS", where growth is gradual.
#[test]
fn lees_disk_is_stable_up_to_about_75_per_second() {
    let offer = offer(Preset::Dnes309170w.config(), ArrivalPattern::InStep, &[60.0]);
    let profile = LatencyProfile::new(offer.points(Iops::new(90.0), 30).unwrap()).unwrap();
    assert_close(profile.stable().to.per_second(), 75.0, 0.07, "the end of the stable region");
    assert_close(profile.greatest().per_second(), 85.5, 0.02, "IOPS_max");
}
