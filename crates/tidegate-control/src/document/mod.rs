//! Documents: everything that goes into the loop and comes out of it, and is serialised.

pub(crate) mod command;
pub(crate) mod contract;
pub(crate) mod decision;
pub(crate) mod observation;
pub(crate) mod point_decision;
pub(crate) mod rate_decision;
pub(crate) mod set_point_choice;
pub(crate) mod version;
