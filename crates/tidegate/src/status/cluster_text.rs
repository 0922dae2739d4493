//! Text form of the exchange with other hosts.

use std::fmt;

use tidegate_service::status::{ClusterStatus, MemberStatus};
use tidegate_units::Latency;

use crate::columns::{heading, write_rows};

/// The exchange with other hosts, for people.
pub(super) struct ClusterText<'a>(pub(super) &'a ClusterStatus);

impl fmt::Display for ClusterText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterStatus { name, host, carrier, up, reason, slot, members, duplicates } = self.0;
        write!(f, "cluster {name}: this host is {host}, carrier {carrier}")?;
        if let Some(slot) = slot {
            write!(f, ", slot {slot}")?;
        }
        match (up, reason) {
            (true, None) => writeln!(f, ", up")?,
            (true, Some(reason)) => writeln!(f, ", up, BUT {reason}")?,
            (false, None) => writeln!(f, ", DOWN: this host goes on alone")?,
            (false, Some(reason)) => writeln!(f, ", DOWN, this host goes on alone: {reason}")?,
        }
        for duplicate in duplicates {
            writeln!(f, "TWO HOSTS have the name {duplicate}: only the one heard first counts")?;
        }
        if members.is_empty() {
            return writeln!(f, "no other host is heard\n");
        }
        let mut rows = vec![heading(&["member", "last report", "counts", "pools"])];
        rows.extend(members.iter().map(row));
        write_rows(f, &rows)
    }
}

fn row(member: &MemberStatus) -> Vec<String> {
    let report = match member.report_age_seconds {
        Some(age) => format!("{} ago", time(age)),
        None => "none yet".to_owned(),
    };
    let counts = match member.stale {
        false => "yes".to_owned(),
        true => format!("NO, silent for {}", time(member.heard_age_seconds)),
    };
    let pools = if member.pools.is_empty() { "-".to_owned() } else { member.pools.join(" ") };
    vec![member.name.clone(), report, counts, pools]
}

fn time(seconds: f64) -> String {
    Latency::from_secs_f64(seconds).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> MemberStatus {
        MemberStatus {
            name: name.to_owned(),
            report_age_seconds: Some(0.12),
            heard_age_seconds: 0.1,
            stale: false,
            pools: vec!["array".to_owned()],
        }
    }

    fn cluster() -> ClusterStatus {
        ClusterStatus {
            name: "san-a".to_owned(),
            host: "host-1".to_owned(),
            carrier: "file".to_owned(),
            up: true,
            reason: None,
            slot: Some(7),
            members: Vec::new(),
            duplicates: Vec::new(),
        }
    }

    #[test]
    fn members_are_named_with_the_age_of_their_last_report() {
        let silent = MemberStatus { stale: true, heard_age_seconds: 12.0, ..member("host-3") };
        let new = MemberStatus { report_age_seconds: None, pools: Vec::new(), ..member("host-4") };
        let cluster = ClusterStatus { members: vec![member("host-2"), silent, new], ..cluster() };
        assert_eq!(
            ClusterText(&cluster).to_string(),
            "cluster san-a: this host is host-1, carrier file, slot 7, up\n\
             member  last report                counts  pools\n\
             host-2    120ms ago                   yes  array\n\
             host-3    120ms ago  NO, silent for 12.0s  array\n\
             host-4     none yet                   yes      -\n\n"
        );
    }

    #[test]
    fn a_carrier_that_fails_and_two_hosts_with_one_name_stand_out() {
        let reason = Some("no server".to_owned());
        let cluster = ClusterStatus {
            up: false,
            reason,
            slot: None,
            carrier: "nats".to_owned(),
            duplicates: vec!["host-1".to_owned()],
            ..cluster()
        };
        assert_eq!(
            ClusterText(&cluster).to_string(),
            "cluster san-a: this host is host-1, carrier nats, DOWN, this host goes on alone: no server\n\
             TWO HOSTS have the name host-1: only the one heard first counts\n\
             no other host is heard\n\n"
        );
    }
}
