//! Exports of other servers: real servers above, real clients below, and what holds when one of them dies.

pub(crate) mod hostile_server;
pub(crate) mod servers;

use std::path::Path;
use std::time::Duration;

use crate::common::{MIB, Served, emulated_pool, file, file_pool, name, qemu_io, run, run_any};
use servers::{Server, upstream_pool};
use tidegate_gateway::{ExportConfig, ExportStore, Gateway, GatewayConfig, ListenEndpoint};
use tidegate_nbd::transmission::NbdCommand;
use tidegate_nbd::{Errno, ExportName};
use tidegate_testing::nbd::Raw;

/// A gateway over each kind of server, which has 64 MiB.
fn over_all(directory: &Path) -> Vec<(Server, &'static str)> {
    let image = |label: &str| {
        std::fs::create_dir(directory.join(label)).unwrap();
        file(&directory.join(label), "image", 64 * MIB)
    };
    vec![
        (Server::nbdkit(&directory.join("nbdkit.sock"), &["file", image("a").to_str().unwrap()]), ""),
        (Server::qemu_nbd(&directory.join("qemu.sock"), &image("b"), "disk"), "disk"),
    ]
}

fn over(server: &Server, export: &str) -> Served {
    Served::start(|_| vec![upstream_pool(&server.socket, &[("vol", export)])])
}

fn all(test: impl Fn(&Served)) {
    let directory = tempfile::tempdir().unwrap();
    for (server, export) in over_all(directory.path()) {
        test(&over(&server, export));
    }
    let own = Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]);
    test(&Served::start(|_| vec![upstream_pool(&own.socket(), &[("vol", "vol")])]));
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    all(|served| {
        let said = qemu_io(
            &served.uri("vol"),
            &[
                "write -P 0xa5 0 64k",
                "write -f -P 0x5a 1M 4k",
                "write -z 2M 1M",
                "discard 16k 16k",
                "flush",
                "read -P 0xa5 0 16k",
                "read -P 0xa5 32k 32k",
                "read -P 0x5a 1M 4k",
                "read -P 0 2M 1M",
                "read -P 0 3M 32M",
            ],
        );
        assert!(!said.contains("verification failed") && !said.contains("error"), "{said}");
    });
}

#[test]
fn fio_verifies_random_mixed_io_of_eight_jobs() {
    all(|served| {
        let uri = format!("--uri={}", served.uri("vol"));
        let said = run(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randrw",
                "--bsrange=4k-64k",
                "--blockalign=4k",
                "--iodepth=8",
                "--numjobs=8",
                "--size=4m",
                "--offset_increment=8m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--verify_state_save=0",
                "--fsync=16",
                "--group_reporting",
                "--randseed=1",
            ],
        );
        assert!(said.contains("err= 0"), "{said}");
        let upstream = served.pool().consumers[0].upstream.unwrap();
        assert_eq!(upstream.connections, upstream.wanted, "fio took long enough for all to be there");
        assert_eq!((upstream.failed, upstream.replayed, upstream.unflushed_losses), (0, 0, 0));
    });
}

#[test]
fn nbdcopy_and_qemu_img_move_whole_images_through_the_chain() {
    all(|served| {
        let (image, back) = (served.path("image.raw"), served.path("back.raw"));
        let (image, back) = (image.to_str().unwrap(), back.to_str().unwrap());
        servers::random_image(Path::new(image), 64 * MIB);
        let uri = served.uri("vol");
        run("nbdcopy", &["--connections=4", "--requests=16", "--flush", image, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
        run("nbdcopy", &["--connections=4", &uri, back]);
        assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
        qemu_io(&uri, &["write -P 1 33M 512"]);
        let compared = run_any("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
        assert_eq!(compared.status.code(), Some(1), "the comparison can fail");
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", image, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
    });
}

#[test]
fn what_the_upstream_can_do_is_what_clients_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let says = |arguments: &[&str]| {
        let server = Server::nbdkit(&directory.path().join("u.sock"), arguments);
        run("nbdinfo", &["--json", &over(&server, "").uri("vol")])
    };
    let has = |json: &str, what: &str| assert!(json.contains(what), "{what} is not in {json}");
    let json = says(&["-r", "memory", "1M"]);
    has(&json, "\"is_read_only\": true");
    has(&json, "\"can_trim\": false");
    has(&json, "\"export-size\": 1048576");
    let json = says(&[
        "--filter=fua",
        "--filter=blocksize-policy",
        "memory",
        "1M",
        "fuamode=emulate",
        "blocksize-minimum=512",
        "blocksize-preferred=8K",
        "blocksize-maximum=64K",
    ]);
    for ability in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
        has(&json, &format!("\"{ability}\": true"));
    }
    has(&json, "\"block_size_minimum\": 512");
    has(&json, "\"block_size_preferred\": 8192");
    // Longer requests are split.
    has(&json, "\"block_size_maximum\": 33554432");
    let zeros = "pread=dd if=/dev/zero count=$3 iflag=count_bytes";
    let json = says(&["eval", "get_size=echo 1048576", zeros]);
    has(&json, "\"can_flush\": false");
    has(&json, "\"can_fua\": false");
}

/// Block sizes are policed by the server: requests that break them fail.
#[test]
fn requests_are_split_at_the_upstreams_greatest_payload() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(
        &directory.path().join("u.sock"),
        &[
            "--filter=blocksize-policy",
            "memory",
            "64M",
            "blocksize-minimum=4K",
            "blocksize-preferred=64K",
            "blocksize-maximum=1M",
            "blocksize-error-policy=error",
        ],
    );
    let served = over(&server, "");
    let mut client = Raw::open(&served.socket(), "vol");
    let data: Vec<u8> = (0..5 * MIB + 4096).map(|i| (i / 4096) as u8).collect();
    client.send_write(1, 8192, &data);
    assert_eq!(client.answer(), (1, 0));
    client.send(NbdCommand::Read, 2, 8192, data.len() as u32);
    assert!(client.data(data.len()) == (2, data));
    client.send(NbdCommand::Read, 3, 0, 512);
    assert_eq!(client.answer(), (3, Errno::Inval.code()), "smaller than the least block");
}

/// The upstream is asked by several connections only if it says that they are coherent.
#[test]
fn an_upstream_without_multi_conn_gets_one_connection() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(
        &directory.path().join("u.sock"),
        &["--filter=multi-conn", "memory", "16M", "multi-conn-mode=disable"],
    );
    let served = over(&server, "");
    assert_eq!(served.pool().consumers[0].upstream.unwrap().wanted, 1);
    qemu_io(&served.uri("vol"), &["write -P 3 0 1M", "flush", "read -P 3 0 1M"]);
    assert_eq!(served.pool().consumers[0].upstream.unwrap().connections, 1);
}

#[test]
fn what_is_wrong_with_an_upstream_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let start = |socket: &Path, export: &str| {
        let pool = upstream_pool(socket, &[("vol", export)]);
        let endpoint = ListenEndpoint::Unix(directory.path().join("nbd.sock"));
        let gateway = Gateway::start(GatewayConfig::new(vec![endpoint], vec![pool])).unwrap();
        let pool = gateway.snapshot().unwrap().pools.remove(0);
        assert!(pool.consumers.is_empty(), "the export is not served");
        pool.awaited[0].reason.clone()
    };
    let said = start(&directory.path().join("nobody.sock"), "vol");
    assert!(said.contains("cannot connect") && said.contains("is the server running"), "{said}");
    let own = Served::start(|directory| vec![file_pool(directory, &["a", "b"], MIB)]);
    let said = start(&own.socket(), "c");
    assert!(said.contains("has no such export"), "{said}");
    // Somebody who takes the connection and says nothing.
    let silent = directory.path().join("silent.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let said = start(&silent, "");
    assert!(said.contains("no answer within 5 s"), "{said}");
}

#[test]
fn exports_come_and_go_with_their_connections() {
    let own = Served::start(|directory| vec![file_pool(directory, &["a", "b"], MIB)]);
    let mut served = Served::start(|_| vec![upstream_pool(&own.socket(), &[("one", "a")])]);
    own.wait_until(|pool| pool.consumers[0].sessions == 4);
    let store = ExportStore::Upstream(ExportName::new("b").unwrap());
    served.config.pools[0].exports = vec![ExportConfig::new(name("two"), store)];
    served.gateway.apply(served.config.clone()).unwrap();
    own.wait_until(|pool| pool.consumers[0].sessions == 0 && pool.consumers[1].sessions == 4);
    qemu_io(&served.uri("two"), &["write -P 3 0 64k", "read -P 3 0 64k"]);
    served.gateway.drain(Duration::from_secs(5)).unwrap();
    own.wait_until(|pool| pool.sessions == 0);
}

/// Gateway over gateway over gateway: nobody waits for anybody in a circle.
#[test]
fn three_gateways_in_a_row_carry_more_than_any_of_them_holds() {
    let bottom = Served::start(|_| vec![emulated_pool(&["vol"], 64 * MIB, 20_000.0)]);
    let tight = |below: &Served| {
        Served::start(|_| {
            let mut pool = upstream_pool(&below.socket(), &[("vol", "vol")]);
            pool.limits.session_requests = 3;
            vec![pool]
        })
    };
    let middle = tight(&bottom);
    let top = tight(&middle);
    let uri = format!("--uri={}", top.uri("vol"));
    let said = run(
        "fio",
        &[
            "--name=chain",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bs=64k",
            "--iodepth=64",
            "--numjobs=4",
            "--size=16m",
            "--io_size=8m",
            "--offset_increment=16m",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--group_reporting",
        ],
    );
    assert!(said.contains("err= 0"), "{said}");
}

/// One share each, whatever the upstream: the stage is the same.
#[test]
fn a_pool_may_have_a_depth_of_its_own() {
    let own = Served::start(|_| vec![emulated_pool(&["a"], 64 * MIB, 200.0)]);
    let served = Served::start(|_| {
        let mut pool = upstream_pool(&own.socket(), &[("vol", "a")]);
        pool.depth = 2;
        vec![pool]
    });
    let mut client = Raw::open(&served.socket(), "vol");
    for cookie in 0..50 {
        client.send(NbdCommand::Read, cookie, 0, 4096);
    }
    let busy = served.wait_until(|pool| pool.consumers[0].queued > 10);
    assert!(busy.in_flight <= 2);
    assert!(own.pool().in_flight <= 2);
    for _ in 0..50 {
        client.data(4096);
    }
}
