"""Tables whose keys get a row only after some updates (admit), and which drop rows at their limit (evict)."""
import json
import os
import random
import signal
import unittest
import urllib.request

from sluice_testing import DisturbedLaunchTest, kill_unless_over, processes_naming, wait_until

LINES = 4000
LIMIT = 600
POLICY = '--set=tables=[{name: "embedding" max_rows: %d evict {} admit { after: 2 sketch_kib: 1024 }}]' % LIMIT
EVERY_20 = "--set=checkpoint.every_steps=20"


class RowLimitsTest(DisturbedLaunchTest):
    def setUp(self):
        super().setUp()
        source = random.Random(7)
        # Popularity drifts: each value is common for a while, and others are seen once.
        self.write_csv("train.csv", [(source.randint(0, 1), source.randint(0, 9),
                                      "v%d" % (i // 4 + source.randint(0, 300) if i % 3 else i + 10000))
                                     for i in range(LINES)])
        self.job = self.small_job(train="train.csv")

    def flags(self, *more, pservers=2, epochs=6, sync=True):
        return ["--a_sync=%s" % ("false" if sync else "true"), "--worker_num=2", "--server_num=%d" % pservers,
                "--threads=1", "--epochs=%d" % epochs, "--set=data.shuffle=false", POLICY, *more]

    def assert_drops(self, result):
        """The table has dropped and refused rows, and is near its limit. The figures are those of the last reports."""
        (table,) = result["tables"]
        self.assertEqual((table["name"], table["row_limit"]), ("embedding", LIMIT))
        self.assertGreater(table["rows_evicted"], 0)
        self.assertGreater(table["rows_refused"], 0)
        # A shard has at most one step's new rows more than its share.
        self.assertLess(table["rows"], 1.5 * LIMIT)

    def test_sync_ends_with_the_same_bits_on_any_pservers_and_after_losses(self):
        expected, out = self.launch(*self.flags(pservers=1), job=self.job, name="one")
        self.assertEqual(expected["status"], "done", out)
        self.assert_drops(expected)
        free, _ = self.launch("--a_sync=false", "--worker_num=2", "--server_num=1", "--threads=1", "--epochs=6",
                              "--set=data.shuffle=false", job=self.job, name="free")
        self.assertNotEqual(free["model_digest"], expected["model_digest"])
        for pservers in (3, 9):
            result, out = self.launch(*self.flags(pservers=pservers), job=self.job, name="of_%d" % pservers)
            self.assertEqual(result["model_digest"], expected["model_digest"], "%d pservers" % pservers)
        # A pserver dies, and the job goes back to its newest checkpoint.
        launcher = self.start_launch(*self.flags(EVERY_20), job=self.job, name="killed")
        self.await_step(launcher, self.random.randrange(100, 300), "killed")
        before = len(self.output("killed"))
        os.kill(self.pid_of("pserver", 1, "killed"), signal.SIGKILL)
        self.await_output(launcher, "recovering", "killed", before)
        result = self.result(launcher, "killed")
        self.assertEqual(result["model_digest"], expected["model_digest"])
        self.assertGreaterEqual(result["recovery"]["rollbacks"], 1)
        # All processes die, and the job is resumed on other pservers.
        launcher = self.start_launch(*self.flags(EVERY_20), job=self.job, name="resumed")
        self.await_step(launcher, self.random.randrange(100, 300), "resumed")
        # A slow disk may have none at that step.
        wait_until(lambda: any((self.tmp / "resumed" / "checkpoints").glob("step-*/MANIFEST")), "a checkpoint")
        for pid, _ in processes_naming(str(self.tmp)):
            kill_unless_over(pid)
        launcher.wait()
        self.await_none_left()
        result, out = self.launch(*self.flags(EVERY_20, "--resume", pservers=3), job=self.job, name="resumed")
        self.assertTrue(result["recovery"]["resumed_from"], out)
        self.assertEqual(result["model_digest"], expected["model_digest"])

    def test_async_keeps_its_limit_and_says_what_rows_did(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        self.sluice("submit", log_dir, "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / "async"), "--detach",
                    *[flag for flag in self.flags(epochs=10000, sync=False) if not flag.startswith("--server_num")])

        def evicted():
            text = self.sluice("status", log_dir)
            return text if "evicted" in text and "updates refused" in text else None

        text = wait_until(evicted, lambda: self.sluice("status", log_dir))
        self.assertIn("of at most %d rows" % LIMIT, text)
        address = self.admin_addresses(log_dir)["pserver 0"]
        with urllib.request.urlopen("http://%s/metrics" % address) as page:
            metrics = page.read().decode()
        for name in ("row_limit", "rows_evicted_total", "rows_refused_total"):
            self.assertIn("sluice_pserver_%s{" % name, metrics)
        job = self.status(log_dir)["jobs"][0]["job_id"]
        self.sluice("cancel", log_dir, job)
        wait_until(lambda: (self.tmp / "async" / "result.json").exists(), "a result")
        self.assert_drops(json.loads((self.tmp / "async" / "result.json").read_text()))


if __name__ == "__main__":
    unittest.main()
