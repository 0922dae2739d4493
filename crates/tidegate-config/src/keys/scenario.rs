//! Keys of scenarios (`tidegate sim`).

use std::ops::Bound::{Excluded, Included, Unbounded};

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of the root.
pub const SCENARIO: KeyTable = table!(
    "scenario",
    "## scenario",
    [
        Key::new("name", Text, "required", "the name in results"),
        Key::new("description", Text, "none", "the purpose of the scenario"),
        Key::new("duration", Time, "required", "the length of the simulation"),
        Key::new(
            "warmup",
            Time,
            "`\"0s\"`",
            "time at the beginning that the statistics leave out; the time series has it"
        ),
        Key::new(
            "seed",
            Whole(0, 9223372036854775807),
            "`1`",
            "seed of everything random; every workload, array and host has a stream of its own, by \
        its name"
        ),
        Key::new(
            "series_interval",
            Time,
            "`\"1s\"`",
            "the interval of the time series, and of `above_target_fraction`; at least a millionth \
        of `duration`"
        ),
        Key::new("array", Tables("scenario.array"), "required", "the storage: `[array.NAME]`"),
        Key::new(
            "disk",
            Tables("scenario.disk"),
            "none",
            "virtual disks that several virtual machines share: `[disk.NAME]`"
        ),
        Key::new("host", Tables("scenario.host"), "required", "`[host.NAME]`"),
        Key::new("vm", Tables("scenario.vm"), "required", "virtual machines, the consumers: `[vm.NAME]`"),
        Key::new(
            "workload",
            Tables("scenario.workload"),
            "required",
            "the workloads of virtual machines: `[workload.NAME]`"
        ),
        Key::new(
            "network",
            Table("scenario.network"),
            "ideal",
            "the network between hosts, which carries their reports"
        ),
    ]
);

/// Keys of `scenario.array`.
pub const ARRAY: KeyTable = table!(
    "scenario.array",
    "## array",
    [
        Key::new(
            "preset",
            Text,
            "one of three",
            "a model fitted to published figures: the presets of emulated backends, see \
        [configuration.md](configuration.md)"
        ),
        Key::new(
            "rate",
            Rate,
            "one of three",
            "an exponential server: what it completes per second while it is busy, whatever the \
        requests are"
        ),
        Key::new("device", Device, "one of three", "a model with all its parameters; `model` names it")
            .details(
                "[`\"flash\"`](#device-flash), [`\"volume\"`](#device-volume), \
        [`\"tiers\"`](#device-tiers) and [`\"link\"`](#device-link) have the keys below. \
        `\"exponential\"`, `\"disk\"` and `\"array\"` have those of `tidegate-device`."
            ),
        Key::new(
            "servers",
            Whole(1, 1024),
            "`1`",
            "with `rate`: how many serve at once, each with its part of the rate"
        ),
        Key::new("capacity", Size, "`\"1048576TiB\"`", "with `rate`: how much it pretends to hold"),
        Key::new("changes", TableList("scenario.change"), "none", "changes of the array over time"),
    ]
);

/// Keys of `scenario.change`.
pub const CHANGE: KeyTable = table!(
    "scenario.change",
    "## change",
    [
        Key::new("at", Time, "required", "the time of the change"),
        Key::new("preset", Text, "one of three", "as for an array"),
        Key::new("rate", Rate, "one of three", "the rate from then on; `\"0 IO/s\"` stands still"),
        Key::new("device", Device, "one of three", "as for an array"),
        Key::new("servers", Whole(1, 1024), "`1`", "as for an array"),
        Key::new("capacity", Size, "`\"1048576TiB\"`", "as for an array"),
    ]
);

/// Keys of `scenario.flash`: a device with `model = "flash"`.
pub const FLASH: KeyTable = table!(
    "scenario.flash",
    "## device: flash",
    [
        Key::new("capacity", Size, "required", "the number of bytes that it offers"),
        Key::new("dies", Whole(1, 1024), "required", "units that read, program and erase independently"),
        Key::new("page", Size, "required", "the number of bytes that one program writes")
            .bounds("a multiple of 4 KiB, at most 1 MiB"),
        Key::new("block-pages", Whole(1, 65_536), "required", "the number of pages that one erase frees"),
        Key::new("read", Time, "required", "the time that a die needs to read from a page"),
        Key::new("program", Time, "required", "the time that a die needs to program a page"),
        Key::new("erase", Time, "required", "the time that a die needs to erase a block"),
        Key::new(
            "retries",
            Number((Included(0.0), Included(1.0))),
            "`0.0`",
            "the part of page reads that need a further attempt"
        ),
        Key::new("retry", Time, "`\"0s\"`", "the time that the further attempt needs"),
        Key::new(
            "reads-first",
            Whole(0, 4_294_967_295),
            "required",
            "the number of reads of a die that pass a waiting program"
        ),
        Key::new(
            "over-provisioning",
            Number((Included(0.01), Included(1.0))),
            "required",
            "spare flash as a part of the capacity, *s*"
        )
        .details("Each byte written at random has (1 + s)/2s − 1 other bytes moved."),
        Key::new(
            "reserve",
            Size,
            "required",
            "the erased space of a device at rest, which takes a burst of writes at full speed"
        ),
        Key::new("mapping", Size, "required", "bytes of mapping tables that each write at random adds")
            .bounds("at most `page`"),
        Key::new("buffer", Size, "required", "the size of the write buffer, from which writes are answered")
            .bounds("at least `page`, at most 16 GiB"),
        Key::new(
            "command",
            Time,
            "required",
            "the time for which a request occupies the link beside its data"
        ),
        Key::new("link", ByteRate, "required", "the bandwidth of the link"),
        Key::new("half-duplex", Flag, "`false`", "reads and writes share the link, as with SATA"),
        Key::new("latency", Time, "required", "the constant part of every response time"),
    ]
);

/// Keys of `scenario.volume`: a device with `model = "volume"`.
pub const CLOUD_VOLUME: KeyTable = table!(
    "scenario.cloud-volume",
    "## device: volume",
    [
        Key::new("capacity", Size, "required", "the number of bytes that it offers"),
        Key::new("rate", Rate, "required", "I/Os per second at all times, and the credits earned per second"),
        Key::new("burst", Table("scenario.burst"), "none", "credits for a higher rate"),
        Key::new("throughput", ByteRate, "required", "bytes per second at all times"),
        Key::new(
            "io-size",
            Size,
            "required",
            "the most bytes of one I/O; a larger request counts as several"
        ),
        Key::new("slack", Time, "required", "the time whose rate may be used at once").bounds("at most 1h"),
        Key::new("latency", Time, "required", "the least time from the limiter to the completion"),
        Key::new(
            "spread",
            Time,
            "`\"0s\"`",
            "the mean of the exponentially distributed time that is added to `latency`"
        ),
    ]
);

/// Keys of `scenario.burst`: the credits of a volume.
pub const BURST: KeyTable = table!(
    "scenario.burst",
    "### `burst`",
    [
        Key::new("rate", Rate, "required", "I/Os per second while there are credits")
            .bounds("at least the volume's"),
        Key::new("credits", Whole(1, i64::MAX), "required", "the most credits; each I/O spends one"),
        Key::new("initial", Whole(0, i64::MAX), "`credits`", "the credits at the beginning")
            .bounds("at most `credits`"),
    ]
);

/// Keys of `scenario.tiers`: a device with `model = "tiers"`.
pub const TIERS: KeyTable = table!(
    "scenario.tiers",
    "## device: tiers",
    [
        Key::new("fast", Either(&[Text, Device]), "required", "the device that serves the hits"),
        Key::new("slow", Either(&[Text, Device]), "required", "the device that serves everything else")
            .details("Its size is the size of the whole."),
        Key::new(
            "hits",
            Number((Included(0.0), Included(1.0))),
            "required",
            "the part of the requests, or of the extents, on the fast device"
        ),
        Key::new(
            "extent",
            Size,
            "none: by chance",
            "the size of the extents of which each lies on one tier, by its address"
        ),
        Key::new(
            "changes",
            TableList("scenario.hit-change"),
            "none",
            "changes of the hit ratio, in the order of time; at most 1024"
        ),
    ]
);

/// Keys of `scenario.hit-change`: a change of the hit ratio of two tiers.
pub const HIT_CHANGE: KeyTable = table!(
    "scenario.hit-change",
    "### `changes` of tiers",
    [
        Key::new("after", Time, "required", "the time after the first request of all"),
        Key::new("hits", Number((Included(0.0), Included(1.0))), "required", "the hit ratio from then on"),
    ]
);

/// Keys of `scenario.link`: a device with `model = "link"`.
pub const LINK: KeyTable = table!(
    "scenario.link",
    "## device: link",
    [
        Key::new("rate", ByteRate, "required", "bytes per second of each direction"),
        Key::new(
            "overhead",
            Time,
            "`\"0s\"`",
            "the time for which a request occupies its direction beside its data"
        ),
        Key::new("latency", Time, "`\"0s\"`", "the time that a message takes in either direction"),
        Key::new("half-duplex", Flag, "`false`", "both directions share the rate"),
        Key::new("device", Either(&[Text, Device]), "required", "the device behind the link"),
    ]
);

/// Keys of `scenario.disk`.
pub const DISK: KeyTable = table!(
    "scenario.disk",
    "## disk",
    [
        Key::new("array", Text, "required", "the array of the disk"),
        Key::new(
            "offset",
            Size,
            "in order",
            "its first byte; without it shared disks lie one after the other from the array's \
        beginning"
        ),
        Key::new("size", Size, "`\"16GiB\"`", "its size"),
    ]
);

/// Keys of `scenario.host`.
pub const HOST: KeyTable = table!(
    "scenario.host",
    "## host",
    [
        Key::new(
            "count",
            Whole(0, 9223372036854775807),
            "one",
            "a template: so many equal hosts, `NAME-1` and so on, with leading zeros"
        ),
        Key::new("array", Text, "the only one", "its main array"),
        Key::new("depth", Whole(1, 1024), "`64`", "the most requests outstanding at an array"),
        Key::new(
            "law",
            Words(&["auto", "window", "pid", "integral", "self-tuning", "queueing-model", "none"]),
            "`\"auto\"` with a `target`, otherwise `\"none\"`",
            "the control law; a host without one is uncontrolled"
        )
        .details(
            "`\"auto\"` [learns what it needs](../guide/auto.md), and keeps contracts and goals. \
        `\"integral\"` keeps contracts, and steers each virtual machine by its own requests. \
        `\"self-tuning\"` keeps goals, and divides by bands. So does `\"queueing-model\"`, [by \
        a window](../guide/bands.md#the-model-of-a-queue)."
        ),
        Key::new("target", Time, "required with a law", "the response time promised"),
        Key::new(
            "set_point",
            Either(&[Number((Excluded(0.0), Included(1.0))), Words(&["auto"])]),
            "`0.8`",
            "the law steers to this part of the target; `1.0` where `target` is PARDA's 𝓛"
        )
        .details(
            "The default of the law `auto` is `0.98`. `\"auto\"`: it finds the knee, with the target \
        as its ceiling."
        ),
        Key::new(
            "statistic",
            Words(&["mean", "p50", "p90", "p95", "p99"]),
            "`\"mean\"`",
            "the [statistic](../guide/simulation.md#percentiles) that is compared with the target, by \
        the law and in the results"
        )
        .details(
            "Other than `mean` not with the laws that take each virtual machine by itself, and not \
        with `normalise`. If laws share the array, it takes `signal = \"local\"`."
        ),
        Key::new(
            "interval",
            Time,
            "`\"250ms\"`; `\"1s\"` of the integral law, the self-tuning one and the one with the \
        model of a queue",
            "the time between two decisions of the law; PARDA: `\"2s\"`"
        ),
        Key::new("smoothing", Time, "`\"200ms\"`", "time constant of the average over response times"),
        Key::new(
            "past_weight",
            Number((Included(0.0), Excluded(1.0))),
            "unset",
            "instead of `smoothing`: α of PARDA's equation 1. 0.002 as the paper has it, 0.998 in \
        the other reading"
        ),
        Key::new("normalise", Flag, "`false`", "judge by response times scaled to 8 KiB requests"),
        Key::new("idle_half_life", Time, "`\"2s\"`", "without samples, a command halves in this time"),
        Key::new("dry_run", Flag, "`false`", "decide, and hold nothing"),
        Key::new("knee", Table("knee"), "defaults", "parameters of `set_point = \"auto\"`")
            .applies_to("window"),
        Key::new("auto", Table("auto"), "defaults", "bounds of the law `auto`").applies_to("auto"),
        Key::new("window", Table("window"), "defaults", "parameters of the window law").applies_to("window"),
        Key::new("pid", Table("pid"), "defaults", "parameters of the PID").applies_to("pid"),
        Key::new("integral", Table("integral"), "defaults", "parameters of the integral law")
            .applies_to("integral"),
        Key::new(
            "self_tuning",
            Table("self_tuning"),
            "defaults",
            "parameters of `law = \"self-tuning\"` and `\"queueing-model\"`"
        )
        .applies_to("self-tuning, queueing-model"),
        Key::new(
            "bands",
            TableList("bands"),
            "none: all by shares",
            "with `law = \"auto\"`, `\"self-tuning\"` and `\"queueing-model\"`: the part of the \
        throughput of each virtual machine"
        )
        .applies_to("auto, self-tuning, queueing-model"),
        Key::new(
            "scheduler",
            Words(&["sfq", "yfq"]),
            "`\"sfq\"`",
            "the order of requests: by start tags, or by finish tags as Lee has it"
        ),
        Key::new(
            "release",
            Table("release"),
            "defaults",
            "the release of requests, with `law = \"integral\"` or `\"self-tuning\"`"
        ),
        Key::new(
            "beta_scale",
            Words(&["per-share", "relative"]),
            "`\"per-share\"` if laws share the array, otherwise `\"relative\"`",
            "the meaning of β: K per 100 active shares of the host, or K times the active part of \
        its shares"
        )
        .details(
            "Laws share an array if several hosts with a law are on it, or with `scope = \"vm\"`. \
        K, the window law's `beta_gain`, is `1.0` with `\"per-share\"` and `0.1` with `\"relative\"` \
        unless it is written. A gateway has the same defaults, with and without `cluster = true`."
        ),
        Key::new(
            "signal",
            Words(&["cluster", "local"]),
            "`\"cluster\"`",
            "steer by the mean over all hosts on the array, weighted by their I/Os, or by what \
        this host measures alone"
        ),
        Key::new(
            "scope",
            Words(&["host", "vm"]),
            "`\"host\"`",
            "one law for the host, whose window its scheduler divides; or one for each virtual \
        machine"
        ),
        Key::new("phase", Time, "`\"0s\"`", "the offset of this host's decisions against the others'"),
        Key::new(
            "law_from",
            Time,
            "`\"0s\"`",
            "the time of the law's first decision; until then the host is uncontrolled and silent"
        ),
        Key::new(
            "batch",
            Table("batch"),
            "defaults",
            "bounds within which the scheduler stays with one virtual machine"
        ),
        Key::new(
            "idle_credit",
            Whole(0, 65536),
            "`0`",
            "the number of I/Os of 64 KiB that an idle virtual machine may save up"
        ),
        Key::new(
            "down",
            Either(&[Span, List(&Span)]),
            "never",
            "a failure: the host's virtual machines stop, its requests are forgotten, it reports \
        nothing"
        )
        .details("Afterwards it begins anew."),
        Key::new(
            "reported_factor",
            Number((Included(0.0), Unbounded)),
            "`1.0`",
            "the factor by which the reported latency is wrong: a liar"
        ),
    ]
);

/// Keys of `scenario.vm`.
pub const VM: KeyTable = table!(
    "scenario.vm",
    "## vm",
    [
        Key::new(
            "count",
            Whole(0, 9223372036854775807),
            "one",
            "a template: so many equal ones, `NAME-1` and so on; on a template of hosts they go \
        round, one per host"
        ),
        Key::new("host", Text, "the only one", "the host of the machine, or a template of hosts"),
        Key::new("workload", Either(&[Text, List(&Text)]), "required", "the workload of the machine"),
        Key::new("shares", Whole(1, 1000000), "`100`", "its weight; it means the same on every host"),
        Key::new("protected", Flag, "`false`", "never throttled; its reads are what the law keeps fast"),
        Key::new(
            "reservation",
            Rate,
            "none",
            "the rate that it gets [before all shares](../guide/gateway.md#divide-what-there-is); \
        [Output](#output) says if it is kept"
        ),
        Key::new("limit", Table("scenario.limit"), "none", "a ceiling"),
        Key::new(
            "contract",
            Table("scenario.contract"),
            "none",
            "the promise to it, if its host's law is `\"auto\"` or `\"integral\"`"
        ),
        Key::new(
            "goal",
            Time,
            "its host's target",
            "the response time that it is to have, where its host's law is `\"auto\"`, `\"self-tuning\"` or \
        `\"queueing-model\"`"
        ),
        Key::new("goal_changes", TableList("scenario.goal-change"), "none", "other goals from some times on"),
        Key::new("array", Text, "its host's", "the array of its disk"),
        Key::new("size", Size, "`\"16GiB\"`", "the size of its disk"),
        Key::new(
            "offset",
            Size,
            "in order",
            "the beginning of its disk; without it disks lie one after the other, in the order of \
        the file"
        ),
        Key::new("disk", Text, "none", "instead of a disk of its own: a shared one"),
        Key::new(
            "volume",
            Tables("scenario.volume"),
            "none",
            "further disks, `[vm.NAME.volume.VOLUME]`, to which workloads refer"
        ),
        Key::new("on", Either(&[Span, List(&Span)]), "always", "the time during which it runs")
            .details("What is outstanding when it stops completes."),
    ]
);

/// Keys of `scenario.goal-change`.
pub const GOAL_CHANGE: KeyTable = table!(
    "scenario.goal-change",
    "## goal-change",
    [
        Key::new("at", Time, "required", "the time of the change"),
        Key::new("goal", Time, "required", "the response time that it is to have from then on"),
    ]
);

/// Keys of `scenario.limit`.
pub const LIMIT: KeyTable = table!(
    "scenario.limit",
    "## limit",
    [
        Key::new("iops", Rate, "none", "the most requests per second"),
        Key::new("bandwidth", ByteRate, "none", "the most bytes per second"),
        Key::new("burst", Time, "`\"100ms\"`", "after idleness, this long's worth may go at once"),
        Key::new(
            "soft",
            Flag,
            "`false`",
            "with `false`, requests beyond the limit wait, even while the array is idle"
        ),
    ]
);

/// Keys of `scenario.contract`.
pub const CONTRACT: KeyTable = table!(
    "scenario.contract",
    "## contract",
    [
        Key::new("iops", Rate, "required", "the rate that is promised"),
        Key::new("response_time", Time, "required", "the promised time of each request, from its release on"),
        Key::new("expected", Time, "`response_time` / 1.2", "RT^E, the law's reference"),
        Key::new(
            "bucket",
            Whole(1, 65536),
            "`2`",
            "σ: how many requests may be released at once after a pause"
        ),
    ]
);

/// Keys of `scenario.volume`.
pub const VOLUME: KeyTable = table!(
    "scenario.volume",
    "## volume",
    [
        Key::new(
            "array",
            Text,
            "its host's",
            "the array of the volume; it may differ from the host's main one"
        ),
        Key::new("size", Size, "`\"16GiB\"`", "its size"),
        Key::new("offset", Size, "in order", "the beginning of the volume"),
        Key::new("disk", Text, "none", "instead: a shared disk"),
    ]
);

/// Keys of `scenario.workload`.
pub const WORKLOAD: KeyTable = table!(
    "scenario.workload",
    "## workload",
    [
        Key::new(
            "outstanding",
            Whole(1, 65536),
            "one of five",
            "closed loop: so many operations are always under way"
        ),
        Key::new("think", Time, "`\"0s\"`", "closed loop: how long a thread thinks before each operation"),
        Key::new(
            "think_time",
            Words(&["exponential", "constant", "uniform"]),
            "`\"exponential\"`",
            "the distribution of the think time; uniform is between nothing and twice `think`"
        ),
        Key::new("rate", Rate, "one of five", "open loop: operations per second")
            .bounds("at most 1000000 IO/s"),
        Key::new("spacing", Words(&["poisson", "even"]), "`\"poisson\"`", "open loop: how they are spaced"),
        Key::new(
            "limit",
            Whole(1, 1048576),
            "`10000`",
            "open loop: how many may be under way; more are dropped, and counted"
        ),
        Key::new("after", Text, "one of five", "the workload that it follows, of the same virtual machine"),
        Key::new(
            "every",
            Whole(0, 9223372036854775807),
            "`1`",
            "with `after`: one operation for so many of the other's"
        ),
        Key::new(
            "threads",
            Whole(1, 65536),
            "`1`",
            "with `after`: how many may be under way at once; with `profile`: how many readers"
        ),
        Key::new(
            "backlog",
            Whole(0, 9223372036854775807),
            "twice `every`",
            "with `after`: the other (a closed loop) waits while so many of its operations are not \
        answered for"
        ),
        Key::new(
            "trace",
            Text,
            "one of five",
            "a CSV file of `time,op,offset,bytes`: seconds, `R` or `W`, bytes, bytes"
        )
        .details(
            "The path starts at the scenario's folder; offsets beyond the disk's end begin anew at \
        its start."
        ),
        Key::new(
            "speed",
            Number((Excluded(0.0), Unbounded)),
            "`1.0`",
            "with `trace`: how many times as fast"
        ),
        Key::new("repeat", Flag, "`false`", "with `trace`: once more from the beginning at the end"),
        Key::new("profile", Words(&["oltp"]), "one of five", "Filebench's OLTP: see below"),
        Key::new("count", Whole(0, 65536), "`1`", "as for a step"),
        Key::new("size", Size, "`\"16KiB\"`", "as for a step; with `profile` that of data pages, `\"2KiB\"`"),
        Key::new("deviation", Size, "none", "as for a step"),
        Key::new("sizes", TableList("scenario.weighted-size"), "none", "as for a step"),
        Key::new("reads", Number((Included(0.0), Included(1.0))), "`1.0`", "as for a step"),
        Key::new("sequential", Number((Included(0.0), Included(1.0))), "`0.0`", "as for a step"),
        Key::new("region", Table("scenario.region"), "the whole disk", "as for a step"),
        Key::new("durability", Words(&["none", "fua", "flush"]), "`\"none\"`", "as for a step"),
        Key::new("volume", Text, "the main disk", "as for a step; with `profile` the place of the log"),
        Key::new(
            "steps",
            TableList("scenario.step"),
            "none",
            "the steps of an operation, one after the other"
        ),
        Key::new("during", Either(&[Span, List(&Span)]), "always", "the time during which it is active"),
        Key::new("cycle", Table("scenario.cycle"), "none", "load that comes and goes"),
    ]
);

/// Keys of `scenario.step`.
pub const STEP: KeyTable = table!(
    "scenario.step",
    "## step",
    [
        Key::new(
            "count",
            Whole(0, 65536),
            "`1`",
            "the number of I/Os at once; 0 with `durability = \"flush\"` is a flush alone"
        ),
        Key::new("size", Size, "`\"16KiB\"`", "the size of each I/O"),
        Key::new(
            "deviation",
            Size,
            "none",
            "sizes are distributed normally around `size`, in whole blocks of 512 bytes, with this \
        standard deviation"
        ),
        Key::new("sizes", TableList("scenario.weighted-size"), "none", "instead: sizes with weights"),
        Key::new("reads", Number((Included(0.0), Included(1.0))), "`1.0`", "the part that reads"),
        Key::new(
            "sequential",
            Number((Included(0.0), Included(1.0))),
            "`0.0`",
            "the part that follows the one before; the others are anywhere in the region, aligned \
        to their size"
        ),
        Key::new("region", Table("scenario.region"), "the whole disk", "the part of the disk"),
        Key::new(
            "durability",
            Words(&["none", "fua", "flush"]),
            "`\"none\"`",
            "its writes are durable some time, when answered, or when the flush that ends the step \
        is"
        ),
        Key::new("volume", Text, "the main disk", "the disk"),
    ]
);

/// Keys of `scenario.weighted-size`.
pub const WEIGHTED_SIZE: KeyTable = table!(
    "scenario.weighted-size",
    "## weighted-size",
    [
        Key::new("size", Size, "required", "the size"),
        Key::new(
            "weight",
            Number((Included(0.0), Unbounded)),
            "`1.0`",
            "the weight of this size against the others"
        ),
    ]
);

/// Keys of `scenario.region`.
pub const REGION: KeyTable = table!(
    "scenario.region",
    "## region",
    [
        Key::new(
            "from",
            Number((Included(0.0), Included(1.0))),
            "`0.0`",
            "its beginning, as a part of the disk"
        ),
        Key::new("to", Number((Included(0.0), Included(1.0))), "`1.0`", "its end"),
    ]
);

/// Keys of `scenario.cycle`.
pub const CYCLE: KeyTable = table!(
    "scenario.cycle",
    "## cycle",
    [
        Key::new("on", Time, "required", "the length of the active part"),
        Key::new("off", Time, "required", "the length of the pause"),
        Key::new("delay", Time, "`\"0s\"`", "the beginning of the first cycle"),
    ]
);

/// Keys of `scenario.network`.
pub const NETWORK: KeyTable = table!(
    "scenario.network",
    "## network",
    [
        Key::new("delay", Time, "`\"0s\"`", "the time that a report takes"),
        Key::new("jitter", Time, "`\"0s\"`", "up to how much longer, uniformly"),
        Key::new("loss", Number((Included(0.0), Included(1.0))), "`0.0`", "the part that is lost"),
        Key::new(
            "stagger",
            Whole(1, 100),
            "`1`",
            "hosts decide at so many points of their interval, in turn, instead of all at the same \
        time"
        ),
        Key::new(
            "partitions",
            TableList("scenario.partition"),
            "none",
            "times in which groups of hosts do not hear each other"
        ),
    ]
);

/// Keys of `scenario.partition`.
pub const PARTITION: KeyTable = table!(
    "scenario.partition",
    "## partition",
    [
        Key::new("during", Span, "required", "the time of the partition"),
        Key::new(
            "hosts",
            Either(&[Text, List(&Text)]),
            "required",
            "the hosts cut off from all others; they hear each other"
        ),
    ]
);
