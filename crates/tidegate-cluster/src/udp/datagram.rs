//! A datagram: a message, a nonce with its echoes, and an authentication tag over all of it.
//!
//! ```text
//! message · nonce u64 · echoes: u8 count, u64 each · HMAC-SHA-256 with the shared key, 32 bytes
//! ```

use ring::hmac;

use super::freshness::MOST_ECHOES;
use crate::key::ClusterKey;
use crate::name::ClusterName;
use crate::rejection::MessageRejection;
use crate::wire::{Input, Message, check_start};

/// The size of a datagram that every IPv6 path carries in one piece: 1280 bytes without the IPv6 and UDP
/// headers.
pub(crate) const LONGEST: usize = 1232;

const TAG: usize = 32;

/// The bytes that a datagram has beside its message, without echoes.
pub(crate) const OVERHEAD: usize = 8 + 1 + TAG;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Datagram {
    pub(crate) message: Message,
    pub(crate) nonce: u64,
    pub(crate) echoes: Vec<u64>,
}

/// Makes and opens the datagrams of one cluster.
#[derive(Debug)]
pub(crate) struct DatagramSeal {
    cluster: ClusterName,
    key: hmac::Key,
}

impl DatagramSeal {
    pub(crate) fn new(cluster: ClusterName, key: &ClusterKey) -> Self {
        Self { cluster, key: hmac::Key::new(hmac::HMAC_SHA256, key.bytes()) }
    }

    pub(crate) fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// Begins datagrams that differ in their echoes only.
    pub(crate) fn begin(&self, message: &Message, nonce: u64) -> DatagramStart {
        let mut bytes = Vec::with_capacity(LONGEST);
        message.write(&self.cluster, &mut bytes);
        bytes.extend(nonce.to_le_bytes());
        let mut signing = hmac::Context::with_key(&self.key);
        signing.update(&bytes);
        DatagramStart { bytes, signing }
    }

    /// Appends the tag that belongs to these bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn authenticated(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let tag = hmac::sign(&self.key, &bytes);
        bytes.extend(tag.as_ref());
        bytes
    }

    /// # Errors
    /// When it is not an authentic datagram of this cluster and version, or says what cannot be. Only the
    /// start, the same in all versions, is looked at before the tag is verified (in constant time).
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Datagram, MessageRejection> {
        check_start(&self.cluster, bytes)?;
        if bytes.len() > LONGEST {
            return Err(MessageRejection::Malformed("it is too long"));
        }
        let (signed, tag) =
            bytes.split_last_chunk::<TAG>().ok_or(MessageRejection::Malformed("it ends too early"))?;
        hmac::verify(&self.key, signed, tag).map_err(|_| MessageRejection::BadKey)?;
        let (message, rest) = Message::read(&self.cluster, signed)?;
        let mut input = Input(rest);
        let nonce = input.u64()?;
        let count = usize::from(input.u8()?);
        if count > MOST_ECHOES {
            return Err(MessageRejection::OutOfRange("the number of echoes"));
        }
        let echoes = (0..count).map(|_| input.u64()).collect::<Result<_, _>>()?;
        if !input.0.is_empty() {
            return Err(MessageRejection::Malformed("something follows its end"));
        }
        Ok(Datagram { message, nonce, echoes })
    }
}

/// The part of a datagram that is the same for all receivers. It is signed once, not once for each.
pub(crate) struct DatagramStart {
    bytes: Vec<u8>,
    signing: hmac::Context,
}

impl DatagramStart {
    /// Returns the datagram with at most [`MOST_ECHOES`] of these echoes.
    pub(crate) fn close(&self, echoes: &[u64]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let echoes = &echoes[..echoes.len().min(MOST_ECHOES)];
        bytes.push(echoes.len() as u8);
        for echo in echoes {
            bytes.extend(echo.to_le_bytes());
        }
        let mut signing = self.signing.clone();
        signing.update(&bytes[self.bytes.len()..]);
        bytes.extend(signing.sign().as_ref());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::tests::{any_report, cluster, message};

    fn seal(key: &[u8]) -> DatagramSeal {
        DatagramSeal::new(cluster(), &ClusterKey::new(key).unwrap())
    }

    fn closed(seal: &DatagramSeal, datagram: &Datagram) -> Vec<u8> {
        seal.begin(&datagram.message, datagram.nonce).close(&datagram.echoes)
    }

    fn datagram() -> Datagram {
        Datagram { message: message("a", 1, 1, vec![]), nonce: 7, echoes: vec![1, 2, 3] }
    }

    #[test]
    fn only_who_has_the_key_can_make_a_datagram() {
        let bytes = closed(&seal(b"the key of the cluster"), &datagram());
        assert_eq!(seal(b"the key of the cluster").open(&bytes), Ok(datagram()));
        assert_eq!(seal(b"another key of another").open(&bytes), Err(MessageRejection::BadKey));
        let stranger =
            DatagramSeal::new(ClusterName::new("other").unwrap(), &ClusterKey::new(&[0; 16]).unwrap());
        assert_eq!(stranger.open(&bytes), Err(MessageRejection::OtherCluster));
    }

    #[test]
    fn an_old_version_is_named_even_though_its_tag_cannot_be_judged() {
        let mut bytes = closed(&seal(&[1; 16]), &datagram());
        bytes[4..6].copy_from_slice(&0_u16.to_le_bytes());
        assert_eq!(seal(&[1; 16]).open(&bytes), Err(MessageRejection::OldVersion(0)));
    }

    proptest! {
        #[test]
        fn a_datagram_survives_the_way_and_no_change_of_it_does(
            reports in prop::collection::vec(any_report(), 0..2),
            echoes in prop::collection::vec(any::<u64>(), 0..MOST_ECHOES),
            place in any::<prop::sample::Index>(),
            change in 1u8..,
        ) {
            let seal = seal(b"the key of the cluster");
            let sent = Datagram { message: message("a", 1, 1, reports), nonce: 7, echoes };
            let mut bytes = closed(&seal, &sent);
            prop_assume!(bytes.len() <= LONGEST);
            let got = seal.open(&bytes);
            prop_assume!(!matches!(got, Err(MessageRejection::Malformed("two reports on one resource"))));
            let got = got.unwrap();
            prop_assert_eq!((got.nonce, &got.echoes), (sent.nonce, &sent.echoes));
            let place = place.index(bytes.len());
            bytes[place] ^= change;
            prop_assert!(seal.open(&bytes).is_err(), "changed at {}", place);
            prop_assert!(seal.open(&bytes[..place]).is_err(), "cut at {}", place);
        }

        #[test]
        fn any_bytes_are_borne_and_never_accepted(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            let seal = seal(b"the key of the cluster");
            prop_assert!(seal.open(&bytes).is_err());
            let mut started = closed(&seal, &datagram())[..11].to_vec();
            started.extend(&bytes);
            prop_assert!(seal.open(&started).is_err());
            // What is signed is still not trusted to be well made.
            let _ = seal.open(&seal.authenticated(started));
        }
    }
}
