//! The NATS carrier: statistics on core subjects, policies in a key-value bucket. The only part with a
//! runtime in it.
//!
//! The client library would reconnect by itself, keep what was published meanwhile, and revive subscriptions,
//! but not watches. A session here ends when its connection does, and the next one begins anew: there is then
//! one state to be in, nothing stale is sent, and what was watched is watched again.

mod bucket;
mod connection;
mod subject;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message as Delivered, Subscriber};
use futures_util::StreamExt as _;
use tidegate_nats::NatsServers;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant as Timer, sleep, sleep_until, timeout};

use self::bucket::BucketFault;
pub use self::bucket::{PolicyError, policy_get, policy_put};
use self::connection::{ConnectionPurpose, Told, connect, explain};
use crate::config::NatsConfig;
use crate::notice::LogNotice;
use crate::policy_board::PolicyBoard;
use crate::rejection::MessageRejection;
use crate::shared::SharedState;
use crate::wire::Message;

/// Between attempts to connect: at first, doubled each time, and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Between attempts to use the bucket.
const BUCKET_AGAIN: Duration = Duration::from_secs(2);

/// For the last message to leave.
const GOODBYE: Duration = Duration::from_millis(500);

/// The end of a connection for which the server gave no reason.
const ENDED: &str = "the connection has ended";

pub(crate) struct NatsCarrier {
    shared: Arc<SharedState>,
    config: NatsConfig,
    servers: NatsServers,
    board: Arc<PolicyBoard>,
    sequence: Cell<u64>,
    /// The server's complaint and the reason why policies are not followed, while the connection stands.
    troubles: RefCell<[Option<String>; 2]>,
    /// The times when each kind of fault of the policies was logged.
    complaints: RefCell<HashMap<Discriminant<BucketFault>, LogNotice>>,
}

/// Positions in `NatsCarrier::troubles`.
const SERVER: usize = 0;
const POLICIES: usize = 1;

impl NatsCarrier {
    pub(crate) fn new(shared: Arc<SharedState>, config: NatsConfig, board: Arc<PolicyBoard>) -> Self {
        Self {
            shared,
            servers: NatsServers::new(&config.servers),
            config,
            board,
            sequence: Cell::new(0),
            troubles: RefCell::default(),
            complaints: RefCell::default(),
        }
    }

    /// Runs until it is told to stop, and then takes its leave.
    pub(crate) fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                if let Err(error) = runtime.block_on(self.live()) {
                    self.shared.set_line(false, Some(format!("its runtime fails: {error}")));
                }
                // Whatever still resolves a name is not waited for.
                runtime.shutdown_background();
            }
            Err(error) => self.shared.set_line(false, Some(format!("cannot start its runtime: {error}"))),
        }
    }

    async fn live(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let woken = UnixStream::from_std(shared.woken().try_clone()?)?;
        let mut pause = BACK_OFF.0;
        while !shared.stopped() {
            let begun = shared.now();
            let end = self.session(&woken).await;
            if shared.stopped() {
                break;
            }
            shared.set_line(false, Some(format!("{}: {end}", self.config.servers.join(", "))));
            if shared.now().saturating_since(begun) > BACK_OFF.1 {
                pause = BACK_OFF.0;
            }
            // Hosts that lost their server at the same time do not all come back at the same time.
            self.rest(
                &woken,
                pause.mul_f64(0.5 + fraction(shared.incarnation.0 ^ u128::from(begun.as_nanos()))),
            )
            .await?;
            pause = (pause * 2).min(BACK_OFF.1);
        }
        Ok(())
    }

    /// Waits, but not after the end has come.
    async fn rest(&self, woken: &UnixStream, pause: Duration) -> std::io::Result<()> {
        let until = Timer::now() + pause;
        while !self.shared.stopped() {
            tokio::select! {
                () = sleep_until(until) => break,
                ready = woken.readable() => {
                    ready?;
                    drain(woken);
                }
            }
        }
        Ok(())
    }

    /// A connection's life. Returns why it ended.
    async fn session(&self, woken: &UnixStream) -> String {
        let (sender, mut told) = mpsc::channel(16);
        let ping = self.shared.interval.saturating_mul(5).max(Duration::from_secs(1));
        let purpose = ConnectionPurpose::Session { events: sender, ping };
        let (client, relay) = match connect(&self.config, &self.servers, purpose).await {
            Ok(connected) => connected,
            Err(why) => return why,
        };
        let all = subject::of_all_hosts(&self.shared.cluster);
        let heard = match client.subscribe(all).await {
            Ok(heard) => heard,
            Err(error) => return error.to_string(),
        };
        self.troubles.take();
        self.tell();
        self.shared.peers().begin_anew();
        tokio::select! {
            end = self.exchange(&client, heard, woken) => end,
            end = self.listen(&mut told) => end,
            end = relay.end() => end.map_or_else(|| ENDED.to_owned(), |error| explain(&error)),
            never = self.follow_policies(&client) => match never {},
        }
    }

    /// Returns when the connection has ended.
    async fn listen(&self, told: &mut mpsc::Receiver<Told>) -> String {
        while let Some(Told::Complaint(complaint)) = told.recv().await {
            self.set_trouble(SERVER, Some(format!("it complains: {complaint}")));
        }
        ENDED.to_owned()
    }

    /// Keeps the board as the bucket is. Without one the exchange goes on.
    async fn follow_policies(&self, client: &Client) -> Infallible {
        loop {
            let why = match bucket::open(client, &self.shared.cluster, self.config.replicas).await {
                Ok(store) => {
                    self.set_trouble(POLICIES, None);
                    let warn = |complaint: BucketFault| self.complain(&complaint);
                    bucket::follow(&store, &self.config, &self.shared.cluster, &self.board, warn).await
                }
                Err(error) => error.to_string(),
            };
            self.set_trouble(POLICIES, Some(format!("policies are not followed: {why}")));
            sleep(BUCKET_AGAIN).await;
        }
    }

    fn complain(&self, complaint: &BucketFault) {
        let mut complaints = self.complaints.borrow_mut();
        let notice = complaints.entry(discriminant(complaint)).or_default();
        if let Some(left_out) = notice.due(self.shared.now()) {
            let more =
                if left_out > 0 { format!(" ({left_out} more of this kind before)") } else { String::new() };
            tracing::warn!("cluster {}: {complaint}{more}", self.shared.cluster);
        }
    }

    fn set_trouble(&self, which: usize, trouble: Option<String>) {
        self.troubles.borrow_mut()[which] = trouble;
        self.tell();
    }

    fn tell(&self) {
        let troubles: Vec<_> = self.troubles.borrow().iter().flatten().cloned().collect();
        self.shared.set_line(true, (!troubles.is_empty()).then(|| troubles.join("; ")));
    }

    async fn exchange(&self, client: &Client, mut heard: Subscriber, woken: &UnixStream) -> String {
        let ours = subject::of_host(&self.shared.cluster, &self.shared.host);
        let mut said: Option<Timer> = None;
        loop {
            let next = said.map_or_else(Timer::now, |said| said + self.shared.pause());
            if self.shared.stopped() {
                let _ = timeout(GOODBYE, self.say(client, &ours, true)).await;
                return String::new();
            }
            tokio::select! {
                () = sleep_until(next) => {
                    if let Err(why) = self.say(client, &ours, false).await {
                        return why;
                    }
                    self.shared.review_members(self.shared.now());
                    said = Some(Timer::now());
                }
                ready = woken.readable() => {
                    if let Err(error) = ready {
                        return error.to_string();
                    }
                    drain(woken);
                }
                message = heard.next() => match message {
                    Some(message) => self.hear(&message),
                    None => return "the subscription has ended".to_owned(),
                }
            }
        }
    }

    async fn say(&self, client: &Client, subject: &str, leaving: bool) -> Result<(), String> {
        self.sequence.set(self.sequence.get() + 1);
        let message = self.shared.message(self.sequence.get(), self.shared.take_news(), leaving);
        let mut bytes = Vec::new();
        message.write(&self.shared.cluster, &mut bytes);
        client.publish(subject.to_owned(), bytes.into()).await.map_err(|error| error.to_string())?;
        client.flush().await.map_err(|error| error.to_string())?;
        self.shared.count_sent();
        Ok(())
    }

    fn hear(&self, delivered: &Delivered) {
        let read = Message::read(&self.shared.cluster, &delivered.payload).and_then(|(message, rest)| {
            if !rest.is_empty() {
                return Err(MessageRejection::Malformed("something follows its end"));
            }
            // If the server binds each host to its own subject, no host can speak for another one.
            let host = subject::of_host(&self.shared.cluster, &message.sender.host);
            if host != delivered.subject.as_str() {
                return Err(MessageRejection::Malformed("its subject is another host's"));
            }
            Ok(message)
        });
        self.shared.hear(self.shared.now(), read, &delivered.subject, None);
    }
}

/// Takes what woke us; the runtime learns by it that there is nothing more.
fn drain(woken: &UnixStream) {
    let mut bytes = [0; 64];
    while woken.try_read(&mut bytes).is_ok_and(|read| read > 0) {}
}

/// A number from 0 to 1 that differs from host to host, and from time to time.
fn fraction(seed: u128) -> f64 {
    // Fibonacci hashing spreads what differs in the low bits over the high ones.
    let mixed = (seed as u64 ^ (seed >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}
