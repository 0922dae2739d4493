//! Estimators, control laws, and the one loop that decides.
//!
//! Nothing here looks at the world: time, samples and settings are arguments, commands and explanations are
//! results. The simulator, the gateway and a replay call the same [`ControlLoop::step`], and nothing else
//! decides.
//!
//! Once per control interval:
//!
//! 1. A sensor writes down what happened since its last report: an [`Observation`].
//! 2. [`ControlLoop::step`] answers with [`Commands`], which a throttle carries out as they stand (what they
//!    do not hold is let go), and with a [`Decision`], which says what was decided, from what, and why.
//!
//! Where several hosts share a resource, each makes a [`HostReport`] of its observation before it decides
//! ([`ControlLoop::report`]), tells the others, and puts what [`combine`] makes of all reports into the
//! observation.
//!
//! What the laws steer to is configured ([`LoopConfig::set_point`]), or, of the window law, found: the least
//! response time at which the resource gives nearly all it can ([`KneeConfig`]), with the reason in the
//! decision ([`SetPointChoice`]).
//!
//! Who is held is configured, or found: [`Writers`] keeps the set of consumers that write more than a
//! threshold.
//!
//! The PID's gains are configured, or found: [`Relay`] oscillates the process for a while and proposes them.
//!
//! Where consumers have a [`Contract`], the integral law keeps a rate for each. Its gain is configured, or
//! follows from the process gain ([`gain_for`]).
//!
//! A storage as a linear model, what a fixed gain makes of it, and which gain is a good one: [`Arx`] (Triage
//! §3).
//!
//! Where consumers have goals and [`Bands`], the self-tuning law finds the throughput at which all keep their
//! response times, from a model that it learns meanwhile, and each consumer has its part of it by the bands.
//!
//! The parts can be used alone: the laws [`WindowLaw`] (PARDA), [`Pid`] (Bjørgeengen), [`IntegralLaw`] (Lee)
//! and [`SelfTuning`] (Triage), the estimators [`Ewma`] and [`SizeModel`].

#![forbid(unsafe_code)]

mod arx;
mod bands;
mod choice;
mod command;
mod compensation;
mod config;
mod contract;
mod control_loop;
mod curve;
mod decision;
mod ewma;
mod gain;
mod heard;
mod hosts;
mod hyperbola;
mod integral;
mod knee;
mod line;
mod normalise;
mod observation;
mod pid;
mod point_decision;
mod point_report;
mod queueing;
mod rate_decision;
mod rates;
mod regulators;
mod relay;
mod reservation;
mod rls;
mod self_tuning;
mod set_point;
mod version;
mod window;
mod writers;

pub use arx::{
    Arx, ArxError, ArxFit, ArxSample, IntegralLoop, LoopPole, Offset, Recommended, SampledFit, Sampling,
};
pub use bands::{Band, BandPosition, Bands, BandsError, Claim, allot, operating_point};
pub use choice::{Direction, SetPointChoice, SetPointReason};
pub use command::{Commands, ConsumerCommand};
pub use config::{FirstRate, Law, LoopConfig, LoopConfigError, SignalChoice, SignalStatistic, Smoothing};
pub use contract::{Contract, ContractError};
pub use control_loop::ControlLoop;
pub use decision::{Action, Bound, Decision, Input, LawKind, Output, Signal};
pub use ewma::Ewma;
pub use gain::{ControllerGain, GainError, Pole, ProcessGain, gain_for};
pub use hosts::{ClusterSignal, HeardReport, HostReport, combine};
pub use integral::{
    IntegralConfig, IntegralConfigError, IntegralLaw, IntegralStep, IntegralVariant, RateBounds, RateUse,
    Statistic,
};
pub use knee::{KneeConfig, KneeConfigError};
pub use line::Model;
pub use normalise::SizeModel;
pub use observation::{ConsumerObservation, Observation, Operations, Outstanding, SignalPercentile};
pub use pid::{Pid, PidConfig, PidConfigError, PidStep, PidVariant};
pub use point_decision::{Allotment, PointDecision, RegulatorDecision};
pub use point_report::{MOST_CLAIMS, PeerPoint, PointClaim, PointReport, PointRest, PointTurn, PointWish};
pub use queueing::{AtStorage, QueueModel, Queueing};
pub use rate_decision::{GaveWay, RateDecision};
pub use relay::{Identified, Relay, RelayConfig, RelayError, RelayStep};
pub use reservation::{Conditions, Feasibility, Reserved, Shortage, feasible, window_for};
pub use self_tuning::{
    Adaptive, Learnt, Measured, Regulation, SelfTuning, SelfTuningConfig, SelfTuningConfigError,
    SelfTuningStep, SelfTuningVariant,
};
pub use window::{BetaScale, SharesOf, WindowConfig, WindowConfigError, WindowLaw, WindowStep, active_share};
pub use writers::{Writers, WritersConfig, WritersConfigError};
