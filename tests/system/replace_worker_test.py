"""A worker dies or hangs in the middle of a job, and a spare one takes over its rank: in sync with the same bits."""
import json
import os
import random
import re
import signal
import unittest

from sluice_testing import SluiceTest, wait_until

MODES = {"sync": ["--a_sync=false", "--set=checkpoint.every_s=0"], "async": ["--a_sync=true"],
         "geo": ["--a_sync=true", "--k_steps=10"]}
EXAMPLES, EPOCHS = 2000, 80
STEPS = EPOCHS * EXAMPLES // 16  # sync: two workers with batches of 8
FLAGS = ["--worker_num=2", "--threads=1", "--batch_size=8", "--epochs=%d" % EPOCHS, "--set=data.shuffle_lanes=7",
         "--set=data.task_bytes=2000", "--set=eval.every_epochs=%d" % EPOCHS]


class ReplaceWorkerTest(SluiceTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("SLUICE_SEED", 0)) or random.randrange(1, 10**6)
        print("SLUICE_SEED=%d" % seed, flush=True)
        self.random = random.Random(seed)
        rows = [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i * i % 331)) for i in range(EXAMPLES)]
        self.write_csv("train.csv", rows)
        self.job = self.small_job(train="train.csv", evaluation="train.csv")

    def cluster(self, workers, *flags):
        self.log_dir = self.up("--server_num=2", "--worker_num=%d" % workers, *flags, name="cluster.log")

    def submit(self, mode, name, *flags):
        """Starts a job; returns its id and its process, which ends with it."""
        log = name + ".out"
        process = self.start("sluice", "submit", "--log_dir=%s" % self.log_dir, "--job=%s" % self.job,
                             "--output_dir=%s" % (self.tmp / name), *FLAGS, *MODES[mode], *flags, log=log)

        def job_id():
            text = (self.tmp / log).read_text()
            self.assertIn(process.poll(), (None, 0), text)
            return re.search(r"small-\d+", text)
        return wait_until(job_id, "the job's id").group(), process

    def end(self, process, name):
        self.assertEqual(self.exit_code(process, within=300), 0, (self.tmp / (name + ".out")).read_text())
        return json.loads((self.tmp / name / "result.json").read_text())

    def run_undisturbed(self, mode):
        return self.end(self.submit(mode, "whole")[1], "whole")

    def strike(self, job_id, rank, step, number=signal.SIGKILL):
        """Sends a signal to the worker that serves the rank, once the job has done so many steps. Returns its pid."""
        status = self.await_job(self.log_dir, job_id, lambda job: int(job.get("global_step", 0)) >= step,
                                "step %d" % step)
        worker = int(status["allocated"][rank])
        pid = [e.pid for e in self.endpoints("cluster") if (e.role, e.rank) == ("worker", worker)][-1]
        os.kill(pid, number)
        return pid

    def await_replacement(self, job_id, losses):
        self.await_job(self.log_dir, job_id, lambda job: int(job["recovery"].get("worker_losses", 0)) == losses and
                       "as worker" in job["recovery"]["last"], "a worker to take over")

    def assert_same(self, result, whole):
        self.assertEqual(result["model_digest"], whole["model_digest"])
        self.assertEqual(result["examples"], EPOCHS * EXAMPLES)
        self.assertEqual([(e["examples"], e["loss"]) for e in result["epochs_log"]],
                         [(e["examples"], e["loss"]) for e in whole["epochs_log"]])
        self.assertEqual(result["eval"], whole["eval"])

    def test_sync_continues_with_the_same_bits(self):
        self.cluster(4)
        whole = self.run_undisturbed("sync")
        job_id, process = self.submit("sync", "run")
        steps = sorted(self.random.randrange(1, STEPS // 2) for _ in range(2))
        ranks = self.random.sample((0, 1), 2)
        print("ranks %s at steps %s" % (ranks, steps), flush=True)
        for losses, (rank, step) in enumerate(zip(ranks, steps), 1):
            self.strike(job_id, rank, step)
            self.await_replacement(job_id, losses)
        result = self.end(process, "run")
        self.assert_same(result, whole)
        self.assertEqual(result["recovery"]["worker_losses"], 2)
        self.assertEqual(result["recovery"]["examples_replayed"], 0)

    def test_sync_fences_a_worker_that_hangs_for_longer_than_its_lease(self):
        self.cluster(3, "--lease_ms=5000")  # no other member of a busy machine is silent for so long
        whole = self.run_undisturbed("sync")
        job_id, process = self.submit("sync", "run")
        hung = self.strike(job_id, self.random.randrange(2), self.random.randrange(1, STEPS // 3), signal.SIGSTOP)
        self.await_replacement(job_id, 1)
        os.kill(hung, signal.SIGCONT)
        result = self.end(process, "run")
        self.assert_same(result, whole)
        self.assertEqual(result["recovery"]["worker_losses"], 1)
        # The one that hung is a worker like any other again.
        wait_until(lambda: len([m for m in self.status(self.log_dir)["members"]
                                if m["role"] == "worker" and m.get("alive")]) == 3, "it registers again")

    def train_with_a_loss(self, mode):
        self.cluster(3)
        whole = self.run_undisturbed(mode)
        job_id, process = self.submit(mode, "run")
        self.strike(job_id, self.random.randrange(2), self.random.randrange(1, STEPS // 2))
        self.await_replacement(job_id, 1)
        result = self.end(process, "run")
        self.assertEqual(result["status"], "done")  # a job is only done when every task of each epoch is trained
        self.assertEqual(result["recovery"]["worker_losses"], 1)
        self.assertEqual(result["examples"], EPOCHS * EXAMPLES)
        self.assertEqual(result["eval"]["examples"], EXAMPLES)
        self.assertAlmostEqual(result["eval"]["auc"], whole["eval"]["auc"], delta=0.05)

    def test_async_trains_every_example(self):
        self.train_with_a_loss("async")

    def test_geo_trains_every_example(self):
        self.train_with_a_loss("geo")

    def test_without_a_spare_worker_the_job_fails_in_time_and_names_the_lost_one(self):
        self.cluster(2)
        supervisor = [e.pid for e in self.endpoints("cluster") if e.role == "supervisor"][-1]
        os.kill(supervisor, signal.SIGKILL)  # nobody starts the worker again
        job_id, process = self.submit("sync", "run", "--set=recovery.wait_s=3")
        pid = self.strike(job_id, 1, 1)
        self.assertEqual(self.exit_code(process, within=60), 1)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["status"], "failed")
        self.assertIn("pid %d" % pid, result["message"])
        self.assertEqual(result["recovery"]["worker_losses"], 1)


if __name__ == "__main__":
    unittest.main()
