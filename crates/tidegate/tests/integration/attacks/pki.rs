//! Certificates for tests, made by openssl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// An authority, and folders with what it has signed, by the names that libnbd, nbdkit and QEMU use.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Self(folder);
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
             -addext basicConstraints=critical,CA:true -keyout {0}/ca-key.pem -out {0}/ca-cert.pem",
            authority.0.path().display()
        ));
        authority
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.0.path().join("ca-cert.pem")
    }

    /// A folder with a certificate and its key as `SIDE-cert.pem` and `SIDE-key.pem`, and the authority's.
    pub(crate) fn sign(&self, side: &str, common_name: &str, alternative_names: &str) -> PathBuf {
        let home = self.0.path();
        let folder = home.join(format!("{side}-{common_name}"));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(self.ca(), folder.join("ca-cert.pem")).unwrap();
        let at = folder.join(side);
        let at = at.display();
        let mut extensions = format!("basicConstraints=CA:false\nextendedKeyUsage={side}Auth\n");
        if !alternative_names.is_empty() {
            extensions.push_str(&format!("subjectAltName={alternative_names}\n"));
        }
        fs::write(folder.join("extensions"), extensions).unwrap();
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={common_name} \
             -keyout {at}-key.pem -out {at}.csr"
        ));
        openssl(&format!(
            "x509 -req -days 2 -in {at}.csr -CA {0}/ca-cert.pem -CAkey {0}/ca-key.pem -CAcreateserial \
             -extfile {1}/extensions -out {at}-cert.pem",
            home.display(),
            folder.display()
        ));
        folder
    }

    /// The `tls` table of a gateway that shows this certificate and wants one of its clients.
    pub(crate) fn table(&self, server: &Path) -> String {
        let at = server.display();
        format!(
            "tls = {{ certificate_file = \"{at}/server-cert.pem\", private_key_file = \
                \"{at}/server-key.pem\", \
             client_ca_file = \"{}\" }}",
            self.ca().display()
        )
    }
}

fn openssl(arguments: &str) {
    let output = Command::new("openssl").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a program, at most a minute.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout").arg("60").arg(program).args(arguments).output().unwrap()
}

/// Runs a program that must succeed; its output.
pub(crate) fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a program that must fail; its complaint.
pub(crate) fn fail(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(!output.status.success(), "{program} {arguments:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}
