//! Keys of `tidegate broker`.

use std::ops::Bound::{Excluded, Included};

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of the root.
pub const BROKER: KeyTable = table!(
    "broker",
    "## The broker",
    [
        Key::new(
            "listen",
            Format("address and port"),
            "required",
            "the address where the broker answers, such as `\"127.0.0.1:7311\"`"
        )
        .details(
            "Without `token_file` no consumer is asked who they are: keep it within a network that \
        you trust then."
        ),
        Key::new(
            "names",
            List(&Text),
            "none",
            "a list of the names under which clients reach the broker, such as \
        `[\"broker.example\"]`"
        )
        .details(
            "Its addresses, `localhost` and the machine's own name need not be in it: see \
        [requests that change something](http.md#requests-that-change-something)."
        ),
        Key::new(
            "token_file",
            Path,
            "none",
            "a file with the token that [requests](../guide/transfers.md#access-to-the-broker) \
        must show"
        ),
        Key::new("state", Path, "required", "the folder of the catalogue; made if it is not there")
            .details("With `[catalogue]`: of what tells this broker from others."),
        Key::new(
            "catalogue",
            Table("catalogue"),
            "none",
            "a table: keep the catalogue in NATS; without it, it is a journal in `state`"
        ),
        Key::new(
            "policy",
            Words(&["rr", "static-qos", "sm-r1", "sm-r2", "sm-r3", "learnt"]),
            "`\"sm-r3\"`",
            "the [rule](../guide/transfers.md#policies) by which nodes are chosen"
        ),
        Key::new(
            "overhead",
            Number((Excluded(0.0), Included(100.0))),
            "1, of `static-qos` 1.25",
            "the policy's coefficient k, above 0 and at most 100"
        ),
        Key::new(
            "interval",
            Time,
            "`\"1s\"`",
            "the time between two measurements of nodes; a moving average is of ten such samples"
        )
        .bounds("at least `\"10ms\"`"),
        Key::new(
            "lease",
            Time,
            "`\"10s\"`",
            "a transfer without reports for this long is over; at least 1 s and twice `interval`"
        ),
        Key::new("queue", Whole(0, 9223372036854775807), "`10000`", "the number of transfers that may wait"),
        Key::new(
            "lend",
            Flag,
            "`true`",
            "lend what a transfer has reserved and does not use, and take it back when it does"
        )
        .details(
            "`tidegate transfer nodes` shows what is lent; more is let in for it by `sm-r1` alone, \
        the only policy that goes by reservations. Where all transfers of a node get less than \
        they reserved nothing is lent: it may be the node that is slow. Where a sensor sees that the \
        node does less than four fifths of its peak, the clients are slow, and lend."
        ),
        Key::new("node", Tables("node"), "required", "the nodes, a table each"),
    ]
);

/// Keys of `catalogue`.
pub const CATALOGUE: KeyTable = table!(
    "catalogue",
    "### `[catalogue]`",
    [
        Key::new(
            "nats",
            List(&Text),
            "required",
            "the servers, of which the first that answers is taken: `[\"nats://10.0.0.5:4222\"]`; \
        `tls://` encrypts"
        ),
        Key::new("bucket", Text, "`\"tidegate-transfers\"`", "the bucket, made if it is not there"),
        Key::new(
            "replicas",
            Whole(1, 5),
            "`1`",
            "the number of servers that keep the bucket, when it is made"
        ),
        Key::new(
            "credentials",
            Path,
            "none",
            "a file with a user's JWT and the seed of its key, as `nsc` writes it"
        ),
        Key::new(
            "authorities",
            Path,
            "none",
            "a file of certificates of authorities, for servers that the system does not trust; \
        the connection is encrypted then"
        ),
        Key::new(
            "lease",
            Time,
            "`\"10s\"`",
            "a broker that has written nothing for so long has left the catalogue to others; at \
        least 2 s and four times `interval`"
        ),
        Key::new(
            "standby",
            Flag,
            "`false`",
            "wait while another broker has the catalogue, and take it over; otherwise that is an \
        error"
        ),
    ]
);

/// Keys of `node`.
pub const NODE: KeyTable = table!(
    "node",
    "### `[node.NAME]`",
    [
        Key::new(
            "place",
            Text,
            "required",
            "the address for clients: `\"file:///PATH\"`, `\"http://HOST:PORT/PATH\"`, \
        `\"https://HOST/PATH\"`, `\"s3://BUCKET/PREFIX\"`"
        )
        .details("The collection, or the bucket, is there already."),
        Key::new("endpoint", Text, "Amazon's", "a bucket's server, `\"https://HOST:PORT\"`"),
        Key::new("region", Text, "`\"us-east-1\"`", "a bucket's region"),
        Key::new(
            "profile",
            Text,
            "none",
            "the part of the clients' credentials files for a bucket, whatever their environment \
        says"
        ),
        Key::new(
            "availability",
            Whole(0, 255),
            "`0`",
            "its class of availability, 0 to 255: the higher, the more it survives"
        )
        .details("A write asks for the least."),
        Key::new("cost", Whole(0, 255), "`0`", "its class of cost, 0 to 255: the higher, the dearer")
            .details("A write says the greatest."),
        Key::new(
            "peak",
            ByteRate,
            "learnt",
            "the most that the node moves in either direction, such as `\"300MB/s\"`"
        )
        .details(
            "Without it, the peak is learnt from transfers. It ages: half of its distance from the \
        present rate is forgotten in an hour of transfers."
        ),
        Key::new("peak_read", ByteRate, "`peak`", "`peak` of reads"),
        Key::new("peak_write", ByteRate, "`peak`", "`peak` of writes"),
        Key::new("latency", Time, "learnt", "from a request to its first byte, where you know it")
            .details("Where nothing is said it is [learnt](../guide/transfers.md#special-nodes)."),
        Key::new("recall", Time, "none", "the time to get an object back from the tapes behind a disk")
            .details("See [tape](../guide/transfers.md#special-nodes)."),
        Key::new("drives", Whole(1, 9223372036854775807), "`1`", "the number of recalls from tape at once"),
        Key::new("cache", Size, "nothing", "the room of the disk in front of the tapes"),
        Key::new(
            "capacity",
            Size,
            "none",
            "the bytes that Tidegate may store on the node; without it, and without a sensor, any \
        number"
        ),
        Key::new(
            "sense",
            Path,
            "none",
            "a path on the broker's machine that lies on the node's storage: it is measured as a \
        [sensor](../guide/transfers.md#sensors) would"
        ),
        Key::new(
            "agent",
            Flag,
            "`false`",
            "reports of an agent on the node's own machine are taken: see \
        [sensors](../guide/transfers.md#sensors)"
        )
        .details("Not with `sense`."),
        Key::new(
            "agent_token_file",
            Path,
            "none",
            "a file with what that agent may show instead of the broker's token: [for this node \
        only](../guide/transfers.md#access-to-the-broker)"
        ),
    ]
);
