"""A sync job that is killed and resumed from its checkpoint gives the result of one that was never stopped."""
import gzip
import json
import random
import shutil
import subprocess
import unittest

from sluice_testing import PATIENCE, TEST_BIN, SluiceTest, kill_unless_over, optimizers, processes_naming, wait_until

SCHEDULES = {
    "schedule": "adam {} learning_rate: 0.02 schedule { cosine { steps: 3000 end: 0.001 } warmup_steps: 500 warmup_start: 0.1 }",
    "staircase": "sgd {} learning_rate: 0.5 schedule { exponential { steps: 150 rate: 0.8 staircase: true } }",
}
LINES = 4000
STEPS = 250  # of an epoch: 4000 lines, batches of 16
EPOCHS = 20


class ResumeCase(SluiceTest):
    """What tests of --resume have in common. The job file is self.job."""

    def checkpoints(self, name):
        """The steps of the complete checkpoints of a run, ascending."""
        return sorted(int(path.parent.name[len("step-"):])
                      for path in (self.tmp / name / "checkpoints").glob("step-*/MANIFEST"))

    def kill(self, launcher):
        """Kills the launcher and all processes that it has started, at once."""
        for pid, _ in processes_naming(str(self.tmp)):
            kill_unless_over(pid)
        launcher.wait()
        self.await_none_left()

    def train_and_kill(self, *flags, name, after, job=None, count=1):
        """Starts a job and kills it once it has `count` checkpoints, one of step `after` or a later one. Returns its newest."""
        launcher = self.start_launch(*flags, job=job or self.job, name=name)

        def reached():
            self.assertIsNone(launcher.poll(), (self.tmp / (name + ".out")).read_text())
            steps = self.checkpoints(name)
            return len(steps) >= count and max(steps) >= after

        wait_until(reached, lambda: "a checkpoint after step %d:\n%s" % (after, (self.tmp / (name + ".out")).read_text()))
        self.kill(launcher)
        self.assertFalse((self.tmp / name / "result.json").exists() and
                         json.loads((self.tmp / name / "result.json").read_text())["status"] == "done",
                         "the job was over before it was killed")
        return self.checkpoints(name)[-1]

    def resume(self, *flags, name, step, job=None):
        result, out = self.launch(*flags, "--resume", job=job or self.job, name=name)
        self.assertEqual(result["status"], "done", out)
        folder = str(self.tmp / name / "checkpoints" / ("step-%d" % step))
        self.assertIn(folder, json.dumps(result), out)  # recovery.resumed_from
        return result


class ResumeTest(ResumeCase):
    def setUp(self):
        super().setUp()
        source = random.Random(7)
        self.rows = [(source.randint(0, 1), source.randint(0, 9), "v%d" % source.randint(0, 400)) for _ in range(LINES)]
        self.write_csv("train.csv", self.rows)
        self.write_csv("eval.csv", self.rows[:500])
        self.job = self.small_job(train="train.csv", evaluation="eval.csv")

    def flags(self, *more, workers=2, pservers=2, epochs=EPOCHS):
        return ["--a_sync=false", "--worker_num=%d" % workers, "--server_num=%d" % pservers, "--threads=1",
                "--epochs=%d" % epochs, "--batch_size=8", "--set=data.shuffle_lanes=7", "--set=data.shuffle_window=100",
                "--set=eval.every_epochs=3", "--set=checkpoint.every_s=0", *more]

    def assert_same(self, result, expected, what=("model_digest", "eval")):
        for key in ("epochs", "global_step", "examples", "examples_dropped", "bad_lines", "data", "warnings", *what):
            self.assertEqual(result[key], expected[key], key)
        self.assertEqual(len(result["epochs_log"]), len(expected["epochs_log"]))
        for one, other in zip(result["epochs_log"], expected["epochs_log"]):
            for key in ("epoch", "examples", *(("eval",) if "eval" in what else ())):
                self.assertEqual(one[key], other[key], "%s of epoch %d" % (key, other["epoch"]))
            # The sums of the ranks are added in the order in which they report.
            bound = 1e-12 if "eval" in what else 1e-4
            self.assertLessEqual(abs(one["loss"] / other["loss"] - 1), bound, "loss of epoch %d" % other["epoch"])

    # ---------------------------------------------------------------------------------------- same bits

    def test_every_optimizer_continues_in_the_middle_of_an_epoch(self):
        for rule, text in {**optimizers(), **SCHEDULES}.items():
            with self.subTest(rule):
                flags = self.flags("--set=optimizers.all={%s}" % text)
                whole, _ = self.launch(*flags, job=self.job, name="whole-" + rule)
                every = "--set=checkpoint.every_steps=70"
                # A checkpoint that is due while another is written comes later, which may be at the end of an epoch.
                for attempt in range(3):
                    name = "%s-%d" % (rule, attempt)
                    step = self.train_and_kill(*flags, every, name=name, after=350)
                    if step % STEPS != 0:
                        break
                self.assertNotEqual(step % STEPS, 0)
                self.assert_same(self.resume(*flags, every, name=name, step=step), whole)

    def test_a_job_continues_at_the_end_of_an_epoch_and_again(self):
        flags = self.flags()
        whole, _ = self.launch(*flags, job=self.job, name="whole")
        flags += ["--set=checkpoint.every_epochs=1"]
        first = self.train_and_kill(*flags, name="run", after=2 * STEPS)
        self.assertEqual(first % STEPS, 0)
        shutil.copytree(self.tmp / "run", self.tmp / "twice")
        self.assert_same(self.resume(*flags, name="run", step=first), whole)
        second = self.train_and_kill(*flags, "--resume", name="twice", after=first + 2 * STEPS)
        self.assertGreater(second, first)
        self.assert_same(self.resume(*flags, name="twice", step=second), whole)

    def test_a_job_that_was_over_at_its_last_checkpoint_only_saves(self):
        flags = self.flags("--set=checkpoint.every_epochs=%d" % EPOCHS)
        whole, _ = self.launch(*flags, job=self.job, name="whole")
        self.assertEqual(self.checkpoints("whole"), [EPOCHS * STEPS])
        self.assert_same(self.resume(*flags, name="whole", step=EPOCHS * STEPS), whole)

    def test_malformed_lines_compressed_files_dropout_and_drop_last(self):
        source = random.Random(4)
        rows = list(self.rows)
        for i in source.sample(range(LINES), 40):
            rows[i] = ("maybe", 1, "a")
        (self.tmp / "train.csv").unlink()
        path = self.write_csv("mixed0.csv", rows[:1500])
        path = self.write_csv("rest", rows[1500:])
        (self.tmp / "mixed1.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        job = self.small_job(train="mixed*", evaluation="eval.csv", data_extra="max_bad_lines: 60 drop_last: true")
        flags = self.flags("--set=model.wide_deep.dropout=0.2", "--batch_size=7", workers=3)
        whole, _ = self.launch(*flags, job=job, name="whole")
        self.assertEqual(whole["bad_lines"], 40)
        every = "--set=checkpoint.every_steps=30"
        # In the first epoch, whose malformed lines count, and later.
        for name, after in (("early", 30), ("late", 700)):
            step = self.train_and_kill(*flags, every, name=name, after=after, job=job)
            self.assert_same(self.resume(*flags, every, name=name, step=step, job=job), whole)

    # -------------------------------------------------------------------------------- other numbers of processes

    def test_other_numbers_of_pservers_and_workers(self):
        every = "--set=checkpoint.every_steps=90"
        self.job = self.small_job(train="train.csv", evaluation="eval.csv", wide_only=True)
        step = self.train_and_kill(*self.flags(every, workers=3, pservers=4), name="run", after=600)
        # One to two epochs more. The bound between numbers of workers, 1e-6, is one for an epoch; roundings add up.
        epochs = step // -(-LINES // (3 * 8)) + 2
        whole, _ = self.launch(*self.flags(every, workers=3, pservers=4, epochs=epochs), job=self.job, name="whole")
        for pservers in (1, 3, 8):
            for workers in (3, 1, 5):
                name = "on-%d-%d" % (pservers, workers)
                with self.subTest(name):
                    shutil.copytree(self.tmp / "run", self.tmp / name)
                    again = self.flags(every, workers=workers, pservers=pservers, epochs=epochs)
                    result = self.resume(*again, name=name, step=step)
                    if workers == 3:
                        self.assert_same(result, whole)
                    else:  # the global batch is the same; sums are rounded in another order
                        self.assert_same(result, whole, what=())
                        self.assert_models_close("whole", name, tolerance=1e-5, tables=3)

    # ----------------------------------------------------------------------------------------- refusals

    def test_what_a_resumed_job_may_not_change_is_refused_by_name(self):
        flags = self.flags("--set=checkpoint.every_steps=90")
        self.train_and_kill(*flags, name="run", after=500)
        before = self.checkpoints("run")
        for change, word in (("--set=optimizers.all={sgd {} learning_rate: 0.3}", "optimizers"),
                             ("--set=model.wide_deep.embedding_dim=5", "model"), ("--batch_size=9", "train.batch_size"),
                             ("--epochs=1", "epochs"), ("--a_sync=true", "async")):
            with self.subTest(change):
                done = self.run_program("sluice", "launch", "--job=%s" % self.job, "--resume",
                                        "--output_dir=%s" % (self.tmp / "run"), "--log_dir=%s" % (self.tmp / "refused.log"),
                                        *flags, change)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertIn(word, done.stdout)
        # Without --resume the job would start from the beginning and remove them.
        for command in ("launch", "submit"):
            of_job = [flag for flag in flags if command == "launch" or not flag.startswith("--server_num")]
            done = self.run_program("sluice", command, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / "run"), *of_job,
                                    "--dry_run")
            self.assertEqual(done.returncode, 2, done.stdout)
            for word in ("step-%d" % before[-1], "--resume", "--overwrite"):
                self.assertIn(word, done.stdout)
        self.assertEqual(self.checkpoints("run"), before)
        # Other data than that of the checkpoint, of the same size.
        path = self.tmp / "train.csv"
        path.write_text(path.read_text().replace("v7\n", "v8\n", 1))
        done = self.run_program("sluice", "launch", "--job=%s" % self.job, "--resume", "--output_dir=%s" % (self.tmp / "run"),
                                "--log_dir=%s" % (self.tmp / "refused.log"), *flags, timeout=4 * PATIENCE)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("train.csv", done.stdout)

    def test_resume_without_a_checkpoint_starts_from_the_beginning(self):
        flags = self.flags("--epochs=1")
        whole, _ = self.launch(*flags, job=self.job, name="whole")
        fresh, _ = self.launch(*flags, "--resume", job=self.job, name="fresh")
        self.assertEqual(fresh["model_digest"], whole["model_digest"])


if __name__ == "__main__":
    unittest.main()
