//! A capture of real packets on a loopback interface, in a network namespace of its own, as root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant as Clock};

use tidegate_testing::{Lack, in_own_network, skip, until};
use tidegate_units::{Bytes, Latency};

use super::*;

fn header(opcode: u8, flags: u8, tag: u8, data: usize) -> [u8; 48] {
    let mut header = [0; 48];
    (header[0], header[1], header[19]) = (opcode, flags, tag);
    header[5..8].copy_from_slice(&u32::try_from(data).unwrap().to_be_bytes()[1..]);
    header
}

/// A PDU of iSCSI with its data, padded.
fn pdu(opcode: u8, flags: u8, tag: u8, data: &[u8]) -> Vec<u8> {
    let mut pdu = [&header(opcode, flags, tag, data.len()), data].concat();
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

fn read_command(tag: u8, bytes: u32) -> Vec<u8> {
    let mut head = header(1, 0xc1, tag, 0);
    head[20..24].copy_from_slice(&bytes.to_be_bytes());
    head[32] = 0x28;
    head.to_vec()
}

/// Runs in a network namespace of its own, whose loopback interface is up.
fn alone(work: impl FnOnce() + Send + 'static) {
    in_own_network(|| match Command::new("ip").args(["link", "set", "lo", "up"]).status() {
        Ok(status) => {
            assert!(status.success());
            work();
        }
        Err(error) => skip(Lack::Program("ip"), error),
    });
}

fn on(interface: &str) -> CaptureConfig {
    CaptureConfig { interface: interface.to_owned(), ports: [3260].into(), snap: WHOLE_PACKETS }
}

#[test]
fn reads_over_a_real_connection_have_the_time_that_their_responses_took() {
    const WAIT: Duration = Duration::from_millis(30);
    alone(|| {
        let capture = PacketCapture::start(on("lo"), []).unwrap();
        let listener = TcpListener::bind("127.0.0.1:3260").unwrap();
        let mut initiator = TcpStream::connect("127.0.0.1:3260").unwrap();
        let (mut target, _) = listener.accept().unwrap();
        let names = b"InitiatorName=iqn.a\0TargetName=iqn.array:vg0\0";
        initiator.write_all(&pdu(0x43, 0x87, 1, names)).unwrap();
        target.read_exact(&mut [0; 48]).unwrap();
        target.write_all(&pdu(0x23, 0x87, 1, b"TargetPortalGroupTag=1\0")).unwrap();
        let begin = Clock::now();
        for tag in 0..3 {
            initiator.write_all(&read_command(tag, 100_000)).unwrap();
            // The time that a response takes.
            thread::sleep(WAIT);
            // One large segment, where the interface lets it.
            target.write_all(&pdu(0x25, 0x81, tag, &[7; 100_000])).unwrap();
            initiator.read_exact(&mut [0; 100_048]).unwrap();
        }
        let took = Latency::from(begin.elapsed());
        let report = until("three reads", || {
            let report = capture.report().unwrap().report;
            report.nexuses.first().is_some_and(|nexus| nexus.totals.reads.count == 3).then_some(report)
        });
        let found = &report.nexuses[0];
        assert_eq!((&*found.nexus.initiator, &*found.nexus.target), ("iqn.a", "iqn.array:vg0"));
        assert_eq!(found.totals.reads.bytes, Bytes::new(300_000));
        assert!(found.totals.reads.latency >= Latency::from(3 * WAIT), "{found:?}");
        assert!(found.totals.reads.latency <= took, "{found:?} within {took}");
        assert_eq!((report.counters.gaps, report.counters.lost), (0, 0), "{report:?}");
        assert!(report.counters.repeated > 0, "loopback shows each packet as it leaves and as it comes");
        assert_eq!(capture.sessions().len(), 1);
    });
}

#[test]
fn an_interface_that_is_not_there_or_goes_away_is_named() {
    alone(|| {
        let error = PacketCapture::start(on("none"), []).unwrap_err().to_string();
        assert!(error.contains("none") && error.contains("ip link"), "{error}");
        let ip = |arguments: &[&str]| {
            assert!(Command::new("ip").args(arguments).status().unwrap().success(), "{arguments:?}");
        };
        ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
        ip(&["link", "set", "v0", "up"]);
        let capture = PacketCapture::start(on("v0"), []).unwrap();
        assert!(capture.report().is_ok());
        ip(&["link", "delete", "v0"]);
        let error = until("an error", || capture.report().err()).to_string();
        assert!(error.contains("cannot watch the packets of v0"), "{error}");
        ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
        ip(&["link", "set", "v0", "up"]);
        until("a report", || capture.report().ok());
    });
}
