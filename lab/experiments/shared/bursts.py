"""A small reader, and bursts of writers beside it (the paper's figs. 12 to 16); imported in the guest.

Host 1 reads 4 KiB at random places, at most 256 KiB/s. Hosts 2 to 4 write with four jobs each, all at once,
with pauses between the bursts. `options` are an experiment's: `burst`, `pause`, `bursts`, `depth`, `seed`,
and `jobs` of each writer (four by default).
"""

import statistics
import time

from judging import part_within, settled

WRITERS = (2, 3, 4)
JOBS = 4


def now_ms():
    return round(time.time() * 1000)


def reader(lab, seconds):
    return {
        "name": "reader",
        "filename": lab.device(1),
        "rw": "randread",
        "bs": "4k",
        "iodepth": 1,
        "rate": "256k",
        "runtime": seconds,
        "size": "64m",
    }


def writers(lab, options, begin, seconds, numbers=WRITERS):
    return [
        {
            "name": f"w{n}-{job}",
            "filename": lab.device(n),
            "rw": "write",
            "bs": "64k",
            "iodepth": options.depth,
            "offset": f"{16 * job}m",
            "size": "16m",
            "startdelay": begin,
            "runtime": seconds,
        }
        for n in numbers
        for job in range(vars(options).get("jobs", JOBS))
    ]


def readers_too(lab, begin, seconds):
    """Returns jobs that read by the writers' own sessions."""
    return [
        {
            "name": f"r{n}",
            "filename": lab.device(n),
            "rw": "randread",
            "bs": "64k",
            "iodepth": 1,
            "size": "64m",
            "startdelay": begin,
            "runtime": seconds,
        }
        for n in WRITERS
    ]


def per_second(reads):
    """Returns the mean of each second with the time of its end, as fio does."""
    seconds = {}
    for at, value in reads:
        seconds.setdefault(int(at) + 1, []).append(value)
    return [[at, statistics.mean(values)] for at, values in sorted(seconds.items())]


def bursts(lab, options, mixed=False, each_read=False):
    """Runs the reader beside bursts of writers; with `mixed`, the writers read as well.

    Returns the reads per second, the times of the bursts, and, with `each_read`, every read.
    """
    begins = [options.pause + index * (options.burst + options.pause) for index in range(options.bursts)]
    length = options.pause + options.bursts * (options.burst + options.pause)
    # Any two reads are more than a millisecond apart.
    jobs = [reader(lab, length) | ({"log_avg_msec": 1} if each_read else {})]
    for begin in begins:
        jobs += writers(lab, options, begin, options.burst)
        jobs += readers_too(lab, begin, options.burst) if mixed else []
    before, drops, volumes, began = lab.retransmissions(), lab.drops(), lab.volumes(), now_ms()
    load = lab.start_fio(jobs, log_ms=1000, randseed=options.seed)
    again = sent_again(lab, began, length)
    results = load()
    after, counted = lab.retransmissions(), lab.volumes()
    written = sum(result["write"]["bytes"] for result in results if result["write"])
    log = results[0]["log"]["lat"]
    # Seconds count from fio's own beginning, as its bursts do: some tenths of a second after its start was
    # requested. The first line of its log ends the first second, or is the first read.
    fio_began = log[0][0] - (0 if each_read else 1000)
    reads = [[(at - fio_began) / 1000, value] for at, _, value in log]
    return {
        "seconds": per_second(reads) if each_read else [[round(at), value] for at, value in reads],
        **({"each": reads} if each_read else {}),
        "reads": results[0]["read"],
        "bursts": [[begin, begin + options.burst] for begin in begins],
        "written_bytes_per_s": written / (options.bursts * options.burst),
        "writers_reads_ms": [result["read"]["mean_ms"] for result in results[1:] if result["read"]],
        "volumes": {
            name: {field: counted[name][field] - volumes[name][field] for field in counted[name]}
            for name in counted
        },
        "retransmissions": {
            side: {name: after[side][name] - before[side][name] for name in after[side]} for side in after
        },
        "sent_again": again,
        "drops": lab.drops() - drops,
    }


def sent_again(lab, began, length):
    """Watches until the load ends and returns the segments sent again: [second, side, count]."""
    found, known = [], lab.retransmissions()
    while now_ms() - began < 1000 * length:
        time.sleep(0.25)
        seen = lab.retransmissions()
        for side, counters in seen.items():
            if more := counters["RetransSegs"] - known[side]["RetransSegs"]:
                found.append([(now_ms() - began) / 1000, side, more])
        known = seen
    return found


def judged(phase, target):
    """Returns the results of a phase; its reads exclude the beginning of each burst."""
    seconds = settled(phase)
    return {
        "kept": part_within(seconds, target),
        "mean_ms": statistics.mean(seconds),
        "written_bytes_per_s": phase["written_bytes_per_s"],
        "sent_again": phase["sent_again"],
    }
