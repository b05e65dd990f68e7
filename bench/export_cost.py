"""What exports cost a job that trains, and how long one takes from its cut until it is in force.

    python3 bench/export_cost.py [--examples=400000] [--every_s=1]

Trains on generated click data with an export every second and with none, in turns, on 2 pservers and 1 worker. Only the standard
library is needed here. Rows:
  speed  examples per second, beside those without exports
  lag    seconds from the cut of a delta until it is in force (median, and the longest as `max`), beside the interval; `lag_base`
         of the base
  bytes  MB of a delta, beside the base
"""
import argparse
import json
import pathlib
import re
import sys
import tempfile

import turns

JOB = """
name: "exports"
data { format: CRITEO_TSV train_files: "%s" }
features { name: "I{1..13}" numeric { log: true } }
features { name: "C{1..26}" categorical { missing_is_value: true } }
model { wide_deep { hidden_units: [64, 32] embedding_dim: 8 } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { epochs: 4 batch_size: 512 seed: 1 threads: 1 }
checkpoint { every_s: 0 at_end: false save_final_model: false }
"""
MODES = {"sync": "--a_sync=false", "async": "--a_sync=true"}


class Job:
    """One training run after the other, in one folder."""

    def __init__(self, options, folder):
        self.options, self.folder, self.number = options, folder, 0
        self.exports = []  # (base, seconds from its cut until it was in force, bytes) of all runs

    def examples_per_second(self, mode, exports):
        self.number += 1
        out = self.folder / ("out%d" % self.number)
        turns.run([self.options.bin / "sluice", "launch", "--job=%s" % (self.folder / "job.textproto"), MODES[mode],
                   "--worker_num=1", "--server_num=2", "--output_dir=%s" % out, "--log_dir=%s" % (self.folder / "log"),
                   *(["--set=export.every_s=%s" % self.options.every_s, "--set=export.keep=1000"] if exports else [])])
        for path in out.glob("export/*/MANIFEST"):
            text = path.read_text()
            cut = float(re.search(r"^ +unix_time: ([\d.e+]+)", text, re.M)[1])
            size = sum(file.stat().st_size for file in path.parent.glob("*.shard"))
            self.exports.append((not re.search(r"^ +from: ", text, re.M), path.stat().st_mtime - cut, size))
        result = json.loads((out / "result.json").read_text())
        return result["examples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bin", type=pathlib.Path, default=turns.ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--examples", type=int, default=400000)
    parser.add_argument("--every_s", type=float, default=1)
    options = parser.parse_args()
    rows = turns.Rows()
    turns.Rows.print_header("value", "beside")
    with tempfile.TemporaryDirectory(prefix="sluice-exports-") as name:
        folder = pathlib.Path(name)
        turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % options.examples, "--files=4",
                   "--output=%s" % (folder / "clicks")])
        (folder / "job.textproto").write_text(JOB % (folder / "clicks" / "*.tsv"))
        for mode in MODES:
            job = Job(options, folder)
            speed = turns.take({exports: lambda exports=exports: job.examples_per_second(mode, exports)
                                for exports in (False, True)}, options.repetitions)
            turns.Rows.print_row(rows.add("exports/%s/speed" % mode, "examples/s", speed[True], speed[False],
                                          "without exports, in the same turns"))
            bases = [export for export in job.exports if export[0]]
            deltas = [export for export in job.exports if not export[0]]
            if not bases or not deltas:
                sys.exit("no delta was made; give more --examples")
            for what, exports in (("lag_base", bases), ("lag", deltas)):
                turns.Rows.print_row(rows.add("exports/%s/%s" % (mode, what), "s", [lag for _, lag, _ in exports],
                                              [options.every_s], "the interval"))
            turns.Rows.print_row(rows.add("exports/%s/bytes" % mode, "MB", [size / 1e6 for _, _, size in deltas],
                                          [size / 1e6 for _, _, size in bases], "the base"))
    rows.write(options.json)


if __name__ == "__main__":
    main()
