//! Documents: everything that goes into the loop and comes out of it, and is serialised.

pub(crate) mod auto_decision;
pub(crate) mod band_position;
pub(crate) mod command;
pub(crate) mod contract;
pub(crate) mod decision;
pub(crate) mod host_report;
pub(crate) mod io_error;
pub(crate) mod load_report;
pub(crate) mod mean_outstanding;
pub(crate) mod model;
pub(crate) mod observation;
pub(crate) mod output;
pub(crate) mod point_decision;
pub(crate) mod point_report;
pub(crate) mod rate_decision;
pub(crate) mod reserved;
pub(crate) mod set_point_choice;
pub(crate) mod signal;
mod version;
pub(crate) mod waiting;
