//! The running service: one thread owns the gateway and does one thing at a time, whatever asks for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use tidegate_cluster::{ClusterHandle, JoinError, PolicySource, PolicyWatch};
use tidegate_gateway::{
    DisplacedVolume, Gateway, GatewayConfig, GatewayError, GatewaySnapshot, OpenedVolumes, PeerReports,
    ReloadVolumes, StartError,
};
use tidegate_http::{BearerToken, NoRandom, TokenError};
use tidegate_journal::{ActionRecord, WallTime};
use tidegate_rollups::RollupError;
use tidegate_units::{ConsumerName, ResourceName, TimeOfDay};

use crate::admission::api::{self, ModelOf, QuestionAccess};
use crate::admission::{self, AnswerSubject, MeasuredSet, PoolStandings, SetChange};
use crate::changes;
use crate::cluster::PoolPeers;
use crate::config::{ClusterPlan, ConfigError, CredentialError, Finding, ServeConfig};
use crate::failures::FailureSpells;
use crate::metrics::MetricsExposition;
use crate::overrides;
use crate::policy;
use crate::rollups;
use crate::sessions;
use crate::status;
use crate::summary::{ConfigSummary, ContractSummary};
use tidegate_service::api::{ApiRoutes, ApiSettings, EventFeed, ServerError, ServiceServer, needs_restart};
use tidegate_service::journal::{RecentDecisions, reload_record};
use tidegate_service::log;
use tidegate_service::metrics::{ReloadCounts, ScrapeRequest};
use tidegate_service::overrides::{
    ControlRequest, OverrideAction, OverrideRefusal, Overrides, OverridesDocument, ServiceSettings,
    action_record, end_record, log_action, log_end,
};
use tidegate_service::rollups::{LookTime, RollupRecorder};
use tidegate_service::signals::{self, ServiceSignal};
use tidegate_service::status::{ServiceKind, ServiceStatus, StatusRequest};
use tidegate_service::supervisor::Supervisor;

/// The interval at which the laws' decisions are read. The gateway remembers 64, which at the shortest
/// interval (10 ms) is 640 ms.
const TICK: Duration = Duration::from_millis(250);

/// Things that wait for the service's thread. More scrapes than that are refused.
const MOST_EVENTS: usize = 64;

/// The longest time that it takes to read a configuration and to look at the files that it names.
const READING_PATIENCE: Duration = Duration::from_secs(15);

/// The time that a policy may stay as it is before its watch is asked once more.
const UNCHANGED: Duration = Duration::from_secs(3_600);

/// The reason for which a reload is refused while a path leads elsewhere than to the volume that its export
/// serves: what a reload has accepted is taken for what is in force.
const REPLACED: &str = "volumes were replaced or deleted under their exports";

/// Something the service is asked to do.
#[derive(Debug)]
pub(crate) enum Event {
    Reload,
    Stop,
    Scrape(ScrapeRequest),
    /// Say how it stands.
    Status(StatusRequest),
    /// Say what model a pool has.
    ModelOf(ModelOf),
    /// Say what is in force, or change it.
    Control(ControlRequest),
    /// The cluster's policies have changed.
    Policies(PolicySource),
    /// It is known whether a set of contracts can be kept.
    Judged(Box<MeasuredSet>),
    /// The configuration was read again.
    Read {
        /// The count of the reading, by which one that was given up is told from the newest.
        count: u64,
        outcome: Box<Result<ServeConfig, ConfigError>>,
        displaced: Vec<DisplacedVolume>,
    },
    /// The volumes that a configuration adds are open, or cannot be opened.
    Opened {
        /// The count of the opening, by which one that was given up is told from the newest.
        count: u64,
        outcome: Box<Result<OpenedVolumes, StartError>>,
    },
}

impl From<ServiceSignal> for Event {
    fn from(signal: ServiceSignal) -> Self {
        match signal {
            ServiceSignal::Reload => Self::Reload,
            ServiceSignal::Stop => Self::Stop,
        }
    }
}

impl From<ModelOf> for Event {
    fn from(asked: ModelOf) -> Self {
        Self::ModelOf(asked)
    }
}

impl From<ControlRequest> for Event {
    fn from(asked: ControlRequest) -> Self {
        Self::Control(asked)
    }
}

impl From<StatusRequest> for Event {
    fn from(asked: StatusRequest) -> Self {
        Self::Status(asked)
    }
}

impl From<MeasuredSet> for Event {
    fn from(judged: MeasuredSet) -> Self {
        Self::Judged(Box::new(judged))
    }
}

impl From<ScrapeRequest> for Event {
    fn from(scrape: ScrapeRequest) -> Self {
        Self::Scrape(scrape)
    }
}

/// The reasons why the service did not start, or ended otherwise than on request.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The gateway does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The gateway does not start on this machine now, because of something that the file names.
    #[error("{0}")]
    Obstructed(Box<Finding>),
    /// A secret of the cluster cannot be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// This host cannot take part in its cluster.
    #[error("cannot join the cluster: {0}")]
    Join(#[from] JoinError),
    /// Nothing can be served over HTTP.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The token of `admit` cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Tokens cannot be compared safely.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    /// Rollups cannot be written.
    #[error(transparent)]
    Rollups(#[from] RollupError),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// Policies cannot be followed.
    #[error("cannot follow the cluster's policies: {0}")]
    Policies(io::Error),
    /// A pool failed. The service ends, so that its supervisor starts it anew.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
}

/// Serves a configuration until SIGTERM or SIGINT, then drains. SIGHUP reads the configuration again; a
/// second SIGTERM or SIGINT ends the process at once, with exit status 1.
///
/// # Errors
/// When the service cannot start, or a pool fails. A drain that had to cut clients off is no error: it is
/// logged.
pub fn serve(path: &Path) -> Result<(), ServeError> {
    let config = ServeConfig::load(path)?;
    log_warnings(&config);
    let (sender, events) = mpsc::sync_channel(MOST_EVENTS);
    // Before anything is served: a signal must find its handler from the first connection on.
    signals::receive(sender.clone(), Event::from).map_err(ServeError::Signals)?;
    let cluster = config.cluster.as_ref().map(join).transpose()?;
    if let Some(watch) = cluster.as_ref().and_then(|cluster| cluster.policy()) {
        follow_policies(watch, sender.clone()).map_err(ServeError::Policies)?;
    }
    let now = time_of_day();
    let contracts = PoolStandings::new(&config.contracts, now);
    let first = in_force(&config, &PolicySource::default(), &contracts, &Overrides::default());
    let gateway = Gateway::start_among(first, |pool| {
        let (plan, cluster) = config.cluster.as_ref().zip(cluster.as_ref())?;
        peers(plan, cluster, pool)
    });
    let gateway = gateway.map_err(|error| match config.finding(&error) {
        Some(finding) => ServeError::Obstructed(Box::new(finding)),
        None => error.into(),
    })?;
    let rollups = config.gateway.journal.as_ref().map(|journal| RollupRecorder::start(&journal.folder));
    let rollups = rollups.transpose()?;
    log_lines(&ConfigSummary::new(&config).pools());
    let access = QuestionAccess::default();
    access.set(admit_token(&config)?.as_ref())?;
    let feed = EventFeed::default();
    let journal_folder = config.gateway.journal.as_ref().map(|journal| journal.folder.clone());
    let pages = ApiRoutes {
        of_tokens: api::routes(sender.clone(), access.clone()),
        ..ApiRoutes::of_every_service(sender.clone(), &feed, journal_folder)
    };
    let server =
        ServiceServer::start((ServiceKind::Serve, path), config.metrics, config.api.as_ref(), pages)?;
    server.introduce();
    let addresses: Vec<_> = gateway.addresses().iter().map(ToString::to_string).collect();
    tracing::info!("ready, listening on {}", addresses.join(", "));
    let journal = RecentDecisions::telling(feed);
    let mut service = RunningService {
        path: path.to_owned(),
        config,
        gateway,
        cluster,
        policies: PolicySource::default(),
        overrides: Overrides::default(),
        access,
        journal,
        records: status::PoolRecords::new(),
        failures: FailureSpells::default(),
        rollups,
        reloads: ReloadCounts::default(),
        server,
        contracts,
        pending: None,
        reading: None,
        readings: 0,
        opening: None,
        openings: 0,
        measuring: MeasuringState::Idle,
        events: sender,
        supervisor: Supervisor::of_this_process(),
    };
    sessions::resume(&service.gateway);
    service.supervisor.ready();
    log_refused(&service.contracts);
    service.measure();
    service.run(&events)
}

/// Returns the settings of a configuration file, as a service without policies and overrides has them.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong.
pub fn settings(path: &Path) -> Result<ServiceSettings, ConfigError> {
    Ok(overrides::settings(&ServeConfig::load(path)?.gateway, OverridesDocument::default()))
}

/// The time of day by the wall clock: contracts are about times of day.
fn time_of_day() -> TimeOfDay {
    let seconds = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    TimeOfDay::of_unix(seconds)
}

/// A configuration that waits for an answer about its contracts.
struct Pending {
    config: ServeConfig,
    /// Those that are not in force already.
    brought: PoolStandings,
}

/// The state of the measurement of contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MeasuringState {
    Idle,
    /// One question is being answered.
    Busy,
    /// There was no thread for it, which was said. It is tried again.
    Failed,
}

fn join(plan: &ClusterPlan) -> Result<Arc<ClusterHandle>, ServeError> {
    Ok(Arc::new(ClusterHandle::join(plan.config()?)?))
}

fn peers(
    plan: &ClusterPlan,
    cluster: &Arc<ClusterHandle>,
    pool: &ResourceName,
) -> Option<Arc<dyn PeerReports>> {
    plan.pools().contains(pool).then(|| {
        let (cluster, host) = (Arc::clone(cluster), plan.host().clone());
        Arc::new(PoolPeers { cluster, host, resource: pool.clone() }) as Arc<dyn PeerReports>
    })
}

/// The token that questions about contracts show, in the file that a configuration names.
fn admit_token(config: &ServeConfig) -> Result<Option<BearerToken>, TokenError> {
    config.admit_token.as_deref().map(BearerToken::from_file).transpose()
}

fn log_lines(lines: &impl ToString) {
    for line in lines.to_string().lines() {
        tracing::info!(target: log::SUMMARY, "{line}");
    }
}

fn log_refused(contracts: &PoolStandings) {
    for refused in contracts.refused_sets() {
        tracing::error!("{refused}");
    }
}

fn log_warnings(config: &ServeConfig) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
}

struct RunningService {
    path: PathBuf,
    config: ServeConfig,
    gateway: Gateway,
    cluster: Option<Arc<ClusterHandle>>,
    /// Those of the cluster that are in force.
    policies: PolicySource,
    /// Settings that operators changed since the start.
    overrides: Overrides,
    /// The token that questions about contracts show.
    access: QuestionAccess,
    journal: RecentDecisions,
    /// Totals of the consumers some seconds ago.
    records: status::PoolRecords,
    failures: FailureSpells,
    /// Minutes of the consumers; `None` without a decision journal.
    rollups: Option<RollupRecorder>,
    reloads: ReloadCounts,
    /// The server of metrics and API.
    server: ServiceServer,
    contracts: PoolStandings,
    /// Read, and not in force yet.
    pending: Option<Pending>,
    /// Since when the configuration is being read.
    reading: Option<Instant>,
    /// Readings begun or given up so far.
    readings: u64,
    /// A configuration whose new volumes are being opened.
    opening: Option<Pending>,
    /// Openings begun so far.
    openings: u64,
    measuring: MeasuringState,
    events: SyncSender<Event>,
    supervisor: Supervisor,
}

impl RunningService {
    fn run(mut self, events: &Receiver<Event>) -> Result<(), ServeError> {
        let mut next_tick = Instant::now() + TICK;
        loop {
            match events.recv_timeout(next_tick.saturating_duration_since(Instant::now())) {
                Ok(Event::Reload) => self.reload(),
                Ok(Event::Scrape(scrape)) => self.answer(scrape)?,
                Ok(Event::Status(asked)) => {
                    let snapshot = self.look()?;
                    let config = self.in_force();
                    let cluster = self.cluster.as_ref().map(|cluster| (&cluster.status()).into());
                    let status = status::of_gateway(&config, &snapshot, &self.records);
                    let overrides = self.overrides.document();
                    asked.answer(ServiceStatus { cluster, overrides, ..status });
                }
                Ok(Event::ModelOf(ModelOf { pool, answer })) => {
                    // The client has gone away: nothing waits any more.
                    let _ = answer.send(api::model_of(&self.config.gateway, &pool));
                }
                Ok(Event::Control(ControlRequest::Settings(answer))) => {
                    // The client has gone away: nothing waits any more.
                    let _ = answer.send(overrides::settings(&self.in_force(), self.overrides.document()));
                }
                Ok(Event::Control(ControlRequest::Change { by, action, answer })) => {
                    let outcome = self.change(&action, &by);
                    let _ = answer.send(outcome);
                }
                Ok(Event::Policies(policies)) => self.adopt(policies),
                Ok(Event::Judged(judged)) => self.judged(&judged),
                Ok(Event::Read { count, outcome, displaced }) => self.read(count, *outcome, displaced),
                Ok(Event::Opened { count, outcome }) => self.opened(count, *outcome),
                Ok(Event::Stop) => return self.drain(),
                Err(RecvTimeoutError::Timeout) => {}
                // It has a sender itself, for threads that measure.
                Err(RecvTimeoutError::Disconnected) => return self.drain(),
            }
            // Also while one event follows the other.
            if Instant::now() >= next_tick {
                self.gateway.open_awaited();
                self.gateway.look_at_volumes();
                self.look()?;
                self.keep_time();
                self.end_releases();
                self.measure();
                self.watch_reading();
                self.supervisor.lives();
                next_tick = Instant::now() + TICK;
            }
        }
    }

    fn look(&mut self) -> Result<GatewaySnapshot, GatewayError> {
        let snapshot = self.gateway.snapshot()?;
        for pool in &snapshot.pools {
            self.journal.follow(&pool.name, pool.decisions, &pool.recent_decisions);
        }
        if status::is_due(&self.records, &snapshot) {
            self.note(&snapshot);
        }
        if let Some(rollups) = &mut self.rollups {
            rollups::look(&mut rollups.fold, WallTime::now(), &snapshot);
        }
        Ok(snapshot)
    }

    /// Takes note of what consumers did.
    fn note(&mut self, snapshot: &GatewaySnapshot) {
        self.failures.look(snapshot).into_iter().for_each(|told| self.record_action(told));
        let config = self.in_force();
        let wall = WallTime::now();
        status::note(&mut self.records, &config, snapshot, |pool, consumer, reading| {
            if let Some(rollups) = &mut self.rollups {
                let now = LookTime { at: pool.at, wall };
                rollups.fold.note(&pool.name, &consumer.name, now, reading);
            }
        });
        if let Some(rollups) = &mut self.rollups {
            rollups.write_ended(wall);
        }
    }

    fn answer(&mut self, scrape: ScrapeRequest) -> Result<(), GatewayError> {
        let gateway = self.look()?;
        let exposition = MetricsExposition {
            gateway,
            decisions: self.journal.counts(),
            reloads: self.reloads,
            http_refused: Some(self.server.refusals()),
            log: log::missing(),
            cluster: self.cluster.as_ref().map(|cluster| cluster.status()),
            contracts: self.contracts.status(time_of_day()).collect(),
            promises: status::promises(&self.records),
        };
        // The client has gone away: nothing waits any more.
        let _ = scrape.send(exposition.to_text());
        Ok(())
    }

    /// Puts into force what holds from this time of day on.
    fn keep_time(&mut self) {
        let changes = self.contracts.step(time_of_day());
        for change in &changes {
            match change {
                SetChange::Begun(said) => tracing::info!("{said}"),
                SetChange::Waits(said) => tracing::warn!("{said}"),
                SetChange::Refused(said) => tracing::error!("{said}"),
            }
        }
        if changes.iter().any(|change| matches!(change, SetChange::Begun(_))) {
            self.enforce();
        }
    }

    /// Has the gateway do what is in force.
    fn enforce(&mut self) {
        // Settings of the same exports, which a gateway takes at any time.
        if let Err(why) = self.gateway.apply(self.in_force()) {
            tracing::error!("changed settings are not put into force, what was goes on: {why}");
        }
    }

    /// Returns the configuration under the cluster's policies, with the contracts of this time of day and the
    /// overrides.
    fn in_force(&self) -> GatewayConfig {
        in_force(&self.config, &self.policies, &self.contracts, &self.overrides)
    }

    /// Does what an operator asks. The answer comes after the pools' workers have been told.
    fn change(&mut self, action: &OverrideAction, by: &str) -> Result<OverridesDocument, OverrideRefusal> {
        let base = in_force(&self.config, &self.policies, &self.contracts, &Overrides::default());
        overrides::check(action, &base)?;
        let after = self.overrides.after(action, by, (Instant::now(), WallTime::now()));
        let wanted = in_force(&self.config, &self.policies, &self.contracts, &after);
        self.gateway.apply(wanted).map_err(|why| OverrideRefusal::Impossible(why.to_string()))?;
        self.overrides = after;
        log_action(action, by);
        self.record_action(action_record(action, by));
        Ok(self.overrides.document())
    }

    /// Ends the releases whose time is over.
    fn end_releases(&mut self) {
        let over = self.overrides.expire(Instant::now());
        if over.is_empty() {
            return;
        }
        self.enforce();
        for scope in over {
            log_end(&scope);
            self.record_action(end_record(&scope));
        }
    }

    fn record_action(&self, action: ActionRecord) {
        if let Some(journal) = self.gateway.journal() {
            journal.action(action);
        }
    }

    /// An answer about a set of contracts: of those that hold, of those of a configuration that waits for it,
    /// or of both.
    fn judged(&mut self, judged: &MeasuredSet) {
        self.measuring = MeasuringState::Idle;
        match self.contracts.judged(judged) {
            Some(AnswerSubject::Refused(said)) => tracing::error!("{said}"),
            // With what is expected, which was measured.
            Some(AnswerSubject::InForce) => self.enforce(),
            Some(AnswerSubject::Later) | None => {}
        }
        self.keep_time();
        if let Some(mut pending) = self.pending.take() {
            pending.brought.judged(judged);
            let decided = self.decide(pending);
            self.reloaded(decided);
        }
        self.measure();
    }

    /// Reads the configuration on another thread: it looks at the files that the configuration names, and
    /// their storage may hang.
    fn reload(&mut self) {
        self.supervisor.reloading();
        self.readings += 1;
        let (count, events, path) = (self.readings, self.events.clone(), self.path.clone());
        let volumes = self.gateway.volumes();
        let body = move || {
            let outcome = Box::new(ServeConfig::load(&path));
            let displaced = volumes.displaced();
            // The service may have ended meanwhile.
            let _ = events.send(Event::Read { count, outcome, displaced });
        };
        match thread::Builder::new().name("tg-reload".to_owned()).spawn(body) {
            Ok(_) => self.reading = Some(Instant::now()),
            Err(error) => self.reloaded(Err(format!("there is no thread to read it: {error}"))),
        }
    }

    fn read(
        &mut self,
        count: u64,
        outcome: Result<ServeConfig, ConfigError>,
        mut displaced: Vec<DisplacedVolume>,
    ) {
        // A newer request to reload has a reading of its own, and what took too long was refused.
        if count != self.readings {
            return;
        }
        self.reading = None;
        if let Ok(config) = &outcome {
            let pools = &config.gateway.pools;
            let stays =
                |export: &ConsumerName| pools.iter().any(|pool| has_export(config, &pool.name, export));
            displaced.retain(|volume| stays(&volume.export));
        }
        displaced.iter().for_each(|volume| tracing::error!("{volume}"));
        let outcome = outcome.map_err(|error| error.to_string()).and_then(|config| match displaced.len() {
            0 => self.try_reload(config),
            _ => Err(REPLACED.to_owned()),
        });
        self.reloaded(outcome);
        self.measure();
    }

    /// Refuses a configuration that cannot be read in time.
    fn watch_reading(&mut self) {
        if self.reading.is_some_and(|since| since.elapsed() >= READING_PATIENCE) {
            self.reading = None;
            self.readings += 1;
            let seconds = READING_PATIENCE.as_secs();
            self.reloaded(Err(format!(
                "{} and the files that it names could not be read within {seconds} s: storage hangs",
                self.path.display()
            )));
        }
    }

    fn reloaded(&mut self, outcome: Result<Reloaded, String>) {
        self.supervisor.ready();
        match outcome {
            Ok(Reloaded::Waits) => {}
            Ok(Reloaded::InForce { lost }) => {
                self.reloads.applied += 1;
                log_warnings(&self.config);
                lost.iter().for_each(|lost| tracing::warn!("{lost}"));
                self.log_removed();
                log_lines(&ConfigSummary::new(&self.config).pools());
                self.record_action(reload_record(&self.path));
                tracing::info!("reloaded {}", self.path.display());
            }
            Err(why) => {
                self.reloads.refused += 1;
                tracing::error!("not reloaded, the old configuration goes on: {why}");
            }
        }
    }

    /// Logs the removed exports that sessions still use. A pool that does not answer ends the service at the
    /// next look.
    fn log_removed(&mut self) {
        let Ok(snapshot) = self.look() else { return };
        changes::removed_in_use(&snapshot).iter().for_each(|removed| tracing::warn!("{removed}"));
    }

    /// Puts the cluster's policies into force. One that does not fit this host's configuration changes
    /// nothing here.
    fn adopt(&mut self, policies: PolicySource) {
        for remark in policy::in_force(&self.config.gateway, members(&self.config), &policies).1 {
            tracing::warn!("{remark}");
        }
        match self.gateway.apply(in_force(&self.config, &policies, &self.contracts, &self.overrides)) {
            Ok(()) => {
                self.policies = policies;
                tracing::info!("the cluster's policies are in force");
            }
            Err(why) => {
                tracing::error!("the cluster's policies are not put into force, what was goes on: {why}");
            }
        }
    }

    fn try_reload(&mut self, config: ServeConfig) -> Result<Reloaded, String> {
        let fixed = [
            ("metrics", config.metrics != self.config.metrics),
            ("api.listen or api.names", needs_restart(config.api.as_ref(), self.config.api.as_ref())),
            ("cluster", config.cluster != self.config.cluster),
            ("journal", config.gateway.journal != self.config.gateway.journal),
        ];
        let changed: Vec<_> = fixed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
        if !changed.is_empty() {
            return Err(format!("needs a restart to change: {}", changed.join(", ")));
        }
        let known = self.pending.as_ref().map(|pending| &pending.brought);
        let brought = self.contracts.brought_by(&config.contracts, known, time_of_day());
        if brought.refusal().is_none() && brought.is_unknown() {
            tracing::info!(
                "contracts have changed: measuring whether they can be kept before they are in force"
            );
        }
        let waited = self.pending.take();
        let outcome = self.decide(Pending { config, brought });
        match (&outcome, waited) {
            // Only the newest file counts that can be used: another leaves all as it is.
            (Err(_), waited) => self.pending = waited,
            (Ok(_), Some(_)) => {
                tracing::warn!(
                    "the configuration whose contracts were being measured is given up for a newer one"
                );
            }
            (Ok(_), None) => {}
        }
        outcome
    }

    /// Puts a configuration into force once all is known of the contracts that it brings, and none of them is
    /// refused.
    fn decide(&mut self, pending: Pending) -> Result<Reloaded, String> {
        if let Some(refusal) = pending.brought.refusal() {
            return Err(refusal);
        }
        if pending.brought.is_unknown() {
            self.pending = Some(pending);
            return Ok(Reloaded::Waits);
        }
        // Contracts and policies add no exports.
        let opening = self.gateway.opening(&pending.config.gateway).map_err(|error| error.to_string())?;
        if self.opening.take().is_some() {
            tracing::warn!("the configuration whose volumes were being opened is given up for a newer one");
        }
        if opening.is_empty() {
            return self.put_into_force(pending, OpenedVolumes::default());
        }
        self.open(opening).map_err(|error| format!("there is no thread to open volumes: {error}"))?;
        self.opening = Some(pending);
        Ok(Reloaded::Waits)
    }

    /// Opens volumes on another thread: this one must not wait for storage, which may hang.
    fn open(&mut self, opening: ReloadVolumes) -> io::Result<()> {
        self.openings += 1;
        let (count, events) = (self.openings, self.events.clone());
        let body = move || {
            let outcome = Box::new(opening.open());
            // The service may have ended meanwhile.
            let _ = events.send(Event::Opened { count, outcome });
        };
        thread::Builder::new().name("tg-reload".to_owned()).spawn(body).map(drop)
    }

    fn opened(&mut self, count: u64, outcome: Result<OpenedVolumes, StartError>) {
        // Given up for a newer configuration: its volumes are closed.
        if count != self.openings {
            return;
        }
        let Some(pending) = self.opening.take() else { return };
        let outcome = outcome
            .map_err(|error| error.to_string())
            .and_then(|volumes| self.put_into_force(pending, volumes));
        self.reloaded(outcome);
        self.measure();
    }

    fn put_into_force(&mut self, pending: Pending, volumes: OpenedVolumes) -> Result<Reloaded, String> {
        let Pending { config, brought } = pending;
        let contracts = brought.in_place_of(&self.contracts, &config.contracts, time_of_day());
        let mut overrides = self.overrides.clone();
        overrides.retain(|pool| has_pool(&config, pool), |pool, export| has_export(&config, pool, export));
        let wanted = in_force(&config, &self.policies, &contracts, &overrides);
        let token = admit_token(&config).map_err(|error| error.to_string())?;
        let credentials = config.api.as_ref().map(ApiSettings::credentials).transpose();
        let credentials = credentials.map_err(|error| error.to_string())?;
        if wanted.tls == self.config.gateway.tls {
            // The files may hold other certificates than at the last reload.
            self.gateway.renew_certificates().map_err(|error| error.to_string())?;
        }
        self.gateway.apply_opened(wanted, volumes).map_err(|error| error.to_string())?;
        self.access.set(token.as_ref()).map_err(|error| error.to_string())?;
        if let Some(credentials) = credentials {
            self.server.accept(credentials);
        }
        let lost = changes::lost_signals(&self.config.gateway, &config.gateway);
        (self.config, self.contracts, self.overrides) = (config, contracts, overrides);
        Ok(Reloaded::InForce { lost })
    }

    /// Has what is not known measured, one set at a time: first what a configuration waits for.
    fn measure(&mut self) {
        if self.measuring == MeasuringState::Busy {
            return;
        }
        let pending = self.pending.as_ref().map(|pending| &pending.brought);
        let Some(question) = pending.into_iter().chain([&self.contracts]).find_map(PoolStandings::question)
        else {
            return;
        };
        match admission::begin(question, self.events.clone()) {
            Ok(()) => self.measuring = MeasuringState::Busy,
            Err(error) => {
                if self.measuring != MeasuringState::Failed {
                    tracing::error!(
                        "contracts are not judged, there is no thread for it, trying again: {error}"
                    );
                }
                self.measuring = MeasuringState::Failed;
            }
        }
    }

    fn drain(mut self) -> Result<(), ServeError> {
        let began = Instant::now();
        let deadline = self.config.drain_deadline;
        self.supervisor.stopping(deadline);
        // A pool that is silent costs a part of the time that there is.
        let snapshot = self.look()?;
        self.note(&snapshot);
        if let Some(rollups) = &mut self.rollups {
            rollups.write_all();
        }
        log_lines(&ContractSummary::new(&snapshot));
        tracing::info!("draining, at most {deadline:?}; a second signal ends at once");
        let report = sessions::end(self.gateway, deadline.saturating_sub(began.elapsed()));
        if let Some(rollups) = self.rollups {
            rollups.close();
        }
        let report = report?;
        for pool in &report.stuck {
            tracing::error!(
                "pool {pool}: its worker waits in the kernel and does not end; its sockets are shut down; \
                 if the process does not vanish, the kernel keeps it (state D) until its storage answers"
            );
        }
        match report.cut_off {
            0 if report.stuck.is_empty() => tracing::info!("drained"),
            0 => {}
            sessions => tracing::warn!("drained; {sessions} sessions were cut off with requests unanswered"),
        }
        Ok(())
    }
}

/// The outcome of a configuration that was read again.
enum Reloaded {
    /// It is in force.
    InForce {
        /// The pools whose law has lost its signal, in words.
        lost: Vec<String>,
    },
    /// It waits until it is known whether its contracts can be kept.
    Waits,
}

/// The configuration of a host under the cluster's policies, with the contracts of this time of day, and with
/// overrides.
fn in_force(
    config: &ServeConfig,
    policies: &PolicySource,
    contracts: &PoolStandings,
    overrides: &Overrides,
) -> GatewayConfig {
    let (mut gateway, _) = policy::in_force(&config.gateway, members(config), policies);
    contracts.apply(&mut gateway);
    overrides::apply(&mut gateway, overrides);
    gateway
}

fn has_pool(config: &ServeConfig, name: &ResourceName) -> bool {
    config.gateway.pools.iter().any(|pool| pool.name == *name)
}

fn has_export(config: &ServeConfig, pool: &ResourceName, name: &ConsumerName) -> bool {
    let pools = config.gateway.pools.iter().filter(|known| known.name == *pool);
    pools.flat_map(|pool| &pool.exports).any(|export| export.name == *name)
}

/// The part of a configuration that policies are laid over.
fn members(config: &ServeConfig) -> policy::PolicyMembers<'_> {
    let plan = config.cluster.as_ref();
    policy::PolicyMembers {
        pools: plan.map_or(&[], ClusterPlan::pools),
        may_limit: plan.map_or(&[], ClusterPlan::may_limit),
    }
}

/// Tells the service of every change of the policies, for as long as there is one to tell.
fn follow_policies(mut watch: PolicyWatch, events: SyncSender<Event>) -> io::Result<()> {
    let body = move || {
        loop {
            if let Some(policies) = watch.wait(UNCHANGED)
                && events.send(Event::Policies(policies)).is_err()
            {
                return;
            }
        }
    };
    thread::Builder::new().name("policies".to_owned()).spawn(body).map(drop)
}
