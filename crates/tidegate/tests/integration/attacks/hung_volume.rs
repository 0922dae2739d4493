//! Two volumes on file systems that hang, with 64 requests each: the other exports of their pool go on, and
//! so does the service.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::service::Service;
use tidegate_testing::{Lack, has_programs, lacks, until};

/// A file system whose server can be stopped: a file that nbdfuse gets from nbdkit.
pub(super) struct HangingFileSystem {
    folder: tempfile::TempDir,
    server: Child,
}

impl HangingFileSystem {
    /// Says that the test is skipped, and returns `None`, without the tools or the right to mount.
    pub(super) fn mount() -> Option<Self> {
        if !has_programs(&["nbdfuse", "nbdkit"]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let server = Command::new("nbdfuse")
            .arg(folder.path())
            .args(["--command", "nbdkit", "-s", "memory", "8M"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut mounted = Self { folder, server };
        until("a mount, or a refusal", || {
            let refused = mounted.server.try_wait().unwrap().is_some();
            (refused || mounted.volume().exists()).then_some(())
        });
        if mounted.volume().exists() { Some(mounted) } else { lacks(Lack::Mount, "nbdfuse ended") }
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.folder.path().join("nbd")
    }

    /// Not by a program: a new process closes files that this one has open, which waits for a server that is stopped.
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }
}

impl Drop for HangingFileSystem {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.server), Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A load that is ended with the test.
struct Load(Child);

impl Load {
    fn start(service: &Service, export: &str, options: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["load", &service.uri(export), "--json"])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    /// The longest response in milliseconds, after a load without errors.
    fn longest(mut self) -> f64 {
        let status = until("the end of a load", || self.0.try_wait().unwrap());
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.success(), "{text}");
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["unanswered"], 0, "{text}");
        let longest = |operation: &str| report[operation]["latency_ms"]["max"].as_f64().unwrap();
        longest("reads").max(longest("writes"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn configuration([first, second]: &[PathBuf; 2], more: &str) -> String {
    format!(
        r#"
listen = ["unix:nbd.sock"]
metrics = "127.0.0.1:0"
drain_deadline = "1s"

[pool.p]
backend = {{ kind = "file" }}
export.first = {{ path = {first:?} }}
export.second = {{ path = {second:?} }}
export.good = {{ path = "disk.raw" }}
{more}
"#
    )
}

#[test]
fn volumes_that_hang_do_not_hold_up_the_others() {
    let Some((first, second)) = HangingFileSystem::mount().zip(HangingFileSystem::mount()) else { return };
    let volumes = [first.volume(), second.volume()];
    let service = Service::start("serve", &configuration(&volumes, ""));
    for mounted in [&first, &second] {
        mounted.signal(Signal::STOP);
    }
    let outstanding = |export: &str| {
        let labels = format!("{{pool=\"p\",consumer=\"{export}\"}}");
        ["queued", "in_flight"]
            .map(|name| service.metric(&format!("tidegate_{name}_requests{labels}")).unwrap())
            .iter()
            .sum::<f64>()
    };
    // One after the other: each takes the whole of the pool's window.
    let hanging = ["first", "second"].map(|export| {
        let options = ["--depth", "64", "--reads", "50", "--fua", "--duration", "10min"];
        let load = Load::start(&service, export, &options);
        until("64 hung requests", || (outstanding(export) >= 64.0).then_some(()));
        load
    });

    // Its share of the pool's window is theirs no longer, though nobody is protected here.
    let good = ["--depth", "4", "--reads", "50", "--fua", "--duration", "1s"];
    let longest = Load::start(&service, "good", &good).longest();
    assert!(longest < 3_000.0, "{longest} ms beside hung volumes");

    // Opening another one there hangs, too. It must hold neither answers nor the end.
    let third = format!("export.third = {{ path = {:?} }}", first.volume().with_file_name("other"));
    service.configure(&configuration(&volumes, &third));
    // Time for the reload to begin, and to hang: nothing tells of that.
    thread::sleep(Duration::from_millis(200));
    let asked = Instant::now();
    assert_eq!(service.get("/healthz"), "ok\n");
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    for export in ["first", "second"] {
        let hung = format!("tidegate_hung{{pool=\"p\",consumer=\"{export}\"}}");
        until("the metric of a hang", || (service.metric(&hung) == Some(1.0)).then_some(()));
    }
    assert_eq!(service.metric("tidegate_pool_up{pool=\"p\"}"), Some(1.0));
    until("both hangs in the log", || (service.log().matches("the volume hangs").count() >= 2).then_some(()));
    assert_eq!(service.log().matches("the volume hangs").count(), 2, "{}", service.log());

    let asked = Instant::now();
    let (_, log) = service.terminate();
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}\n{log}", asked.elapsed());
    assert!(log.contains("are left at storage that hangs"), "{log}");
    drop(hanging);
}

#[test]
fn a_volume_that_answers_again_has_lost_nothing() {
    let Some(mounted) = HangingFileSystem::mount() else { return };
    let volume = mounted.volume();
    let text = configuration(&[volume, PathBuf::from("second.raw")], "");
    let service = Service::start_beside("serve", &[], &text, &[("second.raw", 8 << 20)]);
    mounted.signal(Signal::STOP);
    let load = Load::start(&service, "first", &["--depth", "48", "--reads", "50", "--duration", "1s"]);
    service.await_log("the volume hangs");
    mounted.signal(Signal::CONT);
    service.await_log("the volume answers again");
    // Every request is answered, those that had waited in the gateway included.
    assert!(load.longest() > 4_000.0);
    let (status, log) = service.terminate();
    assert!(status.success(), "{log}");
}
