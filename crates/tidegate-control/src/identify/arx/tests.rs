use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;

use super::*;
use crate::ControllerGain;

/// The paper's models as it prints them (§3.2): G(z) = b·z/(z − a).
fn printed(b: f64, a: f64) -> ArxModel {
    ArxModel::new(vec![a], vec![b, 0.0]).unwrap()
}

fn cache() -> ArxModel {
    printed(0.003_827, 0.045_54)
}

fn disk() -> ArxModel {
    printed(0.137_7, 0.001_109)
}

fn gain(iops_per_ms: f64) -> ControllerGain {
    ControllerGain::new(iops_per_ms).unwrap()
}

/// In nanoseconds as a latency is, which is what limits exactness.
fn sample(u: f64, y: f64) -> ArxSample {
    ArxSample { operating_point: Iops::new(u), response: Some(Latency::from_millis_f64(y)) }
}

/// White noise in [10, 200) through a model that was at rest without load, with normal noise of this
/// deviation in milliseconds.
fn excited(model: &ArxModel, noise: f64, count: usize, seed: u64) -> Vec<ArxSample> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let us: Vec<f64> = (0..count).map(|_| 10.0 + 190.0 * uniform()).collect();
    let mut normal = Pcg64::seed_from_u64(!seed);
    let rest = model.offset_ms() / (1.0 - model.outputs().iter().sum::<f64>());
    let mut ys = vec![rest; model.order()];
    for at in 0..count {
        let past: Vec<f64> = ys.iter().rev().take(model.order()).copied().collect();
        let set: Vec<f64> = us[..=at].iter().rev().take(model.order() + 1).copied().collect();
        let deviation: f64 = StandardNormal.sample(&mut normal);
        ys.push(model.predict(&past, &set) + noise * deviation);
    }
    us.iter().zip(&ys[model.order()..]).map(|(u, y)| sample(*u, *y)).collect()
}

#[test]
fn the_papers_stable_ranges() {
    for (model, paper) in [(cache(), 546.0), (disk(), 14.5)] {
        let found = model.stable_below().unwrap().iops_per_ms();
        // As many digits as it prints.
        assert!((found / paper - 1.0).abs() < 0.003, "{found} {paper}");
        // 2·(1 + a)/b: where the pole on the left leaves through −1.
        let exact = 2.0 * (1.0 + model.outputs()[0]) / model.inputs()[0];
        assert!((found / exact - 1.0).abs() < 1e-9, "{found} {exact}");
    }
}

#[test]
fn the_papers_good_gains() {
    for (model, paper) in [(cache(), 213.0), (disk(), 7.2)] {
        let found = model.recommended_gain().unwrap().iops_per_ms();
        assert!((found / paper - 1.0).abs() < 0.01, "{found} {paper}");
        // The paper's own is as quick.
        let settling = |gain| IntegralLoop::new(&model, gain).settling_intervals();
        assert_eq!(settling(gain(paper)), settling(gain(found)));
    }
}

/// The soonest would be two intervals, and a third beyond the step.
#[test]
fn a_gain_that_goes_far_beyond_the_step_is_not_recommended() {
    let model = ArxModel::new(vec![0.275_2], vec![0.054_354, -0.010_601]).unwrap();
    let quick = IntegralLoop::new(&model, gain(24.4));
    assert!(quick.settling_intervals() == Some(2) && quick.overshoot().unwrap() > 0.3);
    let under = IntegralLoop::new(&model, model.recommended_gain().unwrap());
    assert!(under.overshoot().unwrap() <= 0.05, "{under:?}");
    assert!(under.settling_intervals().unwrap() <= 5, "{under:?}");
}

/// Figure 5: 213 on the disk is unstable, 7.2 in the cache slow.
#[test]
fn no_gain_serves_both() {
    assert!(!IntegralLoop::new(&disk(), gain(213.0)).is_stable());
    assert_eq!(IntegralLoop::new(&disk(), gain(213.0)).settling_intervals(), None);
    assert_eq!(IntegralLoop::new(&disk(), gain(213.0)).overshoot(), None);
    let slow = IntegralLoop::new(&cache(), gain(7.2)).settling_intervals().unwrap();
    let right = IntegralLoop::new(&cache(), gain(213.0)).settling_intervals().unwrap();
    assert!(slow > 50 * right, "{slow} {right}");
}

/// By hand: c = K·b; y(0) = c, y(1) = c·(2 + a − c), y(2) = c + (1 + a − c)·y(1) − a·y(0).
#[test]
fn a_step_by_hand() {
    let (a, c) = (0.045_54, 213.0 * 0.003_827);
    let (y0, y1) = (c, c * (2.0 + a - c));
    let y2 = c + (1.0 + a - c) * y1 - a * y0;
    let under = IntegralLoop::new(&cache(), gain(213.0));
    let response: Vec<f64> = under.step_response().take(3).collect();
    for (found, expected) in response.into_iter().zip([y0, y1, y2]) {
        assert!((found - expected).abs() < 1e-12);
    }
    assert_eq!(under.settling_intervals(), Some(2));
    assert!((under.overshoot().unwrap() - (y2 - 1.0)).abs() < 1e-12);
    assert_eq!(under.poles().len(), 2);
}

#[test]
fn a_storage_that_gets_faster_with_load_cannot_be_steered() {
    let backwards = printed(-0.1, 0.1);
    assert_eq!((backwards.stable_below(), backwards.recommended_gain()), (None, None));
    assert_eq!(backwards.gains(10).count(), 0);
    // Nor one that grows by itself for ever.
    assert_eq!(printed(0.1, 1.1).stable_below(), None);
    assert_eq!(printed(0.0, 0.1).stable_below(), None);
}

#[test]
fn parameters_that_are_none_are_refused() {
    assert_eq!(ArxModel::new(vec![], vec![0.1]), Err(ArxError::Order(0)));
    assert_eq!(ArxModel::new(vec![0.0; 9], vec![0.1; 10]), Err(ArxError::Order(9)));
    assert_eq!(ArxModel::new(vec![0.1], vec![0.1]), Err(ArxError::Inputs { order: 1, inputs: 1 }));
    for wrong in [f64::NAN, f64::INFINITY] {
        assert_eq!(ArxModel::new(vec![wrong], vec![0.1, 0.0]), Err(ArxError::NotFinite));
        assert_eq!(ArxModel::new(vec![0.1], vec![0.1, wrong]), Err(ArxError::NotFinite));
    }
}

#[test]
fn what_does_not_determine_a_model_is_refused() {
    let fit = |samples: &[ArxSample], offset| ArxModel::fit(samples, 1, offset);
    let good = excited(&cache(), 0.1, 100, 1);
    assert_eq!(ArxModel::fit(&good, 0, ModelOffset::None), Err(ArxError::Order(0)));
    assert_eq!(ArxModel::fit(&good, 9, ModelOffset::None), Err(ArxError::Order(9)));
    assert_eq!(
        fit(&good[..15], ModelOffset::None),
        Err(ArxError::TooFew { samples: 14, parameters: 3, needed: 15 })
    );
    assert!(fit(&good[..16], ModelOffset::None).is_ok());
    assert_eq!(
        fit(&good[..16], ModelOffset::Fitted),
        Err(ArxError::TooFew { samples: 15, parameters: 4, needed: 20 })
    );
    // The operating point stands still, whatever the storage does.
    let still: Vec<_> =
        good.iter().map(|one| ArxSample { operating_point: Iops::new(100.0), ..*one }).collect();
    // The storage answers the same, whatever is set.
    let deaf: Vec<_> = good.iter().map(|one| sample(one.operating_point.per_second(), 5.0)).collect();
    for offset in [ModelOffset::None, ModelOffset::Fitted] {
        assert_eq!(fit(&still, offset), Err(ArxError::NotExcited));
        assert_eq!(fit(&deaf, offset), Err(ArxError::NotExcited));
    }
    // Two values by turns.
    let turns: Vec<_> = (0..100).map(|at| sample([100.0, 50.0][at % 2], [4.0, 2.0][at % 2])).collect();
    assert_eq!(fit(&turns, ModelOffset::Fitted), Err(ArxError::NotExcited));
}

/// Intervals without requests say nothing, and what comes after them is not explained by what came before.
#[test]
fn gaps_are_left_out() {
    let mut samples = excited(&printed(0.1, 0.4), 0.0, 200, 7);
    let whole = ArxModel::fit(&samples, 1, ModelOffset::None).unwrap();
    for at in (5..200).step_by(10) {
        samples[at].response = None;
    }
    let holed = ArxModel::fit(&samples, 1, ModelOffset::None).unwrap();
    assert_eq!((whole.samples, holed.samples), (199, 199 - 2 * 20));
    assert!((holed.model.outputs()[0] - 0.4).abs() < 1e-4);
    assert!((holed.model.inputs()[0] - 0.1).abs() < 1e-5);
}

/// Noise with a memory that the model does not have is told.
#[test]
fn residuals_that_go_on_are_seen() {
    let model = printed(0.1, 0.2);
    let clean = excited(&model, 0.0, 2_000, 3);
    let mut random = Pcg64::seed_from_u64(5);
    let (mut slow, mut noisy) = (0.0, Vec::new());
    for one in &clean {
        let deviation: f64 = StandardNormal.sample(&mut random);
        slow = 0.9 * slow + deviation;
        noisy.push(sample(
            one.operating_point.per_second(),
            30.0 + one.response.unwrap().as_millis_f64() + slow,
        ));
    }
    let correlation =
        |samples: &[ArxSample]| ArxModel::fit(samples, 1, ModelOffset::Fitted).unwrap().residual_correlation;
    // The fit takes up what it can of it; beyond 0.1 an interval is ruled out (`SamplingStudy`).
    assert!(correlation(&noisy) > 0.1, "{}", correlation(&noisy));
    assert!(correlation(&excited(&model, 1.0, 2_000, 3)) < 0.1);
}

/// Stable models of low order: denominators from real roots, inputs that raise the response time.
fn stable() -> impl Strategy<Value = ArxModel> {
    (1usize..=3).prop_flat_map(|order| {
        let roots = prop::collection::vec(-0.8..0.8f64, order);
        let inputs = prop::collection::vec(0.01..0.2f64, order + 1);
        (roots, inputs).prop_map(|(roots, inputs)| {
            let product = roots.iter().fold(vec![1.0], |product: Vec<f64>, root| {
                let mut out = product.clone();
                out.push(0.0);
                for (at, one) in product.iter().enumerate() {
                    out[at + 1] -= root * one;
                }
                out
            });
            ArxModel::new(product[1..].iter().map(|one| -one).collect(), inputs).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The found model predicts what the true one does. (The parameters themselves need not agree: if a zero
    /// cancels a pole, others give the same.) A constant keeps response times above zero, like all measured
    /// ones.
    #[test]
    fn without_noise_nothing_is_left(model in stable(), seed in any::<u64>()) {
        let model = ArxModel { offset: 1e5, ..model };
        match ArxModel::fit(&excited(&model, 0.0, 400, seed), model.order(), ModelOffset::Fitted) {
            Ok(fit) => {
                prop_assert!(fit.r_squared > 1.0 - 1e-9, "{fit:?}");
                let (found, true_one)
                    = (fit.model.gain_ms_per_iops().unwrap(), model.gain_ms_per_iops().unwrap());
                prop_assert!((found / true_one - 1.0).abs() < 1e-3, "{found} {true_one}");
            }
            Err(error) => prop_assert_eq!(error, ArxError::NotExcited),
        }
    }

    /// Models of first order, with parameters in the range of the other tests: here the parameters themselves
    /// are found.
    #[test]
    fn without_noise_the_model_is_found(a in 0.1..0.8f64, b in 0.05..0.5f64, b1 in 0.0..0.3f64,
        seed in any::<u64>()) {
        let model = ArxModel::new(vec![a], vec![b, b1]).unwrap();
        for offset in [ModelOffset::None, ModelOffset::Fitted] {
            let fit = ArxModel::fit(&excited(&model, 0.0, 200, seed), 1, offset).unwrap();
            prop_assert!((fit.model.outputs()[0] - a).abs() < 1e-4, "{fit:?}");
            prop_assert!((fit.model.inputs()[0] - b).abs() < 1e-5);
            prop_assert!((fit.model.inputs()[1] - b1).abs() < 1e-5);
            prop_assert!(fit.model.offset_ms().abs() < 1e-3);
        }
    }

    /// Six standard deviations: that of β_0 is σ/(√n·σ_u), that of α at most √((1 − α²)/n) and far less with
    /// an input.
    #[test]
    fn with_noise_it_is_found_within_the_noise(a in 0.0..0.8f64, b in 0.05..0.5f64, noise in 0.1..5.0f64,
        seed in any::<u64>()) {
        let fit = ArxModel::fit(&excited(&printed(b, a), noise, 1_000, seed), 1, ModelOffset::None).unwrap();
        let root = 1_000f64.sqrt();
        let deviation_of_u = 190.0 / 12f64.sqrt();
        prop_assert!((fit.model.outputs()[0] - a).abs() < 6.0 * (1.0 - a * a).sqrt() / root, "{fit:?}");
        prop_assert!((fit.model.inputs()[0] - b).abs() < 6.0 * noise / (root * deviation_of_u), "{fit:?}");
        // And what is left is the noise's own: no more of it can be told.
        prop_assert!(fit.residual_correlation < 6.0 / root, "{fit:?}");
    }

    /// Below the bound the error of a step dies away, above it grows.
    #[test]
    fn the_bound_is_where_errors_no_longer_die_away(model in stable()) {
        let bound = model.stable_below().unwrap().iops_per_ms();
        let at = |part: f64| {
            let under = IntegralLoop::new(&model, gain(part * bound));
            let radius = under.poles().into_iter().map(LoopPole::magnitude).fold(0.0, f64::max);
            let errors: Vec<f64> = under.step_response().take(1_000).map(|y| (y - 1.0).abs()).collect();
            let greatest = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
            (radius, greatest(&errors[300..400]), greatest(&errors[900..]))
        };
        let (radius, early, late) = at(0.97);
        prop_assert!(radius < 1.0 && (late < early || late < 1e-9), "{radius} {early} {late}");
        let (radius, early, late) = at(1.03);
        prop_assert!(radius > 1.0 && late > early, "{radius} {early} {late}");
        prop_assert!((at(1.0).0 - 1.0).abs() < 1e-5);
    }

    /// An error dies away as the farthest pole says: over many intervals, by its magnitude in each.
    #[test]
    fn poles_say_how_fast(model in stable(), part in 0.05..0.9f64) {
        let under = IntegralLoop::new(&model, gain(part * model.stable_below().unwrap().iops_per_ms()));
        let radius = under.poles().into_iter().map(LoopPole::magnitude).fold(0.0, f64::max);
        let errors: Vec<f64> = under.step_response().take(400).map(|y| (y - 1.0).abs()).collect();
        // Of a few consecutive ones the greatest: a pair of poles oscillates.
        let about = |at: usize| errors[at..at + 20].iter().copied().fold(0.0, f64::max);
        let (early, late) = (about(20), about(60));
        if late > 1e-10 {
            let rate = (late / early).powf(1.0 / 40.0);
            prop_assert!((rate - radius).abs() < 0.1, "{rate} {radius}");
        }
    }

    /// Against the response looked at one interval after the other.
    #[test]
    fn settling_is_when_it_stays_within_two_per_cent(model in stable(), part in 0.05..0.95f64) {
        let under = IntegralLoop::new(&model, gain(part * model.stable_below().unwrap().iops_per_ms()));
        let Some(settling) = under.settling_intervals() else { return Ok(()) };
        let response: Vec<f64> = under.step_response().take(4_000).collect();
        let from = settling as usize - 1;
        prop_assert!(response[from..].iter().all(|y| (y - 1.0).abs() <= 0.02));
        prop_assert!(from == 0 || (response[from - 1] - 1.0).abs() > 0.02);
        let most = response.iter().copied().fold(0.0, f64::max);
        prop_assert!((under.overshoot().unwrap() - (most - 1.0).max(0.0)).abs() < 1e-12);
    }
}
