"""A job that starts from a checkpoint of another job continues where that one ended, on new data."""
import gzip
import json
import re
import shutil
import unittest

from sluice_testing import ADULT, ROOT, SluiceTest

BATCH = 64
DAY = 30 * BATCH  # lines of a day, whole batches
SCHEDULE = "--set=optimizers.all={adam {} learning_rate: 0.02 schedule { cosine { steps: 90 } warmup_steps: 10 }}"
# The order of the data is that of the files, so that days one after another are the same as all in one job.
SYNC = ["--a_sync=false", "--worker_num=1", "--server_num=2", "--threads=1", "--epochs=1", "--batch_size=%d" % BATCH,
        "--set=data.shuffle=false", "--set=data.shuffle_lanes=1", "--set=data.shuffle_window=1", "--set=data.eval_files=", "--set=eval={}",
        "--set=checkpoint.every_s=0", "--set=checkpoint.every_epochs=1", SCHEDULE]


class DailyTrainingTest(SluiceTest):
    def setUp(self):
        super().setUp()
        text = gzip.decompress((ROOT / "data" / "adult" / "adult.data.gz").read_bytes()).decode()
        self.lines = [line for line in text.splitlines(keepends=True) if line.strip()]
        for day in (1, 2, 3):
            (self.tmp / ("day%d.csv" % day)).write_text("".join(self.lines[(day - 1) * DAY:day * DAY]))

    def train(self, days, *flags, name, start="", expect=0, job=ADULT):
        files = ",".join(str(self.tmp / ("day%d.csv" % day)) for day in days)
        more = ["--set=initial_checkpoint=%s" % start] if start else []
        return self.launch(*SYNC, "--set=data.train_files=%s" % files, *more, *flags, job=job, name=name, expect=expect)

    def newest(self, name):
        found = {int(path.parent.name[len("step-"):]): path.parent
                 for path in (self.tmp / name / "checkpoints").glob("step-*/MANIFEST")}
        return found[max(found)]

    def refused(self, name, *words, flags=(), start=None):
        result, out = self.train((2,), *flags, name=name, start=start or self.newest("day1"), expect=None)
        self.assertTrue(result is None or result["status"] == "failed", out)
        for word in words:
            self.assertIn(word, out)
        return out

    def test_days_one_after_another_are_the_same_as_one_job(self):
        whole, _ = self.train((1, 2, 3), name="whole")
        first, _ = self.train((1,), name="day1")
        self.assertEqual(first["initial_checkpoint"], "")
        second, out = self.train((2,), name="day2", start=self.newest("day1"))
        self.assertEqual(second["initial_checkpoint"], str(self.newest("day1")))
        self.assertIn("started from: %s" % self.newest("day1"), out)
        self.assertEqual((second["global_step"], second["examples"], second["recovery"]["resumed_from"]), (30, DAY, ""))
        # The folder of checkpoints stands for the newest, on other numbers of pservers and of shards.
        third, out = self.train((3,), "--server_num=3", name="day3", start=self.tmp / "day2" / "checkpoints")
        self.assertEqual(third["initial_checkpoint"], str(self.newest("day2")))
        self.assertEqual(third["model_digest"], whole["model_digest"])
        self.assertIn(str(self.newest("day2")), (self.tmp / "day3" / "job.textproto").read_text())
        # The values alone, with fresh state and schedule, are not the same.
        values, _ = self.train((3,), "--set=initial_model=%s" % self.newest("day2"), name="values")
        self.assertNotEqual(values["model_digest"], whole["model_digest"])
        again, _ = self.train((3,), name="again", start=self.tmp / "day2" / "checkpoints")
        self.assertEqual(again["model_digest"], whole["model_digest"])
        other, _ = self.train((3,), SCHEDULE.replace("90", "91"), name="other", start=self.tmp / "day2")
        self.assertNotEqual(other["model_digest"], whole["model_digest"], "another schedule is allowed, and used")

    def test_the_schedule_continues_at_its_position(self):
        """A rate that is 0 from step 30 on: the second day changes nothing, unless its schedule began again."""
        stop = "--set=optimizers.all={adam {} learning_rate: 0.02 schedule { polynomial { steps: 30 end: 0 } }}"
        first, _ = self.train((1,), stop, name="day1")
        modes = {"sync": [], "async": ["--a_sync=true", "--set=checkpoint={}"],
                 "two": ["--worker_num=2", "--set=data.shuffle_lanes=2"]}
        for mode, flags in modes.items():
            with self.subTest(mode):
                second, _ = self.train((2,), stop, *flags, name=mode, start=self.tmp / "day1")
                self.assertEqual(second["status"], "done")
                # New rows have their initial values whatever the rate; the dense tables must not have moved.
                self.assertEqual(self.dense_values(mode), self.dense_values("day1"))
        fresh, _ = self.train((2,), stop, "--set=initial_model=%s" % (self.tmp / "day1" / "model"), name="fresh")
        self.assertNotEqual(self.dense_values("fresh"), self.dense_values("day1"))

    def dense_values(self, name):
        """The bytes of the files of dense tables in the model, without their headers' shard facts."""
        model = self.tmp / name / "model"
        tables = [path for path in model.glob("*.shard") if not path.name.startswith("embedding")]
        self.assertGreater(len(tables), 3)
        return {re.sub(r"\.[0-9a-f]{16}\.", ".", path.name): path.read_bytes() for path in tables}

    def test_every_mode_starts_from_a_checkpoint_of_sync(self):
        self.train((1,), name="day1")
        none = ["--set=checkpoint={}"]
        for name, flags in (("async", ["--a_sync=true", *none]), ("async3", ["--a_sync=true", "--worker_num=3", *none]),
                            ("geo", ["--a_sync=true", "--k_steps=5", *none]),
                            ("sync3", ["--worker_num=3", "--set=data.shuffle_lanes=3", "--server_num=1"])):
            with self.subTest(name):
                result, _ = self.train((2, 3), *flags, name=name, start=self.tmp / "day1")
                self.assertEqual(result["status"], "done")
                self.assertEqual(result["examples"], 2 * DAY)
                self.assertEqual(result["epochs_log"][0]["epoch"], 1)
                fresh, _ = self.train((2, 3), *flags, name=name + "-fresh")
                self.assertLess(result["epochs_log"][0]["loss"], fresh["epochs_log"][0]["loss"])
                self.assertEqual("geo" in json.dumps(result["warnings"]), name == "geo")

    def test_new_features_start_fresh_and_other_shapes_are_refused(self):
        self.train((1,), name="day1")
        text = ADULT.read_text().replace("../data", str(ROOT / "data"))
        wide = self.tmp / "wide.textproto"
        wide.write_text(text.replace("# ---- Model", """
features { name: "race_x_sex" in_deep: false cross { features: ["race", "sex"] } }
# ---- Model"""))
        result, out = self.train((2,), name="wide", start=self.newest("day1"), job=wide)
        self.assertIn('note: initial_checkpoint: features added: "race_x_sex"', out)
        deep = self.tmp / "deep.textproto"
        deep.write_text(text.replace("# ---- Model", """
features { name: "weight" numeric { column: "fnlwgt" } }
# ---- Model"""))
        result, out = self.train((2,), name="deep", start=self.newest("day1"), job=deep)
        for word in ("features added: \"weight\"", "table 'deep/0/weight'"):
            self.assertIn(word, out)
        self.refused("shape", "initial_checkpoint", "table 'deep/0/weight'", flags=["--set=model.wide_deep.hidden_units=90,50"])
        self.refused("rule", "initial_checkpoint", "adam", "sgd", "table '",
                     flags=["--set=optimizers.all={sgd {} learning_rate: 0.1}"])
        self.refused("both", "contradicts initial_model", flags=["--set=initial_model=%s" % (self.tmp / "day1" / "model")])
        self.refused("model", "initial_checkpoint", "saved model", start=self.tmp / "day1" / "model")
        self.refused("gone", "initial_checkpoint", str(self.tmp / "gone"), start=self.tmp / "gone")
        for name in ("shape", "rule", "both", "model", "gone"):
            self.assertFalse((self.tmp / name).exists(), "nothing was started for " + name)

    def test_damage_is_named(self):
        self.train((1,), name="day1")
        copies = self.tmp / "copies" / "checkpoints"
        shutil.copytree(self.newest("day1"), copies / "step-7")
        copy = shutil.copytree(self.newest("day1"), copies / "step-8")
        shard = max(copy.glob("embedding*.shard"), key=lambda path: path.stat().st_size)
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        self.refused("flipped", shard.name, "damaged", start=copy)
        # A folder stands for its newest intact checkpoint.
        result, out = self.train((2,), name="older", start=copies)
        self.assertEqual(result["initial_checkpoint"], str(copies / "step-7"))
        self.assertIn(shard.name, json.dumps(result["warnings"]))
        shard.unlink()
        self.refused("missing", shard.name, start=copy)

    def test_resume_continues_with_the_jobs_own_checkpoint(self):
        whole, _ = self.train((1, 2), name="whole")
        self.train((1,), name="day1")
        before = self.tmp / "before"
        shutil.copytree(self.tmp / "day1", before)
        start = before / "checkpoints"
        day2, _ = self.train((2,), "--resume", name="day2", start=start)
        self.assertEqual(day2["model_digest"], whole["model_digest"], "without an own checkpoint it starts from day 1")
        taken = day2["initial_checkpoint"]
        shutil.rmtree(before)
        again, out = self.train((2,), "--resume", name="day2", start=start)
        self.assertEqual(again["model_digest"], whole["model_digest"])
        self.assertEqual(again["recovery"]["resumed_from"], str(self.newest("day2")))
        self.assertEqual(again["initial_checkpoint"], taken)
        self.assertIn("resumed from", out)

    def test_relative_paths_belong_to_the_job_file(self):
        self.train((1,), name="day1")
        (self.tmp / "jobs").mkdir()
        job = self.tmp / "jobs" / "job.textproto"
        job.write_text(ADULT.read_text().replace("../data", str(ROOT / "data")) + '\ninitial_checkpoint: "../day1"\n')
        result, _ = self.train((2,), name="day2", job=job)
        self.assertEqual(result["initial_checkpoint"], str(self.newest("day1")))


if __name__ == "__main__":
    unittest.main()
