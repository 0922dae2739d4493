//! Keys of `pool`: its storage, its exports, and what they are promised.

use std::ops::Bound::{Excluded, Included};

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of `pool`.
pub const POOL: KeyTable = table!(
    "pool",
    "## `[pool.NAME]`",
    [
        Key::new("backend", Table("backend"), "required", "the place of the data"),
        Key::new(
            "cluster",
            Flag,
            "`false`",
            "other hosts of `[cluster]` load the same storage: the law steers by what all of them \
        measure, and shares count across them"
        )
        .details("The pool must be called the same on every host."),
        Key::new(
            "depth",
            Whole(1, 1024),
            "`32`",
            "the most requests outstanding at the backend, all unprotected exports together: D of \
        SFQ(D)"
        )
        .details("A window law works below it."),
        Key::new("scheduler", Words(&["sfq", "yfq"]), "`\"sfq\"`", "the order of requests").details(
            "`sfq`: start-time fair queueing, by start tags. `yfq`: by finish tags. If several \
        exports come back at the same time, the one with the greatest share goes first. \
        Requests close to each other are not kept together then. Changing it takes a restart."
        ),
        Key::new(
            "batch",
            Table("batch"),
            "defaults",
            "bounds within which the scheduler stays with one export"
        )
        .details(
            "An export whose requests lie close to each other sends several in one go (PARDA §3.3). \
        In the long run shares stay as they are. Not with `scheduler = \"yfq\"`. Changing it takes a \
        restart."
        ),
        Key::new(
            "idle_credit",
            Whole(0, 65536),
            "`0`",
            "the number of I/Os of 64 KiB that an idle export may save up, to go first when it is back"
        )
        .details("The burst-aware scheduler of PARDA §3.4. Changing it takes a restart."),
        Key::new(
            "processors",
            Format("processors such as `0-3,8`"),
            "all that the service may use",
            "the processors that the pool's threads run on"
        )
        .details(
            "A pool has one thread for its clients and its scheduler, and a few for slow storage. \
        Pools on processors of their own do not disturb each other. Changing it takes a restart."
        ),
        Key::new(
            "law",
            Words(&["auto", "window", "pid", "integral", "self-tuning", "queueing-model", "none"]),
            "`\"auto\"` with a `target`, otherwise `\"none\"`",
            "the control law of the pool"
        )
        .details(
            "`auto`: one window for all unprotected exports, by what [the law \
        learns](../guide/auto.md); it keeps [contracts](../guide/contracts.md#by-the-law-auto) and \
        goals. `window`: the same by gains (PARDA). `pid`: a delay for each of \
        them (Bjørgeengen). `integral`: a rate for each of them, which keeps \
        [contracts](../guide/contracts.md#keep-them) (Lee). `self-tuning`: the throughput at \
        which all keep their response times, divided by [bands](../guide/bands.md) (Triage). \
        `queueing-model`: the same with a window as throttle, by [the model of a \
        queue](../guide/bands.md#the-model-of-a-queue). `none`: shares and limits only."
        ),
        Key::new(
            "target",
            Time,
            "required with a law",
            "the latency promised to the reads of protected exports; to all exports if none is \
        protected"
        )
        .details(
            "With `law = \"integral\"` promises are made by contract, and this is what exports \
        without one are delayed to, unless a contract is stricter."
        ),
        Key::new(
            "set_point",
            Either(&[Number((Excluded(0.0), Included(1.0))), Words(&["auto"])]),
            "`0.8`",
            "the law steers to this part of the target: a regulator that holds its set point is \
        above it half of the time"
        )
        .details(
            "The default of the law `auto` is `0.98`: it measures its margin. `\"auto\"`: to the \
        least response time at which the array gives nearly all it can, found by itself, with the \
        target as its ceiling. Of the law `window` only, and only without protected exports: see \
        `knee`."
        ),
        Key::new(
            "scope",
            Words(&["pool", "export"]),
            "`\"pool\"`",
            "one window for all exports, which the scheduler divides; or [a law and a window for each \
        export](../guide/gateway.md#a-law-for-each-export)"
        )
        .applies_to("window")
        .details("Changing it takes a restart."),
        Key::new(
            "statistic",
            Words(&["mean", "p50", "p90", "p95", "p99"]),
            "`\"mean\"`",
            "the [statistic](../guide/gateway.md#percentiles) of the requests' latency that is compared \
        with the target"
        )
        .details(
            "Other than `mean` not with `cluster`, nor with `normalise`, nor with the laws `integral` \
        and `self-tuning`. With goals it is not for the model of a queue."
        ),
        Key::new("interval", Time, "`\"250ms\"`", "the time between two decisions of the law")
            .bounds("`\"10ms\"` to `\"1min\"`")
            .details(
                "With `law = \"integral\"`, `\"self-tuning\"` and `\"queueing-model\"` the default is \
        `\"1s\"`."
            ),
        Key::new(
            "smoothing",
            Time,
            "`\"200ms\"`",
            "time constant of the average over response times; `\"0ms\"`: none"
        )
        .details("Not with `law = \"integral\"`, `\"self-tuning\"` and `\"queueing-model\"`."),
        Key::new(
            "past_weight",
            Number((Included(0.0), Excluded(1.0))),
            "unset",
            "instead of `smoothing`: the weight of the past per interval, α of PARDA's equation 1"
        ),
        Key::new(
            "normalise",
            Flag,
            "`false`",
            "without a protected export: judge by response times scaled to 8 KiB requests, so that \
        larger requests are not taken for a slower array"
        ),
        Key::new(
            "idle_half_life",
            Time,
            "`\"2s\"`",
            "while there is nothing to judge by and nothing outstanding, what is left of the \
        command halves in this time"
        ),
        Key::new("dry_run", Flag, "`false`", "decide, log and show, and hold nothing"),
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
            "division of the throughput among exports, as it grows"
        )
        .applies_to("auto, self-tuning, queueing-model"),
        Key::new(
            "release",
            Table("release"),
            "defaults",
            "with `law = \"integral\"` and `\"self-tuning\"`, and with others where there are bands: how \
        requests are released"
        ),
        Key::new(
            "admitted",
            Path,
            "none",
            "with `law = \"auto\"` and `\"integral\"`: what `tidegate admit --json` printed of this storage"
        )
        .details(
            "[Contracts](../guide/contracts.md#when-contracts-change) are delayed against it \
        before they are in force."
        ),
        Key::new("limits", Table("limits"), "defaults", "bounds on what clients may occupy"),
        Key::new("export", Tables("export"), "required", "the exports, by name"),
    ]
);

/// Keys of `backend`.
pub const BACKEND: KeyTable = table!(
    "backend",
    "### `backend`",
    [
        Key::new(
            "kind",
            Words(&["file", "nbd", "emulated"]),
            "required",
            "the kind of storage: files, another NBD server, or a model"
        )
        .details(
            "`file`: every export is a regular file or a block device. `nbd`: every export is one \
        of another NBD server, the upstream. `emulated`: a model of an array in real time, \
        for trying things out."
        ),
        Key::new("direct", Flag, "`false`", "past the page cache (O_DIRECT)")
            .applies_to("file")
            .details("The alignment that it needs is advertised; requests with parts of blocks cost more."),
        Key::new(
            "address",
            Format("`tcp:ADDRESS:PORT` or `unix:PATH`"),
            "required",
            "where the upstream listens"
        )
        .applies_to("nbd")
        .details("An address, not a name: looking up a name cannot be bounded in time."),
        Key::new("connections", Whole(1, 64), "`4`", "the most connections per export")
            .applies_to("nbd")
            .details(
                "One if the upstream does not say that several see the same data \
        (NBD_FLAG_CAN_MULTI_CONN)."
            ),
        Key::new(
            "reconnect",
            Time,
            "`\"30s\"`",
            "how long requests wait for an upstream that was lost; then, and until it \
        is back, they are answered with EIO"
        )
        .applies_to("nbd"),
        Key::new(
            "timeout",
            Time,
            "`\"60s\"`",
            "a connection on which requests wait and nothing arrives for this long \
        counts as lost"
        )
        .applies_to("nbd"),
        Key::new(
            "replay",
            Words(&["reads", "all"]),
            "`\"reads\"`",
            "which requests are sent again after the connection was lost that had \
        carried them: see below"
        )
        .applies_to("nbd"),
        Key::new("tls", Table("tls"), "none", "connections are encrypted: see below").applies_to("nbd"),
        Key::new(
            "preset",
            Words(&[
                "sata-stripe",
                "dnes-309170w",
                "fc-raid5",
                "fc-raid5-5",
                "fc-raid0-6",
                "fc-raid0-10",
                "dc-s4500",
                "dc-s4600",
                "dc-p3700",
                "ebs-gp2",
                "ebs-gp3",
            ]),
            "required, or `exponential`",
            "which array"
        )
        .applies_to("emulated")
        .details(
            "`sata-stripe` is a stripe set of SATA disks, and `dnes-309170w` one SCSI disk of 1999. \
        `fc-` is Fibre Channel disks behind a write-back cache: ten or five as RAID 5, six or \
        ten without parity. `dc-` is SATA and NVMe drives of flash. `ebs-` is volumes of Amazon \
        EBS, with and without burst credits."
        ),
        Key::new(
            "exponential",
            Table("exponential"),
            "none",
            "servers with exponential service times, for experiments that queueing theory can \
        answer"
        )
        .applies_to("emulated")
        .details(
            "`rate`, for example `\"1000 IO/s\"`, is the rate of all servers together. `servers` is \
        1 to 1024 (default 1). `capacity`, for example `\"64GiB\"`, is their apparent size. \
        `changes` are changes while they are in use, such as data that move to a cache, or a \
        second shelf: `[{ after = \"30s\", rate = \"2000 IO/s\", servers = 2 }]`. Times count \
        from the first request; without `servers` their number stays."
        ),
        Key::new("seed", Whole(0, 9223372036854775807), "`0`", "seed of the model's random numbers")
            .applies_to("emulated"),
        Key::new(
            "data",
            Format("`\"memory\"` or a path"),
            "`\"memory\"`",
            "where the bytes are; a path names a sparse file, created when missing"
        )
        .applies_to("emulated"),
        Key::new("memory", Size, "`\"1GiB\"`", "the most memory for data; beyond it writes fail with ENOSPC")
            .applies_to("emulated")
            .details("Zeros occupy nothing."),
    ]
);

/// Keys of `backend.tls`.
pub const BACKEND_TLS: KeyTable = table!(
    "backend.tls",
    "### `tls` of a backend",
    [
        Key::new(
            "ca_file",
            Path,
            "required",
            "PEM: the authorities one of which must have signed the upstream's certificate"
        ),
        Key::new(
            "name",
            Format("DNS name or address"),
            "the address; required for a Unix socket",
            "the name that the upstream's certificate must have"
        ),
        Key::new(
            "certificate_file",
            Path,
            "none",
            "PEM: the gateway's certificate, where the upstream asks for one"
        ),
        Key::new("private_key_file", Path, "none", "PEM: its private key"),
    ]
);

/// Keys of `exponential`.
pub const EXPONENTIAL: KeyTable = table!(
    "exponential",
    "",
    [
        Key::new(
            "rate",
            Rate,
            "required",
            "the requests per second of all servers together, while they are busy"
        ),
        Key::new("servers", Whole(1, 1024), "`1`", "the number of servers"),
        Key::new("capacity", Size, "the exports", "the size of the array"),
        Key::new("changes", TableList("exponential.change"), "none", "changes of the rate over time"),
    ]
);

/// Keys of `exponential.change`.
pub const EXPONENTIAL_CHANGE: KeyTable = table!(
    "exponential.change",
    "",
    [
        Key::new("after", Time, "required", "the time of the change after the start"),
        Key::new("rate", Rate, "required", "the rate from then on"),
        Key::new("servers", Whole(1, 1024), "as before", "the number of servers from then on"),
    ]
);
/// Keys of `limits`.
pub const LIMITS: KeyTable = table!(
    "limits",
    "### `[pool.NAME.limits]`",
    [
        Key::new(
            "sessions",
            Whole(1, 65536),
            "`256`",
            "connections at once; a newcomer beyond that is refused"
        ),
        Key::new(
            "export_sessions",
            Whole(1, 65536),
            "half of `sessions`; all with one export",
            "connections to one export"
        )
        .bounds("at most `sessions`"),
        Key::new(
            "source_sessions",
            Whole(1, 65536),
            "three quarters of `sessions`",
            "connections of one address or user"
        )
        .bounds("at most `sessions`"),
        Key::new(
            "idle_timeout",
            Time,
            "none",
            "a connection without requests for this long may be ended for a newcomer"
        ),
        Key::new(
            "session_requests",
            Whole(1, 65536),
            "`128`",
            "requests of one connection that are not answered yet"
        ),
        Key::new("session_memory", Size, "`\"64MiB\"`", "payload of one connection")
            .bounds("at least `\"32MiB\"`"),
        Key::new("pool_memory", Size, "`\"256MiB\"`", "payload of all connections together")
            .bounds("at least `\"32MiB\"`"),
        Key::new(
            "reply_deadline",
            Time,
            "`\"60s\"`",
            "a client is disconnected that does not go on with a request, or with taking replies, for this \
             long"
        ),
    ]
);

/// Keys of `export`.
pub const EXPORT: KeyTable = table!(
    "export",
    "### `[pool.NAME.export.EXPORT]`",
    [
        Key::new("path", Path, "required with `kind = \"file\"`", "an existing regular file or block device"),
        Key::new(
            "upstream",
            Text,
            "the export's own name",
            "`kind = \"nbd\"` only: the name of the upstream's export; `\"\"` is its default export"
        ),
        Key::new(
            "size",
            Size,
            "required with `kind = \"emulated\"`",
            "the size of the export, a part of the array"
        )
        .bounds("a multiple of 4 KiB"),
        Key::new(
            "shares",
            Whole(1, 1000000),
            "`100`",
            "its weight against the other unprotected exports of the pool"
        ),
        Key::new("protected", Flag, "`false`", "never throttled by a law; its reads are the signal"),
        Key::new(
            "reservation",
            Rate,
            "none",
            "the rate that the export gets before all shares, while it asks for it"
        ),
        Key::new("limit", Table("limit"), "none", "a ceiling that no law lifts"),
        Key::new(
            "contract",
            Either(&[Table("contract"), TableList("contract")]),
            "none",
            "the promise to the export, in a pool with `law = \"auto\"` or `\"integral\"`"
        )
        .applies_to("auto, integral"),
        Key::new(
            "goal",
            Time,
            "the pool's target",
            "the response time that it is to have, under the laws `auto`, `self-tuning` and \
        `queueing-model`"
        )
        .details("The last two steer to this times `set_point`."),
        Key::new("read_only", Flag, "`false`", "refuses every change"),
        Key::new(
            "shared_volume",
            Flag,
            "`false`",
            "others may write to the volume, too: [see \
        below](../guide/gateway.md#one-volume-one-writer)"
        ),
        Key::new(
            "served_as",
            Text,
            "the export's own name",
            "the name by which clients ask for it: \
        [access.md](../guide/access.md#one-name-several-consumers)"
        ),
        Key::new(
            "allow",
            Either(&[Words(&["local", "any"]), TableList("allow")]),
            "`\"local\"`",
            "the clients that may use it: see below"
        ),
        Key::new("description", Text, "none", "shown to clients that list exports"),
        Key::new(
            "listen",
            List(&Either(&[Format("`vhost-user:PATH` or `ublk:NUMBER`"), Table("disk")])),
            "none",
            "the sockets at which [virtual machines have the export as a \
        disk](../guide/gateway.md#disks-of-virtual-machines), and the [block devices of the \
        host](../guide/gateway.md#block-devices-of-the-host) that it is"
        )
        .details(
            "An address is `vhost-user:PATH`, `ublk:NUMBER`, or a [table](#listen-of-an-export). One machine \
        at a time is connected to a socket. Its folder must exist. `ublk:0` is `/dev/ublkb0`."
        ),
    ]
);

/// Keys of an export's `listen`.
pub const DISK: KeyTable = table!(
    "disk",
    "### `listen` of an export",
    [
        Key::new(
            "address",
            Format("`vhost-user:PATH`"),
            "required",
            "the address where QEMU connects; `ublk:NUMBER` takes none of the other keys"
        ),
        Key::new(
            "mode",
            Format("octal number in quotes"),
            "`\"0660\"`",
            "the file's mode, whatever the umask"
        )
        .details("To connect, a process needs the right to write."),
        Key::new("owner", Format("name or number in quotes"), "the service's user", "the file's owner"),
        Key::new(
            "group",
            Format("name or number in quotes"),
            "the service's group",
            "the file's group; `\"kvm\"` lets libvirt's QEMU in"
        ),
    ]
);

/// Keys of `allow`.
pub const ALLOW: KeyTable = table!(
    "allow",
    "### `allow`",
    [
        Key::new(
            "certificate",
            Format("name, or `\"*\"`"),
            "none",
            "the client's certificate has this DNS name; `\"*\"`: it has shown one that \
        `client_ca_file` verifies"
        ),
        Key::new(
            "user",
            Format("name or number in quotes"),
            "none",
            "the client comes by a Unix socket and runs as this user"
        ),
        Key::new(
            "group",
            Format("name or number in quotes"),
            "none",
            "the client comes by a Unix socket and belongs to this group"
        ),
        Key::new(
            "network",
            Format("address, or `ADDRESS/BITS`"),
            "none",
            "the client comes from an address in this network"
        ),
    ]
);

/// Keys of `limit`.
pub const LIMIT: KeyTable = table!(
    "limit",
    "### `limit`",
    [
        Key::new("iops", Rate, "none", "the most requests per second, flushes included"),
        Key::new("bandwidth", ByteRate, "none", "the most bytes per second; both hold when both are given"),
        Key::new(
            "burst",
            Time,
            "`\"100ms\"`",
            "after idleness, this long's worth of the limit may go at once"
        ),
        Key::new(
            "soft",
            Flag,
            "`false`",
            "with `false`, requests beyond the limit wait, even while the array is idle"
        )
        .details(
            "`true`: they wait only while an export within its limit has requests waiting. The rest \
        is shared by `shares`, and counts towards no limit. A protected export is \
        protected only within a soft limit."
        ),
    ]
);

/// Keys of `contract`.
pub const CONTRACT: KeyTable = table!(
    "contract",
    "### `contract`",
    [
        Key::new("iops", Rate, "required", "the promised rate: the law takes the export never below it"),
        Key::new(
            "response_time",
            Time,
            "required",
            "the promised time of each request, from release to completion"
        )
        .details("What takes longer is counted."),
        Key::new(
            "expected",
            Time,
            "RT^E where it was measured for admission, otherwise `response_time` / 1.2",
            "RT^E of `tidegate admit`, at which the law holds the response time"
        ),
        Key::new(
            "bucket",
            Whole(1, 65536),
            "`2`",
            "σ: how many requests may be released at once after a pause; more where more tokens \
        come with each tick"
        ),
        Key::new(
            "size",
            Size,
            "none",
            "the mean size of its requests, for admission alone: no request is limited to it"
        ),
        Key::new("from", TimeOfDay, "required in a list", "the time of day when the contract begins"),
        Key::new("until", TimeOfDay, "when the next one begins", "the time of day when the contract ends")
            .details("Nothing is promised until the next one begins."),
    ]
);
