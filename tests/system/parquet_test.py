"""Jobs on Parquet files that pyarrow writes, against the same rows as CSV."""
import json
import os
import random
import shutil
import subprocess
import sys
import unittest

import places_test
from sluice_testing import BIN, ROOT, SluiceTest

# Programs refuse variables that they do not know.
ARROW_PYTHON = os.environ.pop("SLUICE_ARROW_PYTHON", str(ROOT / "build" / "python-env" / "bin" / "python"))

# Reads rows as JSON from standard input: a dict of columns and where to write it. Run by the Python that has pyarrow.
WRITER = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
given = json.load(sys.stdin)
types = {"y": pa.int8(), "n": pa.float32(), "i": pa.int32(), "c": pa.string(), "l": pa.list_(pa.string()), "t": pa.timestamp("ms"),
         "m": pa.map_(pa.string(), pa.float32()), "v": pa.list_(pa.float32())}
types.update({k: getattr(pa, v)() for k, v in given.get("types", {}).items()})
columns = dict(given["columns"])
if "m" in columns:
    columns["m"] = [None if pairs is None else [tuple(p) for p in pairs] for pairs in columns["m"]]
table = pa.table({k: pa.array(v, types[k]) for k, v in columns.items()})
pq.write_table(table, given["path"], row_group_size=given["rows"], compression=given.get("compression", "snappy"),
               use_dictionary=given.get("dictionary", True))
"""

# Prints where the chunks of columns are in a file, by row group: names, first bytes, ends.
CHUNKS = """
import json, sys
import pyarrow.parquet as pq
meta = pq.ParquetFile(sys.argv[1]).metadata
groups = []
for g in range(meta.num_row_groups):
    chunks = [meta.row_group(g).column(c) for c in range(meta.num_columns)]
    begins = [c.dictionary_page_offset if c.dictionary_page_offset is not None else c.data_page_offset for c in chunks]
    groups.append([[c.path_in_schema.split(".")[0], b, b + c.total_compressed_size] for c, b in zip(chunks, begins)])
print(json.dumps(groups))
"""
MOST_HOLE = 8 << 10  # common/arrow/plugin/group_rows.h

FEATURES = """
features { name: "n" numeric {} }
features { name: "i" categorical {} }
features { name: "c" categorical { missing_is_value: true } }
features { name: "l" categorical { multi_value_delimiter: "|" pooling: MEAN } }
features { name: "ci" cross { features: ["c", "i"] } }
"""
CSV = "format: CSV csv { header: true }"
ROWS = 6000
SYNC = "--a_sync=false"


def rows(n=ROWS, seed=3):
    source = random.Random(seed)
    made = {"y": [], "n": [], "i": [], "c": [], "l": []}
    for _ in range(n):
        y = source.random() < 0.4
        made["y"].append(int(y))
        made["n"].append(None if source.random() < 0.1 else source.randrange(-8, 9) / 4 + y)
        made["i"].append(source.randrange(-5, 2000))
        made["c"].append(None if source.random() < 0.1 else "c%d" % (source.randrange(30) + 3 * y))
        made["l"].append(["w%d" % source.randrange(9) for _ in range(source.randrange(3))])
    return made


class ParquetJobs:
    """Part of tests whose data are Parquet files in tmp."""

    def write(self, name, columns, group_rows=ROWS, **more):
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([ARROW_PYTHON, "-c", WRITER], text=True, capture_output=True,
                              input=json.dumps({"columns": columns, "path": str(path), "rows": group_rows, **more}))
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def job(self, train, test, data="format: PARQUET", features=FEATURES, epochs=2, model="hidden_units: 8 embedding_dim: 4",
            rate="learning_rate: 0.02"):
        path = self.tmp / "job.textproto"
        path.write_text('data { %s label { column: "y" } train_files: "%s" eval_files: "%s" }\n%s\n'
                        "model { wide_deep { %s } }\n"
                        "optimizers { all { adam {} %s } }\ntrain { batch_size: 48 epochs: %d seed: 1 }\n"
                        % (data, train, test, features, model, rate, epochs))
        return path

    def train(self, name, job, *flags):
        result, out = self.launch("--server_num=1", "--threads=1", *flags, job=job, name=name)
        self.assertEqual(result["status"], "done", out)
        return result


class ParquetTest(ParquetJobs, SluiceTest):
    def write_text(self, made):
        with open(self.tmp / "rows.csv", "w") as file:
            file.write("y,n,i,c,l\n")
            for y, n, i, c, values in zip(made["y"], made["n"], made["i"], made["c"], made["l"]):
                file.write("%d,%s,%d,%s,%s\n" % (y, "" if n is None else n, i, c or "", "|".join(values)))

    def test_the_rows_of_csv_give_the_same_model(self):
        """Whatever the compression, the size of row groups and dictionaries are."""
        made = rows()
        self.write_text(made)
        flags = (SYNC, "--worker_num=1", "--set=data.shuffle=false", "--set=data.shuffle_lanes=1")
        text = self.train("text", self.job("rows.csv", "rows.csv", CSV), *flags)
        for number, (compression, group_rows, dictionary) in enumerate((("none", ROWS // 80, True), ("zstd", 2500, False),
                                                                        ("gzip", ROWS, True))):
            typed = {**made, "y": [y == 1 for y in made["y"]]} if number == 1 else made
            self.write("rows.parquet", typed, group_rows, compression=compression, dictionary=dictionary,
                       types={"y": "bool_", "i": "int16"} if number == 1 else {})
            result = self.train("parquet%d" % number, self.job("rows.parquet", "rows.parquet"), *flags)
            self.assertEqual(result["model_digest"], text["model_digest"], compression)
            self.assertEqual(result["eval"], text["eval"])

    def test_the_default_order_learns_what_that_of_csv_learns(self):
        """Without hidden layers there is one best model, and once it is reached nothing is left of the order."""
        made = rows()
        self.write_text(made)
        features = "".join("features { name: %s in_deep: false }\n" % feature for feature in (
            '"n" numeric {}', '"c" categorical { missing_is_value: true }', '"l" categorical { multi_value_delimiter: "|" }'))
        best = {"features": features, "epochs": 10, "model": "", "rate": "learning_rate: 0.1 schedule { cosine { steps: 120 } }"}
        flags = (SYNC, "--worker_num=1", "--batch_size=500")
        text = self.train("text", self.job("rows.csv", "rows.csv", CSV, **best), *flags)
        for group_rows in (ROWS // 80, ROWS):
            self.write("rows.parquet", made, group_rows)
            result = self.train("parquet", self.job("rows.parquet", "rows.parquet", **best), *flags, "--overwrite")
            # With the seeds 1 to 3 they differ by 0.00006 at most.
            self.assertAlmostEqual(result["eval"]["auc"], text["eval"]["auc"], delta=0.002)

    def test_workers_and_pservers_train_the_same(self):
        """With the default order; rows of several files, some with row groups of few rows. Pservers change no bit; another
        number of workers adds in another order."""
        for number in range(3):
            self.write("part-%d.parquet" % number, rows(ROWS + number, number), (150, 4000, ROWS * 2)[number])
        digests = {}
        for workers, pservers in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)):
            name = "%d.%d" % (workers, pservers)
            result = self.train(name, self.job("part-*.parquet", "part-0.parquet", epochs=1), SYNC,
                                "--worker_num=%d" % workers, "--server_num=%d" % pservers, "--batch_size=%d" % (48 // workers))
            self.assertEqual(result["epochs_log"][0]["examples"], 3 * ROWS + 3)
            self.assertEqual(digests.setdefault(workers, result["model_digest"]), result["model_digest"])
            self.assert_models_close("1.1", name)

    def test_async_and_geo_train_each_row_once_and_count_bad_rows(self):
        made = rows()
        for bad in (7, 5999):
            made["y"][bad] = 3
        self.write("a.parquet", made, 700)
        self.write("b.parquet", rows(50))
        for name, flags in (("async", ["--a_sync=true"]), ("geo", ["--a_sync=true", "--k_steps=4"]),
                            ("groups", ["--a_sync=true", "--set=data.shuffle=false", "--set=data.task_bytes=20000"])):
            result = self.train(name, self.job("?.parquet", "b.parquet"), *flags, "--worker_num=2", "--set=data.max_bad_lines=2")
            self.assertEqual([e["examples"] for e in result["epochs_log"]], [ROWS + 48] * 2, name)
            self.assertEqual(result["bad_lines"], 2, name)
            self.assertGreater(result["eval"]["auc"], 0.6)
        _, out = self.launch("--server_num=1", "--worker_num=1", SYNC, job=self.job("?.parquet", "b.parquet"), name="bad", expect=None)
        self.assertIn("a.parquet:8: label column", out)

    def test_folders_dates_and_weights(self):
        made = rows(400)
        for number, day in enumerate(("2026-11-01", "2026-11-02")):
            columns = {"y": made["y"], "t": [1_700_000_000_000 + 3_600_000 * (y * 5 + number) for y in made["y"]],
                       "m": [[["a", 0.5 + y], ["b", 2.0]] if y else None for y in made["y"]]}
            self.write("days/day=%s/part.parquet" % day, columns, 90)
        (self.tmp / "days" / "_SUCCESS").write_text("")
        features = """
            features { name: "d" categorical { column: "day" date_part: DAY_OF_MONTH } }
            features { name: "hour" categorical { column: "t" date_part: HOUR } }
            features { name: "m" categorical { weight_delimiter: ":" } } """
        result = self.train("folders", self.job("days/day={2026-11-01..2026-11-02}/*", "days/*/*", features=features), SYNC, "--worker_num=2")
        self.assertEqual(result["epochs_log"][0]["examples"], 800)
        self.assertGreater(result["eval"]["auc"], 0.99)
        # A timestamp is no category.
        bad = 'features { name: "t" categorical {} }'
        done = self.run_program("sluice", "launch", "--job=%s" % self.job("days/*/*", "days/*/*", features=bad), "--dry_run")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("set date_part", done.stdout)

    def test_vectors_and_folders_of_parquet_and_csv_give_the_same_model(self):
        """Vectors as lists and as text; the day as a folder. Another length is a malformed row of both."""
        source = random.Random(5)
        made = {"y": [source.randrange(2) for _ in range(600)]}
        made["v"] = [[source.randrange(-8, 9) / 4 + y, None, 0.5 * y] for y in made["y"]]
        for day in (1, 2):
            self.write("p/day=%d/a.parquet" % day, made, 600)
            path = self.tmp / "c" / ("day=%d" % day) / "a.csv"
            path.parent.mkdir(parents=True)
            path.write_text("y,v\n" + "".join("%d,%s\n" % (y, "|".join("" if x is None else str(x) for x in v))
                                              for y, v in zip(made["y"], made["v"])))
        features = """
            features { name: "v" numeric { dim: 3 %s default_value: 1 z_score { mean: 0.5 stddev: 2 } } }
            features { name: "day" categorical {} }"""
        flags = (SYNC, "--worker_num=1", "--set=data.shuffle=false", "--set=data.shuffle_lanes=1")
        jobs = {"parquet": ("p/day=*/*", "format: PARQUET", ""),
                "csv": ("c/day=*/*", CSV, 'multi_value_delimiter: "|"')}
        results = {name: self.train(name, self.job(files, files, data, features % more), *flags)
                   for name, (files, data, more) in jobs.items()}
        self.assertEqual(results["parquet"]["model_digest"], results["csv"]["model_digest"])
        self.assertGreater(results["csv"]["eval"]["auc"], 0.8)
        scores = {}
        for name, data in (("parquet", "p/day=1/a.parquet"), ("csv", "c/day=1/a.csv")):
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / name / "model"), "--data=%s" % (self.tmp / data),
                                    "--output=%s" % (self.tmp / (name + ".scores")))
            self.assertEqual(done.returncode, 0, done.stdout)
            scores[name] = (self.tmp / (name + ".scores")).read_text()
        self.assertEqual(scores["parquet"], scores["csv"])
        made["v"][3] = [1.0, 2.0]
        self.write("p/day=1/a.parquet", made, 600)
        files, data, more = jobs["parquet"]
        done = self.run_program("sluice", "launch", "--job=%s" % self.job(files, files, data, features % more), "--dry_run")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("a.parquet:4", done.stdout)
        self.assertIn("dim is 3", done.stdout)

    def test_a_plan_measures_a_job_on_parquet(self):
        for day in (1, 2):
            self.write("days/day=%d/a.parquet" % day, rows(2000, day), 500)
        job = self.job("days/day=*/*", "days/day=*/*", features=FEATURES + 'features { name: "day" categorical {} }\n')
        done = self.run_program("sluice", "plan", "--job=%s" % job, "--measure_s=2", "--json=plan.json", timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout)
        costs = json.loads((self.tmp / "plan.json").read_text())["costs"]
        self.assertGreater(costs["step_s"], 0)
        self.assertFalse(costs["sampled"])

    def test_files_that_do_not_fit_are_refused_by_the_dry_run(self):
        def refusal(*names, features=FEATURES):
            done = self.run_program("sluice", "launch", "--job=%s" % self.job("*.parquet", names[0], features=features), "--dry_run")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            for name in names:
                self.assertIn(name, done.stdout)
            return done.stdout
        made = rows(20)
        self.write("a.parquet", made)
        self.write("b.parquet", {**made, "n": [str(n) for n in made["n"]]}, types={"n": "string"})
        self.assertIn("has text", refusal("a.parquet", "b.parquet"))
        self.write("b.parquet", {k: v for k, v in made.items() if k != "n"})
        self.assertIn('no column "n"', refusal("a.parquet", "b.parquet"))
        # Their order and the width of numbers may differ.
        self.write("b.parquet", dict(reversed(list(made.items()))), types={"n": "float64", "i": "int64", "c": "large_string"})
        done = self.run_program("sluice", "launch", "--job=%s" % self.job("*.parquet", "a.parquet"), "--dry_run")
        self.assertEqual(done.returncode, 0, done.stdout)
        (self.tmp / "b.parquet").write_bytes(b"ORC\x01\x02\x03")
        self.assertIn("ORC", refusal("b.parquet"))

    def test_without_arrow_the_start_says_how_to_get_it(self):
        self.write("a.parquet", rows(20))
        without = {**os.environ, "SLUICE_ARROW": str(self.tmp / "sluice-arrow.so")}
        for more in (["--dry_run"], []):
            done = self.run_program("sluice", "launch", "--job=%s" % self.job("a.parquet", "a.parquet"), "--output_dir=%s" % (self.tmp / "out"),
                                    *more, env=without)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Parquet needs Arrow", done.stdout)
        self.assertFalse((self.tmp / "out").exists())

    def test_predictions_keep_the_order_and_the_ids(self):
        made = rows(3000)
        self.write("rows.parquet", made, 500)
        self.train("model", self.job("rows.parquet", "rows.parquet", epochs=1), SYNC, "--worker_num=1")
        scores = []
        # Neither labels, nor row groups, nor threads change a score.
        for number, (columns, group_rows) in enumerate(((made, 500), ({k: v for k, v in made.items() if k != "y"}, 3000))):
            data, out = self.write("p%d.parquet" % number, columns, group_rows), self.tmp / ("scores%d" % number)
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / "model" / "model"), "--data=%s" % data,
                                    "--output=%s" % out, "--id_column=i", "--worker_num=%d" % (1 + number))
            self.assertEqual(done.returncode, 0, done.stdout)
            scores.append(out.read_text())
        self.assertEqual(scores[0], scores[1])
        self.assertEqual([int(line.split("\t")[0]) for line in scores[0].splitlines()], made["i"])


class ParquetStoreTest(ParquetJobs, places_test.StoreTest):
    def setUp(self):
        if not places_test.has_store():
            self.skipTest("needs moto (places_test)")
        super().setUp()

    def chunks(self, path):
        done = subprocess.run([ARROW_PYTHON, "-c", CHUNKS, str(path)], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def ranges(self):
        """The ranges of the file that the store was asked for, with repetitions, but for the first 256 KiB that the command
        reads to see how fast the store is."""
        measured = ((0, (64 << 10) - 1), (64 << 10, (256 << 10) - 1))
        return [one for name, found in self.proxy.ranges.items() if "wide" in name for one in found if one not in measured]

    def ranges_before(self, footer):
        return [(first, last) for first, last in self.ranges() if first < footer]

    def test_a_slow_store_is_told_in_async(self):
        source = random.Random(1)
        unused = {"u%d" % i: [source.random() for _ in range(ROWS)] for i in range(2)}
        self.put("rows.parquet", self.write("rows.parquet", {**rows(), **unused}, types={name: "float64" for name in unused}))
        delay, url = 1.2, "s3://data/*.parquet"
        self.make_slow(delay)
        _, out = self.launch("--a_sync=true", "--dry_run", job=self.job(url, url))
        self.assert_slow_is_told(out, delay)

    def test_of_500_columns_only_the_10_that_the_job_uses_are_fetched(self):
        source = random.Random(1)
        values = [source.randrange(1 << 20) for _ in range(4000)]
        made = {"y": [value % 2 for value in values], **{"u%d" % i: values for i in range(499)}}
        used = ["y", *("u%d" % i for i in range(30, 480, 50))]
        path = self.write("wide.parquet", made, 2000, types={name: "int32" for name in made}, compression="none", dictionary=False)
        self.put("wide.parquet", path)
        url, features = "s3://data/wide.parquet", "".join('features { name: "%s" numeric {} }\n' % name for name in used[1:])
        result = self.train("wide", self.job(url, url, features=features, epochs=1, model="hidden_units: 8"), SYNC, "--worker_num=1")
        self.assertEqual(result["examples"], 4000)
        groups = self.chunks(path)
        wanted = [(begin, end - 1) for group in groups for name, begin, end in group if name in used]
        footer = max(end for group in groups for _, _, end in group)
        columns = self.ranges_before(footer)
        self.assertEqual(sorted(set(columns)), sorted(wanted))
        # The command looks at the first group. The worker reads each once, and still has it for the evaluation.
        self.assertEqual(len(columns), 3 * len(used))
        # Each of them asks for the end of the file and then for the footer, once.
        ends = [one for one in self.ranges() if one not in columns]
        self.assertEqual(len(ends), 4, ends)
        most = sum(last + 1 - first for first, last in wanted) + path.stat().st_size - footer + (64 << 10)
        self.assertLessEqual(self.proxy.sent["/data/wide.parquet"], 2 * most + (256 << 10))

    def test_training_from_a_store_equals_training_from_files(self):
        """Of a file of many columns, only those of the job are fetched, and the model is the same under faults."""
        source = random.Random(1)
        unused = {"u%d" % i: [source.random() for _ in range(ROWS)] for i in range(20)}
        made = rows()
        path = self.write("wide.parquet", {**made, **unused}, 1500, types={name: "float64" for name in unused})
        self.put("k=1/wide file.parquet", path)
        kinds = {4: "busy", 7: "cut"}
        here = self.train("here", self.job("wide.parquet", "wide.parquet", epochs=1), SYNC, "--worker_num=1")
        self.proxy.fault = lambda number, method, path: kinds.get(number % 9)
        url = "s3://data/*/*.parquet"
        there = self.train("there", self.job(url, url, epochs=1), SYNC, "--worker_num=1")
        self.assertEqual(there["model_digest"], here["model_digest"])
        self.assertEqual(there["eval"], here["eval"])
        # Nothing but the footer and the columns of the job, with small holes between them, was asked for.
        groups, size = self.chunks(path), path.stat().st_size
        wanted = []
        for begin, end in sorted((begin, end) for group in groups for name, begin, end in group if name in made):
            if wanted and begin - wanted[-1][1] <= MOST_HOLE:
                wanted[-1][1] = max(wanted[-1][1], end)
            else:
                wanted.append([begin, end])
        footer = max(end for group in groups for _, _, end in group)
        columns = self.ranges_before(footer)
        self.assertTrue(columns)
        for first, last in columns:
            self.assertTrue(any(begin <= first and last < end for begin, end in wanted) or last >= size - (64 << 10),
                            (first, last, wanted))
        # One request for each group, in training and in evaluation, and the dry run before them.
        self.assertLessEqual(len(set(columns)), 2 * len(groups), columns)


if __name__ == "__main__":
    if not (BIN / "sluice-arrow.so").exists() or not shutil.which(ARROW_PYTHON) or subprocess.run(
            [ARROW_PYTHON, "-c", "import pyarrow.parquet"], stderr=subprocess.DEVNULL).returncode:
        print("SKIPPED, NOT PASSED: parquet_test needs Arrow (./dev arrow), and pyarrow in build/python-env or in SLUICE_ARROW_PYTHON",
              file=sys.stderr)
        sys.exit(77)
    unittest.main()
