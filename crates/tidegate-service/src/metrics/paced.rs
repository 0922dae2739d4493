//! Answers of the service that are made for all that ask at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The pause between two answers. Each of them interrupts every pool's worker for some microseconds: twenty
/// in a second are not felt, and a client that asks in a loop gets no more.
const PACE: Duration = Duration::from_millis(50);

/// Earlier answers that clients still take, from which on new ones are made at the pace of slow readers.
const MOST_HELD: usize = 2;

/// The pause between two answers while readers are slow. Chosen: Prometheus scrapes no more often than this by
/// default, and an honest reader has twice as long before its page is given up.
const SLOW_PACE: Duration = Duration::from_secs(5);

/// A page whose bytes all its readers share.
#[derive(Debug)]
pub struct SharedPage {
    text: Bytes,
    /// The page in another form.
    other: OnceLock<Bytes>,
}

impl SharedPage {
    /// Makes a page of its text.
    #[must_use]
    pub fn new(text: String) -> Arc<Self> {
        Arc::new(Self { text: text.into(), other: OnceLock::new() })
    }

    /// Returns the page as it was made.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.text.clone()
    }

    /// Returns the page in another form, which is made once.
    pub fn in_other_form(&self, form: impl FnOnce(&str) -> String) -> Bytes {
        // Invariant: `text` was a string.
        let text = || std::str::from_utf8(&self.text).unwrap_or_default();
        self.other.get_or_init(|| form(text()).into()).clone()
    }

    /// Returns true while readers take the page.
    fn is_held(&self) -> bool {
        !self.text.is_unique() || self.other.get().is_some_and(|other| !other.is_unique())
    }
}

/// The last answer, and the requests that it is for.
#[derive(Debug, Default)]
struct Last {
    /// Requests with a lower number came before it was made.
    covers: u64,
    made: Option<Instant>,
    answer: Option<Arc<SharedPage>>,
    /// Earlier answers that readers still take.
    held: Vec<Arc<SharedPage>>,
}

/// One answer at a time, and the same for all requests that came before it was made.
#[derive(Debug, Default)]
pub struct PacedAnswer {
    requests: AtomicU64,
    last: Mutex<Last>,
}

impl PacedAnswer {
    /// Returns an answer that was made after this was called. While slow readers hold earlier answers, a
    /// caller that is no operator may get one that is some seconds old. `None`: the service does not answer.
    pub async fn next(
        &self,
        is_operator: bool,
        make: impl AsyncFnOnce() -> Option<Arc<SharedPage>>,
    ) -> Option<Arc<SharedPage>> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if number < last.covers {
            return last.answer.clone();
        }
        last.held.retain(|page| page.is_held());
        if let Some(made) = last.made {
            let is_slow = !is_operator && last.held.len() >= MOST_HELD && last.answer.is_some();
            if is_slow && made.elapsed() < SLOW_PACE {
                return last.answer.clone();
            }
            sleep_until(made + PACE).await;
        }
        let covers = self.requests.load(Ordering::Relaxed);
        let answer = make().await;
        let before = last.answer.take().filter(|page| page.is_held());
        last.held.extend(before);
        (last.covers, last.made, last.answer) = (covers, Some(Instant::now()), answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn requests_that_come_together_get_one_answer_and_a_later_one_gets_another() {
        run(async {
            let (paced, made) = (PacedAnswer::default(), Cell::new(0));
            let ask = async || {
                let page = paced.next(false, async || {
                    tokio::task::yield_now().await;
                    made.set(made.get() + 1);
                    Some(SharedPage::new(made.get().to_string()))
                });
                page.await.unwrap().bytes()
            };
            let (a, b, c) = tokio::join!(ask(), ask(), ask());
            // The second comes while the first is being made, and the third with it.
            assert_eq!([a, b, c], ["1", "2", "2"]);
            let begin = Instant::now();
            assert_eq!(ask().await, "3");
            assert!(begin.elapsed() >= PACE / 2);
        });
    }

    #[test]
    fn slow_readers_share_few_answers_and_operators_get_new_ones() {
        run(async {
            let (paced, made) = (PacedAnswer::default(), Cell::new(0));
            let ask = async |is_operator| {
                let page = paced.next(is_operator, async || {
                    made.set(made.get() + 1);
                    Some(SharedPage::new(made.get().to_string()))
                });
                page.await.unwrap().bytes()
            };
            let mut held = Vec::new();
            for _ in 0..20 {
                held.push(ask(false).await);
            }
            assert_eq!((held[0].as_ref(), held[19].as_ref()), (&b"1"[..], &b"3"[..]));
            assert_eq!(ask(true).await, "4");
            held.clear();
            assert_eq!(ask(false).await, "5");
        });
    }
}
