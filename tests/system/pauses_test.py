"""Processes that are stopped for a while and clocks that are set: a job outlives both."""
import json
import os
import re
import signal
import time
import unittest

from sluice_testing import SluiceTest, wait_until

SYNC = ("--server_num=2", "--worker_num=2", "--a_sync=false", "--epochs=30", "--batch_size=64")


class PausesTest(SluiceTest):
    def output(self, name):
        return (self.tmp / (name + ".out")).read_text()

    def start_in_training(self, name, *flags, **kwargs):
        """Starts a sync launch and returns it in its first epochs, with its processes by (role, rank)."""
        launcher = self.start("sluice", "launch", "--job=%s" % self.job(), "--output_dir=%s" % (self.tmp / name),
                              "--log_dir=%s" % (self.tmp / (name + ".log")), *SYNC, *flags, log=name + ".out", **kwargs)

        def trains():
            self.assertIsNone(launcher.poll(), self.output(name))
            return re.search(r"worker \d: epoch \d+ step", self.output(name))
        wait_until(trains, lambda: "training in:\n" + self.output(name))
        return launcher, {(e.role, e.rank): e.pid for e in self.endpoints(name)}

    def job(self):
        path = self.tmp / "small.textproto"
        if not path.exists():
            rows = [(i * 7 % 2, i * 31 % 97 / 97, "abcdefgh"[i * 5 % 8]) for i in range(40000)]
            self.write_csv("train.csv", rows)
            self.small_job()
        return path

    def digest(self, name):
        """Of a job that is done and has lost nobody."""
        result = json.loads((self.tmp / name / "result.json").read_text())
        self.assertEqual(result["status"], "done", result)
        for field in ("worker_losses", "pserver_losses", "scheduler_restarts"):
            self.assertEqual(result["recovery"][field], 0, result["recovery"]["last"])
        return result["model_digest"]

    def assert_outlive(self, seconds, *flags):
        """Runs one job per role at the same time, and stops a process of that role for this long."""
        stopped = {}
        for role, rank in (("scheduler", 0), ("pserver", 1), ("worker", 1)):
            launcher, pids = self.start_in_training(role, *flags)
            os.kill(pids[role, rank], signal.SIGSTOP)  # before the next one starts: this job would soon be over
            stopped[role] = launcher, pids[role, rank], time.monotonic()
        for role, (launcher, pid, since) in stopped.items():
            time.sleep(max(0, since + seconds - time.monotonic()))
            self.assertIsNone(launcher.poll(), self.output(role))
            os.kill(pid, signal.SIGCONT)
        for role, (launcher, _, _) in stopped.items():
            self.assertEqual(self.exit_code(launcher, within=240), 0, self.output(role))
        return [self.digest(role) for role in stopped]

    def test_a_process_stopped_for_eight_seconds_costs_only_the_time(self):
        digests = self.assert_outlive(8)
        calm, _ = self.start_in_training("calm")
        self.assertEqual(self.exit_code(calm, within=240), 0, self.output("calm"))
        self.assertEqual(set(digests), {self.digest("calm")})

    def test_a_scheduler_stopped_for_three_leases_loses_nobody(self):
        launcher, pids = self.start_in_training("run", "--lease_ms=4000")
        os.kill(pids["scheduler", 0], signal.SIGSTOP)
        time.sleep(12.5)  # the members wait for 20 s
        os.kill(pids["scheduler", 0], signal.SIGCONT)
        self.assertEqual(self.exit_code(launcher, within=240), 0, self.output("run"))
        self.digest("run")

    def minutes_ahead(self, log):
        """Of this clock, the newest line in the log, within a day."""
        hour, minute = re.findall(r"^I\d{8} (\d\d):(\d\d):\d\d\.", log.read_text(), re.M)[-1]
        here = time.localtime()
        return ((int(hour) - here.tm_hour) * 60 + int(minute) - here.tm_min) % (24 * 60)

    def test_a_job_outlives_steps_of_the_clock(self):
        env, set_ahead = self.clock_for_test()
        launcher, pids = self.start_in_training("run", "--epochs=100000", "--set=recovery.max_losses=0", env=env)
        for hours in (1, 0, -1, 2):
            set_ahead(hours)
            time.sleep(3)  # a few heartbeats and waiting calls
            self.assertIsNone(launcher.poll(), self.output("run"))
        # The processes see the new time: the next log line is two hours ahead. After its first steps a worker logs one in ten
        # seconds.
        log = self.tmp / "run.log" / "workerlog.0"
        wait_until(lambda: 105 < self.minutes_ahead(log) <= 120, lambda: "the newest line of %s:\n%s" % (log, log.read_text()[-300:]))
        # A silent process is still noticed: the step does not stretch timeouts.
        os.kill(pids["worker", 1], signal.SIGKILL)
        self.assertEqual(self.exit_code(launcher), 1, self.output("run"))


if __name__ == "__main__":
    unittest.main()
