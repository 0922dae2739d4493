use std::collections::BTreeSet;
use std::path::Path as FilePath;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_http::{BearerToken, LARGEST_BODY};
use tidegate_units::{ByteRate, Bytes};
use tokio::net::TcpListener;

use super::*;
use crate::client::{AskError, BrokerClient};
use crate::digest::Hasher;
use crate::mover::{FileMover, MoveError, MoverSettings, TransferEvent};
use crate::places::NodePlaces;
use crate::sensor_reports::{NodeKind, SensedLane, SensorReport};
use crate::wire;

const ONE: &str = r#"
listen = "127.0.0.1:0"
state = "unused"
policy = "sm-r1"
[node.a]
place = "file:///srv/a"
peak = "15MB/s"
"#;

/// A transfer.
const ID: &str = "0123456789abcdef";

/// A broker behind a real socket.
async fn start(config: &str, folder: &FilePath) -> (String, BrokerApi) {
    let config = BrokerConfig::parse("broker.toml", config, folder).unwrap();
    let broker = Broker::new(&config, Catalogue::open(folder).unwrap(), Instant::ZERO).unwrap();
    let api = BrokerApi::new(&config, broker).unwrap();
    let listener = HttpListener::anonymous(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.address().clone();
    let server = HttpServer::new(vec![listener], ServerNames::default());
    tokio::spawn(server.serve(router(api.clone()), std::future::pending()));
    (format!("http://{address}"), api)
}

/// A client's places, from the broker's own configuration.
fn places(config: &str) -> NodePlaces {
    NodePlaces::parse(FilePath::new("broker.toml"), config).unwrap()
}

fn run(test: impl AsyncFnOnce(String)) {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async { test(start(ONE, folder.path()).await.0).await });
}

/// A wish for more than half of the rate that the node carries.
fn wish(name: &str) -> wire::TransferQuestion {
    wire::TransferQuestion {
        way: wire::DataDirection::Write,
        name: Some(ObjectName::new(name).unwrap()),
        size: Some(Bytes::new(1)),
        needs: wire::ServiceNeeds::Average(10e6),
        availability: 0,
        cost: u8::MAX,
        except: Vec::new(),
        replica: false,
    }
}

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn the_description_has_the_routes_that_there_are() {
    let description = description();
    let documented: BTreeSet<_> = description["paths"].as_object().unwrap().keys().cloned().collect();
    let known: BTreeSet<_> = routes().into_iter().flatten().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(documented, known);
    run(async |url| {
        let http = crate::store::http_client().unwrap();
        for (path, operations) in description["paths"].as_object().unwrap() {
            for method in ["get", "post", "put", "delete"] {
                let page = format!("{url}{}", path.replace("{id}", "x").replace("{name}", "x"));
                let method_name = reqwest::Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let status = http.request(method_name, page).send().await.unwrap().status();
                let is_there = status != reqwest::StatusCode::METHOD_NOT_ALLOWED;
                assert_eq!(is_there, operations.get(method).is_some(), "{method} {path}: {status}");
            }
        }
    });
}

#[test]
fn the_description_has_the_fields_that_there_are() {
    let (name, node) = (ObjectName::new("x").unwrap(), ResourceName::new("a").unwrap());
    let (size, sha256) = (Bytes::new(1), Hasher::default().finish());
    let granted = wire::TransferPermit {
        node: node.clone(),
        place: "file:///".to_owned(),
        key: Some("x.1".to_owned()),
        expected_bps: ByteRate::ZERO,
        expected_first_byte_s: Some(0.1),
        size,
        sha256: Some(sha256),
    };
    let replica =
        wire::ObjectReplica { node: node.clone(), key: "x.1".to_owned(), place: Some("file:///".to_owned()) };
    let object = wire::CatalogueObject { name: name.clone(), size, sha256, replicas: vec![replica.clone()] };
    let lane = wire::NodeDirection {
        peak_bps: ByteRate::ZERO,
        current_bps: None,
        moving_average_bps: None,
        latency_s: None,
        active: 0,
        reserved_bps: ByteRate::ZERO,
        lent_bps: ByteRate::ZERO,
    };
    let sensed = SensedLane {
        current_bps: Some(1.0),
        moving_average_bps: Some(1.0),
        peak_bps: Some(1.0),
        latency_s: Some(1.0),
    };
    let report = SensorReport {
        run: "0123456789abcdef".to_owned(),
        sequence: 1,
        at_s: 1.0,
        interval_s: 1.0,
        kind: NodeKind::Disk,
        read: sensed,
        write: sensed,
        free: Some(size),
        size: Some(size),
    };
    let sensor = wire::NodeSensor { age_s: 0.0, recent: true, report: report.clone() };
    let peak_now = wire::PeakNow { bps: ByteRate::ZERO, pinned: true };
    let state = wire::NodeState {
        name: node.clone(),
        place: "file:///".to_owned(),
        availability: 0,
        cost: 0,
        free: None,
        read: lane,
        write: lane,
        sensor: Some(sensor.clone()),
        waiting: 0,
    };
    let wish = wire::TransferQuestion {
        way: wire::DataDirection::Write,
        name: Some(name.clone()),
        size: Some(size),
        needs: wire::ServiceNeeds::Average(1.0),
        availability: 0,
        cost: 0,
        except: vec![node],
        replica: true,
    };
    let transfer = wire::TransferState {
        way: wire::DataDirection::Read,
        name: None,
        size,
        moved: size,
        replica: false,
        node: None,
        expected_bps: None,
        heard_s: 1.0,
    };
    let reservation =
        wire::TransferReservation { id: "1".to_owned(), lease_s: 1.0, granted: Some(granted.clone()) };
    let documents = json!({
        "Wish": wish,
        "Reservation": reservation,
        "Granted": granted,
        "Moved": wire::ProgressReport { bytes: size, first_byte_s: Some(0.1) },
        "Stored": wire::StoredReport { name, size, sha256 },
        "End": TransferEnd::failed("it is full"),
        "Objects": wire::ObjectList { objects: vec![object.clone()], more: false },
        "Object": object,
        "Replica": replica,
        "Nodes": wire::NodeList { nodes: vec![state.clone()], waiting: 0 },
        "Node": state,
        "Lane": lane,
        "NodeSensor": sensor,
        "NodeReport": report,
        "SensedLane": sensed,
        "Probed": wire::PeakReport { read_bps: Some(1.0), write_bps: Some(1.0) },
        "Peaks": wire::NodePeaks { read: peak_now, write: peak_now },
        "PeakNow": peak_now,
        "Transfers": wire::TransferList { transfers: vec![transfer.clone()], all: 1 },
        "Transfer": transfer,
        "Problem": ApiProblem { error: String::new(), code: String::new() },
    });
    let schemas = &description()["components"]["schemas"];
    for (schema, document) in documents.as_object().unwrap() {
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(keys(&schemas[schema]["properties"]), keys(document), "{schema}");
    }
    let described = schemas
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| !["ObjectName", "Needs", "Kind"].contains(&key.as_str()));
    assert_eq!(described.count(), documents.as_object().unwrap().len());
    for kind in schemas["Needs"]["oneOf"].as_array().unwrap() {
        let key = kind["required"][0].as_str().unwrap();
        assert!(serde_json::from_value::<wire::ServiceNeeds>(json!({ key: 1.0 })).is_ok(), "{key}");
    }
}

#[test]
fn what_is_not_understood_is_said_with_its_status() {
    run(async |url| {
        let http = crate::store::http_client().unwrap();
        let wish =
            |needs: Value| json!({ "way": "write", "name": "x", "size": 1, "needs": needs }).to_string();
        for (page, body, status, code) in [
            ("place", "{".to_owned(), 400, "not-understood"),
            ("place", wish(json!({ "fast": 1 })), 400, "not-understood"),
            ("place", wish(json!({ "average": 1 })).replace("\"x\"", "\"../x\""), 400, "not-understood"),
            ("place", wish(json!({ "average": 0 })), 400, "no-rate"),
            ("place", wish(json!({ "average": -5 })), 400, "no-rate"),
            ("place", wish(json!({ "average": 1e9 })), 422, "too-fast"),
            ("place", wish(json!({ "average": 1 })).replace("\"size\":1,", ""), 400, "no-size"),
            ("place", wish(json!({ "average": 1 })).replace("\"write\"", "\"read\""), 404, "unknown-object"),
            ("transfers/nobody/progress", json!({ "bytes": 1 }).to_string(), 410, "gone"),
            ("transfers/nobody/end", String::new(), 410, "gone"),
            ("nodes/a/report", "{}".to_owned(), 400, "not-understood"),
            ("nodes/a/peak", json!({ "write_bps": -1 }).to_string(), 400, "unbelievable"),
            ("nodes/b/peak", json!({}).to_string(), 404, "unknown-node"),
            ("nodes/%0A/peak", json!({}).to_string(), 400, "not-understood"),
            ("nothing", String::new(), 404, "no-page"),
        ] {
            let answer = http
                .post(format!("{url}/v1/{page}"))
                .header("content-type", "application/json")
                .body(body.clone())
                .send()
                .await
                .unwrap();
            let found = answer.status().as_u16();
            let problem: ApiProblem = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            assert_eq!((found, problem.code.as_str()), (status, code), "{body}: {}", problem.error);
        }
        let answer = http.get(format!("{url}/v1/objects?before=x")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 400);
        let large = http
            .post(format!("{url}/v1/place"))
            .header("content-type", "application/json")
            .body("x".repeat(LARGEST_BODY + 1))
            .send()
            .await
            .unwrap();
        assert_eq!(large.status().as_u16(), 413, "a question is bounded");
    });
}

#[test]
fn a_transfer_is_named_by_whoever_asks_for_it_or_by_the_broker() {
    run(async |url| {
        let http = crate::store::http_client().unwrap();
        let wish = json!({ "way": "write", "size": 1, "needs": { "average": 1 } }).to_string();
        let put = async |id: &str| {
            let answer = http
                .put(format!("{url}/v1/transfers/{id}"))
                .header("content-type", "application/json")
                .body(wish.clone())
                .send()
                .await
                .unwrap();
            (
                answer.status().as_u16(),
                serde_json::from_slice::<Value>(&answer.bytes().await.unwrap()).unwrap(),
            )
        };
        let first = put("0123456789abcdef").await;
        assert_eq!((first.0, first.1["id"].as_str()), (200, Some("0123456789abcdef")));
        assert_eq!(put("0123456789abcdef").await, first);
        assert_eq!(put("mine").await.0, 400);
        let placed = http
            .post(format!("{url}/v1/place"))
            .header("content-type", "application/json")
            .body(wish.clone())
            .send()
            .await
            .unwrap();
        let placed: wire::TransferReservation =
            serde_json::from_slice(&placed.bytes().await.unwrap()).unwrap();
        assert!(placed.id.parse::<TransferId>().is_ok() && placed.id != "0123456789abcdef");
    });
}

#[test]
fn a_broker_that_was_away_never_heard_that_an_attempt_had_ended() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (_, api) = start(ONE, folder.path()).await;
        api.broker.lock().unwrap().place(Instant::ZERO, "1", wish("x")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = router(api.clone());
        tokio::spawn(async move {
            drop(listener.accept().await);
            axum::serve(listener, router).await
        });
        let client = BrokerClient::new(&url, Duration::from_secs(60), None).unwrap();
        client.end_patiently("1", TransferEnd::failed("it is\nfull")).await.unwrap();
        assert_eq!(api.broker.lock().unwrap().nodes(Instant::ZERO).nodes[0].write.active, 0);
    });
}

#[test]
fn what_is_gone_after_an_answer_was_lost_may_be_there() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (_, api) = start(ONE, folder.path()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = router(api);
        tokio::spawn(async move {
            drop(listener.accept().await);
            axum::serve(listener, router).await
        });
        let client = BrokerClient::new(&url, Duration::from_secs(60), None).unwrap();
        let name = ObjectName::new("x").unwrap();
        let stored = wire::StoredReport { name, size: Bytes::new(1), sha256: Hasher::default().finish() };
        let lost = client.stored("1", &stored).await.unwrap_err();
        assert!(matches!(lost, AskError::Doubtful(_)), "{lost}");
        // Where every answer was heard, it is gone.
        assert!(client.stored("1", &stored).await.unwrap_err().is("gone"));
    });
}

#[test]
fn where_an_object_was_is_known_though_the_answer_to_its_removal_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let name = ObjectName::new("x").unwrap();
    runtime().block_on(async {
        let (_, api) = start(ONE, folder.path()).await;
        {
            let mut broker = api.broker.lock().unwrap();
            broker.place(Instant::ZERO, ID, wish("x")).unwrap();
            let (name, sha256) = (name.clone(), Hasher::default().finish());
            broker
                .stored(Instant::ZERO, ID, wire::StoredReport { name, size: Bytes::new(1), sha256 })
                .unwrap();
        }
        // The first removal is done, and its answer is another.
        let removals = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&removals);
        let lossy = move |request: axum::extract::Request, next: axum::middleware::Next| {
            let removals = Arc::clone(&counted);
            async move {
                let is_removal = request.method() == axum::http::Method::DELETE;
                let answer = next.run(request).await;
                if is_removal && removals.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                    let problem = ApiProblem { error: "no answer".to_owned(), code: wire::AWAY.to_owned() };
                    return json(StatusCode::SERVICE_UNAVAILABLE, &problem);
                }
                answer
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = router(api.clone()).layer(axum::middleware::from_fn(lossy));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = BrokerClient::new(&url, Duration::from_secs(60), None).unwrap();
        let removed = client.remove(&name).await.unwrap();
        assert_eq!(removed.replicas[0].key, format!("x.{ID}"));
        assert_eq!(removals.load(std::sync::atomic::Ordering::SeqCst), 2);
        // Of what never was nothing is known.
        assert!(client.remove(&name).await.unwrap_err().is("unknown-object"));
    });
}

#[test]
fn who_waits_is_answered_when_it_may_begin() {
    run(async |url| {
        let client = BrokerClient::new(&url, Duration::ZERO, None).unwrap();
        let first = client.place(&wish("x")).await.unwrap();
        assert!(first.granted.is_some());
        let second = wish("y");
        let (told, told_by) = tokio::sync::oneshot::channel();
        let told = Mutex::new(Some(told));
        let waits = || {
            let told = told.lock().unwrap().take();
            told.unwrap().send(()).unwrap();
        };
        let end = async {
            told_by.await.unwrap();
            client.end(&first.id, TransferEnd::default()).await.unwrap();
        };
        let (second, ()) = tokio::join!(client.place_and_wait(&second, waits), end);
        assert_eq!(second.unwrap().granted.unwrap().node.as_str(), "a");
    });
}

#[test]
fn what_the_catalogue_may_hold_was_removed_when_its_acknowledgement_did_not_come() {
    let folder = tempfile::tempdir().unwrap();
    let node = folder.path().join("node");
    std::fs::create_dir(&node).unwrap();
    let file = folder.path().join("x");
    std::fs::write(&file, "data").unwrap();
    let config = ONE.replace("/srv/a", node.to_str().unwrap());
    runtime().block_on(async {
        let (url, api) = start(&config, folder.path()).await;
        let settings = MoverSettings::new(wire::ServiceNeeds::Average(1e6));
        let mover =
            FileMover::new(BrokerClient::new(&url, Duration::ZERO, None).unwrap(), places(&config), settings);
        // The disk of the catalogue is full, when the file is on its way.
        let watch = |event: TransferEvent<'_>| {
            if let TransferEvent::Begins(..) = event {
                api.broker.lock().unwrap().fill_disk();
            }
        };
        let failed = mover.put(&file, &ObjectName::new("x").unwrap(), &watch).await.unwrap_err();
        let MoveError::Unsure { key, .. } = failed else { panic!("{failed}") };
        assert_eq!(std::fs::read(node.join(key)).unwrap(), b"data");
    });
}

#[test]
fn a_node_that_failed_was_missed_for_ever_where_the_others_were_too_slow() {
    let folder = tempfile::tempdir().unwrap();
    let [fast, slow] = ["fast", "slow"].map(|name| folder.path().join(name));
    std::fs::create_dir(&slow).unwrap();
    let file = folder.path().join("x");
    std::fs::write(&file, "data").unwrap();
    let node = |name: &str, place: &FilePath, peak: &str| {
        format!("[node.{name}]\nplace = \"file://{}\"\npeak = \"{peak}\"\n", place.display())
    };
    let config = format!(
        "listen = \"127.0.0.1:0\"\nstate = \"unused\"\n{}{}",
        node("fast", &fast, "60MB/s"),
        node("slow", &slow, "20MB/s")
    );
    runtime().block_on(async {
        let (url, api) = start(&config, folder.path()).await;
        tokio::spawn(look(api.clone(), Duration::from_millis(50), BTreeMap::new()));
        let settings = MoverSettings { attempts: 2, ..MoverSettings::new(wire::ServiceNeeds::Average(30e6)) };
        let mover =
            FileMover::new(BrokerClient::new(&url, Duration::ZERO, None).unwrap(), places(&config), settings);
        // It is there again once it has failed, and no other moves as much.
        let watch = |event: TransferEvent<'_>| {
            if let TransferEvent::Failed(..) = event {
                std::fs::create_dir(&fast).unwrap();
            }
        };
        let outcome = mover.put(&file, &ObjectName::new("x").unwrap(), &watch).await.unwrap();
        assert_eq!((outcome.nodes[0].as_str(), outcome.failed), ("fast", 1));
    });
}

/// Says how long it was asked for, and waits to be let on where there is something to wait for.
#[derive(Debug)]
struct Probe {
    asked: std::sync::mpsc::Sender<Duration>,
    hangs: Option<std::sync::mpsc::Receiver<()>>,
}

impl DeviceSensor for Probe {
    fn sample(&mut self, elapsed: Duration) -> DeviceSample {
        let _ = self.asked.send(elapsed);
        if let Some(let_on) = &self.hangs {
            let _ = let_on.recv();
        }
        DeviceSample { lanes: Default::default(), free: None }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn the_first_look_was_at_microseconds_after_the_start() {
    let folder = tempfile::tempdir().unwrap();
    runtime().block_on(async {
        let (_, api) = start(ONE, folder.path()).await;
        let (asked, elapsed) = std::sync::mpsc::channel();
        let probe: Box<dyn DeviceSensor> = Box::new(Probe { asked, hangs: None });
        let interval = Duration::from_millis(30);
        let sensors = BTreeMap::from([(ResourceName::new("a").unwrap(), probe)]);
        let looking = tokio::spawn(look(api.clone(), interval, sensors));
        while api.broker.lock().unwrap().nodes(Instant::ZERO).nodes[0].write.current_bps.is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        looking.abort();
        // The first is where counting begins.
        let elapsed: Vec<_> = elapsed.try_iter().collect();
        assert!(elapsed.len() >= 2 && elapsed[1] >= interval, "{elapsed:?}");
    });
}

#[test]
fn a_sensor_that_hangs_stopped_the_broker() {
    runtime().block_on(async {
        let [a, b] = ["a", "b"].map(|name| ResourceName::new(name).unwrap());
        let (asked, _keep) = std::sync::mpsc::channel();
        let (let_on, hangs) = std::sync::mpsc::channel();
        let hung = Probe { asked: asked.clone(), hangs: Some(hangs) };
        let mut watched = BTreeMap::from([
            (a.clone(), SensorThread::new(Box::new(hung))),
            (b.clone(), SensorThread::new(Box::new(Probe { asked, hangs: None }))),
        ]);
        let interval = Duration::from_millis(200);
        for _ in 0..3 {
            let samples = sample(&mut watched, interval).await;
            assert!(!samples.contains_key(&a));
        }
        drop(let_on);
        // Once it is back it is listened to, and so is the other.
        loop {
            let samples = sample(&mut watched, interval).await;
            if samples.len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn kinds_are_called_alike_in_configurations_and_reports() {
    let described = description()["components"]["schemas"]["Kind"]["enum"].clone();
    let named: Vec<_> = NodeKind::NAMED
        .iter()
        .map(|(name, kind)| {
            assert_eq!(serde_json::to_value(kind).unwrap(), json!(name));
            json!(name)
        })
        .collect();
    assert_eq!(described, Value::from(named));
}

/// A configuration like `ONE` in which clients have to show a token, with two nodes that have agents.
const GUARDED: &str = r#"
listen = "0.0.0.0:0"
state = "unused"
token_file = "token"
[node.a]
place = "file:///srv/a"
agent = true
agent_token_file = "token-of-a"
[node.b]
place = "file:///srv/b"
agent = true
"#;

#[test]
fn who_shows_no_token_is_answered_nothing_and_who_is_a_node_reports_on_that_one() {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(BearerToken::from_file(&path).unwrap())
    };
    let all = token("token", "what-everybody-shows");
    let of_a = token("token-of-a", "what-node-a-shows");
    let other = token("other", "what-nobody-wants");
    let report: SensorReport = serde_json::from_value(json!({
        "run": "0123456789abcdef", "sequence": 1, "at_s": 1.0, "interval_s": 1.0, "kind": "disk", "read": {},
            "write": {}
    }))
    .unwrap();
    let [a, b] = ["a", "b"].map(|name| ResourceName::new(name).unwrap());
    runtime().block_on(async {
        let (url, _) = start(GUARDED, folder.path()).await;
        let client =
            |token: &Option<BearerToken>| BrokerClient::new(&url, Duration::ZERO, token.clone()).unwrap();
        for (token, said) in
            [(&None, "--token-file"), (&other, "is not one for this"), (&of_a, "is not one for this")]
        {
            let client = client(token);
            let refused = [
                client.nodes().await.map(drop),
                client.place(&wish("x")).await.map(drop),
                client.objects(None).await.map(drop),
                client.report(&b, &report).await,
            ];
            for refused in refused {
                let error = refused.unwrap_err();
                assert!(error.is("unauthorized") && error.to_string().contains(said), "{error}");
            }
        }
        for token in [&None, &other] {
            assert!(client(token).report(&a, &report).await.unwrap_err().is("unauthorized"));
        }
        client(&of_a).report(&a, &report).await.unwrap();
        let client = client(&all);
        client.report(&b, &report).await.unwrap();
        client.place(&wish("x")).await.unwrap();
        let nodes = client.nodes().await.unwrap();
        assert!(nodes.nodes.iter().all(|node| node.sensor.is_some()));
        // Each page but its description, and the missing ones, as any client may ask for them.
        let http = crate::store::http_client().unwrap();
        let described = description();
        for (path, operations) in described["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                let page =
                    format!("{url}{}", path.replace("{id}", "0123456789abcdef").replace("{name}", "a"));
                let method = reqwest::Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let answer = http.request(method, page).send().await.unwrap();
                let is_open = operations["get"]["security"] == json!([]);
                assert_eq!(answer.status() == StatusCode::UNAUTHORIZED, !is_open, "{path}");
                assert_eq!(answer.headers().get("www-authenticate").is_some(), !is_open, "{path}");
            }
        }
        let nowhere = http.get(format!("{url}/v2")).send().await.unwrap();
        assert_eq!(nowhere.status(), StatusCode::UNAUTHORIZED);
    });
    let scheme = &description()["components"]["securitySchemes"]["token"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("bearer")));
}

#[test]
fn a_refusal_quoted_a_body_of_any_length() {
    let body = format!("{{\"{}\": true}}", "x".repeat(50_000));
    let refused = super::read::<TransferEnd>(body.as_bytes()).unwrap_err();
    assert!(refused.text().starts_with("this is not understood: unknown field `xxx"));
    assert!(refused.text().len() <= 500);
}
