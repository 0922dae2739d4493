//! What the packet-delay throttle does where there are many consumers, on the machine that it runs on. For
//! root, in a network namespace that has routes to the consumers: `lab/experiments/throttle-scale/drive.py`
//! runs it.
//!
//! usage: throttle netem|edt RESOURCES CONSUMERS
//!
//! The consumers are 10.1.0.1 and those that follow, CONSUMERS of them for each of RESOURCES. Prints one JSON
//! document; times in seconds, by this machine's clock. While everybody is held it says "held" on standard
//! error and waits for a line.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant as Clock;

use serde::Serialize;
use tidegate_host::throttle::{DelayedPackets, Throttle as Kernel, ThrottleMethod, ThrottleRequest, undo};
use tidegate_units::{Instant, Latency, ResourceName};

const DELAY: Latency = Latency::from_millis(50);

/// Every one of these changes something of every resource.
const CHANGES: u32 = 20;

#[derive(Serialize)]
struct Measured {
    method: String,
    resources: u32,
    consumers: u32,
    /// Everybody joins the sets.
    join_s: f64,
    /// Everybody is held, who was in the sets.
    hold_s: f64,
    /// Of all resources at once: another delay.
    change_delays_s: f64,
    /// Of all resources at once: one member leaves, and comes back.
    change_members_s: f64,
    /// Nothing is to be changed: what is in force is only looked at.
    unchanged_s: f64,
    /// Everybody is let go, and everything is removed.
    undo_s: f64,
}

struct Throttle {
    delay: Kernel,
    now: Instant,
}

impl Throttle {
    /// How long it takes to have that in force, an agent's interval after what was before.
    fn apply(&mut self, holds: &[ThrottleRequest]) -> Result<f64, Box<dyn Error>> {
        self.now = self.now + Latency::from_millis(100);
        let begin = Clock::now();
        self.delay.apply(self.now, holds)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// The mean time of a change.
    fn changes(&mut self, of: impl Fn(u32) -> Vec<ThrottleRequest>) -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for change in 1..=CHANGES {
            sum += self.apply(&of(change))?;
        }
        Ok(sum / f64::from(CHANGES))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [name, resources, consumers] = &arguments[..] else {
        return Err("usage: throttle netem|edt RESOURCES CONSUMERS".into());
    };
    let method = match name.as_str() {
        "netem" => ThrottleMethod::Netem,
        "edt" => ThrottleMethod::Edt,
        other => return Err(format!("there is no throttle `{other}`").into()),
    };
    let (resources, consumers): (u32, u32) = (resources.parse()?, consumers.parse()?);
    let first = u32::from(Ipv4Addr::new(10, 1, 0, 1));
    let of = |resource: u32| -> BTreeSet<IpAddr> {
        let begin = first + resource * consumers;
        (begin..begin + consumers).map(|address| Ipv4Addr::from(address).into()).collect()
    };
    let holds = |delay: Latency, without: Option<u32>| -> Vec<ThrottleRequest> {
        (0..resources)
            .map(|resource| {
                let name = ResourceName::new(&format!("vg{resource}"))
                    .expect("a short name without control characters");
                let members =
                    of(resource).into_iter().enumerate().filter(|(n, _)| Some(*n as u32) != without);
                let members = members.map(|(_, address)| address).collect();
                ThrottleRequest {
                    resource: name,
                    members,
                    delay,
                    limits: BTreeMap::new(),
                    cgroups: BTreeMap::new(),
                }
            })
            .collect()
    };

    let ports = BTreeSet::from([3260]);
    let mut throttle =
        Throttle { delay: Kernel::new(method, DelayedPackets::All, &ports, None)?, now: Instant::ZERO };
    let join_s = throttle.apply(&holds(Latency::ZERO, None))?;
    let hold_s = throttle.apply(&holds(DELAY, None))?;
    writeln!(io::stderr(), "held")?;
    io::stdin().read_line(&mut String::new())?;
    let unchanged_s = throttle.changes(|_| holds(DELAY, None))?;
    let change_delays_s =
        throttle.changes(|change| holds(DELAY.scale(f64::from(change) / f64::from(CHANGES)), None))?;
    let change_members_s = throttle.changes(|change| holds(DELAY, (change % 2 == 1).then_some(0)))?;
    let begin = Clock::now();
    undo()?;
    let undo_s = begin.elapsed().as_secs_f64();
    let measured = Measured {
        method: name.clone(),
        resources,
        consumers: resources * consumers,
        join_s,
        hold_s,
        change_delays_s,
        change_members_s,
        unchanged_s,
        undo_s,
    };
    writeln!(io::stdout(), "{}", serde_json::to_string(&measured)?)?;
    Ok(())
}
