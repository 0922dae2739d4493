"""Parts that the judges share: lines through measured points, bounds of values, and targets kept."""

# A target counts as kept if it is kept in this part of the seconds, without the first seconds of each burst.
KEPT = 0.95
LEFT_OUT_S = 3


def settled(phase):
    """Returns the means of the seconds within bursts, without the first few of each burst."""
    return [
        value
        for at, value in phase["seconds"]
        if any(begin + LEFT_OUT_S < at <= end for begin, end in phase["bursts"])
    ]


def part_within(seconds, target_ms):
    return sum(value <= target_ms for value in seconds) / len(seconds)


def fit(points):
    """Least squares: slope, intercept, R²."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    slope = xy / xx
    return {
        "slope": slope,
        "intercept_ms": mean_y - slope * mean_x,
        "r2": xy * xy / (xx * yy) if yy else None,
    }


class Verdict:
    def __init__(self):
        self.rows = []

    def within(self, name, value, least=None, most=None, known=None):
        """Adds a check of the value against its bounds.

        known: the reason why the check is known to be missed at times. A miss is printed, but fails no run.
        """
        met = value is not None and (least is None or value >= least) and (most is None or value <= most)
        bounds = {key: bound for key, bound in (("at_least", least), ("at_most", most)) if bound is not None}
        self.rows.append(
            {
                "name": name,
                "value": value,
                **bounds,
                "met": met,
                **({"known": known} if known and not met else {}),
            }
        )

    def show(self):
        for row in self.rows:
            bound = " to ".join(f"{row[key]:g}" for key in ("at_least", "at_most") if key in row)
            value = "none" if row["value"] is None else f"{row['value']:.4f}"
            print(
                f"  {row['name']:88} {value:>9}  {bound:12}  {'met' if row['met'] else 'MISSED'}"
                + (f" (known: {row['known']})" if "known" in row else "")
            )

    def met(self):
        return all(row["met"] or "known" in row for row in self.rows)


def retransmitted(load):
    return sum(side["RetransSegs"] for side in load["tcp"].values())
