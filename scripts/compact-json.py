#!/usr/bin/env python3
"""Rewrites JSON files in compact rows.

A value that fits into a line takes one line, and short values share lines.

usage: scripts/compact-json.py FILE…
"""

import json
import sys

WIDTH = 160


def rows(value, indent=0):
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if indent + len(line) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    if isinstance(value, list):
        begin, end = "[", "]"
        parts = [rows(part, indent + 1) for part in value]
    else:
        begin, end = "{", "}"
        parts = [
            json.dumps(key, ensure_ascii=False) + ":" + rows(part, indent + 1) for key, part in value.items()
        ]
    pad = "\n" + " " * (indent + 1)
    text = begin + pad
    for part in parts:
        separator = "" if text.endswith(pad) else ","
        room = WIDTH - len(text) + text.rfind("\n")
        # Short values share lines; a value of several lines begins a line of its own, and ends it.
        if separator and ("\n" in part or len(part) >= room or text.endswith(("]", "}"))):
            separator += pad
        text += separator + part
    return text + "\n" + " " * indent + end


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    for path in sys.argv[1:]:
        with open(path) as file:
            value = json.load(file)
        text = rows(value) + "\n"
        assert json.loads(text) == value, path
        with open(path, "w") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
