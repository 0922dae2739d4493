//! The integration tests of tidegate: one program, a module for each subject.

#![allow(clippy::print_stderr, reason = "counts are for people")]
#![allow(clippy::print_stdout, reason = "measurements print their figures")]
#![allow(clippy::unwrap_used, reason = "the helpers of a test fail by panicking")]

mod admit;
mod admit_api;
mod agent;
mod attacks;
mod command_line;
mod crashes;
mod dashboard;
mod demo;
mod documents;
mod explain;
mod hang_up;
mod hosts;
mod house;
mod identify;
mod init;
mod initiators;
mod io_errors;
mod live;
mod operation;
mod rehearse;
mod release;
mod report;
mod restart;
mod serve;
mod service;
mod sim;
mod status;
mod top;
mod transfer;
mod vhost_user;
