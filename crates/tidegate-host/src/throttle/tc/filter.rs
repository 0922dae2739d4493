//! The filter of our root: a program that says which class a packet goes to.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{
    CREATE, EXCLUSIVE, HANDLE, KIND, NetlinkBody, OPTIONS, TrafficControl, array, attributes, header,
};

const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;

/// Attributes of a filter that is a program, among its options.
const PROGRAM: u16 = 6;
const NAME: u16 = 7;
const ID: u16 = 11;

/// A filter of our root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Filter {
    pub(in super::super) interface: u32,
    /// The kernel's number of its program.
    pub(in super::super) program: u32,
}

impl TrafficControl {
    /// Has a program choose the class of every packet that comes to our root: by its answer, 0 being none.
    /// The filter is gone when the root is.
    pub(in super::super) fn add_filter(
        &mut self,
        interface: u32,
        program: BorrowedFd<'_>,
        name: &str,
    ) -> io::Result<()> {
        const FIRST: u32 = 1 << 16;
        // In network order: every protocol.
        const ALL: u16 = 0x0003_u16.to_be();
        let number = program.as_raw_fd().to_ne_bytes();
        let options = NetlinkBody::new(&[]).with(PROGRAM, &number).with(NAME, format!("{name}\0").as_bytes());
        let mut fixed = header(interface, 0, u32::from(HANDLE) << 16);
        fixed[16..20].copy_from_slice(&(FIRST | u32::from(ALL)).to_ne_bytes());
        let body = NetlinkBody::new(&fixed).with(KIND, b"bpf\0").with(OPTIONS, options.as_bytes());
        self.netlink.change(NEW_FILTER, CREATE | EXCLUSIVE, &body)
    }

    /// The programs at our root on an interface; none where that is not there.
    pub(in super::super) fn filters(&mut self, interface: u32) -> io::Result<Vec<Filter>> {
        let mut found = Vec::new();
        let wanted = NetlinkBody::new(&header(interface, 0, u32::from(HANDLE) << 16));
        self.netlink.dump(GET_FILTER, &wanted, |message| {
            found.extend(filter(message));
        })?;
        Ok(found)
    }
}

/// A filter that is a program; the kernel names its chain of filters as well, which is not.
fn filter(message: &[u8]) -> Option<Filter> {
    let interface = u32::from_ne_bytes(array(message, 4).ok()?);
    let options = attributes(message.get(20..)?).find(|(kind, _)| *kind == OPTIONS)?.1;
    let id = attributes(options).find(|(kind, _)| *kind == ID)?.1;
    Some(Filter { interface, program: u32::from_ne_bytes(array(id, 0).ok()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_no_filter() {
        let options = NetlinkBody::new(&[]).with(ID, &7_u32.to_ne_bytes());
        let message = |options: &NetlinkBody| {
            NetlinkBody::new(&header(3, 1, 0)).with(KIND, b"bpf\0").with(OPTIONS, options.as_bytes())
        };
        assert_eq!(filter(message(&options).as_bytes()), Some(Filter { interface: 3, program: 7 }));
        assert_eq!(filter(message(&NetlinkBody::new(&[])).as_bytes()), None);
        assert_eq!(filter(&[0; 19]), None);
    }
}
