//! Front ends of vhost-user that share and pass what they should not: each harms its own disk, and neither
//! the process nor another export.

use std::fs::{self, File};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use rustix::process::Signal;
use tidegate_testing::until;
use tidegate_testing::vhost::{DONE, Machine, READ, SLOTS};
use vhost::vhost_user::VhostUserFrontend;

use super::hung_volume::HangingFileSystem;
use crate::service::Service;

const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_BACKEND_REQ_FD: u32 = 21;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A gateway with a disk `other` and one for each name.
fn service() -> Service {
    let mut config = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.p]
backend = { kind = 'file' }
export.other = { path = 'disk.raw', listen = ['vhost-user:other.sock'] }
"
    .to_owned();
    let files = NAMES.map(|name| format!("{name}.raw"));
    for (name, file) in NAMES.iter().zip(&files) {
        config += &format!("export.{name} = {{ path = '{file}', listen = ['vhost-user:{name}.sock'] }}\n");
    }
    let files = files.each_ref().map(|file| (file.as_str(), 1 << 20));
    Service::start_beside("serve", &[], &config, &files)
}

fn machine(service: &Service, export: &str) -> Machine {
    let mut machine = Machine::new(1);
    machine.connect(&service.path(&format!("{export}.sock")));
    machine
}

fn works(machine: &mut Machine) {
    assert_eq!(machine.request(READ, 0, &[], 4096).0, DONE);
}

/// A front end that sends what it likes.
struct HostileFrontEnd(UnixStream);

impl HostileFrontEnd {
    fn connect(service: &Service, export: &str) -> Self {
        Self(UnixStream::connect(service.path(&format!("{export}.sock"))).unwrap())
    }

    fn send(&self, request: u32, body: &[u8], passed: &[BorrowedFd<'_>]) {
        let header = [request, 1, u32::try_from(body.len()).unwrap()].map(u32::to_le_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(passed)));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        let sent = sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL);
        // It may have been hung up on.
        assert!(matches!(sent, Ok(_) | Err(Errno::PIPE | Errno::CONNRESET)), "{sent:?}");
    }
}

#[test]
fn sparse_memory_has_a_bound_that_leaves_every_other_machine_its_own() {
    let service = service();
    let file = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(1 << 60).unwrap();
    let share = |machine: &mut Machine, number: u64| {
        let mut region = machine.region();
        region.guest_phys_addr = (number + 1) << 40;
        region.userspace_addr = region.guest_phys_addr;
        region.memory_size = 1 << 40;
        region.mmap_handle = file.as_raw_fd();
        machine.front_end().add_mem_region(&region)
    };
    // Two take all that they may, so that not much is left for a third one.
    let mut greedy = ["a", "b"].map(|export| machine(&service, export));
    for machine in &mut greedy {
        assert!((0..16).all(|number| share(machine, number).is_ok()));
    }
    let mut third = machine(&service, "c");
    assert!((0..16).any(|number| share(&mut third, number).is_err()));
    service.await_log("the front ends of this process share too much memory together");
    for export in ["c", "d", "e", "other"] {
        works(&mut machine(&service, export));
    }
    let size = fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    let size = size.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    assert!(size.unwrap().parse::<u64>().unwrap() < 64 << 30, "more than 64 TiB: {size:?}");
    let [mut first, mut second] = greedy;
    works(&mut first);
    works(&mut second);
    // One more than it may have: it loses its disk, and what it had is free again.
    assert!(share(&mut first, 16).is_err() || share(&mut first, 17).is_err());
    service.await_log("a front end shares at most 17 TiB");
    drop((first, second));
    until("room for all", || {
        let mut machine = machine(&service, "f");
        (0..16).all(|number| share(&mut machine, number).is_ok()).then_some(())
    });
    assert!(service.terminate().0.success());
}

#[test]
fn memory_of_a_file_system_that_hangs_is_refused() {
    let Some(mounted) = HangingFileSystem::mount() else { return };
    let service = service();
    let mut other = machine(&service, "other");
    // Never closed here: while the server is stopped, that would hang as well.
    let memory = File::options().read(true).write(true).open(mounted.volume()).unwrap();
    let memory = ManuallyDrop::new(memory);
    mounted.signal(Signal::STOP);
    let front_end = HostileFrontEnd::connect(&service, "a");
    let table = [&1u64.to_le_bytes()[..], &[0u64, 1 << 20, 0, 0].map(u64::to_le_bytes).concat()].concat();
    front_end.send(SET_MEM_TABLE, &table, &[memory.as_fd()]);
    // It is refused, and closing the file waits: only the front end's thread does that, and gives way.
    works(&mut machine(&service, "a"));
    works(&mut other);
    assert_eq!(service.get("/healthz"), "ok\n");
    mounted.signal(Signal::CONT);
    assert!(service.terminate().0.success());
}

/// A socket with data that its peer does not take. Closing the last share of it takes ten minutes.
fn lingering(peer: &TcpListener) -> OwnedFd {
    let mut socket = TcpStream::connect(peer.local_addr().unwrap()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = socket.write_all(&[0; 1 << 16]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    socket.into()
}

#[test]
fn a_descriptor_that_takes_long_to_close_holds_up_its_own_front_end_only() {
    let service = service();
    let mut other = machine(&service, "other");
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let ring = 0u64.to_le_bytes();
    let passed: [(&str, u32, &[u8]); 5] = [
        ("a", SET_VRING_KICK, &ring),
        ("b", SET_VRING_CALL, &ring),
        ("c", SET_VRING_ERR, &ring),
        ("d", SET_BACKEND_REQ_FD, &[]),
        ("e", SET_OWNER, &[]),
    ];
    let pass = |front_end: &HostileFrontEnd, request, body| {
        let socket = lingering(&peer);
        front_end.send(request, body, &[socket.as_fd()]);
        // If the gateway was faster, this waits.
        thread::spawn(move || drop(socket));
    };
    for (export, request, body) in passed {
        pass(&HostileFrontEnd::connect(&service, export), request, body);
    }
    // These stay unread in their connections: the messages before them end this front end late, and the
    // other one is refused.
    let unread = HostileFrontEnd::connect(&service, "f");
    for _ in 0..2100 {
        unread.send(SET_FEATURES, &0u64.to_le_bytes(), &[]);
    }
    unread.send(SET_VRING_NUM, &[0xff; 8], &[]);
    pass(&unread, SET_OWNER, &[]);
    drop(unread);
    pass(&HostileFrontEnd::connect(&service, "other"), SET_OWNER, &[]);
    for _ in 0..20 {
        works(&mut other);
    }
    // Each of them gives way.
    for export in NAMES {
        works(&mut machine(&service, export));
    }
    works(&mut other);
    assert!(service.terminate().0.success());
}

#[test]
fn a_front_end_without_a_ring_gives_way_and_one_with_a_ring_does_not() {
    let service = service();
    let mut served = machine(&service, "other");
    let mut silent = HostileFrontEnd::connect(&service, "a");
    until("the silent one's session", || {
        service.log().contains("session opened pool=p export=a").then_some(())
    });
    works(&mut machine(&service, "a"));
    service.await_log("session closed: another front end came, and this one had started no ring");
    assert_eq!(silent.0.read(&mut [0; 1]).unwrap(), 0);
    // At least as much time has gone by for this one, in which it has started a ring.
    let mut second = HostileFrontEnd::connect(&service, "other");
    // Refused with or without a reset.
    assert_eq!(second.0.read(&mut [0; 1]).unwrap_or(0), 0);
    works(&mut served);
}

/// A signal into it would wait for ever, and with it the next front end.
#[test]
fn an_event_whose_counter_is_full_does_not_keep_a_disk_that_has_ended() {
    let service = service();
    let mut other = machine(&service, "other");
    for _ in 0..3 {
        let mut greedy = Machine::new(4);
        greedy.connect(&service.path("a.sock"));
        (0..4).for_each(|ring| greedy.fill_call(ring));
        greedy.put(0, 0, READ, 0, &[], 4096);
        greedy.kick(0);
        until("the read", || (greedy.completed(0).len() == 1).then_some(()));
        drop(greedy);
        works(&mut machine(&service, "a"));
    }
    works(&mut other);
    let (status, log) = service.terminate();
    assert!(status.success() && !log.contains("left at storage that hangs"), "{log}");
}

/// A page that is touched while the kernel frees the memory around it comes only after that.
#[test]
fn a_front_end_that_gives_back_memory_all_the_time_makes_its_own_disk_wait() {
    const SIZE: u64 = 256 << 20;
    const START: u64 = 1 << 40;
    let service = service();
    let mut other = machine(&service, "other");
    let mut hostile = machine(&service, "a");
    let file = File::from(memfd_create("ballast", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(SIZE).unwrap();
    let mut region = hostile.region();
    (region.guest_phys_addr, region.userspace_addr) = (START, START);
    (region.memory_size, region.mmap_handle) = (SIZE, file.as_raw_fd());
    hostile.front_end().add_mem_region(&region).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let giving_back = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
                fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, SIZE).unwrap();
            }
        }
    });
    let (mut pages, mut under_way, mut done) = ((0..SIZE).step_by(1 << 20).cycle(), 0, 0);
    until("a rest", || {
        while under_way < SLOTS {
            hostile.put(0, under_way, READ, 0, &[], 4096);
            // Its data goes there.
            let data = (START + pages.next().unwrap(), 4096, 3, 3 * under_way + 2);
            hostile.descriptor(0, 3 * under_way + 1, data);
            under_way += 1;
        }
        hostile.kick(0);
        done += hostile.completed(0).len();
        if done == usize::from(SLOTS) {
            (under_way, done) = (0, 0);
        }
        service.log().contains("its disk rests for a while").then_some(())
    });
    works(&mut other);
    is_over.store(true, Ordering::Relaxed);
    giving_back.join().unwrap();
    until("what waited", || {
        done += hostile.completed(0).len();
        (done == usize::from(under_way)).then_some(())
    });
    hostile.disconnect();
    works(&mut machine(&service, "a"));
    assert!(service.terminate().0.success());
}

#[test]
fn messages_beyond_those_of_a_start_wait() {
    let service = service();
    let front_end = HostileFrontEnd::connect(&service, "a");
    let began = Instant::now();
    for _ in 0..2048 + 500 {
        front_end.send(SET_FEATURES, &0u64.to_le_bytes(), &[]);
    }
    front_end.send(SET_VRING_NUM, &[0xff; 8], &[]);
    let mut socket = &front_end.0;
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0, "it is hung up on");
    // A busy machine is slower, and never faster.
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
}
