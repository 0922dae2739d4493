//! What a release did: told line by line while it goes on, or as one JSON document at its end.

use std::io::{self, Write};

use serde::Serialize;
use tidegate_host::throttle::RemovedThrottles;

use super::print_json;

use crate::out;

/// Tells what a release does.
#[derive(Debug)]
pub(super) struct ReleaseReport {
    is_json: bool,
    answer: ReleaseAnswer,
}

/// The JSON document.
#[derive(Debug, Default, Serialize)]
struct ReleaseAnswer {
    /// The services that were asked, in this order.
    services: Vec<AskedService>,
    /// `null`: the kernel was not a part of it, because services were named.
    kernel: Option<KernelAnswer>,
}

#[derive(Debug, Serialize)]
struct AskedService {
    /// `serve` or `agent`. `null`: the service did not say.
    service: Option<&'static str>,
    address: String,
    #[serde(flatten)]
    outcome: ServiceOutcome,
}

/// What a service said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub(super) enum ServiceOutcome {
    /// It throttles none of it, after another decision of each law.
    Released {
        /// End of the release, by RFC 3339.
        until: String,
    },
    /// It ended the release.
    ThrottlesAgain {
        /// Releases that go on.
        releases_left: usize,
    },
    /// It took the release, and throttles consumers all the same.
    StillThrottled { consumers: Vec<String> },
    /// No process listens at the address, and so nothing is throttled there.
    NotRunning { error: String },
    /// It refused, or did not answer.
    Failed { error: String },
}

/// The kernel.
#[derive(Debug, Serialize)]
struct KernelAnswer {
    removed: RemovedAnswer,
    /// What the kernel has afterwards.
    afterwards: KernelState,
}

/// What was removed from the kernel.
#[derive(Debug, Serialize)]
struct RemovedAnswer {
    /// Interfaces with delays of packets.
    interfaces: Vec<String>,
    /// The table of nftables.
    table: bool,
    /// The cgroup that limits what is written.
    cgroup: bool,
    /// Others' cgroups, which have the limits again that they had.
    cgroups: usize,
}

impl From<&RemovedThrottles> for RemovedAnswer {
    fn from(removed: &RemovedThrottles) -> Self {
        let RemovedThrottles { interfaces, table, cgroup, cgroups } = removed;
        Self { interfaces: interfaces.clone(), table: *table, cgroup: *cgroup, cgroups: *cgroups }
    }
}

/// State of the kernel after a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KernelState {
    /// Nothing of Tidegate, as it was read back.
    Nothing,
    /// What agents have in it that were asked, and which throttle nothing of it.
    OfAskedAgents,
    /// An agent lives that was not asked, and may throttle again.
    AgentNotAsked,
    /// What was removed is there again.
    ThereAgain,
    /// Only root may look, with CAP_SYS_ADMIN.
    NotLookedAt,
}

impl ReleaseReport {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, answer: ReleaseAnswer::default() }
    }

    /// Tells what a service said. Failures are told by the caller's error, too.
    pub(super) fn service(
        &mut self,
        service: Option<&'static str>,
        address: String,
        outcome: ServiceOutcome,
    ) -> io::Result<()> {
        let kind = service.unwrap_or("the service");
        self.line(match &outcome {
            ServiceOutcome::Released { until } => {
                Some(format!("released until {until}: {kind} at {address} throttles none of it"))
            }
            ServiceOutcome::ThrottlesAgain { releases_left } => {
                Some(format!("{kind} at {address} throttles again; releases that go on: {releases_left}"))
            }
            ServiceOutcome::NotRunning { error } => Some(error.clone()),
            ServiceOutcome::StillThrottled { .. } | ServiceOutcome::Failed { .. } => None,
        })?;
        self.answer.services.push(AskedService { service, address, outcome });
        Ok(())
    }

    /// Tells what was removed from the kernel, and what it has afterwards.
    pub(super) fn kernel(&mut self, removed: &RemovedThrottles, afterwards: KernelState) -> io::Result<()> {
        self.removed(removed, afterwards)?;
        self.line(match (afterwards, removed.nothing()) {
            (KernelState::Nothing, true) => Some("nothing of Tidegate is in the kernel".to_owned()),
            (KernelState::Nothing, false) => {
                Some("read back: nothing of Tidegate is in the kernel".to_owned())
            }
            (KernelState::NotLookedAt, _) => {
                Some("the kernel was not looked at: only root may, with CAP_SYS_ADMIN".to_owned())
            }
            (KernelState::OfAskedAgents | KernelState::AgentNotAsked | KernelState::ThereAgain, _) => None,
        })
    }

    /// Tells what was removed from the kernel. Says nothing where there was nothing.
    pub(super) fn removed(&mut self, removed: &RemovedThrottles, afterwards: KernelState) -> io::Result<()> {
        for interface in &removed.interfaces {
            self.line(Some(format!("{interface}: removed what delayed packets")))?;
        }
        self.line(removed.table.then(|| "removed the nftables table".to_owned()))?;
        self.line(removed.cgroup.then(|| "removed the cgroup that limits what is written".to_owned()))?;
        let cgroups = removed.cgroups;
        self.line((cgroups > 0).then(|| format!("{cgroups} cgroups: put back the limits that they had")))?;
        self.answer.kernel = Some(KernelAnswer { removed: removed.into(), afterwards });
        Ok(())
    }

    /// Prints the document, if it is asked for and anything was done.
    pub(super) fn finish(self) -> io::Result<()> {
        let is_empty = self.answer.services.is_empty() && self.answer.kernel.is_none();
        if self.is_json && !is_empty { print_json(&self.answer) } else { Ok(()) }
    }

    fn line(&self, line: Option<String>) -> io::Result<()> {
        match line.filter(|_| !self.is_json) {
            Some(line) => writeln!(out::stdout(), "{line}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_document_has_each_service_with_its_answer_and_the_kernel_afterwards() {
        let mut report = ReleaseReport::new(true);
        let until = "2026-11-26T10:30:00.000Z".to_owned();
        report.service(Some("serve"), "unix:a".to_owned(), ServiceOutcome::Released { until }).unwrap();
        let error = "it hangs".to_owned();
        report.service(None, "unix:b".to_owned(), ServiceOutcome::Failed { error }).unwrap();
        let removed = RemovedThrottles { cgroups: 2, ..RemovedThrottles::default() };
        report.kernel(&removed, KernelState::AgentNotAsked).unwrap();
        assert_eq!(
            serde_json::to_value(&report.answer).unwrap(),
            json!({
                "services": [
                    { "service": "serve", "address": "unix:a", "outcome": "released",
                      "until": "2026-11-26T10:30:00.000Z" },
                    { "service": null, "address": "unix:b", "outcome": "failed", "error": "it hangs" },
                ],
                "kernel": {
                    "removed": { "interfaces": [], "table": false, "cgroup": false, "cgroups": 2 },
                    "afterwards": "agent_not_asked",
                },
            })
        );
    }
}
