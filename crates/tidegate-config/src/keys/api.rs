//! Keys of the API of both services.

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of `api`.
pub const API: KeyTable = table!(
    "api",
    "## `[api]`",
    [
        Key::new(
            "listen",
            List(&Format("`unix:PATH`, or address and port")),
            "required without `names`",
            "the addresses of the API"
        )
        .details(
            "A Unix socket has the mode 0660. An address beyond loopback takes `tls`, and a token or \
        `client_ca_file`. Every service has the [operator's socket](../guide/access.md#the-operators-socket) beside them."
        ),
        Key::new(
            "tls",
            Table("tls"),
            "none",
            "the certificate that clients beyond loopback are shown, and the authorities of theirs"
        )
        .details(
            "With `client_ca_file` a client may show a certificate instead of a token: it may read \
        then, and with a name of `operator_names` change."
        ),
        Key::new(
            "readers",
            Path,
            "none: reading from loopback takes no token",
            "a file with the token of callers that may read"
        ),
        Key::new(
            "operators",
            Path,
            "none: only root and the service's user change something, through a Unix socket",
            "a file with the token of callers that may change something"
        )
        .details("A reload reads the files of `readers`, `operators` and `tls` again."),
        Key::new(
            "operator_names",
            List(&Text),
            "none",
            "names in certificates whose holders may change something: `[\"ops.example\"]`"
        )
        .details("A name counts as for [`allow`](../guide/access.md#the-rules-of-allow)."),
        Key::new(
            "names",
            List(&Text),
            "none",
            "host names by which the API and `metrics` may be asked, besides addresses, `localhost` and the machine's \
             name"
        )
        .details(
            "Such as the name of a proxy, or an alias of the host: `names = [\"storage.example\"]`. For `metrics` \
             alone, the table needs nothing else. A request under another name is refused, and logged once a minute."
        ),
    ]
);
