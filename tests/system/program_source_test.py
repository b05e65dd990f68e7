"""PyTorch programs that give their own data (`source=`) train under `sluice launch --program`, also when processes are killed.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with torch and numpy.
"""
import collections
import json
import os
import re
import signal
import sys
import time
import unittest

from sluice_testing import BIN, ROOT, DisturbedLaunchTest, kill_unless_over, wait_until

PYTHON = os.environ.get("SLUICE_TORCH_PYTHON", "")
if not PYTHON or not list((BIN.parent / "python" / "sluice").glob("_core*.so")):
    print("SKIPPED, NOT PASSED: program_source_test needs a build with SLUICE_PYTHON and SLUICE_TORCH_PYTHON", file=sys.stderr)
    sys.exit(77)

# 20 kills take more than 4 minutes, too long for each run of all tests.
KILLS = int(os.environ.pop("SLUICE_TEST_KILLS", "3"))  # programs refuse variables that they do not know
KILLS_A_MINUTE = 5
ONE_THREAD = dict(os.environ, OMP_NUM_THREADS="1")  # bits depend on the number of threads
BATCH = 32
ROWS = BATCH * 2 * 50
EVAL_ROWS = 700

SCRIPT = '''
import argparse, os, time
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
import sluice, sluice.torch

BATCH = %(batch)d
parser = argparse.ArgumentParser()
parser.add_argument("--files", action="store_true")  # the native reader gives the data
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--epoch_steps", type=int)
parser.add_argument("--loader", type=int, default=0)  # processes of a DataLoader
parser.add_argument("--endless", action="store_true")
parser.add_argument("--short", type=int, default=0)  # batches that rank 1 lacks
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--slow", type=float, default=0)  # seconds a batch
parser.add_argument("--slow_while", default="/")  # a file: only as long as it is there
parser.add_argument("--fail_at", type=int, default=-1)
parser.add_argument("--break_at", type=int, default=-1)
parser.add_argument("--score", action="store_true")  # the saved model, with the batches of the evaluation
arguments = parser.parse_args()

TABLE = np.loadtxt(%(folder)r + "/train.csv", delimiter=",", dtype=np.int64)
EVAL = np.loadtxt(%(folder)r + "/eval.csv", delimiter=",", dtype=np.int64)
FEATURES = """
  features { name: "age" numeric { z_score { mean: 40 stddev: 16 } } }
  features { name: "user" categorical {} }
  features { name: "item" key: RAW categorical {} }
  optimizers { all { adagrad {} learning_rate: 0.05 } }
  train { batch_size: %(batch)d epochs: EPOCHS seed: 3 }
"""
FILES = """
  data { format: CSV train_files: "%(folder)s/train.csv" csv { columns: ["label", "age", "user", "item"] }
         label { column: "label" } shuffle: false shuffle_lanes: 1 }
"""


class Batches(torch.utils.data.Dataset):
    """Batches of a table, dealt to the ranks in turn."""

    def __init__(self, table, rank, world, start, short=0):
        self.table, self.rank, self.world, self.start = table, rank, world, start
        self.short = short if rank == 1 else 0

    def __len__(self):
        n = -(-len(self.table) // (BATCH * self.world)) - self.start
        return max(n - self.short, 0)

    def __getitem__(self, i):
        if i >= len(self):
            raise IndexError
        number = self.start + i
        if number == arguments.fail_at:
            raise ZeroDivisionError("a batch that cannot be read")
        if arguments.slow and os.path.exists(arguments.slow_while):
            time.sleep(arguments.slow)
        first = (number * self.world + self.rank) * BATCH
        rows = self.table[first:first + BATCH]
        return {"label": torch.from_numpy(rows[:, 0]), "age": torch.from_numpy(rows[:, 1].astype(np.float32)),
                "user": torch.from_numpy(rows[:, 2]), "item": torch.from_numpy(rows[:, 3:4]),
                "number": number, "rows": torch.from_numpy(rows)}


def source(rank, world, epoch, start):
    print("rank %%d reads epoch %%d from batch %%d" %% (rank, epoch + 1, start), flush=True)
    made = Batches(TABLE, rank, world, start, arguments.short)
    if arguments.endless:
        return endless(rank, world, start)
    if arguments.loader:
        return torch.utils.data.DataLoader(made, batch_size=None, num_workers=arguments.loader)
    return made


def endless(rank, world, start):
    made = Batches(TABLE, rank, world, 0)
    for number in range(start, 10**9):
        yield made[number %% len(made)]


def eval_source(rank, world):
    return Batches(EVAL, rank, world, 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection("embedding", 4, features=["user", "item"])
        self.mlp = nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, batch):
        return self.mlp(torch.cat([self.embedding(batch).flatten(1), batch.numbers], dim=1)).squeeze(1)


def main():
    torch.manual_seed(1)
    model = Net()
    text = FEATURES.replace("EPOCHS", str(arguments.epochs)) + (FILES if arguments.files else "")
    own = {} if arguments.files else {"source": source, "epoch_steps": arguments.epoch_steps,
                                      "eval_source": eval_source if arguments.evaluate else None}
    first_users = {"first": lambda batch, output: (float((batch.rows[:, 2] == 0).sum()), len(batch))}
    own["metrics"] = first_users if arguments.evaluate else None
    with sluice.torch.worker(model, sluice.Job(text), predict=model, **own) as worker:
        for batch in worker:
            if not arguments.files:
                # What the job does not know arrives with its batch.
                assert torch.equal(batch["rows"][:, 0].float(), batch.label)
                assert torch.equal(batch.rows[:, 3], batch["rows"][:, 3]) and batch["number"] >= 0
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))
            if batch.step == arguments.break_at:
                break
    if arguments.score and worker.is_main:
        score(worker)


def score(worker):
    model = Net()
    saved = sluice.torch.load(model, worker.model_dir)
    model.eval()
    n = len(EVAL)
    padded = np.stack([np.full(n, -99), EVAL[:, 3]], axis=1)
    for item, more in (((EVAL[:, 3], np.arange(n + 1)), {}), (padded, {"padding": -99}), ([[k] for k in EVAL[:, 3]], {})):
        batch = saved.batch({"label": EVAL[:, 0], "age": EVAL[:, 1], "user": EVAL[:, 2], "item": item}, **more)
        with torch.no_grad():
            loss = float(F.binary_cross_entropy_with_logits(model(batch), batch.label))
        print("scored", n, "examples:", abs(loss - worker.result["eval"]["log_loss"]) < 1e-6)


if __name__ == "__main__":
    main()
'''


class ProgramSourceTest(DisturbedLaunchTest):
    def setUp(self):
        super().setUp()
        for name, rows in (("train", ROWS), ("eval", EVAL_ROWS)):
            lines = []
            for i in range(rows):
                user, item, age = (i * 7919) % 211, (i * 104729) % 97 - 3, 18 + (i * 31) % 50
                lines.append("%d,%d,%d,%d" % ((user * 3 + item * 5 + age) % 7 < 3, age, user, item))
            (self.tmp / (name + ".csv")).write_text("\n".join(lines) + "\n")
        (self.tmp / "train.py").write_text(SCRIPT % {"batch": BATCH, "folder": str(self.tmp)})

    def flags(self, *flags, name, workers):
        return ["sluice", "launch", "--program=%s" % (self.tmp / "train.py"), "--python=%s" % PYTHON, "--server_num=1",
                "--worker_num=%d" % workers, "--output_dir=%s" % (self.tmp / name), "--log_dir=%s" % (self.tmp / (name + ".log")),
                "--set=train.log_every=5", *flags]

    def train(self, *flags, name="run", workers=2, arguments=(), expect=0):
        """Returns the result and the output."""
        done = self.run_program(*self.flags(*flags, name=name, workers=workers), "--", *arguments, env=ONE_THREAD)
        self.assertEqual(done.returncode, expect, done.stdout)
        result = self.tmp / name / "result.json"
        return json.loads(result.read_text()) if result.exists() else {}, done.stdout

    def start_training(self, *flags, arguments=()):
        return self.start(*self.flags(*flags, name="run", workers=2), "--", *arguments, env=ONE_THREAD, log="run.out")

    def test_the_values_train_as_the_native_readers_do(self):
        digests = []
        for name, arguments in (("files", ["--files"]), ("own", [])):
            result, _ = self.train("--a_sync=false", name=name, workers=1, arguments=arguments)
            self.assertEqual(result["examples"], 2 * ROWS)
            digests.append(result["model_digest"])
        self.assertEqual(digests[0], digests[1])

    def check_same_bits_after_kill(self, role, rank, *flags):
        undisturbed, _ = self.train("--a_sync=false", name="undisturbed", arguments=["--epochs=30"])
        launcher = self.start_training("--a_sync=false", *flags, arguments=["--epochs=30"])
        self.await_step(launcher, self.random.randrange(60, 400))
        kill_unless_over(self.pid_of(role, rank), signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual(result["model_digest"], undisturbed["model_digest"], self.output())
        self.assertEqual(result["examples"], 30 * ROWS)
        return result["recovery"]

    def test_a_killed_worker_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("worker", 1)["worker_losses"], 1)

    def test_a_killed_pserver_changes_no_bit(self):
        recovery = self.check_same_bits_after_kill("pserver", 0, "--set=checkpoint.every_steps=50")
        self.assertEqual(recovery["pserver_losses"], 1)

    def test_a_killed_scheduler_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("scheduler", 0)["scheduler_restarts"], 1)

    def test_async_counts_are_exact_after_a_kill_of_a_worker_with_loaders(self):
        launcher = self.start_training("--a_sync=true", arguments=["--epochs=2", "--loader=2", "--slow=0.1"])
        self.await_step(launcher, 15)
        killed = self.pid_of("worker", 0)
        kill_unless_over(killed, signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual(result["recovery"]["worker_losses"], 1)
        self.assertEqual(result["examples"], 2 * ROWS, self.output())
        # The loaders of the killed worker end by themselves.
        self.await_none_left()

    def await_all_members(self, launcher):
        """Waits until the job trains with all its members."""
        def look():
            self.assertIsNone(launcher.poll(), self.output())
            done = self.run_program("sluice", "status", "--json", "--log_dir=%s" % (self.tmp / "run.log"))
            job = next(iter(json.loads(done.stdout)["jobs"] if done.returncode == 0 else ()), {})
            return (job.get("state"), job.get("message", ""), job.get("waiting_for", ""), job.get("workers_alive")) == (
                "running", "", "", 2)
        return wait_until(look, self.output)

    def test_async_counts_are_exact_after_many_kills(self):
        slow, epochs = self.tmp / "slow", 10 + 10 * KILLS
        slow.touch()
        launcher = self.start_training("--a_sync=true", "--set=checkpoint.every_steps=200",
                                       arguments=["--epochs=%d" % epochs, "--slow=0.05", "--slow_while=%s" % slow])
        killed = collections.Counter()
        times = []
        for number in range(KILLS):
            self.await_all_members(launcher)
            # One process may die only so often (RestartPolicy).
            pause = times[-KILLS_A_MINUTE] + 60 - time.monotonic() if number >= KILLS_A_MINUTE else 0
            time.sleep(max(pause, 0) + self.random.uniform(0, 3))
            role = ("worker", "pserver", "scheduler")[number % 3]
            victim = self.pid_of(role, self.random.randrange(2) if role == "worker" else 0)
            print("kill %d: %s" % (number + 1, role), flush=True)
            self.assertIsNone(launcher.poll(), self.output())
            os.kill(victim, signal.SIGKILL)
            times.append(time.monotonic())
            killed[role] += 1
            wait_until(lambda: "(pid %d) was killed by signal 9" % victim in self.output(), self.output)
        self.await_all_members(launcher)
        slow.unlink()
        result = self.result(launcher)
        self.assertEqual([epoch["examples"] for epoch in result["epochs_log"]], epochs * [ROWS], self.output())
        self.assertEqual(result["examples"], epochs * ROWS)
        recovery = result["recovery"]
        self.assertEqual((recovery["worker_losses"], recovery["pserver_losses"], recovery["scheduler_restarts"]),
                         (killed["worker"], killed["pserver"], killed["scheduler"]), self.output())

    def test_evaluation_and_ranks_of_different_length(self):
        result, out = self.train("--a_sync=false", arguments=["--epoch_steps=50", "--short=10", "--evaluate", "--score"])
        self.assertEqual(result["examples"], 2 * (ROWS - 10 * BATCH), out)
        self.assertEqual(result["eval"]["examples"], EVAL_ROWS)
        self.assertAlmostEqual(result["eval"]["user"]["first"], len(range(0, EVAL_ROWS, 211)) / EVAL_ROWS)
        self.assertEqual(out.count("scored %d examples: True" % EVAL_ROWS), 3, out)
        # Without epoch_steps nobody knows how many steps to make.
        _, out = self.train("--a_sync=false", name="unequal", arguments=["--short=10"], expect=1)
        self.assertRegex(out, "rank 1 has 40 batches.*epoch_steps")

    def test_an_endless_source_ends_with_the_epochs_steps(self):
        for name, mode in (("async", ["--a_sync=true"]), ("sync", ["--a_sync=false"]), ("geo", ["--a_sync=true", "--k_steps=7"]),
                           ("collective", ["--a_sync=false", "--set=strategy.sync_configs.dense=COLLECTIVE"])):
            result, out = self.train(*mode, name=name, arguments=["--endless", "--epoch_steps=20"])
            self.assertEqual(result["examples"], 2 * 2 * 20 * BATCH, out)
        _, out = self.train("--a_sync=false", name="unknown", arguments=["--endless"], expect=1)
        self.assertRegex(out, "does not say how many batches.*epoch_steps")

    def test_a_break_ends_a_job_with_an_endless_source(self):
        for mode in ("true", "false"):
            result, out = self.train("--a_sync=" + mode, name="run" + mode,
                                     arguments=["--endless", "--epoch_steps=100000", "--break_at=15", "--evaluate"])
            self.assertEqual(result["stopped_by"], "program", out)
            self.assertEqual(result["eval"]["examples"], EVAL_ROWS, out)

    def test_an_error_of_the_source_fails_the_job_with_its_traceback(self):
        result, out = self.train("--a_sync=true", arguments=["--fail_at=7"], expect=1)
        self.assertRegex(out, r"(?s)failed: .*Traceback.*train\.py.*ZeroDivisionError: a batch that cannot be read")
        self.assertIn("ZeroDivisionError", result["message"])

    def test_the_example_of_the_guide_trains(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
        (block,) = [block for block in blocks if "source=source" in block]
        (self.tmp / "train.py").write_text("""import torch
from torch import nn
from torch.nn import functional as F
import sluice
import sluice.torch
torch.manual_seed(1)
""" + block)
        for name, mode in (("async", "true"), ("sync", "false")):
            result, out = self.train("--a_sync=" + mode, name=name)
            self.assertEqual(result["examples"], 2 * 4000, out)
            self.assertEqual(result["eval"]["examples"], 1000, out)

    def test_a_job_without_data_is_refused(self):
        script = (self.tmp / "train.py").read_text()
        (self.tmp / "train.py").write_text(script.replace('"source": source, ', ""))
        _, out = self.train(arguments=["--epochs=1"], expect=1)
        self.assertRegex(out, "name data.train_files, or give.*source=")

    def test_a_resumed_job_goes_on_at_the_same_batch(self):
        undisturbed, _ = self.train("--a_sync=false", name="undisturbed", arguments=["--epochs=30"])
        flags = ["--a_sync=false", "--set=checkpoint.every_steps=70"]
        launcher = self.start_training(*flags, arguments=["--epochs=30"])
        self.await_output(launcher, r"checkpoint of step \d+ is complete")
        launcher.kill()
        launcher.wait()
        self.await_none_left()
        result, out = self.train(*flags, "--resume", arguments=["--epochs=30"])
        self.assertIn("resumes from", out)
        self.assertEqual(result["model_digest"], undisturbed["model_digest"], out)


if __name__ == "__main__":
    unittest.main()
