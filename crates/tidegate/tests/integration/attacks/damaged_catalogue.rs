//! A bit of the catalogue's last line that a disk has flipped: it dropped an object that was acknowledged.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tidegate_testing::until;

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(words).current_dir(folder).env("TIDEGATE_NODES", folder.join("broker.toml"));
    command
}

fn start_broker(folder: &Path, port: u16) -> Child {
    let broker = command(folder, &["broker", "-c", "broker.toml"]).stderr(Stdio::null()).spawn().unwrap();
    until("the broker", || TcpStream::connect(("127.0.0.1", port)).ok());
    broker
}

#[test]
fn a_flipped_bit_in_the_catalogues_last_line_stops_the_broker_and_drops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fs::create_dir(folder.join("a")).unwrap();
    fs::write(folder.join("up"), "data").unwrap();
    let text = format!(
        "listen = '127.0.0.1:{port}'\nstate = 'state'\n[node.a]\nplace = 'file://{}'\npeak = '60MB/s'\n",
        folder.join("a").display()
    );
    fs::write(folder.join("broker.toml"), text).unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let ask = |words: &[&str]| -> Output {
        command(folder, &[&["transfer"], words, &["--broker", &url, "--patience", "20s"]].concat())
            .output()
            .unwrap()
    };

    let mut broker = start_broker(folder, port);
    let put = ask(&["put", "up", "--name", "run7", "--rate", "1MB/s"]);
    assert!(put.status.success(), "{put:?}");
    broker.kill().unwrap();
    broker.wait().unwrap();

    let journal = folder.join("state/catalogue");
    let whole = fs::read(&journal).unwrap();
    let lines = whole.split_inclusive(|byte| *byte == b'\n').count();
    assert!(
        String::from_utf8_lossy(whole.split_inclusive(|byte| *byte == b'\n').next_back().unwrap())
            .contains("run7")
    );
    // In the record, in its checksum, and the newline.
    for place in [whole.len() - 20, whole.len() - 1] {
        let mut flipped = whole.clone();
        flipped[place] ^= 4;
        fs::write(&journal, &flipped).unwrap();
        let refused = command(folder, &["broker", "-c", "broker.toml"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1), "{said}");
        assert!(said.contains(&format!("state/catalogue:{lines}: this line is damaged")), "{said}");
        assert_eq!(fs::read(&journal).unwrap(), flipped);
    }

    // What a crash tears is no damage.
    fs::write(&journal, [&whole[..], &whole[..20]].concat()).unwrap();
    let mut broker = start_broker(folder, port);
    let list = ask(&["list", "--json"]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("run7"), "{list:?}");
    broker.kill().unwrap();
    broker.wait().unwrap();
}
