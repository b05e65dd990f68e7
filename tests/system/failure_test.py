"""A process that dies or hangs ends a job that may lose none, soon, with a message that names it. Nothing stays behind.

recovery_test.py has the jobs that survive.
"""
import json
import math
import os
import re
import signal
import time
import unittest

from sluice_testing import ADULT, PATIENCE, SluiceTest, kill_unless_over, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=20"]}
BOUND = 30  # seconds from a death or a pause to the launcher's end
AFTER_THE_LAUNCHER = 10  # the launcher has waited for its processes; only the kernel may need a moment
LEASE = "--lease_ms=5000"
FRAGILE = ("--set", "recovery.max_losses=0")


class FailureTest(SluiceTest):
    def start_long_job(self, mode, *flags):
        """Starts a launch and returns it while it trains, with its endpoints by (role, rank)."""
        # An earlier one of the same test may have been interrupted.
        launcher = self.start_launch("--overwrite", "--server_num=2", "--worker_num=3", "--epochs=100000", *MODES[mode], *FRAGILE, *flags)
        self.wait_for_line(launcher, r"worker \d: epoch \d+ step")
        return launcher, {(e.role, e.rank): e for e in self.endpoints()}

    def output(self):
        return (self.tmp / "run.out").read_text()

    def wait_for_line(self, launcher, pattern):
        def found():
            self.assertIsNone(launcher.poll(), self.output())
            return re.search(pattern, self.output())

        return wait_until(found, lambda: "%s in:\n%s" % (pattern, self.output()))

    def end_of(self, launcher, within=BOUND):
        wait_until(lambda: launcher.poll() is not None, lambda: "the end of\n" + self.output(), within)
        return launcher.returncode

    def result(self):
        return json.loads((self.tmp / "run" / "result.json").read_text())

    def assert_fails_naming(self, launcher, endpoint, within=BOUND):
        self.assertNotIn(self.end_of(launcher, within), (0, None))
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
        self.assert_fails_naming(launcher, victim, within=PATIENCE)
        result = self.result()
        self.assertEqual(result["status"], "failed")
        self.assertIn("%s %d (" % (role, rank), result["message"])
        self.assertIn("pid %d" % victim.pid, result["message"])
        # Either the launcher, as the parent, or the scheduler, which asks the system, sees the death first.
        self.assertRegex(result["message"], "killed by signal 9|process has ended")
        self.assertNotIn("heartbeat", result["message"])

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

    def test_worker_that_dies_while_others_wait_for_it_at_a_barrier(self):
        launcher, endpoints = self.start_long_job("sync")
        slow = endpoints["worker", 2]
        os.kill(slow.pid, signal.SIGSTOP)

        def others_wait():  # for longer than in every step
            done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % endpoints["scheduler", 0].address)
            self.assertEqual(done.returncode, 0, done.stdout)
            text = json.loads(done.stdout)["jobs"][0]["waiting_for"]
            waits = re.search(r"waits for commit \d+ of rank 2 \(([\d.]+) s\)", text)
            if waits:
                return float(waits.group(1)) >= 0.5
            return re.search(r"waits for rank 2 \(worker 2 \(pid %d .* to end phase eval" % slow.pid, text)
        wait_until(others_wait, "the others to wait for the step that it does not close")
        os.kill(slow.pid, signal.SIGKILL)
        self.assert_fails_naming(launcher, slow)
        self.assertEqual(self.result()["status"], "failed")

    def test_hanging_worker_is_ended_by_its_lease(self):
        for mode in ("sync", "async"):
            launcher, endpoints = self.start_long_job(mode, LEASE)
            hung = endpoints["worker", 1]
            os.kill(hung.pid, signal.SIGSTOP)
            self.assert_fails_naming(launcher, hung)
            self.assertRegex(self.result()["message"], r"\b\d+(\.\d+)? ?s\b")

    def test_hanging_pserver_is_ended_by_its_lease(self):
        launcher, endpoints = self.start_long_job("sync", LEASE)
        hung = endpoints["pserver", 1]
        os.kill(hung.pid, signal.SIGSTOP)
        self.assert_fails_naming(launcher, hung)

    def seconds_after_a_kill_in_the_save(self, attempt):
        """Until the launcher ends. Infinite when the job was over before the worker could be killed."""
        name = "run%d" % attempt
        launcher = self.start_launch("--server_num=1", "--worker_num=2", "--epochs=1", *MODES["sync"], name=name)
        output = self.tmp / (name + ".out")
        while launcher.poll() is None and "running, save" not in output.read_text():
            time.sleep(0.002)
        victim = next(e for e in self.endpoints(name) if (e.role, e.rank) == ("worker", 1))
        killed = launcher.poll() is None and kill_unless_over(victim.pid)
        then = time.monotonic()
        self.exit_code(launcher)
        return time.monotonic() - then if killed else math.inf

    def test_a_worker_killed_during_or_after_the_save_delays_nobody(self):
        self.assert_once_within(4, self.seconds_after_a_kill_in_the_save, attempts=10)

    def seconds_to_stop_after_a_death(self, attempt):
        log_dir = self.up("--server_num=1", "--worker_num=2", "--lease_ms=600000", name="cluster%d" % attempt)
        job = self.start("sluice", "submit", "--log_dir=%s" % log_dir, "--job=%s" % ADULT, "--epochs=100000",
                         "--output_dir=%s" % (self.tmp / "run"), *MODES["sync"], *FRAGILE, log="submit.out")
        wait_until(lambda: "running, train" in (self.tmp / "submit.out").read_text(), "the job trains")
        victim = next(m for m in self.status(log_dir)["members"] if m["role"] == "worker" and m.get("rank"))
        os.kill(victim["pid"], signal.SIGKILL)
        self.assertEqual(self.exit_code(job), 1)
        message = self.result()["message"]
        self.assertIn("pid %d" % victim["pid"], message)
        # The supervisor sees it die; the scheduler looks for the process itself.
        self.assertRegex(message, "its process (was killed by signal 9|has ended)")
        then = time.monotonic()
        self.sluice("down", log_dir)
        return time.monotonic() - then

    def test_a_death_in_a_lasting_cluster_is_noticed_before_the_lease_and_delays_no_stop(self):
        self.assert_once_within(4, self.seconds_to_stop_after_a_death)

    def test_killed_launcher_leaves_nothing(self):
        launcher, _ = self.start_long_job("async")
        launcher.kill()
        launcher.wait()
        self.await_none_left(BOUND)

    def test_killed_launcher_leaves_no_hanging_process(self):
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
        result = self.result()
        self.assertEqual(result["status"], "cancelled")
        self.await_none_left(AFTER_THE_LAUNCHER)
        # It has saved where it was, and says how to continue.
        newest = result["checkpoints"]["newest"]
        self.assertEqual(self.run_program("sluice", "ckpt", "verify", newest).returncode, 0, result)
        command = self.output().splitlines()[-1]
        self.assertRegex(command, "^  sluice launch --job=.* --resume$")
        return command, newest

    def test_interrupt_cancels(self):
        self.assert_cancelled_by("sync", signal.SIGINT, 130)
        self.assert_cancelled_by("geo", signal.SIGINT, 130)

    def test_terminate_cancels(self):
        self.assert_cancelled_by("async", signal.SIGTERM, 143)

    def test_hang_up_cancels(self):
        self.assert_cancelled_by("async", signal.SIGHUP, 129)

    def test_a_second_interrupt_ends_at_once_though_a_worker_hangs(self):
        launcher, endpoints = self.start_long_job("sync")
        os.kill(endpoints["worker", 0].pid, signal.SIGSTOP)
        launcher.send_signal(signal.SIGINT)
        self.wait_for_line(launcher, "stopping")
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.end_of(launcher, PATIENCE), -signal.SIGINT, self.output())
        self.await_none_left(AFTER_THE_LAUNCHER)


if __name__ == "__main__":
    unittest.main()
