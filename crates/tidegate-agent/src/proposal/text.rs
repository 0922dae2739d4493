//! The text of a proposed configuration. Pure.

use std::fmt::Write as _;

use tidegate_host::throttle::ThrottleMethod;
use tidegate_units::{ByteRate, Latency};

use super::inventory::{
    FoundConsumer, FoundStorage, MachineInventory, MeasuredReads, ReadSource, RegulationKind,
};
use super::{ConfigurationProposal, ProposalRequest};
use crate::config::MachineStorage;

/// The target in means of the measured reads: chosen, as room for what the protected consumers do themselves.
const TARGET_MEANS: f64 = 2.0;

/// The least target that is proposed: chosen, since packets are delayed in steps of 0.5 ms.
const LEAST_TARGET: Latency = Latency::from_millis(1);

/// More consumers are counted, and not listed.
const MOST_LISTED: usize = 50;

/// Proposes a configuration.
pub(super) fn propose(
    inventory: &MachineInventory,
    request: &ProposalRequest,
    origin: &str,
) -> Result<ConfigurationProposal, String> {
    let Some(kind) = inventory.kind else {
        return Err("there is nothing to regulate: no target has sessions or volume groups, and there are \
                    no cgroups; `tidegate serve` regulates volumes that it exports itself: see \
                    docs/guide/gateway.md"
            .to_owned());
    };
    if inventory.storages.is_empty() {
        return Err(format!(
            "no storage found is called {}; `tidegate check` lists what there is",
            request.storages.join(" or ")
        ));
    }
    let (mut sections, mut names, mut unmeasured) = (String::new(), Vec::new(), Vec::new());
    for storage in &inventory.storages {
        let is_protected = |one: &FoundConsumer| is_protected(one, request);
        match target(storage, request) {
            // The key `cgroups` cannot be empty.
            _ if kind == RegulationKind::Cgroups && storage.consumers.iter().all(is_protected) => {
                unmeasured.push(format!("{}: all its cgroups are protected", name_of(storage)));
            }
            Ok((target, reason)) => {
                write_resource(&mut sections, kind, storage, request, (target, &reason));
                names.push(name_of(storage));
            }
            Err(why) => unmeasured.push(format!("{}: {why}", name_of(storage))),
        }
    }
    if names.is_empty() {
        return Err(format!(
            "nothing is proposed: {}; let the storage be used while `init` watches, or name the target with \
             `--target 10ms`",
            unmeasured.join("; ")
        ));
    }
    let method = inventory.method();
    let mut text = head(origin, &names, request.port);
    write_throttle(&mut text, inventory, kind, method);
    text.push_str(&sections);
    for storage in unmeasured {
        let _ = writeln!(text, "\n# Left out: {storage}");
    }
    if let Some(socket) = &request.socket {
        let socket = quoted(&format!("unix:{socket}"));
        let _ = writeln!(text, "\n# The socket for commands that change something: for its user and root.");
        let _ = writeln!(text, "[api]\nlisten = [{socket}]");
    }
    let drop_in = method.and_then(drop_in);
    Ok(ConfigurationProposal { text, resources: names, drop_in })
}

fn head(origin: &str, names: &[String], port: u16) -> String {
    let first = &names[0];
    format!(
        "# {origin}\n\
         #\n\
         # Everything below is a dry run: the agent measures, decides and logs, and throttles\n\
         # nothing, until\n\
         #   tidegate dry-run off {first}\n\
         # For good, remove `dry_run` here and reload. All keys: docs/reference/configuration.md\n\n\
         # The address that `tidegate status` and `tidegate top` ask, beside the service's socket.\n\
         metrics = \"127.0.0.1:{port}\"\n"
    )
}

fn write_throttle(
    text: &mut String,
    inventory: &MachineInventory,
    kind: RegulationKind,
    method: Option<ThrottleMethod>,
) {
    text.push('\n');
    for one in &inventory.methods {
        if (one.method == ThrottleMethod::Cgroup) != (kind == RegulationKind::Cgroups) {
            continue;
        }
        let works = if one.works() { "works here".to_owned() } else { one.lacks.join("; ") };
        let _ = writeln!(text, "# throttle \"{}\": {}", one.method, comment(&works));
    }
    match method {
        Some(method) => {
            let _ = writeln!(text, "throttle = \"{method}\"");
        }
        None => {
            let usual = match kind {
                RegulationKind::Network => ThrottleMethod::default(),
                RegulationKind::Cgroups => ThrottleMethod::Cgroup,
            };
            let _ = writeln!(
                text,
                "# None works here yet. A dry run needs none; `tidegate check` says what would help.\n\
                 throttle = \"{usual}\""
            );
        }
    }
}

fn write_resource(
    text: &mut String,
    kind: RegulationKind,
    storage: &FoundStorage,
    request: &ProposalRequest,
    (target, reason): (Latency, &str),
) {
    let name = name_of(storage);
    let _ = writeln!(text, "\n[resource.{}]", quoted_if_needed(&name));
    let size = storage.size;
    match &storage.storage {
        MachineStorage::VolumeGroup(group) => {
            let _ = writeln!(text, "# All volumes of the volume group {}, {size} together.", comment(group));
        }
        MachineStorage::Device(device) => {
            let _ = writeln!(text, "device = {}    # {size}", quoted(device));
        }
        MachineStorage::Devices(devices) => {
            let devices: Vec<_> = devices.iter().map(|device| quoted(device)).collect();
            let _ = writeln!(text, "device = [{}]    # {size}", devices.join(", "));
        }
    }
    let _ = writeln!(text, "# {reason}\ntarget = \"{target}\"");
    text.push_str("# A law without gains to tune. `pid` is the other one, after `tidegate identify`.\n");
    text.push_str("law = \"auto\"\ndry_run = true\n");
    match kind {
        RegulationKind::Network => write_hosts(text, storage, request),
        RegulationKind::Cgroups => write_cgroups(text, storage, request),
    }
}

/// Consumers over the network: all that write are eligible, and the protected are exempt.
fn write_hosts(text: &mut String, storage: &FoundStorage, request: &ProposalRequest) {
    text.push_str("# Consumers that write more than 1 MiB/s may be throttled, except those in `exempt`.\n");
    let protected: Vec<_> = request.protected.iter().map(|one| quoted(&one.to_string())).collect();
    if protected.is_empty() {
        text.push_str("# Name the database's host here:\n# exempt = [\"iqn.2026-01.example:database\"]\n");
    } else {
        let _ = writeln!(text, "exempt = [{}]", protected.join(", "));
    }
    if storage.consumers.is_empty() {
        text.push_str("# No host is logged in now.\n");
    }
    for one in storage.consumers.iter().take(MOST_LISTED) {
        let _ = writeln!(text, "# logged in: {} ({})", comment(&one.name), comment(&one.note));
    }
    write_rest(text, storage.consumers.len());
}

fn is_protected(consumer: &FoundConsumer, request: &ProposalRequest) -> bool {
    request.protected.iter().any(|pattern| pattern.matches(&consumer.name, []))
}

/// Cgroups: those listed may be throttled, the busiest writer first.
fn write_cgroups(text: &mut String, storage: &FoundStorage, request: &ProposalRequest) {
    let (protected, mut eligible): (Vec<_>, Vec<_>) =
        storage.consumers.iter().partition(|one| is_protected(one, request));
    let load =
        |one: &FoundConsumer| one.rates.map_or(0.0, |rates| rates.iter().map(|r| r.per_second()).sum());
    eligible.sort_by(|one, two| load(two).total_cmp(&load(one)).then_with(|| one.name.cmp(&two.name)));
    let busy = eligible.iter().filter(|one| load(one) > 0.0).count();
    let listed = if busy > 0 { busy } else { eligible.len() }.min(MOST_LISTED);
    text.push_str(match busy {
        0 => {
            "# These may be throttled. None did I/O while it was watched: remove those that must\n\
             # not be, such as the database's.\n"
        }
        _ => {
            "# These did I/O while they were watched, and may be throttled. Remove those that must\n\
             # not be.\n"
        }
    });
    text.push_str("cgroups = [\n");
    for one in &eligible[..listed] {
        let _ = writeln!(text, "    {},{}", quoted(&one.name), rates(one.rates));
    }
    text.push_str("]\n");
    for one in protected.iter().take(MOST_LISTED) {
        let _ = writeln!(text, "# never throttled, by --protect: {}{}", comment(&one.name), rates(one.rates));
    }
    let _ = match eligible.len() - listed {
        0 => Ok(()),
        more => writeln!(text, "# {more} more cgroups did no I/O, or have no room here."),
    };
}

fn write_rest(text: &mut String, consumers: usize) {
    if consumers > MOST_LISTED {
        let _ = writeln!(text, "# and {} more", consumers - MOST_LISTED);
    }
}

fn rates(rates: Option<[ByteRate; 2]>) -> String {
    rates.map_or_else(String::new, |[read, written]| format!("    # {read} read, {written} written"))
}

/// Returns the target of a storage, and the reason for it.
fn target(storage: &FoundStorage, request: &ProposalRequest) -> Result<(Latency, String), String> {
    let measured = storage.reads.as_ref().map(measured);
    if let Some(target) = request.target {
        let reason = measured.unwrap_or_else(|| "Reads were not measured.".to_owned());
        return Ok((target, format!("The target is that of --target.\n# {reason}")));
    }
    match &storage.reads {
        Some(reads) => {
            let target = rounded_up(reads.mean.scale(TARGET_MEANS)).max(LEAST_TARGET);
            let why = match target > LEAST_TARGET {
                true => "The target is twice that",
                false => "The target is the least one that is proposed",
            };
            Ok((target, format!("{}\n# {why}.", self::measured(reads))))
        }
        None => Err(storage.unmeasured.clone().unwrap_or_else(|| "too few reads were measured".to_owned())),
    }
}

/// Returns the measurement in words: what, how, and how much.
fn measured(reads: &MeasuredReads) -> String {
    let MeasuredReads { count, seconds, mean, slowest, .. } = reads;
    let whose = match reads.source {
        ReadSource::Consumers => "reads of its users",
        ReadSource::Own => "random reads of 4 KiB by init, since it was idle",
    };
    format!(
        "Measured by /proc/diskstats in {seconds} s: {count} {whose}, mean {mean}, slowest second {slowest}."
    )
}

/// Returns a latency with two digits that matter, no shorter than this one.
fn rounded_up(latency: Latency) -> Latency {
    let nanos = latency.as_nanos().max(1);
    let step = 10u64.pow(nanos.ilog10().saturating_sub(1));
    Latency::from_nanos(nanos.div_ceil(step).saturating_mul(step))
}

/// Returns the drop-in for the packaged service that a throttle needs.
const fn drop_in(method: ThrottleMethod) -> Option<&'static str> {
    match method {
        ThrottleMethod::Netem => None,
        ThrottleMethod::Edt => Some("edt.conf"),
        ThrottleMethod::Rate | ThrottleMethod::Cgroup => Some("rate.conf"),
    }
}

/// Returns the name of a storage's resource. That of a volume group is the volume group's.
fn name_of(storage: &FoundStorage) -> String {
    match &storage.storage {
        MachineStorage::VolumeGroup(name) => name.clone(),
        MachineStorage::Device(name) => name.replace('/', "-"),
        MachineStorage::Devices(names) => names.join("-").replace('/', "-"),
    }
}

/// Returns a text as a string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Returns a key as TOML writes it.
fn quoted_if_needed(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { quoted(key) }
}

/// Returns a text for a comment: in one line, without what would end it.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
