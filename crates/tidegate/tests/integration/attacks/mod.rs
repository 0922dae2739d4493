//! Attacks on the real binary that must fail: each module is one of them, named for what the attacker does.

mod access;
mod api;
mod connections;
mod degraded;
mod false_broker;
mod forbidden_io_uring;
mod forged_policy;
mod guardian;
mod hung_volume;
mod idle_http_connections;
mod lost_write_back;
mod memory;
mod operators_places;
mod passed_descriptors;
mod passed_sockets;
mod pki;
mod planted_secret;
mod posing;
mod stuck_log;
mod supervised;
mod upstream_tls;
mod volume_twice;
mod web_page;
mod zeroes_past_limits;

mod storage;
