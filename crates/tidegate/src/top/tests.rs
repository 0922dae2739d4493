//! Screens of states, and keys.

use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use tidegate_service::status::ServiceStatus;

use super::draw::render;
use super::history::LENGTH;
use super::services::{ServiceAnswered, ServiceNews};
use super::state::{Pane, TopState};
use crate::terminal::{Palette, testing};

/// A consumer that completes 100 requests per second in 12 ms.
fn consumer(name: &str) -> Value {
    json!({
        "name": name, "protected": false, "goal_seconds": null, "set_point_seconds": null,
        "measured_seconds": null, "oldest_seconds": null,
        "recent": {
            "seconds": 3.0, "iops": 100.0, "response_time_seconds": 0.012, "client_seconds": 0.02,
            "read_bytes_per_second": 0.0, "written_bytes_per_second": 2_097_152.0,
        },
        "outstanding": 4, "entitled_iops": null, "rate_iops": null, "delay_seconds": null, "held": false,
    })
}

fn with(mut value: Value, change: &Value) -> Value {
    let target = value.as_object_mut().unwrap();
    target.extend(change.as_object().unwrap().clone());
    value
}

fn throttled(name: &str) -> Value {
    with(consumer(name), &json!({ "held": true, "waits_for": "law" }))
}

fn database(minute: f64, latency: f64) -> Value {
    let promise = json!({
        "response_time_seconds": 0.015, "judged_by": "seconds", "minute": minute, "hour": null, "day": null,
    });
    let recent = json!({ "seconds": 3.0, "iops": 64.0, "response_time_seconds": latency });
    with(consumer("database"), &json!({ "protected": true, "promise": promise, "recent": recent }))
}

/// A resource with a target of 15 ms that throttles to a window.
fn resource(name: &str, consumers: &[Value]) -> Value {
    json!({
        "name": name, "present": true, "throttle_fails": false,
        "law": { "kind": "auto", "target_seconds": 0.015, "interval_seconds": 0.25, "dry_run": false },
        "decided": {
            "age_seconds": 0.1, "said": format!("{name}: protected reads 13.1ms against 12.7ms"),
            "input": "samples", "measured_seconds": 0.0131, "estimate_seconds": 0.0125,
            "set_point_seconds": 0.0127, "held": 1, "throttled": 2, "operating_point": null,
            "window_requests": 5.63, "delay_seconds": null,
        },
        "recent": { "seconds": 3.0, "iops": 264.0, "response_time_seconds": 0.0124 },
        "consumers": consumers, "consumers_left_out": 0,
    })
}

fn status(resources: &[Value]) -> ServiceStatus {
    let status = json!({
        "version": 1, "service": "serve", "program": "0.1.0", "sees": true, "resources": resources,
    });
    serde_json::from_value(status).unwrap()
}

fn array() -> Value {
    resource("array", &[database(0.83, 0.0124), throttled("backup"), consumer("mirror")])
}

fn empty() -> TopState {
    TopState::new(vec![("unix:/run/a.sock".to_owned(), true)], Palette::plain())
}

fn tell(state: &mut TopState, resources: &[Value], second: u64) {
    let address = "unix:/run/a.sock".to_owned();
    let answer = Ok(ServiceAnswered { address, status: status(resources) });
    state.apply(ServiceNews { service: 0, at: SystemTime::UNIX_EPOCH, answer }, Duration::from_secs(second));
}

fn watching(resources: &[Value]) -> TopState {
    let mut state = empty();
    tell(&mut state, resources, 1);
    state
}

fn screen(state: &mut TopState, width: u16, height: u16) -> String {
    testing::screen(width, height, |frame| render(frame, state))
}

fn press(state: &mut TopState, keys: &[KeyCode]) -> Option<()> {
    keys.iter().fold(None, |_, key| state.key(KeyEvent::new(*key, KeyModifiers::NONE)))
}

fn typed(state: &mut TopState, keys: &str) -> Option<()> {
    press(state, &keys.chars().map(KeyCode::Char).collect::<Vec<_>>())
}

/// Returns the line of the screen that has this text first.
fn line<'a>(screen: &'a str, text: &str) -> &'a str {
    screen.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}:\n{screen}"))
}

/// Returns the names in the table of consumers, from the top.
fn order(screen: &str, names: &[&str]) -> Vec<String> {
    let table = screen.split("consumer").last().unwrap();
    let first = table.lines().filter_map(|line| line.trim_start_matches(['▸', ' ']).split(' ').next());
    first.filter(|name| names.contains(name)).map(str::to_owned).collect()
}

#[test]
fn eighty_columns_say_who_is_throttled_by_what_and_which_promise_is_broken() {
    let screen = screen(&mut watching(&[array()]), 80, 24);
    assert!(screen.contains("serve 0.1.0 at unix:/run/a.sock · consumers: 3"), "{screen}");
    let array = line(&screen, "▸array");
    for needed in ["13.1ms", "15.0ms", "BROKEN 83 %", "1 of 2", "window 5.63"] {
        assert!(array.contains(needed), "{needed}: {array}");
    }
    let backup = line(&screen, "backup");
    assert!(backup.contains("12.0ms") && backup.contains("throttled: window 5.63"), "{backup}");
    assert!(line(&screen, "mirror").contains("free"));
    let database = line(&screen, "database");
    assert!(database.contains("BROKEN 83 %") && database.contains("protected"), "{database}");
    assert!(screen.contains("law auto, target 15.0ms, set point 12.7ms, decides every 250ms"), "{screen}");
    assert!(screen.contains("decided: array: protected reads 13.1ms against 12.7ms"), "{screen}");
}

#[test]
fn a_wide_screen_has_all_columns_and_a_narrow_one_those_that_matter() {
    let mut state = watching(&[array()]);
    let wide = screen(&mut state, 160, 40);
    let backup = line(&wide, "backup");
    assert!(backup.contains("2 MiB/s") && backup.contains(" 100 "), "{backup}");
    let narrow = screen(&mut state, 44, 12);
    assert!(narrow.contains("database") && narrow.contains("12.4ms") && !narrow.contains("IO/s"), "{narrow}");
    let tiny = screen(&mut state, 30, 4);
    assert!(tiny.contains("array: 13.1ms of 15.0ms"), "{tiny}");
}

#[test]
fn every_size_of_terminal_can_be_drawn() {
    for pane in [Pane::Resources, Pane::Consumers, Pane::Detail] {
        for (width, height) in [(1, 1), (10, 3), (40, 10), (41, 11), (63, 40), (80, 24), (300, 100)] {
            for mut state in [empty(), watching(&[]), watching(&[array()])] {
                state.pane = pane;
                screen(&mut state, width, height);
                state.is_help = true;
                screen(&mut state, width, height);
            }
        }
    }
}

#[test]
fn figures_of_a_service_that_is_gone_are_unknown_and_never_zero() {
    let mut state = watching(&[array()]);
    let failure = "no service answers at unix:/run/a.sock: gone; is it running?".to_owned();
    let news = ServiceNews { service: 0, at: SystemTime::UNIX_EPOCH, answer: Err(failure) };
    state.apply(news, Duration::from_secs(2));
    assert!(state.pass(Duration::from_secs(9)));
    let gone = screen(&mut state, 120, 24);
    assert!(gone.contains("GONE for 8 s: no service answers at unix:/run/a.sock: gone;"), "{gone}");
    let backup = line(&gone, "backup");
    assert!(backup.contains("unknown") && !backup.contains("12.0ms") && !backup.contains(" 0 "), "{backup}");
    assert!(!gone.contains("throttled: window"), "{gone}");
    tell(&mut state, &[array()], 10);
    let back = screen(&mut state, 120, 24);
    assert!(!back.contains("GONE") && back.contains("throttled: window 5.63"), "{back}");
}

#[test]
fn an_answer_that_does_not_come_makes_figures_unknown_too() {
    let mut state = watching(&[array()]);
    assert!(!state.pass(Duration::from_secs(4)), "within three and a half seconds");
    assert!(state.pass(Duration::from_secs(5)));
    assert!(screen(&mut state, 80, 24).contains("GONE for 4 s: it has not answered in time"));
}

#[test]
fn a_service_that_never_answered_says_why() {
    let mut state = empty();
    assert!(screen(&mut state, 80, 24).contains("asking unix:/run/a.sock"));
    let failure = Err("no service answers at unix:/run/a.sock: absent".to_owned());
    state.apply(
        ServiceNews { service: 0, at: SystemTime::UNIX_EPOCH, answer: failure },
        Duration::from_secs(1),
    );
    assert!(screen(&mut state, 80, 24).contains("no service answers at unix:/run/a.sock: absent"));
}

#[test]
fn a_decision_that_is_old_and_a_signal_without_samples_are_not_shown_as_latencies() {
    let changed = |change: Value| {
        let mut resource = array();
        let decided = with(resource["decided"].take(), &change);
        resource["decided"] = decided;
        let shown = screen(&mut watching(&[resource]), 80, 24);
        line(&shown, "▸array").to_owned()
    };
    assert!(changed(json!({ "age_seconds": 60.0 })).contains("unknown"));
    assert!(changed(json!({ "input": "idle", "measured_seconds": null })).contains("idle"));
    assert!(changed(json!({ "input": "overload", "measured_seconds": null })).contains("OVERLOAD"));
}

#[test]
fn a_dry_run_throttles_nothing() {
    let mut resource = array();
    resource["law"]["dry_run"] = true.into();
    let shown = screen(&mut watching(&[resource]), 80, 24);
    assert!(line(&shown, "▸array").contains("dry: window 5.63"), "{shown}");
    assert!(shown.contains("array: dry run, throttles nothing; would be"), "{shown}");
}

#[test]
fn consumers_whose_requests_fail_stand_first_and_those_of_long_ago_do_not() {
    let errors = |last: f64| {
        json!({ "errors": {
            "kinds": [{ "kind": "no_space", "count": 17_600 }], "since_seconds": 7_200.0,
            "last_seconds": last, "mistakes": 0,
        } })
    };
    let consumers =
        |last: f64| [throttled("backup"), with(consumer("guest"), &errors(last)), consumer("mirror")];
    let mut failing = watching(&[with(resource("array", &consumers(0.4)), &errors(0.4))]);
    let shown = screen(&mut failing, 100, 24);
    assert!(line(&shown, "▸array").contains("I/O ERRORS"), "{shown}");
    assert!(line(&shown, "guest").contains("I/O ERRORS"), "{shown}");
    assert_eq!(order(&shown, &["guest", "backup", "mirror"]), ["guest", "backup", "mirror"]);
    assert!(shown.contains("I/O ERRORS for 2h, of guest: 17600 no space left so far; "), "{shown}");
    let mut recovered = watching(&[with(resource("array", &consumers(600.0)), &errors(600.0))]);
    let shown = screen(&mut recovered, 100, 24);
    assert!(!shown.contains("I/O ERRORS"), "{shown}");
}

#[test]
fn rows_are_sorted_by_the_column_that_keys_choose() {
    let names = ["slow", "quick", "unknown"];
    let latency = |name: &str, seconds: Option<f64>| {
        with(
            consumer(name),
            &json!({ "recent": { "seconds": 3.0, "iops": 1.0,
            "response_time_seconds": seconds } }),
        )
    };
    let consumers = [latency("quick", Some(0.001)), latency("unknown", None), latency("slow", Some(0.2))];
    let mut state = watching(&[resource("array", &consumers)]);
    // From the state, the last column, one further: the name.
    press(&mut state, &[KeyCode::F(6)]);
    let by_name = screen(&mut state, 80, 24);
    assert!(by_name.contains("consumer▲"), "{by_name}");
    assert_eq!(order(&by_name, &names), ["quick", "slow", "unknown"]);
    typed(&mut state, ">");
    let by_latency = screen(&mut state, 80, 24);
    assert!(by_latency.contains("latency▼"), "{by_latency}");
    assert_eq!(order(&by_latency, &names), ["slow", "quick", "unknown"]);
    typed(&mut state, "r");
    assert_eq!(order(&screen(&mut state, 80, 24), &names), ["quick", "slow", "unknown"], "unknown is last");
    typed(&mut state, "<<");
    assert_eq!(screen(&mut state, 80, 24).matches("state▼").count(), 2, "of both tables");
}

#[test]
fn a_selected_consumer_stays_selected_however_rows_move() {
    let mut state = watching(&[resource("array", &[throttled("a"), consumer("b"), consumer("c")])]);
    press(&mut state, &[KeyCode::Down, KeyCode::Down]);
    assert!(screen(&mut state, 80, 24).contains("▸c"));
    tell(&mut state, &[resource("array", &[consumer("a"), consumer("b"), throttled("c")])], 2);
    let moved = screen(&mut state, 80, 24);
    assert!(moved.contains("▸c"), "{moved}");
    assert_eq!(order(&moved, &["a", "b", "c"]), ["c", "a", "b"]);
}

#[test]
fn enter_opens_the_history_and_the_law_and_escape_goes_back() {
    let mut state = watching(&[array()]);
    for second in 2..40 {
        tell(&mut state, &[array()], second);
    }
    press(&mut state, &[KeyCode::Down]);
    let name = state.consumer_row(1).unwrap().name().to_owned();
    press(&mut state, &[KeyCode::Enter]);
    let detail = screen(&mut state, 80, 24);
    for needed in
        [&format!("{name} at array: latency, ms"), "throttled", "outstanding", "law auto", "decided:"]
    {
        assert!(detail.contains(needed), "{needed}:\n{detail}");
    }
    press(&mut state, &[KeyCode::Esc]);
    assert!(screen(&mut state, 80, 24).contains("consumer"));
}

#[test]
fn the_history_shows_when_a_consumer_was_throttled_and_when_nothing_was_known() {
    let mut state = watching(&[resource("array", &[throttled("backup")])]);
    for second in 2..12 {
        tell(&mut state, &[resource("array", &[throttled("backup")])], second);
    }
    let failure = Err("gone".to_owned());
    let at = SystemTime::UNIX_EPOCH;
    state.apply(ServiceNews { service: 0, at, answer: failure }, Duration::from_secs(12));
    tell(&mut state, &[resource("array", &[consumer("backup")])], 21);
    press(&mut state, &[KeyCode::Enter]);
    let detail = screen(&mut state, 80, 24);
    let marks = line(&detail, "throttled  ").trim_end();
    assert!(marks.ends_with(&format!("{}{}·", "█".repeat(11), " ".repeat(9))), "{detail}");
}

#[test]
fn several_resources_are_chosen_from_and_each_shows_its_own_consumers() {
    let mut state = watching(&[resource("a", &[consumer("one")]), resource("b", &[consumer("two")])]);
    assert_eq!(state.pane, Pane::Resources);
    let first = screen(&mut state, 80, 24);
    assert!(first.contains("▸a") && first.contains("one") && !first.contains("two"), "{first}");
    press(&mut state, &[KeyCode::Down]);
    let second = screen(&mut state, 80, 24);
    assert!(second.contains("▸b") && second.contains("two") && !second.contains("one"), "{second}");
    press(&mut state, &[KeyCode::Enter]);
    assert_eq!(state.pane, Pane::Consumers);
    press(&mut state, &[KeyCode::Esc]);
    assert_eq!(state.pane, Pane::Resources);
}

#[test]
fn a_filter_finds_resources_by_their_consumers_and_escape_ends_it() {
    let mut state = watching(&[
        resource("fast", &[consumer("vm1"), consumer("vm2")]),
        resource("slow", &[consumer("backup")]),
    ]);
    typed(&mut state, "/BACK");
    let filtered = screen(&mut state, 80, 24);
    assert!(filtered.contains("filter: BACK"), "{filtered}");
    assert!(filtered.contains("▸slow") && !filtered.contains("fast"), "{filtered}");
    typed(&mut state, "q");
    assert!(
        screen(&mut state, 80, 24).contains("no name has the filter in it"),
        "q is a letter of the filter"
    );
    press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
    assert!(screen(&mut state, 80, 24).contains("filter “BACK”"));
    press(&mut state, &[KeyCode::Esc]);
    let whole = screen(&mut state, 80, 24);
    assert!(whole.contains("fast") && whole.contains("slow"), "{whole}");
}

#[test]
fn q_and_control_c_quit_and_help_is_closed_by_any_key() {
    let mut state = watching(&[array()]);
    assert_eq!(typed(&mut state, "?"), None);
    assert!(screen(&mut state, 80, 24).contains("any key closes"));
    assert_eq!(typed(&mut state, "q"), None, "it closes the help");
    assert!(!screen(&mut state, 80, 24).contains("any key closes"));
    assert_eq!(typed(&mut state, "q"), Some(()));
    typed(&mut state, "/");
    assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(()));
}

#[test]
fn without_colours_the_screen_says_the_same() {
    let mut plain = watching(&[array()]);
    let mut coloured = TopState::new(vec![("unix:/run/a.sock".to_owned(), true)], Palette::coloured());
    tell(&mut coloured, &[array()], 1);
    let has_colour = |state: &mut TopState| {
        let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(100, 30)).unwrap();
        terminal.draw(|frame| render(frame, state)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.iter().any(|cell| cell.fg != ratatui::style::Color::Reset)
    };
    for pane in [Pane::Consumers, Pane::Detail] {
        (plain.pane, coloured.pane) = (pane, pane);
        assert_eq!(screen(&mut plain, 100, 30), screen(&mut coloured, 100, 30));
        assert!(!has_colour(&mut plain) && has_colour(&mut coloured));
    }
}

#[test]
fn a_thousand_resources_are_scrolled_and_their_histories_are_bounded() {
    let all: Vec<_> = (0..1_000)
        .map(|at| {
            let consumers: Vec<_> = (0..10).map(|one| consumer(&format!("c{at}-{one}"))).collect();
            resource(&format!("r{at:04}"), &consumers)
        })
        .collect();
    let mut state = watching(&all);
    press(&mut state, &[KeyCode::End]);
    let last = screen(&mut state, 80, 24);
    assert!(last.contains("▸r0999") && last.contains("c999-0"), "{last}");
    press(&mut state, &[KeyCode::PageUp]);
    let above = screen(&mut state, 80, 24);
    assert!(above.contains("▸r09") && !above.contains("▸r0999"), "{above}");
    let few = [array()];
    for second in 2..2 + 2 * LENGTH as u64 {
        tell(&mut state, &few, second);
    }
    assert_eq!(state.services[0].samples_kept(), 4 * LENGTH, "of one resource and its three consumers");
}
