//! Runs simulations on all processors.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use tidegate_sim::experiments::{Job, Jobs, RunResult};

use super::ReproduceError;

/// What runs them.
pub(super) struct Executor {
    /// Whether to show progress on stderr.
    live: bool,
}

impl Executor {
    pub(super) const fn new(live: bool) -> Self {
        Self { live }
    }

    /// Runs all jobs. The results come in the jobs' order, whichever was done first.
    ///
    /// # Errors
    /// The first job that cannot be simulated; the others are then not begun.
    pub(super) fn run(&self, jobs: &Jobs<'_>) -> Result<Vec<RunResult>, ReproduceError> {
        let list = jobs.list();
        let next = AtomicUsize::new(0);
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(list.len());
        let (sender, done) = mpsc::channel();
        let mut results: Vec<Option<RunResult>> = list.iter().map(|_| None).collect();
        let mut failed = None;
        thread::scope(|scope| {
            for _ in 0..threads {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = list.get(place) else { break };
                        let result = simulate_one(job);
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
                self.show(count, list.len(), &list[place]);
                match result {
                    Ok(result) => results[place] = Some(result),
                    Err(error) => failed = failed.take().or(Some(error)),
                }
            }
        });
        self.clear();
        match failed {
            Some(error) => Err(error),
            // None is missing: what did not fail was run, and a thread that panicked has ended the scope.
            None => Ok(results.into_iter().flatten().collect()),
        }
    }

    fn show(&self, done: usize, of: usize, job: &Job<'_>) {
        if self.live {
            // A progress line that cannot be shown is no failure.
            let _ = write!(io::stderr(), "\r\x1b[K{done}/{of}  {}, seed {}", job.subject.name(), job.seed);
        }
    }

    fn clear(&self) {
        if self.live {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn simulate_one(job: &Job<'_>) -> Result<RunResult, ReproduceError> {
    job.run().map_err(|source| ReproduceError::Simulate { what: job.subject.name().to_owned(), source })
}
