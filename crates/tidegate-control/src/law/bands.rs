//! Throughput bands (Triage §2): the division of the throughput among consumers, as it grows.
//!
//! A band is a range of the throughput of all together, the operating point. It sets the ratio in which its
//! workloads share that range. Below it the bands before divide everything. Beyond the last band, consumers
//! divide the rest by shares. Shares are equal unless configured.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_units::{ConsumerName, Iops, Shares};

use crate::document::band_position::BandPosition;
use crate::document::observation::ConsumerObservation;

/// So far from 1 the ratios of a band may be in sum: three thirds may be written as 0.333. They are then
/// scaled to 1.
const ROUNDING: f64 = 2e-3;

/// One band, as it is written down. It begins where the one before ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// The operating point at which it ends.
    pub up_to: Iops,
    /// Parts of the band, within [0, 1], 1 in sum. Workloads that are not named get nothing of it.
    pub ratios: Vec<(ConsumerName, f64)>,
}

/// Bands that were checked: they grow, and each is shared out completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bands {
    bands: Vec<Checked>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Checked {
    from: f64,
    up_to: f64,
    /// Ratios of the workloads that have more than nothing.
    ratios: BTreeMap<ConsumerName, f64>,
}

/// Reason that bands cannot be used. Bands are counted from 0, as in the paper.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum BandsError {
    /// Without bands shares decide, and nothing has to be written.
    #[error("there must be at least one band")]
    None,
    /// A band has no room.
    #[error("band {band} must end above {from}, where it begins, not at {up_to}")]
    Empty {
        /// Number of the band.
        band: usize,
        /// Beginning of the band.
        from: Iops,
        /// End of the band as configured.
        up_to: Iops,
    },
    /// A ratio is not a part.
    #[error("the ratio of {workload} in band {band} must be within 0 and 1, it is {ratio}")]
    Ratio {
        /// In which band.
        band: usize,
        /// The workload.
        workload: ConsumerName,
        /// Its ratio.
        ratio: f64,
    },
    /// A workload is in a band twice.
    #[error("{workload} is in band {band} twice")]
    Twice {
        /// In which band.
        band: usize,
        /// The workload.
        workload: ConsumerName,
    },
    /// The band is not shared out, or more than that.
    #[error("the ratios of band {band} must be 1 in sum, they are {sum}")]
    Sum {
        /// Number of the band.
        band: usize,
        /// Their sum.
        sum: f64,
    },
    /// A band names a consumer that does not exist.
    #[error("band {band} names {workload}, which there is not")]
    Unknown {
        /// Number of the band.
        band: usize,
        /// The workload.
        workload: ConsumerName,
    },
}

impl BandsError {
    /// In which band the mistake is, if it is in one.
    #[must_use]
    pub const fn band(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Empty { band, .. }
            | Self::Ratio { band, .. }
            | Self::Twice { band, .. }
            | Self::Sum { band, .. }
            | Self::Unknown { band, .. } => Some(*band),
        }
    }
}

/// A claim to a part of the throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandClaim<'a> {
    /// Name of the consumer. Two claims with one name share its part of a band. `None`: several consumers
    /// together, which have no part of any band.
    pub name: Option<&'a ConsumerName>,
    /// Its shares beyond the last band, relative to the others.
    pub shares: f64,
    /// More would not be used: what is left of its part goes to the others. `None`: it uses whatever it gets.
    pub most: Option<Iops>,
}

impl Bands {
    /// Checks bands, which are contiguous because each begins where the one before ends; the first at
    /// nothing.
    ///
    /// # Errors
    /// The first band that cannot be used, and why.
    pub fn new(bands: Vec<Band>) -> Result<Self, BandsError> {
        if bands.is_empty() {
            return Err(BandsError::None);
        }
        let mut from = Iops::ZERO;
        let mut checked = Vec::with_capacity(bands.len());
        for (index, Band { up_to, ratios }) in bands.into_iter().enumerate() {
            if up_to <= from {
                return Err(BandsError::Empty { band: index, from, up_to });
            }
            let ratios = by_name(index, ratios)?;
            checked.push(Checked { from: from.per_second(), up_to: up_to.per_second(), ratios });
            from = up_to;
        }
        Ok(Self { bands: checked })
    }

    /// Checks that all named consumers exist.
    ///
    /// # Errors
    /// The first who does not.
    pub fn name_only(&self, exists: impl Fn(&ConsumerName) -> bool) -> Result<(), BandsError> {
        for (band, checked) in self.bands.iter().enumerate() {
            if let Some(workload) = checked.ratios.keys().find(|name| !exists(name)) {
                return Err(BandsError::Unknown { band, workload: workload.clone() });
            }
        }
        Ok(())
    }

    /// Returns the end of each band, in their order.
    pub fn ends(&self) -> impl Iterator<Item = Iops> + '_ {
        self.bands.iter().map(|band| Iops::new(band.up_to))
    }

    /// All consumers with a part of any band, once.
    #[must_use]
    pub fn workloads(&self) -> BTreeSet<&ConsumerName> {
        self.bands.iter().flat_map(|band| band.ratios.keys()).collect()
    }

    /// Returns the position of this operating point among the bands. A band that is full is over: its end
    /// belongs to the next.
    #[must_use]
    pub fn position(&self, operating_point: Iops) -> BandPosition {
        let all = operating_point.per_second();
        match self.bands.iter().position(|band| all < band.up_to) {
            Some(at) => {
                let Checked { from, up_to, .. } = &self.bands[at];
                let part = (all - from) / (up_to - from);
                BandPosition::In { band: u32::try_from(at).unwrap_or(u32::MAX), part }
            }
            None => BandPosition::Beyond {
                bands: u32::try_from(self.bands.len()).unwrap_or(u32::MAX),
                by: Iops::new(all - self.bands.last().map_or(0.0, |band| band.up_to)),
            },
        }
    }

    /// Returns true if this workload's response time may throttle all consumers at this operating point. It
    /// may if it has a part of any band up to the one in which the system operates (Triage §2). Beyond the
    /// last band every workload's may.
    #[must_use]
    pub fn may_trigger(&self, name: &ConsumerName, operating_point: Iops) -> bool {
        match self.position(operating_point) {
            BandPosition::In { band, .. } => {
                self.bands.iter().take(band as usize + 1).any(|band| band.ratios.contains_key(name))
            }
            BandPosition::Beyond { .. } => true,
        }
    }
}

fn by_name(band: usize, ratios: Vec<(ConsumerName, f64)>) -> Result<BTreeMap<ConsumerName, f64>, BandsError> {
    let mut named = BTreeMap::new();
    for (workload, ratio) in ratios {
        // Refuses NaN as well.
        if !(0.0..=1.0).contains(&ratio) {
            return Err(BandsError::Ratio { band, workload, ratio });
        }
        if named.insert(workload.clone(), ratio).is_some() {
            return Err(BandsError::Twice { band, workload });
        }
    }
    let sum = named.values().fold(0.0, |sum, ratio| sum + ratio);
    if (sum - 1.0).abs() > ROUNDING {
        return Err(BandsError::Sum { band, sum });
    }
    named.retain(|_, ratio| *ratio > 0.0);
    named.values_mut().for_each(|ratio| *ratio /= sum);
    Ok(named)
}

/// Returns the parts of an operating point for each of the claims, in their order: the entitlement, and the
/// part with what others leave of theirs. `used` are the same claims, up to what each uses. Without them
/// nothing is lent.
pub(crate) fn divide<'a>(
    bands: Option<&'a Bands>,
    operating_point: Iops,
    entitlements: &[BandClaim<'a>],
    used: Option<Vec<BandClaim<'a>>>,
) -> Vec<(Iops, Iops)> {
    let entitled = allot(bands, operating_point, entitlements);
    let lent = used.map_or_else(
        || entitled.clone(),
        |mut claims| {
            // An absent consumer does not use its part.
            let there: BTreeSet<&ConsumerName> = claims.iter().filter_map(|claim| claim.name).collect();
            let absent = bands.into_iter().flat_map(Bands::workloads).filter(|name| !there.contains(name));
            let absent: Vec<BandClaim<'a>> = absent
                .map(|name| BandClaim {
                    name: Some(name),
                    shares: Shares::DEFAULT.as_f64(),
                    most: Some(Iops::ZERO),
                })
                .collect();
            claims.extend(absent);
            allot(bands, operating_point, &claims)
        },
    );
    entitled.into_iter().zip(lent).collect()
}

/// The part of its rate below which a consumer's use leaves the rest to the others. Some of the requests
/// released in an interval complete in the next.
const USED: f64 = 0.7;

impl<'a> BandClaim<'a> {
    /// A consumer's claim to its whole part.
    pub(crate) fn entitlement(consumer: &'a ConsumerObservation) -> Self {
        Self { name: Some(&consumer.name), shares: consumer.shares.as_f64(), most: None }
    }

    /// The same, up to what it uses, if nothing of ours holds it back.
    pub(crate) fn used(consumer: &'a ConsumerObservation, completed: Iops, is_held: bool) -> Self {
        let most = Iops::new(completed.per_second() / USED);
        Self { most: (!is_held).then_some(most), ..Self::entitlement(consumer) }
    }
}

/// Returns the part of an operating point for each of the claims, in their order. The sum is the operating
/// point, with two exceptions. A band's workload may be missing among the claims: its part stays unused. Or
/// no claim may use more.
#[must_use]
pub fn allot(bands: Option<&Bands>, operating_point: Iops, claims: &[BandClaim<'_>]) -> Vec<Iops> {
    let mut got = vec![0.0; claims.len()];
    let mut left = operating_point.per_second();
    let lends = claims.iter().any(|claim| claim.most.is_some());
    let bearers = bearers(claims);
    for band in bands.into_iter().flat_map(|bands| &bands.bands) {
        let room = left.min(band.up_to - band.from);
        let ratio = |claim: &BandClaim<'_>| band.ratio(claim, &bearers);
        let taken = if lends {
            fill(room, claims, &mut got, ratio)
        } else {
            claims.iter().zip(&mut got).for_each(|(claim, got)| *got += room * ratio(claim));
            room
        };
        left -= taken;
    }
    fill(left, claims, &mut got, |claim| claim.shares);
    got.into_iter().map(Iops::new).collect()
}

/// Returns the number of claims with each name: two hosts may export one volume.
fn bearers<'a>(claims: &[BandClaim<'a>]) -> BTreeMap<&'a ConsumerName, f64> {
    let mut bearers = BTreeMap::new();
    for name in claims.iter().filter_map(|claim| claim.name) {
        *bearers.entry(name).or_insert(0.0) += 1.0;
    }
    bearers
}

impl Checked {
    /// The part that one of the claims has of the band.
    fn ratio(&self, claim: &BandClaim<'_>, bearers: &BTreeMap<&ConsumerName, f64>) -> f64 {
        let of = |name| Some(self.ratios.get(name)? / bearers.get(name)?);
        claim.name.and_then(of).unwrap_or(0.0)
    }
}

/// Shares out by weight; what one claim leaves unused goes to the others. Returns what was taken in all.
fn fill(room: f64, claims: &[BandClaim<'_>], got: &mut [f64], weight: impl Fn(&BandClaim<'_>) -> f64) -> f64 {
    let most = |at: usize| claims[at].most.map_or(f64::INFINITY, Iops::per_second);
    let mut open: Vec<usize> = (0..claims.len()).filter(|&at| weight(&claims[at]) > 0.0).collect();
    // The claim that is full first comes first: each is then either filled, or shares the rest with all after
    // it.
    open.sort_by(|&left, &right| {
        let until_full = |at: usize| (most(at) - got[at]).max(0.0) / weight(&claims[at]);
        until_full(left).total_cmp(&until_full(right))
    });
    let mut weights: f64 = open.iter().map(|&at| weight(&claims[at])).sum();
    let mut left = room;
    for at in open {
        let own = weight(&claims[at]);
        let part = (left * own / weights).min((most(at) - got[at]).max(0.0));
        got[at] += part;
        left -= part;
        weights -= own;
    }
    room - left
}

/// The least operating point at which this one of the claims has `allotment`, if all use what they get: the
/// inverse of [`allot`].
///
/// # Panics
/// When there is no such claim.
#[must_use]
pub fn operating_point(
    bands: Option<&Bands>,
    allotment: Iops,
    claims: &[BandClaim<'_>],
    whose: usize,
) -> Iops {
    let claim = &claims[whose];
    let bearers = bearers(claims);
    let mut missing = allotment.per_second();
    // What is less is rounding, and not worth a band.
    let nothing = missing * 1e-9;
    let mut at = 0.0;
    for band in bands.into_iter().flat_map(|bands| &bands.bands) {
        let ratio = band.ratio(claim, &bearers);
        let part = ratio * (band.up_to - band.from);
        if missing <= nothing {
            return Iops::new(at);
        }
        if missing <= part + nothing {
            return Iops::new(band.up_to.min(band.from + missing / ratio));
        }
        missing -= part;
        if ratio > 0.0 {
            at = band.up_to;
        }
    }
    if missing <= nothing {
        return Iops::new(at);
    }
    let full = bands.and_then(|bands| bands.bands.last()).map_or(0.0, |band| band.up_to);
    let shares: f64 = claims.iter().map(|claim| claim.shares).sum();
    Iops::new(full + missing * shares / claim.shares)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(name: &str) -> ConsumerName {
        ConsumerName::new(name).unwrap()
    }

    fn band(up_to: f64, ratios: &[(&str, f64)]) -> Band {
        Band {
            up_to: Iops::new(up_to),
            ratios: ratios.iter().map(|(workload, ratio)| (name(workload), *ratio)).collect(),
        }
    }

    /// The paper's table 1.
    fn table_1() -> Bands {
        Bands::new(vec![
            band(100.0, &[("w1", 0.5), ("w2", 0.5)]),
            band(400.0, &[("w1", 1.0), ("w2", 0.0)]),
            band(900.0, &[("w1", 0.0), ("w2", 1.0)]),
        ])
        .unwrap()
    }

    fn claim(name: &ConsumerName) -> BandClaim<'_> {
        BandClaim { name: Some(name), shares: 100.0, most: None }
    }

    fn at(bands: &Bands, all: f64, most: [Option<f64>; 2]) -> [f64; 2] {
        let (w1, w2) = (name("w1"), name("w2"));
        let claims = [
            BandClaim { most: most[0].map(Iops::new), ..claim(&w1) },
            BandClaim { most: most[1].map(Iops::new), ..claim(&w2) },
        ];
        let allotted = allot(Some(bands), Iops::new(all), &claims);
        [allotted[0].per_second(), allotted[1].per_second()]
    }

    #[test]
    fn table_1_of_the_paper() {
        let cases = [
            (0.0, [0.0, 0.0], "band 0 at 0 %"),
            (60.0, [30.0, 30.0], "band 0 at 60 %"),
            (100.0, [50.0, 50.0], "band 1 at 0 %"),
            (250.0, [200.0, 50.0], "band 1 at 50 %"),
            (500.0, [350.0, 150.0], "band 2 at 20 %"),
            (900.0, [350.0, 550.0], "0.0 IO/s beyond the last band"),
            (1_000.0, [400.0, 600.0], "100 IO/s beyond the last band"),
        ];
        for (all, allotted, said) in cases {
            assert_eq!(at(&table_1(), all, [None, None]).map(Iops::new), allotted.map(Iops::new), "{all}");
            assert_eq!(table_1().position(Iops::new(all)).to_string(), said);
        }
    }

    #[test]
    fn what_somebody_does_not_use_goes_to_the_others_by_the_same_bands() {
        // Of band 0 nothing is left over, of band 1 all that w1 leaves.
        assert_eq!(at(&table_1(), 250.0, [Some(100.0), None]).map(Iops::new), [100.0, 150.0].map(Iops::new));
        assert_eq!(at(&table_1(), 80.0, [Some(10.0), None]).map(Iops::new), [10.0, 70.0].map(Iops::new));
        assert_eq!(
            at(&table_1(), 2_000.0, [Some(10.0), Some(20.0)]).map(Iops::new),
            [10.0, 20.0].map(Iops::new)
        );
        assert_eq!(at(&table_1(), 500.0, [Some(1e9), None]).map(Iops::new), [350.0, 150.0].map(Iops::new));
    }

    #[test]
    fn only_who_has_a_part_of_the_bands_so_far_may_trigger() {
        let bands =
            Bands::new(vec![band(100.0, &[("w1", 1.0)]), band(200.0, &[("w2", 1.0), ("w1", 0.0)])]).unwrap();
        let who = |all| ["w1", "w2", "w3"].map(|workload| bands.may_trigger(&name(workload), Iops::new(all)));
        assert_eq!(who(50.0), [true, false, false]);
        assert_eq!(who(100.0), [true, true, false]);
        assert_eq!(who(200.0), [true, true, true]);
    }

    #[test]
    fn what_cannot_be_shared_out_is_refused() {
        let refused = |bands| Bands::new(bands).unwrap_err().to_string();
        let cases = [
            (vec![], "there must be at least one band"),
            (
                vec![band(0.0, &[("a", 1.0)])],
                "band 0 must end above 0.0 IO/s, where it begins, not at 0.0 IO/s",
            ),
            (
                vec![band(100.0, &[("a", 1.0)]), band(90.0, &[("a", 1.0)])],
                "band 1 must end above 100 IO/s, where it begins, not at 90 IO/s",
            ),
            (vec![band(9.0, &[("a", 1.5)])], "the ratio of a in band 0 must be within 0 and 1, it is 1.5"),
            (
                vec![band(9.0, &[("a", f64::NAN)])],
                "the ratio of a in band 0 must be within 0 and 1, it is NaN",
            ),
            (vec![band(9.0, &[("a", 0.5), ("a", 0.5)])], "a is in band 0 twice"),
            (
                vec![band(9.0, &[("a", 0.5), ("b", 0.25)])],
                "the ratios of band 0 must be 1 in sum, they are 0.75",
            ),
            (vec![band(9.0, &[])], "the ratios of band 0 must be 1 in sum, they are 0"),
        ];
        for (bands, said) in cases {
            assert_eq!(refused(bands), said);
        }
        assert!(Bands::new(vec![band(9.0, &[("a", 0.333), ("b", 0.333), ("c", 0.333)])]).is_ok());
        let unknown = table_1().name_only(|workload| workload.as_str() == "w1").unwrap_err();
        assert_eq!(
            (unknown.to_string().as_str(), unknown.band()),
            ("band 0 names w2, which there is not", Some(0))
        );
        assert_eq!(table_1().name_only(|_| true), Ok(()));
    }

    const NAMES: usize = 4;

    prop_compose! {
        fn any_bands()(
            bands in prop::collection::vec((1.0..500.0, [0u32..4, 0u32..4, 0u32..4, 0u32..4]), 0..5)
        ) -> Option<Bands> {
            let mut up_to = 0.0;
            let bands: Vec<Band> = bands
                .into_iter()
                .map(|(width, weights)| {
                    up_to += width;
                    let sum: u32 = weights.iter().sum();
                    let weights = if sum == 0 { [1, 0, 0, 0] } else { weights };
                    let sum: u32 = weights.iter().sum();
                    let ratios = weights.iter().enumerate().map(|(at, &weight)| {
                        (name(&at.to_string()), f64::from(weight) / f64::from(sum))
                    });
                    Band { up_to: Iops::new(up_to), ratios: ratios.collect() }
                })
                .collect();
            Bands::new(bands).ok()
        }
    }

    fn claims<'a>(
        names: &'a [ConsumerName],
        shares: &[u32; NAMES],
        most: [Option<f64>; NAMES],
    ) -> Vec<BandClaim<'a>> {
        let each = names.iter().zip(shares).zip(most);
        each.map(|((name, &shares), most)| BandClaim {
            name: Some(name),
            shares: f64::from(shares),
            most: most.map(Iops::new),
        })
        .collect()
    }

    fn everybody() -> Vec<ConsumerName> {
        (0..NAMES).map(|at| name(&at.to_string())).collect()
    }

    fn sum(allotted: &[Iops]) -> f64 {
        allotted.iter().map(|one| one.per_second()).sum()
    }

    proptest! {
        #[test]
        fn allotments_sum_to_the_operating_point_grow_with_it_and_lead_back_to_it(
            bands in any_bands(), shares in [1u32..1_000, 1u32..1_000, 1u32..1_000, 1u32..1_000],
            all in 0.0..4_000.0, more in 0.0..500.0,
        ) {
            let names = everybody();
            let claims = claims(&names, &shares, [None; NAMES]);
            let before = allot(bands.as_ref(), Iops::new(all), &claims);
            let after = allot(bands.as_ref(), Iops::new(all + more), &claims);
            prop_assert!((sum(&before) - all).abs() < 1e-6);
            for whose in 0..NAMES {
                prop_assert!(after[whose].per_second() >= before[whose].per_second() - 1e-9);
                let point = operating_point(bands.as_ref(), before[whose], &claims, whose);
                // The least one with this allotment: not above ours, and the allotment is the same there.
                prop_assert!(point.per_second() <= all + 1e-6, "{point:?} {all}");
                let again = allot(bands.as_ref(), point, &claims)[whose];
                prop_assert!((again.per_second() - before[whose].per_second()).abs() < 1e-6);
            }
        }

        #[test]
        fn nobody_gets_more_than_he_uses_and_nothing_is_left_while_somebody_would(
            bands in any_bands(), shares in [1u32..1_000, 1u32..1_000, 1u32..1_000, 1u32..1_000],
            all in 0.0..4_000.0,
            most in [proptest::option::of(0.0..900.0), proptest::option::of(0.0..1.0),
                proptest::option::of(0.0..900.0), proptest::option::of(0.0..50.0)],
        ) {
            let names = everybody();
            let claims = claims(&names, &shares, most);
            let allotted = allot(bands.as_ref(), Iops::new(all), &claims);
            let wanted: f64 = most.iter().map(|most| most.unwrap_or(f64::INFINITY)).sum();
            prop_assert!((sum(&allotted) - wanted.min(all)).abs() < 1e-6, "{allotted:?}");
            for (allotted, most) in allotted.iter().zip(most) {
                prop_assert!(most.is_none_or(|most| allotted.per_second() <= most + 1e-9));
            }
            // Who lends nothing loses nothing by the others' lending.
            let entitled = allot(bands.as_ref(), Iops::new(all),
                &self::claims(&names, &shares, [None; NAMES]));
            for (at, most) in most.iter().enumerate() {
                if most.is_none() {
                    prop_assert!(allotted[at].per_second() >= entitled[at].per_second() - 1e-6);
                }
            }
        }

        #[test]
        fn any_number_is_an_operating_point(all in any::<f64>(), most in proptest::option::of(any::<f64>())) {
            let allotted = at(&table_1(), all, [most, None]);
            prop_assert!(allotted.iter().all(|one| one.is_finite() && *one >= 0.0), "{allotted:?}");
        }
    }
}
