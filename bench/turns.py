"""What the benchmarks in Python share: flags, programs, measuring in turns, and rows as sluice-bench writes them.

    rows = turns.Rows()
    values = turns.take({"a": measure_a, "b": measure_b}, repetitions=5)
    rows.add("some/a", "k/s", values["a"], values["b"], "b, in the same turns")
    rows.write(options.json)

Only the standard library is needed here.
"""
import argparse
import ctypes
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
ADULT = ROOT / "configs/adult_wide_deep.textproto"
PR_SET_PDEATHSIG = 1


def flags(description, repetitions):
    """A parser with the flags of all of these benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only the rows whose name matches this regular expression")
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of the programs")
    return parser


def run(command, timeout=None, **kwargs):
    """Runs a program to its end and returns what it printed. Ends this program when it fails or takes longer than `timeout`
    seconds. Whatever the program has started ends with it."""
    text = " ".join(map(str, command))
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True, **kwargs) as program:
        try:
            printed, errors = program.communicate(timeout=timeout)
        except BaseException as end:
            os.killpg(program.pid, signal.SIGKILL)
            if not isinstance(end, subprocess.TimeoutExpired):
                raise
            sys.exit("%s has not ended within %d s" % (text, timeout))
    if program.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (text, program.returncode, (printed + errors)[-3000:]))
    return printed


def die_with_parent():
    """For preexec_fn: the kernel kills the program when this one ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def sluice_bench(options, rows, *more, **kwargs):
    """The rows of sluice-bench that a regular expression matches as a whole, measured once. `kwargs` as for run()."""
    quick = ["--quick"] if options.quick else []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.json"
        run([options.bin / "sluice-bench", "--filter=^(%s)$" % rows, "--json=%s" % out, "--repetitions=1", *quick, *more],
            **kwargs)
        return json.loads(out.read_text())


def last_json_line(printed):
    return json.loads([line for line in printed.splitlines() if line.startswith("{")][-1])


def take(measures, repetitions, may_continue=lambda: True):
    """Calls each function once a turn; every second turn in reverse order. {key: what its function returned in each turn}.

    Stops before a turn, but not before the first, when may_continue() is false. Says on the standard error when each has ended.
    """
    values = {key: [] for key in measures}
    for turn in range(repetitions):
        if turn > 0 and not may_continue():
            break
        for key in list(measures)[::-1 if turn % 2 else 1]:
            begin = time.monotonic()
            values[key].append(measures[key]())
            print("turn %d of %d: %s took %.1f s" % (turn + 1, repetitions, getattr(key, "name", key), time.monotonic() - begin),
                  file=sys.stderr, flush=True)
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
