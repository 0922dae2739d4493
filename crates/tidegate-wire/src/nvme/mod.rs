//! NVMe over TCP (NVM Express, TCP Transport Specification 1.0): PDUs, connects, and commands with their
//! responses.

mod dialogue;
mod format;
#[cfg(test)]
mod tests;

pub(crate) use dialogue::NvmeDialogue;
