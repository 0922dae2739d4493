//! Sets of flags.

use std::ops::BitOr;

macro_rules! flags {
    ($(#[$doc:meta])* $Name:ident { $($(#[$flag_doc:meta])* $FLAG:ident = $bit:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $Name(u16);

        impl $Name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $FLAG: Self = Self(1 << $bit);)*

            /// Reads flags from the wire. Unknown bits are kept.
            #[must_use]
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// For the wire.
            #[must_use]
            pub const fn bits(self) -> u16 {
                self.0
            }

            /// Returns true if all flags of `other` are in this set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Both sets together. `|` does the same outside of constants.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// This set without the flags of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl BitOr for $Name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.with(other)
            }
        }
    };
}

flags! {
    /// The abilities of an export, told at the end of the handshake.
    TransmissionFlags {
        /// Always set.
        HAS_FLAGS = 0;
        /// Writes are refused.
        READ_ONLY = 1;
        /// `FLUSH` is understood.
        SEND_FLUSH = 2;
        /// The flag [`CommandFlags::FUA`] is understood.
        SEND_FUA = 3;
        /// The medium rotates: seeks cost time.
        ROTATIONAL = 4;
        /// `TRIM` is understood.
        SEND_TRIM = 5;
        /// `WRITE_ZEROES` and [`CommandFlags::NO_HOLE`] are understood.
        SEND_WRITE_ZEROES = 6;
        /// [`CommandFlags::DF`] is understood; told only to clients whose replies consist of chunks.
        SEND_DF = 7;
        /// A flush on one connection covers what was answered on all of them.
        CAN_MULTI_CONN = 8;
        /// Experimental resizing.
        SEND_RESIZE = 9;
        /// `CACHE` is understood.
        SEND_CACHE = 10;
        /// [`CommandFlags::FAST_ZERO`] is understood.
        SEND_FAST_ZERO = 11;
        /// A `BLOCK_STATUS` may name its metadata contexts; told only to clients that negotiated extended
        /// headers and a context.
        BLOCK_STATUS_PAYLOAD = 12;
    }
}

flags! {
    /// The modifiers that a client sets beside the command itself.
    CommandFlags {
        /// Answer only once the data is on stable storage.
        FUA = 0;
        /// With `WRITE_ZEROES`: leave no hole.
        NO_HOLE = 1;
        /// With `READ`: answer in one chunk.
        DF = 2;
        /// With `BLOCK_STATUS`: one extent only.
        REQ_ONE = 3;
        /// With `WRITE_ZEROES`: fail at once if that is not faster than writing.
        FAST_ZERO = 4;
        /// Under extended headers: a payload follows, and the length is its.
        PAYLOAD_LEN = 5;
    }
}
