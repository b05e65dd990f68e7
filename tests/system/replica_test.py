"""Jobs with replicas lose no acknowledged update when a pserver dies, and continue when its follower does."""
import json
import os
import re
import signal
import sys
import time
import unittest

from sluice_testing import ADULT, ROOT, SEED, TIME_SCALE, SluiceTest, wait_until

sys.path.insert(1, str(ROOT / "tests" / "chaos"))
from counting_oracle import MEMBERS, PSERVER, Case, CountingTest  # noqa: E402

LEASE_S = 10
ATTEMPTS = 3  # to kill both pservers of a job while it trains
PATIENCE_S = 5  # of a primary with a silent follower (JobResources.follower_patience)
REPLICAS = "--set=recovery.replicas=1"
OFTEN = "--set=checkpoint.every_s=0.5"
MODES = (("async", ("--a_sync=true",)), ("geo", ("--a_sync=true", "--k_steps=10")))


class ReplicaTest(SluiceTest):
    @classmethod
    def setUpClass(cls):
        print("SLUICE_TEST_SEED=%d" % SEED, flush=True)

    def output(self, name):
        return (self.tmp / (name + ".out")).read_text()

    def pid_of(self, role, rank, name):
        return [e.pid for e in self.endpoints(name) if (e.role, e.rank) == (role, rank)][-1]

    def scheduler(self, name):
        return next(e.address for e in self.endpoints(name) if e.role == "scheduler")

    def status(self, name):
        seen = self.scheduler_status(self.tmp / (name + ".log"))
        if seen:
            return seen
        done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % self.scheduler(name))
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def complete_copies(self, name):
        """The pservers, as indices, of which there are complete copies."""
        found = set()
        for member in self.status(name).get("members", []):
            for job in member.get("hosted", []):
                found |= {int(copies.get("pserver", 0)) for copies in job.get("copies", []) if copies.get("complete")}
        return found

    def begin(self, name, *flags, pservers=2, epochs=20, lease_s=LEASE_S):
        launcher = self.start_launch("--server_num=%d" % pservers, "--worker_num=2", "--epochs=%d" % epochs, REPLICAS,
                                     "--lease_ms=%d" % (1000 * lease_s), *flags, name=name)
        self.await_step(launcher, 1, name)
        self.await_copies(name, pservers)
        return launcher

    def await_copies(self, name, pservers=2):
        wait_until(lambda: len(self.complete_copies(name)) == pservers,
                   lambda: "complete copies of all pservers:\n%s" % self.output(name))

    def await_step(self, launcher, more, name):
        """Waits until the job has made `more` more steps."""
        def last():
            steps = re.findall(r"step ([\d,]+) loss", self.output(name))
            self.assertTrue(launcher.poll() is None, self.output(name))
            return int(steps[-1].replace(",", "")) if steps else 0
        begin = last()
        wait_until(lambda: last() >= begin + more, lambda: "%d steps more:\n%s" % (more, self.output(name)))

    def result(self, launcher, name):
        self.assertEqual(self.exit_code(launcher, 180), 0, self.output(name))
        result = json.loads((self.tmp / name / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        return result

    def test_a_pserver_that_is_killed_loses_nothing_and_is_replaced_within_two_leases(self):
        for mode, flags in MODES:
            with self.subTest(mode):
                launcher = self.begin(mode, *flags)
                for rank in (0, 1):
                    pid = self.pid_of("pserver", rank, mode)
                    os.kill(pid, signal.SIGKILL)
                    killed = time.monotonic()
                    wait_until(lambda: self.frames(mode, rank, pid) > 0,
                               lambda: "a push at the successor:\n%s" % self.output(mode))
                    took = time.monotonic() - killed
                    print("%s: %.2f s from kill -9 of pserver %d to the first push that its successor has accepted; "
                          "the lease is %d s" % (mode, took, rank, LEASE_S), flush=True)
                    self.assertLess(took, 2 * LEASE_S * TIME_SCALE)
                    self.await_copies(mode)
                result = self.result(launcher, mode)
                self.assertEqual(result["recovery"]["pserver_losses"], 2)
                self.assertEqual(result["recovery"]["updates_lost"], 0)
                self.assertEqual(result["recovery"]["rollbacks"], 0)
                self.assertNotIn("/checkpoints/", result["recovery"]["last"])

    def frames(self, name, rank, old_pid):
        """Frames that the present process of a pserver has counted; 0 while it is the old one."""
        for member in self.status(name).get("members", []):
            if member.get("role") == "pserver" and int(member.get("rank", 0)) == rank:
                if int(member.get("pid", 0)) == old_pid:
                    return 0
                return sum(int(job.get("frames_applied", 0)) for job in member.get("hosted", []))
        return 0

    def test_a_pserver_that_is_stopped_loses_nothing(self):
        # Every frame has a part for every pserver, so training waits for a pserver that is stopped.
        launcher = self.begin("stopped", "--a_sync=true", OFTEN, epochs=20)
        for seconds in (1, LEASE_S + 2):  # the second time its lease expires: another process takes over
            pid = self.pid_of("pserver", 1, "stopped")
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
            self.await_step(launcher, 50, "stopped")
            self.await_copies("stopped")
        result = self.result(launcher, "stopped")
        self.assertEqual(result["recovery"]["updates_lost"], 0)
        self.assertEqual(result["recovery"]["rollbacks"], 0)

    def test_a_follower_that_is_stopped_for_less_than_its_lease_is_given_up_and_gets_copies_again(self):
        # Both give each other up, in routes that overlap: the primary that was stopped finds its follower silent, too.
        launcher = self.begin("silent", "--a_sync=true", "--set=train.step_timeout_s=%d" % (30 * TIME_SCALE), epochs=20,
                              lease_s=6 * PATIENCE_S)
        pid = self.pid_of("pserver", 1, "silent")
        os.kill(pid, signal.SIGSTOP)
        try:
            # For its silence; or, if nothing was unconfirmed when it was stopped, for the keepalive of its stream.
            wait_until(lambda: "no copies at the follower" in self.pserver_log("silent", 0),
                       lambda: "the end of patience:\n%s" % self.pserver_log("silent", 0))
        finally:
            os.kill(pid, signal.SIGCONT)
        self.await_step(launcher, 50, "silent")
        self.await_copies("silent")
        result = self.result(launcher, "silent")
        self.assertEqual(result["recovery"]["pserver_losses"], 0)
        self.assertEqual(result["recovery"]["updates_lost"], 0)
        self.assertEqual(result["recovery"]["rollbacks"], 0)

    def pserver_log(self, name, rank):
        return (self.tmp / (name + ".log") / ("serverlog.%d" % rank)).read_text(errors="replace")

    def test_when_both_die_the_shards_go_back_to_a_checkpoint(self):
        launcher = self.begin("both", "--a_sync=true", OFTEN, epochs=20)
        wait_until(lambda: list((self.tmp / "both" / "checkpoints").glob("step-*/MANIFEST")), "a checkpoint")
        for rank in (0, 1):
            os.kill(self.pid_of("pserver", rank, "both"), signal.SIGKILL)
        self.await_copies_again(launcher, "both")
        result = self.result(launcher, "both")
        self.assertEqual(result["recovery"]["pserver_losses"], 2)
        self.assertEqual(result["recovery"]["rollbacks"], 0)
        self.assertRegex(result["recovery"]["last"], r"/checkpoints/step-\d+ .*\bpserver \d")

    def await_copies_again(self, launcher, name):
        def again():
            return launcher.poll() is not None or len(self.complete_copies(name)) == 2
        wait_until(again, lambda: "copies after the loss of both:\n%s" % self.output(name))

    def test_one_pserver_cannot_have_replicas(self):
        done = self.run_program("sluice", "launch", "--job=%s" % ADULT, "--server_num=1", "--worker_num=1", "--a_sync=true",
                                REPLICAS, "--output_dir=%s" % (self.tmp / "one"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("recovery.replicas", done.stdout)
        self.assertIn("--server_num", done.stdout)


class CountsTest(CountingTest):
    """Sums are exact although pservers die at random moments, one after another."""

    def test_sums_are_exact_when_pservers_die(self):
        seed = int(os.environ.get("CHAOS_SEED", SEED))
        print("CHAOS_SEED=%d" % seed, flush=True)
        for mode, k_steps in (("async", 0), ("geo", 1), ("geo", 10)):
            with self.subTest("%s %d" % (mode, k_steps)):
                # On a busy machine a job may be over before its second kill: then another one is tried.
                for attempt in range(ATTEMPTS):
                    figures = self.count(Case(seed + k_steps + 100 * attempt, mode, MEMBERS, kills=2, victims=(PSERVER,),
                                              k_steps=k_steps, replicas=True))
                    if figures.kills == 2:
                        break
                self.assertEqual((figures.kills, figures.losses), (2, 2), "the job was over before a kill")
                print("%s %d: %d kills, %d losses, %.1f s" % (mode, k_steps, figures.kills, figures.losses,
                                                              figures.seconds), flush=True)


if __name__ == "__main__":
    unittest.main()
