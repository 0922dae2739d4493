//! Control laws, one folder each: parameters, state, decision and tests.
//!
//! | folder | law | output |
//! |---|---|---|
//! | `auto` | none | one window for all throttled consumers, by what it learns of the storage |
//! | `window` | PARDA | one window for all throttled consumers |
//! | `pid` | Bjørgeengen | one delay, under each consumer's floor rate |
//! | `integral` | Lee | a rate for each consumer, by its contract |
//! | `self_tuning` | Triage | an operating point, divided by `bands` into rates |
//! | `queueing` | none | the same found with the model of a queue, and a window |
//!
//! The law `queueing-model` is the self-tuning law with another model. Its folder holds that model, and
//! `self_tuning` steps it. A law's parameters implement `LawParameters`, its state implements `ControlLaw`,
//! and `registry` lists all laws. No law knows that list.

pub(crate) mod auto;
pub(crate) mod bands;
pub(crate) mod claims;
pub(crate) mod control_law;
pub(crate) mod integral;
pub(crate) mod parameters;
pub(crate) mod pid;
pub(crate) mod queueing;
pub(crate) mod registry;
pub(crate) mod self_tuning;
pub(crate) mod window;
