//! Real clients on both backends.

mod common;

use common::{MIB, Served, emulated_pool, file_pool, qemu_io};

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
