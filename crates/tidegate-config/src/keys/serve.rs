//! Keys of `tidegate serve` outside its pools.

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of the root.
pub const SERVE: KeyTable = table!(
    "serve",
    "## The whole",
    [
        Key::new(
            "listen",
            List(&Either(&[Format("`unix:PATH` or `tcp:ADDRESS:PORT`"), Table("listen")])),
            "required",
            "the addresses where NBD clients connect; every address serves every export"
        )
        .details(
            "An address is `unix:PATH` or `tcp:ADDRESS:PORT` (IPv6 in brackets; port 0 takes a \
        free one), or a [table](#listen). Every address serves every export. A socket's folder \
        must exist."
        ),
        Key::new(
            "tls",
            Table("tls"),
            "none",
            "the certificate shown to clients, and the authorities of theirs"
        ),
        Key::new(
            "metrics",
            Format("address and port"),
            "off",
            "the address of `/metrics`, `/healthz`, [`/v1/status`](http.md#the-status) and \
        [`/v1/admit`](http.md#contracts) over HTTP"
        ),
        JOURNAL_TABLE,
        Key::new(
            "api",
            Table("api"),
            "the operator's socket alone",
            "the [API](../guide/access.md#the-api): where it listens, and which callers may change something"
        ),
        Key::new(
            "admit",
            Table("admit"),
            "none",
            "lets [`/v1/admit`](http.md#contracts) answer: `{ token_file = \"FILE\" }`, a file \
        with the [token](../guide/transfers.md#access-to-the-broker) that its requests show"
        )
        .details("Without it the page answers 403. A reload reads the file again."),
        Key::new(
            "cluster",
            Table("cluster"),
            "none",
            "the other hosts that share pools' storage with this one: see `[cluster]`"
        ),
        Key::new(
            "drain_deadline",
            Time,
            "`\"30s\"`",
            "the time that SIGTERM gives requests in flight before it cuts their connections"
        )
        .details("The process ends at most half a second later, also when a volume hangs."),
        Key::new("pool", Tables("pool"), "required", "the pools, by name"),
    ]
);

/// Keys of `listen`.
pub const LISTEN: KeyTable = table!(
    "listen",
    "### `listen`",
    [
        Key::new(
            "address",
            Format("`unix:PATH` or `tcp:ADDRESS:PORT`"),
            "required",
            "the address where clients connect"
        ),
        Key::new(
            "tls",
            Words(&["off", "offered", "required"]),
            "`\"off\"` without the table `tls`; with it `\"offered\"` for Unix sockets and \
        loopback, `\"required\"` elsewhere",
            "TLS at this address: impossible, possible or required"
        ),
        Key::new(
            "mode",
            Format("octal number in quotes"),
            "`\"0660\"`",
            "Unix sockets: the file's mode, whatever the umask"
        )
        .details("To connect, a process needs the right to write."),
        Key::new(
            "owner",
            Format("name or number in quotes"),
            "the service's user",
            "Unix sockets: the file's owner"
        ),
        Key::new(
            "group",
            Format("name or number in quotes"),
            "the service's group",
            "Unix sockets: the file's group; `\"kvm\"` lets libvirt's QEMU in"
        ),
    ]
);

/// Keys of `tls`.
pub const TLS: KeyTable = table!(
    "tls",
    "### `tls`",
    [
        Key::new(
            "certificate_file",
            Path,
            "required",
            "PEM: the gateway's certificate, then those between it and its authority's"
        ),
        Key::new("private_key_file", Path, "required", "PEM: its private key"),
        Key::new(
            "client_ca_file",
            Path,
            "none",
            "PEM: the authorities one of which must have signed every client's certificate"
        )
        .details("Without it clients need none."),
    ]
);

/// The key of the decision journal, in the root of both services' configurations.
pub(super) const JOURNAL_TABLE: Key = Key::new(
    "journal",
    Table("journal"),
    "none",
    "keeps every decision with its inputs: `{ folder = \"/var/lib/tidegate/journal\" }`",
)
.details("See [the decision journal](../guide/watching.md#the-decision-journal).");

/// Keys of `journal`.
pub const JOURNAL: KeyTable = table!(
    "journal",
    "",
    [
        Key::new(
            "folder",
            Path,
            "required",
            "the folder that the journal is written to; it is made if missing"
        ),
        Key::new(
            "limit",
            Format("size"),
            "`\"1GiB\"`",
            "the most bytes on disk, at least 1 MiB; the oldest go first"
        ),
    ]
);

/// Keys of `admit`.
pub const ADMIT: KeyTable = table!(
    "admit",
    "",
    [Key::new(
        "token_file",
        Path,
        "required",
        "a file with the [token](../guide/transfers.md#access-to-the-broker) that questions \
        about contracts must show"
    ),]
);
