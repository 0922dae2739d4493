//! Table 2 and figures 3 and 4: what a storage's answer to white noise says of it, and of a controller for
//! it.

use std::time::Duration;

use tidegate_control::{
    ArxFit, ArxModel, ControllerGain, IntegralLoop, ModelOffset, SampledFit, SamplingStudy,
};
use tidegate_device::{DeviceConfig, ExponentialConfig};
use tidegate_sim::excite::Excitation;
use tidegate_units::{Bytes, Iops};

use super::{CACHE, DISK, SERVERS};
use crate::measure::{of, ratio};
use crate::subject::Identification;
use crate::{
    Experiment, JudgedQuantity, NamedRun, Plot, PlotLine, ReportedFigure, RunResult, SeedTrial, Tolerance,
};

/// Table 2's intervals.
const INTERVALS: [u64; 5] = [1_000, 750, 500, 300, 100];

/// Table 2, by interval: R² of the cache and of the disk.
const R_SQUARED: [(u64, f64, f64); 5] = [
    (1_000, 0.764, 0.416),
    (750, 0.745, 0.399),
    (500, 0.685, 0.379),
    (300, 0.479, 0.159),
    (100, 0.439, 0.112),
];

const STORAGES: [&str; 2] = ["cache", "disk"];

/// Between which parts of a storage's capacity the operating point was: see the head of this part.
const OPERATING_POINTS: [f64; 2] = [0.6, 1.1];

/// The interval that the paper chooses, in milliseconds.
const CHOSEN: u64 = 1_000;

fn excited(name: &'static str, rate: f64) -> NamedRun {
    let device = DeviceConfig::Exponential(ExponentialConfig {
        rate: Iops::new(rate),
        servers: SERVERS,
        capacity: Bytes::from_gib(36),
    });
    let [least, greatest] = OPERATING_POINTS.map(|part| part * rate);
    let excitation = Excitation {
        spread: (greatest - least) / (greatest + least),
        ..Excitation::new(device, Bytes::from_kib(4), Iops::new(f64::midpoint(least, greatest)))
    };
    let intervals = INTERVALS.map(Duration::from_millis).to_vec();
    NamedRun::new(
        name,
        Identification { name: format!("triage: {name}, white noise"), excitation, intervals },
    )
}

fn runs() -> Vec<NamedRun> {
    vec![excited("cache", CACHE), excited("disk", DISK)]
}

fn fit(run: &RunResult, millis: u64, order: usize) -> Option<ArxFit> {
    let interval = Duration::from_millis(millis);
    let (_, samples) = run.excited.iter().find(|(own, _)| *own == interval)?;
    ArxModel::fit(samples, order, ModelOffset::None).ok()
}

fn model(trial: &SeedTrial<'_>, storage: &str) -> Option<ArxModel> {
    fit(trial.run(storage)?, CHOSEN, 1).map(|fit| fit.model)
}

fn sampling(run: &RunResult) -> Option<SamplingStudy> {
    let fits = INTERVALS.iter().flat_map(|millis| [1, 2].map(|order| (*millis, order)));
    let fitted = |(millis, order)| {
        Some(SampledFit { interval: Duration::from_millis(millis), fit: fit(run, millis, order)? })
    };
    Some(SamplingStudy::new(fits.map(fitted).collect::<Option<_>>()?))
}

pub(super) fn table2() -> Experiment {
    let mut quantities = Vec::new();
    let mut figures = Vec::new();
    for (place, storage) in STORAGES.into_iter().enumerate() {
        let paper = |row: (u64, f64, f64)| if place == 0 { row.1 } else { row.2 };
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: R² at 1 s"),
                Tolerance::near(paper(R_SQUARED[0]), 25.0),
                of(storage, |run| Some(fit(run, CHOSEN, 1)?.r_squared)),
            )
            .paper(paper(R_SQUARED[0])),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: R² at 100 ms : at 1 s"),
                Tolerance::AtMost(0.8),
                of(storage, |run| {
                    ratio(Some(fit(run, 100, 1)?.r_squared), Some(fit(run, CHOSEN, 1)?.r_squared))
                }),
            )
            .paper(paper(R_SQUARED[4]) / paper(R_SQUARED[0])),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: greatest residual correlation from 500 ms on"),
                Tolerance::AtMost(0.1),
                of(storage, |run| {
                    let each = [1_000, 750, 500].map(|millis| fit(run, millis, 1));
                    each.into_iter().try_fold(0.0, |most: f64, fit| Some(most.max(fit?.residual_correlation)))
                }),
            )
            .paper(0.05),
        );
        quantities.push(JudgedQuantity::new(
            format!("{storage}: what a second order adds to R² at 1 s"),
            Tolerance::AtMost(0.05),
            of(storage, |run| Some(fit(run, CHOSEN, 2)?.r_squared - fit(run, CHOSEN, 1)?.r_squared)),
        ));
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: sampling interval that is chosen"),
                Tolerance::near(1.0, 1.0),
                of(storage, |run| Some(sampling(run)?.recommended()?.interval.as_secs_f64())),
            )
            .paper(1.0)
            .unit("s"),
        );
        for row in R_SQUARED {
            let millis = row.0;
            figures.push(ReportedFigure::new(
                format!("{storage}: R² at {millis} ms"),
                "",
                Some(paper(row)),
                of(storage, move |run| Some(fit(run, millis, 1)?.r_squared)),
            ));
            figures.push(ReportedFigure::new(
                format!("{storage}: residual correlation at {millis} ms"),
                "",
                None,
                of(storage, move |run| Some(fit(run, millis, 1)?.residual_correlation)),
            ));
        }
    }
    quantities.push(
        JudgedQuantity::new("R² at 1 s, disk : cache", Tolerance::AtMost(0.9), |trial| {
            let of = |storage| Some(fit(trial.run(storage)?, CHOSEN, 1)?.r_squared);
            ratio(of("disk"), of("cache"))
        })
        .paper(0.416 / 0.764),
    );
    Experiment {
        runs: runs(),
        quantities,
        figures,
        plots: vec![Plot {
            title: "R² by sampling interval".to_owned(),
            unit: "",
            over: "ms",
            marks: Vec::new(),
            lines: Box::new(|trial| {
                let line = |storage: &'static str| {
                    let run = trial.run(storage)?;
                    let point = |millis: &u64| Some((*millis as f64, fit(run, *millis, 1)?.r_squared));
                    let points = INTERVALS.iter().rev().filter_map(point).collect();
                    Some(PlotLine { name: storage.to_owned(), points })
                };
                STORAGES.into_iter().filter_map(line).collect()
            }),
        }],
        ..Experiment::of("triage.table2")
    }
}

/// The models that the paper prints in figure 3: α_1 and β_0.
fn printed(storage: &str) -> Option<ArxModel> {
    let (output, input) = if storage == "cache" { (0.045_54, 0.003_827) } else { (0.001_109, 0.137_7) };
    ArxModel::new(vec![output], vec![input, 0.0]).ok()
}

pub(super) fn fig3() -> Experiment {
    let mut quantities = Vec::new();
    for (storage, gain) in [("cache", 0.004_01), ("disk", 0.137_85)] {
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: gain of the model"),
                Tolerance::near(gain, 10.0),
                move |trial| model(trial, storage)?.gain_ms_per_iops(),
            )
            .paper(gain)
            .unit("ms per IO/s"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}: what is left of the response time of the interval before, |α|"),
                Tolerance::AtMost(0.1),
                move |trial| Some(model(trial, storage)?.outputs()[0].abs()),
            )
            .paper(printed(storage).map_or(0.0, |model| model.outputs()[0])),
        );
        quantities.push(JudgedQuantity::new(
            format!("{storage}: |β_1| : β_0"),
            Tolerance::AtMost(0.5),
            move |trial| {
                let model = model(trial, storage)?;
                ratio(Some(model.inputs()[1].abs()), Some(model.inputs()[0]))
            },
        ));
    }
    quantities.push(
        JudgedQuantity::new("gain of the disk : of the cache", Tolerance::near(34.4, 15.0), |trial| {
            ratio(model(trial, "disk")?.gain_ms_per_iops(), model(trial, "cache")?.gain_ms_per_iops())
        })
        .paper(34.4),
    );
    Experiment {
        runs: runs(),
        quantities,
        plots: STORAGES
            .map(|storage| Plot {
                title: format!("{storage}: response time, and what the model says"),
                unit: "ms",
                over: "s",
                marks: Vec::new(),
                lines: Box::new(move |trial| predicted(trial, storage).unwrap_or_default()),
            })
            .into(),
        ..Experiment::of("triage.fig3")
    }
}

/// A hundred seconds of what was measured, and of what the model makes of what was before.
fn predicted(trial: &SeedTrial<'_>, storage: &str) -> Option<Vec<PlotLine>> {
    let model = model(trial, storage)?;
    let (_, samples) = trial.run(storage)?.excited.first()?;
    let (mut measured, mut said) = (Vec::new(), Vec::new());
    for (place, pair) in samples.windows(2).take(100).enumerate() {
        let [before, now] = pair else { continue };
        let (Some(past), Some(response)) = (before.response, now.response) else { continue };
        let set = [now, before].map(|sample| sample.operating_point.per_second());
        let second = (place + 2) as f64;
        measured.push((second, response.as_millis_f64()));
        said.push((second, model.predict(&[past.as_millis_f64()], &set)));
    }
    Some(vec![
        PlotLine { name: "measured".to_owned(), points: measured },
        PlotLine { name: "model".to_owned(), points: said },
    ])
}

fn gain(gain: Option<ControllerGain>) -> Option<f64> {
    gain.map(ControllerGain::iops_per_ms)
}

pub(super) fn fig4() -> Experiment {
    let mut quantities = Vec::new();
    for (storage, stable, good) in [("cache", 546.0, 213.0), ("disk", 14.5, 7.2)] {
        // The trial is asked, so that nothing is shown where nothing ran.
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}, the paper's model: stable below"),
                Tolerance::near(stable, 1.0),
                move |trial| {
                    trial.run(storage)?;
                    gain(printed(storage)?.stable_below())
                },
            )
            .paper(stable)
            .unit("IO/s per ms"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}, the paper's model: good K_I"),
                Tolerance::near(good, 2.0),
                move |trial| {
                    trial.run(storage)?;
                    gain(printed(storage)?.recommended_gain())
                },
            )
            .paper(good)
            .unit("IO/s per ms"),
        );
        quantities.push(
            JudgedQuantity::new(
                format!("{storage}, our model: good K_I"),
                Tolerance::near(good, 25.0),
                move |trial| gain(model(trial, storage)?.recommended_gain()),
            )
            .paper(good)
            .unit("IO/s per ms"),
        );
    }
    quantities.push(JudgedQuantity::new(
        "good K_I of our cache : greatest stable K_I of our disk",
        Tolerance::AtLeast(5.0),
        |trial| {
            ratio(gain(model(trial, "cache")?.recommended_gain()), gain(model(trial, "disk")?.stable_below()))
        },
    ));
    Experiment {
        runs: runs(),
        quantities,
        plots: STORAGES
            .map(|storage| Plot {
                title: format!("{storage}, our model: settling time and overshoot against K_I"),
                unit: "s, and %",
                over: "IO/s per ms",
                marks: Vec::new(),
                lines: Box::new(move |trial| against_gain(trial, storage).unwrap_or_default()),
            })
            .into(),
        ..Experiment::of("triage.fig4")
    }
}

fn against_gain(trial: &SeedTrial<'_>, storage: &str) -> Option<Vec<PlotLine>> {
    let model = model(trial, storage)?;
    let most = model.stable_below()?.iops_per_ms();
    let (mut settling, mut overshoot) = (Vec::new(), Vec::new());
    for step in 1..40_u32 {
        let Ok(gain) = ControllerGain::new(most * f64::from(step) / 40.0) else { continue };
        let closed = IntegralLoop::new(&model, gain);
        let at = gain.iops_per_ms();
        settling.extend(closed.settling_intervals().map(|intervals| (at, f64::from(intervals))));
        overshoot.extend(closed.overshoot().map(|part| (at, part * 100.0)));
    }
    Some(vec![
        PlotLine { name: "settling time".to_owned(), points: settling },
        PlotLine { name: "overshoot".to_owned(), points: overshoot },
    ])
}
