"""The harness strikes the processes it was given, by a plan that a seed repeats."""
import io
import os
import signal
import subprocess
import sys
import time
import unittest

from kill_harness import KILL, PAUSE, KillHarness, Strike

WAIT = 20  # seconds until a test gives up


def state(process):
    """R, S, T (stopped), Z ..."""
    with open("/proc/%d/stat" % process.pid) as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class KillHarnessTest(unittest.TestCase):
    def setUp(self):
        self.children = {}
        self.out = io.StringIO()
        self.addCleanup(lambda: [self.end(child) for child in list(self.children.values())])

    def end(self, child):
        child.kill()
        child.wait()

    def start(self, name):
        self.children[name] = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return self.children[name]

    def getter(self, name):
        return lambda: self.children[name].pid if name in self.children else None

    def harness(self, *names, seed=1):
        return KillHarness({name: self.getter(name) for name in names}, seed, self.out)

    def plan(self, seed, names=("a", "b", "c")):
        return self.harness(*names, seed=seed).plan(20, last=60, first=5, actions=(KILL, PAUSE), longest_pause_s=3)

    # -------------------------------------------------------------------------------------------------- the plan

    def test_a_seed_repeats_the_plan(self):
        plan = self.plan(1)
        self.assertEqual(plan, self.plan(1, ("c", "b", "a")))
        self.assertNotEqual(plan, self.plan(2))
        self.assertEqual({(one.victim, one.action) for one in plan},
                         {(name, action) for name in "abc" for action in (KILL, PAUSE)})
        self.assertEqual(sorted(plan, key=lambda one: one.at), plan)
        self.assertTrue(all(5 <= one.at <= 60 for one in plan))
        self.assertTrue(all((one.pause_s > 0) == (one.action == PAUSE) and one.pause_s <= 3 for one in plan))
        for one in plan:
            self.assertIn("plan: %s" % one, self.out.getvalue())

    def test_the_environment_gives_the_seed(self):
        old = os.environ.get("SLUICE_FAULT_SEED")
        os.environ["SLUICE_FAULT_SEED"] = "4"
        try:
            replayed = self.plan(None)
        finally:
            del os.environ["SLUICE_FAULT_SEED"]
            if old is not None:
                os.environ["SLUICE_FAULT_SEED"] = old
        self.assertEqual(replayed, self.plan(4))
        self.assertIn("SLUICE_FAULT_SEED=4", self.out.getvalue())

    def test_a_second_plan_differs_and_unknown_victims_are_refused(self):
        harness = self.harness("a", "b")
        self.assertNotEqual(harness.plan(5, last=9), harness.plan(5, last=9))
        self.assertEqual({one.victim for one in harness.plan(20, last=9, victims=["b"])}, {"b"})
        with self.assertRaises(ValueError):
            harness.plan(5, last=9, victims=["x"])

    # ------------------------------------------------------------------------------------------------- execution

    def test_kills_the_victim_and_its_successor_only(self):
        first, other = self.start("a"), self.start("b")
        harness = self.harness("a", "b")
        made = harness.run([Strike(0, "a", KILL)])
        self.assertEqual(first.wait(WAIT), -signal.SIGKILL)
        second = self.start("a")
        made += harness.run([Strike(0, "a", KILL)])
        self.assertEqual(second.wait(WAIT), -signal.SIGKILL)
        self.assertIsNone(other.poll())
        self.assertEqual(len(made), 2)
        for victim in (first, second):
            self.assertIn("kill a (pid %d)" % victim.pid, self.out.getvalue())

    def test_a_pause_ends_in_time(self):
        child = self.start("a")
        states = []
        begin = time.monotonic()
        made = self.harness("a").run([Strike(0, "a", PAUSE, 1)],
                                     ended=lambda: states.append(state(child)) or time.monotonic() - begin > WAIT)
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        self.assertEqual(len(made), 1)
        self.assertIn("T", states)
        self.assertNotEqual(state(child), "T")
        self.assertIsNone(child.poll())

    def test_whatever_ends_the_run_paused_processes_continue(self):
        child = self.start("a")
        seen = []

        def fails():
            seen.append(state(child))
            if seen[-1] == "T":
                raise RuntimeError("the test fails")
            return False
        with self.assertRaises(RuntimeError):
            self.harness("a").run([Strike(0, "a", PAUSE, 600)], ended=fails)
        deadline = time.monotonic() + WAIT
        while state(child) == "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertNotEqual(state(child), "T")

    def test_progress_triggers_and_the_end_stops_the_plan(self):
        child = self.start("a")
        steps = iter(range(1000))
        at = []

        def progress():
            at.append(next(steps))
            return at[-1]
        made = self.harness("a").run([Strike(1e9, "a", KILL), Strike(7, "a", KILL)], progress,
                                     ended=lambda: len(at) > 20)
        self.assertEqual(made, [Strike(7, "a", KILL)])
        self.assertEqual(child.wait(WAIT), -signal.SIGKILL)
        self.assertGreater(len(at), 7)

    def test_a_victim_that_is_restarted_is_waited_for_and_one_that_stays_away_is_left_out(self):
        dead = self.start("a")
        self.end(dead)  # its pid no longer exists
        made = self.harness("a", "b").run([Strike(0, "a", KILL), Strike(0, "b", KILL)], wait_for_victim_s=0.05)
        self.assertEqual(made, [])
        self.assertEqual(self.out.getvalue().count("left out"), 2)
        looks = []

        def restarted():
            looks.append(1)
            if len(looks) == 3:
                self.start("a")
            return False
        made = self.harness("a").run([Strike(0, "a", KILL)], ended=restarted, wait_for_victim_s=WAIT)
        self.assertEqual(len(made), 1)
        self.assertEqual(self.children["a"].wait(WAIT), -signal.SIGKILL)

    def test_a_dead_child_that_nobody_has_waited_for_is_no_victim(self):
        child = self.start("a")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(self.harness("a").run([Strike(0, "a", KILL)], wait_for_victim_s=0.05), [])

    def test_own_and_system_pids_are_refused(self):
        for pid in (os.getpid(), 1, 0, -1):
            with self.assertRaises(ValueError):
                KillHarness({"a": lambda pid=pid: pid}, 1, self.out).run([Strike(0, "a", KILL)])


if __name__ == "__main__":
    unittest.main()
