//! Estimators, control laws, and the one loop that decides.
//!
//! Nothing here looks at the world: time, samples and settings are arguments, commands and explanations are
//! results. The simulator, the gateway and a replay call the same [`ControlLoop::step`], and nothing else
//! decides.
//!
//! Once per control interval:
//!
//! 1. A sensor writes down what happened since its last report: an [`Observation`].
//! 2. [`ControlLoop::step`] answers with [`Commands`] and a [`Decision`]. A throttle carries out the commands
//!    as they stand, and releases everything that they do not name. The decision tells the result, its input,
//!    and the reason.
//!
//! Where several hosts share a resource, each makes a [`HostReport`] of its observation before it decides
//! ([`ControlLoop::report`]), tells the others, and puts what [`combine`] makes of all reports into the
//! observation.
//!
//! The set point is configured ([`LoopConfig::set_point`]). For the window law it can be found instead: the
//! least response time at which the resource gives nearly all it can ([`KneeConfig`]). The decision has the
//! reason ([`SetPointChoice`]).
//!
//! Eligible consumers are configured, or found: [`BulkDetector`] keeps the set of consumers that move more
//! than a threshold.
//!
//! The PID's gains are configured, or found: [`RelayExperiment`] oscillates the process for a while and
//! proposes them.
//!
//! Where consumers have a [`Contract`], the integral law keeps a rate for each. Its gain is configured, or
//! follows from the process gain ([`gain_for`]).
//!
//! [`ArxModel`] is a storage as a linear model, with its behaviour under a fixed gain, and a recommended gain
//! (Triage §3).
//!
//! Where consumers have goals and [`Bands`], the self-tuning law finds the throughput at which all keep their
//! response times, from a model that it learns meanwhile, and each consumer has its part of it by the bands.
//!
//! The code is layered. A folder imports only from those above it in this list:
//!
//! - `document`: everything that goes in and out and is serialised
//! - `estimate`, `cluster`, `set_point`: figures made of observations, conclusions across hosts, the knee
//! - `law`: one folder for each law
//! - `config`, `control_loop`: the loop
//! - `identify`: experiments that find models and gains, beside the loop
//!
//! The parts can be used alone: the laws [`WindowLaw`] (PARDA), [`Pid`] (Bjørgeengen), [`IntegralLaw`] (Lee)
//! and [`SelfTuning`] (Triage), the estimators [`Ewma`] and [`SizeModel`].

#![forbid(unsafe_code)]

mod cluster;
mod config;
mod control_loop;
mod document;
mod estimate;
mod identify;
mod law;
mod set_point;

pub use cluster::combine::combine;
pub use cluster::initiators::{InitiatorReport, reported_signal};
pub use config::{LoopConfig, LoopConfigError, SignalChoice, Smoothing};
pub use control_loop::ControlLoop;
pub use document::auto_decision::AutoDecision;
pub use document::band_position::BandPosition;
pub use document::command::{Commands, ConsumerCommand};
pub use document::contract::{Contract, ContractError};
pub use document::decision::Decision;
pub use document::host_report::{ClusterSignal, HeardReport, HostReport};
pub use document::io_error::IoErrorKind;
pub use document::load_report::{ClusterLoad, LoadReport};
pub use document::mean_outstanding::MeanOutstanding;
pub use document::model::{LearningOutcome, LinearModel, QueueModel};
pub use document::observation::{ConsumerObservation, Observation, OperationTotals};
pub use document::output::{LawAction, LawKind, LawOutput, OutputBound};
pub use document::point_decision::{PointAllotment, PointDecision, RegulatorDecision};
pub use document::point_report::{
    MOST_CLAIMS, PeerPoint, PointClaim, PointReport, PointRest, PointTurn, PointWish,
};
pub use document::rate_decision::{GaveWay, RateDecision};
pub use document::reserved::{ReservationDecision, ReservationShortage};
pub use document::set_point_choice::{SetPointChoice, SetPointReason, StepDirection};
pub use document::signal::{SignalPercentile, SignalRequests, SignalState, SignalStatistic};
pub use document::waiting::{WaitReason, WaitingConsumers};
pub use estimate::bulk::{BulkConfig, BulkConfigError, BulkDetector};
pub use estimate::ewma::Ewma;
pub use estimate::normalise::SizeModel;
pub use estimate::reservation::{ReservationConditions, ReservationFeasibility, feasible, window_for};
pub use identify::arx::{
    ArxError, ArxFit, ArxModel, ArxSample, IntegralLoop, LoopPole, ModelOffset, RecommendedSampling,
    SampledFit, SamplingStudy,
};
pub use identify::relay::{IdentifiedProcess, RelayConfig, RelayError, RelayExperiment, RelayStep};
pub use law::auto::config::{AutoConfig, AutoConfigError};
pub use law::bands::{Band, BandClaim, Bands, BandsError, allot, operating_point};
pub use law::integral::config::{
    ContractStatistic, GainTuning, IntegralConfig, IntegralConfigError, IntegralVariant,
};
pub use law::integral::gain::{ClosedLoopPole, ControllerGain, GainError, ProcessGain, gain_for};
pub use law::integral::integral_law::{IntegralLaw, IntegralStep, RateBounds, RateUse};
pub use law::parameters::{ContractUse, FirstRate, KeyValue, LawParameters, LoopRules};
pub use law::pid::config::{PidConfig, PidConfigError, PidVariant};
pub use law::pid::controller::{Pid, PidStep};
pub use law::queueing::config::QueueLearning;
pub use law::queueing::station::AtStorage;
pub use law::registry::{LawConfig, LawConfigError};
pub use law::self_tuning::config::{
    LineLearning, RegulationMethod, SelfTuningConfig, SelfTuningConfigError, SelfTuningVariant,
};
pub use law::self_tuning::figure6::Figure6Learning;
pub use law::self_tuning::regulator::{IntervalMeasurement, SelfTuning, SelfTuningStep};
pub use law::window::config::{BetaScale, SharesOf, WindowConfig, WindowConfigError};
pub use law::window::window_law::{WindowLaw, WindowStep, active_share};
pub use set_point::knee::{KneeConfig, KneeConfigError};
