"""Whoever dies or hangs in the middle of a job ends it soon, with a message that names it; nothing stays behind."""
import json
import os
import re
import signal
import time
import unittest

from sluice_testing import SluiceTest, processes_naming, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
BOUND = 30  # seconds from a death to the launcher's end
LEASE = "--lease_ms=2000"


class FailureTest(SluiceTest):
    def start_long_job(self, mode, *flags):
        """A launch in the middle of its training, and its endpoints by (role, rank)."""
        launcher = self.start_launch("--server_num=2", "--worker_num=3", "--epochs=500", LEASE, *MODES[mode], *flags)
        self.wait_for_line(launcher, r"worker \d: epoch \d+ step")
        return launcher, {(e.role, e.rank): e for e in self.endpoints()}

    def output(self):
        return (self.tmp / "run.out").read_text()

    def wait_for_line(self, launcher, pattern):
        def found():
            self.assertIsNone(launcher.poll(), self.output())
            return re.search(pattern, self.output())

        return wait_until(found, 30, lambda: "%s in:\n%s" % (pattern, self.output()))

    def end_of(self, launcher, seconds=BOUND):
        wait_until(lambda: launcher.poll() is not None, seconds, lambda: "the end of\n" + self.output())
        return launcher.returncode

    def wait_all_gone(self, seconds):
        wait_until(lambda: not processes_naming(str(self.tmp)), seconds,
                   lambda: "still running: %s" % processes_naming(str(self.tmp)))

    def result(self):
        return json.loads((self.tmp / "run" / "result.json").read_text())

    def assert_fails_naming(self, launcher, endpoint):
        self.assertNotIn(self.end_of(launcher), (0, None))
        output = self.output()
        self.assertRegex(output, r"sluice-%s rank %d \(pid %d\)|%s %d \([^)]*pid %d " % (
            endpoint.role, endpoint.rank, endpoint.pid, endpoint.role, endpoint.rank, endpoint.pid))
        last = output.splitlines()[-1]
        self.assertIn("pid %d" % endpoint.pid, last)
        self.assertIn("%s" % endpoint.role, last)
        self.wait_all_gone(2)

    def kill_member(self, mode, role, rank):
        launcher, endpoints = self.start_long_job(mode)
        victim = endpoints[role, rank]
        os.kill(victim.pid, signal.SIGKILL)
        self.assert_fails_naming(launcher, victim)
        result = self.result()
        self.assertEqual(result["status"], "failed")
        self.assertIn("%s %d (" % (role, rank), result["message"])
        self.assertIn("pid %d" % victim.pid, result["message"])

    def test_killed_worker_ends_sync(self):
        self.kill_member("sync", "worker", 1)

    def test_killed_worker_ends_async(self):
        self.kill_member("async", "worker", 0)

    def test_killed_worker_ends_geo(self):
        self.kill_member("geo", "worker", 2)

    def test_killed_pserver_ends_sync(self):
        self.kill_member("sync", "pserver", 0)

    def test_killed_pserver_ends_async(self):
        self.kill_member("async", "pserver", 1)

    def test_killed_pserver_ends_geo(self):
        self.kill_member("geo", "pserver", 1)

    def test_killed_scheduler_ends_the_launch(self):
        for mode in ("sync", "async"):
            launcher, endpoints = self.start_long_job(mode)
            victim = endpoints["scheduler", 0]
            os.kill(victim.pid, signal.SIGKILL)
            self.assert_fails_naming(launcher, victim)

    def test_worker_that_dies_while_others_wait_for_it_at_a_barrier(self):
        launcher, endpoints = self.start_long_job("sync")
        slow = endpoints["worker", 2]
        os.kill(slow.pid, signal.SIGSTOP)
        time.sleep(0.5)  # less than the lease: the others have come to the step it does not close
        os.kill(slow.pid, signal.SIGKILL)
        self.assert_fails_naming(launcher, slow)
        self.assertEqual(self.result()["status"], "failed")

    def test_hanging_worker_is_ended_by_its_lease(self):
        for mode in ("sync", "async"):
            launcher, endpoints = self.start_long_job(mode)
            hung = endpoints["worker", 1]
            os.kill(hung.pid, signal.SIGSTOP)
            self.assert_fails_naming(launcher, hung)
            self.assertIn("no heartbeat for", self.result()["message"])

    def test_hanging_pserver_is_ended_by_its_lease(self):
        launcher, endpoints = self.start_long_job("sync")
        hung = endpoints["pserver", 1]
        os.kill(hung.pid, signal.SIGSTOP)
        self.assert_fails_naming(launcher, hung)

    def test_killed_launcher_leaves_nothing(self):
        launcher, _ = self.start_long_job("async")
        launcher.kill()
        launcher.wait()
        self.wait_all_gone(5)

    def test_killed_launcher_leaves_nothing_that_hangs(self):
        launcher, endpoints = self.start_long_job("sync")
        for role, rank in (("scheduler", 0), ("pserver", 0), ("worker", 1)):
            os.kill(endpoints[role, rank].pid, signal.SIGSTOP)
        launcher.kill()
        launcher.wait()
        self.wait_all_gone(10)

    def assert_cancelled_by(self, mode, number, code):
        launcher, _ = self.start_long_job(mode)
        launcher.send_signal(number)
        self.assertEqual(self.end_of(launcher, 15), code, self.output())
        self.assertEqual(self.result()["status"], "cancelled")
        self.wait_all_gone(1)

    def test_interrupt_cancels(self):
        self.assert_cancelled_by("sync", signal.SIGINT, 130)
        self.assert_cancelled_by("geo", signal.SIGINT, 130)

    def test_terminate_cancels(self):
        self.assert_cancelled_by("async", signal.SIGTERM, 143)

    def test_interrupt_with_a_hanging_worker_still_ends(self):
        launcher, endpoints = self.start_long_job("sync")
        os.kill(endpoints["worker", 0].pid, signal.SIGSTOP)
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.end_of(launcher, 20), 130, self.output())
        self.wait_all_gone(1)


if __name__ == "__main__":
    unittest.main()
