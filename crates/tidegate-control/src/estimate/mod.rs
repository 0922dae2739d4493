//! Estimators: figures that laws and the loop steer by, made of observations.

pub(crate) mod bulk;
pub(crate) mod ewma;
pub(crate) mod fixed_array;
pub(crate) mod normalise;
pub(crate) mod reservation;
pub(crate) mod rls;
pub(crate) mod signal_samples;
