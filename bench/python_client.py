"""./dev bench --python: rows a second through sluice.Client, next to the same rows without Python.

Each row is a job of one worker and one pserver: a table of 10 million rows of 16 floats with AdaGrad, and steps of 16 thousand
different ids. `pull`: steps that only pull. `pull_push`: steps that pull and push. `prefetch`: two steps ahead, with
pipeline_depth 3; without it each pull waits for its rows. The limits are the rows `sparse_{pull,push}/dim16/uniform` of
sluice-bench, measured in the same turns, with four batches in flight. Needs an interpreter with NumPy for which the module is
built.
"""
import json
import os
import pathlib
import re
import sys
import tempfile

import turns

PROGRAM = pathlib.Path(__file__).resolve().parent / "client_program.py"
NATIVE = {what: "sparse_%s/dim16/uniform" % what for what in ("pull", "push")}
# By kind of step, and how many steps are prefetched.
NAMES = {(what, ahead): "python_client/%s/dim16/uniform%s" % (what, "/prefetch" if ahead else "")
         for ahead in (0, 2) for what in ("pull", "pull_push")}


def parse():
    flags = turns.flags(__doc__, repetitions=3)
    flags.add_argument("--quick", action="store_true", help="few rows, once: shows that everything runs, not how fast")
    flags.add_argument("--python", default=sys.executable, help="the interpreter of the module")
    options = flags.parse_args()
    if options.quick:
        options.repetitions = 1
    if not any(re.search(options.filter, name) for name in NAMES.values()):
        sys.exit("no row matches --filter=%s; rows are\n  %s" % (options.filter, "\n  ".join(NAMES.values())))
    return options


def through_python(options, ahead):
    """Million rows a second of each kind of step."""
    sizes = ["--rows=20000", "--batch=2000", "--steps=8"] if options.quick else []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        figures = pathlib.Path(folder, "figures.json")
        turns.run([options.bin / "sluice", "launch", "--program=%s" % PROGRAM, "--python=%s" % options.python, "--server_num=1",
                   "--worker_num=1", "--output_dir=%s/out" % folder, "--log_dir=%s/log" % folder, "--", figures, "--ahead=%d" % ahead,
                   *sizes], timeout=600, cwd=folder)
        return json.loads(figures.read_text())


def natively(options):
    rows = {row["name"]: row["value"] for row in turns.sluice_bench(options, "|".join(NATIVE.values()), timeout=600)}
    return {what: rows[name] for what, name in NATIVE.items()}


def main():
    options = parse()
    measured = turns.take({0: lambda: through_python(options, 0), 2: lambda: through_python(options, 2),
                           "native": lambda: natively(options)}, options.repetitions)
    limits = {"pull": [one["pull"] for one in measured["native"]],
              # One after the other.
              "pull_push": [1 / (1 / one["pull"] + 1 / one["push"]) for one in measured["native"]]}
    rows = turns.Rows()
    turns.Rows.print_header("M rows/s", "native")
    for (what, ahead), name in NAMES.items():
        if re.search(options.filter, name):
            values = [one[what] for one in measured[ahead]]
            turns.Rows.print_row(rows.add(name, "M/s", values, limits[what], "sluice-bench, without Python, in the same turns"))
    rows.write(options.json)


if __name__ == "__main__":
    main()
