"""Jobs that overfit: the best epoch is told, training stops early, and the best model can be the one that is kept."""
import random
import shutil
import unittest

from sluice_testing import SluiceTest, kill_unless_over, processes_naming, wait_until

LINES = 600
EPOCHS = 12
MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true", "--k_steps=0"], "geo": ["--a_sync=true", "--k_steps=4"]}
BEST = "--set=checkpoint.save=BEST"


class BestModelTest(SluiceTest):
    def setUp(self):
        super().setUp()
        source = random.Random(11)

        # The label depends a little on x. Each key of c occurs about three times, so the model learns them by heart.
        def rows(count):
            for _ in range(count):
                x = source.randint(0, 9)
                yield int(source.random() < 0.3 + 0.04 * x), x, "v%d" % source.randint(0, 200)

        self.write_csv("train.csv", list(rows(LINES)))
        self.write_csv("eval.csv", list(rows(LINES)))
        self.job = self.small_job(train="train.csv", evaluation="eval.csv")

    def flags(self, mode, *more, epochs=EPOCHS):
        return [*MODES[mode], "--worker_num=2", "--server_num=2", "--threads=1", "--batch_size=16", "--epochs=%d" % epochs,
                "--set=optimizers.all={adam {} learning_rate: 0.05}", *more]

    def evaluate(self, model, name):
        result, _ = self.launch("--worker_num=1", "--server_num=1", "--threads=1", "--set=evaluate_only=true",
                                "--set=initial_model=%s" % model, "--set=data.eval_files=%s/eval.csv" % self.tmp,
                                job=self.job, name=name)
        return result["eval"]

    def assert_model_is_of_best_epoch(self, result, name):
        best = result["best"]
        logged = [e["eval"]["log_loss"] for e in result["epochs_log"]]
        self.assertEqual(best["eval"]["log_loss"], min(logged))
        self.assertEqual(best["epoch"], logged.index(min(logged)) + 1)
        self.assertEqual(self.evaluate(self.tmp / name / "model", name + "-check")["log_loss"], best["eval"]["log_loss"])
        manifest = (self.tmp / name / "model" / "MANIFEST").read_text(errors="replace")
        self.assertIn(result["model_digest"], manifest)

    def test_the_best_epoch_is_told_and_its_model_is_kept_in_every_mode(self):
        for mode in MODES:
            with self.subTest(mode):
                result, out = self.launch(*self.flags(mode, BEST, "--set=train.early_stop.patience=3"), job=self.job, name=mode)
                self.assertEqual((result["status"], result["stopped_early"]), ("done", True), out)
                self.assertEqual(result["epochs"], result["best"]["epoch"] + 3)
                self.assertEqual(len(result["epochs_log"]), result["epochs"])
                self.assertIn("stopped early", out)
                self.assertIn("epoch %d" % result["best"]["epoch"], out.strip().splitlines()[-1])
                self.assert_model_is_of_best_epoch(result, mode)

    def test_a_job_that_is_killed_and_resumed_keeps_the_best_of_before(self):
        flags = self.flags("sync", BEST, "--set=checkpoint.every_epochs=1", "--set=checkpoint.every_s=0")
        whole, _ = self.launch(*flags, job=self.job, name="whole")
        self.assertLess(whole["best"]["epoch"], EPOCHS - 3)
        self.launch(*self.flags("sync", epochs=1), job=self.job, name="run")  # an earlier model in the folder
        before = (self.tmp / "run" / "model" / "MANIFEST").read_bytes()
        shutil.rmtree(self.tmp / "run" / "checkpoints", ignore_errors=True)
        steps = whole["global_step"] // EPOCHS
        launcher = self.start_launch(*flags, "--overwrite", job=self.job, name="run")

        def reached():
            self.assertIsNone(launcher.poll(), (self.tmp / "run.out").read_text())
            made = [int(path.parent.name[5:]) for path in (self.tmp / "run" / "checkpoints").glob("step-*/MANIFEST")]
            return made and max(made) >= (whole["best"]["epoch"] + 1) * steps

        wait_until(reached, "a checkpoint after the best epoch")
        for pid, _ in processes_naming(str(self.tmp)):
            kill_unless_over(pid)
        launcher.wait()
        self.await_none_left()
        self.assertEqual((self.tmp / "run" / "model" / "MANIFEST").read_bytes(), before)
        resumed, out = self.launch(*flags, "--resume", job=self.job, name="run")
        for key in ("best", "model_digest", "eval", "stopped_early"):
            self.assertEqual(resumed[key], whole[key], key)
        self.assertEqual(list((self.tmp / "run" / "model").glob("MANIFEST.*")), [], out)
        self.assert_model_is_of_best_epoch(resumed, "run")

    def test_the_best_model_needs_no_checkpoints(self):
        result, out = self.launch(*self.flags("sync", BEST, "--set=checkpoint.keep=0"), job=self.job, name="none")
        self.assertLess(result["best"]["epoch"], EPOCHS, out)
        self.assertEqual(list((self.tmp / "none").glob("checkpoints/step-*")), [])
        self.assertEqual(list((self.tmp / "none" / "model").glob("MANIFEST.*")), [], out)
        self.assert_model_is_of_best_epoch(result, "none")

    def test_without_options_the_best_epoch_is_only_told(self):
        result, out = self.launch(*self.flags("sync"), job=self.job, name="plain")
        self.assertEqual((result["epochs"], result["stopped_early"]), (EPOCHS, False))
        self.assertIn("best: epoch %d" % result["best"]["epoch"], out)
        self.assertEqual(self.evaluate(self.tmp / "plain" / "model", "check")["log_loss"], result["eval"]["log_loss"])
        self.assertLess(result["best"]["eval"]["log_loss"], result["eval"]["log_loss"])


if __name__ == "__main__":
    unittest.main()
