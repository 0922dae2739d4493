//! The storage behind the target: a device model, or the lab's servers.

use tidegate_device::{Device, DeviceCompletion, DeviceIo};
use tidegate_units::{Bytes, Instant, Latency};

use super::plan::{InvalidPlan, StoreModel};

/// The storage at work.
pub(super) enum StoreState {
    Device { device: Box<Device>, done: Vec<DeviceCompletion> },
    Servers(ServerBank),
}

/// Servers in order of arrival. The time of a request's completion is known on its arrival.
pub(super) struct ServerBank {
    /// Time at which each server is free.
    free: Vec<u64>,
    service: u64,
    stripe: u64,
}

impl StoreState {
    pub(super) fn new(store: &StoreModel, seed: u64) -> Result<Self, InvalidPlan> {
        Ok(match store {
            StoreModel::Device(config) => {
                Self::Device { device: Box::new(Device::new(config, seed)?), done: Vec::new() }
            }
            StoreModel::Servers { servers, service, stripe } => {
                if *servers == 0 || *stripe == Bytes::ZERO {
                    return Err(InvalidPlan::Nothing);
                }
                Self::Servers(ServerBank::new(*servers, *service, *stripe))
            }
        })
    }

    /// Takes a request. Returns the time of its completion where that is known now; the others come with
    /// [`Self::advance`].
    pub(super) fn submit(&mut self, now: u64, task: usize, io: DeviceIo) -> Result<Option<u64>, InvalidPlan> {
        match self {
            Self::Device { device, .. } => {
                device.submit(Instant::from_nanos(now), task as u64, io)?;
                Ok(None)
            }
            Self::Servers(servers) => Ok(Some(servers.submit(now, io))),
        }
    }

    /// Returns the time of its next event.
    pub(super) fn next_event(&self) -> Option<u64> {
        match self {
            Self::Device { device, .. } => device.next_event().map(Instant::as_nanos),
            Self::Servers(_) => None,
        }
    }

    /// Brings it to the present; appends the tasks that are done.
    pub(super) fn advance(&mut self, now: u64, tasks: &mut Vec<usize>) {
        if let Self::Device { device, done } = self {
            device.advance(Instant::from_nanos(now), done);
            tasks.extend(done.drain(..).map(|completion| completion.id as usize));
        }
    }
}

impl ServerBank {
    fn new(servers: u32, service: Latency, stripe: Bytes) -> Self {
        Self { free: vec![0; servers as usize], service: service.as_nanos(), stripe: stripe.get() }
    }

    /// Each stripe that the request touches is one request to one server.
    fn submit(&mut self, now: u64, io: DeviceIo) -> u64 {
        let stripes = io.offset / self.stripe..=(io.offset + u64::from(io.bytes) - 1) / self.stripe;
        let mut done = now;
        for stripe in stripes {
            let server = (stripe % self.free.len() as u64) as usize;
            self.free[server] = self.free[server].max(now) + self.service;
            done = done.max(self.free[server]);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_served_side_by_side_and_one_server_in_turn() {
        let mut servers = ServerBank::new(4, Latency::from_nanos(8), Bytes::new(64));
        assert_eq!(servers.submit(0, DeviceIo::read(0, 256)), 8, "four stripes, four servers");
        assert_eq!(servers.submit(0, DeviceIo::read(256, 64)), 16, "the first server again");
        assert_eq!(servers.submit(1, DeviceIo::write(32, 64)), 24, "two stripes: the later one counts");
        assert_eq!(servers.submit(100, DeviceIo::read(128, 64)), 108, "it has been idle");
    }
}
