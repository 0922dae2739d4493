//! Platters and arm: where a sector is, and how long it takes to get there and over it.
//!
//! Time on the platter is counted in whole sector times, each a whole number of nanoseconds. Nothing rounds,
//! so that a head which arrives exactly where the next sector begins never misses it by a nanosecond, and
//! with it a revolution.

use tidegate_units::{Instant, Latency};

use crate::config_error::{DeviceConfigError, require};
use crate::disk_config::DiskConfig;
use crate::seek::SeekCurve;

/// The unit of addressing.
pub(crate) const SECTOR: u64 = 512;

/// Number of adjacent cylinders that keep their skews. The next band begins at an angle of its own, because
/// spare cylinders and mapped-out sectors lie between. (The layout extracted from an IBM DNES-309170W,
/// DiskSim's `ibm18es.model`, is cut like that every 256 cylinders.) Without it, streams that are equally far
/// apart would find the same rotational distance between any two neighbours. A disk's speed would hang on
/// that accident.
const BAND: u64 = 256;

/// Sectors that one request reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectorRange {
    pub(crate) write: bool,
    pub(crate) first: u64,
    /// At least one.
    pub(crate) sectors: u64,
}

impl SectorRange {
    /// The sectors that hold these bytes; at least one byte.
    pub(crate) const fn of_bytes(write: bool, offset: u64, bytes: u64) -> Self {
        let first = offset / SECTOR;
        Self { write, first, sectors: (offset + bytes).div_ceil(SECTOR) - first }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Mechanism {
    seek: SeekCurve,
    head_switch: Latency,
    write_settle: Latency,
    cylinders: u64,
    heads: u64,
    track: u64,
    sector_time: u64,
    /// Sectors by which a track's first lies behind that of the track before: just enough for the head to be
    /// there in time, so that reading on across tracks waits for nothing.
    track_skew: u64,
    cylinder_skew: u64,
    /// Decides the angles at which the bands begin. Of different disks they are different, so that no two
    /// platters stand alike.
    angles: u64,
    at: Track,
    /// Behind the last sector accessed: where the head is, as the elevator sees it.
    head: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Track {
    cylinder: u64,
    head: u64,
}

impl Mechanism {
    pub(crate) fn new(config: &DiskConfig, angles: u64) -> Result<Self, DeviceConfigError> {
        require((1..=100_000).contains(&config.rpm), "rpm", "between 1 and 100000")?;
        require((16..=1 << 24).contains(&config.cylinders), "cylinders", "between 16 and 16777216")?;
        require((1..=256).contains(&config.heads), "heads", "between 1 and 256")?;
        let track = u64::from(config.sectors_per_track);
        require((8..=1 << 16).contains(&track), "sectors-per-track", "between 8 and 65536")?;
        // At least 9 ns, by the bounds above.
        let sector_time = 60_000_000_000 / (u64::from(config.rpm) * track);
        let skew = |movement: Latency| {
            movement.saturating_add(config.write_settle).as_nanos().div_ceil(sector_time) % track
        };
        Ok(Self {
            seek: SeekCurve::new(&config.seek, config.cylinders)?,
            head_switch: config.head_switch,
            write_settle: config.write_settle,
            cylinders: u64::from(config.cylinders),
            heads: u64::from(config.heads),
            track,
            sector_time,
            track_skew: skew(config.head_switch),
            cylinder_skew: skew(config.head_switch.max(config.seek.track_to_track)),
            angles,
            at: Track { cylinder: 0, head: 0 },
            head: 0,
        })
    }

    pub(crate) const fn sectors(&self) -> u64 {
        self.cylinders * self.heads * self.track
    }

    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Moves the head over the extent, beginning at `start`. Returns the time at which its last sector has
    /// passed.
    pub(crate) fn access(&mut self, start: Instant, extent: SectorRange) -> Instant {
        let mut time = start;
        let mut next = extent.first;
        let end = extent.first + extent.sectors;
        while next < end {
            let (track, sector) = self.locate(next);
            let count = (self.track - sector).min(end - next);
            time = time + self.movement(track, extent.write);
            time = time + self.wait(time, track, sector);
            time = time + Latency::from_nanos(count * self.sector_time);
            self.at = track;
            next += count;
        }
        self.head = end;
        time
    }

    const fn locate(&self, sector: u64) -> (Track, u64) {
        let track = sector / self.track;
        (Track { cylinder: track / self.heads, head: track % self.heads }, sector % self.track)
    }

    fn movement(&self, to: Track, write: bool) -> Latency {
        let moving = if to.cylinder != self.at.cylinder {
            let distance = to.cylinder.abs_diff(self.at.cylinder);
            // At most 2^24 cylinders: the distance fits.
            self.seek.time(distance as u32).max(self.head_switch)
        } else if to.head != self.at.head {
            self.head_switch
        } else {
            return Latency::ZERO;
        };
        if write { moving.saturating_add(self.write_settle) } else { moving }
    }

    /// Returns the time from `now` until the sector's beginning is under the head.
    fn wait(&self, now: Instant, track: Track, sector: u64) -> Latency {
        let revolution = self.track * self.sector_time;
        let track_switches = track.cylinder * (self.heads - 1) + track.head;
        let skew = track_switches * self.track_skew + track.cylinder * self.cylinder_skew;
        let band = scatter(self.angles ^ scatter(track.cylinder / BAND)) % self.track;
        let target = (sector + skew + band) % self.track * self.sector_time;
        let angle = now.as_nanos() % revolution;
        Latency::from_nanos((target + revolution - angle) % revolution)
    }
}

/// A number that looks random and is always the same: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA
/// 2014).
const fn scatter(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::tests::config;

    #[test]
    fn a_sequential_pass_waits_for_nothing_but_the_skews() {
        let config = config();
        let mut disk = Mechanism::new(&config, 12_345).unwrap();
        let tracks = 3 * u64::from(config.heads);
        let begun = disk.access(Instant::ZERO, SectorRange { write: false, first: 0, sectors: 1 });
        let rest = tracks * disk.track - 1;
        let done = disk.access(begun, SectorRange { write: false, first: 1, sectors: rest });
        let skews = (tracks - 3) * disk.track_skew + 2 * disk.cylinder_skew;
        let expected = (rest + skews) * disk.sector_time;
        assert_eq!(done.latency_since(begun).as_nanos(), expected);
    }

    #[test]
    fn the_same_pass_in_pieces_takes_exactly_as_long() {
        let config = config();
        let mut disk = Mechanism::new(&config, 777).unwrap();
        let mut pieces = disk.clone();
        let whole = disk.access(Instant::ZERO, SectorRange { write: true, first: 0, sectors: 7 * 500 });
        let in_pieces = (0..500).fold(Instant::ZERO, |time, piece| {
            pieces.access(time, SectorRange { write: true, first: piece * 7, sectors: 7 })
        });
        assert_eq!(whole, in_pieces);
    }

    #[test]
    fn a_sector_just_missed_comes_round_a_revolution_later() {
        let mut disk = Mechanism::new(&config(), 0).unwrap();
        let once = disk.access(Instant::ZERO, SectorRange { write: false, first: 5, sectors: 1 });
        let again = disk.access(once, SectorRange { write: false, first: 5, sectors: 1 });
        assert_eq!(again.latency_since(once).as_nanos(), disk.track * disk.sector_time);
    }

    #[test]
    fn another_cylinder_is_reached_no_sooner_than_another_head() {
        let mut slow_heads = config();
        slow_heads.head_switch = Latency::from_millis(3);
        let disk = Mechanism::new(&slow_heads, 0).unwrap();
        let (head, cylinder) = (Track { cylinder: 0, head: 1 }, Track { cylinder: 1, head: 0 });
        assert_eq!(disk.movement(head, false), Latency::from_millis(3));
        assert_eq!(disk.movement(cylinder, false), Latency::from_millis(3));
        assert_eq!(disk.movement(disk.at, true), Latency::ZERO, "what does not move does not settle");
    }

    #[test]
    fn bytes_are_read_by_the_sectors_that_hold_them() {
        assert_eq!(SectorRange::of_bytes(false, 511, 2), SectorRange { write: false, first: 0, sectors: 2 });
        assert_eq!(
            SectorRange::of_bytes(false, 1_024, 512),
            SectorRange { write: false, first: 2, sectors: 1 }
        );
    }
}
