//! Disks of virtual machines: the real binary, and a machine's driver and front end of our own.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::service::{Service, text, tidegate};
use tidegate_testing::until;
use tidegate_testing::vhost::{
    DISCARD, DONE, EVENT_INDEX, FAILED, FLUSH, IDENTIFY, Machine, READ, SLOTS, UNSUPPORTED, WRITE,
    WRITE_CACHE, ZEROES,
};
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost::vhost_user::{Frontend, VhostUserFrontend};

const DISK: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
[pool.p.export.disk]
path = 'disk.raw'
listen = ['vhost-user:disk.sock']
";

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes()[..], &flags.to_le_bytes()[..]].concat()
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(seed * 2 + 7) >> 3) as u8 ^ seed as u8).collect()
}

#[test]
fn a_machine_has_its_disk_and_every_command_of_it() {
    let service = Service::start("serve", DISK);
    for (features, indirect) in [(0, false), (EVENT_INDEX, true)] {
        let mut machine = Machine::new(2);
        machine.features |= features;
        machine.indirect = indirect;
        machine.connect(&service.path("disk.sock"));
        assert_eq!(machine.config(0, 8), (8u64 << 11).to_le_bytes(), "8 MiB in sectors");
        assert_eq!(machine.config(20, 4), 512u32.to_le_bytes());

        let data = pattern(3, 65_536);
        assert_eq!(machine.request(WRITE, 2048, &data, 0).0, DONE);
        assert_eq!(machine.request(FLUSH, 0, &[], 0).0, DONE);
        assert_eq!(machine.request(READ, 2048, &[], 65_536), (DONE, data.clone()));
        assert_eq!(fs::read(service.path("disk.raw")).unwrap()[1 << 20..][..65_536], data);

        assert_eq!(machine.request(ZEROES, 0, &range(2048, 8, 1), 0).0, DONE);
        assert_eq!(machine.request(DISCARD, 0, &range(2056, 8, 0), 0).0, DONE);
        let (status, after) = machine.request(READ, 2048, &[], 65_536);
        assert_eq!((status, &after[..4096]), (DONE, &[0; 4096][..]));
        assert_eq!(after[8192..], data[8192..]);
        let (status, name) = machine.request(IDENTIFY, 0, &[], 20);
        assert_eq!((status, &name[..5]), (DONE, &b"disk\0"[..]));

        // Beyond the end, in part of a sector, of a kind that there is not, of two ranges.
        assert_eq!(machine.request(READ, 16_384, &[], 512).0, FAILED);
        assert_eq!(machine.request(WRITE, 16_383, &data[..1024], 0).0, FAILED);
        assert_eq!(machine.request(READ, u64::MAX, &[], 512).0, FAILED);
        assert_eq!(machine.request(WRITE, 0, &data[..100], 0).0, FAILED);
        assert_eq!(machine.request(99, 0, &[], 512).0, UNSUPPORTED);
        assert_eq!(machine.request(DISCARD, 0, &[range(0, 8, 0), range(8, 8, 0)].concat(), 0).0, UNSUPPORTED);

        // Many at once, in both rings.
        for slot in 0..SLOTS {
            for ring in 0..2 {
                let data = pattern(u64::from(slot), 4096);
                machine.put(ring, slot, WRITE, u64::from(slot) * 16 + ring as u64 * 8, &data, 0);
            }
        }
        machine.kick(1);
        machine.kick(0);
        for ring in 0..2 {
            let mut slots = machine.await_completed(ring, usize::from(SLOTS));
            slots.sort_unstable();
            assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
            assert!((0..SLOTS).all(|slot| machine.status(ring, slot) == DONE));
        }
        for slot in 0..SLOTS {
            let wanted = pattern(u64::from(slot), 4096);
            let sector = u64::from(slot) * 16;
            assert_eq!(machine.request(READ, sector, &[], 8192), (DONE, [&wanted[..], &wanted[..]].concat()));
        }
        let sessions = "tidegate_sessions{pool=\"p\",consumer=\"disk\"}";
        assert_eq!(service.metric(sessions), Some(1.0));
        assert_eq!(service.metric("tidegate_disks{pool=\"p\",consumer=\"disk\"}"), Some(1.0));
        machine.disconnect();
        until("the session's end", || service.metric(sessions).filter(|sessions| *sessions == 0.0));
    }
    let writes = "tidegate_requests_total{pool=\"p\",consumer=\"disk\",op=\"write\"}";
    assert_eq!(service.metric(writes), Some(2.0 * (2.0 + 2.0 * f64::from(SLOTS))));
}

#[test]
fn a_ring_stops_once_all_that_it_took_is_complete_and_goes_on_where_it_was() {
    let service = Service::start("serve", &DISK.replace("raw'", "raw'\nlimit = { iops = '200 IO/s' }"));
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    let mut complete = 0;
    for round in 1..4 {
        for slot in 0..8 {
            machine.put(0, slot, WRITE, u64::from(slot), &pattern(round, 512), 0);
        }
        machine.kick(0);
        machine.await_completed(0, 1);
        // A limit keeps some of them waiting; they are complete when the ring has stopped.
        let base = machine.front_end().get_vring_base(0).unwrap();
        machine.completed(0);
        complete += 8;
        assert!((0..8).all(|slot| machine.status(0, slot) == DONE));
        assert_eq!(base, complete);
        machine.put(0, 9, READ, 0, &[], 512);
        machine.kick(0);
        machine.start_ring(0, u16::try_from(base).unwrap());
        assert_eq!(machine.await_completed(0, 1), [9]);
        assert_eq!(machine.data(0, 9, 512), pattern(round, 512));
        complete += 1;
    }
}

/// With a limit of this rate, requests are in flight for as long as a test needs.
fn limited(iops: u32) -> String {
    DISK.replace("raw'", &format!("raw'\nlimit = {{ iops = '{iops} IO/s', burst = '1ms' }}"))
}

#[test]
fn a_limit_throttles_a_machine_and_the_status_shows_it() {
    let service = Service::start("serve", &limited(100));
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    let began = Instant::now();
    for slot in 0..SLOTS {
        machine.put(0, slot, READ, 0, &[], 512);
    }
    machine.kick(0);
    until("a backlog", || service.get("/v1/status").contains("\"waits_for\": \"limit\"").then_some(()));
    machine.await_completed(0, usize::from(SLOTS));
    // A busy machine is slower, and never faster than its limit.
    assert!(began.elapsed() >= Duration::from_millis(u64::from(SLOTS - 2) * 10), "{:?}", began.elapsed());
}

#[test]
fn a_kill_under_load_loses_and_doubles_nothing() {
    let mut service = Service::start("serve", &limited(60));
    let mut machine = Machine::new(2);
    machine.features |= EVENT_INDEX;
    machine.connect(&service.path("disk.sock"));
    let mut expected = vec![0; 8 << 20];
    for round in 0..3u64 {
        for slot in 0..SLOTS / 2 {
            for ring in 0..2 {
                let sector = (u64::from(slot) * 2 + ring as u64) * 8;
                let data = pattern(round * 1000 + sector, 4096);
                expected[sector as usize * 512..][..4096].copy_from_slice(&data);
                machine.put(ring, slot, WRITE, sector, &data, 0);
            }
        }
        (0..2).for_each(|ring| machine.kick(ring));
        let mut slots = [machine.await_completed(0, 1 + round as usize), machine.await_completed(1, 1)];
        machine.disconnect();
        service.kill_and_restart();
        machine.connect(&service.path("disk.sock"));
        for (ring, slots) in slots.iter_mut().enumerate() {
            slots.extend(machine.await_completed(ring, usize::from(SLOTS / 2) - slots.len()));
            slots.sort_unstable();
            assert_eq!(*slots, (0..SLOTS / 2).collect::<Vec<_>>(), "each is complete, and once");
            assert!((0..SLOTS / 2).all(|slot| machine.status(ring, slot) == DONE));
        }
    }
    assert_eq!(machine.request(FLUSH, 0, &[], 0).0, DONE);
    assert!(fs::read(service.path("disk.raw")).unwrap() == expected, "what was acknowledged is there");
}

#[test]
fn a_drain_leaves_what_is_not_done_to_the_next_gateway() {
    let mut service = Service::start("serve", &limited(100));
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    for slot in 0..SLOTS {
        machine.put(0, slot, WRITE, u64::from(slot), &pattern(u64::from(slot), 512), 0);
    }
    machine.kick(0);
    let mut slots = machine.await_completed(0, 4);
    assert!(service.drain().success());
    assert!(service.log().contains("session closed: drained"), "{}", service.log());
    service.restart();
    machine.connect(&service.path("disk.sock"));
    slots.extend(machine.completed(0));
    slots.extend(machine.await_completed(0, usize::from(SLOTS) - slots.len()));
    slots.sort_unstable();
    assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
    assert!((0..SLOTS).all(|slot| machine.status(0, slot) == DONE));
}

/// A machine that damages its rings in some way.
type Damage = fn(&mut Machine);

#[test]
fn a_hostile_machine_loses_its_disk_and_harms_no_other() {
    let config =
        format!("{DISK}[pool.p.export.other]\npath = 'other.raw'\nlisten = ['vhost-user:other.sock']\n");
    let service = Service::start_beside("serve", &[], &config, &[("other.raw", 8 << 20)]);
    let mut other = Machine::new(1);
    other.connect(&service.path("other.sock"));
    let damages: [(&str, Damage); 10] = [
        ("a chain of descriptors is broken", |machine| {
            machine.descriptor(0, 0, (0x10_0000, 16, 1, 9_999));
            machine.make_available(0, 0);
        }),
        ("more than 252 descriptors", |machine| {
            machine.descriptor(0, 0, (0x10_0000, 16, 1, 0));
            machine.make_available(0, 0);
        }),
        ("names descriptor 4096, which it does not have", |machine| machine.make_available(0, 4096)),
        ("a ring is malformed", |machine| machine.set_available(0, 20_000)),
        ("names memory that is not there", |machine| {
            machine.descriptor(0, 0, (u64::MAX - 8, 16, 1, 1));
            machine.make_available(0, 0);
        }),
        ("a request has no header", |machine| {
            machine.descriptor(0, 0, (0x10_0000, 3, 1, 1));
            machine.descriptor(0, 1, (0x10_0010, 1, 2, 0));
            machine.make_available(0, 0);
        }),
        ("a request has no place for its result", |machine| {
            machine.descriptor(0, 0, (0x10_0000, 16, 0, 0));
            machine.make_available(0, 0);
        }),
        ("readable descriptor after a writable one", |machine| {
            machine.descriptor(0, 0, (0x10_0000, 16, 1 | 2, 1));
            machine.descriptor(0, 1, (0x10_0010, 1, 0, 0));
            machine.make_available(0, 0);
        }),
        // A table within a table.
        ("a chain of descriptors is broken", |machine| {
            machine.descriptor(0, 0, (16, 16, 4, 0));
            machine.descriptor(0, 1, (16, 16, 4, 0));
            machine.make_available(0, 0);
        }),
        ("the front end took back memory that it had shared", |machine| {
            machine.put(0, 0, WRITE, 0, &[1; 4096], 0);
            machine.take_memory_back();
        }),
    ];
    for (said, damage) in damages {
        let before = service.log().matches(said).count();
        let mut machine = Machine::new(1);
        machine.connect(&service.path("disk.sock"));
        assert_eq!(machine.request(WRITE, 8, &pattern(1, 512), 0).0, DONE);
        damage(&mut machine);
        machine.kick(0);
        until(said, || (service.log().matches(said).count() > before).then_some(()));
        assert_eq!(other.request(READ, 8, &[], 512).0, DONE);
    }
    let log = service.log();
    assert!(log.contains("session closed: the disk ends: ") && !log.contains("panic"), "{log}");
    let info = Command::new("nbdinfo").arg(service.uri("disk")).stdout(Stdio::null()).status().unwrap();
    assert!(info.success());
    assert!(service.terminate().0.success());
}

#[test]
fn a_front_end_that_breaks_the_protocol_is_hung_up_on() {
    let service = Service::start("serve", DISK);
    let socket = service.path("disk.sock");
    let said = "session closed: the front end is no longer served: ";
    let breaks: [fn(&mut Machine); 4] = [
        |machine| assert!(machine.front_end().set_vring_num(0, 3).is_ok()),
        |machine| drop(machine.front_end().set_vring_num(0, 32_768)),
        |machine| drop(machine.front_end().set_features(1 << 60)),
        |machine| {
            let flags = VhostUserConfigFlags::empty();
            drop(machine.front_end().set_config(0, flags, &[1]));
        },
    ];
    for (number, break_it) in breaks.into_iter().enumerate() {
        let mut machine = Machine::new(1);
        machine.connect(&socket);
        break_it(&mut machine);
        if number == 0 {
            // Not a power of two: it is refused when the ring starts.
            machine.front_end().get_vring_base(0).unwrap();
            let kick = vmm_sys_util::eventfd::EventFd::new(0).unwrap();
            assert!(machine.front_end().set_vring_kick(0, &kick).is_err());
        }
        until(said, || (service.log().matches(said).count() > number).then_some(()));
    }
    let mut machine = Machine::new(1);
    machine.connect(&socket);
    assert_eq!(machine.request(READ, 0, &[], 512).0, DONE);
    // A second front end at the same socket is sent away, and the first goes on.
    let second = Frontend::connect(&socket, 1).unwrap();
    assert!(second.get_features().is_err());
    service.await_log("disk refused: another front end is connected to this socket");
    assert_eq!(machine.request(READ, 0, &[], 512).0, DONE);
}

#[test]
fn a_machine_without_a_write_cache_has_every_write_on_stable_storage() {
    let service = Service::start("serve", DISK);
    let mut machine = Machine::new(1);
    machine.features &= !WRITE_CACHE;
    machine.connect(&service.path("disk.sock"));
    assert_eq!(machine.request(WRITE, 0, &pattern(1, 4096), 0).0, DONE);
    assert_eq!(fs::read(service.path("disk.raw")).unwrap()[..4096], pattern(1, 4096));
}

#[test]
fn memory_comes_and_goes_while_the_disk_is_in_use() {
    let service = Service::start("serve", DISK);
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    let mut plugged = machine.region();
    plugged.guest_phys_addr = 1 << 40;
    plugged.userspace_addr = 1 << 40;
    assert!(machine.front_end().get_max_mem_slots().unwrap() >= 32);
    machine.front_end().add_mem_region(&plugged).unwrap();
    assert_eq!(machine.request(WRITE, 0, &pattern(5, 4096), 0).0, DONE);
    machine.front_end().remove_mem_region(&plugged).unwrap();
    assert_eq!(machine.request(READ, 0, &[], 4096), (DONE, pattern(5, 4096)));
    assert!(machine.front_end().remove_mem_region(&plugged).is_err());
}

#[test]
fn an_address_that_cannot_be_used_is_named_with_its_place() {
    let service = Service::start("serve", DISK);
    let folder = tempfile::tempdir().unwrap();
    fs::File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
    let refused = |socket: &str| {
        let config = folder.path().join("tidegate.toml");
        fs::write(&config, DISK.replace("vhost-user:disk.sock", socket)).unwrap();
        let output = tidegate(&["serve", "-c", config.to_str().unwrap()]);
        (output.status.code(), text(&output.stderr))
    };
    let busy = format!("vhost-user:{}", service.path("disk.sock").display());
    // What another program holds may be free later, so that the service is tried again.
    for (socket, ends, said) in [
        (busy.as_str(), 1, "listens there"),
        ("vhost-user:none/disk.sock", 2, "there is no folder"),
        ("vhost-user:disk.raw", 2, "exists and is not a socket"),
        ("unix:disk.sock", 2, "must begin with `vhost-user:`"),
    ] {
        let (status, message) = refused(socket);
        assert_eq!(status, Some(ends), "{message}");
        assert!(message.contains("tidegate.toml:8:11: ") && message.contains(said), "{message}");
    }
}

#[test]
fn a_disk_comes_and_goes_with_the_configuration() {
    let service = Service::start_beside("serve", &[], DISK, &[("other.raw", 1 << 20)]);
    let socket = service.path("other.sock");
    let with_another =
        format!("{DISK}[pool.p.export.other]\npath = 'other.raw'\nlisten = ['vhost-user:other.sock']\n");
    service.configure(&with_another);
    service.await_log("reloaded");
    let mut machine = Machine::new(1);
    machine.connect(&socket);
    service.configure(DISK);
    until("the socket's end", || (!socket.exists()).then_some(()));
    assert_eq!(machine.request(READ, 0, &[], 512).0, DONE, "the machine goes on until it ends");
    service.configure(&DISK.replace("disk.sock", "moved.sock"));
    service.await_log("needs a restart to change: export `disk`: where it is a disk");
}

/// QEMU gives an event that it drops before the one that the guest hears. Results between the two would wait
/// for ever, also where the guest has asked to be called for the next result only.
#[test]
fn a_machine_is_called_again_by_each_new_event() {
    let service = Service::start("serve", DISK);
    let mut machine = Machine::new(1);
    machine.features |= EVENT_INDEX;
    machine.connect(&service.path("disk.sock"));
    assert_eq!(machine.request(WRITE, 0, &pattern(1, 4096), 0).0, DONE);
    for _ in 0..3 {
        assert!(machine.is_called_anew(0));
    }
}

/// A machine hears of the size that its disk has now, and uses it.
#[test]
fn a_disk_that_grows_is_told_to_its_machine() {
    let service = Service::start("serve", DISK);
    let mut machine = Machine::new(1);
    machine.connect(&service.path("disk.sock"));
    let end = 8 << 11;
    assert_eq!(machine.request(WRITE, end, &pattern(1, 4096), 0).0, FAILED, "beyond the end");
    fs::File::options().write(true).open(service.path("disk.raw")).unwrap().set_len(12 << 20).unwrap();
    let mut hears = || {
        let mut message = [0; 12];
        machine.messages.read_exact(&mut message).unwrap();
        let words = message.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        // A change of the configuration space, in version 1, without a body.
        assert_eq!(words.collect::<Vec<u32>>(), [2, 1, 0]);
    };
    // Once at the start: the disk may have grown while nothing was connected.
    hears();
    service.signal("-HUP");
    hears();
    assert_eq!(machine.config(0, 8), (12u64 << 11).to_le_bytes());
    assert_eq!(machine.request(WRITE, end, &pattern(1, 4096), 0).0, DONE);
    assert_eq!(machine.request(READ, end, &[], 4096), (DONE, pattern(1, 4096)));
}
