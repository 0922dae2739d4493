//! Claims of consumers on several hosts to bands and shares of one operating point.

use tidegate_units::Iops;

use crate::document::observation::ConsumerObservation;
use crate::document::point_report::{MOST_CLAIMS, PeerPoint, PointClaim, PointRest};
use crate::law::bands::{BandClaim, Bands};

/// Choice of a figure in a peer's claims.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ClaimPart {
    /// Its entitlement.
    Entitled,
    /// The part of it in use.
    Used,
}

/// Returns the claims of other hosts' consumers.
pub(crate) fn elsewhere(peers: &[PeerPoint], part: ClaimPart) -> impl Iterator<Item = BandClaim<'_>> {
    let most = move |most: Option<Iops>| most.filter(|_| part == ClaimPart::Used);
    peers.iter().flat_map(move |PeerPoint { point, .. }| {
        let named = point.claims.iter().map(move |claim| BandClaim {
            name: Some(&claim.name),
            shares: claim.shares.as_f64(),
            most: most(claim.most),
        });
        // A consumer without any shares would have no part, and does not count.
        let rest = [point.rest, point.content].into_iter().flatten().filter(|rest| rest.shares > 0.0);
        named.chain(rest.map(move |rest| BandClaim {
            name: None,
            shares: rest.shares,
            most: most(rest.most),
        }))
    })
}

/// The claims of one host's consumers, as other hosts are to hear them.
pub(crate) struct HostClaims {
    pub(crate) claims: Vec<PointClaim>,
    pub(crate) rest: Option<PointRest>,
    pub(crate) content: Option<PointRest>,
}

impl HostClaims {
    /// Names the consumers with a part of the bands. The others are two groups: those that use whatever they
    /// get, and those that are content. With the shares of both, the first would get what the second leaves,
    /// which belongs to all, on all hosts. Each consumer comes with the most that it would use.
    pub(crate) fn of<'a>(
        used: impl Iterator<Item = (&'a ConsumerObservation, Option<Iops>)>,
        bands: Option<&Bands>,
    ) -> Self {
        let parts = bands.map(Bands::workloads).unwrap_or_default();
        let (mut claims, mut hungry, mut content) = (Vec::new(), None::<PointRest>, None::<PointRest>);
        for (consumer, most) in used {
            if parts.contains(&consumer.name) && claims.len() < MOST_CLAIMS {
                claims.push(PointClaim { name: consumer.name.clone(), shares: consumer.shares, most });
                continue;
            }
            let one = PointRest { shares: consumer.shares.as_f64(), most };
            let group = if most.is_some() { &mut content } else { &mut hungry };
            *group = Some(group.map_or(one, |others| others.and(one)));
        }
        match hungry {
            Some(_) => Self { claims, rest: hungry, content },
            None => Self { claims, rest: content, content: None },
        }
    }
}
