//! `tidegate identify --relay`: gains for the PID of an agent's resource.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tidegate_agent::{ExperimentProgress, identify};
use tidegate_control::IdentifiedProcess;
use tidegate_units::{Latency, ResourceName};

use crate::agent::guardian;
use crate::failure::CommandFailure;
use crate::logging;
use crate::out;

/// Periods that differ by more than this part of their mean say little.
const UNEVEN: f64 = 0.3;

/// The time between two lines of progress on a terminal.
const BETWEEN_NEWS: Duration = Duration::from_secs(1);

/// The JSON document. Times in seconds.
#[derive(Serialize)]
struct RelayDocument {
    resource: ResourceName,
    at_rest_s: f64,
    around_s: f64,
    delay_s: f64,
    gain: f64,
    period_s: f64,
    period_spread: f64,
    amplitude_s: f64,
    time_constant_s: f64,
    dead_time_s: f64,
    proportional_gain: f64,
    integral_time_s: f64,
}

pub(super) fn run(
    config: &Path,
    resource: Option<&ResourceName>,
    limit: Latency,
    json: bool,
) -> Result<(), CommandFailure> {
    logging::start(Some("warn"))?;
    let terminal = io::stderr().is_terminal();
    let mut told = Duration::ZERO;
    let tell = |progress: ExperimentProgress| {
        if terminal && progress.at >= told + BETWEEN_NEWS {
            told = progress.at;
            // The reader may be gone; the experiment is of use all the same.
            let _ = writeln!(out::stderr(), "{}", line(&progress));
        }
    };
    let (resource, found) = identify(config, resource, limit.to_duration(), &guardian(), tell)?;
    let mut out = out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &document(resource, &found)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&resource, &found))?;
    }
    Ok(())
}

fn line(progress: &ExperimentProgress) -> String {
    let ExperimentProgress { at, delay, estimate, cycles, wanted } = progress;
    let reads = estimate.map_or_else(|| "unknown".to_owned(), |estimate| estimate.to_string());
    format!("{:>3} s  delay {delay}, reads {reads}, {cycles} of {wanted} oscillations", at.as_secs())
}

fn document(resource: ResourceName, found: &IdentifiedProcess) -> RelayDocument {
    RelayDocument {
        resource,
        at_rest_s: found.at_rest.as_secs_f64(),
        around_s: found.around.as_secs_f64(),
        delay_s: found.delay.as_secs_f64(),
        gain: found.gain,
        period_s: found.period.as_secs_f64(),
        period_spread: found.spread,
        amplitude_s: found.amplitude.as_secs_f64(),
        time_constant_s: found.time_constant.as_secs_f64(),
        dead_time_s: found.dead_time.as_secs_f64(),
        proportional_gain: found.proportional_gain,
        integral_time_s: found.integral_time.as_secs_f64(),
    }
}

fn text(resource: &ResourceName, found: &IdentifiedProcess) -> String {
    let IdentifiedProcess {
        at_rest, around, delay, gain, period, amplitude, time_constant, dead_time, ..
    } = found;
    let uneven = if found.spread > UNEVEN {
        "The oscillations differ much: the load changed meanwhile, or is uneven. Repeat it before you rely \
            on this.\n"
    } else {
        ""
    };
    format!(
        "{resource}: reads take {at_rest} with no consumer throttled, and {gain:.2} ms less per ms of \
            delay.\n\
         Held for {delay} and let go by turns, they go up and down around {around}, by {amplitude} every \
         {period} (± {:.0} %):\n\
         a lag of {time_constant}, and {dead_time} until a changed delay shows.\n\
         {uneven}\n\
         Gains for that (SIMC, closed-loop time constant equal to the dead time):\n\n\
         [resource.{resource}]\n\
         law = \"pid\"\n\
         pid = {{ proportional_gain = {:.2}, integral_time = \"{:.0}ms\" }}\n",
        100.0 * found.spread,
        found.proportional_gain,
        1e3 * found.integral_time.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_proposes_is_a_configuration() {
        let found = IdentifiedProcess {
            at_rest: Latency::from_millis(50),
            around: Latency::from_millis(16),
            delay: Latency::from_millis(40),
            gain: 0.8,
            period: Latency::from_millis(2_000),
            amplitude: Latency::from_millis(9),
            spread: 0.5,
            time_constant: Latency::from_millis(800),
            dead_time: Latency::from_millis(300),
            proportional_gain: 1.456_7,
            integral_time: Latency::from_millis(900),
        };
        let said = text(&ResourceName::new("vg0").unwrap(), &found);
        assert!(said.contains("Repeat it"), "{said}");
        let proposed = &said[said.find("[resource").unwrap()..];
        let complete = format!("{proposed}target = \"15ms\"\n");
        let config = tidegate_agent::AgentConfig::parse("t.toml", &complete).unwrap();
        let tidegate_control::LawConfig::Pid(pid) = config.resources[0].law.law else { panic!("the PID") };
        assert!((pid.proportional_gain - 1.46).abs() < 1e-9);
        assert_eq!(pid.integral_time, Duration::from_millis(900));
    }
}
