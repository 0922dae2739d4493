//! The commands of the pages that a newcomer follows, run as they are shown and in their order, by root on a
//! machine of their own: other folders for volumes and sockets, and another network.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use tidegate_testing::markdown::{Document, root};
use tidegate_testing::{Lack, has_namespaces, has_programs, skip};

/// How a command is run that does not simply end with success.
enum Run {
    /// It goes on until the end of the page: a service or a load.
    Stays,
    /// The same, in a terminal, which shows this text.
    InTerminal(&'static str),
    /// It is not run, for this reason.
    Not(&'static str),
}

/// A page with those of its commands, by their first words, that do not simply end.
struct Walk {
    page: &'static str,
    exceptions: &'static [(&'static str, Run)],
}

const BUILDS: Run = Run::Not("it builds what runs here");
const ELSEWHERE: Run = Run::Not("the package's test and the lab run it on a storage target with systemd");

const README: Walk = Walk {
    page: "README.md",
    exceptions: &[
        ("make ", BUILDS),
        ("tidegate serve", Run::Stays),
        ("tidegate top", Run::InTerminal("backup")),
        ("tidegate agent", ELSEWHERE),
    ],
};

const FIRST_STEPS: Walk = Walk {
    page: "docs/guide/first-steps.md",
    exceptions: &[
        ("make ", BUILDS),
        ("tidegate demo", Run::Not("it takes three minutes; a step of the test run is a shorter one")),
        ("tidegate serve", Run::Stays),
        ("tidegate load nbd://localhost:10809/", Run::Stays),
        ("tidegate top", Run::InTerminal("backup")),
        ("tidegate init", ELSEWHERE),
        ("systemctl", ELSEWHERE),
        ("tidegate dry-run off vg0", ELSEWHERE),
    ],
};

const GATEWAY: Walk = Walk {
    page: "docs/guide/gateway.md",
    exceptions: &[
        ("tidegate serve", Run::Stays),
        ("qemu-system-x86_64", Run::Not("it has no guest; tests of vhost-user start one")),
        ("cloud-hypervisor", Run::Not("it is not installed by the set-up")),
        ("install ", Run::Not("the package's test has these files, and systemd")),
        ("systemctl", Run::Not("the package's test has systemd")),
    ],
};

/// Makes the machine: devices are files, sockets are in an empty folder, and no cgroup is seen.
const SETUP: &str = r#"
set -eu
mount --make-rprivate /
umount --recursive --lazy /sys/fs/cgroup 2>/dev/null || true
ip link set lo up
mount -t tmpfs run /run
mkdir dev
mount -t tmpfs dev dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty dev
ln -s /proc/self/fd dev/fd
mkdir dev/pts dev/shm dev/vg0
mount -t devpts -o newinstance,ptmxmode=0666 pts dev/pts
ln -s pts/ptmx dev/ptmx
mkdir volumes
truncate -s 64M volumes/database volumes/backup volumes/fileserver
mount --bind volumes dev/vg0
mount --move dev /dev
stays() { kill -0 "$1" || { echo "it ended: $2"; cat "$3"; exit 1; }; }
"#;

#[test]
fn the_readmes_commands_work_as_they_are() {
    walk(&README);
}

#[test]
fn the_first_steps_work_as_they_are() {
    walk(&FIRST_STEPS);
}

#[test]
fn the_gateways_commands_work_as_they_are() {
    walk(&GATEWAY);
}

fn walk(walk: &Walk) {
    if !rustix::process::geteuid().is_root() {
        return skip(Lack::Root, "a machine of its own");
    }
    let namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !has_namespaces(&namespaces) || !has_programs(&["nbdinfo", "nbdcopy", "script"]) {
        return;
    }
    let text = std::fs::read_to_string(root().join(walk.page)).expect("the page");
    let page = Document::parse(walk.page.to_owned(), &text);
    let folder = tempfile::tempdir().expect("a folder");
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder of programs");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("a path"));
    let output = Command::new("timeout")
        .args(["120", "unshare"])
        .args(namespaces)
        .args(["bash", "-c", &script(walk, &page)])
        .current_dir(&folder)
        .env("PATH", path)
        .env("TERM", "xterm")
        .output()
        .expect("unshare runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: {}\n{said}", walk.page, output.status);
}

/// Returns the script that writes the files of a page and runs its commands.
fn script(walk: &Walk, page: &Document) -> String {
    let mut script = SETUP.to_owned();
    let mut end = String::new();
    let mut unused: Vec<&str> = walk.exceptions.iter().map(|(start, _)| *start).collect();
    for block in page.blocks() {
        if let Some(name) = block.info.strip_prefix("toml ").filter(|name| *name != "fragment") {
            write!(script, "cat > {name} <<'END-OF-FILE'\n{}END-OF-FILE\n", block.text).expect("text");
        }
        if block.info != "sh" {
            continue;
        }
        for command in commands(&block.text) {
            let exception = walk.exceptions.iter().find(|(start, _)| command.starts_with(start));
            unused.retain(|start| exception.is_none_or(|(used, _)| used != start));
            let number = script.lines().count();
            let shown = quoted(&command);
            writeln!(script, "echo '$ {shown}'").expect("text");
            match exception.map(|(_, run)| run) {
                None => writeln!(script, "{command}").expect("text"),
                Some(Run::Not(why)) => writeln!(script, "echo 'not run: {}'", quoted(why)).expect("text"),
                Some(Run::Stays) => {
                    writeln!(script, "{command} >out{number} 2>&1 & p{number}=$!").expect("text");
                    if command.starts_with("tidegate serve") {
                        let status = command.replacen("serve", "status", 1);
                        writeln!(
                            script,
                            "until {status} >/dev/null 2>&1\n\
                             do stays $p{number} '{shown}' out{number}; sleep 0.1; done"
                        )
                        .expect("text");
                    }
                    writeln!(end, "stays $p{number} '{shown}' out{number}").expect("text");
                }
                Some(Run::InTerminal(shows)) => writeln!(
                    script,
                    "sleep 1h | script -qfec 'stty cols 120 rows 40; {shown}' out{number} >/dev/null 2>&1 & p{number}=$!\n\
                     until grep -q {shows} out{number} 2>/dev/null\n\
                     do stays $p{number} '{shown}' out{number}; sleep 0.1; done"
                )
                .expect("text"),
            }
        }
    }
    assert!(unused.is_empty(), "{} has no such command: {unused:?}", walk.page);
    script + &end
}

/// Returns a text for a place between single quotes of a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// Returns the commands of a block without their comments. One that ends with `\` goes on in the next line.
fn commands(block: &str) -> Vec<String> {
    let whole = block.replace("\\\n", " ");
    let without_comment = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    whole.lines().map(without_comment).filter(|line| !line.is_empty()).collect()
}
