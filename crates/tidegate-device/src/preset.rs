//! Devices with a name, and where their numbers come from.
//!
//! # `dnes-309170w`
//!
//! The IBM DNES-309170W (Ultrastar 18ES, 9.1 GB, 7200 rpm, SCSI) on which Lee's experiments run, inside
//! DiskSim, serving requests in order of arrival (Lee §4.1). DiskSim distributes the parameters that were
//! extracted from a real one (`ibm18es.diskspecs`, `.model`, `.seek`); from these come
//!
//! | parameter | value | source |
//! |---|---|---|
//! | rpm | 7200 | `ibm18es.model` |
//! | cylinders, heads | 11 474, 5 | `ibm18es.model` |
//! | sectors per track | 312 | `ibm18es.diskspecs`: 1561 per cylinder on average; the real disk has zones of 390 to fewer |
//! | track to track, full stroke | 1.062 ms, 12.92 ms | `ibm18es.seek`: first entry; last, extended from 11 377 cylinders to the whole stroke |
//! | average seek | 7.275 ms | `ibm18es.seek`, weighted over all pairs of cylinders, less two entries (10, 3400) that are evident slips |
//! | knee | 0.08 | least squares of this crate's curve against `ibm18es.seek`: 0.23 ms r.m.s. |
//! | head switch | 1.24 ms | `ibm18es.model`: the skew that allows for it, 58 of 390 sectors |
//! | overhead | 0.25 ms | `ibm18es.diskspecs`: read miss after read |
//! | write settle | 0.126 ms | `ibm18es.model` |
//!
//! No parameter is adjusted to Lee's results. He has the disk stable up to 75 IO/s, which he takes for three
//! quarters of its maximum; the model's maximum is 86 IO/s, and at his 60 IO/s (Poisson) the mean response
//! time is 27 ms. Left out: the drive's segmented buffer (random reads miss it).
//!
//! # `sata-stripe`
//!
//! The iSCSI target of Bjørgeengen's laboratory: logical volumes striped over SATA disks that the paper does
//! not name. Its unregulated figures (§3.4, §4, figures 10 to 13): twelve sequential writers reach 37 to 39
//! MB/s together, while a reader of 4 KiB at random, limited to 256 kB/s (64 per second), waits about 45 ms:
//! regulated to 20 ms, it gains 25.
//!
//! | parameter | value | source |
//! |---|---|---|
//! | disk | 250 GB, 7200 rpm, 4 surfaces, average seek 8.5 ms | assumption: a disk of the time, the Hitachi Deskstar T7K250 (data sheet, as tabulated by techreport.com/review/8362) |
//! | sectors per track | 1270 (78 MB/s under the head) | that disk's 67.8 MB/s sustained at the edge, once head and cylinder switches are added back; the volumes lie at the edge |
//! | cylinders | 96 000 | 250 GB at that density |
//! | track to track, full stroke | 0.8 ms, 17 ms | assumption: usual for the class |
//! | knee | 0.2 | assumption: the HP 97560 of Ruemmler and Wilkes |
//! | head switch, write settle, overhead | 1 ms, 0.5 ms, 0.2 ms | assumption: usual for the class |
//! | stripe unit | 64 KiB | assumption: the default of LVM |
//! | cache | none | assumption: a target that promises durability writes through |
//! | disks | 5 | **fitted**: 4 give 29 MB/s, 6 give 46 |
//! | reordering | C-LOOK among 8, oldest first after 0.5 s | **fitted**: 16 give a wait of 39 ms, 4 give 53. The age is the read deadline of Linux's deadline scheduler |
//!
//! Fitted are two whole numbers that the paper does not tell, to two figures that it does, without any
//! control law: twelve writers of 256 KiB (what iSCSI sends in one burst), one command each, sequentially in
//! volumes of 4 GiB laid out one after the other behind the reader's, 0.3 ms from answer to next command. Ten
//! seeds of a minute each (`tests/integration/presets.rs` asserts them):
//!
//! | | the paper | the model: mean over seeds, least to greatest |
//! |---|---|---|
//! | writers together | 37 to 39 MB/s | 37.6 MB/s, 35.7 to 39.5 |
//! | reader beside them | about 45 ms | 43.6 ms, 39.4 to 46.6 (p50 27 to 39, p95 109 to 126) |
//! | reader alone | not in the text | 5.7 ms (p95 9.4) |
//! | one writer or reader alone | 15 or 22 MB/s, over gigabit Ethernet | not fitted: 24 to 29 MB/s for one command of 256 KiB at a time |
//!
//! # `fc-raid5`, `fc-raid5-5`, `fc-raid0-6`, `fc-raid0-10`
//!
//! An array of the class on which PARDA was measured: a RAID 5 group of ten disks in an EMC CLARiiON CX3-40,
//! over Fibre Channel (PARDA §5). `fc-raid5-5` is the group of five of figure 7; the two without parity are
//! those that hold the data and the logs of its databases. The paper says nothing of the disks; the LUN of
//! 800 GB on six of them is what six disks of 146 GB hold.
//!
//! | parameter | value | source |
//! |---|---|---|
//! | disk | 146 GB, 15 000 rpm | assumption: the class that such arrays were sold with |
//! | cylinders, heads, sectors per track | 72 170, 4, 995 | the Seagate Cheetah 15K.5 of 146 GB as disk simulators have it; 995 is the mean over zones of 1200 to 720 |
//! | average seek, write settle | 3.5 ms, 0.5 ms | assumption: usual for the class. Hitachi specifies 3.1 to 3.3 ms typical for a read and 0.5 more for a write (Ultrastar 15K450, table 7), Seagate 4 for both together (Cheetah 15K.5) |
//! | track to track, full stroke, head switch, overhead | 0.2 ms, 7 ms, 0.4 ms, 0.2 ms | assumption: usual for the class |
//! | knee | 0.2 | assumption: the HP 97560 of Ruemmler and Wilkes |
//! | stripe unit, layout of the parity | 64 KiB, left-asymmetric | the CLARiiON's (CX500i configuration guide, figure 2-2) |
//! | cache | non-volatile | the CLARiiON mirrors its write cache and keeps it powered; a host's flush does not reach the disks |
//! | low, high | 0.6, 0.8 | the CLARiiON's defaults (Best practices for performance and availability, release 30); flushing in proportion between them is this crate's |
//! | overhead of the cache, of a hit in what was read ahead | 0.5 ms, 0.2 ms | assumption: a write crosses to the other controller and back |
//! | reading ahead | 1 MiB in pieces of 64 KiB, after four requests in a row | assumption. Workloads that are 70 % random hardly set it off: figure 6 changes by less than 1 % |
//! | age | 0.5 s | assumption: as for `sata-stripe` |
//! | reordering | nearest first among 5 | **fitted** to §4.1's four disks. Order and number decide how much faster the middle is: 4 give 904 against 792 requests per second, 8 give 978 against 771, and serving in one direction gives no difference at all |
//! | cache | 64 MiB | **fitted** to figure 6: with 256 MiB one host is faster than three, because so much of what it writes at random into 16 GiB meets in a row |
//! | destages at each disk | 16 | **fitted** to figure 6: with 8 and fewer, writes already wait for room with two hosts, and the throughput peaks there |
//!
//! Fitted to what the paper publishes without its law, and to nothing that it regulates. Ten seeds
//! (`tests/fc_raid5.rs` asserts them); requests per second, and mean latency:
//!
//! | | the paper | the model |
//! |---|---|---|
//! | §4.1: 4 hosts, 32 random reads of 16 KiB each, disks of 16 GB in a row | 780, 910, 920, 800; 40.0, 34.5, 35.0, 39.5 ms | 789, 926, 928, 787; 40.6, 34.6, 34.5, 40.7 ms |
//! | §4.1: one disk of 60 GB for all | about 790 each; 39 ms | 865 each; 37.0 ms |
//! | figure 6: 1 to 5 hosts, 16 KiB, 67 % reads, 70 % random, 32 each | peaks at three, latency goes on rising | one disk of 60 GB for all: 1755, 1861, 1891, 1889, 1886; 18, 34, 51, 68, 85 ms. A disk of 16 GiB each: 1871, 1909, 1913, 1873, 1846; 17, 34, 50, 68, 87 ms |
//! | figure 7: 7 hosts on 5 disks, 32 KiB, as above | 470 ms | 267 ms |
//! | figure 7: three of them 16 instead of 32 | 85 and 42; 375 ms | 155 and 74; 209 ms |
//! | figure 5: 8 outstanding, all mixes | 8 to 177 MB/s; greatest latency at random writes of 128 KiB, least at sequential reads of 4 KiB | 5 to 935 MB/s; 17 ms at the same, 0.2 ms at the same |
//!
//! Not compared: table 1, whose figures depend on what Filebench's OLTP profile asks for.
//!
//! What does not fit:
//! * Figure 7's five disks do 1.8 times in the model what they do in the paper, where each completes only 190
//!   I/Os per second. The text does not say that these are the disks of the other group, nor where on its 400
//!   GB the virtual disks lie (far apart, they take the model down to 1.6 times). The ratios hold: half the
//!   window, half the throughput, and with less load four fifths of the latency.
//! * Figure 5's greatest bandwidth is about what a host's link of 2 Gbit/s carries, and the model has no
//!   link: its sequential reads reach 540 MB/s, its sequential writes 930. `scenarios/parda/fig5.toml` has
//!   one before it. Its least, of random writes of 4 KiB, is lower than the paper's, whose cache must have
//!   kept more of the writes.
//!
//! # `dc-s4500`, `dc-s4600`
//!
//! Intel's SATA drives of 960 GB for reads and for mixed loads: one controller and one flash, with less and
//! with more of it spare. All figures are from the product specification of the series ("Intel Solid State
//! Drive DC S4500/S4600 Series", as of manualzz.com/doc/48879893), which gives the best of all capacities.
//!
//! | parameter | value | source |
//! |---|---|---|
//! | link | half duplex, 515 MB/s, 5.7 µs for each command | **fitted** to 4 KiB and 8 KiB reads and to the sequential rates |
//! | latency | 38 µs | **fitted** to the random write at depth 1 |
//! | read | 58 µs | **fitted** to the random read at depth 1 |
//! | retries | 0.15 % of page reads, 190 µs | **fitted** to 99.9 % of reads at depth 1 |
//! | dies, page, program | 32, 32 KiB, 1.1 ms: 953 MB/s | **fitted** together to the writes of both drives |
//! | over-provisioning | 0.33 and 0.145 | **fitted** to 4 KiB writes; 0.145 is 1024 GiB of flash for 960 GB |
//! | mapping | 2816 bytes | **fitted** to 8 KiB writes beside 4 KiB writes |
//! | reserve, buffer | 1 GiB, 8 MiB | assumption: a burst of some seconds; two pages for each die and more |
//! | block, erase, reads first | 512 pages, 5 ms, 8 | assumption: usual for the class |
//!
//! After twelve seconds of random writes, with one seed (`tests/integration/flash.rs` asserts them to 5 %, the percentile
//! to 10 %):
//!
//! | | published: S4600, S4500 | the model |
//! |---|---|---|
//! | 4 KiB reads per second, depth 32 | 72 000 | 73 244 |
//! | 8 KiB reads per second, depth 32 | 48 000 | 46 284 |
//! | 4 KiB writes per second, depth 32 | 65 000, 33 000 | 66 001, 33 354 |
//! | 8 KiB writes per second, depth 32 | 40 000, 21 000 | 41 441, 20 946 |
//! | MB/s read and written in sequence | 500, 490 | 504, 504 |
//! | 4 KiB read, 4 KiB write at depth 1 | 110 µs, 52 µs | 110 µs, 52 µs |
//! | 99.9 % of reads at depth 1 | 300 µs | 300 µs |
//! | 4 KiB, 70 % reads, depth 32 | not published | 73 203 and 69 958 per second |
//!
//! A misfit: 99.9 % of writes at depth 1 take up to 800 µs, and in the model 52: its buffer is never
//! full at that rate, and it knows no other pause. Sequential 4 KiB at depth 1 take 36 µs; the model does not
//! read ahead.
//!
//! # `dc-p3700`
//!
//! Intel's NVMe drive DC P3700 of 2 TB. The product specification (order number 330566-005US) gives the
//! rates, each the best of all capacities. AnandTech (anandtech.com/show/8104, "Random Read Performance")
//! gives reads at low depths. Myce (myce.wiki, "Intel DC P3700 1.6TB", 4K latency read test) gives the most
//! at a depth of 32.
//!
//! | parameter | value | source |
//! |---|---|---|
//! | link | full duplex, 2850 MB/s, 0.7 µs for each command | **fitted** to sequential reads and to the most random reads |
//! | latency | 18 µs | **fitted** to the sequential write at depth 1 |
//! | read | 90 µs | **fitted** to AnandTech's 8900 reads per second at depth 1 |
//! | dies | 128 | 2 TB of dies of 16 GB (20 nm MLC of 128 Gbit) |
//! | page, program | 32 KiB, 2.05 ms: 2046 MB/s | **fitted** to sequential writes, and their size to the mix |
//! | over-provisioning | 0.22 | **fitted** to random writes |
//! | mapping, retries | none | nothing is published to fit them to |
//! | reserve, buffer | 4 GiB, 16 MiB | assumption: as above |
//! | block, erase, reads first | 256 pages, 3 ms, 8 | assumption: usual for the class |
//!
//! | | published | the model |
//! |---|---|---|
//! | 4 KiB reads per second, depth 4 × 32 | 460 000 | 467 946 |
//! | 4 KiB writes per second, depth 4 × 32 | 175 000 | 174 588 |
//! | 4 KiB, 70 % reads, depth 4 × 32 | 265 000 | 267 101 |
//! | MB/s read and written in sequence | 2800, 2000 | 2807, 2034 |
//! | write at depth 1 | 20 µs | 20 µs |
//! | 4 KiB reads per second at depth 1, 8 (AnandTech) | 8900, 77 000 | 9080, 71 267 |
//! | 4 KiB reads per second at depth 32 (Myce) | about 270 000 | 265 350 |
//!
//! `tests/integration/flash.rs` asserts them to 5 %, AnandTech's at depth 8 and Myce's to 10 %.
//!
//! A misfit: AnandTech's depth of 8 is faster for each read than its depth of 1, which no queue is.
//!
//! # `ebs-gp2`, `ebs-gp3`
//!
//! General-purpose volumes of Amazon EBS with 100 GiB, after the user guide (docs.aws.amazon.com, "Amazon EBS
//! General Purpose SSD volumes"). Other sizes: [`ebs_gp2`] and [`ebs_gp3`].
//!
//! | parameter | `ebs-gp2` | `ebs-gp3` | source |
//! |---|---|---|---|
//! | rate | 3 IO/s for each GiB, 100 to 16 000 | 3000 IO/s | user guide |
//! | burst | 3000 IO/s below 1000 GiB, 5.4 million credits | none | user guide |
//! | throughput | 128 MiB/s up to 170 GiB, 250 above | 125 MiB/s | user guide; the figures of gp2 were not checked again |
//! | I/O size | 256 KiB | 256 KiB | user guide |
//! | latency, spread | 0.5 ms, 0.2 ms | 0.5 ms, 0.2 ms | assumption: the guide says "single-digit millisecond" |
//! | slack | 50 ms | 50 ms | assumption: the guide does not say over which time it limits |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate_units::{ByteRate, Bytes, Iops, Latency};

use crate::{
    ArrayConfig, BurstConfig, CacheConfig, DeviceConfig, DiskConfig, FlashConfig, QueueConfig, RaidLevel,
    ReadAheadConfig, SeekConfig, VolumeConfig,
};

/// A device with a name. The [module's documentation](self) says where its parameters come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Preset {
    /// `dnes-309170w`: Lee's disk.
    Dnes309170w,
    /// `sata-stripe`: a stripe set like Bjørgeengen's.
    SataStripe,
    /// `fc-raid5`: an array like PARDA's, ten disks.
    FcRaid5,
    /// `fc-raid5-5`: the same with five disks (PARDA figure 7).
    FcRaid5Of5,
    /// `fc-raid0-6`: six of its disks without parity (the data of PARDA's databases).
    FcRaid0Of6,
    /// `fc-raid0-10`: ten of its disks without parity (their logs).
    FcRaid0Of10,
    /// `dc-s4500`: a SATA drive for reads.
    DcS4500,
    /// `dc-s4600`: a SATA drive for mixed loads.
    DcS4600,
    /// `dc-p3700`: an NVMe drive.
    DcP3700,
    /// `ebs-gp2`: a cloud volume with burst credits.
    EbsGp2,
    /// `ebs-gp3`: a cloud volume with a flat rate.
    EbsGp3,
}

/// No preset has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no device preset `{0}`; there are {names}", names = Preset::ALL.map(Preset::name).join(", \
    "))]
pub struct UnknownPreset(pub String);

impl Preset {
    /// All there are.
    pub const ALL: [Self; 11] = [
        Self::Dnes309170w,
        Self::SataStripe,
        Self::FcRaid5,
        Self::FcRaid5Of5,
        Self::FcRaid0Of6,
        Self::FcRaid0Of10,
        Self::DcS4500,
        Self::DcS4600,
        Self::DcP3700,
        Self::EbsGp2,
        Self::EbsGp3,
    ];

    /// Its name, as in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dnes309170w => "dnes-309170w",
            Self::SataStripe => "sata-stripe",
            Self::FcRaid5 => "fc-raid5",
            Self::FcRaid5Of5 => "fc-raid5-5",
            Self::FcRaid0Of6 => "fc-raid0-6",
            Self::FcRaid0Of10 => "fc-raid0-10",
            Self::DcS4500 => "dc-s4500",
            Self::DcS4600 => "dc-s4600",
            Self::DcP3700 => "dc-p3700",
            Self::EbsGp2 => "ebs-gp2",
            Self::EbsGp3 => "ebs-gp3",
        }
    }

    /// Its parameters.
    #[must_use]
    pub fn config(self) -> DeviceConfig {
        match self {
            Self::Dnes309170w => DeviceConfig::Disk(dnes_309170w()),
            Self::SataStripe => DeviceConfig::Array(sata_stripe()),
            Self::FcRaid5 => DeviceConfig::Array(fc_array(10, RaidLevel::Raid5)),
            Self::FcRaid5Of5 => DeviceConfig::Array(fc_array(5, RaidLevel::Raid5)),
            Self::FcRaid0Of6 => DeviceConfig::Array(fc_array(6, RaidLevel::Raid0)),
            Self::FcRaid0Of10 => DeviceConfig::Array(fc_array(10, RaidLevel::Raid0)),
            Self::DcS4500 => DeviceConfig::Flash(FlashConfig { over_provisioning: 0.145, ..dc_s4600() }),
            Self::DcS4600 => DeviceConfig::Flash(dc_s4600()),
            Self::DcP3700 => DeviceConfig::Flash(dc_p3700()),
            Self::EbsGp2 => DeviceConfig::Volume(ebs_gp2(Bytes::from_gib(100))),
            Self::EbsGp3 => DeviceConfig::Volume(ebs_gp3(Bytes::from_gib(100))),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == name)
            .ok_or_else(|| UnknownPreset(name.to_owned()))
    }
}

impl TryFrom<String> for Preset {
    type Error = UnknownPreset;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<Preset> for String {
    fn from(preset: Preset) -> Self {
        preset.name().to_owned()
    }
}

fn dnes_309170w() -> DiskConfig {
    DiskConfig {
        rpm: 7_200,
        cylinders: 11_474,
        heads: 5,
        sectors_per_track: 312,
        seek: SeekConfig {
            track_to_track: Latency::from_micros(1_062),
            average: Latency::from_micros(7_275),
            full_stroke: Latency::from_micros(12_920),
            knee: 0.08,
        },
        head_switch: Latency::from_micros(1_240),
        write_settle: Latency::from_micros(126),
        overhead: Latency::from_micros(250),
        queue: QueueConfig::Fifo,
    }
}

fn sata_stripe() -> ArrayConfig {
    ArrayConfig {
        disks: 5,
        level: RaidLevel::Raid0,
        stripe_unit: Bytes::from_kib(64),
        disk: DiskConfig {
            rpm: 7_200,
            cylinders: 96_000,
            heads: 4,
            sectors_per_track: 1_270,
            seek: SeekConfig {
                track_to_track: Latency::from_micros(800),
                average: Latency::from_micros(8_500),
                full_stroke: Latency::from_millis(17),
                knee: 0.2,
            },
            head_switch: Latency::from_micros(1_000),
            write_settle: Latency::from_micros(500),
            overhead: Latency::from_micros(200),
            queue: QueueConfig::Elevator { depth: 8, max_age: Latency::from_millis(500) },
        },
        cache: None,
        read_ahead: None,
    }
}

/// The disks, the cache and the controller of `fc-raid5`, with as many disks as that.
#[must_use]
pub fn fc_array(disks: u32, level: RaidLevel) -> ArrayConfig {
    ArrayConfig {
        disks,
        level,
        stripe_unit: Bytes::from_kib(64),
        disk: DiskConfig {
            rpm: 15_000,
            cylinders: 72_170,
            heads: 4,
            sectors_per_track: 995,
            seek: SeekConfig {
                track_to_track: Latency::from_micros(200),
                average: Latency::from_micros(3_500),
                full_stroke: Latency::from_millis(7),
                knee: 0.2,
            },
            head_switch: Latency::from_micros(400),
            write_settle: Latency::from_micros(500),
            overhead: Latency::from_micros(200),
            queue: QueueConfig::ShortestSeek { depth: 5, max_age: Latency::from_millis(500) },
        },
        cache: Some(CacheConfig {
            size: Bytes::from_mib(64),
            overhead: Latency::from_micros(500),
            low: 0.6,
            high: 0.8,
            destage_depth: 16,
            destage_run: Bytes::from_kib(64),
            nonvolatile: true,
        }),
        read_ahead: Some(ReadAheadConfig {
            after: 4,
            distance: Bytes::from_mib(1),
            segment: Bytes::from_kib(64),
            overhead: Latency::from_micros(200),
        }),
    }
}

fn dc_s4600() -> FlashConfig {
    FlashConfig {
        capacity: Bytes::new(960_000_000_000),
        dies: 32,
        page: Bytes::from_kib(32),
        block_pages: 512,
        read: Latency::from_micros(58),
        program: Latency::from_micros(1_100),
        erase: Latency::from_millis(5),
        retries: 0.0015,
        retry: Latency::from_micros(190),
        reads_first: 8,
        over_provisioning: 0.33,
        reserve: Bytes::from_gib(1),
        mapping: Bytes::new(2_816),
        buffer: Bytes::from_mib(8),
        command: Latency::from_nanos(5_700),
        link: ByteRate::new(515e6),
        half_duplex: true,
        latency: Latency::from_micros(38),
    }
}

fn dc_p3700() -> FlashConfig {
    FlashConfig {
        capacity: Bytes::new(2_000_000_000_000),
        dies: 128,
        page: Bytes::from_kib(32),
        block_pages: 256,
        read: Latency::from_micros(90),
        program: Latency::from_micros(2_050),
        erase: Latency::from_millis(3),
        retries: 0.0,
        retry: Latency::ZERO,
        reads_first: 8,
        over_provisioning: 0.22,
        reserve: Bytes::from_gib(4),
        mapping: Bytes::ZERO,
        buffer: Bytes::from_mib(16),
        command: Latency::from_nanos(700),
        link: ByteRate::new(2_850e6),
        half_duplex: false,
        latency: Latency::from_micros(18),
    }
}

/// A gp2 volume of this size.
#[must_use]
pub fn ebs_gp2(size: Bytes) -> VolumeConfig {
    let gib = size.get() as f64 / Bytes::from_gib(1).get() as f64;
    let rate = Iops::new((3.0 * gib).clamp(100.0, 16_000.0));
    let burst = Iops::new(3_000.0);
    VolumeConfig {
        capacity: size,
        rate,
        burst: (rate < burst).then_some(BurstConfig { rate: burst, credits: 5_400_000, initial: None }),
        throughput: ByteRate::new(if gib <= 170.0 { 128.0 } else { 250.0 } * 1024.0 * 1024.0),
        io_size: Bytes::from_kib(256),
        slack: Latency::from_millis(50),
        latency: Latency::from_micros(500),
        spread: Latency::from_micros(200),
    }
}

/// A gp3 volume of this size with the rates that are part of its price.
#[must_use]
pub fn ebs_gp3(size: Bytes) -> VolumeConfig {
    VolumeConfig {
        rate: Iops::new(3_000.0),
        burst: None,
        throughput: ByteRate::new(125.0 * 1024.0 * 1024.0),
        ..ebs_gp2(size)
    }
}
