//! Conclusions that hosts which share a resource draw from each other's reports.

pub(crate) mod combine;
pub(crate) mod initiators;
mod loads;
pub(crate) mod operating_point;
