use std::time::{Duration, Instant};

use tidegate_journal::WallTime;
use tidegate_units::{ByteRate, ConsumerName, Iops, Latency, ResourceName, Shares};

use super::*;

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).unwrap()
}

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn target(name: &str, json: &str) -> OverrideAction {
    OverrideAction::Resource { resource: resource(name), patch: serde_json::from_str(json).unwrap() }
}

fn limit(name: &str, json: &str) -> OverrideAction {
    let patch = serde_json::from_str(json).unwrap();
    OverrideAction::Consumer { resource: resource("disk"), consumer: consumer(name), patch }
}

fn release(resource_name: Option<&str>, consumer_name: Option<&str>, seconds: u64) -> OverrideAction {
    let scope = ReleaseScope { resource: resource_name.map(resource), consumer: consumer_name.map(consumer) };
    OverrideAction::Release { scope, time: Duration::from_secs(seconds) }
}

/// Overrides after actions at one time.
fn after(actions: &[OverrideAction], now: Instant) -> Overrides {
    let wall = WallTime::from_nanos(1_700_000_000_000_000_000);
    actions.iter().fold(Overrides::default(), |known, action| known.after(action, "uid 0", (now, wall)))
}

#[test]
fn a_setting_that_is_absent_stays_and_one_that_is_null_is_that_of_the_file_again() {
    let now = Instant::now();
    let both = [target("disk", r#"{"target_seconds":0.012}"#), target("disk", r#"{"dry_run":true}"#)];
    let changes = after(&both, now).of_resource(&resource("disk"));
    assert_eq!((changes.target, changes.dry_run), (Some(Latency::from_millis(12)), Some(true)));
    let undone = [&both[..], &[target("disk", r#"{"target_seconds":null,"dry_run":null}"#)]].concat();
    assert!(after(&undone, now).is_empty(), "nothing is kept of what was undone");
    let undone = [
        limit("vm1", r#"{"shares":300,"limit_iops":50,"limit_bytes_per_second":4e7}"#),
        limit("vm1", r#"{"shares":null,"limit_iops":null,"limit_bytes_per_second":null}"#),
    ];
    assert!(after(&undone, now).is_empty());
    let changed = after(&undone[..1], now);
    let (name, changes) = changed.of_consumers(&resource("disk")).next().unwrap();
    assert_eq!((name, changes.shares), (&consumer("vm1"), Shares::new(300)));
    assert_eq!((changes.limit, changes.bandwidth), (Some(Iops::new(50.0)), Some(ByteRate::new(4e7))));
}

#[test]
fn a_release_holds_for_its_scope_and_its_time() {
    let now = Instant::now();
    let (disk, ssd, vm1, vm2) = (resource("disk"), resource("ssd"), consumer("vm1"), consumer("vm2"));
    let mut one = after(&[release(Some("disk"), Some("vm1"), 60)], now);
    assert!(one.is_consumer_released(&disk, &vm1));
    assert!(!one.is_consumer_released(&disk, &vm2) && !one.is_consumer_released(&ssd, &vm1));
    assert!(!one.is_released(&disk), "the law goes on for the others");
    assert!(one.expire(now + Duration::from_secs(59)).is_empty());
    assert_eq!(one.expire(now + Duration::from_secs(60)).len(), 1);
    assert!(one.is_empty());

    let whole = after(&[release(Some("disk"), None, 60)], now);
    assert!(whole.is_released(&disk) && whole.is_consumer_released(&disk, &vm2) && !whole.is_released(&ssd));
    let all = after(&[release(None, None, 60)], now);
    assert!(all.is_released(&disk) && all.is_consumer_released(&ssd, &vm1));

    let two = [release(Some("disk"), None, 60), release(None, None, 60)];
    let scope = ReleaseScope { resource: Some(disk.clone()), consumer: None };
    let one = [&two[..], &[OverrideAction::EndRelease { scope: Some(scope) }]].concat();
    assert!(after(&one, now).is_released(&disk), "the other release goes on");
    assert!(after(&[&two[..], &[OverrideAction::EndRelease { scope: None }]].concat(), now).is_empty());
}

#[test]
fn a_release_that_is_asked_for_again_has_the_new_time() {
    let now = Instant::now();
    let mut again = after(&[release(None, None, 60), release(None, None, 10)], now);
    assert_eq!(again.document().releases.len(), 1);
    assert_eq!(again.expire(now + Duration::from_secs(10)).len(), 1);
}

#[test]
fn overrides_of_what_a_reload_removed_are_dropped() {
    let now = Instant::now();
    let actions = [
        target("gone", r#"{"dry_run":true}"#),
        limit("vm1", r#"{"shares":300}"#),
        limit("vm2", r#"{"shares":300}"#),
        release(Some("gone"), None, 60),
        release(None, Some("vm2"), 60),
    ];
    let mut overrides = after(&actions, now);
    overrides.retain(|name| *name == resource("disk"), |_, name| *name == consumer("vm1"));
    let document = overrides.document();
    let names: Vec<_> = document.consumers.iter().map(|known| known.consumer.as_str()).collect();
    assert_eq!(names, ["vm1"]);
    assert!(document.resources.is_empty());
    assert_eq!(document.releases.len(), 1, "a consumer may come back");
}

#[test]
fn values_out_of_range_and_unknown_settings_are_refused() {
    let wrong = |json: &str| {
        let patch: Result<ResourcePatch, _> = serde_json::from_str(json);
        patch.map_err(|error| error.to_string()).and_then(|patch| patch.check().map_err(|e| e.to_string()))
    };
    assert_eq!(wrong(r#"{"target_seconds":0.01}"#), Ok(()));
    for (json, said) in [
        ("{}", "changes nothing"),
        (r#"{"target_seconds":0}"#, "between 0.00001 and 60"),
        (r#"{"target_seconds":1e300}"#, "between 0.00001 and 60"),
        (r#"{"goal":1}"#, "unknown field `goal`"),
        (r#"{"dry_run":"yes"}"#, "expected a boolean"),
    ] {
        let error = wrong(json).unwrap_err();
        assert!(error.contains(said), "{json}: {error}");
    }
    let of_consumer = |json: &str| serde_json::from_str::<ConsumerPatch>(json).unwrap().check();
    assert_eq!(of_consumer(r#"{"shares":0}"#), Err(RequestError::Shares));
    assert_eq!(of_consumer(r#"{"limit_iops":0.5}"#), Err(RequestError::Limit));
    assert_eq!(of_consumer(r#"{"limit_bytes_per_second":65535}"#), Err(RequestError::Bandwidth));
    assert_eq!(of_consumer(r#"{"limit_iops":null,"limit_bytes_per_second":65536}"#), Ok(()));
    for seconds in [0.0, -1.0, 86_401.0, f64::NAN] {
        let request = ReleaseRequest { resource: None, consumer: None, for_seconds: seconds };
        assert_eq!(request.action(), Err(RequestError::Time));
    }
}

#[test]
fn an_action_says_in_words_what_it_does() {
    for (action, said) in [
        (
            target("disk", r#"{"target_seconds":0.012,"dry_run":null}"#),
            "disk: target set to 12.0ms, dry_run as in the configuration",
        ),
        (limit("vm1", r#"{"limit_iops":50}"#), "vm1 at disk: limit set to 50 IO/s"),
        (limit("vm1", r#"{"limit_bytes_per_second":41943040}"#), "vm1 at disk: bandwidth set to 40 MiB/s"),
        (release(Some("disk"), Some("vm1"), 1_800), "released vm1 at disk for 30m"),
        (release(None, None, 60), "released all consumers for 1m"),
        (OverrideAction::EndRelease { scope: None }, "ended all releases"),
    ] {
        assert_eq!(action.to_string(), said);
    }
}
