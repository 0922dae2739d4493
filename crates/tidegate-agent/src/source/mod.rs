//! Latencies that arrays publish, as the signal of a resource (Bjørgeengen, figure 17).
//!
//! A thread of its own asks, and the regulation never waits. A latency is one sample. Until the next one it is
//! unknown, and one that is too old is none: then nothing is throttled by it. An answer without samples (NaN)
//! lets the last latency grow old.

pub(crate) mod config;
mod prometheus;
mod snmp;
mod snmp_keys;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant as Clock;

use tidegate_control::{ClusterSignal, SignalRequests};
use tidegate_units::{HostName, Iops, Latency, ResourceName};
use tokio::runtime::Runtime;

pub use config::{LatencySourceConfig, SourcePlace};
use prometheus::PrometheusQuery;
use snmp::{SnmpClient, SnmpQuestion};

use crate::finding::SurveyFinding;

/// No array answers later than this, in seconds: an hour.
const LONGEST: f64 = 3_600.0;

/// A source that is asked. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct LatencySource {
    config: LatencySourceConfig,
    shared: Arc<Mutex<SourceAnswers>>,
    /// The answer that was counted last.
    counted: u64,
    /// Nothing is sent: that it is gone says that it is over.
    _until: Sender<()>,
}

#[derive(Debug, Default)]
struct SourceAnswers {
    /// The time of the last answer.
    answered: Option<Clock>,
    /// The time of the last latency, and the latency. An answer without samples has none.
    latest: Option<(Clock, Latency)>,
    /// The number of latencies.
    latencies: u64,
    trouble: Option<String>,
}

/// The state of a source, for people to see.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceReading {
    /// The place of it.
    pub place: String,
    /// The time since the last answer, and its latency, which one without samples does not have. `None`: there
    /// was no answer.
    pub latest: Option<(Latency, Option<Latency>)>,
    /// True if it has a latency, and is young enough to count.
    pub counts: bool,
    /// The reason why the last question had no answer.
    pub trouble: Option<String>,
}

/// The word of a source when a decision is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceSample {
    /// A new latency.
    New(Latency),
    /// The last latency was counted, and is young.
    Counted,
    /// There is none, or it is too old.
    Unknown,
}

impl LatencySource {
    pub(crate) fn start(resource: &ResourceName, config: &LatencySourceConfig) -> Self {
        let (until, over) = mpsc::channel();
        let shared = Arc::<Mutex<SourceAnswers>>::default();
        let (asked, answers, name) = (config.clone(), Arc::clone(&shared), resource.clone());
        let body = move || ask_until(&asked, &answers, &name, &over);
        if let Err(error) = thread::Builder::new().name(format!("source {resource}")).spawn(body) {
            tracing::error!("{resource}: the source is not asked: {error}");
        }
        Self { config: config.clone(), shared, counted: 0, _until: until }
    }

    /// Returns true if it is asked as this says.
    pub(crate) fn is(&self, config: &LatencySourceConfig) -> bool {
        self.config == *config
    }

    /// Takes the latest latency, once.
    pub(crate) fn take(&mut self) -> SourceSample {
        let answers = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let young = answers.latest.filter(|(at, _)| at.elapsed() <= self.config.max_age);
        let Some((_, latency)) = young else { return SourceSample::Unknown };
        if answers.latencies == self.counted {
            return SourceSample::Counted;
        }
        self.counted = answers.latencies;
        SourceSample::New(latency)
    }

    pub(crate) fn reading(&self) -> SourceReading {
        let answers = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = answers.answered.map(|at| {
            let with_latency = answers.latest.filter(|(of, _)| *of == at);
            (Latency::from(at.elapsed()), with_latency.map(|(_, latency)| latency))
        });
        let is_young = |age: Latency| age.to_duration() <= self.config.max_age;
        SourceReading {
            place: self.config.place.to_string(),
            counts: latest.is_some_and(|(age, latency)| latency.is_some() && is_young(age)),
            latest,
            trouble: answers.trouble.clone(),
        }
    }
}

impl SourceSample {
    /// Returns the signal that the sample makes. A latency is one request that took so long.
    pub(crate) fn signal(self) -> Option<ClusterSignal> {
        let mean = match self {
            Self::New(latency) => Some(latency),
            Self::Counted | Self::Unknown => None,
        };
        Some(ClusterSignal {
            hosts: 0,
            stale: u32::from(self == Self::Unknown),
            adjusted: 0,
            signal: SignalRequests::ProtectedReads,
            completed: u64::from(mean.is_some()),
            mean,
            iops: Iops::ZERO,
            reserved: Iops::ZERO,
            // Without an answer that counts, the command decays as for storage without requests.
            outstanding: self != Self::Unknown,
            oldest: None,
            leader: HostName::new("source").ok()?,
            leads: true,
            set_point: None,
            points: Vec::new(),
            load: None,
        })
    }
}

impl std::fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prometheus { url, .. } => write!(f, "the Prometheus server at {url}"),
            Self::Snmp { address, object, .. } => write!(f, "object {object} of the SNMP agent at {address}"),
        }
    }
}

fn ask_until(
    config: &LatencySourceConfig,
    answers: &Mutex<SourceAnswers>,
    resource: &ResourceName,
    over: &Receiver<()>,
) {
    let mut asker = SourceAsker::new(config);
    let mut next = Clock::now();
    loop {
        let answer = asker.ask();
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let was_in_trouble = answers.trouble.is_some();
        match answer {
            Ok(latency) => {
                let now = Clock::now();
                answers.answered = Some(now);
                if let Some(latency) = latency {
                    answers.latest = Some((now, latency));
                    answers.latencies += 1;
                }
                answers.trouble = None;
                if was_in_trouble {
                    tracing::info!("{resource}: {} answers again", config.place);
                }
            }
            Err(why) => {
                if answers.trouble.as_ref() != Some(&why) {
                    tracing::warn!("{resource}: no latency from {}: {why}", config.place);
                }
                answers.trouble = Some(why);
            }
        }
        drop(answers);
        next = (next + config.every).max(Clock::now());
        match over.recv_timeout(next.saturating_duration_since(Clock::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Asks a source, and judges the answers.
struct SourceAsker<'a> {
    config: &'a LatencySourceConfig,
    /// Made at the first question.
    connection: Option<(Runtime, SourceConnection<'a>)>,
}

/// The way to a source, which is kept between questions.
enum SourceConnection<'a> {
    Prometheus { client: reqwest::Client, query: PrometheusQuery<'a> },
    Snmp { client: SnmpClient, question: SnmpQuestion<'a> },
}

impl<'a> SourceAsker<'a> {
    const fn new(config: &'a LatencySourceConfig) -> Self {
        Self { config, connection: None }
    }

    /// Returns the latency. `None`: there is none now. A mean over no request is no number, and so is whatever a
    /// broken query divides: the latency is unknown, and not that of an idle array.
    fn ask(&mut self) -> Result<Option<Latency>, String> {
        let number = self.number()?;
        if number.is_nan() {
            return Ok(None);
        }
        let seconds = number * self.config.seconds;
        if !(0.0..=LONGEST).contains(&seconds) {
            return Err(format!("{number} is no latency in this unit: is `unit` right?"));
        }
        Ok(Some(Latency::from_secs_f64(seconds)))
    }

    fn number(&mut self) -> Result<f64, String> {
        let (runtime, connection) = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| error.to_string())?;
                none.insert((runtime, SourceConnection::to(self.config)?))
            }
        };
        runtime.block_on(connection.ask())
    }
}

impl<'a> SourceConnection<'a> {
    fn to(config: &'a LatencySourceConfig) -> Result<Self, String> {
        let timeout = config.timeout;
        Ok(match &config.place {
            SourcePlace::Prometheus { url, query, credentials } => Self::Prometheus {
                client: tidegate_transfer::store::service_client().map_err(|error| error.to_string())?,
                query: PrometheusQuery { url, query, credentials: credentials.as_ref(), timeout },
            },
            SourcePlace::Snmp { address, object, access } => Self::Snmp {
                client: SnmpClient::default(),
                question: SnmpQuestion { address: *address, access, object, timeout },
            },
        })
    }

    async fn ask(&mut self) -> Result<f64, String> {
        match self {
            Self::Prometheus { client, query } => query.ask(client).await.map_err(|error| error.to_string()),
            Self::Snmp { client, question } => client.ask(question).await.map_err(|error| error.to_string()),
        }
    }
}

/// Asks a source once, for the survey.
pub(crate) fn finding(resource: &ResourceName, config: &LatencySourceConfig) -> SurveyFinding {
    let what = format!("latency of {resource}");
    let (works, detail) = match SourceAsker::new(config).ask() {
        Ok(Some(latency)) => (true, format!("{latency}, from {}", config.place)),
        Ok(None) => (true, format!("no samples now, from {}", config.place)),
        Err(why) => (false, format!("{}: {why}", config.place)),
    };
    SurveyFinding { what, works, detail }
}
