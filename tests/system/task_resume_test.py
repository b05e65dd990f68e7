"""Async and Geo jobs that are killed and resumed train every example, on any number of processes."""
import gzip
import json
import random
import re
import shutil
import sys
import unittest

from resume_test import ResumeCase

LINES = 6000
EPOCHS = 12
GEO = "--set=strategy.a_sync_configs.k_steps=10"
ADAM = "--set=optimizers.all={adam {} learning_rate: 0.01}"
EVERY = "--set=checkpoint.every_steps=70"
LONG_TASKS = "--set=data.task_bytes=12000"  # about 1,500 lines


class TaskResumeTest(ResumeCase):
    def setUp(self):
        super().setUp()
        source = random.Random(7)
        self.rows = []
        for _ in range(LINES):
            x, c = source.randint(0, 9), source.randint(0, 60)
            score = x + c % 7
            self.rows.append((int(score + source.randint(-4, 4) > 7), x, "v%d" % c))
        self.write_csv("train.csv", self.rows)
        self.write_csv("eval.csv", self.rows[:2000])
        self.job = self.small_job(train="train.csv", evaluation="eval.csv")

    def flags(self, *more, workers=2, pservers=2):
        return ["--worker_num=%d" % workers, "--server_num=%d" % pservers, "--threads=1", "--epochs=%d" % EPOCHS,
                "--batch_size=8", "--set=data.task_bytes=2500", "--set=eval.every_epochs=10", "--set=checkpoint.every_s=0",
                ADAM, *more]

    def assert_whole(self, result, undisturbed, examples=LINES):
        """All examples are trained in every epoch, none twice but those that are said to be."""
        self.assertEqual(result["epochs"], EPOCHS)
        self.assertEqual(result["examples"], examples * EPOCHS)
        self.assertEqual([e["examples"] for e in result["epochs_log"]], [examples] * EPOCHS)
        for key in ("data", "bad_lines", "examples_dropped"):
            self.assertEqual(result[key], undisturbed[key], key)
        self.assertLessEqual(abs(result["eval"]["auc"] - undisturbed["eval"]["auc"]), 0.02)
        self.assertGreater(result["eval"]["auc"], 0.8)

    def inspect(self, folder):
        return self.run_program("sluice", "ckpt", "inspect", folder).stdout

    def optimizer_warnings(self, result):
        return [one for one in result["warnings"] if "optimizer state" in one]

    # -------------------------------------------------------------------------------------------- async

    def test_async_continues_in_the_middle_of_an_epoch(self):
        whole, _ = self.launch(*self.flags(), job=self.job, name="whole")
        self.assert_whole(whole, whole)
        self.assertEqual(whole["examples_replayed"], 0)
        cases = {"plain": [], "ahead": ["--set=train.pipeline_depth=3"],
                 "waits": ["--set=strategy.a_sync_configs.gradients_to_wait=3"],
                 "stale": ["--set=strategy.a_sync_configs.max_staleness=4"]}
        replayed = []
        for name, more in cases.items():
            with self.subTest(name):
                flags = self.flags(EVERY, LONG_TASKS, *more)
                step = self.train_and_kill(*flags, name=name, after=800)
                again = self.resume(*flags, name=name, step=step)
                self.assert_whole(again, whole)
                # The pservers do not save in the same instant: steps that only one of them has saved are repeated.
                self.assertLess(again["examples_replayed"], LINES // 2)
                replayed.append(again["examples_replayed"])
        # A task that began again from its first line would repeat hundreds of examples each time.
        print("examples replayed: %s" % replayed, file=sys.stderr)
        self.assertLessEqual(min(replayed), 2 * 8 * 16)

    def test_async_on_other_numbers_of_processes_and_twice(self):
        flags = self.flags(EVERY)
        whole, _ = self.launch(*self.flags(), job=self.job, name="whole")
        step = self.train_and_kill(*flags, name="run", after=800)
        self.assertIn("not finished", self.inspect(self.tmp / "run"))
        for workers, pservers in ((1, 1), (3, 3), (2, 1)):
            name = "run-%d-%d" % (workers, pservers)
            with self.subTest(name):
                shutil.copytree(self.tmp / "run", self.tmp / name)
                again = self.flags(EVERY, workers=workers, pservers=pservers)
                self.assert_whole(self.resume(*again, name=name, step=step), whole)
        second = self.train_and_kill(*flags, "--resume", name="run", after=step + 300)
        self.assertGreater(second, step)
        self.assert_whole(self.resume(*flags, name="run", step=second), whole)

    def test_malformed_lines_compressed_files_and_drop_last_in_the_first_epoch(self):
        source = random.Random(4)
        rows = list(self.rows)
        for i in source.sample(range(LINES), 40):
            rows[i] = ("maybe", 1, "a")
        (self.tmp / "train.csv").unlink()
        self.write_csv("mixed0.csv", rows[:1500])
        path = self.write_csv("rest", rows[1500:])
        (self.tmp / "mixed1.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        job = self.small_job(train="mixed*", evaluation="eval.csv", data_extra="max_bad_lines: 60 drop_last: true")
        for mode, more in (("async", []), ("geo", [GEO])):
            with self.subTest(mode):
                flags = self.flags("--set=checkpoint.every_steps=30", *more)
                whole, _ = self.launch(*self.flags(*more), job=job, name="whole-" + mode)
                self.assertEqual(whole["bad_lines"], 40)
                examples = whole["epochs_log"][0]["examples"]
                self.assertEqual(whole["examples_dropped"], EPOCHS * (LINES - 40 - examples))
                step = self.train_and_kill(*flags, name=mode, after=30, job=job)
                self.assert_whole(self.resume(*flags, name=mode, step=step, job=job), whole, examples)

    def test_a_job_that_had_trained_its_last_epoch_only_saves(self):
        for mode, more in (("async", []), ("geo", [GEO])):
            with self.subTest(mode):
                flags = self.flags("--set=checkpoint.every_epochs=%d" % EPOCHS, *more)
                whole, _ = self.launch(*flags, job=self.job, name=mode)
                steps = self.checkpoints(mode)
                self.assertEqual(len(steps), 1, "the job waits for the checkpoint of its last epoch")
                again = self.resume(*flags, name=mode, step=steps[0])
                self.assert_whole(again, whole)
                self.assertEqual(again["model_digest"], whole["model_digest"])
                self.assertEqual(again["global_step"], whole["global_step"])

    # ---------------------------------------------------------------------------------------------- geo

    def test_geo_continues_with_its_optimizer_state(self):
        flags = self.flags(EVERY, GEO)
        whole, _ = self.launch(*self.flags(GEO), job=self.job, name="whole")
        step = self.train_and_kill(*flags, name="run", after=800, count=2)
        folder = self.tmp / "run" / "checkpoints" / ("step-%d" % step)
        files = sorted(path.name for path in folder.glob("worker-*"))
        self.assertEqual(len(files), 2)
        described = self.inspect(folder)
        for name in files:
            self.assertIn(name, described)
            self.assertRegex(name, r"^worker-[01]\.[0-9a-f]{16}$")
        shutil.copytree(self.tmp / "run", self.tmp / "damaged")
        result = self.resume(*flags, name="run", step=step)
        self.assert_whole(result, whole)
        self.assertEqual(result["examples_replayed"], 0)
        self.assertEqual(self.optimizer_warnings(result), [])
        # A damaged file of a rank is found, and an older checkpoint can be taken.
        path = self.tmp / "damaged" / "checkpoints" / ("step-%d" % step) / files[1]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        verified = self.run_program("sluice", "ckpt", "verify", path.parent)
        self.assertNotEqual(verified.returncode, 0)
        self.assertIn(files[1], verified.stdout)
        _, out = self.launch(*flags, "--resume", job=self.job, name="damaged", expect=None)
        self.assertIn(files[1], out)
        self.assertEqual(json.loads((self.tmp / "damaged" / "result.json").read_text())["status"], "failed")
        older, out = self.launch(*flags, "--resume", "--allow_older", job=self.job, name="damaged")
        self.assert_whole(older, whole)

    def test_geo_on_other_numbers_of_processes(self):
        flags = self.flags(EVERY, GEO)
        whole, _ = self.launch(*self.flags(GEO), job=self.job, name="whole")
        step = self.train_and_kill(*flags, name="run", after=800)
        for workers, pservers in ((1, 2), (3, 1), (2, 3)):
            name = "run-%d-%d" % (workers, pservers)
            with self.subTest(name):
                shutil.copytree(self.tmp / "run", self.tmp / name)
                again = self.flags(EVERY, GEO, workers=workers, pservers=pservers)
                result = self.resume(*again, name=name, step=step)
                self.assert_whole(result, whole)
                self.assertEqual(len(self.optimizer_warnings(result)), 0 if workers == 2 else 1)

    # ------------------------------------------------------------------------------------------- demand

    def test_a_checkpoint_on_demand_in_the_middle_of_training(self):
        for mode, more in (("async", []), ("geo", [GEO])):
            with self.subTest(mode):
                log_dir = self.up("--server_num=2", "--worker_num=2", name="cluster-" + mode)
                out = self.sluice("submit", log_dir, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / mode),
                                  "--epochs=100000", "--set=data.task_bytes=2500", ADAM, *more, "--detach")
                job_id = re.search(r"small-\d+", out).group()
                self.await_job(log_dir, job_id, lambda job: int(job.get("examples", 0)) > 0, "training")
                made = self.sluice("checkpoint", log_dir, job_id)
                first = self.checkpoints(mode)
                self.assertEqual(len(first), 1, made)
                self.assertIn("step-%d" % first[0], made)
                # The folder has the mean number of the workers' steps, as far as they have reported them.
                self.await_job(log_dir, job_id, lambda job: int(job.get("global_step", 0)) > 2 * first[0] + 100, "more steps")
                self.sluice("checkpoint", log_dir, job_id)
                self.assertGreater(self.checkpoints(mode)[-1], first[0])
                verified = self.run_program("sluice", "ckpt", "verify", self.tmp / mode)
                self.assertEqual(verified.returncode, 0, verified.stdout)
                status = self.job_status(log_dir, job_id)["checkpoint"]
                self.assertEqual(int(status["made"]), 2)
                self.sluice("cancel", log_dir, job_id)


if __name__ == "__main__":
    unittest.main()
