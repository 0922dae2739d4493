//! Replies to clients, or requests to an upstream, gathered into one send.

#![allow(unsafe_code)]

use std::ptr;

use tidegate_nbd::transmission::ReplyFrame;

use crate::buffer::AlignedBuffer;

/// Items per send: a depth of 32 goes out at once, with room to spare.
const MAX_ITEMS: usize = 64;

/// A part of a message: a head, and a body that is sent from where it lies.
pub(crate) trait MessageItem {
    fn head(&self) -> &[u8];
    fn body(&self) -> &[u8];
}

/// A reply ready to be sent.
#[derive(Debug)]
pub(crate) struct ReadyReply {
    pub(crate) frame: ReplyFrame,
    /// A read's data, or the extents of a block status: the first so many bytes of the buffer.
    pub(crate) data: Option<(AlignedBuffer, usize)>,
    /// The memory that the request was charged with, returned when the reply is sent.
    pub(crate) charged: u64,
}

impl MessageItem for ReadyReply {
    fn head(&self) -> &[u8] {
        &self.frame
    }

    fn body(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |(buffer, length)| &buffer[..*length])
    }
}

/// Items that one vectored send carries, sent from where they lie.
pub(crate) struct ReplyMessage<I> {
    items: Vec<I>,
    vectors: Vec<libc::iovec>,
    header: libc::msghdr,
    /// Bytes of the first item that are sent already.
    sent: usize,
    /// Bytes of the send that was prepared last.
    prepared: usize,
}

// SAFETY: the raw pointers in `vectors` and `header` are written by `prepare` immediately before each use,
// and point only to what the message itself owns.
unsafe impl<I: Send> Send for ReplyMessage<I> {}

impl<I: MessageItem> ReplyMessage<I> {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::with_capacity(MAX_ITEMS),
            vectors: Vec::with_capacity(2 * MAX_ITEMS),
            // SAFETY: a msghdr of zeros is an empty message.
            header: unsafe { std::mem::zeroed() },
            sent: 0,
            prepared: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes of the send that was prepared last.
    pub(crate) fn prepared(&self) -> usize {
        self.prepared
    }

    pub(crate) fn has_room(&self) -> bool {
        self.items.len() < MAX_ITEMS
    }

    pub(crate) fn push(&mut self, item: I) {
        self.items.push(item);
    }

    /// Counts `count` sent bytes and hands over the items that are sent completely.
    pub(crate) fn advance(&mut self, count: usize, mut done: impl FnMut(I)) {
        let mut sent = self.sent + count;
        let mut complete = 0;
        for item in &self.items {
            let length = item.head().len() + item.body().len();
            if sent < length {
                break;
            }
            sent -= length;
            complete += 1;
        }
        self.sent = sent;
        self.items.drain(..complete).for_each(&mut done);
    }

    /// Gives up: hands over every item that is not sent completely.
    pub(crate) fn abandon(&mut self, done: impl FnMut(I)) {
        self.sent = 0;
        self.items.drain(..).for_each(done);
    }

    /// Returns the bytes that are still to be sent.
    #[cfg(test)]
    pub(crate) fn unsent(&self) -> Vec<u8> {
        let bytes = self.items.iter().flat_map(|item| item.head().iter().chain(item.body()));
        bytes.skip(self.sent).copied().collect()
    }

    /// Points the header at what is still to be sent, or at the first `most` bytes of it. It is valid until the
    /// message changes or moves out of its box.
    pub(crate) fn prepare(&mut self, most: usize) -> *const libc::msghdr {
        self.vectors.clear();
        let (mut skip, mut room) = (self.sent, most);
        for item in &self.items {
            for bytes in [item.head(), item.body()] {
                let rest = &bytes[skip.min(bytes.len())..];
                skip -= bytes.len() - rest.len();
                let rest = &rest[..rest.len().min(room)];
                room -= rest.len();
                if !rest.is_empty() {
                    self.vectors
                        .push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
                }
            }
        }
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vectors.len();
        self.prepared = most - room;
        ptr::from_ref(&self.header)
    }
}

impl<I: std::fmt::Debug> std::fmt::Debug for ReplyMessage<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyMessage")
            .field("items", &self.items)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nbd::transmission::{MessageStyle, RepliedRequest};

    use super::*;

    /// Returns the bytes that a socket would receive.
    fn wire(message: &mut ReplyMessage<ReadyReply>) -> Vec<u8> {
        message.prepare(usize::MAX);
        message
            .vectors
            .iter()
            // SAFETY: `prepare` has just pointed the vectors at live bytes of the message.
            .flat_map(|v| unsafe { std::slice::from_raw_parts(v.iov_base.cast::<u8>(), v.iov_len) }.to_vec())
            .collect()
    }

    #[test]
    fn a_send_cut_anywhere_continues_where_it_stopped() {
        let build = || {
            let mut message = ReplyMessage::new();
            for cookie in 0..3u64 {
                let mut buffer = AlignedBuffer::zeroed(10);
                buffer[..10].fill(cookie as u8 + 1);
                let data = (cookie != 1).then_some((buffer, 10));
                let frame = MessageStyle::Simple.success(RepliedRequest { cookie, offset: 0 });
                message.push(ReadyReply { frame, data, charged: 1 });
            }
            message
        };
        let whole = wire(&mut build());
        for first in 0..=whole.len() {
            for second in 0..=(whole.len() - first) {
                let (mut message, mut done) = (build(), 0);
                message.advance(first, |_| done += 1);
                assert_eq!(wire(&mut message), whole[first..]);
                message.advance(second, |_| done += 1);
                assert_eq!(wire(&mut message), whole[first + second..]);
                assert_eq!(message.is_empty(), first + second == whole.len());
                assert_eq!(done == 3, message.is_empty());
            }
        }
    }
}
