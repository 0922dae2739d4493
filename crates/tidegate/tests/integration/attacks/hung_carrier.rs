//! The shared file of a cluster on a file system that hangs: the service could not end.

use std::fs;

use rustix::process::Signal;

use super::hung_volume::HangingFileSystem;
use crate::service::Service;
use tidegate_testing::until;

#[test]
fn a_service_whose_shared_file_hangs_ends_and_says_so() {
    let Some(mounted) = HangingFileSystem::mount() else { return };
    let mut service = Service::start(
        "serve",
        &format!(
            "listen = ['unix:nbd.sock']
            metrics = '127.0.0.1:0'
            drain_deadline = '1s'
            [cluster]
            name = 'c'
            host = 'h'
            carrier = {{ kind = 'file', path = {:?} }}
            [pool.p]
            backend = {{ kind = 'file' }}
            cluster = true
            target = '15ms'
            [pool.p.export.x]
            path = 'disk.raw'
            ",
            mounted.volume()
        ),
    );
    // By the file's own process the carrier works.
    until("the carrier", || {
        (service.metric("tidegate_cluster_up{carrier=\"file\"}") == Some(1.0)).then_some(())
    });
    mounted.signal(Signal::STOP);
    until("the carrier hangs", || {
        (service.metric("tidegate_cluster_up{carrier=\"file\"}") == Some(0.0)).then_some(())
    });
    // It is gone altogether: a thread that hangs would keep its entry.
    let pid = service.pid();
    let status = service.drain();
    assert!(status.success(), "{status}");
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    assert!(service.log().contains("the carrier hangs, and is left behind"), "{}", service.log());
    // A service that is started again finds its places free.
    mounted.signal(Signal::CONT);
    service.restart();
    until("the carrier", || {
        (service.metric("tidegate_cluster_up{carrier=\"file\"}") == Some(1.0)).then_some(())
    });
}
