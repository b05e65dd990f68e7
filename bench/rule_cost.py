"""What expiry, eviction and admission cost a job that trains: CPU seconds of whole launches, in turns, files in memory.

    python3 bench/rule_cost.py [--repetitions=15] [--examples=120000]

On 1 pserver and 2 workers of one thread. Each option brings 256 shards, the job without one has 16. Also prints the median of
the ratios of the pairs and its 95 % interval. Ends with 1 if an option had nothing to do.
"""
import json
import pathlib
import random
import resource
import shutil
import statistics
import sys
import tempfile

import export_cost
import turns

# The option, and what it counts in result.json.
RULES = {"none": ("num_shards: 16", None), "expire": ("expire { after_steps: 40 }", "rows_expired"),
         "evict": ("max_rows: 50000 evict {}", "rows_evicted"), "admit": ("admit { after: 2 }", "rows_refused")}


def cpu_seconds(options, folder, mode, rule):
    option, count = RULES[rule]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    turns.run([options.bin / "sluice", "launch", "--job=%s" % (folder / "job.textproto"), export_cost.MODES[mode], "--worker_num=2",
               "--server_num=1", "--epochs=3", "--batch_size=2048", "--output_dir=%s" % (folder / "out"),
               "--log_dir=%s" % (folder / "log"), "--set=tables={name: 'embedding' %s}" % option])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tables = json.loads((folder / "out" / "result.json").read_text())["tables"]
    if count and not any(table[count] for table in tables):
        sys.exit("%s did nothing; give more --examples" % option)
    shutil.rmtree(folder / "out")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    flags = turns.flags(__doc__, repetitions=15)
    flags.add_argument("--examples", type=int, default=120000)
    options, rows, source = flags.parse_args(), turns.Rows(), random.Random(1)
    with tempfile.TemporaryDirectory(prefix="sluice-rules-", dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % options.examples, "--files=2", "--output=%s" % (folder / "clicks")])
        (folder / "job.textproto").write_text(export_cost.JOB % (folder / "clicks" / "*.tsv"))
        for mode in [mode for mode in export_cost.MODES if options.filter in mode]:
            took = turns.take({rule: lambda rule=rule: cpu_seconds(options, folder, mode, rule) for rule in RULES}, options.repetitions)
            for rule in list(RULES)[1:]:
                row = rows.add("rules/%s/%s" % (mode, rule), "s", took[rule], took["none"], "no option, in the same turns")
                turns.Rows.print_row(row)
                ratios = [cost / without for cost, without in zip(took[rule], took["none"])]
                medians = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(4000))
                print("%s: %.4f [%.4f, %.4f]" % (row["name"], statistics.median(ratios), medians[100], medians[3899]), flush=True)
    rows.write(options.json)


if __name__ == "__main__":
    main()
