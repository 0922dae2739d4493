use super::*;

#[tokio::test]
async fn a_file_that_became_shorter_was_blamed_on_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    std::fs::write(&file, "short").unwrap();
    // A server that takes whatever comes.
    let router = axum::Router::new().fallback(async |_: axum::body::Bytes| ());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let needs = ServiceNeeds::Average(1.0);
    let places = format!("[node.a]\nplace = \"{url}\"");
    let places = NodePlaces::parse(Path::new("nodes.toml"), &places).unwrap();
    let mover = FileMover::new(
        BrokerClient::new(&url, Duration::ZERO, None).unwrap(),
        places,
        MoverSettings::new(needs),
    );
    let granted = TransferPermit {
        node: ResourceName::new("a").unwrap(),
        place: url,
        key: Some("x.1".to_owned()),
        expected_bps: ByteRate::ZERO,
        expected_first_byte_s: None,
        size: Bytes::new(10_000_000),
        sha256: None,
    };
    let mut meter = AttemptMeter::new(needs);
    let wish = mover.wish(DataDirection::Write);
    let outcome = mover.put_once(&file, &wish, None, "1", &granted, &mut meter, &|_| ()).await;
    assert!(matches!(outcome, Err(AttemptEnd::Fatal(MoveError::Changed(_)))));
}

#[tokio::test]
async fn a_recall_from_tape_took_longer_than_a_small_answer_and_failed() {
    // A server that answers once it can read.
    let router = axum::Router::new().fallback(async || {
        sleep(crate::store::ANSWER + Duration::from_secs(1)).await;
        "recalled"
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let store = NodeStore::open(&url.parse().unwrap()).unwrap();
    let mut pieces = store.get("x.1", 0).await.unwrap();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "recalled");
}

#[tokio::test]
async fn a_broker_that_was_slow_to_hear_of_a_short_transfer_made_it_slow() {
    let router = axum::Router::new().fallback(async || sleep(Duration::from_secs(60)).await);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    // With a second more it is less than this; nine tenths of one a busy machine may take.
    let needs = ServiceNeeds::Average(5.5e6);
    let places = NodePlaces::none(Path::new("nodes.toml"));
    let mover = FileMover::new(
        BrokerClient::new(&url, Duration::ZERO, None).unwrap(),
        places,
        MoverSettings::new(needs),
    );
    let mut meter = AttemptMeter::new(needs);
    let moved = Arc::clone(&meter.moved);
    // At once, which is well above what is needed, and stays so unless the second of the broker's is its own.
    let outcome = mover.beside("1", &mut meter, &|_| (), async { moved.add(5_000_000) }).await;
    assert!(outcome.is_ok());
    assert_eq!(meter.kept.is_kept(), Some(true));
}
