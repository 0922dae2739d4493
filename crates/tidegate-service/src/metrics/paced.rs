//! Answers of the service that are made for all that ask at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// The pause between two answers. Each of them interrupts every pool's worker for some microseconds: twenty
/// in a second are not felt, and a client that asks in a loop gets no more.
const PACE: Duration = Duration::from_millis(50);

/// The last answer, and the requests that it is for.
#[derive(Debug, Default)]
struct Last {
    /// Requests with a lower number came before it was made.
    covers: u64,
    made: Option<Instant>,
    answer: Option<Arc<str>>,
}

/// One answer at a time, and the same for all requests that came before it was made.
#[derive(Debug, Default)]
pub struct PacedAnswer {
    requests: AtomicU64,
    last: Mutex<Last>,
}

impl PacedAnswer {
    /// Returns an answer that was made after this was called. `None`: the service does not answer.
    pub async fn next(&self, make: impl AsyncFnOnce() -> Option<Arc<str>>) -> Option<Arc<str>> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last.lock().await;
        if number < last.covers {
            return last.answer.clone();
        }
        if let Some(made) = last.made {
            sleep_until(made + PACE).await;
        }
        let covers = self.requests.load(Ordering::Relaxed);
        let answer = make().await;
        *last = Last { covers, made: Some(Instant::now()), answer: answer.clone() };
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn requests_that_come_together_get_one_answer_and_a_later_one_gets_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (paced, made) = (PacedAnswer::default(), Cell::new(0));
            let ask = || {
                paced.next(async || {
                    tokio::task::yield_now().await;
                    made.set(made.get() + 1);
                    Some(made.get().to_string().into())
                })
            };
            let (a, b, c) = tokio::join!(ask(), ask(), ask());
            // The second comes while the first is being made, and the third with it.
            assert_eq!([a, b, c].map(|answer| answer.unwrap().to_string()), ["1", "2", "2"]);
            let begin = Instant::now();
            assert_eq!(ask().await.as_deref(), Some("3"));
            assert!(begin.elapsed() >= PACE / 2);
        });
    }
}
