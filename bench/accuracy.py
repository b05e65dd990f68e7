"""wide_deep written in PyTorch beside the native model: the AUC of both, in each mode, means over seeds.

    python3 -B bench/accuracy.py --python=build/python-env/bin/python [--flights=FOLDER] [--filter=REGEX] [--seeds=3]

Rows are DATA/MODE with DATA adult or flights and MODE sync, async, geo or collective. Each seed is one run of either side
with one pserver and two workers, data and epochs as configs/DATA_wide_deep.textproto says, from the same initial values. The
figures are means over the seeds. Their standard errors come from the spread of the seeds; that of the difference from the
spread of the seeds' differences. "set" is the standard error of one AUC as an estimate from this many test examples. Ends with
1 when two means differ by more than 0.001 and by more than twice the standard error of the difference.

Flights needs train.csv and test.csv in FOLDER; configs/flights_wide_deep.textproto says how to make them.
"""
import json
import math
import os
import pathlib
import re
import statistics
import sys
import tempfile

import turns

HERE = pathlib.Path(__file__).resolve().parent
MODES = {
    "sync": ("--a_sync=false",),
    "async": ("--a_sync=true",),
    "geo": ("--a_sync=true", "--k_steps=20"),
    "collective": ("--a_sync=false", "--set=strategy.sync_configs.dense=COLLECTIVE"),
}
BOUND = 0.001


def parse():
    flags = turns.flags(__doc__, repetitions=1)
    flags.add_argument("--python", type=pathlib.Path, default=turns.ROOT / "build/python-env/bin/python",
                       help="an interpreter with PyTorch, for which the Python module was built")
    flags.add_argument("--flights", type=pathlib.Path, default=turns.ROOT / "data/flights", help="folder of train.csv and test.csv")
    flags.add_argument("--seeds", type=int, default=3, help="runs of each side and mode, with seeds from 1")
    flags.add_argument("--quick", action="store_true", help="one seed, one epoch: shows that everything runs")
    flags.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="for all runs, as of sluice launch")
    return flags.parse_args()


def data_flags(options, data):
    """Flags that name the data; None when it is not there."""
    if data == "adult":
        return ()
    files = [options.flights / name for name in ("train.csv", "test.csv")]
    if not all(file.exists() for file in files):
        return None
    return tuple("--set=data.%s_files=%s" % (use, file) for use, file in zip(("train", "eval"), files))


def launch(options, folder, *flags):
    """The result of a run whose model is in FOLDER/model."""
    with tempfile.TemporaryDirectory() as log:
        turns.run([options.bin / "sluice", "launch", "--server_num=1", "--output_dir=%s" % folder, "--log_dir=%s" % log, *flags],
                  env=dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"))
    return json.loads((pathlib.Path(folder) / "result.json").read_text())


def initial_model(options, folder, job, seed, of_data):
    """A native model whose dense tables have their initial values: it is trained by next to nothing."""
    first = pathlib.Path(folder) / "first"
    # The initial values do not depend on the data, so the smaller file will do.
    small = [of_data[1], of_data[1].replace("eval_files", "train_files")] if of_data else []
    launch(options, first, job, "--worker_num=1", "--epochs=1", seed, "--a_sync=false", "--set=eval.every_epochs=0",
           "--set=optimizers.all={sgd {} learning_rate: 1e-30}", *small)
    return first / "model"


def measure(options, data, mode, of_data):
    """[native, own]: evaluations by seed."""
    quick = ("--epochs=1",) if options.quick else ()
    more = ("--worker_num=2", *MODES[mode], *of_data, *quick, *("--set=%s" % one for one in options.set))
    job = "--job=%s" % (turns.ROOT / "configs" / ("%s_wide_deep.textproto" % data))
    sides = [], []
    for number in range(1, 2 if options.quick else options.seeds + 1):
        seed = "--set=train.seed=%d" % number
        with tempfile.TemporaryDirectory() as folder:
            initial = initial_model(options, folder, job, seed, of_data)
            sides[0].append(launch(options, "%s/native" % folder, job, seed, *more)["eval"])
            sides[1].append(launch(
                options, "%s/own" % folder, "--program=%s" % (HERE / "accuracy_program.py"), "--python=%s" % options.python, *more,
                "--", "--name=%s" % data, "--seed=%d" % number, "--initial=%s" % initial)["eval"])
        print("%s/%s seed %d: native %.5f, PyTorch %.5f" % (data, mode, number, sides[0][-1]["auc"], sides[1][-1]["auc"]),
              file=sys.stderr, flush=True)
    return sides


def error_of_mean(values):
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def main():
    options = parse()
    wanted = [(data, mode) for data in ("adult", "flights") for mode in MODES if re.search(options.filter, "%s/%s" % (data, mode))]
    if not wanted:
        sys.exit("no row matches --filter=%s" % options.filter)
    rows, differ = [], []
    print("| data, mode | native AUC | standard error | PyTorch AUC | standard error | difference | standard error | set |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for data, mode in wanted:
        of_data = data_flags(options, data)
        if of_data is None:
            print("SKIPPED: %s/%s needs train.csv and test.csv in %s" % (data, mode, options.flights), file=sys.stderr, flush=True)
            continue
        sides = measure(options, data, mode, of_data)
        (native, of_native), (own, of_own) = ((statistics.mean(aucs), error_of_mean(aucs))
                                              for aucs in ([one["auc"] for one in side] for side in sides))
        error = error_of_mean([b["auc"] - a["auc"] for a, b in zip(*sides)])
        in_set = sides[0][0].get("auc_standard_error", math.nan)
        print("| %s, %s | %.5f | %.5f | %.5f | %.5f | %+.5f | %.5f | %.5f |" % (
            data, mode, native, of_native, own, of_own, own - native, error, in_set), flush=True)
        rows.append({"name": "accuracy/%s/%s" % (data, mode), "native": native, "pytorch": own, "difference": own - native,
                     "standard_error": error, "seeds": len(sides[0])})
        if abs(own - native) > BOUND and not abs(own - native) <= 2 * error:
            differ.append("%s/%s" % (data, mode))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    if differ and not options.quick:
        sys.exit("the AUC differs by more than %.3f: %s" % (BOUND, ", ".join(differ)))


if __name__ == "__main__":
    main()
