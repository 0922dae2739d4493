//! Another user locks the files by which services keep others out of a folder, and so would keep the services from
//! their start.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::geteuid;
use tidegate_testing::{Lack, skip, until};

use super::strangers::as_nobody;
use crate::service::Service;

const GATEWAY: &str = "
listen = ['unix:nbd.sock']
journal = { folder = 'j' }
[pool.p]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
export.volume = { size = '64MiB' }
";

/// A process of the user nobody that has locked a file.
struct Locker(Child);

impl Locker {
    fn of(lock: &std::path::Path) -> Self {
        let script = "exec 9<\"$0\" && flock 9 && echo locked && read end";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(lock)
            .uid(65_534)
            .gid(65_534)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut said).unwrap();
        Self(process)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_folder_that_another_user_wants_to_lock_is_the_services_all_the_same() {
    if !geteuid().is_root() {
        skip(Lack::Root, "another user");
        return;
    }
    if Command::new("flock").arg("--version").output().is_err() {
        skip(Lack::Program("flock"), "util-linux");
        return;
    }
    let mut service = Service::start("serve", GATEWAY);
    let locks: Vec<_> = ["j", "j/rollups"].map(|folder| service.path(folder).join("lock")).into();
    let locks: Vec<_> = locks.into_iter().filter(|lock| lock.exists()).collect();
    assert!(!locks.is_empty());
    fs::set_permissions(service.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for lock in &locks {
        assert_eq!(fs::metadata(lock).unwrap().permissions().mode() & 0o777, 0o600, "{}", lock.display());
        let theirs = lock.clone();
        assert!(as_nobody(move || File::open(theirs).is_err()), "{}", lock.display());
    }
    // As an older release left them, and locked since then.
    assert!(service.drain().success());
    let lockers: Vec<_> = locks
        .iter()
        .map(|lock| {
            fs::set_permissions(lock, fs::Permissions::from_mode(0o644)).unwrap();
            Locker::of(lock)
        })
        .collect();
    service.restart();
    until("the journal", || fs::read_dir(service.path("j")).unwrap().nth(1).map(drop));
    for lock in &locks {
        assert_eq!(fs::metadata(lock).unwrap().permissions().mode() & 0o777, 0o600, "{}", lock.display());
    }
    drop(lockers);
}
