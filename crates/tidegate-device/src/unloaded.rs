//! The latency of a device without load.

use tidegate_units::{Instant, Latency};

use crate::config::DeviceConfig;
use crate::config_error::DeviceConfigError;
use crate::device::Device;
use crate::io::DeviceIo;

/// Reads that are measured, one at a time.
const READS: u64 = 200;

/// Their size in bytes.
const SIZE: u32 = 4096;

/// The bytes that they are spread over: few enough that disks seek no further than most consumers make them.
const WITHIN: u64 = 4 << 30;

/// The pause between two of them, in nanoseconds: longer than what a device does on its own account.
const PAUSE: u64 = 20_000_000;

impl DeviceConfig {
    /// Returns the mean latency of random reads of 4 KiB within 4 GiB, one at a time, on a device at rest.
    ///
    /// # Errors
    /// When the model has no such device.
    pub fn unloaded_latency(&self) -> Result<Latency, DeviceConfigError> {
        let mut device = Device::new(self, 1)?;
        let blocks = (device.capacity().get().min(WITHIN) / u64::from(SIZE)).max(1);
        let (mut now, mut total, mut done) = (Instant::ZERO, 0, Vec::new());
        for id in 0..READS {
            now = Instant::from_nanos(now.as_nanos() + PAUSE);
            device.advance(now, &mut done);
            done.clear();
            // Multiples of the golden ratio spread evenly, without a pattern that a device could follow.
            let block = (u128::from(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(blocks)) >> 64;
            let begun = now;
            let io = DeviceIo::read(block as u64 * u64::from(SIZE), SIZE);
            if device.submit(now, id, io).is_err() {
                continue;
            }
            while done.is_empty() {
                let Some(next) = device.next_event() else { break };
                now = now.max(next);
                device.advance(now, &mut done);
            }
            total += now.saturating_since(begun).as_nanos();
            done.clear();
        }
        Ok(Latency::from_nanos(u64::try_from(total / u128::from(READS)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_units::{Bytes, Iops};

    use super::*;
    use crate::exponential::ExponentialConfig;

    #[test]
    fn an_array_of_many_servers_takes_the_time_of_one() {
        let config =
            ExponentialConfig { rate: Iops::new(6_400.0), servers: 64, capacity: Bytes::new(1 << 40) };
        let latency = DeviceConfig::Exponential(config).unloaded_latency().unwrap().as_millis_f64();
        assert!((8.0..12.0).contains(&latency), "{latency} ms");
    }
}
