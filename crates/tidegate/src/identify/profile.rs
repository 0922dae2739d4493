//! `tidegate identify --model` and `--live`: the response time of a storage over the rate, and the process
//! gain.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidegate_admission::{LatencyGain, LatencyProfile};
use tidegate_control::{ClosedLoopPole, ControllerGain, ProcessGain, gain_for};
use tidegate_device::Preset;
use tidegate_load::LoadTarget;
use tidegate_sim::offer::{ConsumerLoad, LoadOffer};
use tidegate_units::{Bytes, ConsumerName, Iops};

use super::{Args, page, show};
use crate::admit::file::{ContractFile, RequirementSet};
use crate::columns::{heading, write_rows};
use crate::failure::CommandFailure;
use crate::live::LiveTenant;
use crate::live::error::LiveError;

/// The default size of reads: as Lee's disk was profiled (figure 4).
pub(super) const SIZE: Bytes = Bytes::from_kib(4);

/// A request that is waited for longer says that the storage does not keep up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The identified profile of a storage.
pub(super) struct ProfileResult {
    /// The storage's name, as it was given.
    pub(super) model: String,
    pub(super) profile: LatencyProfile,
    pub(super) gain: LatencyGain,
    /// The intended place of the closed loop's pole.
    pub(super) pole: ClosedLoopPole,
    /// A description of the measurement.
    pub(super) effort: String,
}

/// The JSON document. Times in seconds, rates in requests per second; the gain in milliseconds for each
/// request per second.
#[derive(Serialize)]
struct ProfileDocument<'a> {
    model: &'a str,
    points: Vec<PointDocument>,
    greatest_iops: Iops,
    assumed_sustained_iops: Iops,
    stable_from_iops: Iops,
    stable_to_iops: Iops,
    at_iops: Iops,
    gain_ms_per_iops: f64,
    r_squared: f64,
    local_gain_ms_per_iops: Option<f64>,
    /// K; null where response times do not grow.
    controller_gain_iops_per_ms: Option<f64>,
    stable_below_iops_per_ms: Option<f64>,
    pole: f64,
    settling_periods: u32,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct PointDocument {
    offered_iops: Iops,
    completed_iops: Iops,
    mean_s: f64,
    p95_s: f64,
    sustained: bool,
}

pub(super) fn run_model(model: &str, args: &Args) -> Result<(), CommandFailure> {
    let (mut offer, contracted) = offer(model, args.size)?;
    args.effort.apply(&mut offer);
    let capacity = offer.capacity().map_err(CommandFailure::Scenario)?;
    let points = offer.points(capacity, args.points).map_err(CommandFailure::Scenario)?;
    run(model, points, contracted, args.effort.said(), args)
}

/// Reads an export at rates up to `greatest`, from the least one on, and no further than the storage keeps
/// up.
pub(super) fn run_live(target: &LoadTarget, greatest: Iops, args: &Args) -> Result<(), CommandFailure> {
    let tenant = LiveTenant {
        name: reader()?,
        rate: greatest,
        size: args.size.unwrap_or(SIZE),
        reads: 1.0,
        patience: PATIENCE,
    };
    let name = tenant.name.clone();
    let mut live = args.loading.begin(target, vec![tenant], &args.effort)?;
    let mut points = Vec::new();
    for at in 1..=args.points {
        let scale = f64::from(at) / f64::from(args.points);
        if !live.is_worth(scale) {
            return Err(LiveError::Unprofiled { rate: Iops::new(greatest.per_second() * scale) }.into());
        }
        let point = live.at(scale)?.point().ok_or_else(|| LiveError::Nothing(name.clone()))?;
        points.push(point);
        if !point.sustained {
            break;
        }
    }
    let effort = format!("{} at each rate, arrivals {}", live.said(), args.effort.arrivals_name());
    run(&target.to_string(), points, None, effort, args)
}

fn reader() -> Result<ConsumerName, CommandFailure> {
    ConsumerName::new("reads").map_err(|error| CommandFailure::Usage(error.to_string()))
}

fn run(
    model: &str,
    points: Vec<tidegate_admission::ProfilePoint>,
    contracted: Option<Iops>,
    effort: String,
    args: &Args,
) -> Result<(), CommandFailure> {
    let profile = LatencyProfile::new(points).map_err(CommandFailure::Profile)?;
    let at = args.rate.or(contracted).unwrap_or_else(|| profile.assumed_sustained());
    let gain = profile.gain(at);
    let pole = args.pole;
    let found = ProfileResult { model: model.to_owned(), profile, gain, pole, effort };
    show(&found, &found.document(), || page::write(&found), args)
}

/// The load on a preset, or on what a file says; and the rate of the contracts there.
pub(super) fn offer(model: &str, size: Option<Bytes>) -> Result<(LoadOffer, Option<Iops>), CommandFailure> {
    let mut offer = match model.parse::<Preset>() {
        Ok(preset) => LoadOffer::new(preset.config(), Vec::new()),
        Err(unknown) => {
            let path = Path::new(model);
            if !path.exists() {
                return Err(CommandFailure::Usage(format!("{unknown}; and no file `{model}`")));
            }
            let file = ContractFile::read(path)?;
            if let Some(RequirementSet { contracts, loads, .. }) = file.only_set()? {
                if size.is_some() {
                    return Err(CommandFailure::Usage(
                        "the contracts of the file say the sizes: leave out --size".to_owned(),
                    ));
                }
                return Ok((file.offer(loads.clone())?, Some(contracts.total())));
            }
            file.offer(Vec::new())?
        }
    };
    // Any rate: what is measured are parts of the capacity.
    offer.loads = vec![ConsumerLoad::random_reads(reader()?, Iops::new(1.0), size.unwrap_or(SIZE))];
    Ok((offer, None))
}

impl ProfileResult {
    /// Returns the reasons to doubt the gain, in words.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.gain.doubts.iter().map(ToString::to_string).collect()
    }

    /// G as the controller is to have it: the steeper of the line through the region and the slope right at
    /// the rate, since what is stable on the steeper one is stable on the other. `None` where response times
    /// do not grow, and where the storage does not keep up.
    fn steeper(&self) -> Option<ProcessGain> {
        if !self.gain.is_sustained() {
            return None;
        }
        let slopes = [Some(self.gain.ms_per_iops), self.gain.local_ms_per_iops];
        ProcessGain::new(slopes.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)).ok()
    }

    fn controller(&self) -> Option<(ControllerGain, ControllerGain)> {
        self.steeper().map(|process| (gain_for(process, self.pole), process.stable_below()))
    }

    /// Returns the controller gain for this profile, in words.
    fn tuning(&self) -> String {
        if !self.gain.is_sustained() {
            return "No controller can work there: the queue grows without end, whatever the gain."
                .to_owned();
        }
        let Some((gain, bound)) = self.controller() else {
            let none = "Response times do not grow there, which leaves nothing to steer by: look at a higher \
                --rate.";
            return none.to_owned();
        };
        format!(
            "Controller gain by the steeper slope: K = {:.3} IO/s per ms for a pole at {}, stable below \
                {:.3}; an error is \
             down to 5 % after {} control periods.",
            gain.iops_per_ms(),
            self.pole.get(),
            bound.iops_per_ms(),
            self.pole.settling_periods(),
        )
    }

    /// Returns the findings of the profile, a sentence each.
    pub(super) fn sentences(&self) -> [String; 3] {
        let region = self.profile.stable();
        let [most, assumed, to, at] =
            [self.profile.greatest(), self.profile.assumed_sustained(), region.to, self.gain.at]
                .map(Iops::per_second);
        [
            format!(
                "It completes {most:.1} IO/s at the most; three quarters of that are {assumed:.1}. The mean \
                    response time grows \
                 about linearly up to {to:.1} IO/s."
            ),
            format!(
                "Process gain at {at:.1} IO/s: G = {:.4} ms per IO/s (R² {:.2}){}.",
                self.gain.ms_per_iops,
                self.gain.r_squared,
                self.gain
                    .local_ms_per_iops
                    .map_or_else(String::new, |slope| format!("; right there {slope:.4}")),
            ),
            self.tuning(),
        ]
    }

    fn document(&self) -> ProfileDocument<'_> {
        let points = self.profile.points().iter().map(|point| PointDocument {
            offered_iops: point.offered,
            completed_iops: point.completed,
            mean_s: point.mean.as_secs_f64(),
            p95_s: point.quantile.as_secs_f64(),
            sustained: point.sustained,
        });
        let region = self.profile.stable();
        ProfileDocument {
            model: &self.model,
            points: points.collect(),
            greatest_iops: self.profile.greatest(),
            assumed_sustained_iops: self.profile.assumed_sustained(),
            stable_from_iops: region.from,
            stable_to_iops: region.to,
            at_iops: self.gain.at,
            gain_ms_per_iops: self.gain.ms_per_iops,
            r_squared: self.gain.r_squared,
            local_gain_ms_per_iops: self.gain.local_ms_per_iops,
            controller_gain_iops_per_ms: self.controller().map(|(gain, _)| gain.iops_per_ms()),
            stable_below_iops_per_ms: self.controller().map(|(_, bound)| bound.iops_per_ms()),
            pole: self.pole.get(),
            settling_periods: self.pole.settling_periods(),
            warnings: self.warnings(),
        }
    }
}

impl fmt::Display for ProfileResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {}\n", self.model, self.effort)?;
        let region = self.profile.stable();
        let mut rows = vec![heading(&["   IO/s", "completed", "mean", "p95", "response time"])];
        for point in self.profile.points() {
            let what = match point.sustained {
                true if region.contains(point.offered) => "linear",
                true => "beyond",
                false => "overloaded",
            };
            rows.push(vec![
                format!("{:>7.1}", point.offered.per_second()),
                format!("{:.1}", point.completed.per_second()),
                point.mean.to_string(),
                point.quantile.to_string(),
                what.to_owned(),
            ]);
        }
        write_rows(f, &rows)?;
        for sentence in self.sentences() {
            writeln!(f, "{sentence}")?;
        }
        for warning in self.warnings() {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}
