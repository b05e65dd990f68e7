"""Tables whose rows expire: a sync job ends with the same bits on any number of pservers and after a loss; days go on."""
import os
import signal
import unittest

from sluice_testing import DisturbedLaunchTest, wait_until

BATCH = 40
DAY = 60 * BATCH  # examples of a day
FRESH = 400  # keys that a day brings and no other has
SYNC = ("--a_sync=false", "--threads=1", "--worker_num=2")
EPOCHS = "--epochs=50"  # the progress lags behind the job, which must not end before the kill


class RowLifetimeTest(DisturbedLaunchTest):
    def write_day(self, day):
        """A day's examples: keys of this day alone, and some that each day has."""
        rows = []
        for i in range(DAY):
            # A key of the day is in 4 examples of an epoch, in shuffled order, so that it expires and comes back.
            own = "d%d_%d" % (day, i * FRESH // DAY)
            rows.append((int((i * 7919 + day) % 5 < 2), i % 13 / 13.0, own if i % 3 else "all%d" % (i % 17)))
        folder = self.tmp / ("day=2026-11-%02d" % day)
        folder.mkdir()
        return self.write_csv("%s/part.csv" % folder.name, rows)

    def job_of_days(self, *days, expire):
        paths = [self.write_day(day) if not (self.tmp / ("day=2026-11-%02d" % day)).exists()
                 else self.tmp / ("day=2026-11-%02d" % day) / "part.csv" for day in days]
        files = '"\n  train_files: "'.join(str(path) for path in paths)
        return self.small_job(files, extra="""
tables { name: "embedding" expire { %s } }
checkpoint { every_steps: 20 }""" % expire).rename(self.tmp / ("days%s.textproto" % "_".join(map(str, days))))

    def test_expiry_leaves_the_same_bits_on_any_placement_and_after_a_loss(self):
        job = self.job_of_days(1, expire="after_steps: 15")
        shape = (*SYNC, EPOCHS, "--batch_size=%d" % (BATCH // 2))
        expected, _ = self.launch(*shape, "--server_num=1", job=job, name="one")
        kept, _ = self.launch(*shape, "--server_num=1", "--set=tables[0].expire.after_steps=100000", job=job, name="kept")
        self.assertNotEqual(kept["model_digest"], expected["model_digest"], "rows must go")
        for pservers in (3, 9):
            other, _ = self.launch(*shape, "--server_num=%d" % pservers, job=job, name="on%d" % pservers)
            self.assertEqual(other["model_digest"], expected["model_digest"])
            self.assertEqual([e["loss"] for e in other["epochs_log"]], [e["loss"] for e in expected["epochs_log"]])
        launcher = self.start_launch(*shape, "--server_num=3", job=job, name="killed")
        self.await_step(launcher, self.random.randrange(1, 300), "killed")
        os.kill(self.pid_of("pserver", 1, "killed"), signal.SIGKILL)
        result = self.result(launcher, "killed")
        self.assertEqual(result["recovery"]["pserver_losses"], 1)
        self.assertEqual(result["model_digest"], expected["model_digest"])

    def test_an_interrupted_job_resumes_to_the_same_bits(self):
        job = self.job_of_days(1, expire="after_steps: 15")
        shape = (*SYNC, EPOCHS, "--batch_size=%d" % (BATCH // 2), "--server_num=2")
        expected, _ = self.launch(*shape, job=job, name="whole")
        launcher = self.start_launch(*shape, job=job, name="run")
        self.await_step(launcher, self.random.randrange(30, 300))
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130)
        resumed, _ = self.launch(*shape, "--resume", job=job, name="run")
        self.assertNotEqual(resumed["recovery"]["resumed_from"], "")
        self.assertEqual(resumed["model_digest"], expected["model_digest"])

    def test_days_end_rows_of_earlier_ones(self):
        shape = (*SYNC, "--batch_size=%d" % (BATCH // 2), "--epochs=1")
        digests = {}
        for pservers in (1, 3):
            start = ()
            for day in (1, 2, 4):
                name = "day%d_%d" % (day, pservers)
                result, _ = self.launch(*shape, "--server_num=%d" % pservers, *start, name=name,
                                        job=self.job_of_days(day, expire="after_days: 1"))
                digests.setdefault(day, set()).add(result["model_digest"])
                start = ("--set=initial_checkpoint=%s" % (self.tmp / name),)
        for day, of_day in digests.items():
            self.assertEqual(len(of_day), 1, day)
        # Day 2 is more than one day before day 4, so that its own keys are gone.
        sizes = {day: sum(path.stat().st_size for path in (self.tmp / ("day%d_1" % day) / "model").glob("embedding*.shard"))
                 for day in (1, 2, 4)}
        self.assertGreater(sizes[2], sizes[1])
        self.assertLess(sizes[4], sizes[2])
        self.assertIn('day: "2026-11-04"', (self.tmp / "day4_1" / "job.textproto").read_text())
        # Days do not go back.
        refused, out = self.launch(*shape, "--set=initial_checkpoint=%s" % (self.tmp / "day4_1"), name="back", expect=None,
                                   job=self.job_of_days(2, expire="after_days: 1"))
        self.assertIsNone(refused, out)
        for word in ("data.day", "2026-11-02", "2026-11-04"):
            self.assertIn(word, out)

    def test_replicas_hold_what_their_primaries_hold(self):
        """An async job of one worker has the same bits in each run, also if it goes on with the copies of a lost pserver.

        A sync job takes no replicas: it goes back to its checkpoint."""
        job = self.job_of_days(1, expire="after_steps: 15")
        shape = ("--worker_num=1", "--threads=1", "--epochs=60", "--batch_size=%d" % BATCH, "--server_num=3",
                 "--set=train.pipeline_depth=1")
        expected, _ = self.launch(*shape, job=job, name="without")
        (table,) = expected["tables"]
        self.assertGreater(table["rows_expired"], 0)
        # The lease outlasts the stop of the worker, during which the job cannot end.
        launcher = self.start_launch(*shape, "--set=recovery.replicas=1", "--lease_ms=600000", job=job, name="run")
        self.await_step(launcher, self.random.randrange(30, 300))
        worker = self.pid_of("worker", 0)
        os.kill(worker, signal.SIGSTOP)

        def copies():
            hosted = [one for member in self.status(self.tmp / "run.log")["members"] for one in member.get("hosted", [])]
            return [copy["pserver"] for one in hosted for copy in one.get("copies", []) if copy.get("complete")]
        wait_until(lambda: len(copies()) == 3, copies)
        os.kill(self.pid_of("pserver", 1), signal.SIGKILL)
        os.kill(worker, signal.SIGCONT)
        result = self.result(launcher)
        self.assertEqual(result["recovery"]["pserver_losses"], 1)
        self.assertEqual(result["recovery"]["worker_losses"], 0)
        self.assertEqual(result["recovery"]["updates_lost"], 0)
        self.assertEqual(result["recovery"]["rollbacks"], 0)
        self.assertEqual(result["model_digest"], expected["model_digest"])


if __name__ == "__main__":
    unittest.main()
