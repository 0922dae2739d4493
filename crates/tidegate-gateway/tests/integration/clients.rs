//! Real clients on both backends.

use std::process::Command;

use tidegate_gateway::{BackendConfig, DataStore};

use crate::common::{MIB, Served, emulated_pool, file_pool, pool_name, qemu_io, run, run_any};

fn both() -> Vec<Served> {
    vec![
        Served::start(|directory| vec![file_pool(directory, &["vol"], 64 * MIB)]),
        Served::start(|_| vec![emulated_pool(&["vol"], 64 * MIB, 20_000.0)]),
    ]
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    for served in both() {
        let uri = served.uri("vol");
        let said = qemu_io(
            &uri,
            &[
                "write -P 0xa5 0 64k",
                "write -f -P 0x5a 1M 4k",
                "write -z 2M 1M",
                "discard 16k 16k",
                "flush",
                "read -P 0xa5 0 16k",
                "read -P 0 16k 16k",
                "read -P 0xa5 32k 32k",
                "read -P 0x5a 1M 4k",
                "read -P 0 2M 1M",
                "read -P 0 3M 32M",
            ],
        );
        assert!(!said.contains("verification failed") && !said.contains("error"), "{said}");
    }
}

/// Eight jobs, each with its own part of the volume and its own connection, check every block they have
/// written.
#[test]
fn fio_verifies_random_mixed_io_of_eight_jobs() {
    for served in both() {
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
    }
}

#[test]
fn qemu_img_copies_an_image_and_finds_it_equal() {
    for served in both() {
        let image = served.path("image.raw");
        let image = image.to_str().unwrap();
        random_image(image, 64 * MIB);
        let uri = served.uri("vol");
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-m", "8", image, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]);
        // The comparison must be able to fail.
        qemu_io(&uri, &["write -P 1 33M 512"]);
        assert_eq!(
            run_any("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]).status.code(),
            Some(1)
        );
    }
}

#[test]
fn nbdcopy_there_and_back_gives_the_same_bytes() {
    for served in both() {
        let (image, back) = (served.path("image.raw"), served.path("back.raw"));
        let (image, back) = (image.to_str().unwrap(), back.to_str().unwrap());
        random_image(image, 64 * MIB);
        let uri = served.uri("vol");
        // Several connections: the export says that it can.
        run("nbdcopy", &["--connections=4", "--requests=16", "--flush", image, &uri]);
        run("nbdcopy", &["--connections=4", &uri, back]);
        assert!(std::fs::read(image).unwrap() == std::fs::read(back).unwrap());
    }
}

#[test]
fn nbdinfo_hears_what_an_export_can_do() {
    for mut served in both() {
        let pool = &mut served.config.pools[0];
        pool.exports[0].description = Some("the only one".into());
        served.gateway.apply(served.config.clone()).unwrap();
        let uri = served.uri("vol");
        let json = run("nbdinfo", &["--json", &uri]);
        let has = |key: &str, value: &str| {
            let line = format!("\"{key}\": {value}");
            assert!(json.contains(&line), "{line} is not in {json}");
        };
        has("protocol", "\"newstyle-fixed\"");
        has("structured", "true");
        has("description", "\"the only one\"");
        has("export-size", &(64 * MIB).to_string());
        for ability in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero", "can_df"] {
            has(ability, "true");
        }
        has("is_read_only", "false");
        has("block_size_minimum", "1");
        has("block_size_preferred", "4096");
        has("block_size_maximum", &(32 * MIB).to_string());
    }
}

#[test]
fn nbdinfo_lists_exports_of_all_pools_and_one_unnamed_is_the_default() {
    let served = Served::start(|directory| {
        vec![file_pool(directory, &["a", "b"], MIB), emulated_pool(&["c"], MIB, 1000.0)]
    });
    let list = run("nbdinfo", &["--list", "--json", &served.uri("")]);
    for export in ["\"a\"", "\"b\"", "\"c\""] {
        assert!(list.contains(&format!("\"export-name\": {export}")), "{list}");
    }
    assert!(
        !run_any("nbdinfo", &["--size", &served.uri("")]).status.success(),
        "three exports have no default"
    );

    let single = Served::start(|directory| vec![file_pool(directory, &["only"], MIB)]);
    assert_eq!(run("nbdinfo", &["--size", &single.uri("")]).trim(), MIB.to_string());
}

#[test]
fn read_only_and_direct_exports_say_so_and_keep_to_it() {
    let served = Served::start(|directory| {
        let mut read_only = file_pool(directory, &["ro"], MIB);
        read_only.exports[0].read_only = true;
        let mut direct = file_pool(directory, &["direct"], MIB);
        direct.name = pool_name("direct");
        direct.backend = BackendConfig::File { direct: true };
        vec![read_only, direct]
    });
    let json = run("nbdinfo", &["--json", &served.uri("ro")]);
    assert!(json.contains("\"is_read_only\": true") && json.contains("\"can_trim\": false"), "{json}");
    let refused = run_any("qemu-io", &["-f", "raw", "-c", "write 0 512", &served.uri("ro")]);
    assert!(!refused.status.success());

    let json = run("nbdinfo", &["--json", &served.uri("direct")]);
    let minimum = json.lines().find_map(|line| line.trim().strip_prefix("\"block_size_minimum\": ")).unwrap();
    assert!(["512,", "4096,"].contains(&minimum), "{json}");
    qemu_io(&served.uri("direct"), &["write -P 7 0 512", "read -P 7 0 512", "read -P 0 512 64k"]);
}

/// Two clients of libnbd that change every byte between them, in pieces that share blocks.
const PIECES: &str = r"
import os, random
clients = [h, nbd.NBD()]
for client in clients:
    client.set_strict_mode(0)
    client.connect_uri(os.environ['EXPORT'])
size = h.get_size()
expected = bytearray(random.randbytes(size))
cuts = sorted(random.sample(range(1, size), 700))
pieces = list(zip([0] + cuts, cuts + [size]))
random.shuffle(pieces)
sent = []
for number, (start, end) in enumerate(pieces):
    client, flags = clients[number % 2], nbd.CMD_FLAG_FUA if number % 3 else 0
    if number % 10 == 0:
        expected[start:end] = bytes(end - start)
        cookie = client.aio_zero(end - start, start, flags=flags)
    else:
        cookie = client.aio_pwrite(nbd.Buffer.from_bytearray(expected[start:end]), start, flags=flags)
    sent.append((client, cookie))
for client in clients:
    while client.aio_in_flight():
        client.poll(-1)
assert all(client.aio_command_completed(cookie) for client, cookie in sent)
for start, end in pieces:
    assert h.pread(end - start, start) == expected[start:end], (start, end)
whole = nbd.NBD()
whole.connect_uri(os.environ['EXPORT'])
assert whole.pread(size, 0) == expected
print('nothing is lost')
";

#[test]
fn parts_of_blocks_are_served_past_the_page_cache() {
    let served = Served::start(|directory| {
        let mut pool = file_pool(directory, &["vol"], MIB);
        pool.backend = BackendConfig::File { direct: true };
        vec![pool]
    });
    // Debian's Python, which has libnbd, and not another one that comes first.
    let mut shell = Command::new("nbdsh");
    shell.env("PATH", "/usr/bin:/bin").env("EXPORT", served.uri("vol")).args(["-c", PIECES]);
    let output = shell.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing is lost"), "{output:?}");
}

/// Real clients over a modelled device whose bytes are in a file: they are there after a restart.
#[test]
fn what_an_emulated_device_keeps_in_a_file_survives_a_restart() {
    let served = Served::start(|directory| {
        let mut pool = emulated_pool(&["a", "b"], 16 * MIB, 20_000.0);
        let BackendConfig::Emulated { data, .. } = &mut pool.backend else { unreachable!() };
        *data = DataStore::File(directory.join("device"));
        vec![pool]
    });
    qemu_io(&served.uri("a"), &["write -P 1 0 16M", "discard 4M 1M", "write -z 8M 64k"]);
    qemu_io(&served.uri("b"), &["write -P 2 1M 4k"]);
    let Served { gateway, config, directory } = served;
    drop(gateway);
    let served = Served::with(directory, config);
    let reads = ["read -P 1 0 4M", "read -P 0 4M 1M", "read -P 0 8M 64k", "read -P 1 9M 7M"];
    assert!(!qemu_io(&served.uri("a"), &reads).contains("verification failed"));
    let reads = ["read -P 0 0 1M", "read -P 2 1M 4k", "read -P 0 2M 14M"];
    assert!(!qemu_io(&served.uri("b"), &reads).contains("verification failed"));
    // Sparse: what was never written, or zeroed, occupies nothing.
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(served.path("device")).unwrap());
    assert!(blocks * 512 <= 16 * MIB, "{blocks} blocks");
}

fn random_image(path: &str, size: u64) {
    // Data, zeros and a hole, so that every way of copying is taken.
    let mut state = 88_172_645_463_325_252u64;
    let mut bytes = vec![0u8; size as usize];
    for word in bytes[..size as usize / 2].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes());
    }
    bytes[5 << 20..9 << 20].fill(0);
    std::fs::write(path, &bytes).unwrap();
}
