"""`sluice data check FILE... --output=job.textproto` and `sluice launch --job=job.textproto` train on data of any shape."""
import csv
import gzip
import json
import math
import os
import random
import shutil
import subprocess
import sys
import unittest

from sluice_testing import BIN, ROOT, SluiceTest

# Programs refuse variables that they do not know.
ARROW_PYTHON = os.environ.pop("SLUICE_ARROW_PYTHON", str(ROOT / "build" / "python-env" / "bin" / "python"))

# Reads rows as JSON from standard input, and writes a Parquet file with columns of all kinds. Run by the Python that has pyarrow.
PARQUET_WRITER = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
rows = json.load(sys.stdin)
column = lambda name, type: pa.array([row[name] for row in rows], type)
pq.write_table(pa.table({
    "user": pa.StructArray.from_arrays([column("city", pa.string()).dictionary_encode(), column("age", pa.float32())], ["city", "age"]),
    "tags": column("tags", pa.list_(pa.string())),
    "visits": pa.array([list(row["visits"].items()) for row in rows], pa.map_(pa.string(), pa.float32())),
    "at": column("at", pa.timestamp("ms", tz="UTC")),
    "price": column("price", pa.string()).cast(pa.decimal128(9, 2)),
    "vector": pa.array([[row["price"] and float(row["price"]) / 3] for row in rows], pa.list_(pa.float64())),
    "clock": pa.array([7] * len(rows), pa.time32("s")),
    "bought": column("bought", pa.bool_())}), sys.argv[1], row_group_size=1500)
"""


def has_arrow():
    return (BIN / "sluice-arrow.so").exists() and shutil.which(ARROW_PYTHON) and not subprocess.run(
        [ARROW_PYTHON, "-c", "import pyarrow.parquet"], stderr=subprocess.DEVNULL).returncode

AS_GOOD = 0.995  # of the AUC of a job that a person has written


def chance(score):
    return 1 / (1 + math.exp(-score))


class DataProfileTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(7)

    def check(self, *args, expect=0):
        done = self.run_program("sluice", "data", "check", *args)
        self.assertEqual(done.returncode, expect, done.stdout)
        for line in [] if "--json" in args else done.stdout.splitlines():
            if line.startswith(("  ", "data:", "label:", "assumed:", "warning:")) and not ("sluice launch" in line or str(self.tmp) in line):
                self.assertLessEqual(len(line), 80, line)
        return done.stdout

    def best_auc(self, job, name, *flags):
        result, out = self.launch("--server_num=1", "--worker_num=1", "--a_sync=false", *flags, job=job, name=name)
        self.assertEqual(result["status"], "done", out)
        return (result.get("best") or result)["eval"]["auc"]

    def assert_as_good(self, hand, *args):
        """Proposes a job for the files, trains it without an edit, and compares it with the job that a person has written."""
        job = self.tmp / "job.textproto"
        out = self.check(*args, "--output=%s" % job)
        proposed = self.best_auc(job, "proposed")
        if isinstance(hand, str):
            path = self.tmp / "hand.textproto"
            path.write_text(hand)
            hand = [path]
        by_hand = self.best_auc(hand[0], "hand", *hand[1:])
        print("%s: AUC %.4f, by hand %.4f" % (self.id().split(".")[-1], proposed, by_hand), flush=True)
        self.assertGreater(by_hand, 0.6, "the data says too little to compare jobs")
        self.assertGreaterEqual(proposed, AS_GOOD * by_hand, out + job.read_text())
        return out, job.read_text()

    # --------------------------------------------------------------- jobs as good as those by hand

    def test_a_table_with_all_that_makes_tables_awkward(self):
        cities = ["Paris; 1er", "Rome\nLazio", 'the "Hague"', "Oslo"]
        effect = {city: e for city, e in zip(cities, (1.5, -1, 0.5, -0.5))}
        tag_effect = {"t%d" % t: self.random.gauss(0, 1) for t in range(12)}
        with gzip.open(self.tmp / "shop.csv.gz", "wt", newline="") as file:
            out = csv.writer(file, delimiter=";", lineterminator="\n")
            out.writerow(["row", "town", "paid", "visits", "when", "tags", "empty", "bought"])
            for i in range(12000):
                town, visits = self.random.choice(cities), int(self.random.expovariate(0.1))
                paid = self.random.lognormvariate(3, 1)
                tags = self.random.sample(sorted(tag_effect), self.random.randrange(4))
                month = self.random.randrange(1, 13)
                score = -3.2 + effect[town] + 0.5 * math.log1p(visits) + sum(tag_effect[t] for t in tags) + 0.2 * (month > 6)
                out.writerow([i, town, "NA" if i % 9 == 0 else ("%.2f" % paid).replace(".", ","), visits,
                              "%02d.%02d.2023" % (self.random.randrange(1, 29), month), "|".join(tags), "",
                              "yes" if self.random.random() < chance(score) else "no"])
        hand = """
data { format: CSV train_files: "job-train.csv" eval_files: "job-eval.csv"
  csv { header: true delimiter: ";" decimal_mark: "," missing: "NA" } label { column: "bought" positive: "yes" negative: "no" } }
features { name: "town" categorical {} }
features { name: "paid" numeric { log: true z_score { mean: 3 stddev: 1 } } }
features { name: "visits" numeric { log: true z_score { mean: 2 stddev: 1 } } }
features { name: "month" categorical { column: "when" date_part: MONTH date_format: "%d.%m.%Y" } }
features { name: "tags" categorical { multi_value_delimiter: "|" } }
model { wide_deep { embedding_dim: 8 hidden_units: [64, 32] } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { batch_size: 64 epochs: 8 seed: 1 }
"""
        out, job = self.assert_as_good(hand, self.tmp / "shop.csv.gz")
        for text in ('delimiter: ";"', 'decimal_mark: ","', 'missing: "NA"', 'multi_value_delimiter: "|"', "%d.%m.%Y"):
            self.assertIn(text, job)
        for name in ("row", "empty"):
            self.assertIn('left out: "%s"' % name, out)
        # The same lines are held out again, and files that exist are not replaced unasked.
        self.check(self.tmp / "shop.csv.gz", "--output=%s" % (self.tmp / "job.textproto"), expect=2)
        before = (self.tmp / "job-eval.csv").read_bytes()
        self.check(self.tmp / "shop.csv.gz", "--output=%s" % (self.tmp / "job.textproto"), "--overwrite")
        self.assertEqual((self.tmp / "job-eval.csv").read_bytes(), before)

    def test_adult_as_it_lies_in_the_tree(self):
        data = ROOT / "data" / "adult"
        _, job = self.assert_as_good([ROOT / "configs" / "adult_wide_deep.textproto"], data / "adult.data.gz",
                                     data / "adult.test.gz")
        self.assertIn('comment_prefix: "|"', job)
        self.assertIn('positive: ">50K."', job)

    def test_flights_with_a_threshold(self):
        airports = ["A%02d" % a for a in range(30)]
        late = {a: self.random.gauss(0, 0.8) for a in airports}
        for name, lines in (("flights-train.csv", 20000), ("flights-test.csv", 5000)):
            rows = []
            for _ in range(lines):
                origin, destination, hour = self.random.choice(airports), self.random.choice(airports), self.random.randrange(24)
                score = -1.5 + late[origin] + 0.5 * late[destination] + 0.08 * hour
                minutes = 15 + int(self.random.expovariate(0.05)) if self.random.random() < chance(score) else self.random.randrange(-20, 15)
                rows.append(("2001-%02d-%02d %02d:%02d" % (self.random.randrange(1, 13), self.random.randrange(1, 29), hour,
                                                           self.random.randrange(60)),
                             minutes, self.random.randrange(100, 2500), origin, destination))
            self.write_csv(name, rows, header="date,delay,distance,origin,destination")
        hand = [ROOT / "configs" / "flights_wide_deep.textproto", "--set=data.train_files=%s/flights-train.csv" % self.tmp,
                "--set=data.eval_files=%s/flights-test.csv" % self.tmp, "--epochs=4", "--batch_size=64"]
        _, job = self.assert_as_good(hand, self.tmp / "flights-train.csv", self.tmp / "flights-test.csv", "--label=delay>=15")
        self.assertIn("positive_at_least: 15", job)
        self.assertIn("date_part: HOUR", job)

    def test_avazu_shaped_days(self):
        sites = ["%08x" % self.random.getrandbits(32) for _ in range(300)]
        effect = {s: self.random.gauss(0, 1) for s in sites}
        banner = {b: self.random.gauss(0, 0.7) for b in range(8)}
        for day in (21, 22, 23):
            rows = []
            for _ in range(8000):
                site, hour, pos = sites[int(300 * self.random.random() ** 2)], self.random.randrange(24), self.random.randrange(8)
                score = -1.8 + effect[site] + banner[pos] + 0.4 * math.sin(hour / 4)
                rows.append((self.random.getrandbits(63), int(self.random.random() < chance(score)), "1410%d%02d" % (day, hour),
                             1000 + self.random.randrange(5), pos, site, "%08x" % self.random.getrandbits(32)))
            self.write_csv("day-%d.csv" % day, rows, header="id,click,hour,C1,banner_pos,site_id,device_ip")
        hand = """
data { format: CSV train_files: ["day-21.csv", "day-22.csv"] eval_files: "day-23.csv" csv { header: true } label { column: "click" } }
features { name: "hour" categorical { date_part: HOUR date_format: "%y%m%d%H" } }
features { name: "C1" categorical {} }
features { name: "banner_pos" categorical {} }
features { name: "site_id" categorical {} }
model { wide_deep { embedding_dim: 8 hidden_units: [64, 32] } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { batch_size: 64 epochs: 4 seed: 1 }
"""
        out, job = self.assert_as_good(hand, self.tmp / "day-*.csv")
        self.assertIn('eval_files: "day-23.csv"', job)
        self.assertIn('left out: "id"', out)
        self.assertIn('date_format: "%y%m%d%H"', job)

    def test_movielens_shaped_ratings(self):
        users = [(self.random.gauss(0, 0.7), self.random.gauss(0, 0.7)) for _ in range(400)]
        items = [(self.random.gauss(0, 0.7), self.random.gauss(0, 0.7)) for _ in range(300)]
        with open(self.tmp / "ratings.dat", "w") as file:
            for _ in range(25000):
                u, i = self.random.randrange(400), int(300 * self.random.random() ** 2)
                score = 3.5 + users[u][0] + items[i][0] + users[u][1] * items[i][1] + self.random.gauss(0, 0.6)
                file.write("%d::%d::%d::%d\n" % (u + 1, i + 1, min(5, max(1, round(score))), 978300760 + self.random.randrange(10 ** 7)))
        hand = """
data { format: CSV train_files: "job-train.csv" eval_files: "job-eval.csv"
  csv { delimiter: "::" columns: ["user", "item", "rating", "time"] } label { column: "rating" positive_at_least: %d } }
features { name: "user" categorical {} }
features { name: "item" categorical {} }
model { wide_deep { embedding_dim: 8 hidden_units: [64, 32] } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { batch_size: 128 epochs: 8 seed: 1 }
"""
        self.check(self.tmp / "ratings.dat", "--output=%s" % (self.tmp / "first.textproto"))
        threshold = (self.tmp / "first.textproto").read_text().split("positive_at_least: ")[1].split()[0]
        self.assert_as_good(hand % int(threshold), self.tmp / "ratings.dat")

    def test_criteo_shaped_clicks(self):
        for name, flags in (("train.tsv", ["--examples=20000"]), ("test.tsv", ["--examples=5000", "--skip=20000"])):
            done = self.run_program("sluice", "data", "gen", "--cardinality=1000", *flags, "--output=%s" % (self.tmp / name))
            self.assertEqual(done.returncode, 0, done.stdout)
        hand = [ROOT / "configs" / "criteo_wide_deep.textproto", "--set=data.train_files=%s/train.tsv" % self.tmp,
                "--set=data.eval_files=%s/test.tsv" % self.tmp, "--batch_size=128", "--epochs=2"]
        out, _ = self.assert_as_good(hand, self.tmp / "train.tsv", self.tmp / "test.tsv")
        self.assertIn("CRITEO_TSV", out)

    def test_lines_that_name_their_columns(self):
        effect = {"t%d" % t: self.random.gauss(0, 2) for t in range(12)}
        city_effect = {c: self.random.gauss(0, 2) for c in range(20)}
        lines = {"a.jsonl": [], "a.ffm": [], "a.slots": [], "a.libsvm": []}
        for _ in range(12000):
            city, tags, age = self.random.randrange(20), self.random.sample(sorted(effect), self.random.randrange(4)), self.random.gauss(40, 10)
            y = int(self.random.random() < chance(-0.5 + city_effect[city] + sum(effect[t] for t in tags) + 0.03 * (age - 40)))
            numbers = [int(t[1:]) for t in tags]
            line = {"bought": bool(y), "user": {"city": city, "age": round(age, 2) if age > 30 else None}, "tags": tags}
            lines["a.jsonl"].append(json.dumps(line))
            lines["a.ffm"].append(" ".join(["%d 0:%d:1" % (y, city)] + ["1:%d:1" % t for t in numbers]))
            lines["a.slots"].append(" ".join(["click:%d city:%d age:%.2f" % (y, city, age)] + ["tags:%d" % t for t in numbers]))
            lines["a.libsvm"].append("%d %d:1 %d:1" % (y, city + 1, 100 + self.random.randrange(1000)))
        for name, text in lines.items():
            (self.tmp / name).write_text("\n".join(text) + "\n")
        hand = """
data { format: JSON_LINES train_files: "job-train.jsonl" eval_files: "job-eval.jsonl" label { column: "bought" } }
features { name: "city" categorical { column: "user.city" } }
features { name: "age" numeric { column: "user.age" z_score { mean: 40 stddev: 10 } default_value: 25 } }
features { name: "tags" categorical {} }
model { wide_deep { embedding_dim: 8 hidden_units: [64, 32] } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { batch_size: 32 epochs: 8 seed: 1 }
"""
        out, job = self.assert_as_good(hand, self.tmp / "a.jsonl", "--hold_out=0.3")
        self.assertIn("format: JSON_LINES", job)
        self.assertNotIn("multi_value_delimiter", job)
        for name, label, features in (("a.ffm", "label", ["0", "1"]), ("a.slots", "click", ["city", "age", "tags"]),
                                      ("a.libsvm", "label", ["indices"])):
            job = self.tmp / ("%s.textproto" % name[2:])
            out = self.check(self.tmp / name, "--output=%s" % job)
            self.assertIn('label: "%s"' % label, out)
            for feature in features:
                self.assertIn('features { name: "%s"' % feature, job.read_text())
            self.assertGreater(self.best_auc(job, name[2:], "--epochs=1"), 0.6, job.read_text())

    def test_parquet_of_all_types(self):
        if not has_arrow():
            print("SKIPPED, NOT PASSED: test_parquet_of_all_types needs Arrow (./dev arrow), and pyarrow in build/python-env or in "
                  "SLUICE_ARROW_PYTHON", file=sys.stderr)
            self.skipTest("no Arrow")
        effect = {"t%d" % t: self.random.gauss(0, 1.5) for t in range(12)}
        city_effect = {c: self.random.gauss(0, 1.5) for c in range(20)}
        made = []
        for _ in range(12000):
            city, tags, hour = self.random.randrange(20), self.random.sample(sorted(effect), self.random.randrange(4)), self.random.randrange(24)
            age, price = self.random.gauss(40, 10), self.random.lognormvariate(3, 1)
            visits = {"p%d" % p: self.random.randrange(1, 4) for p in self.random.sample(range(6), 2)}
            score = -1 + city_effect[city] + sum(effect[t] for t in tags) + 0.05 * (age - 40) + (hour > 12) + 0.4 * visits.get("p1", 0)
            day = 86400 * self.random.randrange(28)
            made.append({"city": str(city), "age": age if age > 28 else None, "tags": tags, "visits": visits, "price": "%.2f" % price,
                         "at": 1000 * (1_700_006_400 + day + 3600 * hour), "bought": self.random.random() < chance(score)})
        path = self.tmp / "shop.parquet"
        done = subprocess.run([ARROW_PYTHON, "-c", PARQUET_WRITER, str(path)], input=json.dumps(made), text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        hand = """
data { format: PARQUET train_files: "job-train.parquet" eval_files: "job-eval.parquet" label { column: "bought" } }
features { name: "city" categorical { column: "user.city" } }
features { name: "age" numeric { column: "user.age" z_score { mean: 40 stddev: 10 } default_value: 25 } }
features { name: "tags" categorical {} }
features { name: "visits" categorical { weight_delimiter: ":" } }
features { name: "hour" categorical { column: "at" date_part: HOUR } }
features { name: "price" numeric { log: true z_score { mean: 3 stddev: 1 } } }
model { wide_deep { embedding_dim: 8 hidden_units: [64, 32] } }
optimizers { all { adam {} learning_rate: 0.001 } }
train { batch_size: 64 epochs: 8 seed: 1 }
"""
        out, job = self.assert_as_good(hand, path, "--hold_out=0.2")
        self.assertIn("format: PARQUET, 12,000 rows in 8 row groups", out)
        self.assertIn('features { name: "user.city" categorical', job)
        self.assertNotIn("user.city_number", job)  # a dictionary holds names
        for text in ('left out: "vector"', 'left out: "clock"'):
            self.assertIn(text, out)
        # The first file trains and the second evaluates, without copies.
        files = [self.tmp / ("job-%s.parquet" % part) for part in ("train", "eval")]
        out = self.check(*files, "--output=%s" % (self.tmp / "two.textproto"))
        self.assertIn("the names of the files say which evaluate", " ".join(out.split()))
        self.assertEqual(sorted(p.name for p in self.tmp.glob("two*")), ["two.textproto"])
        without = {**os.environ, "SLUICE_ARROW": str(self.tmp / "sluice-arrow.so")}
        done = self.run_program("sluice", "data", "check", path, env=without)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("Parquet needs Arrow", done.stdout)

    # ------------------------------------------------------------------------------ reports and refusals

    def small(self, n=200):
        return self.write_csv("small.csv", [(i % 2, i % 7, "abc"[i % 3]) for i in range(n)])

    def test_the_report_is_json_for_scripts(self):
        path = self.small()
        path.write_text(path.read_text() + "1,2\n")
        report = json.loads(self.check(path, "--json"))
        self.assertEqual((report["lines"], report["whole"], report["format"], report["header"]), (201, True, "CSV", True))
        self.assertEqual(report["bad_lines"]["count"], 1)
        self.assertIn("small.csv:202", report["bad_lines"]["first"][0])
        self.assertEqual(report["label"]["column"], "label")
        x = {column["name"]: column for column in report["columns"]}["x"]
        self.assertEqual((x["type"], x["distinct"], x["min"], x["max"], x["missing"]), ("integer", 7, 0, 6, 0))
        self.assertIn("features {", report["job"])
        with open(path) as data:
            piped = json.loads(self.run_program("sluice", "data", "check", "-", "--json", stdin=data).stdout)
        self.assertEqual(piped["columns"], report["columns"])

    def test_folders_of_a_pattern_are_columns(self):
        text = self.small().read_text()
        for day in ("2026-11-01", "2026-11-02"):
            folder = self.tmp / "env=prod" / ("day=" + day)  # the pattern does not name env
            folder.mkdir(parents=True)
            (folder / "part.csv").write_text(text)
        pattern = self.tmp / "env=prod" / "day=*" / "*.csv"
        report = json.loads(self.check(pattern, "--json"))
        (day,) = report["folder_columns"]
        self.assertEqual((day["name"], day["type"], day["distinct"], day["cells"]), ("day", "date", 2, report["lines"]))
        self.assertEqual((day["earliest"], day["latest"]), ("2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"))
        self.assertIn("day=[2]026-11-0", report["job"])
        self.assertIn("date_part: DAY_OF_WEEK", report["job"])
        job = self.tmp / "folders.textproto"
        self.check(pattern, "--output=%s" % job)
        for part in ("env=prod/day=[2]026-11-01/part.csv", "date_part: DAY_OF_WEEK"):
            self.assertIn(part, job.read_text())
        self.launch("--server_num=1", "--worker_num=1", job=job, name="folders")
        self.assertRegex(self.check(pattern), r"(?m)^  day +folder, date +0 % +2  2026-11-01\.\.2026-11-02$")
        self.assertEqual(json.loads(self.check(folder / "part.csv", "--json"))["folder_columns"], [])
        # Lines of a file alone are copied to be held out, and the copies lie in no folder.
        copied = self.tmp / "copied.textproto"
        self.check(self.tmp / "env=prod" / "day=*-01" / "*.csv", "--output=%s" % copied)
        self.assertIn('train_files: "copied-train.csv"', copied.read_text())
        self.assertIn('# - "day": it is the name of a folder', copied.read_text())
        self.assertNotIn('name: "day"', copied.read_text())

    def test_what_is_no_data_is_refused_with_the_fix(self):
        (self.tmp / "folder").mkdir()
        files = {"empty.csv": b"", "one.csv": b"a\n1\n2\n", "wide.csv": "label,x\n1,2\n".encode("utf-16"),
                 "table.parquet": b"PAR1\x15\x04\x15\x00\x00\x00", "binary.csv": bytes(range(256)) * 8}
        for name, content in files.items():
            (self.tmp / name).write_bytes(content)
        self.small()
        self.write_csv("words.csv", [("w%d" % (i % 5), i % 9) for i in range(100)], header="w,n")
        job = "--output=%s" % (self.tmp / "job.textproto")
        for args, words in ((["absent.csv"], "absent.csv"), (["folder"], "is a folder"), (["empty.csv"], "empty"),
                            (["one.csv"], "one column"), (["wide.csv"], "iconv"), (["table.parquet"], "Parquet"),
                            (["binary.csv"], "text"), (["words.csv"], "--label="), ([], "no data file"),
                            (["small.csv", "--label=lable"], "did you mean"), (["small.csv", "--label=c"], "=VALUE"),
                            (["-", job], "standard input"), (["small.csv", "--seed=3"], "--seed"),
                            (["small.csv", "--output=small.csv", "--overwrite"], "small.csv")):
            with self.subTest(args=args):
                self.assertIn(words, self.check(*args, expect=2))
        self.assertFalse((self.tmp / "job.textproto").exists())
        with open(self.tmp / "table.parquet") as data:
            piped = self.run_program("sluice", "data", "check", "-", stdin=data)
        self.assertIn("put it into a file", piped.stdout)

    def test_copied_lines_do_not_stay_without_their_job(self):
        self.small(30)
        for _ in range(2):  # the second time nothing is in the way
            out = self.check("small.csv", "--hold_out=0.0001", "--output=job.textproto", expect=2)
            self.assertIn("none of the 30 lines", out)
            self.assertEqual(sorted(path.name for path in self.tmp.glob("job*")), [])


if __name__ == "__main__":
    unittest.main()
