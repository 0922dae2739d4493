//! Answers on their way to clients: how far each is, and how many large ones are in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Bytes that a connection takes from an answer at once, so that a connection by TLS has no copy of it all.
const PORTION: usize = 64 * 1024;

/// Answers of this length and more are counted.
pub(crate) const LARGE_ANSWER: u64 = 256 * 1024;

/// Different large answers in memory at once, for all clients that are no operators.
const MOST_LARGE: usize = 4;

/// The time for which a large answer is never given up for another one.
const LEAST_TIME: Duration = Duration::from_secs(2);

/// The progress of a connection's answer, which its stream notes.
#[derive(Debug)]
pub(crate) struct AnswerProgress {
    begin: Instant,
    /// The time when the client last took bytes, in nanoseconds after `begin`.
    last_taken: AtomicU64,
    is_handed_over: AtomicBool,
    is_taken: AtomicBool,
}

impl Default for AnswerProgress {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            last_taken: AtomicU64::new(0),
            is_handed_over: AtomicBool::new(false),
            is_taken: AtomicBool::new(false),
        }
    }
}

impl AnswerProgress {
    /// A new answer is made.
    pub(crate) fn restart(&self) {
        self.is_handed_over.store(false, Ordering::Relaxed);
        self.is_taken.store(false, Ordering::Relaxed);
    }

    /// Returns the time when the client last took bytes.
    pub(crate) fn last_taken(&self) -> Instant {
        self.begin + Duration::from_nanos(self.last_taken.load(Ordering::Relaxed))
    }

    /// Returns true if the kernel has all of the answer.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    pub(crate) fn note_bytes(&self) {
        let nanos = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_taken.store(nanos, Ordering::Relaxed);
    }

    /// The kernel has all bytes that the stream was given.
    pub(crate) fn note_flush(&self) {
        if self.is_handed_over.load(Ordering::Relaxed) {
            self.is_taken.store(true, Ordering::Relaxed);
        }
    }
}

/// The body of an answer, in portions.
pub(crate) struct AnswerBody {
    body: Body,
    /// The rest of a frame of `body`.
    rest: Bytes,
    progress: Arc<AnswerProgress>,
}

impl AnswerBody {
    pub(crate) fn new(body: Body, progress: Arc<AnswerProgress>) -> Self {
        Self { body, rest: Bytes::new(), progress }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let portion = self.rest.len().min(PORTION);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(portion)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.progress.is_handed_over.store(true, Ordering::Relaxed);
    }
}

/// A large answer, and the connections that have not taken all of it.
#[derive(Debug)]
struct LargeAnswer {
    /// The address of its bytes: clients with the same page share these.
    identity: usize,
    since: Instant,
    holders: Vec<(u64, Arc<AnswerProgress>)>,
}

/// The outcome of keeping a large answer for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeldAnswer {
    /// The answer stays in memory until its connection has taken all of it.
    Held,
    /// The same, and these connections end, which had the oldest.
    InPlaceOf(Vec<u64>),
    /// Too many others are in memory, and none for long.
    Full,
}

/// The large answers that connections have not taken.
#[derive(Debug, Default)]
pub(crate) struct LargeAnswers(Vec<LargeAnswer>);

impl LargeAnswers {
    pub(crate) fn hold(
        &mut self,
        identity: usize,
        connection: u64,
        progress: &Arc<AnswerProgress>,
        now: Instant,
    ) -> HeldAnswer {
        for answer in &mut self.0 {
            answer.holders.retain(|(_, progress)| !progress.is_taken());
        }
        self.0.retain(|answer| !answer.holders.is_empty());
        let holder = (connection, Arc::clone(progress));
        if let Some(known) = self.0.iter_mut().find(|answer| answer.identity == identity) {
            known.holders.push(holder);
            return HeldAnswer::Held;
        }
        let mut displaced = Vec::new();
        if self.0.len() >= MOST_LARGE {
            // In the order in which they came.
            if now.saturating_duration_since(self.0[0].since) < LEAST_TIME {
                return HeldAnswer::Full;
            }
            displaced.extend(self.0.remove(0).holders.into_iter().map(|(id, _)| id));
        }
        self.0.push(LargeAnswer { identity, since: now, holders: vec![holder] });
        if displaced.is_empty() { HeldAnswer::Held } else { HeldAnswer::InPlaceOf(displaced) }
    }

    /// The connection has ended, or makes a new answer.
    pub(crate) fn release(&mut self, connection: u64) {
        for answer in &mut self.0 {
            answer.holders.retain(|(id, _)| *id != connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn an_answer_goes_in_portions_and_keeps_its_length() {
        let text: Vec<u8> = (0..3 * PORTION + 5).map(|at| at as u8).collect();
        let progress = Arc::new(AnswerProgress::default());
        let mut body = AnswerBody::new(Body::from(text.clone()), Arc::clone(&progress));
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut taken = Vec::new();
        runtime.block_on(async {
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                assert!(data.len() <= PORTION);
                taken.extend_from_slice(&data);
                assert_eq!(body.size_hint().exact(), Some((text.len() - taken.len()) as u64));
            }
        });
        assert!(taken == text && body.is_end_stream());
        progress.note_flush();
        assert!(!progress.is_taken(), "the body is still there");
        drop(body);
        progress.note_flush();
        assert!(progress.is_taken());
    }

    #[test]
    fn few_large_answers_are_held_however_many_clients_take_none() {
        let (mut answers, now) = (LargeAnswers::default(), Instant::now());
        let progress = || Arc::new(AnswerProgress::default());
        for connection in 0..100 {
            let identity = usize::try_from(connection).unwrap() % MOST_LARGE;
            assert_eq!(answers.hold(identity, connection, &progress(), now), HeldAnswer::Held);
        }
        assert_eq!(answers.hold(99, 100, &progress(), now + LEAST_TIME / 2), HeldAnswer::Full);
        let HeldAnswer::InPlaceOf(displaced) = answers.hold(99, 100, &progress(), now + LEAST_TIME) else {
            panic!("the oldest is given up")
        };
        assert_eq!(displaced, (0..25).map(|at| at * 4).collect::<Vec<_>>());
        assert_eq!(answers.0.len(), MOST_LARGE);
        // Of another answer, all holders but one have gone.
        (1..100).filter(|at| at % 4 == 1 && *at != 5).for_each(|at| answers.release(at));
        answers.0[0].holders[0].1.is_taken.store(true, Ordering::Relaxed);
        assert_eq!(answers.hold(98, 101, &progress(), now), HeldAnswer::Held);
    }
}
