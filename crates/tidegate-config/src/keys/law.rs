//! Keys of the control laws, the same in every configuration and scenario.

use std::ops::Bound::{Excluded, Included, Unbounded};

use super::KeyType::*;
use super::{Key, KeyTable, table};

/// Keys of `knee`.
pub const KNEE: KeyTable = table!(
    "knee",
    "### `[pool.NAME.knee]`",
    [
        Key::new(
            "fraction",
            Number((Included(0.5), Excluded(1.0))),
            "`0.95`",
            "the part of the most that the set point must give"
        ),
        Key::new("floor", Time, "`\"100us\"`", "the set point is never below this").bounds("above 0"),
        Key::new(
            "half_life",
            Time,
            "`\"30min\"`",
            "knowledge of the curve loses half of its weight in this time; idle and lightly loaded \
        time does not count"
        )
        .bounds("at least `\"1min\"`"),
    ]
);

/// Keys of `auto`.
pub const AUTO: KeyTable = table!(
    "auto",
    "### `[pool.NAME.auto]`",
    [
        Key::new("least", Number((Excluded(0.0), Unbounded)), "`0.02`", "the smallest window")
            .bounds("requests"),
        Key::new(
            "greatest",
            Number((Excluded(0.0), Unbounded)),
            "`1024.0`",
            "the largest window, and where the law begins"
        )
        .bounds("requests"),
    ]
);

/// Keys of `window`.
pub const WINDOW: KeyTable = table!(
    "window",
    "### `[pool.NAME.window]`",
    [
        Key::new("gamma", Number((Excluded(0.0), Included(1.0))), "`0.8`", "the length of one step"),
        Key::new(
            "beta_gain",
            Number((Excluded(0.0), Unbounded)),
            "`0.1`",
            "K: β when all unprotected exports are busy"
        )
        .details(
            "With `cluster = true` it is β per 100 shares, so that shares must mean the same on \
        every host, and its default is `1.0`. The response time settles above the set point by \
        β/w; a larger K brings shares between hosts about sooner."
        ),
        Key::new(
            "shares_of",
            Words(&["slots", "requests"]),
            "`\"slots\"`",
            "the quantity that shares divide among hosts: the array's queue, or requests per second"
        )
        .details(
            "By requests, a host that the array serves later than others gets more of the queue, \
        up to twice as much ([hosts.md](../guide/hosts.md#what-shares-divide)). Only with \
        `cluster = true`, and not with `normalise`."
        ),
        Key::new("least", Number((Excluded(0.0), Unbounded)), "`0.25`", "the smallest window")
            .bounds("requests")
            .details("Below 1 means: less than one request at a time, spread over time."),
        Key::new(
            "greatest",
            Number((Excluded(0.0), Unbounded)),
            "`64.0`",
            "the largest window, and where the law begins"
        )
        .bounds("requests"),
    ]
);

/// Keys of `pid`.
pub const PID: KeyTable = table!(
    "pid",
    "### `[pool.NAME.pid]`",
    [
        Key::new(
            "proportional_gain",
            Number((Excluded(0.0), Unbounded)),
            "`0.5`",
            "K_p: milliseconds of delay per millisecond of error"
        ),
        Key::new("integral_time", Time, "`\"200ms\"`", "T_i"),
        Key::new("derivative_time", Time, "`\"0ms\"`", "T_d"),
        Key::new(
            "variant",
            Words(&["clamped", "literal"]),
            "`\"clamped\"`",
            "below the set point the delay winds down, or stops at once"
        ),
        Key::new("step", Time, "`\"500us\"`", "delays are rounded up to a multiple of this"),
        Key::new("greatest", Time, "`\"1s\"`", "the longest delay of any request")
            .details("In an agent 100 ms, or 1 s with `throttle = \"rate\"` or `\"cgroup\"`."),
        Key::new("floor", Rate, "`\"2 IO/s\"`", "a delay never takes an export below this rate"),
    ]
);

/// Keys of `integral`.
pub const INTEGRAL: KeyTable = table!(
    "integral",
    "### `[pool.NAME.integral]`",
    [
        Key::new(
            "gain",
            Number((Excluded(0.0), Unbounded)),
            "`0.33`",
            "K: by how many requests per second the rate changes for each millisecond of error and \
        interval"
        )
        .details(
            "The default is the paper's, for one disk of 1999. Faster storage takes more: 0.1/G \
        places the loop's pole at 0.9, with the process gain G of `tidegate identify \
        --model`."
        ),
        Key::new(
            "floor",
            Rate,
            "`\"2 IO/s\"`",
            "the least rate of an export without a contract; with one it is what was promised"
        ),
        Key::new("greatest", Rate, "none", "the greatest rate of an export, unless its contract is for more"),
        Key::new(
            "statistic",
            Words(&["p95", "mean"]),
            "`\"p95\"`",
            "the statistic of the response times of an interval"
        ),
        Key::new(
            "tuning",
            Words(&["fixed", "learnt"]),
            "`\"fixed\"`",
            "`learnt` finds the gain while the law runs, whatever the storage"
        ),
        Key::new(
            "variant",
            Words(&["improved", "literal"]),
            "`\"improved\"`",
            "`literal` is the paper's law"
        )
        .details(
            "`improved` raises rates slowly, and only those that are used. It divides surplus in \
        proportion to the promised rates. It gives surplus back at once when an export with a \
        contract comes back from a pause of `idle_half_life`. When one has gone, it takes its surplus \
        over."
        ),
    ]
);

/// Keys of `self_tuning`.
pub const SELF_TUNING: KeyTable = table!(
    "self_tuning",
    "### `[pool.NAME.self_tuning]`",
    [
        Key::new(
            "gain",
            Number((Excluded(0.0), Unbounded)),
            "none",
            "a fixed gain instead of learning: IO/s of operating point per millisecond of error \
        and interval"
        ),
        Key::new(
            "forgetting",
            Number((Excluded(0.0), Included(1.0))),
            "`0.7`",
            "λ: what is left of the weight of an older measurement after each interval"
        ),
        Key::new(
            "reset_change",
            Number((Excluded(0.0), Unbounded)),
            "`0.3`",
            "a model whose error exceeds this part is forgotten"
        ),
        Key::new(
            "least_requests",
            Whole(1, 1000000),
            "`6`",
            "an export with fewer requests decides nothing by them until there are more"
        ),
        Key::new("least", Rate, "`\"6 IO/s\"`", "the least operating point, of all exports together"),
        Key::new("greatest", Rate, "none", "the greatest"),
        Key::new(
            "floor",
            Rate,
            "`\"2 IO/s\"`",
            "the least rate of each export; with `law = \"queueing-model\"` only where there are \
        `bands`"
        ),
        Key::new(
            "variant",
            Words(&["improved", "literal"]),
            "`\"improved\"`",
            "`literal` is the paper's law; it needs a `greatest` near to what the storage can do"
        )
        .details("`improved` is [more careful](../decisions/0010-self-tuning-departs-from-figure-6.md)."),
    ]
);

/// Keys of `bands`.
pub const BANDS: KeyTable = table!(
    "bands",
    "### `bands`",
    [
        Key::new("up_to", Rate, "required", "the throughput of all together at which the band ends"),
        Key::new("ratios", NamedNumbers, "required", "the part of the band that each export gets: 1 in sum"),
    ]
);

/// Keys of `release`.
pub const RELEASE: KeyTable = table!(
    "release",
    "### `release`",
    [
        Key::new(
            "tick",
            Time,
            "`\"1ms\"`",
            "tokens come at multiples of this, as many at once as the rate has in that time; \
        `\"0ms\"`: at any time"
        )
        .bounds("at most `\"1s\"`"),
        Key::new(
            "ahead",
            Whole(0, 65536),
            "`2`",
            "the number of released requests per export that may wait for their turn; `0`: any \
        number, as in the paper"
        ),
    ]
);

/// Keys of `batch`.
pub const BATCH: KeyTable = table!(
    "batch",
    "### `batch`",
    [
        Key::new(
            "locality",
            Size,
            "`\"4MiB\"`",
            "the greatest distance from the end of a request to the next one of the batch"
        ),
        Key::new(
            "requests",
            Whole(0, 1024),
            "`7`",
            "the number of requests that may follow in a batch; `0`: no batches"
        ),
        Key::new("ios", Whole(0, 65536), "`8`", "the cost of a batch, in I/Os of 64 KiB"),
    ]
);
