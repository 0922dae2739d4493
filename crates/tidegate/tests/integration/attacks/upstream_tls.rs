//! An upstream by TLS: nbdkit with certificates, the right ones and the wrong ones.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::attacks::pki::{Authority, succeed};
use crate::service::Service;
use tidegate_testing::{has_programs, until};

/// Killed when dropped.
struct Process(Child);

impl Process {
    /// nbdkit, which wants certificates of its clients.
    fn nbdkit(socket: &Path, certificates: &Path) -> Self {
        let certificates = format!("--tls-certificates={}", certificates.display());
        let server = Command::new("nbdkit")
            .args(["-f", "--tls=require", "--tls-verify-peer", &certificates, "-U"])
            .arg(socket)
            .args(["memory", "8M"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("nbdkit's socket", || UnixStream::connect(socket).ok());
        Self(server)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

fn configuration(socket: &Path, ca: &Path, name: &str, client: &Path) -> String {
    format!(
        "listen = [\"unix:nbd.sock\"]\n[pool.p]\nbackend = {{ kind = \"nbd\", address = \"unix:{}\", tls = \
            {{ \
         ca_file = \"{}\", name = \"{name}\", certificate_file = \"{2}/client-cert.pem\", \
         private_key_file = \"{2}/client-key.pem\" }} }}\n[pool.p.export.data]\nupstream = \"\"\n",
        socket.display(),
        ca.display(),
        client.display()
    )
}

#[test]
fn an_upstream_is_reached_by_tls_and_an_impostor_is_not_believed() {
    if !has_programs(&["openssl", "nbdkit", "nbdcopy", "nbdinfo"]) {
        return;
    }
    let (ours, others) = (Authority::new(), Authority::new());
    let server = ours.sign("server", "upstream", "DNS:upstream.example");
    let client = ours.sign("client", "gateway", "DNS:gateway.example");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("upstream.sock");
    let _nbdkit = Process::nbdkit(&socket, &server);

    let service = Service::start("serve", &configuration(&socket, &ours.ca(), "upstream.example", &client));
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    succeed("nbdcopy", &["--flush", from.to_str().unwrap(), &service.uri("data")]);
    succeed("nbdcopy", &[&service.uri("data"), to.to_str().unwrap()]);
    assert!(std::fs::read(&to).unwrap() == bytes, "what came back is not what was sent");
    drop(service);

    for (ca, name, complaint) in [
        (ours.ca(), "other.example", "not valid for name"),
        (others.ca(), "upstream.example", "invalid peer certificate"),
    ] {
        let impostor = folder.path().join("tidegate.toml");
        std::fs::write(&impostor, configuration(&socket, &ca, name, &client)).unwrap();
        let log = folder.path().join("log");
        let service = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "-c"])
            .arg(impostor)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn();
        // Whether it starts without its upstream or not at all, it says why.
        let _service = Process(service.unwrap());
        until(complaint, || {
            let log = std::fs::read_to_string(&log).unwrap();
            (log.contains("certificate is not accepted") && log.contains(complaint)).then_some(())
        });
    }
}
