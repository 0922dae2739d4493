//! The storage of random scenarios.

use tidegate_device::preset::{ebs_gp2, ebs_gp3, fc_array};
use tidegate_device::{
    ArrayConfig, BurstConfig, DeviceConfig, ExponentialConfig, LinkConfig, Preset, RaidLevel, TiersConfig,
};
use tidegate_units::{ByteRate, Bytes, Iops, Latency};

use super::sketch::Sketch;

impl Sketch {
    /// Exponential servers; both numbers are drawn uniformly in the logarithm.
    pub(super) fn servers(&mut self, servers: (u32, u32), rates: (f64, f64)) {
        let device = self.exponential(servers, rates);
        self.array(device);
    }

    fn exponential(&mut self, servers: (u32, u32), rates: (f64, f64)) -> DeviceConfig {
        let servers = self.draw.scaled_whole(servers.0, servers.1);
        let rate = Iops::new(self.draw.scaled(rates.0, rates.1).round());
        DeviceConfig::Exponential(ExponentialConfig { rate, servers, capacity: Bytes::new(1 << 50) })
    }

    /// A single disk or a stripe.
    pub(super) fn disks(&mut self) {
        let preset = match self.draw.whole(0, 3) {
            0 => Preset::Dnes309170w,
            1 => Preset::SataStripe,
            2 => Preset::FcRaid0Of6,
            _ => Preset::FcRaid0Of10,
        };
        self.array(preset.config());
    }

    /// RAID 5 of 4 to 12 disks with a write-back cache of 16 to 256 MiB.
    pub(super) fn raid5(&mut self) {
        let array = self.raid5_array();
        self.array(DeviceConfig::Array(array));
    }

    fn raid5_array(&mut self) -> ArrayConfig {
        let disks = self.draw.whole(4, 12);
        let mut array = fc_array(disks, RaidLevel::Raid5);
        if let Some(cache) = &mut array.cache {
            cache.size = Bytes::from_mib(u64::from(self.draw.pick(&[16_u32, 32, 64, 128, 256])));
        }
        array
    }

    /// One of the drives. Its erased reserve is small, so that it is used up within seconds of writing.
    pub(super) fn flash(&mut self) {
        let preset = self.draw.pick(&[Preset::DcS4500, Preset::DcS4600, Preset::DcP3700]);
        let reserve = Bytes::from_mib(u64::from(self.draw.pick(&[64_u32, 128, 256])));
        let mut device = preset.config();
        if let DeviceConfig::Flash(flash) = &mut device {
            flash.reserve = reserve;
        }
        self.array(device);
    }

    /// A cloud volume. One with credits spends them during the run: then only its own rate is left.
    pub(super) fn cloud_volume(&mut self) {
        let size = Bytes::from_gib(u64::from(self.draw.scaled_whole(33, 700)));
        let mut volume = if self.draw.chance(0.6) { ebs_gp2(size) } else { ebs_gp3(size) };
        let slack = self.draw.pick(&[10_u32, 50, 200]);
        volume.slack = Latency::from_millis(u64::from(slack));
        volume.latency = Latency::from_micros(u64::from(self.draw.whole(400, 3_000)));
        let alone = DeviceConfig::Volume(tidegate_device::VolumeConfig { burst: None, ..volume.clone() });
        self.array(DeviceConfig::Volume(volume.clone()));
        if volume.burst.is_some() {
            self.states.push(alone);
        }
    }

    /// A fast and a slow tier, and two changes of the hit ratio.
    pub(super) fn tiers(&mut self) {
        let slow = if self.draw.chance(0.5) {
            let disks = self.draw.whole(4, 12);
            DeviceConfig::Array(ArrayConfig { cache: None, ..fc_array(disks, RaidLevel::Raid0) })
        } else {
            self.exponential((2, 16), (200.0, 1_500.0))
        };
        let fast = DeviceConfig::Exponential(ExponentialConfig {
            rate: Iops::new(self.draw.scaled(5_000.0, 40_000.0).round()),
            servers: 16,
            capacity: Bytes::new(1 << 50),
        });
        let hits: Vec<f64> = (0..3).map(|_| (self.draw.uniform(0.2, 0.9) * 20.0).round() / 20.0).collect();
        let with = |hits: f64| {
            DeviceConfig::Tiers(TiersConfig {
                fast: Box::new(fast.clone()),
                slow: Box::new(slow.clone()),
                hits,
                extent: None,
                changes: Vec::new(),
            })
        };
        self.array(with(hits[0]));
        self.states = hits.into_iter().map(with).collect();
    }

    /// A link whose bandwidth is 0.3 to 3 times what requests of 32 KiB need.
    pub(super) fn link(&mut self) {
        let device = if self.draw.chance(0.5) {
            DeviceConfig::Array(self.raid5_array())
        } else {
            self.exponential((2, 32), (500.0, 8_000.0))
        };
        self.array(device.clone());
        let needed = self.capacity_guess() * 32_768.0;
        let link = LinkConfig {
            rate: ByteRate::new((needed * self.draw.scaled(0.3, 3.0)).round()),
            overhead: Latency::from_micros(20),
            latency: Latency::from_micros(u64::from(self.draw.whole(20, 500))),
            half_duplex: self.draw.chance(0.3),
            device: Box::new(device),
        };
        self.array(DeviceConfig::Link(link));
    }

    /// Two changes of an exponential array's capacity, each by two to eight times.
    pub(super) fn capacity_changes(&mut self) {
        let DeviceConfig::Exponential(first) = self.states[0].clone() else { return };
        let mut rate = first.rate.per_second();
        for _ in 0..2 {
            let factor = self.draw.scaled(2.0, 8.0);
            let up = if rate < first.rate.per_second() { 0.8 } else { 0.3 };
            let changed = if self.draw.chance(up) { rate * factor } else { rate / factor };
            rate = changed.clamp(50.0, 20_000.0).round();
            self.states.push(DeviceConfig::Exponential(ExponentialConfig {
                rate: Iops::new(rate),
                ..first.clone()
            }));
        }
    }
}

/// Returns a volume that begins with credits that last so long at this throughput.
pub(super) fn with_credits_for(device: &DeviceConfig, iops: f64, seconds: f64) -> DeviceConfig {
    let mut device = device.clone();
    if let DeviceConfig::Volume(volume) = &mut device
        && let Some(burst) = &mut volume.burst
    {
        let spent = (iops - volume.rate.per_second()).max(1.0);
        let initial = ((spent * seconds) as u64).min(burst.credits);
        *burst = BurstConfig { initial: Some(initial), ..burst.clone() };
    }
    device
}
