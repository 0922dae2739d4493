//! Rehearsal: what a recorded time would have been with a law in force.
//!
//! A service on a dry run decides, and throttles nothing. Its journal has what each consumer did in each
//! control interval. [`rehearse`] asks what the same time would have been with the law in force:
//!
//! 1. It fits a model of the storage to the recording: latency by the requests outstanding, of each
//!    consumer's reads and writes. A first fit leaves every second block of the recording unseen, and the
//!    errors there are stated.
//! 2. It tells open demand, which arrives whatever the latency, from closed demand, which keeps a number of
//!    requests outstanding. Where the recording does not tell, both are assumed in turn.
//! 3. It runs the real [`ControlLoop`](tidegate_control::ControlLoop) against the model, interval by
//!    interval, under the recorded demand. Latencies scatter around the model as they did in the recording.
//!    Work that is delayed is done later.
//! 4. It does so 24 times, each time with parameters from other blocks, and reports medians and ranges.
//!
//! Where the model does not fit, the report claims nothing and says why ([`Refusal`]).
//!
//! The model is of intervals and not of requests, unlike the simulator's. A day of a fast storage has more
//! requests than can be simulated 24 times, and the journal knows sums of intervals only.

#![forbid(unsafe_code)]

mod demand;
mod fit;
mod noise;
mod recording;
mod rehearse;
mod report;
mod run;
mod seconds;
mod service;
mod storage_model;
mod validation;

pub use demand::DemandKind;
pub use recording::{Recording, RecordingFull};
pub use rehearse::rehearse;
pub use report::{
    ClassReport, ConsumerPrediction, CurvePoint, Estimate, MeasuredTime, ModelReport, Prediction, Refusal,
    RehearsalOutcome, RehearsalReport,
};
