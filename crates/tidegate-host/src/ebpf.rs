//! Helpers for loading eBPF programs of any kind into the kernel.

use std::error::Error;
use std::io;

use aya::Ebpf;
use aya::maps::{Map, MapError};
use aya::programs::ProgramError;

/// A map of an object that was loaded.
pub(crate) fn take<T: TryFrom<Map, Error = MapError>>(loaded: &mut Ebpf, name: &str) -> io::Result<T> {
    let map = loaded.take_map(name).ok_or_else(|| lacks(name))?;
    T::try_from(map).map_err(|error| failed(name, &error))
}

/// An object without what it is compiled with.
pub(crate) fn lacks(what: &str) -> io::Error {
    io::Error::other(format!("the program lacks {what}"))
}

/// Returns the reason that a program was not loaded. The kernel's report on each instruction is left out: it
/// is for the program's authors.
pub(crate) fn not_loaded(program: &str, error: ProgramError) -> io::Error {
    match error {
        ProgramError::LoadError { io_error, .. } => io_error,
        other => failed(program, &other),
    }
}

/// An error with what caused it. Of the kernel's answers the kind is kept.
pub(crate) fn failed(what: &str, error: &(dyn Error + 'static)) -> io::Error {
    let mut said = format!("eBPF, {what}: {error}");
    let mut kind = io::ErrorKind::Other;
    let mut next = error.source();
    while let Some(cause) = next {
        said += &format!(": {cause}");
        if let Some(answer) = cause.downcast_ref::<io::Error>() {
            kind = answer.kind();
        }
        next = cause.source();
    }
    io::Error::new(kind, said)
}
