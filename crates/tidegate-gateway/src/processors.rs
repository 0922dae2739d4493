//! The processors that a pool's threads run on.

use std::fmt;
use std::io;
use std::num::ParseIntError;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

/// A set of processors, written as the kernel writes it: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorSet {
    text: String,
    /// Not empty.
    numbers: Vec<usize>,
}

/// The reasons why a text names no set of processors.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProcessorSetError {
    /// A part of it is neither a number nor a range.
    #[error("{0:?} is neither the number of a processor nor a range such as `0-3`")]
    Part(String),
    /// A number that no kernel gives.
    #[error("processors have numbers below {most}, not {0}", most = CpuSet::MAX_CPU)]
    TooGreat(usize),
}

impl ProcessorSet {
    /// Has this thread, and all that it starts, run on these processors only.
    ///
    /// # Errors
    /// When this process may not use one of them, or the machine does not have it.
    pub(crate) fn bind(&self) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        if let Some(other) = self.numbers.iter().find(|number| !allowed.is_set(**number)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("its `processors` are {self}, and processor {other} is not there for the service"),
            ));
        }
        let mut set = CpuSet::new();
        self.numbers.iter().for_each(|number| set.set(*number));
        Ok(sched_setaffinity(None, &set)?)
    }
}

impl FromStr for ProcessorSet {
    type Err = ProcessorSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = Vec::new();
        for part in text.split(',').map(str::trim) {
            let wrong = |_: ParseIntError| ProcessorSetError::Part(part.to_owned());
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().map_err(wrong)?, last.parse().map_err(wrong)?);
            if first > last {
                return Err(ProcessorSetError::Part(part.to_owned()));
            }
            if last >= CpuSet::MAX_CPU {
                return Err(ProcessorSetError::TooGreat(last));
            }
            numbers.extend(first..=last);
        }
        Ok(Self { text: text.to_owned(), numbers })
    }
}

impl fmt::Display for ProcessorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Result<Vec<usize>, ProcessorSetError> {
        text.parse().map(|set: ProcessorSet| set.numbers)
    }

    #[test]
    fn sets_are_written_as_the_kernel_writes_them() {
        assert_eq!(numbers("3"), Ok(vec![3]));
        assert_eq!(numbers("0-2, 8"), Ok(vec![0, 1, 2, 8]));
        for wrong in ["", "a", "3-1", "1-", "-1", "1,,2", "0-3-5"] {
            assert!(matches!(numbers(wrong), Err(ProcessorSetError::Part(_))), "{wrong}");
        }
        assert_eq!(numbers("0-4000"), Err(ProcessorSetError::TooGreat(4000)));
    }

    #[test]
    fn a_thread_runs_where_it_is_bound_and_nowhere_else() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number)).unwrap();
        let absent = (0..CpuSet::MAX_CPU).find(|number| !allowed.is_set(*number)).unwrap();
        let child = std::thread::spawn(move || {
            ProcessorSet::from_str(&format!("{first},{absent}")).unwrap().bind().unwrap_err();
            ProcessorSet::from_str(&first.to_string()).unwrap().bind().unwrap();
            std::thread::spawn(|| sched_getaffinity(None).unwrap()).join().unwrap()
        });
        let bound = child.join().unwrap();
        assert!(bound.count() == 1 && bound.is_set(first), "its own threads too");
    }
}
