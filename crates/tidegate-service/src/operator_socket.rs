//! The operator's socket: the Unix socket at which every service answers, whatever its configuration says of
//! an API. There root and the service's own user may change everything, and the socket's group may read. It is
//! what `tidegate release`, the emergency brake, needs.
//!
//! Under systemd the socket is in the service's runtime directory (`RUNTIME_DIRECTORY`), `serve.sock` or
//! `agent.sock`. Elsewhere it is in a folder of the user that the service runs as, and is named after the
//! service's configuration, since a user may run several:
//!
//! | user | folder |
//! |---|---|
//! | root | `/run/tidegate-services` |
//! | others | `tidegate` in `XDG_RUNTIME_DIR`; without it `/tmp/tidegate-UID` |
//! | any, with `TIDEGATE_RUN_DIR` | that folder |

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use tidegate_sockets::trust::RUNTIME_DIRECTORIES;

use crate::status::ServiceKind;

/// The folder of services that root starts without systemd.
const OF_ROOT: &str = "/run/tidegate-services";

/// The most services of a user that are asked. Another user's folder may have any number of sockets.
const MOST_IN_FOLDER: usize = 64;

/// A service has bound its socket and does not listen on it yet for much less than this.
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// Returns the path for the socket of a service that starts with this configuration, and makes its folder.
///
/// # Errors
/// When the folder cannot be made, or belongs to another user.
pub fn prepare(service: ServiceKind, configuration: &Path) -> io::Result<PathBuf> {
    if let (None, Some(directory)) = (run_directory(), runtime_directory()) {
        return Ok(directory.join(format!("{}.sock", service.name())));
    }
    let user = geteuid();
    let mode = if user.is_root() { 0o755 } else { 0o700 };
    let Some(folder) = own_folders().into_iter().next() else { return Err(io::ErrorKind::NotFound.into()) };
    DirBuilder::new().recursive(true).mode(mode).create(&folder)?;
    if run_directory().is_none() && !user.is_root() && !is_private(&folder, user.as_raw()) {
        let said = format!("{} is not a folder of this user alone", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
    }
    sweep(&folder, STARTED_WITHIN);
    Ok(folder.join(name(service, configuration)))
}

/// Removes sockets whose services were killed. A younger one than this may be that of a service that starts.
fn sweep(folder: &Path, least_age: Duration) {
    let is_old = |socket: &Path| {
        let modified = fs::symlink_metadata(socket).and_then(|found| found.modified());
        modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= least_age))
    };
    for socket in sockets_in(folder) {
        if is_old(&socket) && is_dead(&socket) {
            // Removed by another service as well.
            let _ = fs::remove_file(&socket);
        }
    }
}

/// Returns the path of the socket of a service with this configuration, whether it runs or not.
#[must_use]
pub fn expected(service: ServiceKind, configuration: &Path) -> PathBuf {
    let name = name(service, configuration);
    let named = all().into_iter().find(|path| path.ends_with(&name));
    named.unwrap_or_else(|| {
        // Where this user's service would have it, but in no folder that another user could have made.
        let own = own_folders().into_iter().next();
        let is_believed = |folder: &PathBuf| {
            run_directory().is_some() || !folder.exists() || is_private(folder, geteuid().as_raw())
        };
        own.filter(is_believed).unwrap_or_else(|| PathBuf::from(OF_ROOT)).join(name)
    })
}

/// A service that answers at its operator's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningService {
    /// The number of its process, as far as this user may know it.
    pub process: Option<u32>,
}

/// Returns the running service of a configuration, if there is one. The socket of a service under systemd does
/// not tell the configuration: then the command line of its process does, as far as it can be read.
#[must_use]
pub fn running(service: ServiceKind, configuration: &Path) -> Option<RunningService> {
    let (named, of_systemd) = (name(service, configuration), format!("{}.sock", service.name()));
    all().into_iter().find_map(|socket| {
        let process = connect_to(&socket).ok().and_then(|connection| {
            let peer = socket_peercred(&connection).ok()?;
            u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
        });
        let reads_it = || process.is_none_or(|process| reads(process, configuration));
        let is_own = socket.ends_with(&named) || socket.ends_with(&of_systemd) && reads_it();
        is_own.then_some(RunningService { process })
    })
}

/// Returns true if a file is an argument of a process, or the arguments cannot be read.
fn reads(process: u32, file: &Path) -> bool {
    let Ok(arguments) = fs::read(format!("/proc/{process}/cmdline")) else { return true };
    let Ok(file) = fs::canonicalize(file) else { return true };
    let folder = fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
    arguments.split(|byte| *byte == 0).any(|argument| {
        let argument = argument.strip_prefix(b"--config=").unwrap_or(argument);
        fs::canonicalize(folder.join(OsStr::from_bytes(argument))).is_ok_and(|path| path == file)
    })
}

/// Returns the sockets of all services that the packages installed, that root started, or that this user did.
/// For root they are those of all users. None of them is dead; one that hangs is among them.
#[must_use]
pub fn all() -> Vec<PathBuf> {
    let folders = folders();
    let sockets = folders.iter().flat_map(|folder| sockets_in(folder).into_iter().take(MOST_IN_FOLDER));
    sockets.filter(|socket| !is_dead(socket)).collect()
}

/// The folders that services may have their sockets in. Any user may make one in /tmp: that of a user is
/// believed only if it is that user's alone.
fn folders() -> Vec<PathBuf> {
    if run_directory().is_some() {
        return own_folders();
    }
    let user = geteuid();
    let of_users = match user.is_root() {
        true => folders_of_all_users(),
        false => own_folders().into_iter().map(|folder| (folder, user.as_raw())).collect(),
    };
    let believed =
        of_users.into_iter().filter(|(folder, uid)| is_private(folder, *uid)).map(|(folder, _)| folder);
    let of_root = RUNTIME_DIRECTORIES.into_iter().chain([OF_ROOT]).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = of_root.chain(believed).collect();
    folders.sort();
    folders.dedup();
    folders
}

/// The folders of services that users other than root start, each with the number of the user.
fn folders_of_all_users() -> Vec<(PathBuf, u32)> {
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let uid = |entry: &fs::DirEntry, before: &str| {
        entry.file_name().to_str()?.strip_prefix(before)?.parse::<u32>().ok()
    };
    let with_directory =
        entries("/run/user").filter_map(|entry| Some((entry.path().join("tidegate"), uid(&entry, "")?)));
    let others = entries("/tmp").filter_map(|entry| Some((entry.path(), uid(&entry, "tidegate-")?)));
    with_directory.chain(others).collect()
}

/// The folders of the services that this user starts: first the one in which this process makes sockets, then
/// those of processes with another environment.
fn own_folders() -> Vec<PathBuf> {
    if let Some(folder) = run_directory() {
        return vec![folder];
    }
    let user = geteuid();
    if user.is_root() {
        return vec![PathBuf::from(OF_ROOT)];
    }
    let uid = user.as_raw();
    let directory = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let own = directory.map(|directory| directory.join("tidegate"));
    let others = [format!("/tmp/tidegate-{uid}"), format!("/run/user/{uid}/tidegate")].map(PathBuf::from);
    own.into_iter().chain(others).collect()
}

/// Returns true if the service of this socket is in this network namespace, as the throttles of packets are.
///
/// # Errors
/// When the kernel does not tell.
pub fn is_of_this_network(socket: &Path) -> io::Result<bool> {
    let sockets = fs::read("/proc/net/unix")?;
    let bound = [b" ", socket.as_os_str().as_bytes()].concat();
    Ok(sockets.split(|byte| *byte == b'\n').any(|line| line.ends_with(&bound)))
}

/// Returns true if no process listens at a socket. Does not wait for one that hangs.
fn is_dead(socket: &Path) -> bool {
    connect_to(socket).is_err_and(|error| error == Errno::CONNREFUSED)
}

/// Connects to a socket, without waiting for a process that hangs.
fn connect_to(socket: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connection = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}

/// Returns true if a folder is this user's, and no other user can put a socket into it.
fn is_private(folder: &Path, uid: u32) -> bool {
    let is_private = |found: fs::Metadata| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0;
    fs::symlink_metadata(folder).is_ok_and(is_private)
}

/// Returns the operators' sockets in a folder, by name.
fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let kinds = [ServiceKind::Serve, ServiceKind::Agent].map(ServiceKind::name);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_socket = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
    let is_operators = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind));
        rest.is_some_and(|rest| rest == ".sock" || rest.starts_with('-') && rest.ends_with(".sock"))
    };
    let found = entries.filter(is_socket).filter(is_operators).map(|entry| entry.path());
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

/// The runtime directory that systemd made for this service. Several are separated by colons.
fn runtime_directory() -> Option<PathBuf> {
    let directories = env::var_os("RUNTIME_DIRECTORY")?;
    env::split_paths(&directories).next().filter(|first| first.is_absolute())
}

fn run_directory() -> Option<PathBuf> {
    env::var_os("TIDEGATE_RUN_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// Returns the name of the socket: the path of the configuration may be too long for it, its hash (FNV-1a) is
/// not.
fn name(service: ServiceKind, configuration: &Path) -> String {
    let path = fs::canonicalize(configuration).or_else(|_| absolute(configuration));
    let path = path.unwrap_or_else(|_| configuration.to_owned());
    let hash = path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{hash:016x}.sock", service.name())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_name_is_that_of_the_configuration_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        fs::write(&path, "").unwrap();
        let name_of = |path: &Path| name(ServiceKind::Serve, path);
        assert_eq!(name_of(&path), name_of(&folder.path().join("./a.toml")));
        assert_ne!(name_of(&path), name_of(&folder.path().join("b.toml")));
        assert_ne!(name_of(&path), name(ServiceKind::Agent, &path));
        assert!(name_of(&folder.path().join("long".repeat(60))).len() < 40);
    }

    #[test]
    fn sockets_of_killed_services_do_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let [dead, living] = ["serve-1.sock", "serve-2.sock"].map(|name| folder.path().join(name));
        drop(UnixListener::bind(&dead).unwrap());
        let _service = UnixListener::bind(&living).unwrap();
        sweep(folder.path(), STARTED_WITHIN);
        assert!(dead.exists() && living.exists());
        sweep(folder.path(), Duration::ZERO);
        assert!(!dead.exists() && living.exists());
    }

    #[test]
    fn a_folder_that_another_user_could_have_made_is_not_trusted() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let own = folder.path().join("own");
        fs::create_dir(&own).unwrap();
        let uid = geteuid().as_raw();
        for (mode, expected) in [(0o700, true), (0o750, false), (0o777, false)] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_private(&own, uid), expected, "{mode:o}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(!is_private(&link, uid) && !is_private(&folder.path().join("gone"), uid));
        assert!(!is_private(&own, uid + 1));
    }

    #[test]
    fn other_sockets_and_files_of_the_folder_are_no_services() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["agent-1.sock", "agent.sock", "serve.sock", "nbd.sock", "server.sock", "serve-1.lock"];
        let _sockets = names.map(|name| UnixListener::bind(folder.path().join(name)).unwrap());
        fs::write(folder.path().join("serve-2.sock"), "").unwrap();
        let found: Vec<_> = sockets_in(folder.path());
        assert_eq!(found, ["agent-1.sock", "agent.sock", "serve.sock"].map(|name| folder.path().join(name)));
        assert_eq!(sockets_in(&folder.path().join("gone")), Vec::<PathBuf>::new());
    }
}
