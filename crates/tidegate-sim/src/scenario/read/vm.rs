//! `[vm.NAME]`.

use std::time::Duration;

use tidegate_config::{FindingList, PlacedValue, Section, contract, goal};
use tidegate_sched::{BeyondLimit, ConsumerLimit};
use tidegate_units::{ByteRate, Bytes, ConsumerName, HostName, Instant, Iops, Latency, ResourceName, Shares};

use super::host::{HostTemplates, referred};
use super::workload::{LATE_LOAD, WorkloadTemplates as Workloads};
use super::{ScenarioContext, ScenarioSpan, ThingRoom, array, copies};
use crate::engine::MOST_VMS;
use crate::scenario::{DiskPlace, GoalChange, Scenario, VirtualDisk, VirtualMachine};

pub(super) const KEYS: &[&str] = tidegate_config::keys::scenario::VM.names;
pub(super) const LIMIT_KEYS: &[&str] = tidegate_config::keys::scenario::LIMIT.names;
pub(super) const GOAL_CHANGE_KEYS: &[&str] = tidegate_config::keys::scenario::GOAL_CHANGE.names;
pub(super) const VOLUME_KEYS: &[&str] = tidegate_config::keys::scenario::VOLUME.names;

/// Default burst of a limit, the same as for an export of the gateway.
const DEFAULT_BURST: Duration = Duration::from_millis(100);

/// Reads the virtual machines, after hosts and workloads.
pub(super) fn read(
    root: &Section<'_>,
    templates: &HostTemplates,
    workloads: &Workloads,
    scenario: &mut Scenario,
    context: &mut ScenarioContext<'_, '_>,
) {
    let Some(tables) = root.named_tables("vm", KEYS, &mut context.report) else { return };
    if !root.has("vm") {
        let help = "add a table `[vm.NAME]`";
        context.report.error_with_help(root.span(), "the scenario has no virtual machines", help);
    }
    for (name, table) in tables {
        let room = ThingRoom { kind: "virtual machines", given: scenario.vms.len(), most: MOST_VMS };
        let names = copies(&table, name.value, &room, &mut context.report);
        let hosts = hosts(&table, templates, context);
        let volumes = volumes(&table, scenario, context);
        let works = works(&table, workloads, &volumes, context);
        let shares = table.whole("shares", 1..=u64::from(Shares::MAX.get()), &mut context.report);
        let protected = table.flag("protected", &mut context.report);
        let reservation = table.parsed::<Iops>("reservation", &mut context.report);
        let limit = limit(&table, &mut context.report);
        let contract = contract::read(&table, &mut context.report);
        let goal = goal::read(&table, &mut context.report);
        let goal_changes = goal_changes(&table, &mut context.report);
        let on = table.one_or_more::<ScenarioSpan>("on", &mut context.report);
        for span in on.iter().flatten() {
            context.warn_of_late("this run", span.value.from, &span.span, LATE_LOAD);
        }
        for (number, copy) in names.iter().enumerate() {
            let consumer = match ConsumerName::new(copy) {
                Ok(consumer) => consumer,
                Err(error) => {
                    context.report.error(&name.span, format!("a virtual machine's name: {error}"));
                    break;
                }
            };
            if context.places.vms.insert(copy.clone(), name.span.clone()).is_some() {
                context.report.error(&name.span, format!("there are two virtual machines `{copy}`"));
                break;
            }
            // Copies go round the hosts of a template, one after the other.
            let Some(host) = hosts.get(number % hosts.len().max(1)) else { break };
            let mut vm = VirtualMachine::new(consumer, host.clone(), VirtualDisk::default());
            vm.disks = volumes.iter().map(|(_, disk)| disk.clone()).collect();
            vm.workloads.clone_from(&works);
            vm.protected = protected;
            vm.reservation = reservation.as_ref().map(|given| given.value);
            vm.limit = limit;
            vm.contract = contract.map(|given| given.contract);
            vm.goal = goal;
            vm.goal_changes.clone_from(&goal_changes);
            vm.bucket = contract.and_then(|given| given.bucket).unwrap_or(vm.bucket);
            vm.shares = shares.as_ref().and_then(|given| Shares::new(given.value as u32)).unwrap_or_default();
            if let Some(on) = &on {
                vm.on = on.iter().map(|span| span.value).collect();
            }
            scenario.vms.push(vm);
        }
    }
}

fn hosts(
    table: &Section<'_>,
    templates: &HostTemplates,
    context: &mut ScenarioContext<'_, '_>,
) -> Vec<HostName> {
    if !table.has("host") {
        // The only one there is, where nothing is said.
        let mut all = templates.values();
        if let (Some(only), None) = (all.next(), all.next()) {
            return only.clone();
        }
        table.missing("host", "\"NAME\"", &mut context.report);
        return Vec::new();
    }
    let Some(given) = table.text("host", &mut context.report) else { return Vec::new() };
    if let Some(hosts) = referred(given.value, templates, &context.places.hosts) {
        return hosts;
    }
    let known = templates.keys().map(String::as_str).collect();
    context.report.unknown(&given, "host", known);
    Vec::new()
}

/// The disks of a virtual machine with the names by which steps refer to them: the main one first.
fn volumes(
    table: &Section<'_>,
    scenario: &Scenario,
    context: &mut ScenarioContext<'_, '_>,
) -> Vec<(String, VirtualDisk)> {
    let mut volumes = vec![(String::new(), disk(table, scenario, context))];
    let more = table.named_tables("volume", VOLUME_KEYS, &mut context.report).unwrap_or_default();
    for (name, volume) in more {
        volumes.push((name.value.to_owned(), disk(&volume, scenario, context)));
    }
    volumes
}

fn disk(table: &Section<'_>, scenario: &Scenario, context: &mut ScenarioContext<'_, '_>) -> VirtualDisk {
    let array: Option<PlacedValue<ResourceName>> = array::reference(table, "array", context);
    let report = &mut context.report;
    let size = table.parsed::<Bytes>("size", report);
    let offset = table.parsed::<Bytes>("offset", report);
    if let Some(shared) = table.text("disk", report) {
        for key in ["array", "size", "offset"] {
            if let Some(span) = table.key_span(key) {
                report.error(&span, format!("`{key}` is the shared disk's, as `disk` says"));
            }
        }
        if !scenario.disks.iter().any(|disk| disk.name == shared.value) {
            let known = scenario.disks.iter().map(|disk| disk.name.as_str()).collect();
            report.unknown(&shared, "disk", known);
        }
        return VirtualDisk { array: None, place: DiskPlace::Shared(shared.value.to_owned()) };
    }
    let size = size.map_or(VirtualDisk::DEFAULT_SIZE, |size| size.value);
    let place = match offset {
        Some(offset) => DiskPlace::At { offset: offset.value, size },
        None => DiskPlace::InOrder { size },
    };
    VirtualDisk { array: array.map(|given| given.value), place }
}

fn works(
    table: &Section<'_>,
    workloads: &Workloads,
    volumes: &[(String, VirtualDisk)],
    context: &mut ScenarioContext<'_, '_>,
) -> Vec<crate::scenario::Workload> {
    let report = &mut context.report;
    if !table.has("workload") {
        table.missing("workload", "\"NAME\"", report);
    }
    let mut works = Vec::new();
    for given in table.one_or_more::<String>("workload", report).unwrap_or_default() {
        let Some(templates) = workloads.get(&given.value) else {
            report.unknown(&given, "workload", workloads.keys().map(String::as_str).collect());
            continue;
        };
        for template in templates.iter().flatten() {
            let mut workload = template.workload.clone();
            for (step, volume) in workload.steps.iter_mut().zip(&template.volumes) {
                match volumes.iter().position(|(name, _)| name == volume) {
                    Some(at) => step.disk = at,
                    None => report.error(
                        &given.span,
                        format!(
                            "workload `{}` uses the volume `{volume}`, which {} lacks",
                            given.value,
                            table.what()
                        ),
                    ),
                }
            }
            works.push(workload);
        }
    }
    works
}

fn goal_changes(vm: &Section<'_>, report: &mut FindingList<'_>) -> Vec<GoalChange> {
    let mut changes = Vec::new();
    for table in vm.tables("goal_changes", GOAL_CHANGE_KEYS, report) {
        for (key, example) in [("at", "\"100s\""), ("goal", "\"5ms\"")] {
            if !table.has(key) {
                table.missing(key, example, report);
            }
        }
        let at = table.parsed::<Latency>("at", report);
        let goal = goal::read(&table, report);
        if let (Some(at), Some(goal)) = (at, goal) {
            changes.push(GoalChange { at: Instant::ZERO + at.value, goal });
        }
    }
    changes
}

fn limit(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<ConsumerLimit> {
    let limit = table.table("limit", LIMIT_KEYS, report)?;
    let iops = limit.parsed::<Iops>("iops", report);
    let bandwidth = limit.parsed::<ByteRate>("bandwidth", report);
    let burst = limit.parsed::<Latency>("burst", report);
    let soft = limit.flag("soft", report);
    if iops.is_none() && bandwidth.is_none() {
        report.error_with_help(limit.span(), "the limit limits nothing", "add `iops` or `bandwidth`");
    }
    Some(ConsumerLimit {
        iops: iops.map(|given| given.value),
        bytes_per_s: bandwidth.map(|given| given.value),
        burst: burst.map_or(DEFAULT_BURST, |given| given.value.to_duration()),
        beyond: if soft { BeyondLimit::Surplus } else { BeyondLimit::Wait },
    })
}
