//! The contracts that tenants ask for.

use thiserror::Error;
use tidegate_units::{Bytes, ConsumerName, Iops, Latency};

/// The least rate that a contract can be about, in IO/s: a request in a hundred seconds. Measuring a smaller
/// rate takes hours, and no storage notices it.
pub const LEAST_RATE: f64 = 0.01;

/// The largest request: the most that an NBD client may send at once.
pub const GREATEST_SIZE: Bytes = Bytes::from_mib(32);

/// The contract of a tenant: `{iops, size, rt}` (Lee §2). As long as the tenant sends no more than `iops`
/// requests per second, none is to take longer than `response_time`.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantDemand {
    /// The name of the tenant.
    pub name: ConsumerName,
    /// Requests per second.
    pub iops: Iops,
    /// Their mean size.
    pub size: Bytes,
    /// The time that each of them may take, from its arrival to its answer.
    pub response_time: Latency,
}

/// Demands that contradict neither themselves nor each other. At least one, each with a name of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantDemands(Vec<TenantDemand>);

/// The best that the storage can do. It refutes impossible contracts before they are measured.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageAbility {
    /// Requests per second of all tenants, mixed as their contracts have it, when more are always waiting.
    /// `None` if it was not measured: measuring it overloads the storage.
    pub capacity: Option<Iops>,
    /// The mean response time of each tenant's requests, in the order of the contracts. One request is sent
    /// at a time, and no other tenant sends any.
    pub alone: Vec<Latency>,
}

/// The reason why a contract cannot be kept, whatever else is promised.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum DemandError {
    /// There are none.
    #[error("there are no contracts to decide about")]
    Nobody,
    /// Two have one name.
    #[error("two contracts are those of `{0}`")]
    Twice(ConsumerName),
    /// Nothing per second, or next to nothing. A NaN or a negative number is nothing, too.
    #[error(
        "`{0}` asks for {1}, and a contract is about {LEAST_RATE} IO/s at least: leave out who sends nothing"
    )]
    Rate(ConsumerName, Iops),
    /// Requests without data, or larger than any.
    #[error("`{0}` asks for requests of {1}, and a request has 1 B to {GREATEST_SIZE}")]
    Size(ConsumerName, Bytes),
    /// No time at all.
    #[error(
        "`{0}` asks for a response time of nothing: give each request the time that its service takes, and \
            more"
    )]
    ResponseTime(ConsumerName),
    /// Less than a request takes when it is alone.
    #[error(
        "`{name}` asks for {asked}, and its requests take {alone} on average when no other consumer sends \
            any: ask \
            for more \
         than that, for smaller requests, or faster storage"
    )]
    BelowService {
        /// The tenant whose contract it is.
        name: ConsumerName,
        /// The response time that it asks for.
        asked: Latency,
        /// The time that its requests take alone.
        alone: Latency,
    },
    /// More than the storage completes.
    #[error(
        "together they ask for {asked:.1} IO/s, and the storage completes {capacity:.1}: ask for less, or \
            have fewer tenants"
    )]
    AboveCapacity {
        /// Requests per second of all contracts.
        asked: f64,
        /// The requests that the storage completes per second.
        capacity: f64,
    },
    /// The ability of the storage does not cover every tenant.
    #[error("these are {contracts} contracts, and response times alone of {alone}")]
    Ability {
        /// The number of contracts.
        contracts: usize,
        /// The number of response times that were given.
        alone: usize,
    },
}

impl DemandError {
    /// Returns the tenant that the error is about, if it is about one.
    #[must_use]
    pub const fn tenant(&self) -> Option<&ConsumerName> {
        match self {
            Self::Twice(name) | Self::Rate(name, _) | Self::Size(name, _) | Self::ResponseTime(name) => {
                Some(name)
            }
            Self::BelowService { name, .. } => Some(name),
            Self::Nobody | Self::AboveCapacity { .. } | Self::Ability { .. } => None,
        }
    }
}

impl TenantDemands {
    /// Takes contracts that are right by themselves.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the contracts.
    pub fn new(contracts: Vec<TenantDemand>) -> Result<Self, DemandError> {
        if contracts.is_empty() {
            return Err(DemandError::Nobody);
        }
        for (at, contract) in contracts.iter().enumerate() {
            contract.check()?;
            if contracts[..at].iter().any(|other| other.name == contract.name) {
                return Err(DemandError::Twice(contract.name.clone()));
            }
        }
        Ok(Self(contracts))
    }

    /// Checks that the storage can keep them at all: no response time is below that of a request alone, and
    /// no more is asked for than the storage completes. Contracts that pass may still be refused by
    /// [`judge`](crate::judge).
    ///
    /// # Errors
    /// The first contract that asks for the impossible, or that all of them do together.
    pub fn check(&self, ability: &StorageAbility) -> Result<(), DemandError> {
        if ability.alone.len() != self.0.len() {
            let (contracts, alone) = (self.0.len(), ability.alone.len());
            return Err(DemandError::Ability { contracts, alone });
        }
        for (contract, &alone) in self.0.iter().zip(&ability.alone) {
            if contract.response_time < alone {
                let (name, asked) = (contract.name.clone(), contract.response_time);
                return Err(DemandError::BelowService { name, asked, alone });
            }
        }
        let asked = self.total().per_second();
        match ability.capacity.map(Iops::per_second) {
            Some(capacity) if asked > capacity => Err(DemandError::AboveCapacity { asked, capacity }),
            _ => Ok(()),
        }
    }

    /// IOPS^T: the requests per second of all of them (Lee §2).
    #[must_use]
    pub fn total(&self) -> Iops {
        Iops::new(self.0.iter().map(|contract| contract.iops.per_second()).sum())
    }

    /// The contracts, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[TenantDemand] {
        &self.0
    }
}

impl TenantDemand {
    /// Checks the contract by itself.
    ///
    /// # Errors
    /// The first of rate, size and response time that is not within its bounds.
    pub fn check(&self) -> Result<(), DemandError> {
        let name = || self.name.clone();
        if self.iops.per_second() < LEAST_RATE {
            return Err(DemandError::Rate(name(), self.iops));
        }
        if self.size == Bytes::ZERO || self.size > GREATEST_SIZE {
            return Err(DemandError::Size(name(), self.size));
        }
        if self.response_time == Latency::ZERO {
            return Err(DemandError::ResponseTime(name()));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn contract(name: &str, iops: f64, millis: f64) -> TenantDemand {
        TenantDemand {
            name: ConsumerName::new(name).unwrap(),
            iops: Iops::new(iops),
            size: Bytes::from_kib(4),
            response_time: Latency::from_millis_f64(millis),
        }
    }

    fn refused(contracts: Vec<TenantDemand>) -> DemandError {
        TenantDemands::new(contracts).unwrap_err()
    }

    #[test]
    fn what_means_nothing_is_refused_and_named() {
        assert_eq!(refused(vec![]), DemandError::Nobody);
        let right = || contract("right", 1.0, 1.0);
        for iops in [0.0, -40.0, f64::NAN, f64::NEG_INFINITY, 0.009] {
            let error = refused(vec![right(), contract("w", iops, 35.0)]);
            assert!(matches!(&error, DemandError::Rate(..)), "{iops}: {error}");
            assert_eq!(error.tenant().unwrap().as_str(), "w");
        }
        for millis in [0.0, -1.0, f64::NAN] {
            let error = refused(vec![right(), contract("w", 40.0, millis)]);
            assert!(matches!(error, DemandError::ResponseTime(_)), "{millis}");
        }
        for size in [Bytes::ZERO, Bytes::new(GREATEST_SIZE.get() + 1)] {
            let error = refused(vec![TenantDemand { size, ..right() }]);
            assert!(matches!(error, DemandError::Size(..)), "{size}");
        }
        assert!(matches!(refused(vec![right(), right()]), DemandError::Twice(_)));
        // The least of everything is still something.
        let least = TenantDemand { size: Bytes::new(1), ..contract("w", LEAST_RATE, 1e-6) };
        assert!(TenantDemands::new(vec![least]).is_ok());
    }

    #[test]
    fn what_no_storage_of_this_speed_can_do_is_refused() {
        let contracts =
            TenantDemands::new(vec![contract("w1", 40.0, 35.0), contract("w2", 20.0, 38.0)]).unwrap();
        let ability = |capacity, second| StorageAbility {
            capacity: Some(Iops::new(capacity)),
            alone: vec![Latency::from_millis(12), Latency::from_millis(second)],
        };
        assert_eq!(contracts.check(&ability(60.0, 38)), Ok(()), "each at its bound");
        let error = contracts.check(&ability(60.0, 39)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`w2` asks for 38.0ms, and its requests take 39.0ms on average when no other consumer sends any: \
                ask \
                for more than \
             that, for smaller requests, or faster storage"
        );
        let error = contracts.check(&ability(59.9, 12)).unwrap_err();
        assert!(
            error.to_string().starts_with("together they ask for 60.0 IO/s, and the storage completes 59.9")
        );
        let unsaid = StorageAbility { capacity: None, alone: vec![] };
        assert!(matches!(contracts.check(&unsaid), Err(DemandError::Ability { .. })));
    }
}
