//! A storage node: whole transfers that share its bandwidth, where single requests do not matter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;
use tidegate_units::{ByteRate, Bytes, Instant, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::io::DeviceCompletion;

/// A storage node as described by D. Nikolow et al. (*Storage QoS Aspects in Distributed Virtualized
/// Environments*, CLOUD COMPUTING 2010). All transfers share its bandwidth. The bandwidth shrinks with the
/// number of transfers and by the part that others take.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageNodeConfig {
    /// Bandwidth of a transfer that has the node to itself.
    pub peak: ByteRate,
    /// Cost of each further transfer: n of them get `peak / (1 + cost·(n − 1))` together. Within [0, 1].
    pub concurrency_cost: f64,
    /// Greatest rate of one transfer, set by its client or the link between them. `None`: no limit.
    pub client: Option<ByteRate>,
    /// Time that a transfer waits before its data moves: a tape's mount and seek. The transfer takes no
    /// bandwidth meanwhile.
    pub recall: Latency,
    /// Number of simultaneous recalls, at least 1; further ones wait for a drive, in their order. `None`: no
    /// limit.
    pub drives: Option<u32>,
    /// Standard deviation of the factor by which the bandwidth varies from second to second. The factor is 1
    /// on average. Within [0, 0.5].
    pub jitter: f64,
}

/// Unit of progress: parts of a byte. Progress is a whole number, so that the order of events is exact.
const PARTS: f64 = 1024.0;

/// Time for which one factor of the bandwidth is in force.
const SECOND: Latency = Latency::from_nanos(1_000_000_000);

/// A second's factor is no further from 1 than this, whatever was drawn.
const GREATEST_JITTER: f64 = 0.9;

/// A model of a storage node. It holds no clock: calls say what time it is, and time does not run backwards
/// in them.
///
/// All transfers whose data moves have the same rate. So one number gives the progress of each: the data
/// moved by a transfer that was there from the beginning.
#[derive(Debug, Clone)]
pub struct StorageNode {
    config: StorageNodeConfig,
    rng: Pcg64,
    now: Instant,
    /// Data moved by a transfer that was there from the beginning, in [`PARTS`].
    progress: u64,
    /// Transfers whose data moves: the progress at which each is done, and its id.
    moving: BTreeSet<(u64, u64)>,
    /// Transfers in their recall, by the time at which it ends, with the parts that they will move.
    recalled: BTreeMap<(Instant, u64), u64>,
    /// Transfers that wait for a drive.
    queue: VecDeque<(u64, u64)>,
    /// The part of the bandwidth that others take.
    external: f64,
    /// The greatest rate of each transfer that its process has time for; `None`: no limit.
    process: Option<ByteRate>,
    /// The bandwidth's factor in this second.
    factor: f64,
    /// Time at which the next second begins.
    redraw: Instant,
    /// Data moved by all transfers, in [`PARTS`].
    moved: f64,
    /// Data moved by others, in bytes.
    by_others: f64,
}

impl StorageNode {
    /// A node without transfers.
    ///
    /// # Errors
    /// A value that is out of its range.
    pub fn new(config: StorageNodeConfig, seed: u64) -> Result<Self, DeviceConfigError> {
        require(config.peak.per_second() >= 1.0, "peak", "at least one byte per second")?;
        require((0.0..=1.0).contains(&config.concurrency_cost), "concurrency_cost", "within 0 to 1")?;
        let client = config.client.is_none_or(|client| client.per_second() >= 1.0);
        require(client, "client", "at least one byte per second")?;
        require(config.drives != Some(0), "drives", "at least 1")?;
        require((0.0..=0.5).contains(&config.jitter), "jitter", "within 0 to 0.5")?;
        let mut node = Self {
            config,
            rng: Pcg64::seed_from_u64(seed),
            now: Instant::ZERO,
            progress: 0,
            moving: BTreeSet::new(),
            recalled: BTreeMap::new(),
            queue: VecDeque::new(),
            external: 0.0,
            process: None,
            factor: 1.0,
            redraw: Instant::ZERO,
            moved: 0.0,
            by_others: 0.0,
        };
        node.draw();
        Ok(node)
    }

    /// Begins a transfer under an id of the caller's choice that no other of its transfers has. A transfer of
    /// no data is done at once, after its recall.
    ///
    /// [`advance`](Self::advance) to the present first.
    pub fn start(&mut self, id: u64, size: Bytes) {
        let parts = (size.get() as f64 * PARTS) as u64;
        if self.config.drives.is_some_and(|drives| self.recalled.len() >= drives as usize) {
            self.queue.push_back((id, parts));
        } else {
            self.recalled.insert((self.now + self.config.recall, id), parts);
        }
        self.admit();
    }

    /// The same of data that is on the disk in front of the tapes: it waits for nothing.
    pub fn start_on_disk(&mut self, id: u64, size: Bytes) {
        let parts = (size.get() as f64 * PARTS) as u64;
        self.moving.insert((self.progress.saturating_add(parts), id));
    }

    /// Sets the part of the bandwidth that others take from now on, 0 to 1.
    pub fn set_external(&mut self, part: f64) {
        self.external = part.clamp(0.0, 1.0);
    }

    /// Sets the greatest rate of each transfer from now on, as far as its process gets the processor; `None`:
    /// no limit.
    pub fn set_process(&mut self, each: Option<ByteRate>) {
        self.process = each;
    }

    /// Returns the number of transfers that move data.
    #[must_use]
    pub fn moving(&self) -> usize {
        self.moving.len()
    }

    /// Returns the data moved by all transfers until now.
    #[must_use]
    pub fn moved(&self) -> Bytes {
        Bytes::new((self.moved / PARTS) as u64)
    }

    /// Returns the data moved by others until now: the sum of their parts of the node's bandwidth over time.
    #[must_use]
    pub const fn moved_by_others(&self) -> Bytes {
        Bytes::new(self.by_others as u64)
    }

    /// Returns true if a transfer waits for its recall, or for a drive.
    #[must_use]
    pub fn is_recalling(&self, id: u64) -> bool {
        self.recalled.keys().any(|&(_, other)| other == id)
            || self.queue.iter().any(|&(other, _)| other == id)
    }

    /// Returns the time at which to call [`advance`](Self::advance) next. `None` as long as no event is to be
    /// expected.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let recalled = self.recalled.keys().next().map(|&(at, _)| at);
        let moving = (!self.moving.is_empty()).then_some(self.redraw);
        [recalled, moving, self.next_done()].into_iter().flatten().min()
    }

    /// Goes on to the present. Appends the transfers that were done until then. A time that lies back changes
    /// nothing.
    pub fn advance(&mut self, now: Instant, done: &mut Vec<DeviceCompletion>) {
        while let Some(at) = self.next_within(now) {
            self.go(at);
            if at >= self.redraw {
                self.draw();
            }
            self.admit();
            while let Some(&(target, id)) = self.moving.first()
                && target <= self.progress
            {
                self.moving.pop_first();
                done.push(DeviceCompletion { id, at });
            }
        }
        self.go(now);
    }

    /// Returns the next event until `now`. Seconds begin also while nothing moves, so that each second's
    /// random factor does not depend on the transfers.
    fn next_within(&self, now: Instant) -> Option<Instant> {
        let next = self.next_event().map_or(self.redraw, |at| at.min(self.redraw));
        (next <= now).then_some(next)
    }

    fn go(&mut self, to: Instant) {
        let elapsed = to.latency_since(self.now).as_secs_f64();
        self.by_others += self.bandwidth() * self.external * elapsed;
        let each = match self.next_done() {
            // Rounded up, its time may be later than its last part: no more is moved than there is.
            Some(at) if at <= to => self.to_first(),
            _ => ((self.rate_of_each() * elapsed) as u64).min(self.to_first()),
        };
        self.progress += each;
        self.moved += each as f64 * self.moving.len() as f64;
        self.now = self.now.max(to);
    }

    /// Parts per second of each transfer.
    fn rate_of_each(&self) -> f64 {
        let count = self.moving.len() as f64;
        if count == 0.0 {
            return 0.0;
        }
        let share = self.bandwidth() * (1.0 - self.external) * PARTS / count;
        let limits = [self.config.client, self.process].into_iter().flatten();
        limits.fold(share, |share, limit| share.min(limit.per_second() * PARTS))
    }

    /// The node's bandwidth now, for all of its transfers and for others, in bytes per second. Where there
    /// are no transfers, it is the bandwidth of one.
    fn bandwidth(&self) -> f64 {
        let further = self.moving.len().saturating_sub(1) as f64;
        let together = self.config.peak.per_second() / (1.0 + self.config.concurrency_cost * further);
        together * self.factor
    }

    /// Returns the parts that the first transfer to end has yet to move; 0 if no transfer moves data.
    fn to_first(&self) -> u64 {
        self.moving.first().map_or(0, |&(target, _)| target - self.progress)
    }

    fn next_done(&self) -> Option<Instant> {
        if self.moving.is_empty() {
            return None;
        }
        let rate = self.rate_of_each();
        let nanos = (self.to_first() as f64 / rate * 1e9).ceil();
        // Far beyond any simulation; also what stands still.
        (nanos < 1e18).then(|| self.now + Latency::from_nanos(nanos as u64))
    }

    fn admit(&mut self) {
        while let Some((&(at, id), &parts)) = self.recalled.first_key_value()
            && at <= self.now
        {
            self.recalled.pop_first();
            if let Some((next, parts)) = self.queue.pop_front() {
                self.recalled.insert((at + self.config.recall, next), parts);
            }
            self.moving.insert((self.progress.saturating_add(parts), id));
        }
    }

    fn draw(&mut self) {
        let normal: f64 = StandardNormal.sample(&mut self.rng);
        self.factor = 1.0 + (normal * self.config.jitter).clamp(-GREATEST_JITTER, GREATEST_JITTER);
        self.redraw = self.redraw + SECOND;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MB: u64 = 1_000_000;

    fn node(peak_mb: f64, cost: f64) -> StorageNode {
        let config = StorageNodeConfig {
            peak: ByteRate::new(peak_mb * 1e6),
            concurrency_cost: cost,
            client: None,
            recall: Latency::ZERO,
            drives: None,
            jitter: 0.0,
        };
        StorageNode::new(config, 1).unwrap()
    }

    fn at(seconds: f64) -> Instant {
        Instant::ZERO + Latency::from_secs_f64(seconds)
    }

    /// Runs the node until nothing is left to do. Returns each transfer's id and its end in seconds.
    fn finish(node: &mut StorageNode) -> Vec<(u64, f64)> {
        let mut done = Vec::new();
        while node.moving() > 0 || !node.recalled.is_empty() {
            node.advance(node.next_event().unwrap(), &mut done);
        }
        done.into_iter().map(|one| (one.id, one.at.as_secs_f64())).collect()
    }

    #[track_caller]
    fn ends(node: &mut StorageNode, expected: &[(u64, f64)]) {
        let ends = finish(node);
        assert_eq!(ends.len(), expected.len());
        for (end, expected) in ends.iter().zip(expected) {
            assert!(end.0 == expected.0 && (end.1 - expected.1).abs() < 1e-6, "{end:?} is not {expected:?}");
        }
    }

    #[test]
    fn one_transfer_has_the_peak() {
        let mut node = node(20.0, 0.5);
        node.start(7, Bytes::new(100 * MB));
        ends(&mut node, &[(7, 5.0)]);
        assert_eq!(node.moved(), Bytes::new(100 * MB));
    }

    #[test]
    fn transfers_share_and_cost_each_other_bandwidth() {
        // Together 20/(1 + 0.25) = 16 MB/s, 8 for each: the first ends after 5 s. The other then has 20 to
        // itself.
        let mut node = node(20.0, 0.25);
        node.start(1, Bytes::new(40 * MB));
        node.start(2, Bytes::new(80 * MB));
        ends(&mut node, &[(1, 5.0), (2, 7.0)]);
    }

    #[test]
    fn a_slow_client_leaves_the_rest_to_nobody() {
        // 20 MB/s among two would be 10 for each.
        let config = StorageNodeConfig { client: Some(ByteRate::new(4e6)), ..node(20.0, 0.0).config };
        let mut node = StorageNode::new(config, 1).unwrap();
        node.start(1, Bytes::new(40 * MB));
        node.start(2, Bytes::new(80 * MB));
        ends(&mut node, &[(1, 10.0), (2, 20.0)]);
    }

    #[test]
    fn a_process_moves_no_more_than_it_has_time_for() {
        let mut node = node(20.0, 0.0);
        node.start(1, Bytes::new(40 * MB));
        node.set_process(Some(ByteRate::new(5e6)));
        node.advance(at(4.0), &mut Vec::new());
        node.set_process(None);
        ends(&mut node, &[(1, 5.0)]);
    }

    #[test]
    fn others_take_their_part() {
        let mut node = node(20.0, 0.0);
        node.start(1, Bytes::new(40 * MB));
        node.advance(at(1.0), &mut Vec::new());
        node.set_external(0.5);
        ends(&mut node, &[(1, 3.0)]);
        assert_eq!(node.moved_by_others(), Bytes::new(20 * MB), "half of two seconds");
        node.advance(at(4.0), &mut Vec::new());
        assert_eq!(node.moved_by_others(), Bytes::new(30 * MB), "and of one in which they were alone");
    }

    #[test]
    fn a_node_that_others_take_wholly_stands_still_and_goes_on() {
        let mut node = node(20.0, 0.0);
        node.start(1, Bytes::new(40 * MB));
        node.set_external(1.0);
        let mut done = Vec::new();
        node.advance(at(100.0), &mut done);
        assert!(done.is_empty());
        node.set_external(0.0);
        ends(&mut node, &[(1, 102.0)]);
    }

    #[test]
    fn what_lies_on_tape_is_recalled_first() {
        let config = StorageNodeConfig { recall: Latency::from_millis(60_000), ..node(20.0, 0.0).config };
        let mut node = StorageNode::new(config, 1).unwrap();
        node.start(1, Bytes::new(20 * MB));
        assert_eq!(node.moving(), 0, "it takes no bandwidth meanwhile");
        ends(&mut node, &[(1, 61.0)]);
    }

    #[test]
    fn recalls_wait_for_a_drive_and_what_is_on_the_disk_for_nothing() {
        let recall = Latency::from_millis(60_000);
        let config = StorageNodeConfig { recall, drives: Some(1), ..node(20.0, 0.0).config };
        let mut node = StorageNode::new(config, 1).unwrap();
        node.start(1, Bytes::new(20 * MB));
        node.start(2, Bytes::new(20 * MB));
        node.start_on_disk(3, Bytes::new(20 * MB));
        assert_eq!([1, 2, 3].map(|id| node.is_recalling(id)), [true, true, false]);
        ends(&mut node, &[(3, 1.0), (1, 61.0), (2, 121.0)]);
    }

    #[test]
    fn nothing_to_move_is_done_at_once() {
        let mut node = node(20.0, 0.0);
        node.start(1, Bytes::ZERO);
        ends(&mut node, &[(1, 0.0)]);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let good = node(20.0, 0.0).config;
        for (wrong, name) in [
            (StorageNodeConfig { peak: ByteRate::ZERO, ..good.clone() }, "peak"),
            (StorageNodeConfig { concurrency_cost: f64::NAN, ..good.clone() }, "concurrency_cost"),
            (StorageNodeConfig { jitter: 0.6, ..good.clone() }, "jitter"),
            (StorageNodeConfig { drives: Some(0), ..good.clone() }, "drives"),
            (StorageNodeConfig { client: Some(ByteRate::ZERO), ..good.clone() }, "client"),
        ] {
            let error = StorageNode::new(wrong, 1).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    proptest! {
        /// However often it is looked at in between, the same is done at the same times, to a nanosecond per
        /// look.
        #[test]
        fn looking_at_it_changes_nothing(
            sizes in prop::collection::vec(1..50u64, 1..8),
            looks in prop::collection::vec(0.0..30.0f64, 0..20),
            seed in 0..10u64,
        ) {
            let config = StorageNodeConfig { jitter: 0.2, concurrency_cost: 0.1, ..node(20.0, 0.0).config };
            let mut plain = StorageNode::new(config, seed).unwrap();
            for (id, size) in (0..).zip(&sizes) {
                plain.start(id, Bytes::new(size * MB));
            }
            let mut watched = plain.clone();
            let mut looks = looks;
            looks.sort_by(f64::total_cmp);
            let mut done = Vec::new();
            for look in looks {
                watched.advance(at(look), &mut done);
            }
            let mut watched: Vec<_> = done.into_iter().map(|one| (one.id, one.at.as_secs_f64()))
                .chain(finish(&mut watched)).collect();
            let mut plain = finish(&mut plain);
            // Two of one size end together, whichever is named first.
            plain.sort_by_key(|&(id, _)| id);
            watched.sort_by_key(|&(id, _)| id);
            prop_assert_eq!(plain.len(), sizes.len());
            for (one, other) in plain.iter().zip(&watched) {
                prop_assert!(one.0 == other.0 && (one.1 - other.1).abs() < 1e-5, "{:?} {:?}", one, other);
            }
        }

        /// Everything that was begun is done, and all of it was moved.
        #[test]
        fn nothing_is_lost(sizes in prop::collection::vec(0..50u64, 1..20), seed in 0..10u64) {
            let config = StorageNodeConfig { jitter: 0.5, concurrency_cost: 0.3, ..node(60.0, 0.0).config };
            let mut node = StorageNode::new(config, seed).unwrap();
            for (id, size) in (0..).zip(&sizes) {
                node.start(id, Bytes::new(size * MB));
            }
            let mut ids: Vec<u64> = finish(&mut node).into_iter().map(|one| one.0).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..sizes.len() as u64).collect::<Vec<_>>());
            prop_assert_eq!(node.moved(), Bytes::new(sizes.iter().sum::<u64>() * MB));
        }
    }
}
