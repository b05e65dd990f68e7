"""All-reduce between two ranks: Sluice through shared memory and over its Gloo, and PyTorch over its gloo, in turns."""
import os
import pathlib
import re

import environments
import turns

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("4KiB", "64KiB", "1MiB", "4MiB", "16MiB", "64MiB")
QUICK_SIZES = SIZES[:3]
ENGINES = ("shm", "gloo")
TIMEOUT_S = 120  # of one turn of one side; on a busy machine a turn of ours takes about 20 s


def _name(size):
    return "pytorch/allreduce/%s/ranks2" % size


def names():
    return [_name(size) for size in SIZES]


def _measure_sluice(options, sizes):
    """{(engine, size): GB/s of the array}, without Gloo where it is not installed."""
    found = turns.sluice_bench(options, "collective/allreduce/(%s)/(%s)/ranks2" % ("|".join(ENGINES), "|".join(sizes)),
                               timeout=TIMEOUT_S)
    return {tuple(row["name"].split("/")[2:4]): row["value"] for row in found}


def _measure_pytorch(options, python, sizes):
    """{size: GB/s of the array}."""
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", GLOO_SOCKET_IFNAME="lo")
    quick = ["--quick"] if options.quick else []
    printed = turns.run([python, HERE / "pytorch_allreduce.py", "--sizes=%s" % ",".join(sizes), *quick], env=env,
                        timeout=TIMEOUT_S)
    return turns.last_json_line(printed)["gb_per_second"]


def measure(options, rows):
    """Adds the rows that match the filter."""
    sizes = [size for size in (QUICK_SIZES if options.quick else SIZES) if re.search(options.filter, _name(size))]
    if not sizes:
        return
    python = environments.python(options.work, environments.PYTORCH)
    measured = turns.take({"sluice": lambda: _measure_sluice(options, sizes),
                           "pytorch": lambda: _measure_pytorch(options, python, sizes)}, options.repetitions)
    turns.Rows.print_header("ours, GB/s", "PyTorch's")
    for engine, size in measured["sluice"][0]:
        turns.Rows.print_row(rows.add(
            "peers/sluice/allreduce/%s/%s/ranks2" % (engine, size), "GB/s", [turn[engine, size] for turn in measured["sluice"]],
            [turn[size] for turn in measured["pytorch"]], "PyTorch's gloo, in the same turns"))
