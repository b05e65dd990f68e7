"""PyTorch programs that give their own data (`source=`) train under `sluice launch --program`, also when processes are killed.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with torch and numpy.
"""
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from sluice_testing import BIN, ROOT, TIME_SCALE, DisturbedLaunchTest, kill_unless_over, wait_until

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
LEASE_S = 30

SCRIPT = '''
import argparse, os, time
began = time.monotonic()
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
import sluice, sluice.torch
print("imports took %%.3f s" %% (time.monotonic() - began), flush=True)

BATCH = %(batch)d
parser = argparse.ArgumentParser()
parser.add_argument("--files", action="store_true")  # the native reader gives the data
parser.add_argument("--table", action="store_true")  # a table of Arrow gives the data
parser.add_argument("--mixed", action="store_true")  # with --table: dicts give the data of the evaluation
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--epoch_steps", type=int)
parser.add_argument("--loader", type=int, default=0)  # processes of a DataLoader
parser.add_argument("--stateful", action="store_true")  # the source is a loader with a state
parser.add_argument("--shuffled", action="store_true")  # the source is a loader that shuffles
parser.add_argument("--late", default="/none")  # rank 0 starts when this file is gone
parser.add_argument("--endless", action="store_true")
parser.add_argument("--short", type=int, default=0)  # batches that rank 1 lacks
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--slow", type=float, default=0)  # seconds a batch
parser.add_argument("--slow_while", default="/")  # a file: only as long as it is there
parser.add_argument("--fail_at", type=int, default=-1)
parser.add_argument("--break_at", type=int, default=-1)
parser.add_argument("--score", action="store_true")  # the saved model, with the batches of the evaluation
arguments = parser.parse_args()
while os.environ["RANK"] == "0" and os.path.exists(arguments.late):
    time.sleep(0.02)

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


class Loader:
    """As torchdata's StatefulDataLoader."""

    def __init__(self):
        self.made = Batches(TABLE, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 0)
        self.at = self.loaded = 0

    def __len__(self):
        return len(self.made)

    def __iter__(self):
        self.at, self.loaded = self.loaded, 0
        while self.at < len(self.made):
            self.at += 1
            yield self.made[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.loaded = state["at"]


def endless(rank, world, start):
    made = Batches(TABLE, rank, world, 0)
    for number in range(start, 10**9):
        yield made[number %% len(made)]


def eval_source(rank, world):
    return Batches(EVAL, rank, world, 0)


def table_of(rows):
    import pyarrow as pa

    # Text has the keys of the same text in a file. The table's own batches end elsewhere than the job's.
    columns = {"label": pa.array(rows[:, 0]), "age": pa.array(rows[:, 1], pa.float64()),
               "user": pa.array([str(user) for user in rows[:, 2]]).dictionary_encode(),
               "item": pa.array([[item] for item in rows[:, 3]], pa.list_(pa.int16()))}
    return pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=45))


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
    if arguments.stateful:
        own["source"] = Loader()
    if arguments.shuffled:
        own["source"] = torch.utils.data.DataLoader(Loader().made, batch_size=None, shuffle=True)
    if arguments.table:
        own = {"source": table_of(TABLE), "eval_source": table_of(EVAL) if arguments.evaluate else None}
    if arguments.mixed:
        own["eval_source"] = eval_source
        text += 'data { label { column: "label" } }'
    first_users = {"first": lambda batch, output: (float((batch.rows[:, 2] == 0).sum()), len(batch))}
    own["metrics"] = first_users if arguments.evaluate and not arguments.table else None
    with sluice.torch.worker(model, sluice.Job(text), predict=model, **own) as worker:
        for batch in worker:
            # The loader has the data of the rank for which it was made.
            assert not arguments.stateful or worker.rank == int(os.environ["RANK"])
            if not arguments.files and not arguments.table:
                # What the job does not know arrives with its batch.
                assert torch.equal(batch["rows"][:, 0].float(), batch.label)
                assert torch.equal(batch.rows[:, 3], batch["rows"][:, 3]) and batch["number"] >= 0
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))
            if arguments.files and arguments.slow and os.path.exists(arguments.slow_while):
                time.sleep(arguments.slow)
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


# Columns of many types, read from a Parquet file by the native readers, or given as a table.
COLUMNS_SCRIPT = '''
import sys
import torch
from torch import nn
from torch.nn import functional as F
import sluice, sluice.torch

COLUMNS = """label { column: "clicked" positive: "yes" } weight_column: "w" csv { missing: "-" }"""
FEATURES = """
  features { name: "age" numeric { log: true z_score { mean: 3 stddev: 0.7 } default_value: 30 } }
  features { name: "since" numeric { column: "at" z_score { mean: 1750000000 stddev: 4000 } } }
  features { name: "vector" numeric { dim: 2 } }
  features { name: "ages" numeric { column: "age" boundaries: [25, 40, 60] } }
  features { name: "u*" categorical { hash_buckets: 50 } }
  features { name: "item" key: RAW categorical {} }
  features { name: "site" categorical { vocabulary: ["s1", "s2"] missing_is_value: true } }
  features { name: "tags" categorical { multi_value_delimiter: "|" pooling: MEAN } }
  features { name: "seen" categorical { pooling: MEAN } }
  features { name: "hour" categorical { column: "at" date_part: HOUR } }
  features { name: "both" cross { features: ["ages", "site"] } }
  optimizers { all { adagrad {} learning_rate: 0.05 } }
  train { batch_size: 64 epochs: 2 seed: 3 }
"""
LOOKED_UP = ["ages", "user", "item", "site", "tags", "seen", "hour", "both"]
PATH = %(folder)r + "/rows.parquet"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = sluice.torch.EmbeddingCollection("embedding", 4, features=LOOKED_UP)
        self.out = nn.Linear(4 * len(LOOKED_UP) + 4, 1)

    def forward(self, batch):
        return self.out(torch.cat([self.embedding(batch).flatten(1), batch.numbers], dim=1)).squeeze(1)


torch.manual_seed(1)
model = Net()
if sys.argv[1] == "table":
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(PATH, read_dictionary=["site"])
    own = {"source": table, "eval_source": table}
    for of in (table, table.to_reader()):
        assert sluice.torch._source.columns_of(of, sluice._core) == table.column_names
    data = "data { " + COLUMNS + " }"
else:
    own = {}
    data = ("data { format: PARQUET train_files: '" + PATH + "' eval_files: '" + PATH + "' shuffle: false shuffle_lanes: 1 "
            + COLUMNS + " }")
if sys.argv[1] in ("dict", "wildcard"):
    own = {"source": lambda rank, world, epoch, start: []}
    data = ""
if sys.argv[1] == "wildcard":
    FEATURES = """features { name: "u*" categorical {} }"""
with sluice.torch.worker(model, sluice.Job(FEATURES + data), predict=model, **own) as worker:
    for batch in worker:
        losses = F.binary_cross_entropy_with_logits(model(batch), batch.label, reduction="none")
        worker.backward((losses * batch.weight).sum() / batch.weight.sum())
if sys.argv[1] == "table":
    scored = Net()
    saved = sluice.torch.load(scored, worker.model_dir)
    scored.eval()
    loss = weight = 0.0
    with torch.no_grad():
        for batch in saved.batches(table, batch_size=300):
            losses = F.binary_cross_entropy_with_logits(scored(batch), batch.label, reduction="none")
            loss, weight = loss + float((losses * batch.weight).sum()), weight + float(batch.weight.sum())
        unlabelled = sum(len(batch.label) for batch in saved.batches(table.drop_columns(["clicked", "w"])))
    print("scored:", abs(loss / weight - worker.result["eval"]["log_loss"]) < 1e-5, unlabelled)
'''

WRITE_ROWS = """
import datetime, sys
import pyarrow as pa, pyarrow.parquet

n = 2500
rows = range(n)
of = lambda every, value: [None if r % every == every - 1 else value(r) for r in rows]
midnight = datetime.datetime(2025, 6, 15)
pa.parquet.write_table(pa.table({
    "clicked": ["yes" if (r * 7 + r // 3) % 5 < 2 else "no" for r in rows], "w": [0.5 + r % 3 for r in rows],
    "age": pa.array(of(7, lambda r: 15 + r * 31 % 60), pa.int16()),
    "at": pa.array(of(1000000, lambda r: midnight + datetime.timedelta(seconds=r * 79, microseconds=r)), pa.timestamp("us")),
    "vector": pa.array(of(9, lambda r: [r / 7, -r / 3]), pa.list_(pa.float64())),
    "user": pa.array(of(11, lambda r: r * 7919 % 211), pa.int64()), "item": pa.array([r * 31 % 97 - 3 for r in rows], pa.int32()),
    "site": of(6, lambda r: "-" if r % 5 == 0 else "s%d" % (r % 4)),
    "tags": of(8, lambda r: "t%d|t%d" % (r % 3, r % 5)),
    "seen": pa.array(of(5, lambda r: list(range(r % 4))), pa.list_(pa.uint8()))}), sys.argv[1], row_group_size=700)
"""


def children_of(pid):
    """The processes that the threads of a process have made."""
    found = []
    for children in pathlib.Path("/proc/%d/task" % pid).glob("*/children"):
        try:
            found += children.read_text().split()
        except OSError:
            pass  # the thread has ended
    return found


def runs(pid):
    """Whether a process is there and no zombie."""
    try:
        return pathlib.Path("/proc/%s/stat" % pid).read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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

    def need_pyarrow(self):
        found = subprocess.run([PYTHON, "-c", "import pyarrow"], capture_output=True)
        if found.returncode != 0:
            print("SKIPPED, NOT PASSED: a table as a source needs pyarrow (./dev arrow)", file=sys.stderr)
            self.skipTest("no pyarrow")

    def test_a_table_trains_as_the_same_rows_in_parquet(self):
        self.need_pyarrow()
        subprocess.run([PYTHON, "-c", WRITE_ROWS, self.tmp / "rows.parquet"], check=True)
        (self.tmp / "train.py").write_text(COLUMNS_SCRIPT % {"folder": str(self.tmp)})
        results = []
        for name in ("table", "parquet") if (BIN / "sluice-arrow.so").exists() else ("table",):
            result, out = self.train("--a_sync=false", name=name, workers=1, arguments=[name])
            self.assertEqual((result["examples"], result["eval"]["examples"]), (5000, 2500), out)
            self.assertEqual("scored: True 2500" in out, name == "table", out)
            results.append((result["model_digest"], result["eval"]["auc"], result["eval"]["log_loss"]))
        self.assertEqual(results[0], results[-1])
        # Values that need a column are refused in dicts.
        for name, why in (("dict", r"features.*'ages' has boundaries.*give a table"),
                          ("wildcard", r"a '\*' stands for columns.*give a table, or name each feature")):
            _, out = self.train("--a_sync=false", name=name, workers=1, arguments=[name], expect=2)
            self.assertRegex(out, why)

    def test_a_table_trains_as_its_numbers_do(self):
        self.need_pyarrow()
        for workers in (1, 2):
            results = []
            for name, arguments in (("own", []), ("table", ["--table"]), ("mixed", ["--table", "--mixed"])):
                results.append(self.train("--a_sync=false", name=name + str(workers), workers=workers,
                                          arguments=["--evaluate", *arguments])[0])
                self.assertEqual(results[-1]["examples"], 2 * ROWS)
            self.assertEqual({result["model_digest"] for result in results}, {results[0]["model_digest"]})
            self.assertEqual({result["eval"]["auc"] for result in results}, {results[0]["eval"]["auc"]})
        # A flag wins over the script.
        result, _ = self.train("--a_sync=false", "--batch_size=16", name="smaller", arguments=["--table"])
        self.assertEqual((result["global_step"], result["examples"]), (2 * ROWS // (2 * 16), 2 * ROWS))

    def test_a_vector_trains_as_its_numbers_do(self):
        """In training, in evaluation, and in batches for the saved model."""
        text = (self.tmp / "train.py").read_text().replace("nn.Linear(9, 8)", "nn.Linear(10, 8)")
        one = 'features { name: "age" numeric { z_score { mean: 40 stddev: 16 } } }'
        scripts = {
            "numbers": text.replace(one, one + "\n  " + one.replace("age", "again"))
                           .replace('"user": torch', '"again": torch.from_numpy(rows[:, 1].astype(np.float32)), "user": torch')
                           .replace('"user": EVAL', '"again": EVAL[:, 1], "user": EVAL'),
            "vector": text.replace(one, one.replace("numeric {", "numeric { dim: 2"))
                          .replace("rows[:, 1].astype", "rows[:, [1, 1]].astype").replace('"age": EVAL[:, 1]', '"age": EVAL[:, [1, 1]]')}
        results = []
        for name, script in scripts.items():
            (self.tmp / "train.py").write_text(script)
            result, out = self.train("--a_sync=false", name=name, workers=1, arguments=["--evaluate", "--score"])
            self.assertEqual(out.count("scored %d examples: True" % EVAL_ROWS), 3, out)
            results.append(result)
        self.assertEqual(results[0]["model_digest"], results[1]["model_digest"])
        self.assertEqual(results[0]["eval"]["auc"], results[1]["eval"]["auc"])

    def check_same_bits_after_kill(self, role, rank, *flags, arguments=()):
        arguments = ["--epochs=30", *arguments]
        undisturbed, _ = self.train("--a_sync=false", name="undisturbed", arguments=arguments)
        launcher = self.start_training("--a_sync=false", *flags, arguments=arguments)
        self.await_step(launcher, self.random.randrange(60, 400))
        kill_unless_over(self.pid_of(role, rank), signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual(result["model_digest"], undisturbed["model_digest"], self.output())
        self.assertEqual(result["examples"], 30 * ROWS)
        return result["recovery"]

    def test_a_killed_worker_changes_no_bit(self):
        """A loader shuffles, and the network draws masks: neither sees what the other draws."""
        script = (self.tmp / "train.py").read_text()
        (self.tmp / "train.py").write_text(script.replace("nn.ReLU(), nn.Linear(8, 1)", "nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)"))
        self.assertEqual(self.check_same_bits_after_kill("worker", 1, arguments=["--shuffled"])["worker_losses"], 1)

    def test_a_killed_pserver_changes_no_bit(self):
        recovery = self.check_same_bits_after_kill("pserver", 0, "--set=checkpoint.every_steps=50")
        self.assertEqual(recovery["pserver_losses"], 1)

    def test_a_killed_scheduler_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("scheduler", 0)["scheduler_restarts"], 1)

    def test_async_counts_are_exact_after_a_kill_of_a_worker_with_loaders(self):
        slow = self.tmp / "slow"
        slow.touch()
        launcher = self.start_training("--a_sync=true", "--lease_ms=%d" % (1000 * LEASE_S),
                                       arguments=["--epochs=2", "--loader=2", "--slow=1", "--slow_while=%s" % slow])
        self.await_step(launcher, 5)
        killed = self.pid_of("worker", 0)
        loaders = wait_until(lambda: children_of(killed)[1:] and children_of(killed), self.output)
        before = len(self.output())
        began = time.monotonic()
        kill_unless_over(killed, signal.SIGKILL)
        # The loaders of the killed worker end by themselves.
        wait_until(lambda: not any(map(runs, loaders)), lambda: "%s run:\n%s" % (loaders, self.output()), within=10)
        slow.unlink()
        self.await_output(launcher, "rank 0 reads epoch", after=before)
        took = time.monotonic() - began
        imports = float(re.search(r"imports took ([\d.]+) s", self.output()[before:])[1])
        self.assertLess(took, (LEASE_S + 2) * TIME_SCALE + imports)
        result = self.result(launcher)
        self.assertEqual(result["recovery"]["worker_losses"], 1)
        self.assertEqual(result["examples"], 2 * ROWS, self.output())
        self.await_none_left()

    def test_two_workers_that_are_lost_at_once_get_the_ranks_of_their_data_back(self):
        late, slow = self.tmp / "late", self.tmp / "slow"
        slow.touch()
        launcher = self.start_training("--a_sync=true", arguments=[
            "--epochs=4", "--stateful", "--late=%s" % late, "--slow=0.1", "--slow_while=%s" % slow])
        self.await_step(launcher, 15)
        late.touch()
        for rank in (0, 1):
            kill_unless_over(self.pid_of("worker", rank), signal.SIGKILL)
        # The other one comes back first.
        self.await_output(launcher, r"rank \d continues as worker 1")
        late.unlink()
        slow.unlink()
        result = self.result(launcher)
        self.assertEqual(result["recovery"]["worker_losses"], 2)
        self.assertEqual([epoch["examples"] for epoch in result["epochs_log"]], 4 * [ROWS], self.output())
        self.assertIn("rank 1 continues as worker 1", self.output())

    def await_all_members(self, launcher):
        """Waits until the job trains with all its members."""
        def look():
            self.assertIsNone(launcher.poll(), self.output())
            done = self.run_program("sluice", "status", "--json", "--log_dir=%s" % (self.tmp / "run.log"))
            job = next(iter(json.loads(done.stdout)["jobs"] if done.returncode == 0 else ()), {})
            return (job.get("state"), job.get("message", ""), job.get("waiting_for", ""), job.get("workers_alive")) == (
                "running", "", "", 2)
        return wait_until(look, self.output)

    def check_exact_counts_after_kills(self, kills, *flags, arguments=()):
        slow, epochs = self.tmp / "slow", 10 + 10 * kills
        slow.touch()
        began = time.monotonic()
        launcher = self.start_training("--a_sync=true", "--set=checkpoint.every_steps=200", *flags, arguments=[
            "--epochs=%d" % epochs, "--slow=0.05", "--slow_while=%s" % slow, *arguments])
        killed = collections.Counter()
        times = []
        for number in range(kills):
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
        print("%d kills in %.0f s: counts are exact" % (kills, time.monotonic() - began), flush=True)

    def test_async_counts_are_exact_after_many_kills(self):
        self.check_exact_counts_after_kills(KILLS)

    def test_async_counts_of_native_readers_are_exact_after_kills(self):
        # Several tasks an epoch, so that both workers train.
        self.check_exact_counts_after_kills(3, "--set=data.task_bytes=10000", arguments=["--files"])

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
        _, out = self.train(arguments=["--epochs=1"], expect=2)
        self.assertRegex(out, "name data.train_files, or give.*source=")

    def test_a_resumed_job_goes_on_with_the_state_of_its_loader(self):
        undisturbed, _ = self.train("--a_sync=false", name="undisturbed", arguments=["--epochs=2"])
        # Batches of 16 rows: an epoch has 100 of each rank, and the loader keeps a state after 64.
        text = (self.tmp / "train.py").read_text()
        (self.tmp / "train.py").write_text(text.replace("BATCH = %d" % BATCH, "BATCH = %d" % (BATCH // 2)))
        whole, _ = self.train("--a_sync=false", name="whole", arguments=["--epochs=2", "--stateful"])
        self.assertEqual(whole["examples"], undisturbed["examples"])
        flags = ["--a_sync=false", "--set=checkpoint.every_steps=90"]
        hold = self.tmp / "hold"
        hold.touch()
        launcher = self.start_training(*flags, arguments=["--epochs=2", "--stateful", "--slow=0.05", "--slow_while=%s" % hold])
        self.await_output(launcher, r"checkpoint of step 90 is complete")
        launcher.kill()
        launcher.wait()
        self.await_none_left()
        result, out = self.train(*flags, "--resume", arguments=["--epochs=2", "--stateful"])
        self.assertIn("after batch 90 of epoch 1: from its state after batch 64, 26 batches were read again", out)
        self.assertEqual(result["model_digest"], whole["model_digest"], out)

    def test_async_and_geo_go_on_with_the_state_of_their_loader(self):
        text = (self.tmp / "train.py").read_text()
        (self.tmp / "train.py").write_text(text.replace("BATCH = %d" % BATCH, "BATCH = %d" % (BATCH // 2)))
        for mode in ("--a_sync=true", "--k_steps=5"):
            with self.subTest(mode):
                flags = [mode, "--set=checkpoint.every_steps=68"]
                hold = self.tmp / "hold"
                hold.touch()
                # An epoch has 100 batches: slow enough that the ranks are asked, and answer, before its end.
                launcher = self.start_training(*flags, arguments=["--epochs=2", "--stateful", "--slow=0.1",
                                                                  "--slow_while=%s" % hold])
                self.await_output(launcher, r"checkpoint of step \d+ is complete")
                launcher.kill()
                launcher.wait()
                self.await_none_left()
                result, out = self.train(*flags, "--resume", arguments=["--epochs=2", "--stateful"])
                # The ranks are uneven, and each goes on where it was.
                self.assertRegex(out, r"after batch \d+ of epoch 1: from its state after batch 64, \d+ batches were read again")
                self.assertEqual([epoch["examples"] for epoch in result["epochs_log"]], 2 * [ROWS], out)

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
