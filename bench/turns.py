"""What the benchmarks in Python share: flags, programs, measuring in turns, and rows as sluice-bench writes them.

    rows = turns.Rows()
    values = turns.take({"a": measure_a, "b": measure_b}, repetitions=5)
    rows.add("some/a", "k/s", values["a"], values["b"], "b, in the same turns")
    rows.write(options.json)

Only the standard library is needed here.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
ADULT = ROOT / "configs/adult_wide_deep.textproto"


def flags(description, repetitions):
    """A parser with the flags of all of these benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only the rows whose name matches this regular expression")
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    return parser


def run(command, **kwargs):
    """Runs a program to its end and returns what it printed. Ends this program when it fails."""
    text = " ".join(map(str, command))
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    except subprocess.TimeoutExpired as late:
        sys.exit("%s has not ended within %d s" % (text, late.timeout))
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (text, done.returncode, (done.stdout + done.stderr)[-3000:]))
    return done.stdout


def sluice_bench(options, rows, *more):
    """The rows of sluice-bench that a regular expression matches as a whole, measured once."""
    quick = ["--quick"] if options.quick else []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        run([options.bin / "sluice-bench", "--filter=^(%s)$" % rows, "--json=%s" % out, "--repetitions=1", *quick, *more])
        return json.loads(out.read_text())


def last_json_line(printed):
    return json.loads([line for line in printed.splitlines() if line.startswith("{")][-1])


def take(measures, repetitions, may_continue=lambda: True):
    """Calls each function once a turn; every second turn in reverse order. {key: what its function returned in each turn}.

    Stops before a turn, but not before the first, when may_continue() is false.
    """
    values = {key: [] for key in measures}
    for turn in range(repetitions):
        if turn > 0 and not may_continue():
            break
        for key in list(measures)[::-1 if turn % 2 else 1]:
            values[key].append(measures[key]())
    return values


class Rows:
    """Rows in the format of sluice-bench's --json."""

    def __init__(self):
        self._rows = []

    def add(self, name, unit, values, limits, limit_name):
        """Adds a row of medians, and returns it."""
        value, limit = statistics.median(values), statistics.median(limits)
        self._rows.append({"name": name, "value": value, "unit": unit, "limit": limit, "limit_name": limit_name,
                           "ratio": value / limit, "repetitions": len(values), "min": min(values), "max": max(values)})
        return self._rows[-1]

    @staticmethod
    def print_header(value, limit):
        print("%-56s %10s %10s %7s %10s %10s" % ("name", value, limit, "ratio", "min", "max"), flush=True)

    @staticmethod
    def print_row(row):
        print("%(name)-56s %(value)10.4g %(limit)10.4g %(ratio)7.2f %(min)10.4g %(max)10.4g" % row, flush=True)

    def write(self, path):
        """Writes the rows to a file. Without a path, does nothing."""
        if path:
            pathlib.Path(path).write_text(json.dumps(self._rows, indent=1) + "\n")
