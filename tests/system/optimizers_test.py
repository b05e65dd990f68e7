"""Every optimizer trains in every mode, with a schedule: the loss is finite and falls."""
import json
import math
import unittest

from sluice_testing import SluiceTest, optimizers

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=4"]}
HEAVY_BALL = "momentum { momentum: 0.8 } learning_rate: 0.1"
SCHEDULE = "schedule { cosine { steps: 400 end: 0.001 } warmup_steps: 5 warmup_start: 0.1 }"


class OptimizersTest(SluiceTest):
    def test_every_optimizer_in_every_mode(self):
        # The category decides three cases out of four; the number adds a little.
        self.write_csv("train.csv", [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "abcde"[i % 5]) for i in range(800)])
        job = self.small_job(train="train.csv")
        log_dir = self.up("--server_num=2", "--worker_num=2")
        for rule, text in {**optimizers(), "heavy_ball": HEAVY_BALL}.items():
            for mode, flags in MODES.items():
                with self.subTest("%s %s" % (rule, mode)):
                    out = self.tmp / ("%s-%s" % (rule, mode))
                    self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % out, "--worker_num=2",
                                "--epochs=3", "--set=data.task_bytes=1024", "--set=features[0].numeric.min_max={max: 2}",
                                "--set=optimizers.all={%s %s}" % (text, SCHEDULE), *flags)
                    result = json.loads((out / "result.json").read_text())
                    self.assertEqual((result["status"], result["mode"], result["examples"]), ("done", mode, 2400))
                    losses = [epoch["loss"] for epoch in result["epochs_log"]]
                    self.assertTrue(all(math.isfinite(loss) for loss in losses), losses)
                    self.assertLess(losses[2], losses[0] - 0.005, losses)
                    self.assertLess(losses[2], math.log(2), losses)


if __name__ == "__main__":
    unittest.main()
