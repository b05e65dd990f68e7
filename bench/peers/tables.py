"""`sluice table export` and `import` of Parquet, and pyarrow's write and read of the same rows, in turns, by processor time."""
import os
import pathlib
import re
import resource
import sys
import tempfile

import environments
import turns

HERE = pathlib.Path(__file__).resolve().parent
ROWS, QUICK_ROWS = 10_000_000, 100_000
GOALS = {"export": 0.6, "import": 0.4}
JOB = """
name: "tables"
data { format: CSV train_files: "none.csv" csv { columns: ["label", "id"] } label { column: "label" } }
features { name: "id" categorical {} in_wide: false }
model { wide_deep { embedding_dim: 16 hidden_units: 4 } }
"""


def _name(what):
    return "pyarrow/table/%s" % what


def names():
    return [_name(what) for what in GOALS]


def _sluice(options, *words):
    """The processor seconds of a command, from its start to its end."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    turns.run([options.bin / "sluice", "table", *words])
    return used() - before


def _pyarrow(python, *words):
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    return turns.last_json_line(turns.run([python, HERE / "pyarrow_tables.py", *words], env=env))["cpu_seconds"]


def measure(options, rows):
    """Adds the rows that match the filter."""
    chosen = [what for what in GOALS if re.search(options.filter, _name(what))]
    if not chosen:
        return
    if not (options.bin / "sluice-arrow.so").exists():
        print("skipped: table/*, for want of Arrow (./dev arrow installs it)", file=sys.stderr)
        return
    python = environments.python(options.work, environments.PYARROW)
    count = QUICK_ROWS if options.quick else ROWS
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = pathlib.Path(name)
        (folder / "job.textproto").write_text(JOB)
        turns.run([python, HERE / "pyarrow_tables.py", "make", folder / "made.parquet", "--rows=%d" % count])
        job = "--job=%s" % (folder / "job.textproto")
        turns.run([options.bin / "sluice", "table", "import", folder / "made.parquet", job, "--output=%s" % (folder / "model")])
        rows_file = folder / "rows.parquet"
        turns.run([options.bin / "sluice", "table", "export", folder / "model", "--output=%s" % rows_file])
        sides = {
            ("export", "ours"): lambda: _sluice(options, "export", folder / "model", "--overwrite",
                                                "--output=%s" % (folder / "again.parquet")),
            ("export", "pyarrow"): lambda: _pyarrow(python, "write", rows_file, "--output=%s" % (folder / "peer.parquet")),
            ("import", "ours"): lambda: _sluice(options, "import", rows_file, job, "--overwrite",
                                                "--output=%s" % (folder / "again")),
            ("import", "pyarrow"): lambda: _pyarrow(python, "read", rows_file),
        }
        seconds = turns.take({side: call for side, call in sides.items() if side[0] in chosen}, options.repetitions)
    turns.Rows.print_header("ours, M/s", "pyarrow's")
    for what in chosen:
        rates = {side: [count / one / 1e6 for one in seconds[what, side]] for side in ("ours", "pyarrow")}
        turns.Rows.print_row(rows.add(
            "peers/sluice/table/%s/parquet" % what, "M rows/CPU s", rates["ours"], rates["pyarrow"],
            "pyarrow's %s of the same rows, in the same turns; the goal is %.1f" %
            ("write" if what == "export" else "read", GOALS[what])))
