//! The summary of a configuration, for people and for programs.

use std::fmt;

use serde::Serialize;
use tidegate_control::{Contract, LawKind, LoopConfig};
use tidegate_device::{DeviceConfig, ExponentialConfig, Preset};
use tidegate_gateway::{
    BackendConfig, ContractSnapshot, DataStore, ExportConfig, ExportStore, FineHistogram, GatewaySnapshot,
    PoolConfig, UpstreamConfig,
};
use tidegate_sched::{BeyondLimit, BucketRelease, Discipline};
use tidegate_service::entitlements::BandEntitlements;
use tidegate_units::{ByteRate, Bytes, ConsumerName, Iops, Latency};

use crate::admission::PoolContracts;
use crate::config::ServeConfig;

/// The exports, the addresses and the laws of a configuration. Serialised: plain numbers in the units that
/// keys name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigSummary {
    listen: Vec<String>,
    metrics: Option<String>,
    pools: Vec<Pool>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Pool {
    name: String,
    backend: String,
    depth: u32,
    scheduler: &'static str,
    law: Option<Regulation>,
    exports: Vec<ExportSummary>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Regulation {
    kind: LawKind,
    #[serde(rename = "target_seconds", serialize_with = "seconds")]
    target: Latency,
    #[serde(flatten)]
    set_point: ConfiguredSetPoint,
    #[serde(rename = "interval_seconds", serialize_with = "seconds")]
    interval: Latency,
    dry_run: bool,
    /// The entitlements of all consumers named in bands, at the end of each band.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bands: Vec<BandEntitlements>,
}

/// The set point, as far as the configuration says it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
enum ConfiguredSetPoint {
    #[serde(rename = "set_point_seconds", serialize_with = "seconds")]
    Fixed(Latency),
    /// The law finds it. This is the most that it may be.
    #[serde(rename = "set_point_ceiling_seconds", serialize_with = "seconds")]
    Found(Latency),
}

impl ConfiguredSetPoint {
    fn of(law: &LoopConfig) -> Self {
        if law.finds_set_point() { Self::Found(law.set_point()) } else { Self::Fixed(law.set_point()) }
    }
}

impl fmt::Display for ConfiguredSetPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(set_point) => write!(f, "{set_point}"),
            Self::Found(ceiling) => write!(f, "at most {ceiling}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ExportSummary {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(rename = "size_bytes", skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    shares: u32,
    protected: bool,
    read_only: bool,
    /// The addresses at which virtual machines have it as a disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disks: Vec<String>,
    #[serde(rename = "reservation_iops", skip_serializing_if = "Option::is_none")]
    reservation: Option<Iops>,
    #[serde(rename = "limit_iops", skip_serializing_if = "Option::is_none")]
    limit_iops: Option<Iops>,
    #[serde(rename = "limit_bytes_per_second", skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<ByteRate>,
    /// True if requests beyond the limit may go while no other consumer waits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    limit_soft: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<Promise>,
    /// The requirements of a contract that changes over the day, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requirements: Vec<Timed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goal_seconds: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Promise {
    iops: Iops,
    #[serde(rename = "response_time_seconds", serialize_with = "seconds")]
    response_time: Latency,
    #[serde(rename = "expected_seconds", serialize_with = "seconds")]
    expected: Latency,
    bucket: u32,
}

/// A promise, and when it holds, in UTC.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Timed {
    from: String,
    until: String,
    #[serde(flatten)]
    promise: Promise,
}

fn seconds<S: serde::Serializer>(latency: &Latency, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(latency.as_secs_f64())
}

impl ConfigSummary {
    /// The summary of a configuration.
    #[must_use]
    pub fn new(config: &ServeConfig) -> Self {
        Self {
            listen: config.gateway.listen.iter().map(|listen| listen.endpoint.to_string()).collect(),
            metrics: config.metrics.map(|address| format!("http://{address}/metrics")),
            pools: config.gateway.pools.iter().map(|one| pool(one, &config.contracts)).collect(),
        }
    }
}

impl ConfigSummary {
    /// Returns the configuration in one line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let exports: usize = self.pools.iter().map(|pool| pool.exports.len()).sum();
        let laws: Vec<_> = self.pools.iter().filter_map(|pool| pool.law.as_ref()).collect();
        let dry = match laws.iter().filter(|law| law.dry_run).count() {
            0 => String::new(),
            dry => format!(", on a dry run: {dry}"),
        };
        let (pools, laws) = (self.pools.len(), laws.len());
        format!("works here; pools: {pools}, exports: {exports}, laws: {laws}{dry}")
    }

    /// Returns the pools in words. A service logs its addresses by themselves: the configuration may leave
    /// ports to the system.
    pub(crate) fn pools(&self) -> String {
        self.pools.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

fn pool(pool: &PoolConfig, contracts: &[PoolContracts]) -> Pool {
    let contracts = contracts.iter().find(|contracts| contracts.pool == pool.name);
    Pool {
        name: pool.name.to_string(),
        backend: backend(&pool.backend),
        depth: pool.depth,
        scheduler: match pool.discipline {
            Discipline::StartTags => "sfq",
            Discipline::FinishTags => "yfq",
        },
        law: pool.law.as_ref().map(regulation),
        exports: pool.exports.iter().map(|one| export(one, requirements(contracts, &one.name))).collect(),
    }
}

fn backend(backend: &BackendConfig) -> String {
    match backend {
        BackendConfig::File { direct: false } => "files".to_owned(),
        BackendConfig::File { direct: true } => "files, past the page cache".to_owned(),
        BackendConfig::Emulated { device, changes, data, .. } => {
            let data = match data {
                DataStore::Memory { limit } => format!("up to {limit} in memory"),
                DataStore::File(path) => format!("data in {}", path.display()),
            };
            let changes = match changes.len() {
                0 => String::new(),
                1 => ", which changes once".to_owned(),
                count => format!(", which changes {count} times"),
            };
            format!("emulated {}{changes}, {data}", device_name(device))
        }
        BackendConfig::Nbd(upstream) => {
            let UpstreamConfig { address, connections, .. } = upstream;
            format!(
                "NBD server at {address}, up to {connections} connections each, asked when the service starts"
            )
        }
    }
}

fn device_name(device: &DeviceConfig) -> String {
    if let DeviceConfig::Exponential(ExponentialConfig { rate, servers, .. }) = device {
        let servers = if *servers == 1 { String::new() } else { format!(" of {servers} servers") };
        return format!("exponential service{servers} at {rate}");
    }
    Preset::ALL
        .iter()
        .find(|preset| preset.config() == *device)
        .map_or("device", |preset| preset.name())
        .to_owned()
}

fn regulation(law: &LoopConfig) -> Regulation {
    Regulation {
        kind: law.law.kind(),
        target: law.target,
        set_point: ConfiguredSetPoint::of(law),
        interval: law.interval.into(),
        dry_run: law.dry_run,
        bands: law.bands.as_ref().map(BandEntitlements::of).unwrap_or_default(),
    }
}

/// Returns the requirements of an export whose contract changes over the day.
fn requirements(contracts: Option<&PoolContracts>, name: &ConsumerName) -> Vec<Timed> {
    let of_it =
        contracts.into_iter().flat_map(|contracts| &contracts.exports).filter(|(export, ..)| export == name);
    let parts = of_it.flat_map(|(.., daily)| daily.parts()).filter(|(period, _)| !period.is_whole());
    let timed = parts.map(|(period, requirement)| Timed {
        from: period.from().to_string(),
        until: period.until().to_string(),
        promise: promise(
            &requirement.given.contract,
            requirement.given.bucket.unwrap_or(BucketRelease::USUAL_SIZE),
        ),
    });
    timed.collect()
}

const fn promise(contract: &Contract, bucket: u32) -> Promise {
    let (iops, response_time, expected) = (contract.iops(), contract.response_time(), contract.expected());
    Promise { iops, response_time, expected, bucket }
}

fn export(export: &ExportConfig, requirements: Vec<Timed>) -> ExportSummary {
    let (path, size, upstream) = match &export.store {
        ExportStore::Path(path) => (Some(path.display().to_string()), None, None),
        ExportStore::Size(size) => (None, Some(*size), None),
        ExportStore::Upstream(name) => (None, None, Some(name.to_string())),
    };
    let (iops, bytes_per_s) = export.limit.map_or((None, None), |limit| (limit.iops, limit.bytes_per_s));
    ExportSummary {
        name: export.name.to_string(),
        path,
        size,
        upstream,
        shares: export.shares.get(),
        protected: export.protected,
        read_only: export.read_only,
        disks: disks(export),
        reservation: export.reservation,
        limit_iops: iops,
        limit_bytes: bytes_per_s,
        limit_soft: export.limit.is_some_and(|limit| limit.beyond == BeyondLimit::Surplus),
        contract: export.contract.as_ref().map(|contract| promise(contract, export.bucket)),
        requirements,
        goal_seconds: export.goal.map(Latency::as_secs_f64),
    }
}

/// The addresses at which an export is a disk.
fn disks(export: &ExportConfig) -> Vec<String> {
    let sockets = export.disks.iter().map(ToString::to_string);
    sockets.chain(export.devices.iter().map(ToString::to_string)).collect()
}

impl fmt::Display for ConfigSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listening on {}", self.listen.join(", "))?;
        if let Some(metrics) = &self.metrics {
            write!(f, "; metrics on {metrics}")?;
        }
        self.pools.iter().try_for_each(|pool| write!(f, "\n{pool}"))
    }
}

impl Pool {
    fn has_contracts(&self) -> bool {
        self.exports.iter().any(|export| export.contract.is_some() || !export.requirements.is_empty())
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: {}, depth {}", self.name, self.backend, self.depth)?;
        f.write_str(if self.scheduler == "yfq" { ", yfq; " } else { "; " })?;
        match &self.law {
            None => write!(f, "no law, shares and limits only")?,
            Some(law) => {
                write!(f, "law {}: ", law.kind)?;
                match law.kind {
                    LawKind::Integral => {
                        write!(f, "keeps contracts, steers consumers without one to {}", law.set_point)?;
                    }
                    LawKind::SelfTuning | LawKind::QueueingModel => {
                        write!(f, "keeps goals, steers consumers without one to {}", law.set_point)?;
                        f.write_str(if law.kind == LawKind::QueueingModel { ", by a window" } else { "" })?;
                    }
                    LawKind::Auto | LawKind::Window | LawKind::Pid => {
                        let whose = match self.exports.iter().filter(|export| export.protected).count() {
                            0 => "everyone's response time",
                            _ => "protected reads",
                        };
                        let keeps = law.kind == LawKind::Auto && self.has_contracts();
                        f.write_str(if keeps { "keeps contracts, and " } else { "keeps " })?;
                        write!(f, "{whose} under {} (set point {})", law.target, law.set_point)?;
                    }
                }
                write!(f, ", decides every {}", law.interval)?;
                f.write_str(if law.dry_run { ", dry run: holds nothing" } else { "" })?;
            }
        }
        let bands = self.law.iter().flat_map(|law| &law.bands);
        for (index, entitlements) in bands.clone().enumerate() {
            write!(f, "\n  band {index}, {entitlements}")?;
        }
        if bands.count() > 0 {
            f.write_str("\n  beyond the last band, what is more by shares")?;
        }
        let width = self.exports.iter().map(|export| export.name.chars().count()).max().unwrap_or(0);
        self.exports.iter().try_for_each(|export| write!(f, "\n  {:<width$}  {export}", export.name))
    }
}

impl fmt::Display for ExportSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, &self.size, &self.upstream) {
            (Some(path), ..) => write!(f, "{path}")?,
            (None, Some(size), _) => write!(f, "{size}")?,
            (None, None, Some(upstream)) => write!(f, "upstream export {upstream:?}")?,
            (None, None, None) => {}
        }
        if self.protected {
            f.write_str(", protected")?;
        } else {
            write!(f, ", {} shares", self.shares)?;
        }
        if let Some(iops) = self.reservation {
            write!(f, ", at least {iops}")?;
        }
        if let Some(iops) = self.limit_iops {
            write!(f, ", at most {iops}")?;
        }
        if let Some(rate) = self.limit_bytes {
            write!(f, ", at most {rate}")?;
        }
        if self.limit_soft {
            f.write_str(" while others wait")?;
        }
        if let Some(Promise { iops, response_time, .. }) = &self.contract {
            write!(f, ", contract {iops} within {response_time}")?;
        }
        for (index, Timed { from, until, promise: Promise { iops, response_time, .. } }) in
            self.requirements.iter().enumerate()
        {
            let what = if index == 0 { "contract " } else { "" };
            write!(f, ", {what}{iops} within {response_time} from {from} until {until}")?;
        }
        if let Some(goal) = self.goal_seconds {
            write!(f, ", goal {}", Latency::from_secs_f64(goal))?;
        }
        if self.read_only {
            f.write_str(", read-only")?;
        }
        if self.disks.is_empty() { Ok(()) } else { write!(f, ", disk at {}", self.disks.join(", ")) }
    }
}

/// The outcome of a gateway's contracts, for people: the promise, the achieved rate, and the requests later
/// than promised.
#[derive(Debug, Clone)]
pub(crate) struct ContractSummary {
    contracts: Vec<(String, String, ContractSnapshot, FineHistogram)>,
}

impl ContractSummary {
    pub(crate) fn new(gateway: &GatewaySnapshot) -> Self {
        let consumers =
            gateway.pools.iter().flat_map(|pool| pool.consumers.iter().map(move |consumer| (pool, consumer)));
        let contracts = consumers.filter_map(|(pool, consumer)| {
            let tenant = consumer.tenant.as_ref()?;
            let contract = tenant.contract?;
            Some((pool.name.to_string(), consumer.name.to_string(), contract, tenant.released.clone()))
        });
        Self { contracts: contracts.collect() }
    }
}

impl fmt::Display for ContractSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (pool, name, kept, released)) in self.contracts.iter().enumerate() {
            let ContractSnapshot { contract, requests, late, active } = kept;
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}contract of {name} in pool {pool}: ")?;
            match contract {
                Some(terms) => write!(f, "{} within {} promised; ", terms.iops(), terms.response_time())?,
                None => f.write_str("nothing is promised now; ")?,
            }
            let (Some(mean), Some(p95), 1..) = (released.mean(), released.quantile(0.95), *requests) else {
                f.write_str("nothing was asked for")?;
                continue;
            };
            let achieved = Iops::new(*requests as f64 / active.as_secs_f64());
            let late_percent = 100.0 * *late as f64 / *requests as f64;
            write!(f, "{achieved} achieved over {:.1} s with requests outstanding, ", active.as_secs_f64())?;
            write!(f, "{late_percent:.1} % of {requests} late; mean {mean}, 95 % within {p95}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = "
        listen = ['tcp:127.0.0.1:10809']
        metrics = '127.0.0.1:9809'
        [pool.vg0]
        backend = { kind = 'file', direct = true }
        law = 'window'
        target = '15ms'
        dry_run = true
        [pool.vg0.export.database]
        path = '/dev/vg0/database'
        protected = true
        [pool.vg0.export.b]
        path = '/dev/vg0/b'
        read_only = true
        listen = ['vhost-user:/run/b.sock']
        limit = { iops = '500 IO/s', bandwidth = '20MiB/s' }
        [pool.toy]
        backend = { kind = 'emulated', preset = 'sata-stripe' }
        export.scratch = { size = '4GiB', shares = 7, reservation = '50 IO/s', limit = { iops = '90 IO/s', \
        soft = true } }
        [pool.far]
        backend = { kind = 'nbd', address = 'tcp:10.0.0.1:10809' }
        export.vm1 = { upstream = 'lun 1' }
        export.vm2 = {}
        [pool.server]
        backend = { kind = 'emulated', exponential = { rate = '1000 IO/s', servers = 2, capacity = '1GiB' } }
        export.served = { size = '1GiB' }
        [pool.kept]
        backend = { kind = 'emulated', preset = 'dnes-309170w' }
        depth = 1
        scheduler = 'yfq'
        law = 'integral'
        target = '50ms'
        export.w1 = { size = '2GiB', shares = 200, contract = { iops = '40 IO/s', response_time = '35ms', \
        expected = '29ms' } }
        export.rest = { size = '2GiB' }
    ";

    fn summary() -> ConfigSummary {
        ConfigSummary::new(&ServeConfig::parse("t", TEXT, Path::new("/")).unwrap())
    }

    #[test]
    fn says_what_is_served_where_and_under_which_law() {
        assert_eq!(
            summary().to_string(),
            "listening on tcp:127.0.0.1:10809; metrics on http://127.0.0.1:9809/metrics\n\
             pool vg0: files, past the page cache, depth 32; law window: keeps protected reads under 15.0ms \
             (set point 12.0ms), decides every 250ms, dry run: holds nothing\n  \
             database  /dev/vg0/database, protected\n  \
             b         /dev/vg0/b, 100 shares, at most 500 IO/s, at most 20 MiB/s, read-only, \
             disk at vhost-user:/run/b.sock\n\
             pool toy: emulated sata-stripe, up to 1 GiB in memory, depth 32; no law, shares and limits \
             only\n  \
             scratch  4 GiB, 7 shares, at least 50 IO/s, at most 90 IO/s while others wait\n\
             pool far: NBD server at tcp:10.0.0.1:10809, up to 4 connections each, asked when the service \
             starts, \
             depth 32; no law, shares and limits only\n  \
             vm1  upstream export \"lun 1\", 100 shares\n  \
             vm2  upstream export \"vm2\", 100 shares\n\
             pool server: emulated exponential service of 2 servers at 1000 IO/s, up to 1 GiB in memory, \
             depth 32; \
             no law, shares and limits only\n  \
             served  1 GiB, 100 shares\n\
             pool kept: emulated dnes-309170w, up to 1 GiB in memory, depth 1, yfq; law integral: keeps \
             contracts, \
             steers consumers without one to 40.0ms, decides every 1.00s\n  \
             w1    2 GiB, 200 shares, contract 40 IO/s within 35.0ms\n  \
             rest  2 GiB, 100 shares"
        );
    }

    #[test]
    fn a_law_is_called_by_its_own_name_whatever_it_shares_with_another_one() {
        let text = TEXT.replacen("law = 'integral'", "law = 'queueing-model'", 1);
        let summary = ConfigSummary::new(&ServeConfig::parse("t", &text, Path::new("/")).unwrap());
        let said = "law queueing-model: keeps goals, steers consumers without one to 40.0ms, by a window, \
            decides \
            every 1.00s";
        assert!(summary.to_string().contains(said), "{summary}");
        assert_eq!(serde_json::to_value(summary).unwrap()["pools"][4]["law"]["kind"], "queueing_model");
    }

    #[test]
    fn the_law_auto_says_that_it_keeps_contracts_where_there_are_some() {
        let text = TEXT.replacen("law = 'integral'", "law = 'auto'", 1);
        let said = |text: &str| {
            ConfigSummary::new(&ServeConfig::parse("t", text, Path::new("/")).unwrap()).to_string()
        };
        let keeps = "law auto: keeps contracts, and everyone's response time under 50.0ms";
        assert!(said(&text).contains(keeps), "{}", said(&text));
        let without =
            text.replacen("contract = {", "limit = {", 1).replacen("response_time = '35ms', ", "", 1);
        let without = without.replacen("expected = '29ms'", "soft = true", 1);
        assert!(said(&without).contains("law auto: keeps everyone's response time"), "{}", said(&without));
    }

    #[test]
    fn bands_are_said_as_what_everybody_is_entitled_to() {
        let text = "
            listen = ['unix:s']
            [pool.array]
            backend = { kind = 'emulated', preset = 'sata-stripe' }
            law = 'self-tuning'
            target = '20ms'
            bands = [
                { up_to = '100 IO/s', ratios = { business = 0.5, mining = 0.5 } },
                { up_to = '400 IO/s', ratios = { business = 1.0 } },
                { up_to = '900 IO/s', ratios = { mining = 1.0 } },
            ]
            export.business = { size = '1GiB' }
            export.mining = { size = '1GiB' }
        ";
        let summary = ConfigSummary::new(&ServeConfig::parse("t", text, Path::new("/")).unwrap());
        let said = "decides every 1.00s\n  \
             band 0, up to 100 IO/s together: business 50 IO/s, mining 50 IO/s\n  \
             band 1, up to 400 IO/s together: business 350 IO/s, mining 50 IO/s\n  \
             band 2, up to 900 IO/s together: business 350 IO/s, mining 550 IO/s\n  \
             beyond the last band, what is more by shares\n  business  1 GiB";
        assert!(summary.to_string().contains(said), "{summary}");
        let json = serde_json::to_value(summary).unwrap();
        let band = &json["pools"][0]["law"]["bands"][2];
        assert_eq!((&band["up_to_iops"], &band["entitled"][1]["iops"]), (&900.0.into(), &550.0.into()));
    }

    #[test]
    fn a_program_gets_numbers_in_the_units_that_keys_name() {
        let json = serde_json::to_value(summary()).unwrap();
        assert_eq!(json["listen"][0], "tcp:127.0.0.1:10809");
        assert_eq!(json["pools"][0]["law"]["target_seconds"], 0.015);
        assert_eq!(json["pools"][0]["law"]["kind"], "window");
        assert_eq!(json["pools"][0]["exports"][1]["limit_bytes_per_second"], 20.0 * 1_048_576.0);
        assert_eq!(json["pools"][1]["law"], serde_json::Value::Null);
        assert_eq!(json["pools"][1]["exports"][0]["size_bytes"], 4u64 << 30);
        assert_eq!(json["pools"][4]["scheduler"], "yfq");
        assert_eq!(json["pools"][4]["exports"][0]["contract"]["expected_seconds"], 0.029);
    }
}
