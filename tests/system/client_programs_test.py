"""Programs over sluice.Client train in all modes, and each of their steps counts once, also when processes are killed.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with NumPy.
"""
import json
import os
import re
import signal
import sys
import unittest

from sluice_testing import BIN, DisturbedLaunchTest

PYTHON = os.environ.get("SLUICE_TORCH_PYTHON", "")
if not PYTHON or not list((BIN.parent / "python" / "sluice").glob("_core*.so")):
    print("SKIPPED, NOT PASSED: client_programs_test needs a build with SLUICE_PYTHON and SLUICE_TORCH_PYTHON", file=sys.stderr)
    sys.exit(77)

# Each step adds 1 to a row of its own and to one of its rank, so that the tables tell which steps were applied.
SCRIPT = '''
import argparse, os, time
import numpy as np
import sluice

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--endless", action="store_true")
parser.add_argument("--slow", type=float, default=0)
parser.add_argument("--slow_while", default="/")  # a file: only as long as it is there
parser.add_argument("--one_is_slow", action="store_true")  # rank 1
parser.add_argument("--fail_at", type=int, default=-1)
parser.add_argument("--prefetch", action="store_true")
arguments = parser.parse_args()

table = sluice.SparseTable(1, optimizer=sluice.Optimizer("sgd", learning_rate=1), initializer={"constant": 0})
STEPS = arguments.steps
job = sluice.Job('name: "steps" train { log_every: 5 }')
with sluice.Client({"step": table, "rank": table}, job, steps=None if arguments.endless else STEPS) as client:
    def ids(number):
        return {"step": np.array([1000 * client.rank + number]), "rank": np.array([client.rank, client.rank])}

    def make(number):
        rows = client.pull(**ids(number))  # the gradients of the rank's row add up
        if arguments.prefetch:
            client.prefetch(**ids(number + 1))
        if number == arguments.fail_at:
            raise ZeroDivisionError("in the program")
        assert rows["rank"].shape == (2, 1) and rows["rank"][0] == rows["rank"][1]
        client.push(step=-np.ones((1, 1), np.float32), rank=np.full((2, 1), -0.5, np.float32))
        client.commit(0.5)
        if number % 50 == 0 and arguments.slow == 0:
            try:
                client.wait()
            except RuntimeError as error:
                assert "Geo" in str(error), error
        if number == STEPS - 1:
            print("rank %d makes its last step" % client.rank, flush=True)
        if os.path.exists(arguments.slow_while):
            time.sleep(arguments.slow * (client.rank if arguments.one_is_slow else 1))

    print("rank %d begins with step %d" % (client.rank, client.step), flush=True)
    if arguments.endless:
        for number in client:
            if number == STEPS:
                break
            make(number)
    else:
        client.run(make)
'''

LOOK = '''
import sys
import numpy as np
import sluice
saved = sluice.load_model(sys.argv[1])
workers, steps, moved = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
made = saved.rows("step", [str(1000 * rank + number) for rank in range(workers) for number in range(steps)])
wrong = np.flatnonzero(made[:, 0] != np.float32(moved))
assert len(wrong) == 0, (wrong, made[wrong, 0])
ranks = saved.rows("rank", [str(rank) for rank in range(workers)])
assert (ranks[:, 0] == np.float32(steps * moved)).all(), ranks
'''


# Prints how many steps are lost, and how many shards the tables have.
LOOK_AT_LOSSES = '''
import glob, sys
import numpy as np
import sluice
saved = sluice.load_model(sys.argv[1])
workers, steps, of_cut = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
lost = 0
for rank in range(workers):
    made = saved.rows("step", [str(1000 * rank + number) for number in range(steps)])[:, 0]
    assert set(made) <= {np.float32(0), np.float32(1)}, made  # never twice
    lost += int((made == 0).sum())
    # Shards are cut one after another, and pushes may come between two of them.
    assert abs(saved.rows("rank", [str(rank)])[0, 0] - made.sum()) <= of_cut, (rank, made)
print(lost, len(glob.glob(sys.argv[1] + "/*.shard")))
'''


class ClientProgramsTest(DisturbedLaunchTest):
    def setUp(self):
        super().setUp()
        (self.tmp / "steps.py").write_text(SCRIPT)
        (self.tmp / "look.py").write_text(LOOK)
        (self.tmp / "look_at_losses.py").write_text(LOOK_AT_LOSSES)
        self.slow = self.tmp / "slow"

    def flags(self, *flags, name="run", workers=2, servers=1):
        return ["sluice", "launch", "--program=%s" % (self.tmp / "steps.py"), "--python=%s" % PYTHON,
                "--server_num=%d" % servers, "--worker_num=%d" % workers, "--output_dir=%s" % (self.tmp / name),
                "--log_dir=%s" % (self.tmp / (name + ".log")), *flags]

    def train(self, *flags, name="run", workers=2, arguments=(), expect=0):
        done = self.run_program(*self.flags(*flags, name=name, workers=workers), "--", *arguments)
        self.assertEqual(done.returncode, expect, done.stdout)
        result = self.tmp / name / "result.json"
        return json.loads(result.read_text()) if result.exists() else {}, done.stdout

    def start_training(self, *flags, name="run", servers=1, arguments=()):
        """Trains slowly as long as self.slow is there."""
        self.slow.touch()
        return self.start(*self.flags(*flags, name=name, servers=servers), "--", "--slow=0.1", "--slow_while=%s" % self.slow,
                          *arguments, log=name + ".out")

    def kill(self, launcher, role):
        """Kills a process of a job that trains slowly, and waits until the launcher knows."""
        before = len(self.output())
        self.assertIsNone(launcher.poll(), self.output())
        victim = self.pid_of(role, 0)
        os.kill(victim, signal.SIGKILL)
        self.await_output(launcher, r"\(pid %d\) was killed by signal 9" % victim, after=before)

    def step_reached(self):
        """The newest step that a rank has reported."""
        return int(re.findall(r"step ([\d,]+) loss", self.output())[-1].replace(",", ""))

    def checkpoint(self):
        """Makes a checkpoint, and waits until it is complete."""
        log_dir = "--log_dir=%s" % (self.tmp / "run.log")
        jobs = self.run_program("sluice", "status", "--json", log_dir)
        done = self.run_program("sluice", "checkpoint", log_dir, json.loads(jobs.stdout)["jobs"][0]["job_id"])
        self.assertRegex(done.stdout, r"checkpoint of step \d+: ")

    def check_model(self, name="run", workers=2, steps=300, moved=1.0):
        """Each step was applied once. `moved`: what one adds to a row."""
        done = self.run_program(PYTHON, self.tmp / "look.py", self.tmp / name / "model", str(workers), str(steps), str(moved),
                                env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")))
        self.assertEqual(done.returncode, 0, done.stdout)

    def check_result(self, result, steps=300, workers=2):
        # A step has as many examples as its longest array of ids.
        self.assertEqual(result["examples"], 2 * workers * steps, self.output() if (self.tmp / "run.out").exists() else "")

    def test_each_step_is_applied_once_in_each_mode(self):
        # In sync a step is the mean over the workers.
        for name, moved, mode in (("async", 1, ["--a_sync=true"]), ("sync", 0.5, ["--a_sync=false"]),
                                  ("geo", 1, ["--a_sync=true", "--k_steps=7",
                                              "--set=strategy.a_sync_configs.geo_merge=SUM"])):
            with self.subTest(name):
                result, _ = self.train(*mode, name=name)
                self.check_result(result)
                self.check_model(name, moved=moved)
            with self.subTest(name, prefetch=True):
                result, _ = self.train(*mode, name=name + "-prefetch", arguments=["--prefetch"])
                self.check_result(result)
                self.check_model(name + "-prefetch", moved=moved)

    def test_a_program_without_a_number_of_steps_ends_when_all_have_left(self):
        result, _ = self.train("--a_sync=true", arguments=["--endless", "--steps=40"])
        self.check_result(result, steps=40)
        self.check_model(steps=40)
        _, out = self.train("--a_sync=false", name="sync", arguments=["--endless", "--steps=40"], expect=1)
        self.assertRegex(out, r"sync mode needs the number of steps.*steps=N")

    def test_a_script_by_itself(self):
        done = self.run_program(PYTHON, self.tmp / "steps.py", "--steps=20",
                                env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")))
        self.assertEqual(done.returncode, 0, done.stdout)
        model, = self.tmp.glob("output/*/model")
        self.check_model(model.parent.relative_to(self.tmp), workers=1, steps=20)

    def test_an_error_fails_the_job_with_its_traceback(self):
        result, out = self.train(arguments=["--fail_at=7"], expect=1)
        self.assertRegex(out, r"(?s)failed: .*Traceback.*steps\.py.*ZeroDivisionError: in the program")
        self.assertIn("ZeroDivisionError", result["message"])

    def test_several_epochs_are_refused_before_the_first_step(self):
        for mode in ("--a_sync=true", "--a_sync=false"):
            with self.subTest(mode):
                result, out = self.train(mode, "--epochs=2", name=mode[2:], expect=1)
                self.assertRegex(out, r"train\.epochs is 2: a job of sluice\.Client has one epoch")
                self.assertEqual(result["examples"], 0)

    def check_after_kill(self, role, *flags, servers=1, moved=1.0, past_checkpoint=False, arguments=()):
        launcher = self.start_training(*flags, servers=servers, arguments=arguments)
        if past_checkpoint:
            # The newest checkpoint is of step 40 or a few steps later, and the next one comes long after the kill.
            self.await_output(launcher, r"checkpoint of step \d+ is complete")
            self.await_step(launcher, 60)
        else:
            self.await_step(launcher, self.random.randrange(10, 60))
        self.kill(launcher, role)
        self.slow.unlink()
        result = self.result(launcher)
        self.check_result(result)
        self.check_model(moved=moved)
        return result["recovery"]

    def test_async_steps_are_exact_after_a_kill_of_a_worker(self):
        self.assertEqual(self.check_after_kill("worker", "--a_sync=true")["worker_losses"], 1)

    def test_prefetched_steps_are_exact_after_a_kill_of_a_worker(self):
        recovery = self.check_after_kill("worker", "--a_sync=true", "--set=train.pipeline_depth=3", arguments=["--prefetch"])
        self.assertEqual(recovery["worker_losses"], 1)

    def test_a_worker_that_is_killed_after_its_last_step_has_nothing_left_to_do(self):
        launcher = self.start_training("--a_sync=true", arguments=["--one_is_slow"])
        self.await_output(launcher, "rank 0 makes its last step")
        self.kill(launcher, "worker")
        self.slow.unlink()
        result = self.result(launcher)
        self.check_result(result)
        self.assertEqual(result["recovery"]["worker_losses"], 1)
        self.check_model()

    def test_async_steps_are_exact_after_a_kill_of_a_pserver_with_a_replica(self):
        recovery = self.check_after_kill("pserver", "--a_sync=true", "--set=recovery.replicas=1", servers=2)
        self.assertEqual((recovery["pserver_losses"], recovery["updates_lost"]), (1, 0))

    def test_async_counts_are_exact_after_a_kill_of_a_pserver_without_a_replica(self):
        """Its shards go back to the checkpoint, and lack what they had acknowledged since."""
        # No checkpoint comes by itself.
        launcher = self.start_training("--a_sync=true", "--set=checkpoint.every_steps=100000", "--set=train.log_every=1")
        self.await_step(launcher, 10)
        before = self.step_reached()
        self.checkpoint()
        self.await_output(launcher, r"step \d+ loss", after=len(self.output()))
        after = self.step_reached()
        self.await_step(launcher, after + 5)
        self.kill(launcher, "pserver")
        self.slow.unlink()
        result = self.result(launcher)
        self.check_result(result)
        recovery = result["recovery"]
        self.assertEqual((recovery["pserver_losses"], recovery["rollbacks"]), (1, 0))
        of_cut = after - before + 1  # steps that a rank may have made between the cuts of two shards
        done = self.run_program(PYTHON, self.tmp / "look_at_losses.py", self.tmp / "run" / "model", "2", "300", str(of_cut),
                                env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")))
        self.assertEqual(done.returncode, 0, done.stdout)
        rows_lost, shards = map(int, done.stdout.split()[-2:])
        self.assertGreater(rows_lost, 0)
        # All shards were on this pserver. Each lacks the lost steps, but for those of either rank beside its own cut.
        self.assertLessEqual(abs(recovery["updates_lost"] - rows_lost * shards), 2 * of_cut * shards)

    def test_sync_steps_are_exact_after_a_kill_of_a_worker(self):
        self.assertEqual(self.check_after_kill("worker", "--a_sync=false", moved=0.5)["worker_losses"], 1)

    def test_sync_steps_are_made_again_after_a_kill_of_a_pserver(self):
        recovery = self.check_after_kill("pserver", "--a_sync=false", "--set=checkpoint.every_steps=40", moved=0.5,
                                         past_checkpoint=True, arguments=["--prefetch"])
        self.assertEqual(recovery["pserver_losses"], 1)
        back = re.findall(r"the job went back to step (\d+)", self.output())
        self.assertGreaterEqual(int(back[0]), 40)

    def test_a_resumed_job_goes_on_with_the_next_step(self):
        for name, mode, moved in (("sync", "--a_sync=false", 0.5), ("async", "--a_sync=true", 1)):
            with self.subTest(name):
                flags = self.flags(mode, "--set=checkpoint.every_steps=40", name=name)
                launcher = self.start_training(mode, "--set=checkpoint.every_steps=40", name=name)
                self.await_output(launcher, r"checkpoint of step \d+ is complete", name=name)
                launcher.kill()
                launcher.wait()
                self.await_none_left()
                self.slow.unlink()
                done = self.run_program(*flags, "--resume", "--", "--slow=0.1", "--slow_while=%s" % self.slow)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertRegex(done.stdout, r"rank 0 begins with step [1-9]")
                self.check_model(name, moved=moved)

    def test_ctrl_c_in_a_script_by_itself_cancels_the_job(self):
        script = self.start(PYTHON, "-u", self.tmp / "steps.py", "--slow=0.05",
                            env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")), log="run.out")
        self.await_step(script, 5)
        script.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(script), -signal.SIGINT, self.output())
        result, = self.tmp.glob("output/*/result.json")
        self.assertEqual(json.loads(result.read_text())["status"], "cancelled")


if __name__ == "__main__":
    unittest.main()
