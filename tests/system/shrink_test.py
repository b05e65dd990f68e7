"""A sync job goes on without workers that die (on_worker_loss: SHRINK): nothing is undone and nothing is left out."""
import json
import os
import random
import re
import unittest

from sluice_testing import SluiceTest, free_port, wait_until

EXAMPLES, EPOCHS, WORKERS = 2000, 100, 3
STEPS = EPOCHS * -(-EXAMPLES // (8 * WORKERS))
FLAGS = ["--a_sync=false", "--threads=1", "--batch_size=8", "--epochs=%d" % EPOCHS, "--worker_num=%d" % WORKERS,
         "--set=data.shuffle_lanes=8", "--set=eval.every_epochs=%d" % EPOCHS,
         "--set=strategy.sync_configs.on_worker_loss=SHRINK"]
# A hidden layer would magnify the roundings of another order of summation: a unit at zero may switch.
JOB = """
name: "wide"
data {
  format: CSV
  train_files: "train.csv"
  eval_files: "train.csv"
  csv { header: true }
  label { column: "label" }
}
features { name: "x" numeric {} }
features { name: "c" categorical {} in_deep: false }
model { wide_deep {} }
optimizers { all { sgd {} learning_rate: 0.1 } }
train { seed: 3 }
"""


class ShrinkTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("SLUICE_SEED", 0)) or random.randrange(1, 10**6)
        print("SLUICE_SEED=%d" % self.seed, flush=True)
        self.random = random.Random(self.seed)
        rows = [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i * i % 331)) for i in range(EXAMPLES)]
        self.write_csv("train.csv", rows)
        self.job = self.tmp / "wide.textproto"
        self.job.write_text(JOB)

    def submit(self, name, *flags):
        """Starts a cluster and a job on it; returns the job's id and its process, which ends with it."""
        # By hand: `sluice up` would start a dead worker again, and the next one to die would be replaced by it.
        self.where = "--scheduler=127.0.0.1:%d" % free_port()
        self.log_dir = self.tmp / (name + ".log")
        self.log_dir.mkdir()
        log_dir = "--log_dir=%s" % self.log_dir
        self.daemons = [self.start("sluice-scheduler", self.where.replace("scheduler", "bind"), "--server_num=2",
                                   "--worker_num=%d" % WORKERS, log_dir, log=name + ".scheduler")]
        for rank in range(2):
            self.daemons.append(self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:0", self.where, log_dir,
                                           log="%s.pserver%d" % (name, rank)))
        self.workers = [self.start("sluice-worker", "--rank=%d" % rank, self.where, log_dir,
                                   log="%s.worker%d" % (name, rank)) for rank in range(WORKERS)]
        out = self.tmp / (name + ".out")
        process = self.start("sluice", "submit", log_dir, self.where, "--job=%s" % self.job,
                             "--output_dir=%s" % (self.tmp / name), *FLAGS, *flags, log=out.name)

        def job_id():
            self.assertIn(process.poll(), (None, 0), out.read_text())
            return re.search(r"wide-\d+", out.read_text())
        return wait_until(job_id, "the job's id").group(), process

    def end(self, process, name):
        self.assertEqual(self.exit_code(process, within=300), 0, (self.tmp / (name + ".out")).read_text())
        self.sluice("down", self.log_dir, self.where)
        for daemon in self.daemons:
            self.exit_code(daemon)
        return json.loads((self.tmp / name / "result.json").read_text())

    def strike(self, job_id, workers, number, after):
        """Kills `number` of the job's `workers` at a random step of the tenth of the job that follows `after`."""
        step = int(STEPS * (after + self.random.random() / 10))
        status = self.await_job(self.log_dir, job_id,
                                lambda job: job["state"] == "running" and int(job["worker_num"]) == workers and
                                int(job.get("global_step", 0)) >= step, "%d workers at step %d" % (workers, step))
        for worker in self.random.sample([int(w) for w in status["allocated"]], number):
            self.workers[worker].kill()
            self.workers[worker].wait()

    def assert_nothing_undone(self, result, shrinks):
        self.assertEqual(result["status"], "done")
        recovery = result["recovery"]
        expected = {"worker_losses": shrinks, "shrinks": shrinks, "rollbacks": 0, "steps_rolled_back": 0,
                    "examples_replayed": 0, "scalings": 0, "pserver_losses": 0}
        self.assertEqual({name: recovery[name] for name in expected}, expected, recovery)
        self.assertEqual(result["examples"], EPOCHS * EXAMPLES)
        self.assertEqual([epoch["examples"] for epoch in result["epochs_log"]], [EXAMPLES] * EPOCHS)
        self.assertEqual(result["global_step"], STEPS)
        self.assertEqual(result["eval"]["examples"], EXAMPLES)

    def test_nothing_is_undone_when_workers_die(self):
        whole = self.end(self.submit("whole")[1], "whole")
        self.assert_nothing_undone(whole, shrinks=0)
        with self.subTest("one after the other", seed=self.seed):
            job_id, process = self.submit("run")
            self.strike(job_id, workers=3, number=1, after=0.02)
            self.strike(job_id, workers=2, number=1, after=0.3)
            self.assert_nothing_undone(self.end(process, "run"), shrinks=2)
            self.assert_models_close("run", "whole", tables=3)
        with self.subTest("two at once", seed=self.seed):
            job_id, process = self.submit("both")
            self.strike(job_id, workers=3, number=2, after=0.1)
            self.assert_nothing_undone(self.end(process, "both"), shrinks=2)
            self.assert_models_close("both", "whole", tables=3)
        with self.subTest("dense tables on the workers", seed=self.seed):
            job_id, process = self.submit("collective", "--set=strategy.sync_configs.dense=COLLECTIVE")
            self.strike(job_id, workers=3, number=1, after=0.02)
            self.strike(job_id, workers=2, number=1, after=0.3)
            self.assert_nothing_undone(self.end(process, "collective"), shrinks=2)
            self.assert_models_close("collective", "whole", tables=3)


if __name__ == "__main__":
    unittest.main()
