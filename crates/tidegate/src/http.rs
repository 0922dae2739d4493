//! One request to a service over HTTP, within a bounded time.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The answer of a service.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    /// Its status, such as 200.
    pub(crate) status: u16,
    /// The line with the status.
    pub(crate) line: String,
    pub(crate) body: String,
}

/// GET, as of 1996: the answer ends with the connection. Of more than `largest` bytes the rest is not read.
/// `address`: a host and a port.
pub(crate) fn get(address: &str, page: &str, patience: Duration, largest: u64) -> io::Result<HttpAnswer> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let deadline = Instant::now() + patience;
    for resolved in address.to_socket_addrs()? {
        let mut stream = match TcpStream::connect_timeout(&resolved, left(deadline)?) {
            Ok(stream) => stream,
            Err(error) => {
                last = error;
                continue;
            }
        };
        stream.set_write_timeout(Some(left(deadline)?))?;
        write!(stream, "GET {page} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = String::new();
        Until { stream, deadline }.take(largest).read_to_string(&mut answer)?;
        let no_http = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(no_http)?;
        let line = head.lines().next().unwrap_or_default().to_owned();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(no_http)?;
        return Ok(HttpAnswer { status, line, body: body.to_owned() });
    }
    Err(last)
}

/// Returns the time that is left until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A connection that is read from until then: a timeout of the socket begins anew with every byte.
struct Until {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Until {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(bytes)
    }
}
