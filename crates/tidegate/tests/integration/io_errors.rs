//! Errors of the storage stand first wherever a service is looked at, whatever front end they were answered at.

use serde_json::{Value, json};
use tidegate_nbd::Errno;
use tidegate_nbd::transmission::NbdCommand;
use tidegate_testing::nbd::Raw;
use tidegate_testing::until_true;
use tidegate_testing::vhost::{FAILED, Machine, READ, WRITE};

use crate::service::{Service, text, tidegate};

/// An array with memory for one of the two exports.
const FULL: &str = "
listen = ['unix:nbd.sock']
metrics = '127.0.0.1:0'
journal = { folder = 'FOLDER', limit = '64MiB' }
[pool.array]
backend = { kind = 'emulated', exponential = { rate = '20kIO/s', servers = 8, capacity = '1GiB' }, memory = '64KiB' }
target = '20ms'
[pool.array.export.database]
size = '64MiB'
protected = true
[pool.array.export.guest]
size = '64MiB'
listen = ['vhost-user:guest.sock']
[pool.array.export.backup]
size = '64MiB'
";

#[test]
fn a_full_array_was_said_to_be_within_its_target() {
    let keep = tempfile::tempdir().unwrap();
    let journal = keep.path().join("journal").to_str().unwrap().to_owned();
    let service = Service::start("serve", &FULL.replace("FOLDER", &journal));
    let mut database = Raw::open(&service.path("nbd.sock"), "database");
    assert_eq!(database.ask(NbdCommand::Read, 64 << 20, 512), Errno::Inval.code(), "beyond the end");
    let mut backup = Raw::open(&service.path("nbd.sock"), "backup");
    for at in 0..32 {
        backup.send_write(at, at * 65_536, &[1; 65_536]);
        let (_, code) = backup.answer();
        assert!([0, Errno::NoSpc.code()].contains(&code), "{code}");
    }
    let mut guest = Machine::new(1);
    guest.connect(&service.path("guest.sock"));
    assert_eq!(guest.request(WRITE, 2_048, &[1; 65_536], 0).0, FAILED);
    assert_eq!(guest.request(READ, u64::MAX, &[], 512).0, FAILED);

    let url = format!("http://{}", service.address());
    let asked = |options: &[&str]| text(&tidegate(&[&["status", "--url", &url], options].concat()).stdout);
    let told = asked(&[]);
    assert!(told.contains("\npool array: I/O ERRORS for "), "{told}");
    assert!(told.contains(", of guest, backup: ") && told.contains(" no space left so far; "), "{told}");
    let document: Value = serde_json::from_str(&asked(&["--json"])).unwrap();
    let resource = &document["resources"][0];
    assert_eq!(resource["errors"]["kinds"][0]["kind"], "no_space", "{resource}");
    assert_eq!(resource["errors"]["mistakes"], 2, "{resource}");
    let consumers = resource["consumers"].as_array().unwrap();
    let errors = |name: &str| {
        let one = consumers.iter().find(|one| one["name"] == name).unwrap();
        (one["errors"]["kinds"].clone(), one["errors"]["mistakes"].clone())
    };
    assert_eq!(errors("database"), (json!([]), json!(1)), "a mistake is no error of the storage");
    assert_eq!(errors("guest"), (json!([{ "kind": "no_space", "count": 1 }]), json!(1)));
    let series =
        |kind: &str| format!("tidegate_errors_total{{pool=\"array\",consumer=\"guest\",kind=\"{kind}\"}}");
    assert_eq!((service.metric(&series("no_space")), service.metric(&series("io"))), (Some(1.0), Some(0.0)));

    until_true("the storage in the explanation", || {
        let explained = tidegate(&["explain", "backup", "--journal", &journal]);
        text(&explained.stdout).contains(" storage: requests of backup fail: ")
    });
}
