//! One direction of a TCP connection: sequence numbers, a window, acknowledgements. No packet is lost here,
//! so none is sent twice. No congestion window is modelled: it grows until a packet is lost.

use std::collections::BTreeMap;

/// A piece of the stream on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamPiece {
    /// Its first byte, from the beginning of the stream.
    pub(super) from: u64,
    /// Number of bytes.
    pub(super) bytes: u64,
}

/// A stream of bytes, as its sender and its receiver see it.
#[derive(Debug, Clone)]
pub(super) struct ByteStream {
    /// Bytes that the sender's program has written.
    written: u64,
    /// Bytes that were sent.
    sent: u64,
    /// Offset up to which the sender may send, as it knows: the latest acknowledgement that reached it, plus
    /// the window.
    edge: u64,
    /// Bytes that the receiver has without a gap. Its program takes them at once.
    received: u64,
    /// Ranges that the receiver has beyond a gap, by beginning and end: packets that overtook others. Within
    /// one window.
    beyond: BTreeMap<u64, u64>,
    /// Number of bytes that may be under way: the receiver's room.
    window: u64,
}

impl ByteStream {
    pub(super) const fn new(window: u64) -> Self {
        Self { written: 0, sent: 0, edge: window, received: 0, beyond: BTreeMap::new(), window }
    }

    /// Writes the bytes of the sender's program. Returns the end of the written data.
    pub(super) const fn write(&mut self, bytes: u64) -> u64 {
        self.written += bytes;
        self.written
    }

    /// Returns the offset of the next piece.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes the bytes that may be sent now, at most `most` at a time. The end of the window is used up also
    /// where it is no whole segment: iSCSI turns Nagle's algorithm off.
    pub(super) fn next(&mut self, most: u64) -> Option<StreamPiece> {
        let bytes = (self.written.min(self.edge) - self.sent).min(most);
        let piece = StreamPiece { from: self.sent, bytes };
        self.sent += bytes;
        (bytes > 0).then_some(piece)
    }

    /// A piece reaches the receiver: in any order, each once. One without bytes is an acknowledgement by
    /// itself.
    pub(super) fn arrive(&mut self, piece: StreamPiece) {
        let end = piece.from + piece.bytes;
        if piece.bytes == 0 {
            return;
        }
        if piece.from > self.received {
            self.beyond.insert(piece.from, end);
            return;
        }
        self.received = self.received.max(end);
        while let Some(next) = self.beyond.first_entry().filter(|next| *next.key() <= self.received) {
            self.received = self.received.max(next.remove());
        }
    }

    /// Returns the number of bytes that the receiver has without a gap.
    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the acknowledgement of the receiver's next packet: the offset up to which the sender may send.
    pub(super) const fn allows(&self) -> u64 {
        self.received + self.window
    }

    /// Handles an acknowledgement that reaches the sender. A packet that overtook it may have allowed more.
    pub(super) fn allowed(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_than_the_window_is_never_under_way() {
        let mut stream = ByteStream::new(100);
        stream.write(250);
        assert_eq!(stream.next(60), Some(StreamPiece { from: 0, bytes: 60 }));
        assert_eq!(
            stream.next(60),
            Some(StreamPiece { from: 60, bytes: 40 }),
            "the end of the window is used"
        );
        assert_eq!(stream.next(60), None);
        stream.arrive(StreamPiece { from: 0, bytes: 60 });
        stream.allowed(stream.allows());
        assert_eq!(stream.next(1_000), Some(StreamPiece { from: 100, bytes: 60 }));
    }

    #[test]
    fn an_old_acknowledgement_takes_nothing_back() {
        let mut stream = ByteStream::new(100);
        stream.write(300);
        stream.allowed(180);
        stream.allowed(120);
        assert_eq!(stream.next(1_000), Some(StreamPiece { from: 0, bytes: 180 }));
    }

    proptest! {
        /// Packets may overtake each other in any way: every byte arrives once, in order, and no more than a
        /// window is ever under way.
        #[test]
        fn all_arrives_in_order_however_packets_overtake_each_other(
            window in 1u64..400,
            writes in prop::collection::vec(1u64..300, 1..30),
            most in 1u64..150,
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..500),
        ) {
            let mut stream = ByteStream::new(window);
            let total: u64 = writes.iter().sum();
            let mut writes = writes.into_iter();
            let mut under_way: Vec<StreamPiece> = Vec::new();
            let mut before = 0;
            let mut order = order.into_iter().cycle();
            while stream.received() < total {
                if let Some(bytes) = writes.next() {
                    stream.write(bytes);
                }
                while let Some(piece) = stream.next(most) {
                    under_way.push(piece);
                }
                prop_assert!(under_way.iter().map(|piece| piece.bytes).sum::<u64>() <= window);
                if under_way.is_empty() {
                    continue;
                }
                let chosen = order.next().map_or(0, |index| index.index(under_way.len()));
                stream.arrive(under_way.swap_remove(chosen));
                prop_assert!(stream.received() >= before, "what was received stays received");
                before = stream.received();
                stream.allowed(stream.allows());
            }
            prop_assert_eq!(stream.received(), total);
            prop_assert!(under_way.is_empty() && stream.beyond.is_empty(), "nothing arrives twice");
        }
    }
}
