//! A second user of a volume that an export writes to: another gateway, another export, QEMU, a mount, a loop
//! device.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::attacks::storage::run;
use crate::service::Service;
use tidegate_testing::{Lack, LoopDevice, has_programs, skip, until};

const MIB: u64 = 1 << 20;

fn serving(exports: &str) -> String {
    format!("listen = ['unix:nbd.sock']\n[pool.p]\nbackend = {{ kind = 'file' }}\n{exports}")
}

fn export(name: &str, path: &Path, keys: &str) -> String {
    format!("[pool.p.export.{name}]\npath = '{}'\n{keys}\n", path.display())
}

/// Runs a command on a configuration in a folder of its own.
fn tidegate(command: &str, configuration: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.toml");
    fs::write(&config, configuration).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args([command, "-c"]).arg(&config).output().unwrap()
}

/// `serve` ends at once, and says all of this.
fn refused(configuration: &str, says: &[&str]) {
    let output = tidegate("serve", configuration);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for part in says {
        assert!(said.contains(part), "{part}: {said}");
    }
}

fn starts(configuration: &str) -> Service {
    Service::start("serve", configuration)
}

/// A volume of 4 MiB in a folder that goes with it.
fn volume() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    fs::File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    (folder, path)
}

#[test]
fn a_second_gateway_is_refused_until_the_first_has_ended() {
    let (folder, path) = volume();
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    let first = starts(&serving(&export("x", &path, "")));
    let named = format!("tidegate (process {})", first.pid());
    refused(&serving(&export("y", &path, "")), &["export `y`", "locked by another program", &named]);
    refused(&serving(&export("y", &link, "")), &["locked by another program"]);
    refused(&serving(&export("y", &path, "read_only = true")), &["locked by another program"]);
    // Who says that it knows better is believed.
    let shared = starts(&serving(&export("y", &path, "shared_volume = true")));
    assert!(shared.terminate().0.success());
    assert!(first.terminate().0.success());
    assert!(starts(&serving(&export("y", &path, ""))).terminate().0.success());
}

#[test]
fn a_gateway_that_was_killed_leaves_its_volumes_free() {
    let (_folder, path) = volume();
    let first = starts(&serving(&export("x", &path, "")));
    // By SIGKILL. On a busy machine it takes the kernel some time to end a process.
    drop(first);
    assert!(starts(&serving(&export("x", &path, ""))).terminate().0.success());
}

#[test]
fn readers_share_a_volume() {
    let (_folder, path) = volume();
    let read_only = |name| export(name, &path, "read_only = true");
    let first = starts(&serving(&(read_only("a") + &read_only("b"))));
    let second = starts(&serving(&read_only("c")));
    refused(&serving(&export("y", &path, "")), &["locked by another program"]);
    assert!(second.terminate().0.success());
    assert!(first.terminate().0.success());
}

#[test]
fn two_exports_of_one_volume_are_refused_unless_both_share_it() {
    let (folder, path) = volume();
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    let both = |one, other| serving(&(export("a", &path, one) + &export("b", &link, other)));
    refused(&both("", ""), &["another export's volume", "shared_volume"]);
    refused(&both("read_only = true", ""), &["another export's volume"]);
    refused(&both("shared_volume = true", ""), &["another export's volume"]);
    let shared = both("shared_volume = true", "shared_volume = true");
    assert!(starts(&shared).terminate().0.success());

    // A reload is refused, and nothing of it is applied.
    let service = starts(&serving(&export("a", &path, "")));
    service.configure(&both("", ""));
    service.await_log("another export's volume");
    service.configure(&serving(&export("c", &link, "")));
    service.await_log("export `a` of this gateway uses it");
    assert!(service.terminate().0.success());
}

#[test]
fn two_exports_of_one_upstream_export_are_refused() {
    let pool = |name: &str, keys: &str| {
        format!(
            "[pool.{name}]\nbackend = {{ kind = 'nbd', address = 'unix:upstream.sock' }}\n\
             [pool.{name}.export.{name}]\nupstream = 'disk'\n{keys}\n"
        )
    };
    let both = |keys| format!("listen = ['unix:nbd.sock']\n{}{}", pool("a", keys), pool("b", keys));
    let said = |keys| String::from_utf8_lossy(&tidegate("check", &both(keys)).stderr).into_owned();
    assert!(said("").contains("upstream export `disk` is another export's volume, too"));
    assert!(!said("shared_volume = true").contains("another export"));
}

/// The findings of two pools with one upstream export each, called `disk` there.
fn said_of_upstreams(listen: &str, first: &str, second: &str, keys: &str) -> String {
    let pool = |name: &str, address: &str| {
        format!(
            "[pool.{name}]\nbackend = {{ kind = 'nbd', address = '{address}' }}\n\
             [pool.{name}.export.{name}]\nupstream = 'disk'\n{keys}\n"
        )
    };
    let configuration = format!("listen = ['{listen}']\n{}{}", pool("a", first), pool("b", second));
    String::from_utf8_lossy(&tidegate("check", &configuration).stderr).into_owned()
}

#[test]
fn one_upstream_export_by_two_addresses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, link) = (folder.path().join("socket"), folder.path().join("link"));
    let _server = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    let unix = |path: &Path| format!("unix:{}", path.display());
    let said = |first: &str, second: &str, keys: &str| {
        said_of_upstreams("unix:nbd.sock", first, second, keys).contains("is another export's volume, too")
    };
    let v4 = "tcp:127.0.0.1:2";
    for other in
        ["tcp:[::ffff:127.0.0.1]:2", "tcp:[0:0:0:0:0:ffff:7f00:1]:2", "tcp:[::1]:2", "tcp:127.0.0.2:2"]
    {
        assert!(said(v4, other, "") && said(other, v4, ""), "{other}");
        assert!(!said(v4, other, "shared_volume = true"), "{other}");
    }
    assert!(said("tcp:192.0.2.1:2", "tcp:[::ffff:192.0.2.1]:2", ""));
    assert!(said(&unix(&socket), &unix(&link), ""));
    for other in ["tcp:127.0.0.1:3", "tcp:192.0.2.1:2", "unix:elsewhere"] {
        assert!(!said(v4, other, ""), "{other}");
    }
}

#[test]
fn an_upstream_that_is_this_gateway_itself_is_refused() {
    let configuration = |listen: &str, keys: &str| {
        let own = serving(&format!("[pool.p.export.disk]\npath = 'disk.raw'\n{keys}\n"));
        own.replace("unix:nbd.sock", listen)
            + "[pool.q]\nbackend = { kind = 'nbd', address = 'tcp:[::ffff:127.0.0.1]:10809' }\n\
               [pool.q.export.again]\nupstream = 'disk'\n"
            + keys
    };
    let said = |configuration: &str| {
        String::from_utf8_lossy(&tidegate("check", configuration).stderr)
            .contains("is an export of this gateway")
    };
    for listen in ["tcp:127.0.0.1:10809", "tcp:0.0.0.0:10809", "tcp:[::]:10809"] {
        assert!(said(&configuration(listen, "")), "{listen}");
    }
    assert!(!said(&configuration("tcp:127.0.0.1:10809", "read_only = true")));
    assert!(!said(&configuration("tcp:127.0.0.1:10810", "")));
}

#[test]
fn loop_devices_with_bytes_in_common_are_refused() {
    let (folder, path) = volume();
    let link = folder.path().join("link");
    fs::hard_link(&path, &link).unwrap();
    let of = |device: &LoopDevice| serving(&export("x", device.path(), ""));
    let common =
        |device: &LoopDevice| format!("its data, or a part of it, is that of {}", device.path().display());
    let Some(first) = LoopDevice::with_options(&path, &["--sizelimit", "1048576"]) else { return };
    {
        let Some(second) = LoopDevice::with_options(&link, &["--offset", "524288"]) else { return };
        refused(&of(&first), &["in use", &common(&second)]);
        refused(&of(&second), &["in use", &common(&first)]);
        refused(&serving(&export("x", &link, "")), &["it is the data of"]);
    }
    {
        let Some(behind) = LoopDevice::with_options(&link, &["--offset", "1048576"]) else { return };
        let both = serving(&(export("a", first.path(), "") + &export("b", behind.path(), "")));
        assert!(starts(&both).terminate().0.success(), "they have nothing in common");
    }
    let Some(above) = LoopDevice::over(first.path()) else { return };
    refused(&of(&first), &["in use", &common(&above)]);
    assert!(starts(&of(&above)).terminate().0.success());
}

/// Ends a program when a test does.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Already ended, in a test that failed for this.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn qemu_and_the_gateway_exclude_each_other() {
    if !has_programs(&["qemu-nbd", "qemu-io"]) {
        return;
    }
    let (folder, path) = volume();
    let shown = path.to_str().unwrap();
    let write = ["-f", "raw", "-c", "write 0 4k", shown];
    let read = ["-f", "raw", "-r", "-c", "read 0 4k", shown];
    let service = starts(&serving(&export("x", &path, "")));
    assert!(run("qemu-io", &write).is_none(), "QEMU wrote to a volume that is served");
    assert!(service.terminate().0.success());

    let service = starts(&serving(&export("x", &path, "read_only = true")));
    assert!(run("qemu-io", &write).is_none(), "QEMU wrote to a volume whose readers expect that it stays");
    assert!(run("qemu-io", &read).is_some(), "readers share a volume");
    assert!(service.terminate().0.success());
    assert!(run("qemu-io", &write).is_some());

    let socket = folder.path().join("qemu.sock");
    let server = Command::new("qemu-nbd")
        .args(["--persistent", "--format=raw", "--socket"])
        .args([socket.as_os_str(), path.as_os_str()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Program(server);
    until("qemu-nbd's socket", || socket.exists().then_some(()));
    refused(&serving(&export("x", &path, "")), &["locked by another program", "qemu-nbd (process"]);
    refused(&serving(&export("x", &path, "read_only = true")), &["locked by another program"]);
    drop(server);
    assert!(starts(&serving(&export("x", &path, ""))).terminate().0.success());
}

#[test]
fn a_device_that_the_system_uses_is_refused() {
    let (_folder, path) = volume();
    let Some(device) = LoopDevice::over(&path) else { return };
    let on_device = serving(&export("x", device.path(), ""));
    let of_loop = format!("it is the data of {}", device.path().display());
    refused(&serving(&export("x", &path, "")), &["in use", &of_loop]);

    let first = starts(&on_device);
    refused(&on_device, &["in use by another program", &format!("tidegate (process {})", first.pid())]);
    let make_file_system = ["-q", "-F", device.path().to_str().unwrap()];
    assert!(run("mkfs.ext4", &make_file_system).is_none(), "mkfs wrote to a volume that is served");
    assert!(first.terminate().0.success());
}

#[test]
fn a_device_that_is_mounted_is_refused() {
    let (folder, path) = volume();
    let Some(device) = LoopDevice::over(&path) else { return };
    let on_device = serving(&export("x", device.path(), ""));
    let shown = device.path().to_str().unwrap();
    let mount_point = folder.path().join("mounted here");
    fs::create_dir(&mount_point).unwrap();
    let mounted = run("mkfs.ext4", &["-q", "-F", shown])
        .and_then(|_| run("mount", &[shown, mount_point.to_str().unwrap()]));
    if mounted.is_none() {
        return skip(Lack::Mount, "ext4");
    }
    refused(&on_device, &["in use", "mounted at", "mounted here"]);
    refused(&serving(&export("x", device.path(), "read_only = true")), &["mounted at"]);
    let check = tidegate("check", &on_device);
    assert!(String::from_utf8_lossy(&check.stderr).contains("mounted at"));
    run("umount", &[mount_point.to_str().unwrap()]).unwrap();
    assert!(starts(&on_device).terminate().0.success());
}

#[test]
fn an_image_that_is_served_as_it_is_warns() {
    let (_folder, path) = volume();
    fs::write(&path, [b"QFI\xfb\0\0\0\x03".as_slice(), &[0; 4088]].concat()).unwrap();
    let configuration = serving(&export("x", &path, ""));
    let check = tidegate("check", &configuration);
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && said.contains("begins like a qcow2 image"), "{said}");
    let (status, log) = starts(&configuration).terminate();
    assert!(status.success() && log.contains("begins like a qcow2 image"), "{log}");
}
