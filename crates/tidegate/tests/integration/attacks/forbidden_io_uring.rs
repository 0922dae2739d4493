//! A machine that forbids io_uring: the refusal says what to allow.

use std::process::{Command, Output};

use tidegate_testing::has_programs;

/// Runs a program under a seccomp filter that refuses io_uring_setup (system call 425 on every architecture)
/// with EPERM, as container runtimes do.
const FILTER: &str = r#"
import ctypes, os, struct, sys
program = struct.pack("HBBI", 0x20, 0, 0, 0) + struct.pack("HBBI", 0x15, 0, 1, 425)
program += struct.pack("HBBI", 0x06, 0, 0, 0x00050001) + struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000)
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(4, program))) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

const CONFIGURATION: &str = r#"
listen = ["unix:nbd.sock"]
[pool.p]
backend = { kind = "file" }
export.disk = { path = "disk.raw" }
"#;

#[test]
fn a_refused_io_uring_is_explained() {
    if !has_programs(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.toml");
    std::fs::write(&config, CONFIGURATION).unwrap();
    std::fs::File::create(folder.path().join("disk.raw")).unwrap().set_len(1 << 20).unwrap();
    for command in ["serve", "check"] {
        let Output { status, stderr, .. } = Command::new("python3")
            .args(["-c", FILTER, env!("CARGO_BIN_EXE_tidegate"), command, "-c"])
            .arg(&config)
            .output()
            .unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("io_uring is not available"), "{command}: {said}");
        assert!(said.contains("io_uring_setup") || said.contains("io_uring_disabled"), "{command}: {said}");
    }
}
