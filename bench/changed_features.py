"""How good a model is after a day on which its features changed, beside a fresh start with the same data.

    python3 bench/changed_features.py [--days=30] [--seeds=3] [--examples=20000]

Trains a job a day on generated click data, each from the checkpoint of the day before. The day that follows is trained four times:
with the same features; with two features added, one removed, all in reverse order and embeddings of 16 values instead of 10; and
with these features from a fresh start, on the data of that day and on that of all days. All score the same later examples. Only the
standard library is needed here. Rows, with AUCs of the same seeds: `changed`, beside the fresh start with all data; `unchanged` and
`fresh_day`, beside `changed`. Ends with 1 when the mean of `changed` is more than 0.003 below that of `unchanged`, or more than 0.005
below that of `fresh_all` (the fresh start with all data).
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import turns

JOB = """
name: "features"
data { format: CRITEO_TSV %(train)s %(eval)s }
%(features)s
model { wide_deep { hidden_units: [100, 50] embedding_dim: %(dim)d } }
optimizers { all { adagrad {} learning_rate: 0.02 } }
train { epochs: 1 batch_size: 256 seed: %(seed)d threads: 1 }
"""
NUMBERS = ['features { name: "I%d" numeric { log: true } }' % i for i in range(1, 14)]
CATEGORIES = ['features { name: "C%d" categorical { missing_is_value: true } }' % i for i in range(1, 27)]
BEFORE = NUMBERS[:-1] + CATEGORIES[:-1]  # without I13 and C26
AFTER = [feature for feature in reversed(NUMBERS + CATEGORIES) if feature != CATEGORIES[0]]  # without C1
# By how much the mean of `changed` may be below that of another row. On 2026-11-30 it was 0.0011 and 0.0021 below.
BOUNDS = {"unchanged": 0.003, "fresh_all": 0.005}


class Seed:
    """The jobs of one seed, on data of its own."""

    def __init__(self, options, folder, seed):
        self._options, self._folder, self._seed = options, folder, seed
        files = options.days + 1 + options.eval_days
        turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % (files * options.examples), "--files=%d" % files,
                   "--seed=%d" % seed, "--output=%s" % (folder / "data")])

    def _files(self, field, first, last):
        return " ".join('%s: "%s"' % (field, self._folder / "data" / ("part-%05d.tsv" % i)) for i in range(first, last))

    def train(self, name, first, last, features=BEFORE, dim=10, start=None, evaluate=False):
        """Trains on the days from `first` to before `last`. Returns the AUC with `evaluate`."""
        days = self._options.days
        job = self._folder / (name + ".textproto")
        job.write_text(JOB % {"train": self._files("train_files", first, last),
                              "eval": self._files("eval_files", days + 1, days + 1 + self._options.eval_days),
                              "features": "\n".join(features), "dim": dim, "seed": self._seed})
        turns.run([self._options.bin / "sluice", "launch", "--job=%s" % job, "--a_sync=false", "--server_num=1", "--worker_num=2",
                   "--output_dir=%s" % (self._folder / name), "--log_dir=%s" % (self._folder / "log"),
                   *(["--set=initial_checkpoint=%s" % (self._folder / start)] if start else []),
                   *([] if evaluate else ["--set=eval.every_epochs=0"])])
        return json.loads((self._folder / name / "result.json").read_text())["eval"]["auc"] if evaluate else None

    def measure(self):
        """{name: AUC on the examples after the last day}"""
        days, start = self._options.days, None
        for day in range(days):
            self.train("day%d" % day, day, day + 1, start=start)
            start = "day%d" % day
        new = {"features": AFTER, "dim": 16, "evaluate": True}
        return {"unchanged": self.train("unchanged", days, days + 1, start=start, evaluate=True),
                "changed": self.train("changed", days, days + 1, start=start, **new),
                "fresh_day": self.train("fresh_day", days, days + 1, **new),
                "fresh_all": self.train("fresh_all", 0, days + 1, **new)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--bin", type=pathlib.Path, default=turns.ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--days", type=int, default=30, help="before the features change")
    parser.add_argument("--eval_days", type=int, default=5, help="after them, to score")
    parser.add_argument("--examples", type=int, default=20000, help="of a day")
    parser.add_argument("--seeds", type=int, default=3, help="of data and model, from 1")
    options = parser.parse_args()
    aucs = []
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory(prefix="sluice-features-") as name:
            aucs.append(Seed(options, pathlib.Path(name), seed).measure())
        print("seed %d: %s" % (seed, aucs[-1]), file=sys.stderr, flush=True)
    of = {name: [auc[name] for auc in aucs] for name in aucs[0]}
    rows = turns.Rows()
    turns.Rows.print_header("AUC", "beside")
    for name, beside in (("changed", "fresh_all"), ("unchanged", "changed"), ("fresh_day", "changed")):
        turns.Rows.print_row(rows.add("features/" + name, "AUC", of[name], of[beside], beside))
    print("means: %s" % ", ".join("%s %.4f" % (name, statistics.mean(values)) for name, values in of.items()))
    rows.write(options.json)
    missed = ["%s - %.3f" % (name, bound) for name, bound in BOUNDS.items()
              if statistics.mean(of["changed"]) < statistics.mean(of[name]) - bound]
    if missed:
        sys.exit("the mean AUC after the change is below %s" % " and ".join(missed))


if __name__ == "__main__":
    main()
