"""PyTorch programs train Adult under `sluice launch --program`, also when processes are killed or the script is wrong.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with torch and numpy.
"""
import collections
import fcntl
import gzip
import hashlib
import itertools
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import unittest

from sluice_testing import (ADULT_TEST_EXAMPLES, ADULT_TRAIN_EXAMPLES, BIN, ROOT, TEST_BIN, DisturbedLaunchTest, SluiceTest,
                            free_port, kill_unless_over, torch_python, wait_until)

PYTHON = torch_python()

BATCH_SIZE = 128  # of the script's job
EPOCHS = 3  # of 128 steps with two workers
ONE_THREAD = dict(os.environ, OMP_NUM_THREADS="1")  # bits depend on the number of threads
SCRIPT = (ROOT / "examples" / "adult_wide_deep.py").read_text().replace(
    "pathlib.Path(__file__).resolve().parents[1]", "pathlib.Path(%r)" % str(ROOT))


GEO = ("--a_sync=true", "--k_steps=20")
COLLECTIVE = ("--set=strategy.sync_configs.dense=COLLECTIVE",)


def with_norms(text):
    """The script with running statistics and random masks."""
    return text.replace("nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.ReLU()",
                        "nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Dropout(0.2)")


def with_wide_norms(text):
    """The script with three wide layers, each with running statistics and random masks."""
    layers = ["nn.Linear(%s, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Dropout(0.2), " % inputs
              for inputs in ("len(CATEGORIES) * dim + len(NUMBERS)", "400", "400")]
    return text.replace("nn.Linear(len(CATEGORIES) * dim + len(NUMBERS), 100), nn.ReLU(), nn.Linear(100, 50)",
                        "".join(layers) + "nn.Linear(400, 50)")


# Rank 0 forks in step 30. Both processes say how many of their sockets are connected; one pair is the script's own.
FORKS = """
            worker.backward(loss)
            if batch.epoch == 0 and batch.step == 30 and worker.is_main:
                import os, socket, stat

                def connected():
                    found = 0
                    for fd in os.listdir("/proc/self/fd"):
                        try:
                            if stat.S_ISSOCK(os.stat("/proc/self/fd/" + fd).st_mode):
                                with socket.socket(fileno=os.dup(int(fd))) as one:
                                    one.getpeername()
                                    found += 1
                        except OSError:
                            pass
                    return found

                pair = socket.socketpair()
                child = os.fork()
                if child == 0:
                    print("the child has", connected(), "connections", flush=True)
                    os._exit(0)
                os.waitpid(child, 0)
                print("the worker has", connected(), "connections", flush=True)
"""


# In some steps the pserver is stopped before the push, which takes a later batch's pull along, and goes on between forward and
# backward of the next step. There the pull lands.
HELD = """
            import os, signal, threading, time, urllib.request
            lines = [line.split() for line in (pathlib.Path(os.environ["SLUICE_LOG_DIR"]) / "endpoints.log").read_text().splitlines()]
            (pserver,) = [line for line in lines if line[0] == "pserver"]
            pid, metrics = int(pserver[3]), "http://%s/metrics" % pserver[4]

            def await_applied(frames):
                while frames > sum(float(line.split()[-1]) for line in urllib.request.urlopen(metrics).read().decode().splitlines()
                                   if line.startswith("sluice_pserver_frames_applied_total")):
                    time.sleep(0.01)

            step = batch.step
            if batch.epoch == 0 and step <= 100 and step % 10 == 0:
                await_applied(step)
                time.sleep(0.1)  # the pull of the next step, which went before, is here
                os.kill(pid, signal.SIGSTOP)
                threading.Timer(4, os.kill, (pid, signal.SIGCONT)).start()  # should that pull be late
            if batch.epoch == 0 and step <= 101 and step % 10 == 1 and pathlib.Path("/proc/%d/stat" % pid).read_text().split()[2] == "T":
                inputs = [*batch._leaves, *model.parameters()]
                kept = [tensor.detach().clone() for tensor in inputs]
                gradients = torch.autograd.grad(loss, inputs, retain_graph=True)
                os.kill(pid, signal.SIGCONT)
                await_applied(step)
                time.sleep(0.1)
                torch.autograd.backward(loss, retain_graph=True)
                for tensor, value, gradient in zip(inputs, kept, gradients):
                    assert torch.equal(tensor, value) and torch.equal(tensor.grad, gradient), step
                for tensor in inputs:
                    tensor.grad.zero_()
                print("held a pull back in step", step, flush=True)
            worker.backward(loss)
"""


def without_embeddings(text):
    """The script with the features of configs/adult_numbers.textproto, so that it has no table with rows."""
    text = re.sub(r"self\.embedding = .*?(?=self\.linear)", "", text, flags=re.S)
    text = re.sub(r"self\.deep = .*?(?=    def forward)", "\n", text, flags=re.S)
    text = re.sub(r"deep = self\.deep.*?(?=def main)", "return self.linear(batch.numbers).squeeze(1)\n\n\n", text, flags=re.S)
    return text.replace("adult_wide_deep.textproto", "adult_numbers.textproto").replace("{.*?^", "{.*?")


FROZEN = 2.0 ** -7  # which float32 has


def with_frozen(value):
    """The script with a frozen layer, which is part of the network, of this value in rank 0; each other rank draws its own."""
    return lambda text: text.replace("nn.Linear(100, 50), nn.ReLU(),", "nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 50),").replace(
        "    with sluice.torch.worker(", """\
    for frozen in model.deep[4].parameters():
        torch.nn.init.constant_(frozen.requires_grad_(False), %r * (1 + int(os.environ["RANK"])))
    with sluice.torch.worker(""" % value).replace("import argparse\n", "import argparse\nimport os\n", 1)


def in_step(step, statement):
    """Changes the script so that it does this after the backward of a step."""
    return lambda text: text.replace("worker.backward(loss)", "worker.backward(loss)\n            if batch.step == %d:\n"
                                     "                %s" % (step, statement))


def read_until(terminal, mark):
    """What the terminal shows until this text; None: until nobody writes to it any more."""
    shown = ""
    while mark is None or mark not in shown:
        try:
            more = os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # EIO: all writers are gone
            more = ""
        if not more:
            if mark is None:
                break
            raise AssertionError("the terminal was closed before %r:\n%s" % (mark, shown))
        shown += more
    return shown
# What ranks do together. With a file "hold", rank 1 says that it is at the end of the second epoch, and stays there.
TOGETHER = """
        import json, os, time
        folder = pathlib.Path(%r)
        start = json.loads(worker.broadcast(json.dumps({"scale": 0.5 + worker.rank}).encode()))
        workers = worker.sum({"workers": 1, "ranks": [worker.rank, 2]})

        @worker.on_epoch_end
        def end(epoch):
            total = worker.sum({"ranks": worker.rank + 1, "epochs": epoch})
            if epoch == 1 and worker.rank == 1:
                (folder / "there").touch()
                while (folder / "hold").exists():
                    time.sleep(0.02)
            worker.barrier()
            text = worker.broadcast(b"epoch %%d ends on rank %%d" %% (epoch, worker.rank), root=1).decode()
            if worker.is_main:
                (folder / str(epoch)).write_text("%%s, %%s, %%s" %% (text, total, workers))

        for batch in worker:
"""


def with_metrics(text):
    """The script with metrics of its own, and a value that each step logs."""
    return text.replace("predict=model)", """predict=model, metrics={
        "correct": lambda batch, output: (((output >= 0).float() == batch.label).sum(), batch.examples),
        "own/loss": lambda batch, output: (
            F.binary_cross_entropy_with_logits(output.double(), batch.label.double(), reduction="sum"), batch.examples),
        # The numbers are z-scores. A year is a whole number, so this is exact.
        "age": lambda batch, output: ((batch.numbers[:, 0].double() * 13.64 + 38.58).round().sum(), batch.examples),
        "none": lambda batch, output: (0, 0),
    })""").replace("worker.backward(loss)", "worker.log(two=1 + 2 * worker.rank); worker.backward(loss)")


def with_state(folder):
    """The script with a state: a count of its batches and a hash of their places, which it writes at the end."""
    return lambda text: text.replace("        for batch in worker:\n", """\
        import hashlib, pickle
        kept = [0, b""]
        worker.save_state(lambda: pickle.dumps(kept))
        @worker.load_state
        def load(state):
            kept[:] = pickle.loads(state)
            print("loads", kept[0], flush=True)
        for batch in worker:
""").replace("            worker.backward(loss)\n", """\
            worker.backward(loss)
            kept[:] = [kept[0] + 1, hashlib.blake2b(b"%%s %%d %%d" %% (kept[1], batch.epoch, batch.step)).digest()]
        pathlib.Path(%r).joinpath(str(worker.rank)).write_text("%%d %%s" %% (kept[0], kept[1].hex()))
""" % str(folder))


def with_kept_means(text):
    """Checks in Geo, between two merges of the first epoch, that a step leaves a buffer as the forward pass has made it."""
    return with_norms(text).replace(
        "worker.backward(loss)", "worker.backward(loss)\n            moved = model.deep[1].running_mean.clone()").replace(
        "for batch in worker:\n", """for batch in worker:
            if worker.rank == 0 and batch.epoch == 0 and batch.step % 20 == 9:
                torch.testing.assert_close(model.deep[1].running_mean, moved)
""")


def with_break(condition):
    """Changes the script: it leaves its loop on a condition, and then prints. Each rank counts its trained examples."""
    return lambda text: text.replace("            worker.backward(loss)\n", """\
            worker.backward(loss)
            trained += batch.examples
            if %s:
                break
    print("rank", worker.local_rank, "has trained", trained, "examples", flush=True)
""" % condition).replace("        for batch in worker:\n", "        trained = 0\n        for batch in worker:\n")


def with_result(text):
    """The script, which prints its job's result after the loop, and has the values of its model then."""
    return text.replace("            worker.backward(loss)\n", """\
            worker.backward(loss)
    result = worker.result
    state = worker.state_dict()
    for name, values in sluice.load_model(worker.model_dir).dense.items():
        assert (state[name].numpy() == values).all(), name
    print("rank", worker.rank, result["status"], result["examples"], worker.model_dir == result["model_dir"] != "", flush=True)
""")


class ProgramLaunchTest(DisturbedLaunchTest):
    def script(self, change=lambda text: text):
        """The example, changed, in this test's folder."""
        file = self.tmp / "train.py"
        text = change(SCRIPT)
        file.write_text(text)
        return file

    def flags(self, file, *flags, name="run", workers=2):
        return ["sluice", "launch", "--program=%s" % file, "--python=%s" % PYTHON, "--server_num=1", "--worker_num=%d" % workers,
                "--output_dir=%s" % (self.tmp / name), "--log_dir=%s" % (self.tmp / (name + ".log")),
                "--set=train.log_every=5", *flags]

    def train(self, *flags, name="run", arguments=(), change=lambda text: text, expect=0):
        done = self.run_program(*self.flags(self.script(change), *flags, name=name), "--", *arguments, env=ONE_THREAD)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def start_training(self, *flags, name="run", arguments=(), change=lambda text: text, workers=2):
        return self.start(*self.flags(self.script(change), *flags, name=name, workers=workers), "--", *arguments, env=ONE_THREAD,
                          log=name + ".out")


def runs_in(cwd, folder):
    """Whether /proc/PID/cwd is the folder."""
    try:
        return os.readlink(cwd) == str(folder)
    except OSError:
        return False  # it has ended, or is another user's


class ProgramTest(ProgramLaunchTest):
    undisturbed = {}  # digests of models by what made them: several tests compare theirs with the same

    def undisturbed_digest(self, change, *flags, epochs=EPOCHS):
        made_by = (change(SCRIPT), flags, epochs)
        if made_by not in self.undisturbed:
            self.train("--a_sync=false", *flags, name="undisturbed", arguments=["--epochs=%d" % epochs], change=change)
            result = json.loads((self.tmp / "undisturbed" / "result.json").read_text())
            self.undisturbed[made_by] = result["model_digest"]
        return self.undisturbed[made_by]

    def check_same_bits_after_kill(self, role, change=lambda text: text, flags=()):
        digest = self.undisturbed_digest(change, *flags)
        launcher = self.start_training("--a_sync=false", *flags, arguments=["--epochs=%d" % EPOCHS], change=change)
        self.await_step(launcher, self.random.randrange(20, 200))
        kill_unless_over(self.pid_of(role, 0), signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual(result["model_digest"], digest, self.output())
        self.assertEqual(result["examples"], EPOCHS * ADULT_TRAIN_EXAMPLES)
        return result["recovery"]

    def test_async_and_sync_train(self):
        # A path in a flag is relative to the folder of the command.
        shutil.copy(ROOT / "data" / "adult" / "adult.test.gz", self.tmp / "eval.gz")
        for mode in ("true", "false"):
            with self.subTest(a_sync=mode):
                out = self.train("--a_sync=" + mode, "--set=data.eval_files=eval.gz", name="run" + mode,
                                 arguments=["--epochs=2"], change=with_result)
                result = json.loads((self.tmp / ("run" + mode) / "result.json").read_text())
                self.assertEqual(result["examples"], 2 * ADULT_TRAIN_EXAMPLES)
                self.assertEqual(result["eval"]["examples"], ADULT_TEST_EXAMPLES)
                self.assertGreater(result["eval"]["auc"], 0.91)
                # Rank 0 prints here, the other one into its log.
                self.assertIn("rank 0 of 2: epoch 2", out)
                self.assertNotIn("rank 1 of 2", out)
                self.assertIn("rank 0 done %d True" % (2 * ADULT_TRAIN_EXAMPLES), out)
                log = (self.tmp / ("run" + mode + ".log") / "workerlog.1").read_text()
                self.assertIn("rank 1 done %d True" % (2 * ADULT_TRAIN_EXAMPLES), log)

    def test_metrics_of_the_program_are_those_of_all_examples(self):
        out = self.train("--a_sync=false", "--set=train.log_every=5", arguments=["--epochs=1"], change=with_metrics)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        user = result["eval"]["user"]
        self.assertEqual(result["epochs_log"][-1]["eval"]["user"], user)
        with gzip.open(ROOT / "data" / "adult" / "adult.test.gz", "rt") as lines:
            ages = [int(line.split(",")[0]) for line in lines if line.strip() and not line.startswith("|")]
        self.assertEqual(len(ages), ADULT_TEST_EXAMPLES)
        self.assertEqual(list(user), ["correct", "own/loss", "age", "none"])
        self.assertAlmostEqual(user["age"], sum(ages) / len(ages), delta=1e-12)
        self.assertAlmostEqual(user["correct"], result["eval"]["accuracy"], delta=1e-12)
        self.assertAlmostEqual(user["own/loss"], result["eval"]["log_loss"], delta=1e-6)  # ours is of f32 logits
        self.assertIsNone(user["none"])
        self.assertRegex(out, r"worker 0: .* examples/s, two 1\.0")
        self.assertRegex(out, r"\n  correct 0\.\d+, own/loss 0\.\d+, age \d+\.\d+, none -\n")
        curves = b"".join(file.read_bytes() for file in (self.tmp / "run").rglob("events.out.tfevents.*"))
        for tag in (b"eval/correct", b"eval/own/loss", b"train/two"):
            self.assertIn(tag, curves)
        self.assertNotIn(b"eval/none", curves)

    def check_state_after_kill(self, role, *flags):
        folder = self.tmp / "states"
        folder.mkdir()
        launcher = self.start_training("--a_sync=false", *flags, arguments=["--epochs=3"], change=with_state(folder))
        self.await_step(launcher, self.random.randrange(60, 200))
        kill_unless_over(self.pid_of(role, 0), signal.SIGKILL)
        result = self.result(launcher)
        digest = b""
        for epoch in range(3):
            for step in range(result["global_step"] // 3):
                digest = hashlib.blake2b(b"%s %d %d" % (digest, epoch, step)).digest()
        states = {file.name: file.read_text() for file in folder.iterdir()}
        self.assertEqual(states, dict.fromkeys("01", "%d %s" % (result["global_step"], digest.hex())), self.output())
        self.assertRegex(self.output(), r"loads \d+\n")
        return result["recovery"]

    def test_the_state_of_a_killed_worker_goes_on(self):
        recovery = self.check_state_after_kill("worker")
        self.assertEqual((recovery["worker_losses"], recovery["rollbacks"]), (1, 0))

    def test_all_states_go_back_with_the_tables(self):
        recovery = self.check_state_after_kill("pserver", "--set=checkpoint.every_steps=20")
        self.assertEqual((recovery["pserver_losses"], recovery["rollbacks"]), (1, 1))

    def test_a_killed_worker_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("worker")["worker_losses"], 1)

    def test_a_killed_worker_changes_no_bit_of_statistics_and_masks(self):
        self.assertNotEqual(with_norms(SCRIPT), SCRIPT)
        self.assertEqual(self.check_same_bits_after_kill("worker", with_norms)["worker_losses"], 1)

    def test_geo_trains_and_a_killed_worker_loses_and_repeats_nothing(self):
        launcher = self.start_training(*GEO, arguments=["--epochs=%d" % EPOCHS], change=with_kept_means)
        self.await_step(launcher, self.random.randrange(20, 200))
        kill_unless_over(self.pid_of("worker", 1), signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual((result["mode"], result["recovery"]["worker_losses"]), ("geo", 1), self.output())
        self.assertEqual(result["examples"], EPOCHS * ADULT_TRAIN_EXAMPLES)
        self.assertEqual([epoch["examples"] for epoch in result["epochs_log"]], EPOCHS * [ADULT_TRAIN_EXAMPLES])
        self.assertGreater(result["eval"]["auc"], 0.9)

    def test_dense_tables_of_the_workers_are_those_of_the_pservers(self):
        """Also statistics and masks, and twice with the same bits."""
        digests = []
        for name, flags in (("pserver", ()), ("collective", COLLECTIVE), ("again", COLLECTIVE)):
            self.train("--a_sync=false", *flags, name=name, arguments=["--epochs=1"], change=with_norms)
            digests.append(json.loads((self.tmp / name / "result.json").read_text())["model_digest"])
        self.assert_models_close("pserver", "collective", tables=6)
        self.assertEqual(digests[1], digests[2])

    def test_a_killed_worker_changes_no_bit_of_the_workers_tables(self):
        self.assertEqual(self.check_same_bits_after_kill("worker", with_norms, COLLECTIVE)["worker_losses"], 1)

    def test_a_pull_that_lands_within_a_step_changes_no_gradient(self):
        script = self.script(lambda text: text.replace("            worker.backward(loss)\n", HELD.lstrip("\n")))
        done = self.run_program(*self.flags(script, "--set=train.pipeline_depth=2", workers=1), "--", "--epochs=1", env=ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "held a pull back in step", done.stdout)

    def test_a_killed_pserver_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("pserver")["pserver_losses"], 1)

    def test_a_killed_scheduler_changes_no_bit(self):
        self.assertEqual(self.check_same_bits_after_kill("scheduler")["scheduler_restarts"], 1)

    def test_kills_of_all_daemons_change_no_bit_of_three_batch_norms(self):
        self.assertEqual(with_wide_norms(SCRIPT).count("BatchNorm1d(400)"), 3)
        flags = ["--set=checkpoint.every_steps=50"]
        digest = self.undisturbed_digest(with_wide_norms, *flags, epochs=5)
        launcher = self.start_training("--a_sync=false", *flags, arguments=["--epochs=5"], change=with_wide_norms)
        after = 0
        for role, rank, seen in (("worker", 1, r"worker 1 .*was killed by signal 9"), ("pserver", 0, "the job (went back to|restarted from)"),
                                 ("scheduler", 0, "the scheduler was started again; the job continued")):
            self.await_step(launcher, self.random.randrange(10, 60), after=after)
            after = len(self.output())
            kill_unless_over(self.pid_of(role, rank), signal.SIGKILL)
            self.await_output(launcher, seen, after=after)
            after = len(self.output())
        result = self.result(launcher)
        self.assertEqual(result["model_digest"], digest, self.output())
        recovery = result["recovery"]
        self.assertEqual((recovery["worker_losses"], recovery["pserver_losses"], recovery["scheduler_restarts"]), (1, 1, 1))
        self.assertEqual(result["examples"], 5 * ADULT_TRAIN_EXAMPLES)

    def test_a_forked_child_closes_the_connections_to_the_cluster(self):
        for name, flags in (("memory", []), ("grpc", ["--transport=grpc"])):
            with self.subTest(name):
                out = self.train("--a_sync=false", *flags, name=name, arguments=["--epochs=1"],
                                 change=lambda text: text.replace("            worker.backward(loss)\n", FORKS.lstrip("\n")))
                child, worker = (int(re.search(r"the %s has (\d+) connections" % who, out)[1]) for who in ("child", "worker"))
                self.assertEqual(child, 2, out)  # the script's own pair
                self.assertGreaterEqual(worker, 2 + 2, out)  # scheduler and pserver
                result = json.loads((self.tmp / name / "result.json").read_text())
                self.assertEqual((result["examples"], result["recovery"]["worker_losses"]), (ADULT_TRAIN_EXAMPLES, 0), out)

    def together(self, name):
        """The script with calls of all workers, which leave their results in a folder of this name."""
        folder = self.tmp / (name + ".ends")
        folder.mkdir()
        return folder, lambda text: text.replace("        for batch in worker:\n", TOGETHER.lstrip("\n") % str(folder)).replace(
            "loss = F.binary", 'loss = start["scale"] * F.binary')

    def check_ends_after_kills(self, name, victims, digest, ends, *flags):
        """Kills processes while rank 0 waits for rank 1 at the end of an epoch. `ends`: the results of an undisturbed run."""
        folder, change = self.together(name)
        (folder / "hold").touch()
        launcher = self.start_training(*flags, name=name, arguments=["--epochs=3"], change=change)
        wait_until((folder / "there").exists, lambda: self.output(name))
        for role, rank in victims:
            kill_unless_over(self.pid_of(role, rank, name), signal.SIGKILL)
            if role == "scheduler":
                self.await_output(launcher, "the scheduler was started again; the job continued", name)
        (folder / "hold").unlink()
        result = self.result(launcher, name)
        self.assertEqual(result["model_digest"], digest, self.output(name))
        self.assertEqual({epoch: (folder / epoch).read_text() for epoch in ends}, ends)
        for role, losses in (("worker", "worker_losses"), ("pserver", "pserver_losses"), ("scheduler", "scheduler_restarts")):
            self.assertEqual(result["recovery"][losses], [victim[0] for victim in victims].count(role), losses)

    def undisturbed_ends(self, *flags):
        """The digest of the model, and what the workers have together at the end of each epoch."""
        folder, change = self.together("calm")
        digest = self.undisturbed_digest(change, *flags, epochs=3)
        ends = {file.name: file.read_text() for file in folder.iterdir() if file.name != "there"}
        self.assertEqual(ends["1"], "epoch 1 ends on rank 1, {'ranks': 3.0, 'epochs': 2.0}, "
                         "{'workers': 2.0, 'ranks': tensor([1., 4.], dtype=torch.float64)}")
        self.assertEqual(sorted(ends), ["0", "1", "2"])
        return digest, ends

    def test_calls_of_all_workers_give_the_same_whoever_is_killed(self):
        digest, ends = self.undisturbed_ends()
        # A new scheduler knows what a new rank 1 gave in its earlier life.
        self.check_ends_after_kills("worker", [("scheduler", 0), ("worker", 1)], digest, ends, "--a_sync=false")
        # The job goes back to where the epoch is trained again.
        self.check_ends_after_kills("pserver", [("pserver", 0)], digest, ends, "--a_sync=false")

    def test_a_rank_that_waits_at_the_end_of_an_epoch_hands_the_workers_tables_on(self):
        digest, ends = self.undisturbed_ends(*COLLECTIVE)
        self.check_ends_after_kills("worker", [("worker", 1)], digest, ends, "--a_sync=false", *COLLECTIVE)

    def test_workers_that_call_different_things_fail_the_job_with_both_names(self):
        out = self.train(change=lambda text: text.replace(
            "        for batch in worker:\n", "        if worker.is_main: worker.barrier()\n        for batch in worker:\n"), expect=1)
        self.assertRegex(out, r"call 1 before the first batch: rank \d is at .* and rank \d at")
        self.assertIn("worker.barrier", out)

    def test_a_killed_launcher_is_resumed_with_the_same_bits(self):
        flags = ["--a_sync=false", "--set=checkpoint.every_steps=100"]
        digest = self.undisturbed_digest(lambda text: text)
        launcher = self.start_training(*flags, arguments=["--epochs=%d" % EPOCHS])
        self.await_output(launcher, r"checkpoint of step \d+ is complete")
        launcher.kill()
        launcher.wait()
        self.await_none_left()
        # The program offers its initial values in the log folder of its launch.
        out = self.train(*flags, "--resume", "--log_dir=%s" % (self.tmp / "resumed.log"), arguments=["--epochs=%d" % EPOCHS])
        self.assertIn("resumes from", out)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["model_digest"], digest, out)

    def dense_values(self, name):
        """The dense tables of the model of a run, and of the checkpoint of its end."""
        out = subprocess.run([PYTHON, "-B", "-c", """
import glob, json, sys
import sluice
print(json.dumps([{name: values.ravel().tolist() for name, values in sluice.load_model(folder).dense.items()}
                  for folder in [sys.argv[1] + "/model", *glob.glob(sys.argv[1] + "/checkpoints/step-*")]]))
""", str(self.tmp / name)], capture_output=True, text=True, env=dict(ONE_THREAD, PYTHONPATH=str(BIN.parent / "python")))
        self.assertEqual(out.returncode, 0, out.stderr)
        return json.loads(out.stdout)

    def test_frozen_parameters_are_saved_in_all_modes_and_resumed_with_their_first_values(self):
        for name, flags in (("sync", ["--a_sync=false"]), ("async", ["--a_sync=true"]), ("geo", GEO),
                            ("collective", ["--a_sync=false", *COLLECTIVE])):
            with self.subTest(name):
                self.train(*flags, name=name, arguments=["--epochs=1"], change=with_frozen(FROZEN))
                saved = self.dense_values(name)
                self.assertGreater(len(saved), 1)
                for values in saved:
                    for table in ("deep.4.weight", "deep.4.bias"):
                        self.assertEqual(set(values[table]), {FROZEN}, (name, table))
                self.assertNotIn(FROZEN, saved[0]["deep.2.weight"])
        flags = ["--a_sync=false", "--set=checkpoint.every_steps=100"]
        launcher = self.start_training(*flags, arguments=["--epochs=3"], change=with_frozen(FROZEN))
        self.await_output(launcher, r"checkpoint of step \d+ is complete")
        launcher.kill()
        launcher.wait()
        self.await_none_left()
        out = self.train(*flags, "--resume", "--log_dir=%s" % (self.tmp / "resumed.log"), arguments=["--epochs=3"],
                         change=with_frozen(0.5))
        self.assertIn("resumes from", out)
        self.assertEqual({value for values in self.dense_values("run") for value in values["deep.4.weight"]}, {FROZEN})
        out = self.train(*flags, "--resume", "--log_dir=%s" % (self.tmp / "unfrozen.log"), arguments=["--epochs=4"],
                         change=lambda text: with_frozen(FROZEN)(text).replace("frozen.requires_grad_(False)", "frozen"), expect=2)
        self.assertRegex(out, r"cannot resume: model\.program\.parameters")

    def test_a_script_that_cannot_start_ends_the_launch(self):
        out = self.train(change=lambda text: "def f(:\n", expect=1)
        self.assertEqual(out.count("SyntaxError"), 1, out)

    def test_a_script_without_a_worker_ends_the_launch_and_is_told_what_it_lacks(self):
        out = self.train(change=lambda text: "print('hello')\n", expect=1)
        self.assertRegex(out, r"exited with code 0 without a job.*sluice\.torch\.worker")

    def test_an_exception_fails_the_job_with_its_traceback_shown_once(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                change = in_step(20, "if worker.rank == %d: 1 / 0" % rank)
                out = self.train("--a_sync=false", name="run%d" % rank, change=change, expect=1)
                self.assertRegex(out, r"(?s)failed: .*Traceback.*train\.py.*\n.*ZeroDivisionError")
                self.assertEqual(out.count("Traceback"), 1, out)
                # The other program says in a line that it ends with its job, unless the launch ends it first.
                if rank == 0:
                    self.assertNotIn("Traceback", (self.tmp / "run0.log" / "workerlog.1").read_text())
                self.assertIn("ZeroDivisionError", (self.tmp / ("run%d" % rank) / "result.json").read_text())
                place = "train.py rank 1" if rank else "train.py"
                self.assertEqual(out.splitlines()[-1], "sluice: %s: ZeroDivisionError: division by zero" % place)
                # Steps since the last report count, too. The last one may not be complete.
                result = json.loads((self.tmp / ("run%d" % rank) / "result.json").read_text())
                self.assertIn(result["global_step"], (20, 21), out)
                self.assertEqual(result["examples"], result["global_step"] * 2 * BATCH_SIZE, out)

    def test_a_loop_with_unusual_losses_and_steps_ends_as_the_guide_says(self):
        step = "            worker.backward(loss)\n"
        in_step_20 = "            if batch.step == 20:\n                "
        left_out = "            if batch.step in (20, 21):\n                continue\n"
        halves = step.replace("worker.backward(loss)", "(loss / 2).backward(retain_graph=True); (loss / 2).backward(); worker.step(loss)")
        digests = set()
        for name, text, error in (
                ("nan", in_step_20 + "loss = loss * float('nan')\n" + step, "FloatingPointError: the loss is nan in epoch 1, step 21"),
                ("second", step + in_step_20 + "worker.step(loss)\n", "RuntimeError: there is no batch to step: .*"),
                ("left", left_out + step, None), ("halves", left_out + halves, None)):
            with self.subTest(name):
                launcher = self.start_training("--a_sync=false", "--batch_size=1024", name=name, workers=1, arguments=["--epochs=1"],
                                               change=lambda script: script.replace(step, text))
                self.await_output(launcher, "failed: " if error else "done", name)
                self.assertEqual(self.exit_code(launcher, within=30), 1 if error else 0, self.output(name))
                result = json.loads((self.tmp / name / "result.json").read_text())
                self.assertEqual(self.output(name).count("Traceback"), 1 if error else 0, self.output(name))
                if error:
                    self.assertEqual(result["status"], "failed")
                    self.assertRegex(self.output(name).splitlines()[-1], "^sluice: train.py: %s$" % error)
                else:
                    self.assertEqual((result["status"], result["examples"]), ("done", ADULT_TRAIN_EXAMPLES))
                    self.assertEqual(self.output(name).count("a batch was left without worker.step()"), 1)
                    digests.add(result["model_digest"])
        # Gradients of two backward passes add up.
        self.assertEqual(len(digests), 1)

    def test_errors_before_the_job_end_the_launch_with_the_codes_of_the_command_line(self):
        for name, (old, new), code, error in (
                ("field", ("sluice.Job(", "sluice.Job(train={'epoch': 1}); sluice.Job("), 2, "UsageError: .*did you mean 'epochs'"),
                ("value", ("predict=model)", "predict=model, source=print, epoch_steps=0)"), 2, "ValueError: epoch_steps is 0"),
                ("file", ("sluice.Job(", "sluice.Job.from_file('no.textproto'); sluice.Job("), 2, "JobFileError: the job's file 'no.textproto'"),
                ("feature", ("features=CATEGORIES)", "features=[*CATEGORIES, 'agee'])"), 2, "ValueError: .*which the job does not declare"),
                ("own", ("    with sluice.torch.worker(", "    {}['nothing']\n    with sluice.torch.worker("), 1, "KeyError: 'nothing'")):
            with self.subTest(name):
                out = self.train(name=name, change=lambda text: text.replace(old, new, 1), expect=code)
                self.assertRegex(out.splitlines()[-1], r"^sluice: train\.py( rank 1)?: " + error)
                self.assertIn("Traceback", out)

    def test_a_program_that_fails_after_its_job_fails_the_launch(self):
        # It takes longer than a launch waits for a hanging process.
        end = "\n    import os, sys, time\n    if os.environ['SLUICE_RANK'] == '1':\n        time.sleep(8)\n        sys.exit(7)\n"
        out = self.train(change=lambda text: text.rstrip("\n") + "\nif __name__ == '__main__':" + end, expect=1)
        self.assertRegex(out, r"train\.py rank 1 \(pid \d+\) exited with code 7 after the job was done; its log: .*workerlog\.1")
        self.assertIn("the job is done; waits for the end of train.py rank 1", out)
        self.assertEqual(json.loads((self.tmp / "run" / "result.json").read_text())["status"], "done")

    def test_an_exception_while_the_job_recovers_fails_it_too(self):
        # The launcher has seen the end of the pserver when its process is gone, and starts another one 0.1 s later.
        fail = """exec('''if worker.rank == 1:
    import os, time
    lines = open(os.environ["SLUICE_LOG_DIR"] + "/endpoints.log").read().splitlines()
    pid = next(int(line.split()[3]) for line in lines if line.startswith("pserver"))
    os.kill(pid, 9)
    while os.path.exists("/proc/%d" % pid):
        time.sleep(0.005)
    time.sleep(0.05)
    1 / 0''')"""
        out = self.train("--a_sync=false", change=in_step(20, fail), expect=1)
        self.assertIn("was killed by signal 9", out)
        self.assertRegex(out, r"(?s)failed: .*Traceback.*ZeroDivisionError")
        self.assertNotIn("train.py rank 1 runs again", out)

    def test_a_program_that_cannot_start_again_ends_the_launch(self):
        # The first worker of rank 1 dies in a step; all later ones end in their first line.
        died = "os.environ['SLUICE_LOG_DIR'] + '/died'"
        dies = "if worker.rank == 1: import os; open(%s, 'w'); os.abort()" % died
        for name, ends in (("fails", "import nowhere"), ("exits", "print('ends', flush=True); os._exit(0)")):
            with self.subTest(name):
                again = "import os\nif os.path.exists(%s): %s\n" % (died, ends)
                out = self.train("--a_sync=false", name=name, change=lambda text: again + in_step(20, dies)(text), expect=1)
                self.assertRegex(out, r"start number 3 in a row that failed, and is not started again; [\s\S]*(No module named "
                                 r"'nowhere'|ends)")
                self.assertEqual(out.count("train.py rank 1 runs again"), 3, out)

    def test_a_launch_does_not_end_with_the_error_of_a_start_whose_next_one_was_well(self):
        # The first worker of rank 1 dies in a step, the second one fails after its imports, and the third one cancels the job.
        begins = """\
import sluice.torch
import os
died = os.environ["SLUICE_LOG_DIR"] + "/died"
if os.path.exists(died):
    os.rename(died, died + "_twice")
    raise OSError("the disk is away")

def disturb():
    if os.path.exists(died + "_twice"):
        raise KeyboardInterrupt
    open(died, "w").close()
    os.abort()
"""
        disturbs = in_step(20, "if worker.rank == 1: disturb()")
        out = self.train("--a_sync=false", change=lambda text: disturbs(text).replace("import sluice.torch\n", begins), expect=1)
        self.assertEqual(json.loads((self.tmp / "run" / "result.json").read_text())["status"], "cancelled", out)
        self.assertEqual(out.count("train.py rank 1 runs again"), 2, out)
        self.assertIn("the disk is away", (self.tmp / "run.log" / "workerlog.1").read_text())
        self.assertNotIn("the disk is away", out.splitlines()[-1])

    def test_an_exception_before_the_first_batch_fails_the_job_with_its_traceback(self):
        # Also in a process that takes a rank over, which may have no assignment yet.
        died = "os.environ['SLUICE_LOG_DIR'] + '/died'"
        dies = "if worker.rank == 1: import os; open(%s, 'w'); os.abort()" % died
        fails = "        import os\n        if os.path.exists(%s): 1 / 0\n        for batch in worker:\n" % died
        out = self.train("--a_sync=false", change=lambda text: in_step(20, dies)(text).replace(
            "        for batch in worker:\n", fails), expect=1)
        self.assertEqual(out.count("train.py rank 1 runs again"), 1, out)
        self.assertRegex(out, r"(?s)failed: .*Traceback.*train\.py.*\n.*ZeroDivisionError")
        self.assertIn("ZeroDivisionError", (self.tmp / "run" / "result.json").read_text())

    def test_a_process_that_takes_over_in_the_last_evaluation_loads_the_state(self):
        folder = self.tmp / "states"
        folder.mkdir()
        predict = """\
    def predict(batch):
        held = pathlib.Path(%r) / "held"
        if worker.rank == 1 and not held.exists():
            held.touch()
            __import__("time").sleep(600)  # until it is killed
        held.with_name("in%%d" %% worker.rank).write_text(str(kept[0]))
        return model(batch)
    with sluice""" % str(folder)
        launcher = self.start_training("--a_sync=false", arguments=["--epochs=1"], change=lambda text: with_state(folder)(
            text.replace("predict=model)", "predict=predict)").replace("    with sluice", predict)))
        wait_until((folder / "held").exists, self.output)
        kill_unless_over(self.pid_of("worker", 1), signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual(result["recovery"]["worker_losses"], 1, self.output())
        self.assertEqual([(folder / name).read_text() for name in ("in0", "in1")], 2 * [str(result["global_step"])], self.output())

    def test_a_program_that_exits_well_before_its_job_is_over_fails_the_job(self):
        out = self.train("--a_sync=false", change=in_step(20, "if worker.rank == 1: import os; os._exit(0)"), expect=1)
        cause = r"train\.py rank 1 \(pid \d+\) exited with code 0, before its job was over"
        self.assertRegex(out, cause + ", and is not started again")
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["status"], "failed", out)
        self.assertRegex(result["message"], cause)
        # The other rank has trained the same steps, also those since its last report.
        self.assertEqual(result["examples"], result["global_step"] * 2 * BATCH_SIZE, out)
        self.assertNotIn("runs again", out)

    def test_a_program_that_exits_well_while_the_scheduler_is_away_fails_the_job(self):
        leaves = ("if worker.rank == 1:\n                    import os, signal\n                    lines = open(os.environ['SLUICE_LOG_DIR'] "
                  "+ '/endpoints.log').read().splitlines()\n                    os.kill(int([line for line in lines if "
                  "line.startswith('scheduler')][-1].split()[3]), signal.SIGKILL)\n                    os._exit(0)")
        out = self.train("--a_sync=false", change=in_step(20, leaves), expect=1)
        self.assertRegex(out, r"train\.py rank 1 \(pid \d+\) exited with code 0, before its job was over, and is not started again")

    def test_torch_distributed_works_beside_and_the_flag_for_workers_wins(self):
        out = self.train(change=lambda text: text.replace("    torch.manual_seed(1)\n", """\
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    one = torch.tensor([1.0 + torch.distributed.get_rank()])
    torch.distributed.all_reduce(one)
    print("all_reduce:", one.item())
    job.text = job.text.replace("worker_num: 2", "worker_num: 3")
""").replace("import torch\n", "import torch\nimport torch.distributed\n", 1))
        self.assertIn("all_reduce: 3.0", out)
        self.assertIn("worker_num: 3, but --worker_num counts: 2 workers", out)

    def test_a_killed_worker_with_living_children_comes_back(self):
        # A loader made before the worker and one made after it, and a child that lives on for a while in any case.
        child = "import os, time\n        if os.fork() == 0: time.sleep(15), os._exit(0)\n"
        loader = "torch.utils.data.DataLoader(list(range(10**6)), num_workers=2)"
        launcher = self.start_training("--a_sync=false", arguments=["--epochs=%d" % EPOCHS], change=lambda text: text.replace(
            "    with sluice", "    before = iter(%s)\n    with sluice" % loader).replace(
            "        for batch", "        after = iter(%s)\n        %s        for batch" % (loader, child)).replace(
            "            loss =", "            next(before), next(after)\n            loss ="))
        self.await_step(launcher, 50)
        kill_unless_over(self.pid_of("worker", 1), signal.SIGKILL)
        result = self.result(launcher)
        # Once: the children of the dead process are not in the way of the new one.
        self.assertEqual(result["recovery"]["worker_losses"], 1, self.output())
        self.assertEqual(result["examples"], EPOCHS * ADULT_TRAIN_EXAMPLES)
        self.assertNotIn("in use", self.output())
        self.await_none_left()

    def start_alone(self, *arguments, resume=False, change=lambda text: text):
        """Runs the script by itself; its job writes into self.tmp / "own"."""
        more = 'output_dir: "%s" checkpoint { every_steps: 50 }' % (self.tmp / "own")
        file = self.script(lambda text: change(with_result(text)).replace(
            "    torch.manual_seed(1)\n", "    job.text += '%s'\n    torch.manual_seed(1)\n" % more).replace(
            "predict=model)", "predict=model, resume=%r)" % resume))
        return self.start(PYTHON, "-u", file, *arguments, env=dict(ONE_THREAD, PYTHONPATH=str(BIN.parent / "python")), log="run.out")

    def await_own_end(self):
        """All processes have ended that run in this test's folder."""
        def here():
            return [path.parent.name for path in pathlib.Path("/proc").glob("[0-9]*/cwd") if runs_in(path, self.tmp)]
        wait_until(lambda: not here(), lambda: "still running: %s" % here())

    def own_result(self):
        return json.loads((self.tmp / "own" / "result.json").read_text())

    def test_a_script_that_is_run_by_itself_trains_on_a_cluster_of_its_own(self):
        self.assertEqual(self.exit_code(self.start_alone("--epochs=1")), 0, self.output())
        self.assertIn("rank 0 of 1: epoch 1", self.output())
        self.assertIn("rank 0 done %d True" % ADULT_TRAIN_EXAMPLES, self.output())
        self.assertEqual((self.own_result()["status"], self.own_result()["examples"]), ("done", ADULT_TRAIN_EXAMPLES))
        self.await_own_end()

    def test_a_script_of_its_own_is_killed_and_resumed(self):
        script = self.start_alone("--epochs=1000")
        self.await_output(script, r"checkpoint of step \d+ is complete")
        script.kill()
        script.wait()
        self.await_own_end()
        self.assertNotIn("_stand_in", self.output())
        script = self.start_alone("--epochs=1000", resume=True)
        self.await_output(script, r"resumes from [\s\S]* loss")
        script.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(script), -signal.SIGINT, self.output())
        self.assertEqual(self.own_result()["status"], "cancelled")
        self.await_own_end()

    def start_ranks(self, *arguments, command=("-u",), log="run.out", **more):
        """Runs the script as another launcher than ours does; its job writes into self.tmp / "own"."""
        file = self.script(lambda text: text.replace(
            "    torch.manual_seed(1)\n", "    job.text += 'output_dir: \"%s\"'\n    torch.manual_seed(1)\n" % (self.tmp / "own")))
        return self.start(PYTHON, *command, file, *arguments,
                          env=dict(ONE_THREAD, PYTHONPATH=str(BIN.parent / "python"), **more), log=log)

    def test_ranks_of_torchrun_are_the_workers_of_a_cluster_of_their_own(self):
        command = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
        self.assertEqual(self.exit_code(self.start_ranks("--epochs=1", command=command)), 0, self.output())
        for rank in range(2):
            self.assertIn("rank %d of 2: epoch 1" % rank, self.output())
        self.assertEqual((self.own_result()["status"], self.own_result()["examples"], self.own_result()["worker_num"]),
                         ("done", ADULT_TRAIN_EXAMPLES, 2))
        self.await_own_end()

    def test_a_killed_rank_of_another_launcher_ends_the_job(self):
        """Without torchrun, which would kill the other ranks."""
        port = free_port()
        ranks = [self.start_ranks("--epochs=1000", log="rank%d.out" % rank, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                                  MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)) for rank in range(2)]
        self.await_output(ranks[1], r"rank 1 of 2: epoch 1", name="rank1")
        ranks[1].kill()
        ranks[1].wait()
        self.assertNotEqual(self.exit_code(ranks[0]), 0)
        self.assertIn("a process of the job has ended", self.output("rank0"))
        # The launcher sees the end of its worker and that nobody reads its statuses; either may come first.
        self.assertIn(self.own_result()["status"], ("failed", "cancelled"))
        self.await_own_end()

    def test_a_script_of_its_own_that_exits_well_before_its_job_is_over_ends_it(self):
        script = self.start_alone("--epochs=1000", change=in_step(60, "import os; os._exit(0)"))
        self.assertEqual(self.exit_code(script), 0, self.output())
        self.await_own_end()
        # The launcher sees the end of its worker and that nobody reads its statuses; either may come first.
        self.assertIn(self.own_result()["status"], ("failed", "cancelled"), self.output())

    def start_on_terminal(self, statement):
        """Launches one worker with --pdb and this statement in step 5. Returns the launcher and the terminal's other side."""
        file = self.script(in_step(5, statement))
        terminal, end = pty.openpty()
        self.addCleanup(os.close, terminal)
        launcher = subprocess.Popen(
            [str(BIN / "sluice"), *self.flags(file, "--pdb", workers=1)[1:]], cwd=self.tmp, env=ONE_THREAD, stdin=end, stdout=end,
            stderr=end, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self._started.append(launcher)
        os.close(end)
        return launcher, terminal

    def test_pdb_opens_on_the_terminal_where_an_exception_was_raised(self):
        launcher, terminal = self.start_on_terminal("raise ValueError('look')")
        shown = read_until(terminal, "(Pdb) ")
        self.assertIn("ValueError: look", shown)
        os.write(terminal, b"p 'step', batch.step\n")
        self.assertIn("('step', 5)", read_until(terminal, "(Pdb) "))
        os.write(terminal, b"q\n")
        self.assertRegex(read_until(terminal, None), "failed: .*")
        self.assertEqual(self.exit_code(launcher), 1)

    def test_ctrl_c_at_a_breakpoint_ends_the_launch(self):
        launcher, terminal = self.start_on_terminal("breakpoint()")
        read_until(terminal, "(Pdb) ")
        os.write(terminal, b"p 'step', batch.step\n")
        self.assertIn("('step', 5)", read_until(terminal, "(Pdb) "))
        os.write(terminal, b"\x03")
        read_until(terminal, None)
        self.assertEqual(self.exit_code(launcher), 130)
        self.await_none_left()

    def test_pdb_takes_one_worker(self):
        out = self.train("--pdb", expect=2)
        self.assertIn("--worker_num=1", out)

    def test_a_worker_with_another_declaration_is_refused_by_name(self):
        out = self.train(change=lambda text: "import os\n" + text.replace(
            "nn.Linear(100, 50)", "nn.Linear(100, 50 + int(os.environ['SLUICE_RANK']))").replace(
            "nn.Linear(50, 1)", "nn.Linear(50 + int(os.environ['SLUICE_RANK']), 1)"), expect=1)
        self.assertRegex(out, r"parameters\[\d+\]\.shape\[0\]: 51 -> 50")

    def check_ended_by_program(self, result, out):
        self.assertEqual(result["status"], "done", out)
        self.assertEqual(result["stopped_by"], "program")
        self.assertEqual(result["eval"]["examples"], ADULT_TEST_EXAMPLES)
        self.assertEqual(sum(epoch["examples"] for epoch in result["epochs_log"]), result["examples"])
        self.assertTrue((self.tmp / "run" / "model" / "MANIFEST").exists(), out)
        self.assertIn("ended early by the program", out)

    def test_a_break_in_sync_ends_the_job_after_this_step_with_the_same_bits(self):
        change = with_break("worker.rank == 1 and batch.epoch == 1 and batch.step == 20")
        digest = self.undisturbed_digest(change)
        launcher = self.start_training("--a_sync=false", arguments=["--epochs=%d" % EPOCHS], change=change)
        self.await_step(launcher, self.random.randrange(5, 100))
        kill_unless_over(self.pid_of("worker", 1), signal.SIGKILL)
        result = self.result(launcher)
        self.check_ended_by_program(result, self.output())
        self.assertEqual(result["model_digest"], digest)
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES + 21 * 2 * BATCH_SIZE)
        self.assertEqual(len(result["epochs_log"]), 2)
        # The other rank leaves its loop as well, and its script goes on.
        self.assertIn("rank 0 has trained", self.output())

    def test_a_break_ends_a_job_whose_workers_keep_the_dense_tables(self):
        change = with_break("worker.rank == 1 and batch.epoch == 1 and batch.step == 20")
        digest = self.undisturbed_digest(change, *COLLECTIVE)
        launcher = self.start_training("--a_sync=false", *COLLECTIVE, arguments=["--epochs=%d" % EPOCHS], change=change)
        self.await_step(launcher, self.random.randrange(5, 100))
        kill_unless_over(self.pid_of("worker", 0), signal.SIGKILL)
        result = self.result(launcher)
        self.check_ended_by_program(result, self.output())
        self.assertEqual(result["model_digest"], digest)
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES + 21 * 2 * BATCH_SIZE)
        self.assertIn("has trained", (self.tmp / "run.log" / "workerlog.1").read_text())

    def test_a_break_ends_a_job_without_tables_on_pservers(self):
        change = with_break("worker.rank == 0 and batch.step == 20")
        out = self.train("--a_sync=false", *COLLECTIVE, "--batch_size=128", change=lambda text: change(without_embeddings(text)))
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.check_ended_by_program(result, out)
        self.assertEqual(result["examples"], 21 * 2 * 128)

    def test_a_break_in_async_ends_the_job_and_counts_what_was_trained(self):
        out = self.train(change=with_break("worker.rank == 0 and batch.step == 30"), arguments=["--epochs=%d" % EPOCHS])
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.check_ended_by_program(result, out)
        said = out + (self.tmp / "run.log" / "workerlog.1").read_text()
        trained = dict(re.findall(r"rank (\d) has trained (\d+) examples", said))
        self.assertEqual(result["examples"], int(trained["0"]) + int(trained["1"]), said)

    def test_an_interrupt_of_a_worker_cancels_the_job(self):
        launcher = self.start_training(arguments=["--epochs=100"])
        self.await_step(launcher, 50)
        os.kill(self.pid_of("worker", 1), signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 1, self.output())
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["status"], "cancelled", self.output())
        self.assertIn("interrupted", result["message"])

    def test_an_interrupt_saves_and_cancels(self):
        launcher = self.start_training(arguments=["--epochs=100"])
        self.await_step(launcher, 50)
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130, self.output())
        self.assertRegex(self.output(), r"--resume -- --epochs=100")


class SavedModelTest(ProgramLaunchTest):
    """A program's model outside of its cluster."""

    USE = """
import gzip, json, sys
import torch
from torch.nn import functional as F
import sluice.torch
import train

folder, data, out = sys.argv[1:]
torch.set_num_threads(1)
model = train.WideDeep()
saved = sluice.torch.load(model, folder)
model.eval()
loss, examples, logits = 0.0, 0, []
with torch.no_grad():
    for batch in saved.batches(data, batch_size=500):
        logits.append(model(batch))
        loss += float(F.binary_cross_entropy_with_logits(logits[-1].double(), batch.label.double(), reduction="sum"))
        examples += len(batch)
    columns = ["age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship",
               "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country"]
    lines = [line.strip().split(", ") for line in gzip.open(data, "rt").read().splitlines()[1:41]]
    cells = {name: list(values) for name, values in zip(columns, zip(*lines)) if name != "fnlwgt"}
    cells["age"] = [int(age) for age in cells["age"]]
    here = model(saved.batch(cells))
sluice.torch.export(model, folder, out)
print(json.dumps({"log_loss": loss / examples, "examples": examples, "step": saved.step, "digest": saved.digest,
                  "off": float((here - logits[0][:40]).abs().max())}))
"""

    PLAIN = """
import sys
import torch
plain = torch.load(sys.argv[1], weights_only=True)
assert "sluice" not in sys.modules
print(sorted((name, len(table["keys"])) for name, table in plain["tables"].items()), plain["state"]["linear.weight"].shape)
"""

    def python(self, script, *arguments, **environment):
        done = subprocess.run([PYTHON, "-B", "-c", script, *map(str, arguments)], capture_output=True, text=True, cwd=self.tmp,
                              env={**ONE_THREAD, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_loaded_module_scores_as_the_job_has_evaluated(self):
        self.train("--a_sync=false", arguments=["--epochs=1"], change=with_norms)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        data = ROOT / "data" / "adult" / "adult.test.gz"
        used = json.loads(self.python(self.USE, self.tmp / "run" / "model", data, self.tmp / "model.pt",
                                      PYTHONPATH="%s:%s" % (BIN.parent / "python", self.tmp)))
        self.assertEqual((used["examples"], used["step"], used["digest"]),
                         (ADULT_TEST_EXAMPLES, result["global_step"], result["model_digest"]))
        self.assertAlmostEqual(used["log_loss"], result["eval"]["log_loss"], places=6)
        self.assertLess(used["off"], 1e-5)
        plain = self.python(self.PLAIN, self.tmp / "model.pt", PYTHONPATH="")
        self.assertRegex(plain, r"\('embedding_1', \d{3,}\), \('embedding_9', \d{3,}\).*\[1, 5\]")

    def test_any_number_of_workers_evaluates_a_saved_model_alike(self):
        self.train("--a_sync=false", arguments=["--epochs=1"], change=with_norms)
        trained = json.loads((self.tmp / "run" / "result.json").read_text())["eval"]
        for workers, flags in ((1, ()), (3, ()), (3, COLLECTIVE), (3, GEO)):
            name = "evaluation%d%s" % (workers, "".join(flags)[-10:])
            mode = flags if flags == GEO else ("--a_sync=false", *flags)
            done = self.run_program(
                *self.flags(self.script(with_norms), *mode, "--set=evaluate_only=true",
                            "--set=initial_model=%s" % (self.tmp / "run" / "model"), name=name, workers=workers), env=ONE_THREAD)
            self.assertEqual(done.returncode, 0, done.stdout)
            evaluated = json.loads((self.tmp / name / "result.json").read_text())["eval"]
            for figure in ("auc", "log_loss"):
                self.assertAlmostEqual(evaluated[figure], trained[figure], delta=1e-6, msg="%s, %s" % (name, figure))

    def test_predict_names_what_scores_a_programs_model(self):
        self.train(arguments=["--epochs=1"])
        done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / "run" / "model"),
                                "--output=%s" % (self.tmp / "scores"), "--data=%s" % (ROOT / "data" / "adult" / "adult.test.gz"))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("sluice.torch.load", done.stdout)


class EqualityTest(SluiceTest):
    """wide_deep written in PyTorch trains as the native one from the same values: each table within 1e-5 of its norm."""

    # Native dense tables and the module's parameters; weights are transposed.
    LAYERS = {"deep/0": "deep.0", "deep/1": "deep.2", "deep/2": "deep.4"}

    def values(self, name):
        """{table: {key or index: [values]}} of a saved model."""
        done = subprocess.run([TEST_BIN / "model_values", self.tmp / name / "model"], capture_output=True, text=True, check=True)
        tables = collections.defaultdict(dict)
        for line in done.stdout.splitlines():
            table, key, *values = line.split()
            tables[table][int(key)] = [float(value) for value in values]
        return tables

    def first_lines(self, n):
        """A flag: trains on the first lines of the data alone."""
        file = self.tmp / "first_lines.csv"
        with gzip.open(ROOT / "data" / "adult" / "adult.data.gz", "rt") as lines:
            file.write_text("".join(itertools.islice((line for line in lines if line.strip() and not line.startswith("|")), n)))
        return "--set=data.train_files=%s" % file

    def native(self, name, *flags):
        self.launch("--server_num=1", "--epochs=1", "--set=model.wide_deep.embedding_initializer={constant: 0.02}", *flags,
                    name=name)
        return self.values(name)

    def check(self, optimizer, *mode):
        first = self.native("first", "--set=optimizers.all={sgd {} learning_rate: 1e-30}", *mode)
        native = self.native("native", "--set=optimizers.all={%s}" % optimizer, *mode)
        start = {native_name: [values[0] for _, values in sorted(first[native_name].items())]
                 for native_name in first if "/" in native_name}
        script = self.tmp / "train.py"
        (self.tmp / "start.json").write_text(json.dumps(start))
        script.write_text(SCRIPT.replace('"embedding", dim, features=CATEGORIES', '"embedding", dim, features=CATEGORIES, '
                                         'initializer={"constant": 0.02}').replace("    model = WideDeep()\n", """\
    model = WideDeep()
    import json
    start = json.load(open(%r))
    state = model.state_dict()
    def put(name, values):
        like = state[name]
        value = torch.tensor(values)
        state[name] = value.view(like.shape[::-1]).t() if like.dim() == 2 else value.view(like.shape)
    for native, own in %r.items():
        put(own + ".weight", start[native + "/weight"])
        put(own + ".bias", start[native + "/bias"])
    put("linear.weight", start["wide/weight"])
    put("linear.bias", start["wide/bias"])
    model.load_state_dict(state)
""" % (str(self.tmp / "start.json"), self.LAYERS)))
        done = self.run_program("sluice", "launch", "--program=%s" % script, "--python=%s" % PYTHON, "--server_num=1",
                                *mode, "--epochs=1", "--output_dir=%s" % (self.tmp / "own"),
                                "--log_dir=%s" % (self.tmp / "own.log"), "--set=optimizers.all={%s}" % optimizer)
        self.assertEqual(done.returncode, 0, done.stdout)
        own = self.values("own")
        for native_name, name in self.LAYERS.items():
            width = len(native[native_name + "/bias"])
            weight = [native[native_name + "/weight"][i][0] for i in sorted(native[native_name + "/weight"])]
            transposed = [weight[i] for unit in range(width) for i in range(unit, len(weight), width)]
            self.assert_close(name, transposed, [own[name + ".weight"][i][0] for i in range(len(weight))])
            self.assert_close(name, *([of[i][0] for i in range(width)] for of in (native[native_name + "/bias"], own[name + ".bias"])))
        rows = {**native["embedding"]}
        both = own["embedding_9"]
        self.assertEqual(set(rows), set(both) | set(own["embedding_1"]))
        # Native rows begin with the wide weight, those of the program with the first collection.
        self.assert_close("embedding", *zip(*((a, b) for key in sorted(both) for a, b in zip(rows[key][1:], both[key][:8]))))
        wide = {**{key: row[8] for key, row in both.items()}, **{key: row[0] for key, row in own["embedding_1"].items()}}
        self.assert_close("wide", *zip(*((rows[key][0], wide[key]) for key in sorted(rows))))

    def assert_close(self, name, a, b):
        distance = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))
        norm = math.sqrt(sum(x * x for x in a))
        print("%s: %.1e of its norm" % (name, distance / norm), flush=True)
        self.assertTrue(distance <= 1e-5 * norm, name)

    def test_with_sgd(self):
        self.check("sgd {} learning_rate: 0.1", "--worker_num=2", "--a_sync=false")

    def test_with_adagrad(self):
        self.check("adagrad { initial_accumulator: 0.1 } learning_rate: 0.05", "--worker_num=2", "--a_sync=false")

    def test_the_first_20_steps_with_adam(self):
        # Not an epoch: the first steps of Adam are signs of gradients, so products in another precision lead elsewhere.
        steps, workers, batch = 20, 2, 128
        self.check("adam {} learning_rate: 0.001", "--worker_num=%d" % workers, "--a_sync=false",
                   self.first_lines(steps * workers * batch))
        for name in ("native", "own"):
            self.assertEqual(json.loads((self.tmp / name / "result.json").read_text())["global_step"], steps)

    def test_geo_with_one_worker(self):
        """With several, the order in which their moves arrive differs from run to run."""
        self.check("adagrad { initial_accumulator: 0.1 } learning_rate: 0.05", "--worker_num=1", *GEO)

    def test_geo_with_two_workers_learns_as_the_native_model(self):
        flags = ["--server_num=1", "--worker_num=2", *GEO]
        native, _ = self.launch(*flags, "--epochs=3", name="native")
        script = self.tmp / "train.py"
        script.write_text(SCRIPT)
        done = self.run_program("sluice", "launch", "--program=%s" % script, "--python=%s" % PYTHON, *flags, "--epochs=3",
                                "--output_dir=%s" % (self.tmp / "own"), "--log_dir=%s" % (self.tmp / "own.log"), env=ONE_THREAD)
        self.assertEqual(done.returncode, 0, done.stdout)
        own = json.loads((self.tmp / "own" / "result.json").read_text())
        print("Geo, two workers: AUC %.4f, native %.4f" % (own["eval"]["auc"], native["eval"]["auc"]), flush=True)
        self.assertAlmostEqual(own["eval"]["auc"], native["eval"]["auc"], delta=0.003)


if __name__ == "__main__":
    unittest.main()
