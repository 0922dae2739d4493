//! An upstream that is not there when the gateway starts: its pool is degraded, and only that pool, until the
//! upstream comes.

use std::process::Command;

use crate::service::Service;
use tidegate_testing::{has_programs, until};

/// The size that a client is told, or why it is refused.
fn size(service: &Service, export: &str) -> Result<String, String> {
    let output = Command::new("nbdinfo").arg("--size").arg(service.uri(export)).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn an_unreachable_upstream_keeps_only_its_own_export_from_being_served() {
    if !has_programs(&["nbdinfo"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("upstream.sock").display().to_string();
    let configuration = format!(
        "listen = ['unix:nbd.sock']\nmetrics = '127.0.0.1:0'\n\
         [pool.here]\nbackend = {{ kind = 'file' }}\n[pool.here.export.a]\npath = 'disk.raw'\n\
         [pool.there]\nbackend = {{ kind = 'nbd', address = 'unix:{socket}' \
         }}\n[pool.there.export.b]\nupstream = 'v'\n"
    );
    let service = Service::start("serve", &configuration);
    assert_eq!(size(&service, "a").as_deref(), Ok("8388608"));
    let refused = size(&service, "b");
    assert!(refused.is_err(), "{refused:?}");
    service.await_log("its upstream has not been reached yet");
    let up = "tidegate_upstream_connections{pool=\"there\",consumer=\"b\",state=\"up\"}";
    assert_eq!(service.metric(up), Some(0.0));
    // A reload neither waits for it nor gives it up.
    service.configure(&format!("{configuration}shares = 50\n"));
    service.await_log("reloaded");
    assert_eq!(service.log().matches("the export is not served yet").count(), 1, "{}", service.log());

    let below = format!(
        "listen = ['unix:{socket}']\n[pool.p]\nbackend = {{ kind = 'file' }}\n[pool.p.export.v]\npath = \
            'disk.raw'\n"
    );
    let _upstream = Service::start("serve", &below);
    until("the export", || size(&service, "b").ok());
    assert!(service.metric(up) > Some(0.0));
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
}
