//! Addresses that are tried out: whether a service could listen there now. Nothing listens there meanwhile, no
//! file is made, and a service that starts at the same moment is not disturbed.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, absolute};

use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::folder_of;
use crate::holders::listening_unix;

/// Checks that a TCP address can be listened on.
///
/// # Errors
/// The system's answer.
pub fn tcp(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As for a listener of the standard library: only another listener is in the way, and so this socket,
    // which does not listen, is in the way of none.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &address)?)
}

/// Checks that a Unix socket can be listened on at a path. A socket without a listener makes way.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another process listens there, or the system's answer.
pub fn unix(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file, and it is not a socket",
            ));
        }
        Ok(_) if is_listened_on(path) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
        }
        _ => {}
    }
    // A folder that is missing is made.
    let folder = match folder_of(path) {
        missing if !missing.exists() => folder_of(missing),
        folder => folder,
    };
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("no socket can be made in {}: {error}", folder.display()))
    })
}

/// Returns true if a process listens on a socket. A connection would start the service of a socket that systemd
/// listens on, and so the kernel's table is asked first. It does not tell the folder of a path that is
/// relative, nor the sockets of other network namespaces.
fn is_listened_on(path: &Path) -> bool {
    absolute(path).is_ok_and(|path| !listening_unix(&path).is_empty()) || UnixStream::connect(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_address_is_free_unless_another_process_listens_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(tcp(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let any = SocketAddr::new("0.0.0.0".parse().unwrap(), address.port());
        assert_eq!(tcp(any).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        tcp(address).unwrap();
        assert_eq!(
            tcp("203.0.113.1:1".parse().unwrap()).unwrap_err().kind(),
            io::ErrorKind::AddrNotAvailable
        );

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        unix(&path).unwrap();
        assert!(!path.exists());
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        unix(&path).unwrap();
        assert!(path.exists(), "nothing is removed");
        unix(&folder.path().join("new/s")).unwrap();
        let far = folder.path().join("gone/new/s");
        assert_eq!(unix(&far).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(crate::make_folder(&far).unwrap_err().to_string().contains("gone/new is missing"));
        crate::make_folder(&folder.path().join("new/s")).unwrap();
        crate::make_folder(&folder.path().join("new/s")).unwrap();
        assert!(folder.path().join("new").is_dir());
    }
}
