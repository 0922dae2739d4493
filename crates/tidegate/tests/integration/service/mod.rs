//! A service of the real binary, told things by real signals and asked over HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tidegate_testing::until;

pub(crate) mod disk_reader;

/// Names the folder of the operators' sockets: what tests start is no service of this machine.
const RUN_DIRECTORY: &str = "TIDEGATE_RUN_DIR";

/// Runs the program to its end.
pub(crate) fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

/// The same, where the services of this machine are those with operators' sockets in a folder.
pub(crate) fn tidegate_beside(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).env(RUN_DIRECTORY, folder).output().unwrap()
}

/// Returns what a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A running service in a folder of its own.
pub(crate) struct Service {
    folder: tempfile::TempDir,
    process: Child,
}

impl Service {
    /// Starts `tidegate COMMAND` and waits until its log says that it is ready.
    pub(crate) fn start(command: &str, configuration: &str) -> Self {
        Self::start_with(command, &[], configuration)
    }

    /// The same with more options.
    pub(crate) fn start_with(command: &str, options: &[&str], configuration: &str) -> Self {
        Self::start_beside(command, options, configuration, &[])
    }

    /// The same with more files of zeros.
    pub(crate) fn start_beside(
        command: &str,
        options: &[&str],
        configuration: &str,
        files: &[(&str, u64)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, size) in [("disk.raw", 8 << 20)].iter().chain(files) {
            fs::File::create(folder.path().join(name)).unwrap().set_len(*size).unwrap();
        }
        let config = folder.path().join("tidegate.toml");
        fs::write(&config, configuration).unwrap();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([command, "-c"])
            .arg(config)
            .args(options)
            .env(RUN_DIRECTORY, folder.path())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let service = Self { folder, process };
        service.await_log(" ready");
        service
    }

    /// Kills it, and starts it again in the same folder with the same configuration.
    pub(crate) fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.restart();
    }

    /// Starts it again in the same folder, after it has ended.
    pub(crate) fn restart(&mut self) {
        let before = self.log().matches(" ready").count();
        let log = fs::File::options().append(true).open(self.path("log")).unwrap();
        self.process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "-c"])
            .arg(self.path("tidegate.toml"))
            .env(RUN_DIRECTORY, self.folder.path())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        until("the next start", || (self.log().matches(" ready").count() > before).then_some(()));
    }

    /// Ends it in order; it can be started again.
    pub(crate) fn drain(&mut self) -> ExitStatus {
        self.signal("-TERM");
        until("the end of the service", || self.process.try_wait().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.path("nbd.sock").display())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn await_log(&self, text: &str) {
        until(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    pub(crate) fn configure(&self, configuration: &str) {
        fs::write(self.path("tidegate.toml"), configuration).unwrap();
        self.signal("-HUP");
    }

    /// GET over a plain socket; the body when the answer is 200.
    pub(crate) fn get(&self, page: &str) -> String {
        let (status, body) = self.ask(&format!("GET {page}"), "");
        assert_eq!(status, 200, "{body}");
        body
    }

    /// A request over a plain socket: its status and its body.
    pub(crate) fn ask(&self, request: &str, body: &str) -> (u16, String) {
        self.ask_with(request, "", body)
    }

    /// The same with more headers, each with its line end.
    pub(crate) fn ask_with(&self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.address();
        let mut stream = TcpStream::connect(&address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{head}")), body.to_owned())
    }

    /// Where it answers over HTTP.
    pub(crate) fn address(&self) -> String {
        let log = self.log();
        // The summary repeats the port 0 of the configuration; the real one is said once.
        let mut addresses =
            log.lines().filter_map(|line| line.split_once(" metrics on http://")?.1.strip_suffix("/metrics"));
        let address = addresses.rfind(|address| !address.ends_with(":0"));
        address.unwrap().to_owned()
    }

    /// The value of one series.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let page = self.get("/metrics");
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("-TERM");
        let status = until("the end of the service", || self.process.try_wait().unwrap());
        (status, self.log())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already ended, in a test that passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client of an export, `tidegate load`, until it is dropped.
pub(crate) struct LoadClient(Child);

impl LoadClient {
    pub(crate) fn start(service: &Service, export: &str, options: &[&str]) -> Self {
        let load = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["load", &service.uri(export), "--duration", "1h", "--json"])
            .args(options)
            .stdout(Stdio::null())
            .spawn();
        Self(load.unwrap())
    }
}

impl Drop for LoadClient {
    fn drop(&mut self) {
        // It may have ended by itself, which is what went wrong then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
