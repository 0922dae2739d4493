//! A load on a vhost-user disk, by a front end of our own. It prints the requests per second.
//!
//!     disk_load SOCKET DEPTH SECONDS read|write [BYTES]
//!
//! `bench/vhost-user-vs-qemu.py` drives it.

#![allow(clippy::unwrap_used, reason = "a bench ends with the first thing that fails")]
#![allow(clippy::print_stdout, reason = "its result")]

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_testing::vhost::{DONE, EVENT_INDEX, Machine, READ, WRITE};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, depth, seconds, operation, rest @ ..] = &arguments[..] else {
        panic!("disk_load SOCKET DEPTH SECONDS read|write [BYTES]");
    };
    let (depth, seconds): (u16, u64) = (depth.parse().unwrap(), seconds.parse().unwrap());
    let bytes: u32 = rest.first().map_or(4096, |bytes| bytes.parse().unwrap());
    let writes = operation == "write";
    let mut machine = Machine::new(1);
    machine.features |= EVENT_INDEX;
    machine.needs_record = false;
    machine.connect(Path::new(socket));
    let capacity = u64::from_le_bytes(machine.config(0, 8).try_into().unwrap());
    let blocks = capacity * 512 / u64::from(bytes);
    let data = vec![0xa5; bytes as usize];
    // A sequence of Knuth's, which visits blocks in no order that read-ahead would like.
    let mut random = 1u64;
    let mut sector = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % blocks * u64::from(bytes) / 512
    };
    let mut put = |machine: &mut Machine, slot| match writes {
        true => machine.put(0, slot, WRITE, sector(), &data, 0),
        false => machine.put(0, slot, READ, sector(), &[], bytes),
    };
    (0..depth).for_each(|slot| put(&mut machine, slot));
    machine.kick(0);
    let (mut complete, mut began) = (0u64, Instant::now());
    let ramp = Duration::from_secs(1);
    let mut is_ramping = true;
    while began.elapsed() < if is_ramping { ramp } else { Duration::from_secs(seconds) } {
        let slots = machine.await_completed(0, 1);
        complete += slots.len() as u64;
        for slot in slots {
            assert_eq!(machine.status(0, slot), DONE);
            put(&mut machine, slot);
        }
        machine.kick_if_wanted(0);
        if is_ramping && began.elapsed() >= ramp {
            (complete, began, is_ramping) = (0, Instant::now(), false);
        }
    }
    println!("{:.0}", complete as f64 / began.elapsed().as_secs_f64());
}
