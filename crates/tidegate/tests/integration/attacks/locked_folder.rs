//! Another user locks the files by which services keep others out of a folder, and so would keep the services from
//! their start.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
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

/// A process of the user nobody that has a file open, and locks it when it is told.
struct Locker(Child);

impl Locker {
    fn of(lock: &Path) -> Self {
        let script = "exec 9<\"$0\" && echo opened && read go && flock 9 && echo locked && read end";
        let process = Command::new("sh")
            .args(["-c", script])
            .arg(lock)
            .uid(65_534)
            .gid(65_534)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut locker = Self(process);
        locker.hear("opened");
        locker
    }

    fn lock(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap(), "go").unwrap();
        self.hear("locked");
    }

    fn hear(&mut self, word: &str) {
        let mut said = vec![0; word.len() + 1];
        self.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(said.trim_ascii_end(), word.as_bytes());
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
    let end = |service: &mut Service| assert!(service.drain().success());
    let is_closed = |lock: &PathBuf| fs::metadata(lock).unwrap().permissions().mode() & 0o777 == 0o600;
    // As an older release left them: opened by others, and locked before the next start or after it.
    for locks_before in [true, false] {
        end(&mut service);
        let open = |lock: &PathBuf| {
            fs::set_permissions(lock, fs::Permissions::from_mode(0o644)).unwrap();
            Locker::of(lock)
        };
        let mut lockers: Vec<_> = locks.iter().map(open).collect();
        if locks_before {
            lockers.iter_mut().for_each(Locker::lock);
        }
        service.restart();
        until("the journal", || fs::read_dir(service.path("j")).unwrap().nth(1).map(drop));
        assert!(locks.iter().all(is_closed));
        if !locks_before {
            end(&mut service);
            lockers.iter_mut().for_each(Locker::lock);
            service.restart();
        }
    }
}
