//! `tidegate top` in a terminal of its own, before a real gateway under load.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::service::{LoadClient, Service};
use tidegate_testing::until;

/// A disk that a database and a backup share, and that the backup saturates.
const POOL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
[pool.array]
backend = { kind = 'emulated', preset = 'dnes-309170w' }
law = 'window'
target = '20ms'
export.database = { size = '1GiB', protected = true }
export.backup = { size = '1GiB' }
";

/// The program in a pseudo-terminal, which `script` makes, and a terminal emulator that shows its screen.
/// After the program, the shell says how it ended and the settings of the terminal.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
    /// The beginning of what was printed.
    printed: Arc<Mutex<String>>,
}

/// More is not needed: it is about what the shell says before the program.
const LONGEST_PRINTED: usize = 4_096;

impl Terminal {
    fn start(arguments: &str, rows: u16, columns: u16) -> Self {
        Self::run(&format!("\"$PROGRAM\" top {arguments}"), rows, columns)
    }

    fn run(command: &str, rows: u16, columns: u16) -> Self {
        let command = format!(
            "stty rows {rows} cols {columns}; tty; sh -c 'echo pid $$.; exec {command}'; echo exit $?.; stty -a"
        );
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
            .env("PROGRAM", env!("CARGO_BIN_EXE_tidegate"))
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let printed = Arc::new(Mutex::new(String::new()));
        let (shown, said) = (Arc::clone(&screen), Arc::clone(&printed));
        let mut output = script.stdout.take().unwrap();
        thread::spawn(move || {
            let mut part = [0; 4_096];
            while let Ok(length @ 1..) = output.read(&mut part) {
                let mut said = said.lock().unwrap();
                if said.len() < LONGEST_PRINTED {
                    said.push_str(&String::from_utf8_lossy(&part[..length]));
                }
                drop(said);
                shown.lock().unwrap().process(&part[..length]);
            }
        });
        let keys = script.stdin.take().unwrap();
        Self { script, keys, screen, printed }
    }

    /// Starts it before a service, in 24 rows of 80 columns.
    fn before(service: &Service) -> Self {
        Self::start(&format!("--url http://{}", service.address()), 24, 80)
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen has all of these texts, and returns it.
    fn shows(&self, texts: &[&str]) -> String {
        let has_all = |text: &String| texts.iter().all(|wanted| text.contains(wanted));
        until(&format!("{texts:?}"), || Some(self.text()).filter(has_all))
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Returns the number after a text that the shell said before the view.
    fn said(&self, before: &str) -> String {
        until(before, || {
            let printed = self.printed.lock().unwrap();
            let (_, rest) = printed.split_once(before)?;
            let (number, _) = rest.split_once(|c: char| !c.is_ascii_digit())?;
            Some(number.to_owned())
        })
    }

    /// Waits for the end, and checks that the terminal is as it was before.
    fn ends_restored(&mut self, status: &str) {
        // The last of the settings that `stty` prints.
        let settings = self.shows(&[&format!("exit {status}."), "-extproc"]);
        let words: Vec<_> = settings.split([' ', ';', '\n']).collect();
        for setting in ["icanon", "echo", "isig", "opost", "icrnl"] {
            assert!(words.contains(&setting), "{setting}: {settings}");
        }
        let screen = self.screen.lock().unwrap();
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor(), "{settings}");
        drop(screen);
        until("the end of the terminal", || self.script.try_wait().unwrap());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Already ended, in a test that passed.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn loads(service: &Service) -> [LoadClient; 2] {
    [
        LoadClient::start(service, "database", &["--rate", "30"]),
        LoadClient::start(service, "backup", &["--reads", "0", "--depth", "32"]),
    ]
}

#[test]
fn the_screen_shows_the_throttled_consumer_and_keys_sort_open_and_quit() {
    let service = Service::start("serve", POOL);
    let _loads = loads(&service);
    let mut terminal = Terminal::before(&service);
    let screen = terminal.shows(&["array", "20.0ms", "backup", "throttled: window", "database", "state▼"]);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.contains("law window, target 20.0ms"), "{screen}");
    // By name, downwards and then upwards.
    terminal.press(">");
    let named = terminal.shows(&["consumer▲"]);
    assert!(named.rfind("backup").unwrap() < named.rfind("database").unwrap(), "{named}");
    terminal.press("r");
    let reversed = terminal.shows(&["consumer▼"]);
    assert!(reversed.rfind("database").unwrap() < reversed.rfind("backup").unwrap(), "{reversed}");
    terminal.press("/back\r");
    terminal.shows(&["filter “back”", "▸backup"]);
    terminal.press("\r");
    let detail =
        terminal.shows(&["backup at array: latency, ms", "throttled", "outstanding", "decided: array:"]);
    assert!(!detail.contains("consumer▼"), "{detail}");
    terminal.press("\x1b");
    terminal.shows(&["consumer▼"]);
    terminal.press("?");
    terminal.shows(&["any key closes"]);
    terminal.press(" q");
    terminal.ends_restored("0");
}

#[test]
fn a_terminal_that_grows_is_filled() {
    let service = Service::start("serve", POOL);
    let _loads = loads(&service);
    let mut terminal = Terminal::before(&service);
    let device = terminal.said("/dev/pts/");
    terminal.shows(&["backup"]);
    terminal.screen.lock().unwrap().screen_mut().set_size(40, 140);
    let resized = Command::new("stty")
        .args(["-F", &format!("/dev/pts/{device}"), "rows", "40", "cols", "140"])
        .status()
        .unwrap();
    assert!(resized.success());
    let grown = terminal.shows(&["written", "throttled: window"]);
    assert_eq!(grown.lines().count(), 40, "{grown}");
    terminal.press("q");
    terminal.ends_restored("0");
}

#[test]
fn a_signal_restores_the_terminal() {
    let service = Service::start("serve", POOL);
    for signal in ["-TERM", "-HUP", "-INT"] {
        let mut terminal = Terminal::before(&service);
        let pid = terminal.said("pid ");
        terminal.shows(&["array"]);
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        terminal.ends_restored("0");
    }
}

#[test]
fn a_command_whose_terminal_is_closed_kept_a_processor_busy_for_ever_or_aborted() {
    let service = Service::start("serve", POOL);
    let top = format!("\"$PROGRAM\" top --url http://{}", service.address());
    // In a session of its own it gets no signal.
    for (command, shown) in [
        (top.clone(), "array"),
        (format!("setsid {top}"), "array"),
        ("\"$PROGRAM\" demo".to_owned(), "alone"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [script, status] = ["script", "status"].map(|name| folder.path().join(name));
        let lines = format!("trap : HUP\n{command}\necho $? >{}\n", status.display());
        fs::write(&script, lines).unwrap();
        let mut terminal = Terminal::run(&format!("sh {}", script.display()), 24, 80);
        terminal.shows(&[shown]);
        terminal.script.kill().unwrap();
        let ended = until(&format!("the end of {command}"), || {
            fs::read_to_string(&status).ok().filter(|ended| ended.ends_with('\n'))
        });
        assert!(["0\n", "1\n"].contains(&ended.as_str()), "{command}: {ended}");
    }
}

#[test]
fn a_service_that_stops_answering_is_said_to_be_gone_and_comes_back() {
    let service = Service::start("serve", POOL);
    let mut terminal = Terminal::before(&service);
    terminal.shows(&["array", "backup", "free"]);
    service.signal("-STOP");
    let gone = terminal.shows(&["GONE for", "unknown"]);
    assert!(!gone.contains("free"), "{gone}");
    service.signal("-CONT");
    terminal.shows(&["serve 0.1.0 at", "free"]);
    terminal.press("q");
    terminal.ends_restored("0");
}

#[test]
fn without_a_terminal_it_names_the_command_for_pipes() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["top", "--url", "http://127.0.0.1:1"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`tidegate status --watch` prints to files and pipes"), "{error}");
}
