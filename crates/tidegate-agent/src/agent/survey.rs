//! What this machine can sense and throttle, and what a configuration comes to on it. Nothing is changed.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tidegate_host::Root;
use tidegate_host::sense::session::{Session, Target};
use tidegate_host::sense::{Sessions, latency};
use tidegate_host::throttle::{Capability, Method, probe, rate};

use super::config::{AgentConfig, ResourceConfig};
use super::watch::Watch;

/// What was found, for a person ([`Display`](fmt::Display)) or a program.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// Each sensor.
    pub sensors: Vec<Finding>,
    /// Each part of the throttle.
    pub throttles: Vec<Finding>,
    /// Each resource of the configuration.
    pub resources: Vec<ResourceFinding>,
}

/// Something that works, or why it does not.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// What.
    pub what: String,
    /// Whether it works.
    pub works: bool,
    /// What it says, or why it does not work and what would help.
    pub detail: String,
}

/// A resource on this machine.
#[derive(Debug, Serialize)]
pub struct ResourceFinding {
    /// Its name.
    pub resource: String,
    /// Whether its storage is here.
    pub here: bool,
    /// The initiators that are logged in to a volume of it.
    pub consumers: BTreeSet<String>,
    /// What is not known of them.
    pub doubts: BTreeSet<String>,
    /// Whose writes the configuration's throttle cannot hold.
    pub beyond: BTreeSet<String>,
}

impl Survey {
    /// Looks at this machine.
    #[must_use]
    pub fn take(config: Option<&AgentConfig>) -> Self {
        const DEVICES: &str = "block devices and LVM";
        let throttles = throttles();
        let watch = match Watch::new(Root::default()) {
            Ok(watch) => watch,
            Err(error) => {
                let blind = Finding { what: DEVICES.to_owned(), works: false, detail: error.to_string() };
                return Self { sensors: vec![blind], throttles, resources: Vec::new() };
            }
        };
        let volumes = watch.volumes();
        let groups = match volumes.volume_groups().join(", ") {
            groups if groups.is_empty() => "none".to_owned(),
            groups => groups,
        };
        let detail = format!("{} devices; volume groups: {groups}", volumes.devices().len());
        let mut sensors = vec![Finding { what: DEVICES.to_owned(), works: true, detail }];
        let Sessions { sessions, targets } = watch.sessions();
        for (via, target) in targets {
            let (works, detail) = match target {
                Target::Read => {
                    let count = sessions.iter().filter(|session| session.via == *via).count();
                    (true, format!("{count} sessions"))
                }
                Target::Absent(why) => (false, why.to_string()),
                Target::Failed(error) => (false, error.to_string()),
            };
            sensors.push(Finding { what: format!("sessions of {via}"), works, detail });
        }
        sensors.push(request_times());
        let resources = config.into_iter().flat_map(|config| {
            config.resources.iter().map(|resource| resource_finding(resource, config.throttle, &watch))
        });
        let resources = resources.collect();
        Self { sensors, throttles, resources }
    }
}

fn request_times() -> Finding {
    const PURPOSE: &str = "percentiles of devices' response times (histograms = true)";
    let works = latency::probe();
    let detail = match &works {
        Ok(()) => PURPOSE.to_owned(),
        Err(error) => format!("{PURPOSE}: {error}; it takes {}", latency::REMEDY),
    };
    Finding { what: "eBPF block tracepoints".to_owned(), works: works.is_ok(), detail }
}

fn throttles() -> Vec<Finding> {
    let finding = |capability: Capability| {
        let detail = match &capability.works {
            Ok(()) => capability.purpose.to_owned(),
            Err(error) => format!("{}: {error}; it takes {}", capability.purpose, capability.remedy),
        };
        Finding { what: capability.what.to_owned(), works: capability.works.is_ok(), detail }
    };
    let mut findings: Vec<_> = match probe() {
        Ok(capabilities) => capabilities.into_iter().map(finding).collect(),
        Err(error) => {
            let detail = format!("cannot be tried: {error}; run this as root");
            vec![Finding { what: "packet delay".to_owned(), works: false, detail }]
        }
    };
    findings.extend(rate::probe(&Root::default()).into_iter().map(finding));
    findings
}

fn resource_finding(config: &ResourceConfig, throttle: Method, watch: &Watch) -> ResourceFinding {
    let beyond = (throttle == Method::Rate).then(|| watch.beyond_limits(&config.storage));
    let places = watch.devices_of(&config.storage);
    let devices: Vec<_> = places.into_iter().map(|place| watch.device(place).number()).collect();
    let loads = |session: &&Session| session.device.is_some_and(|number| devices.contains(&number));
    let of = || watch.sessions().sessions.iter().filter(loads);
    ResourceFinding {
        resource: config.law.resource.to_string(),
        here: watch.has(&config.storage),
        consumers: of().map(|session| session.consumer.to_string()).collect(),
        doubts: of()
            .filter_map(|session| Some(format!("{}: {}", session.consumer, session.doubt.as_ref()?)))
            .collect(),
        beyond: beyond
            .into_iter()
            .flatten()
            .map(|session| format!("{}, over {}", session.consumer, session.via))
            .collect(),
    }
}

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in self.sensors.iter().chain(&self.throttles) {
            let mark = if finding.works { "has  " } else { "lacks" };
            writeln!(f, "{mark} {}: {}", finding.what, finding.detail)?;
        }
        for resource in &self.resources {
            let ResourceFinding { resource, here, consumers, doubts, beyond } = resource;
            if !here {
                writeln!(f, "resource {resource}: there is no such storage here, yet")?;
                continue;
            }
            writeln!(f, "resource {resource}: {} initiators", consumers.len())?;
            for consumer in consumers {
                writeln!(f, "  {consumer}")?;
            }
            for doubt in doubts {
                writeln!(f, "  unknown addresses of {doubt}")?;
            }
            for consumer in beyond {
                writeln!(f, "  not held by the throttle rate: {consumer}")?;
            }
        }
        Ok(())
    }
}
