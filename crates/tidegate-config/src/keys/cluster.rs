//! Keys of `cluster`: hosts together, and the policies that they follow.

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of `cluster`.
pub const CLUSTER: KeyTable = table!(
    "cluster",
    "## `[cluster]`",
    [
        Key::new(
            "name",
            Format("1 to 32 letters, digits, `-`, `_`"),
            "required",
            "the name of the cluster; other clusters on the same wire are not heard"
        ),
        Key::new(
            "host",
            Text,
            "the machine's name",
            "this host's name; no other one of the cluster may have it"
        ),
        Key::new("carrier", Table("carrier"), "required", "the way reports travel between hosts"),
        Key::new(
            "policy",
            Table("policy"),
            "none: no policy is followed",
            "with the carrier `nats`: the policies to follow, and their limits"
        ),
    ]
);

/// Keys of `carrier`.
pub const CARRIER: KeyTable = table!(
    "carrier",
    "### `carrier`",
    [
        Key::new(
            "kind",
            Words(&["udp", "file", "nats"]),
            "required",
            "the way: UDP datagrams, a shared file, or NATS"
        )
        .details(
            "`udp`: datagrams, authenticated with a key that all hosts have. `file`: a file or \
        block device that all hosts reach. `nats`: a NATS server, which also brings \
        [policies](../guide/hosts.md)."
        ),
        Key::new(
            "listen",
            Format("address and port"),
            "required",
            "the address to listen on; with `group` only the port counts"
        )
        .applies_to("udp"),
        Key::new(
            "peers",
            List(&Format("`\"ADDRESS:PORT\"` or `\"NAME@ADDRESS:PORT\"`")),
            "one of the two",
            "the other hosts; no other address is heard, and each is one host"
        )
        .applies_to("udp")
        .details(
            "With a name only that one counts from there. This host's own address may be among \
        them, so that all can have the same list."
        ),
        Key::new(
            "group",
            Format("multicast address"),
            "is required",
            "instead of `peers`, a multicast group such as `\"239.84.68.1\"`"
        )
        .applies_to("udp"),
        Key::new("interface", Text, "by the routes", "`udp` with `group`: the network interface"),
        Key::new("hops", Whole(1, 255), "`1`", "`udp` with `group`: how many routers may pass it on"),
        Key::new(
            "path",
            Path,
            "required",
            "the file, on a cluster file system, or the device, such as a small shared volume"
        )
        .applies_to("file")
        .details("A file that is not there is made; what is neither empty nor such a file is left alone."),
        Key::new("slots", Whole(1, 512), "`64`", "the number of hosts that the file is made for")
            .applies_to("file")
            .details("All hosts must say the same."),
        Key::new("slot", Whole(0, 9223372036854775807), "a free one", "this host's block in it")
            .applies_to("file"),
        Key::new(
            "servers",
            List(&Format("addresses")),
            "required",
            "the addresses of NATS servers; the first that answers is taken"
        )
        .applies_to("nats"),
        Key::new(
            "tls",
            Flag,
            "`true` with one of the next three, otherwise `false`",
            "connections are encrypted, and the server must show a certificate for the name or \
        address in `servers`"
        )
        .applies_to("nats")
        .details("Without it a host on the way can read and change everything, a password included."),
        Key::new(
            "ca_file",
            Path,
            "whom the system trusts",
            "certificates, in PEM form, of the authorities that may have signed the server's"
        )
        .applies_to("nats"),
        Key::new(
            "certificate_file",
            Path,
            "none",
            "this host's certificate in PEM form, where the server asks for one; with \
        `private_key_file`"
        )
        .applies_to("nats"),
        Key::new("private_key_file", Path, "none", "its private key in PEM form").applies_to("nats"),
        Key::new("token_file", Path, "none", "a file with the token that the server asks for")
            .applies_to("nats"),
        Key::new("user", Text, "none", "the user name for the server; with `password_file`")
            .applies_to("nats"),
        Key::new("password_file", Path, "none", "a file with the password").applies_to("nats"),
        Key::new(
            "credentials_file",
            Path,
            "none",
            "a `.creds` file as `nsc` writes it, instead of token or password"
        )
        .applies_to("nats")
        .details("It has a user's JWT and the seed of its key, which never leaves this host."),
        Key::new(
            "replicas",
            Whole(1, 5),
            "`1`",
            "the number of servers that keep the policies, when their bucket is made"
        )
        .applies_to("nats"),
        Key::new(
            "key_file",
            Path,
            "required",
            "a file with at least 16 secret bytes, the same on all hosts: `head -c 32 /dev/urandom \
        | base64 > cluster.key`"
        )
        .applies_to("udp"),
    ]
);

/// Keys of `policy`.
pub const POLICY: KeyTable = table!(
    "policy",
    "### `policy`",
    [
        Key::new(
            "writers",
            List(&Format("public keys")),
            "required",
            "public keys of the writers whose [policies](../guide/hosts.md#policies) are followed"
        )
        .details("`tidegate policy key FILE` makes a key and shows its public half."),
        Key::new(
            "may_limit",
            List(&Format("exports")),
            "none",
            "protected exports that a policy may limit; on all others the limit of a policy has no \
        effect while they are protected"
        ),
    ]
);
