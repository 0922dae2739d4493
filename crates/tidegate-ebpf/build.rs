//! Compiles the programs for the kernel's virtual machine. All it takes is clang: they include no file of any
//! system.

#![allow(clippy::disallowed_methods, reason = "a build script's settings are in the environment")]

use std::env;
use std::path::Path;
use std::process::{Command, exit};

const PROGRAMS: &[&str] = &["edt", "latency"];

/// Of instructions: atomics that give back what was there (Linux 5.12).
const PROCESSOR: &str = "v3";

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = env::var("OUT_DIR").expect("cargo says where results go");
    for program in PROGRAMS {
        compile(&clang, program, Path::new(&out));
    }
}

fn compile(clang: &str, program: &str, out: &Path) {
    let source = Path::new("bpf").join(program).with_extension("c");
    let ended = Command::new(clang)
        // -g: loaders read the maps' types from the debugging information.
        .args(["--target=bpf", &format!("-mcpu={PROCESSOR}"), "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        // Paths of this machine are nobody's business, and would make every build another one.
        .args(["-fdebug-compilation-dir=.", "-ffreestanding", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(out.join(program).with_extension("o"))
        .status();
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{clang} could not compile {}: {status}", source.display())),
        Err(error) => fail(&format!(
            "{clang}: {error}. Tidegate's programs for the kernel are compiled by clang (12 or newer, with \
                its BPF \
             target): install it (Debian and Ubuntu: apt-get install clang; Fedora and RHEL: dnf install \
             clang), or \
             say where it is: CLANG=/path/of/clang"
        )),
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    exit(1)
}
