"""Generated data, the cache of parsed data, and compressed input, through the commands that users run."""
import gzip
import os
import random
import re
import unittest

from sluice_testing import ROOT, SluiceTest

CRITEO = ROOT / "configs" / "criteo_wide_deep.textproto"


class DataTest(SluiceTest):
    def generate(self, output, *flags, expect=0):
        done = self.run_program("sluice", "data", "gen", "--output=%s" % (self.tmp / output), "--cardinality=200", *flags,
                                timeout=60)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def age(self, *names):
        """Makes a file look old, because files that were just written are not cached."""
        for name in names:
            os.utime(self.tmp / name, (1e9, 1e9))

    def train(self, name, *flags, job=CRITEO, **kwargs):
        result, text = self.launch("--set=model.wide_deep.hidden_units=16", "--batch_size=64", "--worker_num=2",
                                   "--server_num=1", *flags, job=job, name=name, **kwargs)
        return result

    def cache_files(self):
        return sorted((self.tmp / "data_cache").glob("*.examples"))

    def logs(self, name):
        return "".join(path.read_text(errors="replace") for path in (self.tmp / (name + ".log")).glob("workerlog.*"))

    def test_generated_data_is_learned_almost_as_well_as_possible(self):
        self.generate("train", "--examples=20000", "--files=2", "--zstd")
        said = self.generate("test.tsv", "--examples=4000", "--skip=20000")
        best = float(said.split("AUC ")[1].split(",")[0])
        self.assertGreater(best, 0.75)
        result = self.train("run", "--set=data.train_files=%s" % (self.tmp / "train" / "part-*.zst"),
                            "--set=data.eval_files=%s" % (self.tmp / "test.tsv"), "--epochs=4",
                            "--set=optimizers.all.learning_rate=0.05", "--a_sync=false")
        self.assertEqual((result["status"], result["bad_lines"]), ("done", 0))
        self.assertGreater(result["eval"]["auc"], 0.5 + (best - 0.5) / 2)
        self.assertLess(result["eval"]["auc"], best + 0.01)

    def test_the_lines_do_not_depend_on_files_and_threads(self):
        self.generate("one.tsv", "--examples=9000", "--threads=1")
        self.generate("parts", "--examples=9000", "--files=3", "--threads=4", "--gzip")
        parts = b"".join(gzip.decompress(path.read_bytes()) for path in sorted((self.tmp / "parts").iterdir()))
        self.assertEqual(parts, (self.tmp / "one.tsv").read_bytes())

    def test_bad_flags_of_the_generator_are_refused(self):
        for flags, words in ((["--examples=0"], "--examples=0"), (["--examples=5", "--files=9"], "--files=9"),
                             (["--examples=5", "--zipf=x"], "--zipf=x"), (["--examples=5", "--gzip", "--zstd"], "--zstd"),
                             (["--examples=5", "--format=csv"], "criteo"), (["--examples=5", "--seeds=1"], "--seed")):
            self.assertIn(words, self.generate("x.tsv", *flags, expect=2))
        self.assertFalse((self.tmp / "x.tsv").exists())

    def test_the_model_is_the_same_with_the_cache_off_cold_warm_and_damaged(self):
        self.generate("train.tsv", "--examples=3000")
        with open(self.tmp / "train.tsv", "a") as more:
            more.write("no example\n")
        (self.tmp / "train.gz").write_bytes(gzip.compress((self.tmp / "train.tsv").read_bytes()))
        self.age("train.tsv", "train.gz")
        data = "--set=data.train_files=%s,%s" % (self.tmp / "train.tsv", self.tmp / "train.gz")

        def digest(name, *flags):
            result = self.train(name, data, "--set=data.eval_files=%s" % (self.tmp / "train.tsv"), "--a_sync=false",
                                "--epochs=2", *flags)
            return result["model_digest"], result["eval"]["auc"], result["bad_lines"]
        off = digest("off", "--set=data.cache=false")
        self.assertEqual(self.cache_files(), [])
        self.assertEqual(digest("cold"), off)
        files = self.cache_files()
        self.assertGreaterEqual(len(files), 2)
        kept = {path: path.read_bytes() for path in files}
        self.assertEqual(digest("warm"), off)
        self.assertEqual({path: path.read_bytes() for path in self.cache_files()}, kept)
        damaged = bytearray(kept[files[0]])
        damaged[len(damaged) // 2] ^= 1
        files[0].write_bytes(damaged)
        files[1].write_bytes(kept[files[1]][:5000])
        self.assertEqual(digest("damaged"), off)
        for path in files[:2]:
            self.assertIn(path.name, self.logs("damaged"))
        self.assertEqual({path: path.read_bytes() for path in self.cache_files()}, kept)

    def test_async_and_geo_tasks_are_cached(self):
        self.generate("train.tsv", "--examples=6000")
        self.age("train.tsv")
        for name, k in (("async", 0), ("geo", 10)):
            for pass_ in ("cold", "warm"):
                result = self.train(name + pass_, "--set=data.train_files=%s" % (self.tmp / "train.tsv"), "--epochs=2",
                                    "--set=data.eval_files=%s" % (self.tmp / "train.tsv"), "--k_steps=%d" % k,
                                    "--set=data.task_bytes=100000", "--set=data.cache_dir=%s" % (self.tmp / "data_cache"))
                self.assertEqual([e["examples"] for e in result["epochs_log"]], [6000, 6000])
                if pass_ == "cold":
                    self.assertGreaterEqual(len(self.cache_files()), 14)
                    self.stamps = {path: path.stat().st_ino for path in self.cache_files()}
            self.assertEqual({path: path.stat().st_ino for path in self.cache_files()}, self.stamps)

    def test_without_a_cache_folder_the_job_continues(self):
        self.generate("train.tsv", "--examples=1000")
        self.age("train.tsv")
        (self.tmp / "file").write_text("")
        result = self.train("run", "--set=data.train_files=%s" % (self.tmp / "train.tsv"), "--epochs=2",
                            "--set=data.eval_files=%s" % (self.tmp / "train.tsv"),
                            "--set=data.cache_dir=%s" % (self.tmp / "file" / "cache"))
        self.assertEqual(result["status"], "done")
        self.assertRegex(self.logs("run"), "%s: Not a directory" % re.escape(str(self.tmp / "file" / "cache")))

    def test_multi_slot_gives_the_same_model_as_csv(self):
        source = random.Random(3)
        rows = [(i % 2, source.randint(0, 9), [source.randint(0, 20) for _ in range(source.randint(0, 3))] + [100 + i % 2])
                for i in range(600)]
        (self.tmp / "a.csv").write_text("y,n,c\n" + "".join("%d,%d,%s\n" % (y, n, "|".join(map(str, c))) for y, n, c in rows))
        (self.tmp / "a.slots").write_text("".join("%d %s 2 %d 0.5 1 %d\n" % (len(c), " ".join(map(str, c)), n, y)
                                                  for y, n, c in rows))
        slots = ('slots { name: "c" } slots { name: "d" type: FLOAT dim: 2 } slots { name: "y" dim: 1 }')
        digests = set()
        for name, form, column, several in (("csv", "CSV csv { header: true }", "n", 'multi_value_delimiter: "|"'),
                                            ("slots", "MULTI_SLOT " + slots, "d.0", "")):
            job = self.tmp / (name + ".textproto")
            job.write_text('data { format: %s train_files: "a.%s" label { column: "y" } }\n'
                           'features { name: "n" numeric { column: "%s" } }\n'
                           'features { name: "c" categorical { %s } }\n'
                           "model { wide_deep { hidden_units: 8 embedding_dim: 4 } }\n" % (form, name, column, several))
            digests.add(self.train(name, "--a_sync=false", job=job)["model_digest"])
        self.assertEqual(len(digests), 1)


if __name__ == "__main__":
    unittest.main()
