//! The login of a connection: who the initiator is, which target it wants, and which digests they agree on.

use super::format::{Digests, data_length};
use crate::connection::{SessionNames, shown_name};

/// The text of each side during a login that is read.
const MOST_TEXT: usize = 16 << 10;

/// A login that has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FinishedLogin {
    /// `None`: a discovery, or a login without names.
    pub(super) names: Option<SessionNames>,
    pub(super) digests: Digests,
}

/// The texts of a login so far. A key may be cut between two PDUs.
#[derive(Debug, Clone, Default)]
pub(super) struct LoginTexts {
    initiator: Vec<u8>,
    target: Vec<u8>,
}

impl LoginTexts {
    pub(super) fn request(&mut self, head: &[u8], kept: &[u8]) {
        append(&mut self.initiator, head, kept);
    }

    /// Takes a response. Returns the login once it has led to the full feature phase.
    pub(super) fn response(&mut self, head: &[u8], kept: &[u8]) -> Option<FinishedLogin> {
        const TRANSIT: u8 = 0x80;
        const FULL_FEATURE: u8 = 3;
        append(&mut self.target, head, kept);
        let (flags, status_class) = (head[1], head[36]);
        if status_class != 0 || flags & TRANSIT == 0 || flags & 3 != FULL_FEATURE {
            return None;
        }
        let names = value(&self.initiator, "InitiatorName").zip(value(&self.initiator, "TargetName"));
        let names = names.filter(|_| value(&self.initiator, "SessionType") != Some("Discovery"));
        let finished = FinishedLogin {
            names: names.map(|(initiator, target)| SessionNames {
                initiator: shown_name(initiator),
                target: shown_name(target),
            }),
            digests: Digests { header: self.agreed("HeaderDigest"), data: self.agreed("DataDigest") },
        };
        *self = Self::default();
        Some(finished)
    }

    /// Returns true if a digest was agreed on: an answer is one value, an offer is mostly a list.
    fn agreed(&self, key: &str) -> bool {
        let single = |text| value(text, key).filter(|value| !value.contains(','));
        // The target answers what the initiator offers; few targets offer by themselves.
        let answer = match value(&self.initiator, key) {
            Some(_) => single(&self.target).or_else(|| single(&self.initiator)),
            None => None,
        };
        answer == Some("CRC32C")
    }
}

fn append(text: &mut Vec<u8>, head: &[u8], kept: &[u8]) {
    let additional = usize::from(head[4]) * 4;
    let data = data_length(head) as usize;
    let data = kept.get(additional..).map(|kept| &kept[..data.min(kept.len())]).unwrap_or_default();
    let room = MOST_TEXT.saturating_sub(text.len());
    text.extend_from_slice(&data[..data.len().min(room)]);
}

/// Returns the last value of a key: pairs end with a zero byte.
fn value<'a>(text: &'a [u8], key: &str) -> Option<&'a str> {
    let mut pairs = text.rsplit(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.find_map(|pair| pair.split_once('=').filter(|(found, _)| *found == key).map(|(_, value)| value))
}
