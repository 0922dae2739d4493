//! Descriptors that clients of Unix sockets pass beside their bytes, and whose closing takes as long as the
//! client likes: here TCP connections with `SO_LINGER` and unsent data. The thread that received or closed the
//! socket waited for them, and with it everything that it served.

use std::fs::{self, File, Permissions};
use std::io::{IoSlice, Read, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt::set_socket_linger,
    sockopt::set_socket_recv_buffer_size,
};
use rustix::process::{Signal, Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::{Raw, connect, request};
use tidegate_testing::vhost::{DONE, Machine, READ};
use tidegate_testing::{Lack, PATIENCE, lacks, until};

use super::hung_volume::HangingFileSystem;
use crate::service::Service;

/// Far longer than a test waits for anything.
const LINGER: Duration = Duration::from_secs(3600);

/// A TCP connection whose last close takes [`LINGER`], for as long as its other end is open and takes nothing.
struct LingeringConnection {
    passed: TcpStream,
    other_end: TcpStream,
}

impl LingeringConnection {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let mut passed = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other_end, _) = listener.accept().unwrap();
        passed.set_nonblocking(true).unwrap();
        while passed.write(&[0; 65_536]).is_ok() {}
        set_socket_linger(&passed, Some(LINGER)).unwrap();
        Self { passed, other_end }
    }

    /// Passes it beside bytes, so that the receiver has the only descriptor. Returns its other end.
    fn pass(self, socket: &UnixStream, bytes: &[u8], flags: SendFlags) -> TcpStream {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let passed = [self.passed.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        assert_eq!(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).unwrap(), bytes.len());
        self.other_end
    }
}

/// Does something while the service does not run, so that it receives what was passed after the last other
/// descriptor of that is closed.
fn while_stopped<T>(service: &Service, attack: impl FnOnce() -> T) -> T {
    service.signal("-STOP");
    // The signal reaches each thread when it next runs.
    let is_stopped = |thread: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    until("all threads to stop", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", service.pid())).unwrap();
        threads.flatten().all(|thread| is_stopped(&thread)).then_some(())
    });
    let outcome = attack();
    service.signal("-CONT");
    outcome
}

const GATEWAY: &str = "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\napi.listen = ['unix:api.sock']\n[pool.p]\n\
     backend = { kind = 'file' }\nexport.a = { path = 'disk.raw' }\nexport.b = { path = 'other.raw' }\n";

/// Everything that the threads of the service do for others: a request, a handshake, an answer over HTTP.
fn serves_others(service: &Service, protected: &mut Raw) {
    protected.send(NbdCommand::Read, 1, 0, 512);
    assert_eq!(protected.data(512).0, 1);
    assert_eq!(Raw::open(&service.path("nbd.sock"), "a").ask(NbdCommand::Flush, 0, 0), 0);
    let mut health = TcpStream::connect(service.address()).unwrap();
    health.set_read_timeout(Some(PATIENCE)).unwrap();
    health.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    health.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_descriptor_beside_the_bytes_of_a_client_stops_nobody_else() {
    let service = Service::start_beside("serve", &[], GATEWAY, &[("other.raw", 8 << 20)]);
    let (nbd, api) = (service.path("nbd.sock"), service.path("api.sock"));
    let mut protected = Raw::open(&nbd, "a");
    let session = Raw::open(&nbd, "b");
    let mut kept = Vec::new();
    for flags in [SendFlags::empty(), SendFlags::OOB] {
        let ask = request(NbdCommand::Read, 7, 0, 512);
        kept.push(while_stopped(&service, || LingeringConnection::new().pass(&session.0, &ask, flags)));
        serves_others(&service, &mut protected);
        let handshake = connect(&nbd);
        kept.push(while_stopped(&service, || LingeringConnection::new().pass(&handshake, &[0; 4], flags)));
        serves_others(&service, &mut protected);
        let http = connect(&api);
        let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        kept.push(while_stopped(&service, || LingeringConnection::new().pass(&http, ask, flags)));
        serves_others(&service, &mut protected);
    }
}

#[test]
fn a_descriptor_that_nobody_receives_stops_nobody_when_the_connection_ends() {
    let service = Service::start_beside("serve", &[], GATEWAY, &[("other.raw", 8 << 20)]);
    let mut protected = Raw::open(&service.path("nbd.sock"), "a");
    let mut kept = Vec::new();
    for (socket, bytes) in [("nbd.sock", &b"\0"[..]), ("api.sock", b"G")] {
        // It leaves before it has said enough to be listened to.
        let visitor = connect(&service.path(socket));
        kept.push(while_stopped(&service, || {
            LingeringConnection::new().pass(&visitor, bytes, SendFlags::empty());
            let other_end = LingeringConnection::new().pass(&visitor, bytes, SendFlags::empty());
            drop(visitor);
            other_end
        }));
        serves_others(&service, &mut protected);
    }
    // A session that says goodbye and then passes something.
    let session = Raw::open(&service.path("nbd.sock"), "b");
    kept.push(while_stopped(&service, || {
        (&session.0).write_all(&request(NbdCommand::Disconnect, 1, 0, 0)).unwrap();
        LingeringConnection::new().pass(&session.0, &[0; 28], SendFlags::empty())
    }));
    serves_others(&service, &mut protected);
}

#[test]
fn passed_descriptors_do_not_pile_up() {
    let service = Service::start_beside("serve", &[], GATEWAY, &[("other.raw", 8 << 20)]);
    let session = Raw::open(&service.path("nbd.sock"), "b");
    let open_files = || std::fs::read_dir(format!("/proc/{}/fd", service.pid())).unwrap().count();
    let before = open_files();
    let (read, write) = rustix::pipe::pipe().unwrap();
    for cookie in 0..100 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let passed = [write.as_fd(); 200];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        let ask = request(NbdCommand::Flush, cookie, 0, 0);
        sendmsg(&session.0, &[IoSlice::new(&ask)], &mut ancillary, SendFlags::empty()).unwrap();
    }
    drop(write);
    // The end of the pipe: every descriptor of its other side is closed.
    assert_eq!(rustix::io::read(&read, &mut [0; 1]).unwrap(), 0);
    until("as many open files as before", || (open_files() <= before).then_some(()));
}

const SHARED: &str = "listen = [{ address = 'unix:nbd.sock', mode = '0666' }]\nmetrics = '127.0.0.1:0'\n\
     api.listen = ['unix:api.sock']\n[pool.p]\nbackend = { kind = 'file' }\nexport.a = { path = 'disk.raw' }\n\
     export.b = { path = 'other.raw', listen = [{ address = 'vhost-user:b.sock', mode = '0666' }, 'vhost-user:c.sock'] }\n";

/// Another user than that of the test.
const STRANGER: u32 = 12_345;

/// Gives the calling thread another user.
fn become_stranger() {
    let user = Uid::from_raw(STRANGER);
    set_thread_res_uid(user, user, user).unwrap();
}

#[test]
fn a_user_whose_descriptors_never_close_keeps_out_no_other_user() {
    if !geteuid().is_root() {
        return lacks(Lack::Root, "another user connects").unwrap_or(());
    }
    let Some(mounted) = HangingFileSystem::mount() else { return };
    let service = Service::start_beside("serve", &[], SHARED, &[("other.raw", 8 << 20)]);
    let [nbd, disk] = ["nbd.sock", "b.sock"].map(|name| service.path(name));
    fs::set_permissions(nbd.parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    // More than threads close at once. Never closed here: while the server is stopped, that would wait as well.
    let open = |_| ManuallyDrop::new(File::open(mounted.volume()).unwrap());
    let files: Vec<ManuallyDrop<File>> = (0..253).map(open).collect();
    mounted.signal(Signal::STOP);
    let attack = thread::spawn(move || {
        become_stranger();
        let mut session = Raw::open(&nbd, "a");
        let passed: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&passed)));
        let ask = request(NbdCommand::Flush, 1, 0, 0);
        sendmsg(&session.0, &[IoSlice::new(&ask)], &mut ancillary, SendFlags::empty()).unwrap();
        assert!(session.is_closed(), "so many wait that its connection ends");
        // Front ends pass descriptors on purpose: this one may not come.
        let mut refused = connect(&disk);
        assert_eq!(refused.read(&mut [0; 1]).unwrap_or(0), 0);
    });
    attack.join().unwrap();
    service.await_log("a user gets no connection to Unix sockets now");
    let mut protected = Raw::open(&service.path("nbd.sock"), "a");
    for _ in 0..100 {
        serves_others(&service, &mut protected);
        connect(&service.path("api.sock"));
    }
    for socket in ["b.sock", "c.sock"] {
        let mut machine = Machine::new(1);
        machine.connect(&service.path(socket));
        assert_eq!(machine.request(READ, 0, &[], 4096).0, DONE);
    }
    mounted.signal(Signal::CONT);
    // Once all are closed, the user is as welcome as others.
    let disk = service.path("b.sock");
    let again = thread::spawn(move || {
        become_stranger();
        let mut machine = Machine::new(1);
        machine.connect(&disk);
        assert_eq!(machine.request(READ, 0, &[], 4096).0, DONE);
    });
    again.join().unwrap();
    assert!(service.terminate().0.success());
}
