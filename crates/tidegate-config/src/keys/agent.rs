//! Keys of `tidegate agent`.

use std::ops::Bound::Included;

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of the root.
pub const AGENT: KeyTable = table!(
    "agent",
    "## The agent",
    [
        Key::new(
            "throttle",
            Words(&["netem", "edt", "rate", "cgroup"]),
            "`\"netem\"`",
            "the throttle; [how to choose](../guide/agent.md#choose-a-throttle)"
        )
        .details(
            "`netem`: classes with a delay each, in a device of their own, and nftables rules. \
        `edt`: a program gives each packet the time before which it must not leave, and fq \
        keeps it until then. It needs neither nftables nor another program. One write after \
        the other is throttled alike by both. With `edt`, reads of throttled consumers wait \
        for the delay [twice](../../lab/README.md#edt-beside-netem), and deep writes up to \
        a third longer. `rate`: not packets are delayed, but writes in front of the volume; \
        `packets` and `ports` cannot be given with it. `cgroup`: [cgroups of this \
        machine](../guide/cgroups.md) are delayed, and nothing else."
        ),
        Key::new(
            "packets",
            Words(&["all", "responses", "acks"]),
            "`\"all\"`",
            "the packets to a member that are delayed"
        )
        .applies_to("netem, edt")
        .details(
            "`all`: all from the storage ports. `responses`: those that pace writes. These are R2T \
        and responses of iSCSI and NVMe/TCP, NFS replies of less than 512 bytes, and \
        acknowledgements. The port tells the protocol; at a port other than 3260, 4420 and \
        2049 it is any of the three. `acks`: acknowledgements without payload, which is the \
        paper's choice and slows no consumer with today's receive windows. Measured for \
        [iSCSI](../../lab/README.md#packet-delay-on-an-iscsi-target), and for [NVMe/TCP and \
        NFS](../../lab/README.md#packet-delay-on-nvmetcp-and-nfs)."
        ),
        Key::new("ports", List(&Text), "`[\"3260\", \"4420\", \"2049\"]`", "the storage ports: 1 to 65535")
            .details("With `bridge` it is `[\"3260\", \"4420\"]`, and at most 32."),
        Key::new(
            "bridge",
            Table("bridge"),
            "none: this machine has the storage",
            "the agent runs [between initiators and an array](../guide/bridge.md)"
        )
        .applies_to("netem, edt"),
        Key::new(
            "addresses",
            NamedLists,
            "none",
            "addresses that consumers come from, by the consumers' names, where [the target does not show \
        them](../guide/agent.md#several-paths)"
        )
        .applies_to("netem, edt"),
        Key::new(
            "metrics",
            Text,
            "none",
            "the address of `/metrics`, `/healthz` and [`/v1/status`](http.md#the-status), which \
        `tidegate status` asks"
        )
        .details("[metrics.md](../reference/metrics.md#the-agent)."),
        super::serve::JOURNAL_TABLE,
        Key::new(
            "api",
            Table("api"),
            "the operator's socket alone",
            "the [API](../guide/access.md#the-api): where it listens, and which callers may change something"
        ),
        Key::new(
            "histograms",
            Flag,
            "false",
            "histograms of the latency of devices, as [metrics](../guide/agent.md#histograms)"
        ),
        Key::new(
            "resource",
            Tables("resource"),
            "required, without `sensor` and `report_to`",
            "the regulated resources, by name"
        ),
        Key::new(
            "cluster",
            Table("cluster"),
            "none",
            "the hosts that [reports of initiators](../guide/initiators.md) travel between; its keys are \
        those of `[cluster]` of the gateway"
        )
        .details("On an initiator without `host`, it is the name by which it logs in: of iSCSI, or of NVMe."),
        Key::new(
            "report_to",
            Tables("report_to"),
            "none",
            "on an initiator: the resources to [report on](../guide/initiators.md), by their names at the \
        agent that regulates them"
        ),
        Key::new(
            "sensor",
            Tables("sensor"),
            "none",
            "storage nodes on this machine that are reported to [brokers of \
        transfers](../guide/transfers.md#sensors)"
        ),
        Key::new(
            "brokers",
            List(&Text),
            "required with `sensor`",
            "the brokers to report to, 16 at the most: `[\"http://broker.example:7311\"]`"
        ),
        Key::new(
            "broker_token_file",
            Text,
            "none",
            "a file with what they want to be shown: the token of [the \
        node](../guide/transfers.md#access-to-the-broker), or theirs"
        ),
    ]
);

/// Keys of `resource`.
pub const RESOURCE: KeyTable = table!(
    "resource",
    "### `[resource.NAME]`",
    [
        Key::new("target", Time, "required", "the latency promised to reads"),
        Key::new(
            "device",
            Either(&[Text, List(&Text)]),
            "none",
            "a block device by itself: `sda`, `dm-3`, `nvme0n1`; or several as one resource: a list, or a \
        pattern such as `zd*`, `vg0/thin*`"
        )
        .details(
            "A device belongs in one resource only: there is a warning otherwise. With `cgroup` it is one \
        device."
        ),
        Key::new(
            "portals",
            Either(&[Text, List(&Text)]),
            "none",
            "where a server listens of which the kernel shows no sessions: `10.0.0.1:3260`, `[::]:445`; its \
        data is on this resource"
        )
        .applies_to("netem, edt")
        .details(
            "Consumers are then the [addresses connected to \
        it](../guide/agent.md#other-servers), under the names of `addresses`. A portal belongs in one \
        resource only."
        ),
        Key::new(
            "luns",
            Either(&[Text, List(&Text)]),
            "all, if `initiators` is given",
            "with `bridge`: LUNs of the array that the resource is made of, as `TARGET` or `TARGET/LUN` with \
        `*`"
        )
        .details("`device` cannot be given with `bridge`."),
        Key::new(
            "initiators",
            Either(&[Text, List(&Text)]),
            "all, if `luns` is given",
            "with `bridge`: names of initiators that use the resource, with `*`"
        )
        .details("With both keys, a LUN counts as far as such an initiator uses it."),
        Key::new(
            "cgroups",
            List(&Text),
            "none",
            "the eligible cgroups; required with this throttle, as `device` is"
        )
        .applies_to("cgroup")
        .details(
            "Paths below the root of the hierarchy, or [names](../guide/cgroups.md#names): \
        `pod:NAMESPACE/NAME`, `container:NAME`, `libvirt:DOMAIN`, `unit:NAME`, with `*`. `writers`, \
        `readers`, `weights`, `members` and `exempt` cannot be given with it."
        ),
        Key::new(
            "writers",
            Either(&[Table("writers"), Flag]),
            "see below",
            "detection of writers, which become eligible"
        ),
        Key::new(
            "readers",
            Either(&[Table("writers"), Flag]),
            "false",
            "detection of bulk readers, which become eligible; its keys are those of `writers`"
        )
        .applies_to("netem, edt")
        .details(
            "`above` is 10 MiB/s here. The signal is then the reads of all consumers that are not \
        eligible. `statistic` can only be `mean`."
        ),
        Key::new(
            "weights",
            NamedNumbers,
            "none: all have one delay",
            "weights of consumers, 1 to 1000, by which their [throughput is \
        divided](../guide/agent.md#consumers-of-unequal-importance) while they are throttled"
        )
        .applies_to("netem, edt, rate")
        .details(
            "Its keys are as in `members`. The greatest counts of those that mean a consumer; 1 if none does."
        ),
        Key::new(
            "members",
            Either(&[Text, List(&Text)]),
            "none",
            "consumers that are always eligible: an address, a prefix such as `10.0.0.0/24`, or a \
        name with `*`"
        ),
        Key::new(
            "reports",
            Either(&[Table("reports"), Flag]),
            "false",
            "the signal is what [initiators with an agent](../guide/initiators.md) wait for"
        )
        .applies_to("netem, edt, rate")
        .details("The law is then `pid`, which decides each 250 ms."),
        Key::new(
            "source",
            Table("source"),
            "none: the counters of this machine",
            "the signal is a latency that [the array publishes](../guide/initiators.md#arrays-that-publish-\
        their-latency)"
        )
        .applies_to("netem, edt, rate")
        .details("The law is then `pid`, which decides as often as the source is asked."),
        Key::new("exempt", Either(&[Text, List(&Text)]), "none", "consumers that are never eligible"),
        Key::new(
            "law",
            Words(&["auto", "pid", "window", "queueing-model", "self-tuning"]),
            "`\"auto\"`",
            "the control law: a window, or a delay, [by latency](../guide/agent.md#other-laws) or \
        [by a model](../guide/agent.md#other-laws)"
        )
        .details(
            "With `throttle = \"cgroup\"` it is `auto`, `pid` or `self-tuning`. The last one \
        [divides by bands](../guide/cgroups.md#bands) and needs that throttle."
        ),
        Key::new(
            "set_point",
            Number((Included(0.0), Included(1.0))),
            "0.98; of the others than `auto` 0.8",
            "the part of the target that is steered to"
        ),
        Key::new(
            "statistic",
            Words(&["mean", "p50", "p90", "p95", "p99"]),
            "`\"mean\"`",
            "the [statistic](../guide/agent.md#a-percentile-as-the-signal) of the reads' latency \
        that is the signal"
        )
        .details("With `throttle = \"cgroup\"` only `mean`."),
        Key::new(
            "interval",
            Time,
            "`\"250ms\"`; of `pid` `\"100ms\"`, of the self-tuning one `\"1s\"`",
            "the time between two decisions"
        ),
        Key::new("smoothing", Time, "`\"200ms\"`", "the time constant of the signal's average"),
        Key::new(
            "past_weight",
            Number((Included(0.0), Included(1.0))),
            "none",
            "the weight of the past per interval, instead of `smoothing`"
        ),
        Key::new("idle_half_life", Time, "`\"2s\"`", "without reads, the command halves in this time"),
        Key::new("dry_run", Flag, "false", "decide and log, but throttle nothing")
            .details("If all resources do, as with `--dry-run`, the kernel is not touched."),
        Key::new("auto", Table("auto"), "none", "as for a pool").applies_to("auto"),
        Key::new("window", Table("window"), "none", "as for a pool; `shares_of` is without effect")
            .applies_to("window"),
        Key::new(
            "bands",
            TableList("bands"),
            "none",
            "division of the device's throughput among cgroups, as for a pool"
        )
        .applies_to("self-tuning")
        .details("It names cgroups by their whole paths, and only such as `cgroups` means."),
        Key::new("goals", NamedValues, "none", "targets of cgroups that differ from `target`")
            .applies_to("auto, self-tuning")
            .details("Its keys are as in `cgroups`; the shortest counts of those that mean a cgroup."),
        Key::new("self_tuning", Table("self_tuning"), "none", "as for a pool").applies_to("self-tuning"),
        Key::new("pid", Table("pid"), "none", "as for a pool").applies_to("pid").details(
            "`greatest` is 100 ms here: TCP takes a silence of 200 ms for loss, and beyond 150 ms \
        there is a warning. With `rate` and `cgroup` it is 1 s and `proportional_gain` 2, and \
        no volume's limit is below `floor`: longer delays are released more slowly."
        ),
    ]
);

/// Keys of `writers`.
pub const WRITERS: KeyTable = table!(
    "writers",
    "### `writers`",
    [
        Key::new("above", ByteRate, "`\"1MiB/s\"`", "consumers that write more than this are eligible"),
        Key::new(
            "leaves_below",
            Number((Included(0.0), Included(1.0))),
            "0.5",
            "members that write less than this part of `above` leave"
        ),
        Key::new("smoothing", Time, "`\"1s\"`", "the time constant of what is written"),
        Key::new("interval", Time, "`\"1s\"`", "the time between two updates of the set").details(
            "The shortest of all resources' is how often sessions are looked at: at least each \
        second. While latency is above the set point and no consumer is eligible, each sample looks, \
        and consumers join at once."
        ),
        Key::new(
            "silence",
            Time,
            "`\"2s\"`",
            "a throttled member leaves after it wrote nothing for this long"
        ),
    ]
);

/// Keys of `report_to`.
pub const REPORT_TO: KeyTable = table!(
    "report_to",
    "### `[report_to.NAME]`",
    [
        Key::new(
            "device",
            Either(&[Text, List(&Text)]),
            "required",
            "the devices of this machine that are volumes of the resource: names, or patterns such as `sd*`"
        )
        .details("A pattern means no partitions."),
        Key::new("interval", Time, "`\"250ms\"`", "the time between two reports: within 50 ms and 10 s")
            .details("Not longer than the `interval` of the resource, or reports are too old to count."),
    ]
);

/// Keys of `reports`.
pub const REPORTS: KeyTable = table!(
    "reports",
    "### `reports`",
    [
        Key::new(
            "without_agent",
            Words(&["alike", "first"]),
            "`\"alike\"`",
            "`first`: consumers without an agent are throttled first, others only if that does not suffice"
        ),
        Key::new(
            "believe",
            Either(&[Text, List(&Text)]),
            "none",
            "consumers whose reports count without another host that bears them out; as in `members`"
        ),
    ]
);

/// Keys of `source`.
pub const SOURCE: KeyTable = table!(
    "source",
    "### `source`",
    [
        Key::new(
            "prometheus",
            Text,
            "one of the two",
            "the address of a Prometheus server, such as `\"http://10.0.0.5:9090\"`"
        ),
        Key::new("query", Text, "required with `prometheus`", "the query, whose result is one number"),
        Key::new(
            "token_file",
            Path,
            "none",
            "with `prometheus`: a file with the bearer token that the server wants to be shown"
        ),
        Key::new(
            "password_file",
            Path,
            "required with `prometheus` and `user`",
            "a file with the user's password; it belongs into no address"
        ),
        Key::new("snmp", Text, "is required", "the address of an SNMP agent: `\"10.0.0.9:161\"`"),
        Key::new("oid", Text, "required with `snmp`", "the object to get: `\"1.3.6.1.4.1.8072.1.0\"`"),
        Key::new(
            "community_file",
            Path,
            "`public`",
            "with `snmp`, version 2c: a file with the community, which is a password in clear text"
        ),
        Key::new("user", Text, "none", "with `snmp`: the user of version 3; with `prometheus`: that of basic authentication")
            .bounds("1 to 32 bytes with `snmp`"),
        Key::new(
            "authentication",
            Words(&["sha256", "sha224", "sha384", "sha512", "sha1", "md5"]),
            "`\"sha256\"`",
            "the protocol that authenticates the user's messages"
        ),
        Key::new("authentication_file", Path, "required with `user`", "a file with the passphrase for it")
            .details("8 bytes at least. The file is for the agent alone: mode 0600."),
        Key::new(
            "privacy",
            Words(&["aes", "aes192", "aes256", "aes192-cisco", "aes256-cisco"]),
            "`\"aes\"`",
            "the protocol that encrypts the user's messages"
        )
        .details("The longer keys are made as net-snmp does, or as Cisco does. DES is not supported."),
        Key::new("privacy_file", Path, "none", "a file with the passphrase for it")
            .details("Without it messages are authenticated, and not encrypted."),
        Key::new("unit", Words(&["s", "ms", "us", "ns"]), "required", "the unit of the number"),
        Key::new(
            "scale",
            Number((Included(0.000_001), Included(1_000_000.0))),
            "1",
            "a factor of the number, such as 0.01 for hundredths"
        ),
        Key::new("every", Time, "`\"5s\"`", "the time between two questions: within 100 ms and 60 s").details(
            "Not shorter than the time in which the source measures anew, or one measurement counts twice."
        ),
        Key::new("timeout", Time, "`\"2s\"`", "the time in which an answer must come").details(
            "It is at most `every`."
        ),
        Key::new(
            "max_age",
            Time,
            "three times `every`",
            "an older answer is none: nothing is throttled until a new one comes"
        ),
    ]
);

/// Keys of `sensor`.
pub const SENSOR: KeyTable = table!(
    "sensor",
    "### `[sensor.NAME]`",
    [
        Key::new(
            "path",
            Text,
            "required",
            "a path on the node's storage: its device or NFS mount is measured, and its file system's \
        room"
        ),
        Key::new(
            "kind",
            Words(&["disk", "array", "cluster-file-system", "object-store", "tape"]),
            "`\"disk\"`",
            "the kind of storage, for readers of `tidegate transfer nodes`"
        ),
        Key::new("interval", Time, "`\"1s\"`", "the time between two reports: within 50 ms and 60 s"),
        Key::new(
            "cgroup",
            Text,
            "none",
            "a cgroup, such as `\"system.slice/nginx.service\"`, whose load counts instead of the \
        whole device's"
        )
        .details("The kernel does not say how long its requests take."),
    ]
);

/// Keys of `bridge`.
pub const BRIDGE: KeyTable = table!(
    "bridge",
    "### `[bridge]`",
    [
        Key::new("array", Text, "required", "the interface that leads to the array: `\"eth1\"`").details(
            "If it is a port of a bridge, consumers are delayed at its other ports. Otherwise delays follow \
        the routes."
        ),
        Key::new("capture", Size, "all of it", "the bytes of each packet that are captured: 192 B to 256KiB"),
        Key::new(
            "sessions",
            Path,
            "in systemd's state directory, if there is one",
            "a file that keeps the names of sessions over a restart"
        )
        .details("A session says its names when it logs in, and not again."),
    ]
);
