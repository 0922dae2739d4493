//! `tidegate agent`: regulates this machine's storage for its consumers on the network (Bjørgeengen).
//!
//! The agent is not in the data path. It reads counters, decides, and has the kernel delay packets to
//! eligible consumers, or limit their writes. While all is well, the kernel holds only the sets of eligible
//! consumers.

#![forbid(unsafe_code)]

mod addresses;
mod bridge;
mod cgroups;
mod config;
mod finding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guarded;
mod histograms;
mod identify;
mod initiators;
mod journal;
mod kernel_limits;
mod load_watch;
pub mod metrics;
mod nfsd_watch;
mod overrides;
mod pattern;
mod presence;
mod promises;
mod proposal;
mod regulator;
mod resource;
mod rollups;
mod seeking;
mod sensor;
mod source;
mod status;
mod survey;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant as Clock};

use thiserror::Error;
use tidegate_cluster::{ClusterHandle, ClusterPlan, CredentialError, JoinError};
use tidegate_host::SystemRoot;
use tidegate_host::sense::UncountedDevice;
use tidegate_host::sense::latency::REMEDY;
use tidegate_host::sense::session::{TargetKind, TargetReading};
use tidegate_host::throttle::ThrottleMethod;
use tidegate_journal::{ActionRecord, JournalError, WallTime};
use tidegate_rollups::RollupError;
use tidegate_service::api::{ApiRoutes, ApiSettings, EventFeed, ServerError, ServiceServer, needs_restart};
use tidegate_service::config::ConfigError;
use tidegate_service::journal::{RecentDecisions, reload_record};
use tidegate_service::log;
use tidegate_service::metrics::{ReloadCounts, ScrapeRequest};
use tidegate_service::overrides::{
    ControlRequest, OverrideAction, OverrideRefusal, Overrides, OverridesDocument, ServiceSettings,
    action_record, end_record, log_action, log_end,
};
use tidegate_service::rollups::{LookTime, RollupRecorder};
use tidegate_service::signals::{self, ServiceSignal};
use tidegate_service::status::{RecentCounters, ServiceKind, ServiceStatus, StatusRequest};
use tidegate_service::supervisor::Supervisor;
use tidegate_units::{ConsumerName, Instant, ResourceName};

pub use bridge::config::{ArrayPart, BridgeConfig, LunPattern};
pub use cgroups::{CgroupConfig, CgroupSetUpError};
pub use config::{AgentConfig, MachineStorage, ResourceConfig, ResourceStorage, is_agents};
pub use finding::SurveyFinding;
pub use guarded::{ActError, OrphanedRelease, release_orphaned};
pub use identify::{ExperimentProgress, IdentifyError, identify};
pub use initiators::intake::{ReportUse, Reporter};
pub use initiators::{InitiatorReportConfig, ReportIntakeConfig, ThrottleOrder};
pub use load_watch::BlindError;
pub use nfsd_watch::NfsdStatus;
pub use pattern::{ConsumerPattern, PatternError};
pub use presence::{LivingAgent, living_agent};
pub use proposal::{
    ConfigurationProposal, FoundConsumer, FoundStorage, MachineInventory, MeasuredReads, ProposalRequest,
    ReadSource, RegulationKind, take_inventory,
};
pub use regulator::{MachineRegulator, RegulationStep};
pub use resource::SetUpError;
pub use sensor::{ReportedBrokers, SensorConfig};
pub use source::{LatencySourceConfig, SourcePlace, SourceReading};
pub use survey::{MachineSurvey, MethodFinding, ResourceFinding};

use self::bridge::BridgeWatch;
use self::guarded::GuardedThrottle;
use self::histograms::LatencyHistograms;
use self::initiators::reporter::InitiatorReporter;
use self::journal::AgentJournal;
use self::promises::ResourcePromises;
use self::sensor::NodeSensors;
use self::status::{LoadKey, OfAgent};
use crate::metrics::{AgentExposition, ResourceStatus};

/// The same complaint is made this often.
const BETWEEN_COMPLAINTS: Duration = Duration::from_secs(60);

/// The longest time that it may take to release all consumers.
const LET_GO: Duration = Duration::from_secs(5);

/// Events that wait.
const MOST_EVENTS: usize = 64;

/// Something the agent is asked to do.
#[derive(Debug)]
enum AgentEvent {
    Signal(ServiceSignal),
    Scrape(ScrapeRequest),
    Status(StatusRequest),
    Control(ControlRequest),
}

impl From<ScrapeRequest> for AgentEvent {
    fn from(scrape: ScrapeRequest) -> Self {
        Self::Scrape(scrape)
    }
}

impl From<ControlRequest> for AgentEvent {
    fn from(asked: ControlRequest) -> Self {
        Self::Control(asked)
    }
}

impl From<StatusRequest> for AgentEvent {
    fn from(asked: StatusRequest) -> Self {
        Self::Status(asked)
    }
}

/// The reasons why the agent did not start, or ended otherwise than on request.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A resource cannot be set up.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// This machine's storage cannot be seen.
    #[error("cannot see the storage: {0}")]
    Blind(#[from] BlindError),
    /// The decision journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Rollups cannot be written.
    #[error(transparent)]
    Rollups(#[from] RollupError),
    /// Nothing can be served over HTTP.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The remains of an earlier agent cannot be removed: they would go on throttling.
    #[error(
        "cannot remove what was left in the kernel: {0}; root or CAP_NET_ADMIN is needed, and \
            CAP_DAC_OVERRIDE where that is a cgroup"
    )]
    Reconcile(io::Error),
    /// Two agents would undo each other's work.
    #[error("an agent throttles in this network namespace already ({0}); end that first, or use `--dry-run`")]
    AnotherAgent(String),
    /// The mark that this agent runs cannot be made.
    #[error("cannot make sure that no other agent runs: {0}")]
    Alone(io::Error),
    /// Without a guardian, throttles would outlive the agent.
    #[error("cannot start the guardian: {0}")]
    Guardian(io::Error),
    /// Response times cannot be counted, although the configuration asks for it.
    #[error(
        "cannot count response times: {0}; `histograms = true`, and a percentile as `statistic`, take \
            {REMEDY}"
    )]
    Histograms(io::Error),
    /// A secret of the cluster cannot be read.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// This host cannot take part in its cluster.
    #[error("cannot join the cluster: {0}")]
    Join(#[from] JoinError),
    /// The throttle cannot be used.
    #[error("cannot use the throttle: {0}")]
    Throttle(io::Error),
    /// Nothing could be throttled.
    #[error(
        "the throttle `{method}` cannot throttle here: {what}. `tidegate check` says what this machine has; \
            with `--dry-run` \
         nothing of it is needed"
    )]
    Lacks {
        /// The throttle that the configuration names.
        method: ThrottleMethod,
        /// The missing parts, why they are missing, and what provides them.
        what: String,
    },
}

/// The command that starts the guardian: this program, and the arguments that make it call
/// [`tidegate_host::throttle::guard`].
#[derive(Debug, Clone)]
pub struct GuardianCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<&'static str>,
}

/// Regulates until SIGTERM or SIGINT, then releases all consumers. SIGHUP reads the configuration again. With
/// `dry_run` nothing is ever throttled, whatever the configuration says.
///
/// # Errors
pub fn run(path: &Path, dry_run: bool, guardian: &GuardianCommand) -> Result<(), AgentError> {
    let config = load(path, dry_run)?;
    let (sender, events) = mpsc::sync_channel(MOST_EVENTS);
    signals::receive(sender.clone(), AgentEvent::Signal).map_err(AgentError::Signals)?;
    let cluster = config.cluster.as_ref().map(join).transpose()?;
    let mut regulator = MachineRegulator::new(SystemRoot::default(), &config)?;
    if let Some((plan, cluster)) = config.cluster.as_ref().zip(cluster.as_ref()) {
        regulator.hear(Arc::clone(cluster), plan.host().clone());
    }
    let histograms = LatencyHistograms::needed(&config, &regulator).map_err(AgentError::Histograms)?;
    let throttle = if acts(&config) { Some(GuardedThrottle::start(&config, guardian)?) } else { None };
    let kept = config.journal.clone();
    let feed = EventFeed::default();
    let pages = ApiRoutes::of_every_service(sender, &feed, kept.as_ref().map(|kept| kept.folder.clone()));
    let server =
        ServiceServer::start((ServiceKind::Agent, path), config.metrics, config.api.as_ref(), pages)?;
    server.introduce();
    let rollups = kept.as_ref().map(|kept| RollupRecorder::start(&kept.folder)).transpose()?;
    let begin = Clock::now();
    let kept = kept.map(|kept| AgentJournal::start(kept, config.throttle, &regulator, Instant::ZERO));
    let mut agent = Agent {
        decision_journal: kept.transpose()?,
        path: path.to_owned(),
        dry_run,
        guardian: guardian.clone(),
        regulator,
        file: config.clone(),
        config,
        overrides: Overrides::default(),
        throttle,
        histograms,
        sensors: NodeSensors::default(),
        cluster,
        reporter: None,
        journal: RecentDecisions::telling(feed),
        recent: RecentCounters::default(),
        promises: ResourcePromises::default(),
        rollups,
        complaints: RecurringErrors::default(),
        reloads: ReloadCounts::default(),
        server,
        sees: true,
        beyond: BTreeSet::new(),
        doubts: BTreeSet::new(),
        unaccounted: BTreeSet::new(),
        uncounted: BTreeSet::new(),
        is_short_of_threads: false,
        unheld: BTreeSet::new(),
        begin,
        supervisor: Supervisor::of_this_process(),
    };
    agent.sensors.apply(&agent.config.sensors, &agent.config.brokers);
    agent.report();
    agent.introduce();
    tracing::info!("ready");
    agent.supervisor.ready();
    agent.regulate(&events);
    agent.end();
    Ok(())
}

/// Returns the settings of a configuration file, as an agent without overrides has them.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong.
pub fn settings(path: &Path) -> Result<ServiceSettings, ConfigError> {
    Ok(overrides::settings(&AgentConfig::load(path)?, OverridesDocument::default()))
}

/// Takes a place among the hosts that reports travel between.
fn join(plan: &ClusterPlan) -> Result<Arc<ClusterHandle>, AgentError> {
    Ok(Arc::new(ClusterHandle::join(plan.config()?)?))
}

/// Returns true if a configuration is more than dry runs.
fn acts(config: &AgentConfig) -> bool {
    config.laws().any(|law| !law.dry_run)
}

fn load(path: &Path, dry_run: bool) -> Result<AgentConfig, ConfigError> {
    let mut config = AgentConfig::load(path)?;
    if dry_run {
        config.make_dry_run();
    }
    Ok(config)
}

#[derive(Debug)]
struct Agent {
    path: PathBuf,
    /// Whatever the configuration says.
    dry_run: bool,
    /// The configuration as it is in the file.
    file: AgentConfig,
    /// The same under the overrides.
    config: AgentConfig,
    /// Settings that operators changed since the start.
    overrides: Overrides,
    regulator: MachineRegulator,
    /// `None` while everything has been a dry run since the start: then the kernel is not touched.
    throttle: Option<GuardedThrottle>,
    guardian: GuardianCommand,
    histograms: Option<LatencyHistograms>,
    sensors: NodeSensors,
    /// The place among the hosts that reports travel between, if there are any.
    cluster: Option<Arc<ClusterHandle>>,
    /// The reports of this machine as an initiator.
    reporter: Option<InitiatorReporter>,
    journal: RecentDecisions,
    /// The decisions with their inputs, if they are kept.
    decision_journal: Option<AgentJournal>,
    /// Totals of the resources and their consumers some seconds ago.
    recent: RecentCounters<LoadKey>,
    promises: ResourcePromises,
    /// Minutes, if decisions are kept.
    rollups: Option<RollupRecorder>,
    complaints: RecurringErrors,
    reloads: ReloadCounts,
    /// The server of metrics and API.
    server: ServiceServer,
    /// True if the machine's counters could be read.
    sees: bool,
    /// Kinds of targets, by resource, of which it was logged that the throttle cannot throttle their writers.
    beyond: BTreeSet<(ResourceName, TargetKind)>,
    /// Connections of which it was logged that not all of them is understood.
    doubts: BTreeSet<String>,
    /// Cgroups of which it was said that the kernel does not limit them.
    unaccounted: BTreeSet<(ResourceName, ConsumerName)>,
    /// Devices, by resource, of which it was logged that the kernel does not count their requests.
    uncounted: BTreeSet<(ResourceName, UncountedDevice)>,
    /// True if it was said that the NFS server is short of threads.
    is_short_of_threads: bool,
    /// Resources whose members should be throttled but are not, because the throttle failed.
    unheld: BTreeSet<ResourceName>,
    begin: Clock,
    supervisor: Supervisor,
}

impl Agent {
    /// Reports as the configuration says. Reports that stay as they are go on.
    fn report(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let configs = &self.config.report_to;
        if self.reporter.as_ref().is_some_and(|reporter| reporter.is(configs)) {
            return;
        }
        self.reporter = InitiatorReporter::start(configs, cluster);
    }

    fn introduce(&mut self) {
        for warning in &self.config.warnings {
            tracing::warn!("{warning}");
        }
        for law in self.config.laws() {
            let dry = if law.dry_run { ", dry run" } else { "" };
            tracing::info!(
                target: log::SUMMARY,
                "{}: reads within {}, by the {} law{dry}",
                law.resource,
                law.target,
                law.law.kind()
            );
        }
        for report in &self.config.report_to {
            tracing::info!(
                target: log::SUMMARY,
                "{}: reports what this host waits for, by {}",
                report.resource,
                report.devices.join(", ")
            );
        }
        for resource in self.regulator.status().iter().filter(|resource| !resource.present) {
            match self.config.bridge {
                // It is there as soon as a consumer uses it.
                Some(_) => tracing::debug!("{}: no packets of it have passed yet", resource.name),
                None => tracing::warn!(
                    "{}: there is no such storage here, yet; `tidegate check` names the storage that is here",
                    resource.name
                ),
            }
        }
        // Who uses what is only the sensor of nodes is no concern of ours.
        let targets = self.regulator.sessions().targets.iter().filter(|_| self.regulates());
        for (via, target) in targets {
            match target {
                TargetReading::Read => {}
                TargetReading::Absent(why) => tracing::debug!("{via}: {why}"),
                TargetReading::Failed(error) => tracing::warn!("{via}: {error}"),
            }
        }
        for session in &self.regulator.sessions().sessions {
            let doubt = session.doubt.as_ref();
            if let Some(doubt) = doubt.filter(|_| !self.regulator.addresses().are_told(&session.consumer)) {
                tracing::warn!(
                    "{}: {doubt}; it is not throttled where its addresses are unknown",
                    session.consumer
                );
            }
        }
    }

    fn regulate(&mut self, events: &Receiver<AgentEvent>) {
        let mut next = Clock::now();
        loop {
            next += self.regulator.interval();
            // After a suspension, or a long wait for the processor, nothing is made up for.
            next = next.max(Clock::now());
            // No more at once, so that requests over HTTP cannot keep the agent from its work.
            for _ in 0..MOST_EVENTS {
                match events.recv_timeout(next.saturating_duration_since(Clock::now())) {
                    Ok(AgentEvent::Scrape(scrape)) => self.answer(scrape),
                    Ok(AgentEvent::Status(asked)) => asked.answer(self.whole_status()),
                    Ok(AgentEvent::Control(asked)) => self.control(asked),
                    Ok(AgentEvent::Signal(ServiceSignal::Reload)) => {
                        self.supervisor.reloading();
                        self.reload();
                        self.supervisor.ready();
                    }
                    Ok(AgentEvent::Signal(ServiceSignal::Stop)) | Err(RecvTimeoutError::Disconnected) => {
                        return;
                    }
                    Err(RecvTimeoutError::Timeout) => break,
                }
            }
            self.end_releases();
            if self.regulates() {
                self.step();
            }
            self.supervisor.lives();
        }
    }

    /// Returns true if there is anything to regulate: false where the agent is only the sensor of storage
    /// nodes.
    fn regulates(&self) -> bool {
        self.config.laws().next().is_some()
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn step(&mut self) {
        let now = self.now();
        if let Some(histograms) = &mut self.histograms
            && let Err(error) = histograms.tell(now, &mut self.regulator)
        {
            self.complaints.make(&error);
        }
        let step = self.regulator.step(now);
        self.see(&step);
        self.carry_out(now);
        if self.recent.is_due(now) {
            self.recent.note(now, status::totals(&self.regulator.status()));
        }
        if self.promises.is_due(now) {
            self.judge(now);
        }
        if let Some(journal) = &mut self.decision_journal {
            journal.record(&self.regulator, now, &self.unheld);
            if let Some(throttle) = &self.throttle {
                journal.read_back(&self.regulator, |wanted| throttle.in_force(wanted));
            }
        }
        for decision in &step.decisions {
            self.journal.note(decision, !self.unheld.contains(&decision.resource));
        }
    }

    /// Judges the promises, and adds what was done to the rollups.
    fn judge(&mut self, now: Instant) {
        let wall = WallTime::now();
        let is_unseen = |name: &ResourceName| self.uncounted.iter().any(|(unseen, _)| unseen == name);
        self.promises.note(now, self.regulator.regulated(), |resource, promise, judgement| {
            let is_seen = !is_unseen(&resource.law().resource);
            if let Some(recorder) = self.rollups.as_mut().filter(|_| is_seen) {
                let time = LookTime { at: now, wall };
                rollups::note_reads(&mut recorder.fold, time, resource, promise, judgement);
            }
        });
        if self.rollups.is_none() {
            return;
        }
        let (resources, status) = (self.status(), self.whole_status());
        if let Some(recorder) = &mut self.rollups {
            rollups::note_consumers(&mut recorder.fold, now, wall, &resources, &status);
            recorder.write_ended(wall);
        }
    }

    /// Logs what the machine did not show, and the consumers that the throttle cannot throttle.
    fn see(&mut self, step: &RegulationStep) {
        self.sees = step.blind.is_none();
        if let Some(error) = &step.blind {
            self.complaints.make(error);
        }
        for (resource, via) in self.regulator.beyond().difference(&self.beyond) {
            tracing::warn!(
                "{resource}: the throttle `rate` cannot hold what is written over {via}; `netem` and `edt` \
                    can"
            );
        }
        if !self.regulator.beyond().is_subset(&self.beyond) {
            self.beyond.extend(self.regulator.beyond().iter().cloned());
        }
        if let Some(bridge) = self.regulator.bridge() {
            for doubt in bridge.doubts().difference(&self.doubts) {
                tracing::warn!("{doubt}");
            }
            self.doubts.clone_from(bridge.doubts());
        }
        let unaccounted = self.regulator.unaccounted();
        for (resource, cgroup) in unaccounted.difference(&self.unaccounted) {
            tracing::warn!(
                "{resource}: {cgroup} cannot be throttled: its parent does not give it the controller `io`"
            );
        }
        self.unaccounted = unaccounted;
        self.see_uncounted();
        self.see_threads();
    }

    /// Logs once that the kernel does not count the requests of a device, and that it does again.
    fn see_uncounted(&mut self) {
        let uncounted = self.regulator.uncounted();
        for (resource, device) in uncounted.difference(&self.uncounted) {
            tracing::warn!("{resource}: unknown, and nothing is throttled: {device}");
        }
        for (resource, device) in self.uncounted.difference(&uncounted) {
            tracing::info!("{resource}: {} is counted, or out of use, from now", device.name());
        }
        self.uncounted = uncounted;
    }

    /// Logs once that the NFS server is short of threads, and that it is no longer.
    fn see_threads(&mut self) {
        let Some(nfsd) = self.regulator.nfsd() else { return };
        match (self.is_short_of_threads, nfsd.is_short()) {
            (false, true) => tracing::warn!("{}", nfsd.shortage()),
            (true, false) => tracing::info!("the NFS server has threads enough: {}", nfsd.threads),
            _ => {}
        }
        self.is_short_of_threads = nfsd.is_short();
    }

    /// Has the throttle do what was decided. Fails open: what it cannot do is not done, and is said.
    fn carry_out(&mut self, now: Instant) {
        let Some(throttle) = &mut self.throttle else { return };
        self.unheld.clear();
        if let Err(error) = throttle.act(now, self.regulator.holds()) {
            self.complaints.make(&error);
            let unheld = self.regulator.holds().iter().filter(|hold| !throttle.holds(hold));
            self.unheld.extend(unheld.map(|hold| hold.resource.clone()));
        }
    }

    /// Returns the state of the resources. Where the throttle failed, it is the state in force, not the one
    /// decided.
    fn status(&self) -> Vec<ResourceStatus> {
        let mut status = self.regulator.status();
        status
            .iter_mut()
            .filter(|resource| self.unheld.contains(&resource.name))
            .for_each(ResourceStatus::not_held);
        status
    }

    fn whole_status(&self) -> ServiceStatus {
        let status = status::of_agent(&OfAgent {
            now: self.now(),
            sees: self.sees,
            resources: &self.status(),
            laws: self.config.laws().collect(),
            goals: self.regulator.goals(),
            recent: &self.recent,
            promises: self.promises.status(),
            fails: &|name| self.unheld.contains(name),
            is_released: &|resource, consumer| self.overrides.is_consumer_released(resource, consumer),
        });
        let cluster = self.cluster.as_ref().map(|cluster| (&cluster.status()).into());
        ServiceStatus { cluster, overrides: self.overrides.document(), ..status }
    }

    fn answer(&mut self, scrape: ScrapeRequest) {
        let request_times = self.histograms.as_mut().map(LatencyHistograms::totals).transpose();
        let request_times = request_times.unwrap_or_else(|error| {
            self.complaints.make(&error);
            None
        });
        let sessions = self.regulator.sessions();
        let of = |via| sessions.sessions.iter().filter(|session| session.via == via).count();
        let here = sessions.targets.iter().filter(|(_, target)| !matches!(target, TargetReading::Absent(_)));
        let names = self.regulator.regulated().map(|resource| resource.law().resource.clone());
        let readings = self
            .throttle
            .as_ref()
            .map(|throttle| self.regulator.readings(|wanted| throttle.in_force(wanted)));
        let in_force = names.clone().zip(readings.into_iter().flatten());
        let status = self.whole_status().resources.into_iter();
        let exposition = AgentExposition {
            reloads: self.reloads,
            http_refused: Some(self.server.refusals()),
            log: log::missing(),
            sees: self.sees,
            acts: self.throttle.as_ref().map(GuardedThrottle::acts),
            targets: here
                .map(|(via, target)| (*via, (matches!(target, TargetReading::Read), of(*via))))
                .collect(),
            throttle_errors: self.throttle.as_ref().map_or(0, GuardedThrottle::errors),
            guardian_starts: self.throttle.as_ref().map_or(0, GuardedThrottle::guardians),
            bridge: self.regulator.bridge().map(BridgeWatch::status),
            nfsd: self.regulator.nfsd(),
            resources: self.status(),
            decisions: self.journal.counts(),
            promises: self.promises.status(),
            consumers: names.zip(status.map(|resource| resource.consumers)).collect(),
            in_force: in_force.filter_map(|(name, reading)| Some((name, reading?))).collect(),
            request_times: request_times.unwrap_or_default(),
        };
        // The client has gone away: nothing waits for the answer.
        let _ = scrape.send(exposition.to_text());
    }

    fn reload(&mut self) {
        match self.try_reload() {
            Ok(()) => {
                self.reloads.applied += 1;
                self.introduce();
                tracing::info!("reloaded {}", self.path.display());
            }
            Err(why) => {
                self.reloads.refused += 1;
                tracing::error!("not reloaded, the old configuration goes on: {why}");
            }
        }
    }

    fn try_reload(&mut self) -> Result<(), String> {
        let config = load(&self.path, self.dry_run).map_err(|error| error.to_string())?;
        let fixed = [
            ("throttle", config.throttle != self.file.throttle),
            ("packets", config.packets != self.file.packets),
            ("ports", config.ports != self.file.ports),
            ("bridge", config.bridge != self.file.bridge),
            ("cluster", config.cluster != self.file.cluster),
            ("metrics", config.metrics != self.file.metrics),
            ("api.listen or api.names", needs_restart(config.api.as_ref(), self.file.api.as_ref())),
            ("journal", config.journal != self.file.journal),
            ("histograms", config.histograms != self.file.histograms),
            ("statistic", config.needs_histograms() && self.histograms.is_none()),
        ];
        let changed: Vec<_> = fixed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
        if !changed.is_empty() {
            return Err(format!("needs a restart to change: {}", changed.join(", ")));
        }
        let credentials = config.api.as_ref().map(ApiSettings::credentials).transpose();
        let credentials = credentials.map_err(|error| error.to_string())?;
        let mut overrides = self.overrides.clone();
        let is_known = |name: &ResourceName| config.laws().any(|law| law.resource == *name);
        overrides.retain(is_known, |resource, _| is_known(resource));
        self.put_into_force(config, overrides, reload_record(&self.path))
            .map_err(|error| error.to_string())?;
        self.sensors.apply(&self.config.sensors, &self.config.brokers);
        self.report();
        if let Some(credentials) = credentials {
            self.server.accept(credentials);
        }
        Ok(())
    }

    /// Puts a configuration into force under overrides; nothing is changed if that fails. The first one that
    /// is more than dry runs starts the throttle.
    fn put_into_force(
        &mut self,
        file: AgentConfig,
        overrides: Overrides,
        action: ActionRecord,
    ) -> Result<(), AgentError> {
        let mut config = file.clone();
        overrides::apply(&mut config, &overrides);
        // The first resource whose dry run ends needs a throttle. Without one, nothing is to change.
        let fresh = match self.throttle {
            None if acts(&config) => Some(GuardedThrottle::start(&config, &self.guardian)?),
            _ => None,
        };
        self.regulator.reconfigure(&config)?;
        if fresh.is_some() {
            self.throttle = fresh;
        }
        (self.file, self.config, self.overrides) = (file, config, overrides);
        let now = self.now();
        if let Some(journal) = &mut self.decision_journal {
            journal.reconfigured(action, &self.regulator, now);
        }
        Ok(())
    }

    fn control(&mut self, asked: ControlRequest) {
        // If the client has gone away, nothing waits for an answer.
        match asked {
            ControlRequest::Settings(answer) => {
                let _ = answer.send(overrides::settings(&self.config, self.overrides.document()));
            }
            ControlRequest::Change { by, action, answer } => {
                let _ = answer.send(self.change(&action, &by));
            }
        }
    }

    /// Does what an operator asks. The answer comes after the throttle has been told.
    fn change(&mut self, action: &OverrideAction, by: &str) -> Result<OverridesDocument, OverrideRefusal> {
        overrides::check(action, &self.regulator.status(), !self.dry_run)?;
        let after = self.overrides.after(action, by, (Clock::now(), WallTime::now()));
        self.put_into_force(self.file.clone(), after, action_record(action, by))
            .map_err(|error| OverrideRefusal::Impossible(error.to_string()))?;
        log_action(action, by);
        if self.regulates() {
            self.step();
        }
        if action.lets_go() && self.throttle.as_ref().is_some_and(|throttle| !throttle.acts()) {
            return Err(OverrideRefusal::StillThrottled);
        }
        Ok(self.overrides.document())
    }

    /// Ends the releases whose time is over.
    fn end_releases(&mut self) {
        let mut overrides = self.overrides.clone();
        let over = overrides.expire(Clock::now());
        if over.is_empty() {
            return;
        }
        for scope in over {
            log_end(&scope);
            if let Err(error) = self.put_into_force(self.file.clone(), overrides.clone(), end_record(&scope))
            {
                self.complaints.make(&error);
            }
        }
    }

    fn end(mut self) {
        self.supervisor.stopping(LET_GO);
        self.judge(self.now());
        if let Some(rollups) = &mut self.rollups {
            rollups.write_all();
        }
        if let Some(throttle) = self.throttle {
            throttle.let_go();
        }
        if let Some(journal) = &self.decision_journal {
            journal.close();
        }
        if let Some(rollups) = self.rollups {
            rollups.close();
        }
    }
}

/// Errors that recur. Each is logged once a minute.
#[derive(Debug, Default)]
struct RecurringErrors {
    made: Vec<(String, Clock)>,
}

impl RecurringErrors {
    fn make(&mut self, error: &dyn std::error::Error) {
        let text = error.to_string();
        self.made.retain(|(_, at)| at.elapsed() < BETWEEN_COMPLAINTS);
        if self.made.iter().all(|(made, _)| *made != text) {
            tracing::error!("{text}");
            self.made.push((text, Clock::now()));
        }
    }
}
