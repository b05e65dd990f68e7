"""Whoever dies or hangs in the middle of a job ends it soon, with a message that names it; nothing stays behind."""
import json
import os
import re
import signal
import unittest

from sluice_testing import SluiceTest, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
BOUND = 30  # seconds from a death to the launcher's end
AFTER_THE_LAUNCHER = 10  # it waits for its processes: only the kernel still has to do with them
LEASE = "--lease_ms=5000"


class FailureTest(SluiceTest):
    def start_long_job(self, mode, *flags):
        """A launch in the middle of its training, and its endpoints by (role, rank)."""
        launcher = self.start_launch("--server_num=2", "--worker_num=3", "--epochs=100000", LEASE, *MODES[mode], *flags)
        self.wait_for_line(launcher, r"worker \d: epoch \d+ step")
        return launcher, {(e.role, e.rank): e for e in self.endpoints()}

    def output(self):
        return (self.tmp / "run.out").read_text()

    def wait_for_line(self, launcher, pattern):
        def found():
            self.assertIsNone(launcher.poll(), self.output())
            return re.search(pattern, self.output())

        return wait_until(found, lambda: "%s in:\n%s" % (pattern, self.output()))

    def end_of(self, launcher):
        wait_until(lambda: launcher.poll() is not None, lambda: "the end of\n" + self.output(), within=BOUND)
        return launcher.returncode

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
        self.await_none_left(AFTER_THE_LAUNCHER)

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

        def others_wait():  # not for a moment, as in every step
            done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % endpoints["scheduler", 0].address)
            self.assertEqual(done.returncode, 0, done.stdout)
            text = json.loads(done.stdout)["jobs"][0]["waiting_for"]
            waits = re.search(r"waits for commit \d+ of rank 2 \(([\d.]+) s\)", text)
            if waits:
                return float(waits.group(1)) >= 0.5  # of the 5 s of its lease
            return re.search(r"waits for rank 2 \(worker 2 \(pid %d .* to end phase eval" % slow.pid, text)
        wait_until(others_wait, "the others to wait for the step that it does not close")
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
        self.await_none_left(BOUND)

    def test_killed_launcher_leaves_nothing_that_hangs(self):
        launcher, endpoints = self.start_long_job("sync")
        for role, rank in (("scheduler", 0), ("pserver", 0), ("worker", 1)):
            os.kill(endpoints[role, rank].pid, signal.SIGSTOP)
        launcher.kill()
        launcher.wait()
        self.await_none_left(BOUND)

    def assert_cancelled_by(self, mode, number, code):
        launcher, _ = self.start_long_job(mode)
        launcher.send_signal(number)
        self.assertEqual(self.end_of(launcher), code, self.output())
        self.assertEqual(self.result()["status"], "cancelled")
        self.await_none_left(AFTER_THE_LAUNCHER)

    def test_interrupt_cancels(self):
        self.assert_cancelled_by("sync", signal.SIGINT, 130)
        self.assert_cancelled_by("geo", signal.SIGINT, 130)

    def test_terminate_cancels(self):
        self.assert_cancelled_by("async", signal.SIGTERM, 143)

    def test_hang_up_cancels(self):
        self.assert_cancelled_by("async", signal.SIGHUP, 129)

    def test_interrupt_with_a_hanging_worker_still_ends(self):
        launcher, endpoints = self.start_long_job("sync")
        os.kill(endpoints["worker", 0].pid, signal.SIGSTOP)
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.end_of(launcher), 130, self.output())
        self.await_none_left(AFTER_THE_LAUNCHER)


if __name__ == "__main__":
    unittest.main()
