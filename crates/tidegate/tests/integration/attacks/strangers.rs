//! Another user of the machine.

use std::thread;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Does something as the user nobody, in a thread of its own: only this thread becomes it.
pub(super) fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let become_nobody = move || {
        let (nobody, nogroup) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
        work()
    };
    thread::spawn(become_nobody).join().unwrap()
}
