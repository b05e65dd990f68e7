"""Jobs with replicas lose no acknowledged update when a pserver dies, and go on when its follower does."""
import json
import os
import random
import re
import signal
import sys
import time
import unittest

from sluice_testing import ADULT, ROOT, TIME_SCALE, SluiceTest, wait_until

sys.path.insert(1, str(ROOT / "tests" / "chaos"))
import counting_oracle  # noqa: E402
from counting_oracle import MEMBERS, PSERVER, Case, CountingTest, Sizes  # noqa: E402
from daemons import Daemons  # noqa: E402

LEASE_S = 3
REPLICAS = "--set=recovery.replicas=1"
OFTEN = "--set=checkpoint.every_s=0.5"
MODES = (("async", ("--a_sync=true",)), ("geo", ("--a_sync=true", "--k_steps=10")))


class ReplicaTest(SluiceTest):
    @classmethod
    def setUpClass(cls):
        cls.seed = int(os.environ.get("SLUICE_TEST_SEED", random.randrange(1 << 30)))
        print("SLUICE_TEST_SEED=%d" % cls.seed, flush=True)

    def output(self, name):
        return (self.tmp / (name + ".out")).read_text()

    def pid_of(self, role, rank, name):
        return [e.pid for e in self.endpoints(name) if (e.role, e.rank) == (role, rank)][-1]

    def scheduler(self, name):
        return next(e.address for e in self.endpoints(name) if e.role == "scheduler")

    def status(self, name):
        done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % self.scheduler(name))
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def complete_copies(self, name):
        """The pservers, as indices, of which there are complete copies."""
        found = set()
        for member in self.status(name).get("members", []):
            for job in member.get("hosted", []):
                found |= {int(copies.get("pserver", 0)) for copies in job.get("copies", []) if copies.get("complete")}
        return found

    def begin(self, name, *flags, pservers=2, epochs=12):
        launcher = self.start_launch("--server_num=%d" % pservers, "--worker_num=2", "--epochs=%d" % epochs, REPLICAS,
                                     "--lease_ms=%d" % (1000 * LEASE_S), *flags, name=name)
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
                self.assertIn("from their copies", result["recovery"]["last"])

    def frames(self, name, rank, old_pid):
        """Frames that the present process of a pserver has counted; 0 while it is the old one."""
        for member in self.status(name).get("members", []):
            if member.get("role") == "ROLE_PSERVER" and int(member.get("rank", 0)) == rank:
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

    def test_when_both_die_the_shards_go_back_to_a_checkpoint(self):
        launcher = self.begin("both", "--a_sync=true", OFTEN, epochs=20)
        for rank in (0, 1):
            os.kill(self.pid_of("pserver", rank, "both"), signal.SIGKILL)
        self.await_copies_again(launcher, "both")
        result = self.result(launcher, "both")
        self.assertEqual(result["recovery"]["pserver_losses"], 2)
        self.assertNotIn("from their copies", result["recovery"]["last"])

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


class ReplicatedDaemons(Daemons):
    """Shows no progress while copies are being made, so that each kill waits for complete ones."""

    def examples(self):
        return super().examples() if self._complete() else 0

    def _complete(self):
        done = self._test.run_program(self._programs / "sluice", "status", "--json", "--scheduler=%s" % self.scheduler)
        members = json.loads(done.stdout)["members"] if done.returncode == 0 else []
        pservers = {int(member.get("rank", 0)): member for member in members if member.get("role") == "ROLE_PSERVER"}
        copied = set()
        for rank, member in pservers.items():
            # The scheduler may not know yet that a process was killed.
            if self._pid("pserver %d" % rank) != int(member.get("pid", 0)):
                return False
            for job in member.get("hosted", []):
                if not job.get("replication", {}).get("complete") or job["replication"].get("error"):
                    return False
                copied |= {int(copies.get("pserver", 0)) for copies in job.get("copies", []) if copies.get("complete")}
        return bool(pservers) and copied == set(pservers)


class CountsTest(CountingTest):
    """Sums are exact although pservers die at random moments, one after another."""

    def test_sums_are_exact_when_pservers_die(self):
        seed = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 30)))
        print("CHAOS_SEED=%d" % seed, flush=True)
        original, sizes_flags = counting_oracle.Daemons, Sizes.flags

        def flags(sizes, case):
            sizes.pservers, sizes.workers, sizes.epochs = min(3, max(2, sizes.pservers)), min(2, sizes.workers), 12
            return sizes_flags(sizes, case) + [REPLICAS]
        counting_oracle.Daemons, Sizes.flags = ReplicatedDaemons, flags
        try:
            for mode, k_steps in (("async", 0), ("geo", 1), ("geo", 10)):
                with self.subTest("%s %d" % (mode, k_steps)):
                    case = Case(seed + k_steps, mode, MEMBERS, kills=2, victims=(PSERVER,), k_steps=k_steps)
                    try:
                        figures = self.count(case)
                    except AssertionError as error:
                        results = [path.read_text() for path in self.tmp.glob("%s-*-%d/out/result.json" % (mode, case.seed))]
                        raise AssertionError("%s\n%s" % (error, [json.loads(text)["recovery"] for text in results]))
                    self.assertEqual((figures.lost, figures.missing, figures.extra), (0, 0, 0))
                    print("%s %d: %d kills, %d losses, %.1f s" % (mode, k_steps, figures.kills, figures.losses,
                                                                  figures.seconds), flush=True)
        finally:
            counting_oracle.Daemons, Sizes.flags = original, sizes_flags


if __name__ == "__main__":
    unittest.main()
