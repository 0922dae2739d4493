//! Work on all processors, with progress on a terminal.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Runs many pieces of work on all processors.
pub(crate) struct ParallelRunner {
    /// True if progress is shown on stderr.
    live: bool,
}

impl ParallelRunner {
    pub(crate) const fn new(live: bool) -> Self {
        Self { live }
    }

    /// Does something with each, on all processors. The results come in their order.
    ///
    /// # Errors
    /// The first that fails; the others are then not begun.
    pub(crate) fn each<T: Sync, R: Send, E: Send>(
        &self,
        list: &[T],
        name: impl Fn(&T) -> String,
        run: impl Fn(&T) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, E> {
        let next = AtomicUsize::new(0);
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(list.len());
        let (sender, done) = mpsc::channel();
        let mut results: Vec<Option<R>> = list.iter().map(|_| None).collect();
        let mut failed = None;
        thread::scope(|scope| {
            for _ in 0..threads {
                let (sender, next, run) = (sender.clone(), &next, &run);
                scope.spawn(move || {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(one) = list.get(place) else { break };
                        let result = run(one);
                        if result.is_err() {
                            // Nothing more needs to be begun.
                            next.store(list.len(), Ordering::Relaxed);
                        }
                        if sender.send((place, result)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for (count, (place, result)) in (1..).zip(&done) {
                self.show(count, list.len(), &name(&list[place]));
                match result {
                    Ok(result) => results[place] = Some(result),
                    Err(error) => failed = failed.take().or(Some(error)),
                }
            }
        });
        self.clear();
        match failed {
            Some(error) => Err(error),
            // None is missing: every piece that did not fail was run, and a thread that panicked has ended
            // the scope.
            None => Ok(results.into_iter().flatten().collect()),
        }
    }

    fn show(&self, done: usize, of: usize, name: &str) {
        if self.live {
            // A progress line that cannot be shown is no failure.
            let _ = write!(io::stderr(), "\r\x1b[K{done}/{of}  {name}");
        }
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
