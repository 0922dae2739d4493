//! Carriers of what hosts tell each other.
//!
//! Hosts that share a resource without seeing each other steer by what they measure together (PARDA §4.2).
//! What follows from the reports is decided by [`tidegate_control::combine`], which is pure; this crate
//! brings the reports from host to host, in one of several ways behind one interface:
//!
//! | carrier | for | trust |
//! |---|---|---|
//! | UDP, to a list of peers or a multicast group | a handful of hosts on one network | a shared key |
//! | a shared file or block device | hosts that share nothing but the storage | who can write to it |
//! | NATS | many hosts; brings policies, too ([`ClusterHandle::policy`]) | who the server lets in |
//!
//! [`ClusterHandle::join`], then once per control interval [`ClusterHandle::publish`] and
//! [`ClusterHandle::heard`]. A carrier that fails stops nothing: reports grow old, and a host without reports
//! steers by its own measurements.
//!
//! No two hosts' clocks are ever compared: the age of a report is the time since it arrived, on the
//! receiver's monotonic clock. `docs/guide/hosts.md` describes the carriers and the format of the messages.

#![forbid(unsafe_code)]

mod cluster;
mod config;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod key;
mod limits;
mod members;
mod name;
mod nats;
mod notice;
mod origin;
mod peer_address;
mod peers;
mod plan;
mod policy;
mod policy_board;
mod policy_writer;
mod rejection;
mod shared;
mod signature;
mod status;
mod tls;
mod udp;
mod wire;

pub use cluster::ClusterHandle;
pub use config::{
    Carrier, CarrierReach, ClusterConfig, FileConfig, JoinError, NatsConfig, NatsCredentials, UdpConfig,
};
pub use file::{serve_shared_file, use_file_helper};
pub use key::{ClusterKey, KeyError, Secret, SecretError, check_credentials};
pub use name::{ClusterName, ClusterNameError};
pub use nats::{PolicyError, policy_get, policy_put};
pub use peer_address::{PeerAddress, PeerAddressError};
pub use plan::{
    CARRIER_KEYS, CLUSTER_KEYS, ClusterFile, ClusterMember, ClusterPlan, ClusterReader, CredentialError,
    MemberWords, POLICY_KEYS, check_cluster, read_cluster,
};
pub use policy::{InvalidPolicy, ResourcePolicy};
pub use policy_board::{PolicyRevision, PolicySource, PolicyWatch};
pub use policy_writer::{PolicyWriter, PolicyWriterError};
pub use rejection::RejectionCounts;
pub use signature::{PolicyKey, PolicyKeyError, PolicyWriters};
pub use status::{CarrierKind, ClusterStatus, PeerStatus};
pub use tls::TlsSettings;

// Parts of `TlsSettings` and of what is said about it.
pub use tidegate_tls::{TlsError, TlsIdentity, check_authorities, check_certificate, check_private_key};
