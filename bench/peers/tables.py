"""`sluice table export` and `import` of Parquet, and pyarrow's write and read of the same rows, in turns, by processor time."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import environments
import turns

HERE = pathlib.Path(__file__).resolve().parent
ROWS, QUICK_ROWS = 10_000_000, 100_000
GOALS = {"export": 0.6, "import": 0.4}
MOST_MIB = 1024
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
    """(processor seconds, most MiB of memory) of a command, from its start to its end."""
    command = [str(word) for word in (options.bin / "sluice", "table", *words)]
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, preexec_fn=turns.die_with_parent)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            printed.seek(0)
            sys.exit("%s ended with %d:\n%s" % (" ".join(command), process.returncode, printed.read()[-3000:]))
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


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
        turns.run([python, HERE / "pyarrow_tables.py", "compare", folder / "made.parquet", "--other=%s" % rows_file])
        sides = {
            ("export", "ours"): lambda: _sluice(options, "export", folder / "model", "--overwrite",
                                                "--output=%s" % (folder / "again.parquet")),
            ("export", "pyarrow"): lambda: _pyarrow(python, "write", rows_file, "--output=%s" % (folder / "peer.parquet")),
            ("import", "ours"): lambda: _sluice(options, "import", rows_file, job, "--overwrite",
                                                "--output=%s" % (folder / "again")),
            ("import", "pyarrow"): lambda: _pyarrow(python, "read", rows_file),
        }
        runs = turns.take({side: call for side, call in sides.items() if side[0] in chosen}, options.repetitions)
    turns.Rows.print_header("ours", "limit")
    for what in chosen:
        ours = [count / seconds / 1e6 for seconds, _ in runs[what, "ours"]]
        turns.Rows.print_row(rows.add(
            "peers/sluice/table/%s/parquet" % what, "M rows/CPU s", ours, [count / one / 1e6 for one in runs[what, "pyarrow"]],
            "pyarrow's %s of the same rows, in the same turns; the goal is %.1f" %
            ("write" if what == "export" else "read", GOALS[what])))
        turns.Rows.print_row(rows.add("peers/sluice/table/%s/memory" % what, "MiB", [mib for _, mib in runs[what, "ours"]],
                                      [MOST_MIB], "1 GiB"))
