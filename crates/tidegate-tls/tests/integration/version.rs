//! A certificate without extensions, as a manual of 1998 has people make it.

use std::process::Command;

use tidegate_tls::{TlsIdentity, check_pair};

#[test]
fn a_certificate_of_version_1_was_said_to_be_another_keys() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    for arguments in [
        format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout {at}/key -out {at}/csr"
        ),
        format!("x509 -req -days 2 -in {at}/csr -signkey {at}/key -out {at}/certificate"),
    ] {
        let output = Command::new("openssl").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let [certificate, private_key] = ["certificate", "key"].map(|name| folder.path().join(name));
    let said = check_pair(&TlsIdentity { certificate, private_key }).unwrap_err().to_string();
    assert!(said.contains("is of X.509 version 1"), "{said}");
}
