//! Attacks on the real binary that must fail: each module is one of them, named for what the attacker does.

mod access;
mod api;
mod busy_worker;
mod connections;
mod crowded_block;
mod damaged_catalogue;
mod degraded;
mod false_broker;
mod false_nats;
mod flush_storm;
mod forbidden_io_uring;
mod forged_policy;
mod front_ends;
mod guardian;
mod hung_carrier;
mod hung_volume;
mod idle_http_connections;
mod lost_write_back;
mod memory;
mod other_volume;
mod passed_sockets;
mod pki;
mod planted_secret;
mod posing;
mod replaced_volume;
mod slow_node;
mod stuck_log;
mod supervised;
mod upstream_tls;
mod volume_twice;
mod web_page;
mod zeroes_past_limits;

mod storage;
