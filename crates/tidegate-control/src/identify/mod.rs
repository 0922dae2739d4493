//! Identification: experiments that find a model of the process, and gains for it.

pub(crate) mod arx;
pub(crate) mod relay;
