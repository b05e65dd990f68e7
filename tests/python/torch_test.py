"""sluice.torch against plain PyTorch, on a fake worker (fake_core.py). Needs torch."""
import contextlib
import inspect
import io
import itertools
import multiprocessing
import json
import math
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import threading
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent), str(ROOT / "tests" / "system")]

try:
    import numpy as np
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("SKIPPED, NOT PASSED: torch_test needs PyTorch (pip install torch==2.5.1 numpy)", file=sys.stderr)
    sys.exit(77)

import fake_core  # noqa: E402
import sluice  # noqa: E402
import sluice.torch  # noqa: E402
import sluice_testing  # noqa: E402
from sluice import _process  # noqa: E402
from sluice._model import _cell, _listed  # noqa: E402
from sluice.torch import EmbeddingCollection, Optimizer  # noqa: E402
from sluice.torch import _check  # noqa: E402
from sluice.torch._declare import declare  # noqa: E402
from sluice.torch._embedding import Batch, columns_of_numbers  # noqa: E402
from sluice.torch._reports import StepCount  # noqa: E402
from sluice.torch._source import Converter, SourceReader  # noqa: E402
from sluice.torch._torchrun import TorchRanks  # noqa: E402
from sluice.torch._worker import _Views  # noqa: E402
from sluice._member import shortened  # noqa: E402
from sluice.torch._worker import Worker  # noqa: E402

SLOTS = [("user", 0), ("item", 0), ("day", 1)]


class Net(nn.Module):
    """Two collections over two tables: "emb" and "lin" side by side in table 0, "lin" alone in table 1."""

    def __init__(self, norm=False):
        super().__init__()
        self.emb = EmbeddingCollection("emb", 4, features=["item", "user"])
        self.lin = EmbeddingCollection("lin", 1, features=["user", "item", "day"])
        self.norm = nn.BatchNorm1d(9) if norm else nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 1))

    def forward(self, batch):
        deep = torch.cat([self.emb(batch).flatten(1), batch.number("age")[:, None]], dim=1)
        return self.mlp(self.norm(deep)).squeeze(1) + self.lin(batch).sum((1, 2))


def batches(n, examples=6, several=False, seed=1):
    draw = random.Random(seed)
    made = []
    for step in range(n):
        keys = [[[draw.randrange(5) for _ in range(draw.randrange(3) if several else 1)] for _ in SLOTS]
                for _ in range(examples)]
        label = [draw.randrange(2) for _ in range(examples)]
        made.append((keys, label, [draw.random() for _ in range(examples)], step))
    return made


def loss_of(logits, batch):
    return F.binary_cross_entropy_with_logits(logits, batch.label, weight=batch.weight)


class Reference:
    """The same network with rows of its own, trained by torch."""

    def __init__(self, net, core):
        self.net, self.core, self.rows = net, core, {}

    def row(self, table, key):
        if (table, key) not in self.rows:
            self.rows[table, key] = torch.from_numpy(self.core.initial(table, key)).requires_grad_()
        return self.rows[table, key]

    def train(self, made):
        net = self.net
        for keys, label, numbers, _ in made:
            def pool(slot, begin, dim):
                table = SLOTS[slot][1]
                return torch.stack([sum((self.row(table, k)[begin:begin + dim] for k in example[slot]), torch.zeros(dim))
                                    for example in keys])
            deep = torch.cat([pool(1, 0, 4), pool(0, 0, 4), torch.tensor(numbers)[:, None]], dim=1)
            logits = net.mlp(net.norm(deep)).squeeze(1) + (pool(0, 4, 1) + pool(1, 4, 1) + pool(2, 0, 1)).squeeze(1)
            leaves = [*net.parameters(), *self.rows.values()]
            gradients = torch.autograd.grad(F.binary_cross_entropy_with_logits(logits, torch.tensor(label).float()), leaves,
                                            allow_unused=True)
            with torch.no_grad():
                for leaf, gradient in zip(leaves, gradients):
                    if gradient is not None:
                        leaf -= self.core.rate * gradient


class FakeWorkerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": folder.name, "SLUICE_RANK": "0"})
        patch.start()
        self.addCleanup(patch.stop)
        for owner, name in ((sys, "excepthook"), (_process, "_hook")):
            self.addCleanup(setattr, owner, name, getattr(owner, name))
        self.core = fake_core.Core(SLOTS)

    def worker(self, net, job="train { epochs: 1 }", **more):
        _process.leave(again=True)  # this process runs many jobs
        return Worker(net, sluice.Job(job), core=self.core, **more)

    def said(self, body):
        """What `body` prints on stderr."""
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            body()
        return out.getvalue()


class LoopTest(FakeWorkerTest):
    def check_equal_to_torch(self, several, norm):
        net = Net(norm)
        reference = Net(norm)
        reference.load_state_dict(net.state_dict())
        made = batches(20, several=several)
        self.core.batches = list(made)
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        other = Reference(reference, self.core)
        other.train(made)
        for (table, key), row in other.rows.items():
            torch.testing.assert_close(torch.from_numpy(self.core.tables_[table][key]), row.detach(), rtol=0, atol=1e-5)
        state = reference.state_dict()
        for name, value in zip(self.core.parameters(), self.core.dense):
            torch.testing.assert_close(torch.from_numpy(value), state[name], rtol=0, atol=1e-5)
        self.assertEqual(worker.moved_gradients, 0)
        self.assertEqual([event[0] for event in self.core.events], ["step"] * 20 + ["stop"])

    def test_one_key_per_slot_trains_as_torch(self):
        self.check_equal_to_torch(several=False, norm=False)

    def test_any_number_of_keys_trains_as_torch(self):
        self.check_equal_to_torch(several=True, norm=False)

    def test_buffers_move_as_torch_moves_them(self):
        self.check_equal_to_torch(several=False, norm=True)

    def test_integer_buffers_keep_their_values(self):
        net = Net(norm=True)
        self.core.batches = batches(3)
        with self.worker(net) as worker:
            for batch in worker:
                self.assertEqual(int(net.norm.num_batches_tracked), 0)
                worker.backward(loss_of(net(batch), batch))

    def test_in_async_each_worker_moves_buffers_by_its_share(self):
        self.core.workers, self.core.asynchronous = 2, True
        net = Net(norm=True)
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            for batch in worker:
                before = net.norm.running_mean.clone()
                worker.backward(loss_of(net(batch), batch))
                moved = net.norm.running_mean - before
        after = torch.from_numpy(self.core.dense[self.core.parameters().index("norm.running_mean")])
        torch.testing.assert_close(after, before + moved / 2)

    def test_a_batch_without_step_trains_nothing(self):
        net = Net()
        self.core.batches = batches(2)
        with self.worker(net) as worker:
            for batch in worker:
                net(batch)
        self.assertEqual([event[0] for event in self.core.events], ["skip", "skip", "stop"])

    def test_an_epoch_without_any_step_is_an_error(self):
        def epochs(*made):
            """Batches of epochs, each with its end."""
            return [item for e, n in enumerate(made) for item in (*batches(n), fake_core.EndOfEpoch(e))]

        def train(items, steps=()):
            net = Net()
            self.core = fake_core.Core(SLOTS)
            self.core.batches = items
            with self.worker(net) as worker:
                for number, batch in enumerate(worker):
                    if number in steps:
                        worker.backward(loss_of(net(batch), batch))
            return [event[0] for event in self.core.events]

        with self.assertRaisesRegex(RuntimeError, r"^all 3 batches of epoch 1 were left without worker.step\(\)"):
            train(epochs(3))
        self.assertEqual([event[0] for event in self.core.events], ["skip"] * 3 + ["fail", "stop"])
        with self.assertRaisesRegex(RuntimeError, "^all 2 batches of epoch 1"):
            train([*batches(2), fake_core.Attempt(), *epochs(2)])
        self.assertEqual(train(epochs(3), {1}), ["skip", "step", "skip", "end", "stop"])
        self.assertEqual(train(epochs(1)), ["skip", "end", "stop"])
        self.assertEqual(train([batches(1)[0], fake_core.Attempt(), *epochs(1)]), ["skip", "skip", "end", "stop"])

    def test_an_epoch_that_is_left_by_a_break_may_be_without_a_step(self):
        self.core.batches = [*batches(2), fake_core.EndOfEpoch(0)]
        with self.worker(Net()) as worker:
            next(worker)
            next(worker)
        self.assertEqual([event[0] for event in self.core.events], ["skip", "leave", "end", "stop"])

    def test_the_first_batch_of_another_epoch_ends_one_without_steps(self):
        count = StepCount()
        for epoch, begins in ((0, True), (0, False)):
            count.begin(mock.Mock(epoch=epoch, begins=begins))
        with self.assertRaisesRegex(RuntimeError, "^all 2 batches of epoch 1"):
            count.begin(mock.Mock(epoch=1, begins=False))
        count.begin(mock.Mock(epoch=1, begins=True))  # the job has gone on from a checkpoint

    def test_a_change_of_a_parameter_outside_of_a_step_is_named(self):
        def train(step):
            net = Net()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(2)
            with self.worker(net) as worker:
                for batch in worker:
                    loss_of(net(batch), batch).backward()
                    optimizer.step()
                    if step:
                        worker.step(0.5)

        asks = r"a torch optimizer\? The pservers update the parameters"
        said = "4 parameters were changed outside of a step: the changes are lost"
        names = r": 'mlp.0.weight', 'mlp.0.bias', 'mlp.2.weight', ... \(said once\)\n"
        self.assertRegex(self.said(lambda: train(False)), rf"{said} \({asks}\){names}")
        self.assertRegex(self.said(lambda: train(True)), said + names)

    def test_train_hands_on_what_worker_takes(self):
        of_worker = dict(inspect.signature(sluice.torch.worker).parameters)
        of_train = dict(inspect.signature(sluice.torch.train).parameters)
        for name in ("model", "job", "predict", "core"):
            of_worker.pop(name)
        for name in ("model", "job", "loss"):
            of_train.pop(name)
        self.assertEqual(of_train, of_worker)
        given = {name: object() for name in of_worker}
        with mock.patch("sluice.torch._worker.worker") as worker:
            worker.return_value.__enter__.return_value = []
            sluice.torch.train("model", len, "job", **given)
        worker.assert_called_once_with("model", "job", predict="model", **given)

    def test_an_error_of_the_job_names_fields_and_features_that_may_be_meant(self):
        job = """name: "first"
features {
  name: "age"
  numeric {
  }
}
features {
  name: "education"
  categorical {
  }
}
model {
  program {
    collections {
      name: "wide"
      features: "age"
    }
    collections {
      name: "deep"
      features: "eduction"
    }
  }
}
"""
        unknown = "model.program.collections[1].features: names '%s', which the job does not declare; declare it, or remove it"
        label = "data.label.column: is missing; name the column that holds the label"
        for feature, more in (("eduction", " (collection 'deep'; did you mean 'education'?)"),
                              ("xyz", " (collection 'deep'; it has ['age', 'education'])")):
            error = "/tmp/a/draft.textproto:2: %s\n/tmp/a/draft.textproto:28: %s" % (label, unknown % feature)
            self.core.offer = mock.Mock(side_effect=ValueError(error))
            with self.assertRaises(ValueError) as raised:
                self.worker(Net(), job).__enter__()
            self.assertEqual(str(raised.exception), label + "\n" + unknown % feature + more)
        rate = "model.program.collections[0].optimizer.learning_rate: is 0; give a positive number"
        self.core.offer = mock.Mock(side_effect=ValueError(rate))
        with self.assertRaisesRegex(ValueError, r"learning_rate: .*number \(collection 'wide'\)$"):
            self.worker(Net(), job).__enter__()

    def test_a_second_step_is_an_error_that_fails_the_job(self):
        net = Net()
        self.core.batches = batches(1)
        with self.assertRaisesRegex(RuntimeError, "each batch takes one step"):
            with self.worker(net) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch))
                    worker.step()
        self.assertEqual([event[0] for event in self.core.events], ["step", "fail", "stop"])
        self.assertIn("worker.step()", self.core.events[1][1])

    def test_two_backwards_before_a_step_add_up(self):
        net = Net()
        made = batches(1)
        self.core.batches = [made[0]]
        with self.worker(net) as worker:
            for batch in worker:
                loss = loss_of(net(batch), batch)
                loss.backward(retain_graph=True)
                once = [p.grad.clone() for p in net.parameters()]
                loss.backward()
                worker.step()
        for gradient, pushed in zip(once, self.core.last._gradients):
            torch.testing.assert_close(2 * gradient, torch.from_numpy(pushed))

    def test_a_step_reports_the_loss_that_it_is_given(self):
        net = Net()
        losses = []

        def train(give):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(2)
            with self.worker(net) as worker:
                for batch in worker:
                    loss = loss_of(net(batch), batch)
                    losses.append(loss.item())
                    loss.backward()
                    give(worker, loss)

        for give in (lambda worker, loss: worker.step(loss), lambda worker, loss: worker.step(loss.item(), weight=6)):
            losses.clear()
            self.assertEqual(self.said(lambda: train(give)), "")
            self.assertEqual(self.core.events[:2], [("step", loss * 6, 6) for loss in losses])
        said = self.said(lambda: train(lambda worker, loss: worker.step()))
        self.assertRegex(said, r"^sluice: worker.step\(\) was not given the loss.*worker.step\(loss\) \(said once\)\n$")
        self.assertEqual(self.core.events[:2], [("step", 0, 6)] * 2)

    def test_the_weight_of_a_step_is_that_of_its_batch(self):
        net = Net()
        self.core.batches = batches(3)
        with self.worker(net) as worker:
            for batch in worker:
                if batch.step == 1:
                    batch.weight.mul_(2)
                if batch.step == 2:
                    self.assertEqual(batch.weight.tolist(), [1.0] * 6)
                worker.backward(F.binary_cross_entropy_with_logits(net(batch), batch.label))
                self.assertEqual(len(batch.weight), 6)  # also after the step
        self.assertEqual([event[2] for event in self.core.events if event[0] == "step"], [6, 12, 6])

    def test_a_step_without_any_gradient_is_an_error(self):
        rows = nn.Module()
        rows.lin = Net().lin
        rows.forward = lambda batch: rows.lin(batch).sum((1, 2))
        for net in (Net(), rows):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            with self.assertRaisesRegex(RuntimeError, r"^no parameter and no row has a gradient: call loss.backward\(\)"):
                with self.worker(net) as worker:
                    for batch in worker:
                        worker.step(loss_of(net.forward(batch), batch))
            self.assertEqual([event[0] for event in self.core.events], ["fail", "stop"])
        # Gradients of zero are gradients, and a step of weight 0 is meant.
        for step in (lambda worker, loss: worker.backward(loss * 0), lambda worker, loss: worker.step(loss, weight=0)):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            with self.worker(rows) as worker:
                for batch in worker:
                    step(worker, loss_of(rows.forward(batch), batch))
            self.assertEqual([event[0] for event in self.core.events], ["step", "stop"])

    def test_parameters_without_gradients_are_named_in_one_line(self):
        net = Net()
        net.unused = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

        def train(skip_mlp):
            self.core.batches = batches(3)
            with self.worker(net) as worker:
                for batch in worker:
                    mlp = 0 if skip_mlp and batch.step == 2 else net.mlp(torch.ones(len(batch), 9)).squeeze(1)
                    worker.backward(loss_of(mlp + net.lin(batch).sum((1, 2)), batch))

        first = "sluice: 4 parameters have no gradient: they count as zero: 'unused.0.weight', 'unused.0.bias', "
        first += "'unused.1.weight', ... (said once)\n"
        self.assertEqual(self.said(lambda: train(False)), first)
        self.assertIn("4 parameters have no gradient: they count as zero: 'mlp.0.weight'", self.said(lambda: train(True)))
        net.unused = nn.Linear(2, 2, bias=False)
        self.assertEqual(self.said(lambda: train(False)),
                         "sluice: parameter 'unused.weight' has no gradient: it counts as zero (said once)\n")

    def test_a_number_that_the_job_lacks_is_named(self):
        self.core.batches = batches(1)
        with self.worker(Net()) as worker:
            batch = next(worker)
            with self.assertRaisesRegex(KeyError, r"no numeric feature 'hours'; it has \['age'\]"):
                batch.number("hours")

    def test_a_step_refuses_what_is_no_loss_and_no_weight(self):
        for arguments, error, message in (
            ({"loss": torch.tensor(float("nan"))}, FloatingPointError, "the loss is nan in epoch 1, step 1"),
            ({"loss": float("inf")}, FloatingPointError, "the loss is inf"),
            ({"loss": torch.zeros(2)}, TypeError, r"the loss is of shape \(2,\)"),
            ({"loss": "text"}, TypeError, "the loss is a str"),
            ({"weight": -1}, ValueError, r"the weight of a step is -1\.0"),
            ({"weight": float("nan")}, ValueError, "the weight of a step is nan"),
            ({"weight": float("inf")}, ValueError, "the weight of a step is inf"),
        ):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            net = Net()
            with self.subTest(arguments=arguments), self.worker(net) as worker:
                for batch in worker:
                    loss = loss_of(net(batch), batch)
                    with self.assertRaisesRegex(error, message):
                        worker.step(**{"loss": 0.5, **arguments})
                    if "weight" in arguments:
                        with self.assertRaisesRegex(error, message):
                            worker.backward(loss, **arguments)
                    worker.backward(loss, weight=0)
            self.assertEqual(self.core.events[0], ("step", 0, 0))

    def test_a_loss_that_is_no_number_fails_the_job(self):
        net = Net()
        self.core.batches = batches(1)
        with self.assertRaisesRegex(FloatingPointError, "epoch 1, step 1"):
            with self.worker(net) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch) * float("nan"))
        self.assertEqual(self.core.events[0][0], "fail")

    def test_an_exception_fails_the_job_with_its_traceback(self):
        net = Net()
        self.core.batches = batches(1)
        with self.assertRaises(ZeroDivisionError):
            with self.worker(net) as worker:
                for batch in worker:
                    1 / 0
        self.assertRegex(self.core.events[0][1], r"(?s)Traceback.*torch_test.py.*ZeroDivisionError")

    def test_memory_of_a_batch_is_not_touched_when_its_job_has_failed(self):
        net = Net()
        self.core.batches = batches(1)
        pushed = []

        def fail(why):
            # From here on the training thread may free the memory of the turn.
            pushed[:] = [self.core.turn._row_gradients, [array.copy() for array in self.core.turn._row_gradients]]
            self.core.turn = None

        self.core.fail = fail
        with self.assertRaises(ZeroDivisionError), self.worker(net) as worker:
            for batch in worker:
                loss_of(net(batch), batch).backward()
                for leaf in batch._leaves:
                    leaf.grad = None  # so that closing the batch writes zeros
                1 / 0
        for array, at_fail in zip(*pushed):
            self.assertEqual(array.tolist(), at_fail.tolist())
            self.assertFalse(array.any())

    def test_an_evaluation_batch_is_over_when_predict_raises(self):
        self.core.batches = [(*batches(1)[0], False)]
        seen = []

        def predict(batch):
            seen.append(batch)
            raise ZeroDivisionError

        net = Net()
        with self.assertRaises(ZeroDivisionError), self.worker(net, predict=predict) as worker:
            next(worker)
        with self.assertRaisesRegex(RuntimeError, "this batch is over"):
            net(seen[0])

    def test_the_loop_does_not_go_on_after_an_exception_in_next(self):
        made = batches(2)
        evaluates = (*made[1], False)

        def divide(*_):
            return 1 / 0

        for name, turn, more in (
            ("predict", evaluates, {"predict": divide}),
            ("metric", evaluates, {"predict": lambda batch: torch.zeros(len(batch)), "metrics": {"m": divide}}),
            ("on_epoch_end", fake_core.EndOfEpoch(0), {}),
            ("save_state", fake_core.StateTurn(), {}),
        ):
            for leaves in (False, True):
                self.core = fake_core.Core(SLOTS)
                self.core.batches = [turn, made[0]]
                with self.subTest(name, leaves=leaves), self.assertRaisesRegex(RuntimeError, "the last turn was not answered"):
                    with self.worker(Net(), **more) as worker:
                        if name == "on_epoch_end":
                            worker.on_epoch_end(divide)
                        if name == "save_state":
                            worker.save_state(divide)
                            worker.load_state(divide)
                        with self.assertRaises(ZeroDivisionError):
                            next(worker)
                        if not leaves:
                            next(worker)
                self.assertEqual([event[0] for event in self.core.events], ["fail", "stop"])

    def test_the_loop_does_not_go_on_inside_predict(self):
        self.core.batches = [(*batches(1)[0], False)]
        with self.assertRaisesRegex(RuntimeError, "the last turn was not answered"):
            with self.worker(Net(), predict=lambda batch: next(worker)) as worker:
                next(worker)

    def test_the_ends_of_a_long_traceback_reach_the_scheduler(self):
        for line in ("x = 1\n", "    größe = \"日本語のとても長い行\"\n", "\n"):
            with self.subTest(line=line):
                whole = "Traceback\n  train.py, line 7\n" + line * 2000 + "ValueError: größer\nas expected\n"
                text = shortened(whole)
                self.assertLessEqual(len(text.encode()) + 4 * text.count("\n"), 3500)
                self.assertGreater(len(text.encode()) + 4 * text.count("\n"), 3450)
                self.assertTrue(text.startswith("Traceback\n  train.py, line 7\n" + line))
                self.assertTrue(text.endswith("\nValueError: größer\nas expected\n"))
                self.assertIn("\n...\n", text)
        self.assertEqual(shortened("kurz: größer\n"), "kurz: größer\n")
        self.assertEqual(shortened("no text: \udcff\n"), "no text: ?\n")  # it would be no str of the core

    def test_a_job_that_evaluates_needs_predict(self):
        job = 'name: "first"\ndata {\n  csv {\n    header: true\n  }\n  eval_files: "a"\n}\ntrain {\n  epochs: 1\n}\n'
        with self.assertRaisesRegex(ValueError, r"evaluates \(data.eval_files or eval_source=\).*predict=fn"):
            self.worker(Net(), job)
        self.worker(Net(), job, predict=lambda batch: torch.zeros(len(batch)))
        self.worker(Net(), job.replace("  eval_files", "  train_files"))
        # Without it in the script's job, a flag may still have added the files.
        self.core.batches = [(*batches(1)[0], False)]
        with self.assertRaisesRegex(RuntimeError, "no predict="), self.worker(Net()) as worker:
            next(worker)

    def test_a_change_of_a_buffer_that_is_not_saved_is_named(self):
        named = r"^sluice: buffer 'scale' has changed, but each batch begins with its first value.* \(said once\)\n$"
        for change, said in ((1, named), (0, "^$")):
            net = Net()
            net.register_buffer("scale", torch.full((2,), 3, dtype=torch.float64), persistent=False)
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(3)

            def train():
                with self.worker(net) as worker:
                    for batch in worker:
                        self.assertEqual(net.scale.tolist(), [3, 3])
                        worker.backward(loss_of(net(batch), batch))
                        net.scale += change

            self.assertRegex(self.said(train), said)

    def test_a_break_ends_the_job_and_evaluates_it(self):
        net = Net()
        made = batches(4)
        self.core.batches = [made[0], made[1], (*made[2], False), made[3]]
        with self.worker(net, predict=net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
                break
        self.assertEqual([event[0] for event in self.core.events], ["step", "leave", "stop"])
        self.assertEqual(len(self.core.logits_seen), 1)

    def test_a_batch_that_is_left_by_a_break_makes_no_step(self):
        net = Net()
        self.core.batches = batches(2)
        with self.worker(net) as worker:
            for batch in worker:
                break
        self.assertEqual([event[0] for event in self.core.events], ["leave", "stop"])
        with self.assertRaisesRegex(RuntimeError, "this batch is over"):
            net(batch)

    def test_leaving_without_a_loop_ends_the_job(self):
        with self.worker(Net()):
            pass
        self.assertEqual([event[0] for event in self.core.events], ["leave", "stop"])

    def test_a_job_that_fails_after_a_break_raises_its_message(self):
        net = Net()
        self.core.batches = [batches(1)[0], fake_core.JobEnded("pserver 0 is lost")]
        with self.assertRaisesRegex(sluice.JobError, "pserver 0 is lost"):
            with self.worker(net) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch))
                    break
        self.assertEqual([event[0] for event in self.core.events], ["step", "leave", "stop"])

    def test_an_error_of_the_evaluation_after_a_break_fails_the_job(self):
        net = Net()
        made = batches(2)
        self.core.batches = [made[0], (*made[1], False)]
        with self.assertRaises(ZeroDivisionError):
            with self.worker(net, predict=lambda batch: 1 / 0) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch))
                    break
        self.assertEqual([event[0] for event in self.core.events], ["step", "leave", "fail", "stop"])

    def test_an_interrupt_cancels_the_job(self):
        handler = signal.getsignal(signal.SIGINT)
        for late in (False, True):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = [batches(1)[0], KeyboardInterrupt()]
            with self.assertRaises(KeyboardInterrupt):
                with self.worker(Net()) as worker:
                    for batch in worker:
                        if late:
                            break  # and the interrupt comes while the job ends
            self.assertEqual([event[0] for event in self.core.events],
                             ["leave", "cancel", "stop"] if late else ["skip", "cancel", "stop"])
            self.assertEqual(signal.getsignal(signal.SIGINT), handler)

    def test_a_failed_job_raises_its_message(self):
        self.core.batches = [fake_core.JobEnded("pserver 0 is lost")]
        with self.assertRaisesRegex(sluice.JobError, "pserver 0 is lost"):
            with self.worker(Net()) as worker:
                for _ in worker:
                    pass
        self.assertEqual(self.core.events, [("stop",)])

    def test_evaluation_is_in_eval_mode_and_not_part_of_the_loop(self):
        net = Net(norm=True)
        seen = []

        def predict(batch):
            seen.append((net.training, torch.is_grad_enabled(), batch.first_of_epoch))
            return net(batch)

        made = batches(2)
        self.core.batches = [made[0], (*made[1], False)]
        with self.worker(net, predict=predict) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        self.assertEqual(seen, [(False, False, False)])
        self.assertTrue(net.training)
        self.assertTrue(self.core.logits_seen[0].any())

    def test_a_batch_is_not_used_after_its_step(self):
        net = Net()
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
            with self.assertRaisesRegex(RuntimeError, "this batch is over"):
                net(batch)
            self.assertEqual(batch.label.shape, (6,))

    def test_the_generator_is_seeded_by_the_step(self):
        drawn = []
        for _ in range(2):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(2)
            net = Net()
            with self.worker(net) as worker:
                for batch in worker:
                    drawn.append(torch.rand(1).item())
                    worker.backward(loss_of(net(batch), batch))
        self.assertEqual(drawn[:2], drawn[2:])
        self.assertNotEqual(drawn[0], drawn[1])

    # ---- what no step changes: frozen parameters, which are tables, and constants, which are none

    def run_loop(self, net, rank="0"):
        """Trains one batch with this network as the worker of a rank. Returns what the module was at its begin."""
        core, self.core = self.core, fake_core.Core(SLOTS)
        if rank != "0":
            self.core.dense, self.core.program = core.dense, core.program
        self.core.batches = batches(1)
        with mock.patch.dict(os.environ, {"SLUICE_RANK": rank}), self.worker(net) as worker:
            for batch in worker:
                begin = {name: value.clone() for name, value in net.state_dict().items()}
                worker.backward(loss_of(net(batch), batch))
        return begin

    def frozen_net(self, value, norm=True):
        net = Net(norm=norm)
        net.mlp[0].bias.requires_grad_(False)
        with torch.no_grad():
            net.mlp[0].bias.fill_(value)
        if norm:
            net.norm.num_batches_tracked.fill_(int(value))
        return net

    def test_every_worker_has_the_constants_of_the_first_one(self):
        self.run_loop(self.frozen_net(3))
        other = self.run_loop(self.frozen_net(5), rank="1")
        self.assertEqual(other["mlp.0.bias"].tolist(), [3] * 5)
        self.assertEqual(int(other["norm.num_batches_tracked"]), 3)
        again = self.run_loop(self.frozen_net(7))  # rank 0, started again: the first values win
        self.assertEqual(int(again["norm.num_batches_tracked"]), 3)

    def test_frozen_parameters_in_half_and_double_precision_are_handed_on(self):
        nets = [self.frozen_net(value) for value in (3, 5)]
        for net, value in zip(nets, (2.5, 4)):
            net.short = nn.Parameter(torch.full((2,), value, dtype=torch.bfloat16), requires_grad=False)
            net.long = nn.Parameter(torch.full((2,), value, dtype=torch.float64), requires_grad=False)
        said = self.said(lambda: self.run_loop(nets[0]))
        self.run_loop(nets[1], rank="1")
        self.assertEqual((nets[1].short.tolist(), nets[1].long.tolist()), ([2.5, 2.5], [2.5, 2.5]))
        self.assertIn("short", self.core.parameters())
        self.assertRegex(said, "frozen parameter 'long' is torch.float64: saved models and checkpoints do not have it")
        self.assertNotIn("'short'", said)

    def test_a_frozen_parameter_is_a_table_that_no_step_changes(self):
        net = self.frozen_net(3, norm=False)
        self.core.batches = batches(3)
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
                place = self.core.parameters().index("mlp.0.bias")
                self.assertEqual(self.core.last._gradients[place].tolist(), [0] * 5)
        self.assertEqual(self.core.program["parameters"][place]["optimizer"], {"sgd": {}, "learning_rate": 0})
        self.assertEqual((self.core.dense[place].tolist(), net.mlp[0].bias.tolist()), ([3] * 5, [3] * 5))
        self.assertEqual([name for name, _ in declare(net).parameters], ["mlp.0.weight", "mlp.2.weight", "mlp.2.bias"])

    def test_a_frozen_parameter_is_copied_once_and_again_when_the_script_has_changed_it(self):
        net = self.frozen_net(3, norm=False)
        bias, seen = net.mlp[0].bias, []
        self.core.batches = batches(4)

        def body():
            with self.worker(net) as worker:
                for batch in worker:
                    seen.append((bias.tolist()[0], bias._version))
                    worker.backward(loss_of(net(batch), batch))
                    if len(seen) == 2:
                        with torch.no_grad():
                            bias.fill_(9)

        self.assertRegex(self.said(body), "'mlp.0.bias' was changed outside of a step: the change is lost")
        self.assertEqual([value for value, _ in seen], [3, 3, 3, 3])
        self.assertEqual([version - seen[0][1] for _, version in seen], [0, 0, 2, 2])

    def test_a_write_into_the_data_of_a_frozen_parameter_is_undone_when_an_epoch_or_an_evaluation_begins(self):
        made = batches(4)
        for border in (fake_core.NextEpoch(), (*made[3], False)):
            with self.subTest(type(border).__name__):
                self.core = fake_core.Core(SLOTS)
                self.core.batches = [*made[:2], border, made[2]]
                net = self.frozen_net(3, norm=False)
                bias, seen = net.mlp[0].bias, []

                def predict(batch):
                    seen.append(bias.tolist()[0])
                    return net(batch)

                def body():
                    with self.worker(net, predict=predict) as worker:
                        for batch in worker:
                            worker.backward(loss_of(predict(batch), batch))
                            if len(seen) == 2:
                                bias.data.fill_(9)

                self.assertRegex(self.said(body), "'mlp.0.bias' was changed outside of a step: the change is lost")
                self.assertEqual(set(seen[2:]), {3})

    def test_a_parameter_that_is_unfrozen_in_the_loop_is_refused(self):
        net = self.frozen_net(3, norm=False)
        self.core.batches = batches(2)
        with self.assertRaisesRegex(RuntimeError, "'mlp.0.bias' has a gradient, but was frozen when the worker was made"):
            with self.worker(net) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch))
                    net.mlp[0].bias.requires_grad_(True)

    def test_other_constants_than_the_first_worker_has_are_named(self):
        self.run_loop(self.frozen_net(3))
        net = self.frozen_net(5)
        net.more = nn.Parameter(torch.zeros(4, dtype=torch.float64), requires_grad=False)
        with self.assertRaisesRegex(RuntimeError, r"'more' is torch.float64 \[4\] in this worker, and missing in the first"):
            self.run_loop(net, rank="1")
        with self.assertRaisesRegex(RuntimeError, r"'norm.num_batches_tracked' is missing in this worker, and torch.int64"):
            self.run_loop(self.frozen_net(5, norm=False), rank="1")

    # ---- gradients

    def test_a_sparse_gradient_is_pushed_as_a_dense_one(self):
        torch.manual_seed(1)
        pushed = []
        for sparse in (False, True):
            net = Net()
            net.table = nn.Embedding(7, 1, sparse=sparse)
            nn.init.ones_(net.table.weight)
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            with self.worker(net) as worker:
                for batch in worker:
                    loss = net.table(torch.tensor([2, 2, 5])).sum() + 0 * loss_of(net(batch), batch)
                    worker.backward(loss)
            pushed.append(self.core.last._gradients[self.core.parameters().index("table.weight")])
        self.assertEqual(pushed[0].ravel().tolist(), [0, 0, 2, 0, 0, 1, 0])
        self.assertEqual(pushed[1].tolist(), pushed[0].tolist())

    def test_tensors_on_the_arrays_of_turns_are_kept_as_long_as_they_are_few(self):
        views = _Views(declare(nn.Linear(2, 3), {}))
        arrays = [np.zeros(6, np.float32), np.zeros(3, np.float32)]
        first = views.of([1, 2], lambda i: arrays[i])
        self.assertEqual([tuple(one.shape) for one in first], [(3, 2), (3,)])
        first[0][2, 1] = 5
        self.assertEqual(arrays[0][5], 5)  # on the array itself
        for other in range(63):
            self.assertIsNot(views.of([1, 3 + other], lambda i: arrays[i]), first)
            self.assertIs(views.of([1, 2], None), first)
        self.assertIsNone(views.of([1, 0], lambda i: arrays[i])[1])  # a gradient that nobody takes
        views.of([1, 99], lambda i: arrays[i])
        self.assertIsNot(views.of([1, 2], lambda i: arrays[i]), first)

    def test_a_parameter_of_two_modules_gets_both_gradients(self):
        net = Net()
        net.first = nn.Linear(2, 2, bias=False)
        net.second = nn.Linear(2, 2, bias=False)
        net.second.weight = net.first.weight
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            for _ in worker:
                worker.backward(net.first(torch.ones(2)).sum() + 2 * net.second(torch.ones(2)).sum())
        self.assertEqual([name for name in self.core.parameters() if "weight" in name],
                         ["mlp.0.weight", "mlp.2.weight", "first.weight"])
        self.assertEqual(self.core.last._gradients[self.core.parameters().index("first.weight")].tolist(), [[3, 3], [3, 3]])

    def test_a_compiled_module_has_the_names_of_the_module(self):
        net = Net()
        whole = torch.compile(net)  # compiles at the first call, which does not come
        self.assertEqual(declare(whole).to_json(), declare(net).to_json())
        names = [name for name, _ in declare(net).tensors()]
        net.mlp = torch.compile(net.mlp)
        self.assertEqual([name for name, _ in declare(net).tensors()], names)

    def test_a_loss_that_is_not_one_number_is_refused(self):
        net = Net()
        for wrong, message in ((lambda logits: logits, r"of shape \(6,\)"), (lambda logits: 1.0, "a float")):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            with self.assertRaisesRegex(TypeError, message), self.worker(net) as worker:
                for batch in worker:
                    worker.backward(wrong(net(batch)))

    def test_probabilities_in_place_of_logits_are_named_once(self):
        def evaluate(predict, labels=(0, 1, 1, 0, 1, 0), evaluations=2):
            keys, _, ages, step = batches(1)[0]
            self.core = fake_core.Core(SLOTS)
            self.core.batches = [(keys, list(labels), ages, step, False)] * 2
            self.core.batches = [*self.core.batches, batches(1)[0]] * evaluations
            net = Net()

            def run():
                with self.worker(net, predict=predict) as worker:
                    for batch in worker:
                        worker.backward(loss_of(net(batch), batch))
            return self.said(run)

        told = "fit the labels better as probabilities than as logits"
        self.assertEqual(evaluate(lambda batch: batch.label * 0.9).count(told), 1)
        self.assertEqual(evaluate(lambda batch: batch.label).count(told), 1)
        # One output outside, or logits that happen to be small.
        self.assertNotIn(told, evaluate(lambda batch: batch.label * 1.1))
        self.assertNotIn(told, evaluate(lambda batch: batch.label * 0.9 - 0.01))
        self.assertNotIn(told, evaluate(lambda batch: torch.full((6,), 0.3), labels=[1, 1, 1, 0, 1, 0]))
        self.assertNotIn(told, evaluate(lambda batch: torch.full((6,), math.nan)))
        # Without labels all are 0.
        self.assertNotIn(told, evaluate(lambda batch: torch.full((6,), 0.1), labels=[0] * 6))

    def test_the_result_of_the_job_is_there_after_the_block(self):
        with tempfile.TemporaryDirectory() as folder:
            self.core.folder = folder
            result = pathlib.Path(folder, "result.json")
            earlier = {"job": "job-1", "status": "cancelled", "model_dir": ""}
            result.write_text(json.dumps(earlier))
            net = Net()
            self.core.batches = batches(1)
            worker = self.worker(net, predict=net)
            with worker:
                for batch in worker:
                    with self.assertRaisesRegex(RuntimeError, "before the `with` block"):
                        worker.result
                    worker.backward(loss_of(net(batch), batch))

            # As a scheduler that is a little later: what is there first is of an earlier job.
            written = iter([{**earlier, "status": "replaced"},
                            {"job": "job-1", "status": "done", "model_dir": "/o/model", "eval": {"auc": 0.75}}])
            with mock.patch("sluice.torch._result.time.sleep", lambda _: result.write_text(json.dumps(next(written)))):
                self.assertEqual(worker.result["eval"]["auc"], 0.75)
            self.assertEqual(worker.model_dir, "/o/model")
            self.assertEqual(list(written), [])

    def test_a_job_that_fails_before_its_first_turn_has_a_result(self):
        with tempfile.TemporaryDirectory() as folder:
            self.core.folder = folder
            self.core.batches = [fake_core.JobEnded("the pservers are lost")]
            worker = self.worker(Net())
            polls = iter([None, None])  # the assignment, long before the end
            with mock.patch.object(self.core, "poll", lambda _: next(polls)):
                with self.assertRaisesRegex(sluice.JobError, "are lost"), worker:
                    next(worker)
            pathlib.Path(folder, "result.json").write_text(json.dumps({"job": "job-1", "status": "failed"}))
            self.assertEqual(worker.result["status"], "failed")

    def test_a_program_that_fails_before_its_first_batch_has_a_result(self):
        with tempfile.TemporaryDirectory() as folder:
            self.core.folder = folder
            result = pathlib.Path(folder, "result.json")
            result.write_text("{}")  # of an earlier job
            for error in (ZeroDivisionError, KeyboardInterrupt):
                worker = self.worker(Net())
                with self.assertRaises(error), worker:
                    raise error
                result.unlink()
                result.write_text(json.dumps({"job": "job-1", "status": "failed"}))
                self.assertEqual(worker.result["status"], "failed")

    def test_a_program_that_fails_before_its_first_batch_does_not_wait_for_a_store(self):
        self.core.folder = "s3://bucket/out"
        earlier = {"job": "job-1", "status": "done"}  # of another launch
        own = {"job": "job-1", "status": "failed"}
        for error, end in ((ZeroDivisionError, "fail"), (KeyboardInterrupt, "cancel")):
            self.core.events.clear()
            with mock.patch("sluice.torch._result.read_text", return_value=json.dumps(earlier)) as read:
                read.side_effect = lambda path: self.assertIn(end, [event[0] for event in self.core.events]) or mock.DEFAULT
                worker = self.worker(Net())
                with self.assertRaises(error), worker:
                    raise error
                with mock.patch("sluice.torch._result.time.sleep", lambda _: read.configure_mock(return_value=json.dumps(own))):
                    self.assertEqual(worker.result, own)
                read.assert_called_with("s3://bucket/out/result.json")

    def test_a_result_that_cannot_be_read_is_named(self):
        self.core.folder = "/no/such/folder"
        self.core.batches = batches(1)
        net = Net()
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        with mock.patch("sluice.torch._result._WAIT_S", 0), \
                self.assertRaisesRegex(RuntimeError, "/no/such/folder/result.json.*another host"):
            worker.result
        with self.assertRaisesRegex(RuntimeError, "has not begun"):
            self.worker(Net()).result

    # ---- where a worker may be

    def test_a_worker_is_used_in_its_with_block_alone(self):
        worker = self.worker(Net())
        with self.assertRaisesRegex(RuntimeError, "use `with sluice.torch.worker"):
            next(iter(worker))
        with worker:
            list(worker)
        with self.assertRaisesRegex(RuntimeError, "its `with` block is over"):
            next(iter(worker))

    def test_the_place_of_a_worker_stays_after_its_job(self):
        net = Net()
        self.core.workers, self.core.batches = 3, batches(1)
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        self.core.place = mock.Mock(side_effect=AssertionError("the core has stopped"))
        self.assertEqual((worker.rank, worker.world_size, worker.local_rank, worker.is_main), (0, 3, 0, True))

    def test_a_process_is_one_worker_once(self):
        with self.worker(Net()) as worker:
            with self.assertRaisesRegex(RuntimeError, "cannot be nested"):
                Worker(Net(), sluice.Job(""), core=fake_core.Core(SLOTS)).__enter__()
            list(worker)
        with self.assertRaisesRegex(RuntimeError, "a launch runs one job"):
            Worker(Net(), sluice.Job(""), core=fake_core.Core(SLOTS)).__enter__()

    def test_a_process_of_another_launcher_is_told_how_to_run(self):
        for more, message in (
            ({}, r"RANK is not set.*sluice launch --program=FILE\.py"),
            ({"RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "1", "LOCAL_WORLD_SIZE": "2"}, "2 of them on this host.*sluice up"),
            ({"RANK": "one", "MASTER_ADDR": "here", "MASTER_PORT": "1"}, "are numbers: .*'one'"),
        ):
            with self.subTest(more), mock.patch.dict(os.environ, {"WORLD_SIZE": "4", **more}):
                del os.environ["SLUICE_PROGRAM_DIR"]
                with self.assertRaisesRegex(sluice.JobError, message):
                    self.worker(Net()).__enter__()

    def test_resume_is_of_scripts_that_run_by_themselves(self):
        def run():
            with self.worker(Net(), resume=True) as worker:
                list(worker)
        self.assertIn("give it --resume", self.said(run))

    def in_fork(self, body):
        """What `body` returns in a forked child: a text."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(write, body().encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with open(read) as out:
            return out.read()

    def test_a_forked_child_is_no_worker(self):
        net = Net()
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            def child():
                try:
                    next(worker)
                except RuntimeError as error:
                    worker.__exit__(None, None, None)
                    return f"{error}; {self.core.events}"
                return "took a batch"

            said = self.in_fork(child)
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        self.assertRegex(said, r"forked from a worker.*; \[\('abandon',\)\]")
        self.assertEqual([event[0] for event in self.core.events], ["step", "stop"])

    def test_a_child_of_multiprocessing_cannot_become_a_worker(self):
        out = multiprocessing.get_context("fork").SimpleQueue()

        def child():
            try:
                Worker(Net(), sluice.Job(""), core=self.core)
                out.put("made")
            except RuntimeError as error:
                out.put(str(error))

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        said = out.get()
        process.join()
        self.assertRegex(said, r"sluice.torch.worker.*__main__")

    # ---- errors that nobody catches

    def shown(self, error, on_terminal=True):
        """What the end of the process prints."""
        out = io.StringIO()
        with mock.patch.object(_process, "_on_terminal", on_terminal), contextlib.redirect_stderr(out):
            sys.excepthook(type(error), error, error.__traceback__)
        return out.getvalue()

    def test_the_launcher_shows_an_exception_once(self):
        self.core.batches = batches(1)
        try:
            with self.worker(Net()) as worker:
                for _ in worker:
                    1 / 0
        except ZeroDivisionError as caught:
            error = caught
        self.assertEqual(self.told(), "1 torch_test.py: ZeroDivisionError: division by zero")
        self.assertEqual(self.shown(error), "")
        self.assertIn("Traceback", self.shown(error, on_terminal=False))  # into its log
        self.assertEqual("ValueError: another one\n", self.shown(ValueError("another one")))

    def told(self, rank=0):
        """What the launcher is told of an error."""
        return pathlib.Path(os.environ["SLUICE_PROGRAM_DIR"], "error.%d" % rank).read_text()

    def test_the_launcher_learns_which_errors_are_of_the_job_that_the_script_makes(self):
        _process.leave(again=True)
        sys.excepthook, _process._hook = sys.__excepthook__, None
        _process.show_errors_once()
        for make, line in ((lambda: sluice.Job("a.textproto"), "2 torch_test.py: UsageError: 'a.textproto' is the name of a file"),
                           (lambda: self.worker(Net(), epoch_steps=0), "2 torch_test.py: ValueError: epoch_steps is 0"),
                           (lambda: EmbeddingCollection("a", "8", features=[]), "2 torch_test.py: TypeError: dim= of"),
                           (lambda: int("the script's\nown" + "." * 700), "1 torch_test.py: ValueError: invalid literal")):
            try:
                make()
            except (TypeError, ValueError) as caught:
                self.shown(caught)
            self.assertRegex(self.told(), "^" + re.escape(line))
            self.assertNotIn("\n", self.told())
            self.assertLess(len(self.told()), 700)
        with mock.patch.dict(os.environ, {"SLUICE_RANK": "3"}):
            self.shown(KeyError("a key"))
        self.assertEqual(self.told(rank=3), "1 torch_test.py rank 3: KeyError: 'a key'")

        class Silent(Exception):
            __str__ = None

        self.shown(Silent())
        self.assertEqual(self.told(), "1 torch_test.py: Silent")
        error = pathlib.Path(os.environ["SLUICE_PROGRAM_DIR"], "error.0")
        error.unlink()
        error.mkdir()  # which cannot be replaced
        self.shown(KeyError("a key"))

    def test_a_worker_takes_back_the_error_of_the_process_before_it(self):
        for rank in "01":
            with mock.patch.dict(os.environ, {"SLUICE_RANK": rank}):
                _process.tell_launcher(OSError("the disk is away"))
        with self.worker(Net()) as worker:
            self.assertEqual(os.listdir(os.environ["SLUICE_PROGRAM_DIR"]), ["error.1"])
            list(worker)

    def test_an_exception_before_there_is_a_job_is_shown_by_python(self):
        self.core.has_job = False
        try:
            with self.worker(Net()):
                1 / 0
        except ZeroDivisionError as caught:
            error = caught
        # Nobody else would show it.
        self.assertIn("Traceback", self.shown(error))

    def test_the_end_of_the_job_is_one_line(self):
        self.core.batches = [fake_core.JobEnded("pserver 0 is lost\nand more")]
        try:
            with self.worker(Net()) as worker:
                list(worker)
        except sluice.JobError as caught:
            error = caught
        self.assertEqual(self.shown(error), "sluice: the program ends with its job: pserver 0 is lost\n")
        cancelled = sluice.JobError("the job has ended elsewhere; result.json and the launcher say why")
        self.assertEqual(self.shown(cancelled), "")  # the launcher has said it, and how to go on
        self.assertIn("ended elsewhere", self.shown(cancelled, on_terminal=False))
        traceback = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: no\n\n"
        self.assertEqual(self.shown(sluice.JobError(traceback)), "sluice: the program ends with its job: ValueError: no\n")

    def test_the_debugger_opens_before_the_job_fails(self):
        self.core.batches = batches(1)
        seen = []
        with mock.patch.dict(os.environ, {"SLUICE_PDB": "1"}), mock.patch("pdb.post_mortem") as post_mortem, \
                contextlib.redirect_stderr(io.StringIO()):
            post_mortem.side_effect = lambda where: seen.append(list(self.core.events))
            try:
                with self.worker(Net()) as worker:
                    for _ in worker:
                        1 / 0
            except ZeroDivisionError as error:
                self.shown(error)
        self.assertEqual(seen, [[]], "once, and before the job hears of it")
        self.assertEqual([event[0] for event in self.core.events], ["fail", "stop"])

class GroupTest(FakeWorkerTest):
    def run_loop(self, worker, net):
        for batch in worker:
            worker.backward(loss_of(net(batch), batch))

    def test_functions_run_at_the_end_of_each_epoch_in_order(self):
        net = Net()
        one, two, three = batches(3)
        # The second epoch has no batch for this worker; the evaluation of the first one follows its end.
        self.core.batches = [one, fake_core.EndOfEpoch(0), (*two, False), fake_core.EndOfEpoch(1), three, fake_core.EndOfEpoch(2)]
        seen = []

        def predict(batch):
            seen.append("predict")
            return net(batch)

        with self.worker(net, predict=predict) as worker:
            @worker.on_epoch_end
            def first(epoch):
                seen.append(("first", epoch))

            worker.on_epoch_end(lambda epoch: seen.append(("second", epoch)))
            self.run_loop(worker, net)
        self.assertIsNotNone(first)
        self.assertEqual(seen, [("first", 0), ("second", 0), "predict", ("first", 1), ("second", 1), ("first", 2), ("second", 2)])
        self.assertEqual([event for event in self.core.events if event[0] == "end"],
                         [("end", epoch, True) for epoch in range(3)])

    def test_calls_are_counted_at_each_border(self):
        net = Net()
        self.core.batches = [batches(1)[0], fake_core.EndOfEpoch(0), fake_core.EndOfEpoch(1)]
        with self.worker(net) as worker:
            worker.barrier()
            worker.broadcast(b"x")

            @worker.on_epoch_end
            def end(epoch):
                worker.barrier()
                worker.sum({"a": 1})

            self.run_loop(worker, net)
        self.assertEqual([event[1:] for event in self.core.events if event[0] == "gather"],
                         [(0, 0, "worker.barrier"), (0, 1, "worker.broadcast(root=0)"), (1, 0, "worker.barrier"),
                          (1, 1, "worker.sum"), (2, 0, "worker.barrier"), (2, 1, "worker.sum")])
        self.assertEqual(self.core.passed, (0, 2, "its first batch"))

    def test_calls_are_refused_where_not_all_workers_come(self):
        net = Net()
        self.core.batches = batches(2)
        with self.assertRaisesRegex(RuntimeError, "use `with sluice.torch.worker"):
            self.worker(net).barrier()
        with self.worker(net, predict=lambda batch: worker.barrier()) as worker:
            for call, name in ((worker.barrier, "barrier"), (lambda: worker.sum({}), "sum"),
                               (lambda: worker.broadcast(b""), "broadcast")):
                call()
            for batch in worker:
                with self.assertRaisesRegex(RuntimeError, "worker.sum is a call of all workers.*on_epoch_end"):
                    worker.sum({"a": 1})
                worker.backward(loss_of(net(batch), batch))
                with self.assertRaisesRegex(RuntimeError, "worker.broadcast is a call of all workers"):
                    worker.broadcast(b"")
            with self.assertRaisesRegex(RuntimeError, "worker.barrier is a call of all workers"):
                worker.barrier()

    def test_sums_are_in_float64_in_the_order_of_the_ranks(self):
        self.core.workers = 3
        others = [{"loss": -1e16, "n": [1, 2]}, {"loss": 1, "n": [0.5, 0]}]
        self.core.gives = lambda epochs_done, number, what, own: [own, *(json.dumps(other).encode() for other in others)]
        with self.worker(Net()) as worker:
            total = worker.sum({"loss": torch.tensor(1e16), "n": np.array([10, 20])})
            list(worker)
        first = float(torch.tensor(1e16))  # as float32
        self.assertEqual(total["loss"], (first + -1e16) + 1)
        torch.testing.assert_close(total["n"], torch.tensor([11.5, 22], dtype=torch.float64), rtol=0, atol=0)

    def test_calls_that_lack_a_rank_say_how_many_have_answered(self):
        self.core.workers = 3  # after the two that had answered
        self.core.gives = lambda epochs_done, number, what, own: [own, own]
        with self.worker(Net()) as worker:
            with self.assertRaisesRegex(RuntimeError, "rank 2 has given nothing; 2 ranks have answered, and the job has 3 workers"):
                worker.broadcast(b"", root=2)
            self.assertEqual(worker.broadcast(b"x", root=0), b"x")
            with self.assertRaisesRegex(RuntimeError, "worker.sum: 2 ranks have given values, but the job has 3 workers"):
                worker.sum({"a": 1})
            list(worker)

    def test_sums_of_different_names_or_sizes_name_them(self):
        self.core.workers = 2
        others = []
        self.core.gives = lambda epochs_done, number, what, own: [own, json.dumps(others[0]).encode()]
        with self.worker(Net()) as worker:
            for other, error in (({"b": 1}, "rank 0 gives 'a', rank 1 does not"), ({"a": 1, "b": 2}, "rank 1 gives 'b', rank 0"),
                                 ({"a": [1, 2]}, "rank 0 gives a number as 'a', rank 1 2 numbers")):
                others[:] = [other]
                with self.assertRaisesRegex(ValueError, error):
                    worker.sum({"a": 1})
            with self.assertRaisesRegex(ValueError, "'a' has shape"):
                worker.sum({"a": torch.zeros(2, 2)})
            list(worker)

    def test_all_get_the_bytes_of_the_root(self):
        self.core.workers = 2
        asked = []

        def gives(epochs_done, number, what, own):
            asked.append(own)
            return [own, b"one"]

        self.core.gives = gives
        with self.worker(Net()) as worker:
            self.assertEqual(worker.broadcast(b"zero"), b"zero")
            self.assertEqual(worker.broadcast(b"zero", root=1), b"one")
            with self.assertRaisesRegex(ValueError, "there is no rank 2; the job has 2 workers"):
                worker.broadcast(b"", root=2)
            list(worker)
        self.assertEqual(asked, [b"zero", b""])

    def test_a_rollback_leads_out_of_the_functions_and_the_loop_goes_on(self):
        net = Net()
        one, again = batches(2)
        self.core.batches = [one, fake_core.EndOfEpoch(0), again, fake_core.EndOfEpoch(0)]
        answers = [None, [b""]]
        self.core.gives = lambda epochs_done, number, what, own: answers.pop(0)
        passed = []
        with self.worker(net) as worker:
            @worker.on_epoch_end
            def end(epoch):
                worker.barrier()
                passed.append(epoch)

            self.run_loop(worker, net)
        self.assertEqual(passed, [0])
        self.assertEqual([event[0] for event in self.core.events],
                         ["step", "gather", "end", "step", "gather", "end", "stop"])
        self.assertEqual([event[2] for event in self.core.events if event[0] == "end"], [False, True])

    def test_before_the_first_batch_a_call_is_made_again(self):
        answers = [None, [b"x"]]
        self.core.gives = lambda epochs_done, number, what, own: answers.pop(0)
        with self.worker(Net()) as worker:
            self.assertEqual(worker.broadcast(b"x"), b"x")
            list(worker)

    def test_the_end_of_the_job_ends_a_call(self):
        self.core.gives = lambda epochs_done, number, what, own: fake_core.JobEnded("rank 1 has failed")
        with self.assertRaisesRegex(sluice.JobError, "rank 1 has failed"):
            with self.worker(Net()) as worker:
                worker.barrier()
        self.assertEqual([event[0] for event in self.core.events], ["gather", "stop"])

    def test_a_script_that_catches_the_end_of_the_job_may_end_well(self):
        self.core.batches = [fake_core.EndOfEpoch(0)]
        self.core.gives = lambda epochs_done, number, what, own: fake_core.JobEnded("rank 1 has failed")
        with self.worker(Net()) as worker:
            worker.on_epoch_end(lambda epoch: worker.barrier())
            with self.assertRaisesRegex(sluice.JobError, "rank 1 has failed"):
                next(worker)
            self.core.turn, self.core.batches = None, [fake_core.JobEnded("rank 1 has failed")]
            with self.assertRaisesRegex(sluice.JobError, "rank 1 has failed"):
                next(worker)
        self.assertEqual([event[0] for event in self.core.events], ["gather", "stop"])

    def test_an_exception_in_a_function_fails_the_job(self):
        net = Net()
        self.core.batches = [fake_core.EndOfEpoch(0)]
        with self.assertRaises(ZeroDivisionError):
            with self.worker(net) as worker:
                worker.on_epoch_end(lambda epoch: 1 / 0)
                self.run_loop(worker, net)
        self.assertEqual([event[0] for event in self.core.events], ["fail", "stop"])

    def test_the_loop_does_not_go_on_inside_a_function(self):
        net = Net()
        self.core.batches = [fake_core.EndOfEpoch(0)]
        with self.assertRaisesRegex(RuntimeError, "when the function of worker.on_epoch_end has returned"):
            with self.worker(net) as worker:
                worker.on_epoch_end(lambda epoch: next(worker))
                self.run_loop(worker, net)


class ReportTest(FakeWorkerTest):
    """What a program reports beside its loss."""

    def test_metrics_get_each_evaluation_batch_and_what_predict_gave(self):
        net = Net(norm=True)
        made = batches(3)
        self.core.batches = [made[0], (*made[1], False), (*made[2], False)]
        metrics = {
            "hits/at-0": lambda batch, output: (((output > 0).float() == batch.label).sum(), batch.examples),
            "modes": lambda batch, output: (float(net.training or output.requires_grad), 0),
        }
        with self.worker(net, predict=net, metrics=metrics) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        self.assertEqual(len(self.core.sums), 2)
        for sums, logits, batch in zip(self.core.sums, self.core.logits_seen, made[1:]):
            hits = sum(float((logit > 0) == label) for logit, label in zip(logits, batch[1]))
            self.assertEqual(sums, [("hits/at-0", hits, 6.0), ("modes", 0.0, 0.0)])

    def test_metrics_that_cannot_be_are_refused_by_name(self):
        good = lambda batch, output: (0, 1)
        for name in ("", "9", "a b", "a" * 65, "auc", 3):
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, re.escape(repr(name))):
                self.worker(Net(), predict=good, metrics={name: good})
        with self.assertRaisesRegex(ValueError, "65 metrics; at most 64"):
            self.worker(Net(), predict=good, metrics={"m%d" % i: good for i in range(65)})
        with self.assertRaisesRegex(ValueError, "predict="):
            self.worker(Net(), metrics={"m": good})
        self.worker(Net(), predict=good, metrics={"a" * 64: good})

    def test_a_metric_that_gives_no_sum_and_weight_fails_the_job_with_its_name(self):
        for result, shown in ((1.0, "1.0"), ((1.0, None), "None"), ((torch.zeros(6), 1), r"shape \(6,\)")):
            self.core = fake_core.Core(SLOTS)
            net = Net()
            self.core.batches = [(*batches(1)[0], False)]
            with self.subTest(result=result), self.assertRaisesRegex(TypeError, "'m'.*" + shown):
                with self.worker(net, predict=net, metrics={"m": lambda batch, output: result}) as worker:
                    for _ in worker:
                        pass
            self.assertEqual(self.core.events[0][0], "fail")

    def test_weights_of_metrics_are_finite_and_not_negative(self):
        for weight in (-1.0, math.nan, math.inf, torch.tensor(-0.5)):
            self.core = fake_core.Core(SLOTS)
            net = Net()
            self.core.batches = [(*batches(1)[0], False)]
            with self.subTest(weight=weight), self.assertRaisesRegex(ValueError, "metric 'm' gave the weight"):
                with self.worker(net, predict=net, metrics={"m": lambda batch, output: (1.0, weight)}) as worker:
                    list(worker)

    def test_values_are_reported_with_their_step_and_late_ones_with_the_next(self):
        net = Net()
        self.core.batches = batches(3)
        with self.worker(net) as worker:
            with self.assertRaisesRegex(RuntimeError, "in the loop"):
                worker.log(norm=1)
            for batch in worker:
                worker.log(norm=0.5, step=torch.tensor(batch.step))
                worker.log(norm=2.0 + batch.step)
                if batch.step != 1:
                    worker.backward(loss_of(net(batch), batch))
                    worker.log(late=batch.step)
            with self.assertRaisesRegex(RuntimeError, "in the loop"):
                worker.log(norm=1)
        self.assertEqual(self.core.logged, [[("norm", 2.0), ("step", 0.0)],
                                            [("late", 0.0), ("norm", 3.0), ("step", 1.0)],
                                            [("norm", 4.0), ("step", 2.0)]])

    def test_values_that_cannot_be_logged_are_refused_by_name(self):
        net = Net()
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            for batch in worker:
                for name in ("loss", "a b", "x" * 65):
                    with self.assertRaisesRegex(ValueError, name):
                        worker.log(**{name: 1})
                with self.assertRaisesRegex(TypeError, r"'v' is a tensor of shape \(2,\)"):
                    worker.log(v=torch.zeros(2))
                with self.assertRaisesRegex(TypeError, "'w' is 'text'"):
                    worker.log(w="text")
                worker.log(**{"v%d" % i: i for i in range(14)})
                with self.assertRaisesRegex(ValueError, "'one_more' is one name too many.*v13"):
                    worker.log(one_more=1)


class StateTest(FakeWorkerTest):
    """What a program keeps beside its parameters."""

    def train(self, keep=True):
        net = Net()
        self.count, self.loaded = 0, []
        with self.worker(net, predict=net) as worker:
            if keep:
                worker.save_state(lambda: b"%d" % self.count)

                @worker.load_state
                def load(state):
                    self.loaded.append(state)
                    self.count = int(state)
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
                self.count += 1  # after the step: still a part of the batch

    def test_the_state_is_asked_for_between_batches(self):
        made = batches(2)
        self.core.batches = [made[0], fake_core.StateTurn(), made[1], fake_core.StateTurn()]
        self.train()
        self.assertTrue(self.core.keeps_state)
        self.assertEqual(self.core.states, [b"1", b"2"])
        self.assertEqual(self.loaded, [])

    def test_a_program_without_state_keeps_none(self):
        self.core.batches = batches(1)
        self.train(keep=False)
        self.assertFalse(self.core.keeps_state)

    def test_another_attempt_loads_its_state_before_its_first_batch(self):
        made = batches(5)
        self.core.batches = [fake_core.Attempt(b"7"), made[0], made[1], fake_core.StateTurn(),
                             fake_core.Attempt(b"8"), made[1], fake_core.StateTurn(),
                             # From the beginning: nothing was saved.
                             fake_core.Attempt(), made[0], fake_core.StateTurn()]
        self.train()
        self.assertEqual(self.loaded, [b"7", b"8", b"0"])
        self.assertEqual(self.core.states, [b"9", b"9", b"1"])

    def test_an_evaluation_may_be_the_first_that_needs_the_state(self):
        evaluation = (*batches(1)[0], False)
        self.core.batches = [fake_core.Attempt(b"7"), evaluation, evaluation, *batches(1), fake_core.StateTurn()]
        self.train()
        self.assertEqual(self.loaded, [b"7"])
        self.assertEqual(self.core.states, [b"8"])

    def test_functions_come_in_pairs_and_before_the_loop(self):
        net = Net()
        self.core.batches = batches(1)
        with self.assertRaisesRegex(RuntimeError, r"save_state\(fn\) needs worker.load_state"):
            with self.worker(net) as worker:
                worker.save_state(lambda: b"")
                next(worker)
        self.core = fake_core.Core(SLOTS)
        self.core.batches = batches(1)
        with self.worker(net) as worker:
            for batch in worker:
                for register in (worker.save_state, worker.load_state):
                    with self.assertRaisesRegex(RuntimeError, "comes before the loop"):
                        register(lambda *_: b"")

    def test_a_state_that_cannot_be_kept_fails_the_job(self):
        for state, error, what in (("text", TypeError, "gave str"), (bytes((64 << 10) + 1), ValueError, "gave 65537 bytes")):
            self.core = fake_core.Core(SLOTS)
            self.core.batches = batches(1)
            with self.subTest(what), self.assertRaisesRegex(error, what):
                with self.worker(Net()) as worker:
                    worker.save_state(lambda: state)
                    worker.load_state(lambda state: None)
                    for _ in worker:
                        pass
            self.assertEqual(self.core.events[0][0], "fail")


class SavedValuesTest(FakeWorkerTest):
    """The parameters of a saved model of the fake core's values."""

    def output_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.core.folder = folder.name
        return folder.name

    def test_frozen_parameters_are_part_of_the_model(self):
        self.core.batches = batches(2)
        trained, net = Net(), Net()
        for one, value in ((trained, 3), (net, 5)):
            one.mlp[0].bias.requires_grad_(False).fill_(value)
        with self.worker(trained) as worker:
            for batch in worker:
                worker.backward(loss_of(trained(batch), batch))
        saved = fake_core.SavedModel(self.core)
        sluice.torch._saved.load(net, "model", core=saved)
        self.assertEqual(net.mlp[0].bias.tolist(), [3] * 5)
        unfrozen = Net()  # a model can be loaded to train on with it
        sluice.torch._saved.load(unfrozen, "model", core=saved)
        self.assertEqual(unfrozen.mlp[0].bias.tolist(), [3] * 5)

    def test_frozen_parameters_that_a_model_lacks_keep_the_modules_values(self):
        self.core.batches = batches(2)
        trained, net = Net(), Net()
        del trained.mlp[0].bias  # as an earlier build would have saved the model
        trained.mlp[0].register_parameter("bias", None)
        net.mlp[0].bias.requires_grad_(False).fill_(5)
        with self.worker(trained) as worker:
            for batch in worker:
                worker.backward(loss_of(trained(batch), batch))
        saved = fake_core.SavedModel(self.core)
        said = self.said(lambda: sluice.torch._saved.load(net, "model", core=saved))
        self.assertEqual(said, "sluice: the model has no values of frozen parameters, which keep the module's own: 'mlp.0.bias'\n")
        self.assertEqual(net.mlp[0].bias.tolist(), [5] * 5)
        weight = self.core.dense[self.core.parameters().index("mlp.0.weight")]
        torch.testing.assert_close(net.mlp[0].weight.detach(), torch.from_numpy(weight))
        with self.assertRaisesRegex(ValueError, "it has 'mlp.0.bias', and the model has not"):
            sluice.torch._saved.load(Net(), "model", core=saved)

    def test_after_the_loop_the_state_is_that_of_the_saved_model(self):
        made = batches(3)
        self.core.batches = [*made[:2], (*batches(1, seed=2)[0], False), made[2]]  # no evaluation after the last step
        net = Net()
        self.core.open_model = fake_core.SavedModel(self.core).open_model
        folder = self.output_folder()
        result = {"job": "job-1", "status": "done", "model_dir": "model"}
        with self.worker(net, predict=net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
                before = worker.state_dict()
            pathlib.Path(folder, "result.json").write_text(json.dumps(result))
            state = worker.state_dict()
        for place, name in enumerate(self.core.parameters()):
            torch.testing.assert_close(state[name], torch.from_numpy(self.core.dense[place]))
            torch.testing.assert_close(net.state_dict()[name], state[name])
        self.assertFalse(torch.equal(before["mlp.0.weight"], state["mlp.0.weight"]))

    def state_after(self, end, result, evaluate=False):
        """worker.state_dict() after the loop, and the last values of its batches. `end`: what follows the last batch."""
        self.core = fake_core.Core(SLOTS)
        self.core.open_model = fake_core.SavedModel(self.core).open_model
        made = batches(2)
        self.core.batches = [made[0], *([(*made[1], False)] if evaluate else []), *end]
        net, folder = Net(), self.output_folder()
        with contextlib.suppress(sluice.JobError), self.worker(net, predict=net) as worker:
            for batch in worker:
                last = worker.state_dict()
                worker.backward(loss_of(net(batch), batch))
        pathlib.Path(folder, "result.json").write_text(json.dumps({"job": "job-1", **result}))
        evaluated = [value.copy() for value in self.core.dense]
        for value in self.core.dense:
            value += 1  # the best model is not the last one
        return worker.state_dict(), last, dict(zip(self.core.parameters(), map(torch.from_numpy, evaluated)))

    def test_after_an_evaluation_the_state_is_that_of_the_saved_model_if_there_is_one(self):
        state, _, evaluated = self.state_after([], {"status": "done", "model_dir": "model"}, evaluate=True)
        for name, value in evaluated.items():
            torch.testing.assert_close(state[name], value + 1)
        state, _, evaluated = self.state_after([], {"status": "done"}, evaluate=True)
        for name, value in evaluated.items():
            torch.testing.assert_close(state[name], value)
        with mock.patch.object(sluice.torch._result, "_WAIT_S", 0):  # another job's: there is none of this one
            said = self.said(lambda: self.state_after([], {"job": "job-0", "status": "done"}, evaluate=True))
        self.assertIn("it gives the last evaluation's values", said)

    def test_the_state_of_a_job_that_has_failed_is_that_of_the_last_batch(self):
        for end, status in (([fake_core.JobEnded("cancelled")], "cancelled"), ([], "failed")):  # it fails while it saves
            def body():
                state, last, _ = self.state_after(end, {"status": status, "model_dir": "model"})
                for name, value in last.items():
                    torch.testing.assert_close(state[name], value)

            with self.subTest(status), mock.patch.object(sluice.torch._result, "_WAIT_S", 1):
                self.assertEqual(self.said(body).count("the job has failed or was cancelled"), 1)

    def test_a_state_that_lacks_the_last_step_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "lacks the job's last steps, and the job has saved no model"):
            self.state_after([], {"status": "done"})
        with self.assertRaisesRegex(RuntimeError, "lacks the job's last steps, and its saved model .*: gone is not a saved model"):
            self.state_after([], {"status": "done", "model_dir": "gone"})


class SavedTest(FakeWorkerTest):
    """A model of the fake core's values, loaded into another module than the one that was trained."""

    def setUp(self):
        super().setUp()
        self.core.batches = [*batches(20), (*batches(1, several=True, seed=2)[0], False)]
        self.keys, _, self.ages, _, _ = self.core.batches[-1]
        self.trained = Net(norm=True)
        with self.worker(self.trained, predict=self.trained) as worker:
            for batch in worker:
                worker.backward(loss_of(self.trained(batch), batch))
            self.state = worker.state_dict()
        self.folder = fake_core.SavedModel(self.core)

    def load(self, net, folder="model"):
        return sluice.torch._saved.load(net, folder, core=self.folder)

    def columns(self):
        cells = {name: [" ".join(map(str, example[slot])) for example in self.keys] for slot, (name, _) in enumerate(SLOTS)}
        return {**cells, "age": self.ages}

    def test_a_loaded_module_computes_what_the_job_evaluated(self):
        net = Net(norm=True)
        saved = self.load(net)
        net.eval()
        with torch.no_grad():
            logits = net(saved.batch(self.columns()))
        torch.testing.assert_close(logits, torch.from_numpy(self.core.logits_seen[-1]))
        self.assertEqual((saved.step, saved.digest), (20, "d1"))

    def test_keys_that_the_model_lacks_have_their_initial_rows(self):
        net = Net(norm=True)
        saved = self.load(net)
        columns = {"user": ["77"], "item": ["77"], "day": [None], "age": [0.5]}
        rows = net.emb(saved.batch(columns))
        torch.testing.assert_close(rows[0, 0], torch.from_numpy(self.core.initial(0, 77)[:4]))
        self.assertEqual(dict(self.folder.columns)["day"], [None])

    def test_values_become_cells(self):
        saved = self.load(Net(norm=True))
        saved.batch({"user": torch.tensor([1, 2]), "item": ["1", "2"], "day": [3, None], "age": [1.5, float("nan")]})
        self.assertEqual(dict(self.folder.columns),
                         {"user": ["1", "2"], "item": ["1", "2"], "day": ["3", None], "age": ["1.5", None]})
        with self.assertRaisesRegex(TypeError, r"\[1, 2\] is no cell"):
            saved.batch({"user": torch.tensor([[1, 2]])})
        with self.assertRaisesRegex(TypeError, "column 'user' is a str"):
            saved.batch({"user": "1 2"})

    def test_a_job_with_a_source_takes_batches_as_its_source_gives_them(self):
        self.folder.own_data = True
        net = Net(norm=True).eval()
        saved = self.load(net)
        longest = max(len(example[1]) for example in self.keys)
        padded = torch.tensor([example[1] + [-1] * (longest - len(example[1])) for example in self.keys])
        offsets = np.cumsum([0] + [len(example[2]) for example in self.keys])
        batch = saved.batch({"age": torch.tensor(self.ages, dtype=torch.float64), "item": padded,
                             "user": [example[0] for example in self.keys],
                             "day": (np.array([key for example in self.keys for key in example[2]], np.int64), offsets),
                             "rows": "kept"}, padding=-1)
        with torch.no_grad():
            torch.testing.assert_close(net(batch), torch.from_numpy(self.core.logits_seen[-1]))
        self.assertEqual(batch["rows"], "kept")
        self.assertEqual(saved.batch({"age": [1, 2], "user": [[], None], "item": [1, [2, 3]], "day": [1, 2]}).examples, 2)
        # Cells are taken as before.
        with torch.no_grad():
            torch.testing.assert_close(net(saved.batch(self.columns())), torch.from_numpy(self.core.logits_seen[-1]))
        for wrong, error, message in (
            ({"user": torch.ones(2)}, sluice.UsageError, "'user' has the dtype float32"),
            ({"user": [["a"], [1]]}, TypeError, "'user' has the value 'a'"),
            ({"age": ["x", 1]}, TypeError, "'age' is no list of numbers"),
            ({"day": torch.zeros(3, dtype=torch.int64)}, sluice.UsageError, "'day' is of 3 examples, but"),
        ):
            keys = lambda: torch.zeros(2, dtype=torch.int64)
            with self.subTest(wrong), self.assertRaisesRegex(error, message):
                saved.batch({"age": torch.zeros(2), "user": keys(), "item": keys(), "day": keys(), **wrong})
        with self.assertRaisesRegex(sluice.UsageError, "padding="):
            saved.batch(self.columns(), padding=0)
        self.folder.own_data = False
        with self.assertRaisesRegex(TypeError, r"\[1, 2\] is no cell"):
            saved.batch({**self.columns(), "user": [[1, 2]]})

    def test_files_are_read_batch_by_batch(self):
        net = Net(norm=True).eval()
        saved = self.load(net)
        self.assertEqual([len(net(batch)) for batch in saved.batches(["a", "b"], batch_size=5)], [5, 5])
        self.assertEqual([len(batch) for batch in saved.batches("a", batch_size=2)], [2])

    def test_the_state_of_a_worker_is_plain_and_fits_the_module(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.save(self.state, folder + "/state.pt")
            state = torch.load(folder + "/state.pt", weights_only=True)
        net = Net(norm=True)
        net.load_state_dict(state)
        for name, value in zip(self.core.parameters(), self.core.dense):
            torch.testing.assert_close(state[name], torch.from_numpy(value))
        # Copies: training on does not change them.
        self.assertNotEqual(state["mlp.0.weight"].data_ptr(), self.trained.mlp[0].weight.data_ptr())

        class Odd(nn.Module):
            def get_extra_state(self):
                return {1, 2}

        with self.assertRaisesRegex(TypeError, "_extra_state.*set"):
            sluice.torch._saved.state_dict(Odd())

    def test_an_exported_file_needs_no_sluice(self):
        with tempfile.TemporaryDirectory() as folder:
            sluice.torch._saved.export(Net(norm=True), "model", folder + "/model.pt", core=self.folder)
            self.assertEqual(os.listdir(folder), ["model.pt"])
            plain = torch.load(folder + "/model.pt", weights_only=True)
        net = Net(norm=True).eval()
        net.load_state_dict(plain["state"])

        def pool(collection, slot):
            """As a program without sluice would write it."""
            about = plain["collections"][collection]
            table = plain["tables"][about["features"][SLOTS[slot][0]]]
            begin = table["columns"][collection]
            rows = {int(key): row[begin:begin + about["dim"]] for key, row in zip(table["keys"], table["values"])}
            return torch.stack([sum((rows[key] for key in example[slot]), torch.zeros(about["dim"])) for example in self.keys])

        deep = torch.cat([pool("emb", 1), pool("emb", 0), torch.tensor(self.ages)[:, None]], dim=1)
        with torch.no_grad():
            logits = net.mlp(net.norm(deep)).squeeze(1) + sum(pool("lin", slot) for slot in range(3)).squeeze(1)
        torch.testing.assert_close(logits, torch.from_numpy(self.core.logits_seen[-1]))
        self.assertEqual((plain["job"], plain["step"]), ("a job", 20))

    def test_another_module_is_refused_with_the_first_difference_and_stays_as_it_was(self):
        def refused(change, message):
            net = Net(norm=True)
            change(net)
            before = {name: value.clone() for name, value in net.state_dict().items()}
            with self.assertRaisesRegex(ValueError, message):
                self.load(net)
            for name, value in net.state_dict().items():
                torch.testing.assert_close(value, before[name])

        def narrower(net):
            net.emb.dim = 3

        def other_features(net):
            net.lin.features.reverse()

        refused(lambda net: net.mlp.append(nn.Linear(1, 1)), r"it has 'mlp.3.weight', and the model has not")
        refused(lambda net: net.mlp.__setitem__(0, nn.Linear(9, 6)), r"'mlp.0.weight' is \[6, 9\], in the model \[5, 9\]")
        refused(lambda net: setattr(net, "norm", nn.Identity()), "it lacks 'norm.weight'")
        refused(narrower, "'emb' has dim 3, in the model 4")
        refused(other_features, "'lin' has features")
        refused(lambda net: setattr(net, "lin", nn.Identity()), "it lacks the collection 'lin'")
        with self.assertRaisesRegex(ValueError, "other is not a saved model"):
            self.load(Net(norm=True), "other")


def given(n, examples=4, seed=5, **more):
    """Batches of a source for SLOTS, with lists of keys in "item"."""
    draw = torch.Generator().manual_seed(seed)
    made = []
    for i in range(n):
        keys = lambda *shape: torch.randint(0, 5, shape, generator=draw)
        made.append({"age": torch.rand(examples, generator=draw), "user": keys(examples), "item": keys(examples, 3),
                     "day": (keys(5), torch.tensor([0, 2, 2, 4, 5])), "label": keys(examples) % 2, "number": i, **more})
    return made


class StatefulLoader:
    """Gives batches as torchdata's StatefulDataLoader does: iterated anew, or from the state that was loaded."""

    def __init__(self, batches, blob=b""):
        self.batches, self.blob = batches, blob
        self.at, self.loaded, self.read = 0, None, 0
        self.epochs = []

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.at, self.loaded = self.loaded or 0, None
        while self.at < len(self.batches):
            self.at, self.read = self.at + 1, self.read + 1
            yield self.batches[self.at - 1]

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def state_dict(self):
        return {"at": self.at, "blob": torch.zeros(len(self.blob), dtype=torch.uint8)}

    def load_state_dict(self, state):
        self.loaded = state["at"]


class SourceTest(FakeWorkerTest):
    """Batches that the script gives."""

    def train(self, source, requests=((1, "train", 0, 1, 0, 0),), net=None, **more):
        """Trains what the source gives and returns the batches' parts that the job does not know."""
        net = net or Net()
        for request in requests:
            self.core.requests.put(request)
        seen = []
        with self.worker(net, source=source, **more) as worker:
            for batch in worker:
                seen.append(batch["number"])
                self.assertEqual(batch.number("age").shape, (4,))
                worker.backward(loss_of(net(batch), batch))
        return seen

    def test_batches_of_a_source_train_and_bring_what_else_they_have(self):
        calls = []

        def source(rank, world, epoch, start):
            calls.append((rank, world, epoch, start))
            return given(7)[start:]

        self.assertEqual(self.train(source, [(1, "train", 0, 1, 3, 2)]), [2, 3, 4, 5, 6])
        self.assertEqual(calls, [(0, 1, 3, 2)])
        self.assertEqual(self.core.sources, (True, False, True))
        self.assertEqual([event[0] for event in self.core.events], ["step"] * 5 + ["stop"])

    def test_an_iterable_of_another_rank_fails_the_job(self):
        request = [(1, "train", 1, 2, 0, 0)]
        with mock.patch.dict(os.environ, {"RANK": "0"}):
            with self.assertRaisesRegex(sluice.JobError, r"started as rank 0 and now has the data of rank 1, .*: give a function of rank"):
                self.train(given(3), request)
            self.core = fake_core.Core(SLOTS)
            self.assertEqual(self.train(lambda rank, *_: given(3), request), [0, 1, 2])
        for rank in ("1", "none"):
            with self.subTest(rank), mock.patch.dict(os.environ, {"RANK": rank}):
                self.core = fake_core.Core(SLOTS)
                self.assertEqual(self.train(given(3), request), [0, 1, 2])

    def test_the_rows_are_those_of_the_values(self):
        net = Net()
        made = given(3)
        reference = [(
            [[[int(b["user"][i])], [int(k) for k in b["item"][i] if k != 0],
              [int(k) for k in b["day"][0][b["day"][1][i]:b["day"][1][i + 1]]]] for i in range(4)],
            b["label"].tolist(), b["age"].tolist(), 0) for b in made]
        state = {name: value.clone() for name, value in net.state_dict().items()}
        self.train(lambda *_: made, net=net, padding=0)
        tables, dense = self.core.tables_, self.core.dense
        self.core = fake_core.Core(SLOTS)
        self.core.batches = reference
        net.load_state_dict(state)
        with self.worker(net) as worker:
            for batch in worker:
                worker.backward(loss_of(net(batch), batch))
        self.assertEqual([sorted(table) for table in tables], [sorted(table) for table in self.core.tables_])
        for own, other in zip(dense, self.core.dense):
            torch.testing.assert_close(torch.from_numpy(own), torch.from_numpy(other), rtol=0, atol=0)

    def test_an_error_of_the_source_fails_the_job_with_its_traceback(self):
        def source(*_):
            yield from given(2)
            raise ZeroDivisionError("no third batch")

        with self.assertRaisesRegex(sluice.JobError, r"(?s)Traceback.*in source.*ZeroDivisionError: no third batch"):
            self.train(source)

    def test_a_batch_that_does_not_fit_is_refused_by_name(self):
        for change, error in (
            ({"user": None}, "ValueError: .*no 'user'.*int64"),
            ({"user": torch.rand(4)}, r"'user' has the dtype float32; expected int64(?!.*shape)"),
            ({"user": torch.rand(4).long()[:, None, None]}, r"'user' has the shape \[4, 1, 1\]; expected \[B\](?!.*dtype)"),
            ({"age": torch.rand(4, 1)}, r"'age' has the shape \[4, 1\]; expected \[B\], (?!.*float)"),
            ({"label": torch.rand(4, 1).long()}, r"'label' has the shape \[4, 1\]; expected \[B\], (?!.*float)"),
            ({"age": np.array(["a"] * 4)}, r"'age' has the dtype <U1; expected float32"),
            ({"user": [1, 2, 3]}, "TypeError: .*'user' is a list"),
            ({"user": torch.zeros(3, dtype=torch.int64)}, "'user' is of 3 examples, but 'label' is of 4"),
            ({"user": torch.zeros(4, dtype=torch.bfloat16)}, r"'user' has the dtype torch.bfloat16; expected int64"),
            ({"age": torch.zeros(4, dtype=torch.complex64)}, "TypeError: .*'age' is a tensor of type torch.complex64"),
            ({"label": torch.zeros(4).to_sparse()}, "TypeError: .*'label' is a tensor of .*sparse"),
            ({"day": (torch.zeros(3, dtype=torch.int64), torch.zeros(1, 5, dtype=torch.int64))}, r"'day' is \(values, offsets\)"),
        ):
            with self.subTest(change=change):
                self.core = fake_core.Core(SLOTS)
                made = given(1, **change)[0]
                if change.get("user", made) is None:
                    del made["user"]
                with self.assertRaisesRegex(sluice.JobError, error):
                    self.train(lambda *_: [made])

    def test_a_label_that_a_source_lacks_is_named_when_it_is_read(self):
        unlabelled = given(3)
        for batch in unlabelled:
            batch["lable"] = batch.pop("label")
        with self.assertRaisesRegex(AttributeError, r"no 'label' \(did you mean 'lable'\?\).*\['lable', 'number'\]"):
            self.train(unlabelled)
        self.core = fake_core.Core(SLOTS)
        self.core.requests.put((1, "train", 0, 1, 0, 0))
        net, weights = Net(), []
        with self.worker(net, source=unlabelled) as worker:
            for batch in worker:
                self.assertFalse(hasattr(batch, "label"))
                weights.append(len(batch.weight))
                worker.backward(net(batch).square().mean())
        self.assertEqual(weights, [4, 4, 4])

    def test_an_evaluation_without_labels_is_named_once(self):
        for change, times in ((lambda batch: batch.pop("label"), 1), (lambda batch: None, 0)):
            self.core = fake_core.Core(SLOTS)
            made = given(2)
            for batch in made:
                change(batch)
            take = self.core.take_given

            def evaluates(take=take):
                if (turn := take()) is not None:
                    turn.trains = False
                return turn

            self.core.take_given = evaluates
            self.core.requests.put((1, "evaluate", 0, 1, 0, 0))
            net = Net()

            def run(made=made, net=net):
                with self.worker(net, source=given(1), eval_source=made, predict=net) as worker:
                    self.assertEqual(list(worker), [])

            self.assertEqual(self.said(run).count("have no label"), times)
            self.assertEqual(len(self.core.logits_seen), 2)

    def test_numbers_of_16_bits_are_converted(self):
        for dtype in (torch.bfloat16, torch.float16):
            converted = Converter([("age", 0)], [], None).convert(
                {"age": torch.tensor([0.5, 2]).to(dtype), "label": torch.ones(2, dtype=dtype)})
            self.assertEqual([array.dtype for array in (converted.label, *converted.numbers)], [np.float32, np.float64])
            self.assertEqual(converted.numbers[0].tolist(), [0.5, 2])

    def test_vectors_have_a_number_for_each_place(self):
        converter = Converter([("v", 2), ("age", 0)], [], None)
        made = converter.convert({"v": torch.tensor([[0.5, 2], [3, 4]], dtype=torch.bfloat16), "age": np.zeros(2)})
        self.assertEqual(made.examples, 2)
        self.assertEqual(made.numbers[0].tolist(), [[0.5, 2], [3, 4]])
        for wrong in (np.zeros(2), np.zeros((2, 3)), np.zeros((2, 2, 1)), np.zeros(())):
            with self.assertRaisesRegex(ValueError, r"'v' has the shape \[.*\]; expected \[B, 2\]"):
                converter.convert({"v": wrong, "age": np.zeros(2)})
        numbers = [[1, 10, 11, 20], [2, 12, 13, 21]]
        core = fake_core.Core([("user", 0)])
        core.tables_, core.dims, core.dense = [{}], [1], []
        turn = fake_core.Turn(core, [[[]], [[]]], [0, 1], numbers, 0, trains=False)
        batch = Batch(turn, columns_of_numbers([("a", 0), ("v", 2), ("b", 0)]), {}, 0)
        self.assertEqual(batch.number("v").tolist(), [[10, 11], [12, 13]])
        self.assertEqual(batch.number("b").tolist(), [20, 21])
        self.assertRaisesRegex(KeyError, "'v'", batch.number, "v[0]")

    def test_a_source_is_left_when_nobody_wants_its_batches(self):
        left = []

        def source(rank, world, epoch, start):
            try:
                yield from given(1000)[start:]
            finally:
                left.append(start)

        self.core.unwanted.add(1)
        self.assertEqual(len(self.train(source, [(1, "train", 0, 1, 0, 0), (2, "train", 0, 1, 0, 995)])), 5)
        self.assertEqual(left, [0, 995])

    def test_a_source_says_how_many_batches_it_has(self):
        self.train(lambda *_: given(3), [(1, "count", 0, 1, 0, 0), (2, "train", 0, 1, 0, 0)])
        self.assertEqual(self.core.events[0], ("count", 1, 3))
        self.core = fake_core.Core(SLOTS)
        self.train(lambda *_: iter(given(3)), [(1, "count", 0, 1, 0, 0), (2, "train", 0, 1, 0, 0)], epoch_steps=9)
        self.assertEqual(self.core.events[0], ("count", 1, 0))
        self.assertEqual(self.core.epoch_steps, 9)

    def test_a_table_is_a_source(self):
        class Table:
            def __init__(self, batches):
                self.batches = batches

            def __len__(self):
                return 4 * len(self.batches)

            def __arrow_c_stream__(self, requested_schema=None):
                made = [Converter([("age", 0)], [name for name, _ in SLOTS], None).convert(batch) for batch in self.batches]
                return [(one.examples, one.label, one.weight, one.numbers, one.values) for one in made]

        def train(table, request, count):
            self.core = fake_core.Core(SLOTS)
            self.core.rows_of_batch = 4
            for one in ((1, "count", *request[2:4], 0, 0), request):
                self.core.requests.put(one)
            net, labels = Net(), []
            # What counts is the size with what flags say, which only the core knows.
            with self.worker(net, "train {\n  batch_size: 8\n}\n", source=table) as worker:
                for batch in worker:
                    labels.append(batch.label.tolist())
                    worker.backward(loss_of(net(batch), batch))
            self.assertEqual(self.core.events[0], ("count", 1, count))
            return labels

        made = given(7)
        labels = [batch["label"].tolist() for batch in made]
        self.assertEqual(train(Table(made), (2, "train", 0, 1, 0, 2), 7), labels[2:])
        self.assertEqual(train(Table(made), (2, "train", 1, 2, 0, 1), 4), labels[3::2])
        self.assertEqual(self.core.events[1], ("rows", 4))
        self.assertEqual(self.core.sources, (True, False, False))
        with self.assertRaisesRegex(RuntimeError, "no rows"):
            train(Table([]), (2, "train", 0, 1, 0, 0), 0)
        with self.assertRaisesRegex(ValueError, "padding"):
            self.worker(Net(), source=Table(made), padding=0)

    def test_a_loader_with_processes_of_its_own_is_a_source(self):
        def source(rank, world, epoch, start):
            return torch.utils.data.DataLoader(given(6)[start:], batch_size=None, num_workers=2)

        self.assertEqual(self.train(source), list(range(6)))

    def go_on_at(self, loader, start, epoch=0):
        """The numbers of the batches that a new process gets from a loader, at this place of the epoch."""
        states, self.core = self.core.source_states, fake_core.Core(SLOTS)
        self.core.source_states = states
        return self.train(loader, [(1, "train", 0, 1, epoch, start)])

    def test_a_loader_goes_on_from_its_newest_state(self):
        batches = given(130)
        loader = StatefulLoader(batches)
        self.assertEqual(self.train(loader), list(range(130)))
        self.assertEqual(sorted(self.core.source_states), [(0, 64), (0, 128)])
        for start, read in ((129, 2), (128, 2), (120, 66), (63, 130)):
            loader = StatefulLoader(batches)
            self.assertEqual(self.go_on_at(loader, start), list(range(start, 130)))
            self.assertEqual(loader.read, read)
        # Of another epoch there is none.
        loader = StatefulLoader(batches)
        self.assertEqual(self.go_on_at(loader, 127, epoch=1), [127, 128, 129])
        self.assertEqual((loader.read, loader.epochs), (130, [1]))

    def test_a_state_that_is_too_large_is_left_out(self):
        loader = StatefulLoader(given(70), blob=bytes(1 << 20))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.train(loader)
        self.assertRegex(said.getvalue(), "state_dict.. has 1 MiB, which is too much")

    def test_a_state_that_cannot_be_read_back_is_left_out(self):
        loader = StatefulLoader(given(130))
        loader.state_dict = lambda: {"at": np.int64(loader.at)}
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(self.train(loader), list(range(130)))
        self.assertRegex(said.getvalue(), "state_dict.. cannot be read back .*: give plain values and tensors; a job")
        self.assertEqual(len(said.getvalue().splitlines()), 1)
        self.assertEqual(self.core.source_states, {})

    def test_a_list_and_a_plain_loader_are_read_up_to_the_place(self):
        self.train(given(5), [(1, "count", 0, 1, 0, 0), (2, "train", 0, 1, 0, 3)])
        self.assertEqual(self.core.events[0], ("count", 1, 5))
        self.assertEqual(self.core.events.count(("stop",)), 1)
        self.assertEqual(self.go_on_at(torch.utils.data.DataLoader(given(6), batch_size=None), 4), [4, 5])
        self.assertEqual(self.go_on_at(given(3), 7), [])

    def orders(self, loader, *requests, rank=0, world=1):
        """The batches that a process reads from a loader for each request (epoch, start), by the number of its first example."""
        core = fake_core.Core(SLOTS)
        for request in (*((i, "train", rank, world, *request) for i, request in enumerate(requests)), None):
            core.requests.put(request)
        SourceReader(core, loader, None, None)._thread.join()
        orders = [[]]
        while not core.given.empty():
            batch = core.given.get()
            orders = [*orders, []] if batch is None else [*orders[:-1], [*orders[-1], batch[4][0][0]]]
        return orders[:-1]

    def test_the_order_of_a_loader_depends_on_its_epoch_alone(self):
        made = given(8)
        data = torch.utils.data
        random_sampler = lambda **more: data.BatchSampler(data.RandomSampler(made, **more), 1, False)
        first = lambda batches: batches[0]

        class Rows(data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, rows):
                return made[rows[0]]
        loaders = {
            "shuffles": lambda: data.DataLoader(made, batch_size=None, shuffle=True),
            "keeps its processes": lambda: data.DataLoader(made, batch_size=None, shuffle=True, num_workers=1,
                                                           persistent_workers=True, generator=torch.Generator().manual_seed(5)),
            "a sampler": lambda: data.DataLoader(made, batch_size=None, sampler=data.WeightedRandomSampler([1.0] * 8, 8)),
            "a sampler of batches": lambda: data.DataLoader(made, batch_sampler=random_sampler(), collate_fn=first),
            "a sampler of batches for a dataset that makes them": lambda: data.DataLoader(Rows(), batch_size=None, sampler=random_sampler()),
            "a generator of the script": lambda: data.DataLoader(
                made, batch_sampler=random_sampler(generator=torch.Generator().manual_seed(random.randrange(99))), collate_fn=first),
            "torch's generator": lambda: data.DataLoader(made, batch_size=None, shuffle=True, generator=torch.default_generator),
            **self.stateful(lambda loader: {"torchdata's own": lambda: loader(made, batch_size=None, shuffle=True)}),
        }
        for name, make in loaders.items():
            with self.subTest(name):
                torch.manual_seed(1)
                epochs = self.orders(make(), (0, 0), (1, 0))
                self.assertEqual([len(order) for order in epochs], [8, 8])
                self.assertNotEqual(*epochs)
                torch.manual_seed(2)
                self.assertEqual(self.orders(make(), (1, 3)), [epochs[1][3:]])

    def test_a_sampler_without_a_generator_is_left_alone(self):
        made, order = given(4), np.array([3, 1, 2, 0])
        [values] = self.orders(made, (0, 0))
        loader = torch.utils.data.DataLoader(made, batch_size=None, sampler=order)
        self.assertEqual(self.orders(loader, (0, 0)), [[values[i] for i in order]])

    def test_a_sampler_of_the_script_can_deal_one_order_to_the_ranks(self):
        made = given(8)

        class Dealt(torch.utils.data.BatchSampler):
            def __iter__(self):
                return itertools.islice(super().__iter__(), self.rank, None, 2)

        def loader(rank):
            sampler = Dealt(torch.utils.data.RandomSampler(range(8)), 1, False)
            sampler.rank = rank
            return torch.utils.data.DataLoader(made, batch_sampler=sampler, collate_fn=lambda batches: batches[0])
        [values] = self.orders(made, (0, 0))
        for epoch in (0, 1):
            parts = []
            for rank in (0, 1):
                with mock.patch.dict(os.environ, {"RANK": str(rank)}):
                    parts += self.orders(loader(rank), (epoch, 0), rank=rank, world=2)
            self.assertEqual(sorted(parts[0] + parts[1]), sorted(values))
        # Torch's own draw by rank.
        shuffled = [self.orders(lambda *_: torch.utils.data.DataLoader(made, batch_size=None, shuffle=True), (0, 0), rank=rank, world=2)
                    for rank in (0, 1)]
        self.assertNotEqual(*shuffled)

    def test_a_loader_draws_nothing_from_the_generator_of_the_steps(self):
        made = given(4)
        data = torch.utils.data
        for source in (data.DataLoader(made, batch_size=None, shuffle=True), data.DataLoader(made, batch_size=None),
                       lambda *_: data.DataLoader(made, batch_size=None, num_workers=1)):
            before = torch.get_rng_state()
            self.assertEqual(len(self.orders(source, (0, 0))[0]), 4)
            self.assertTrue(torch.equal(torch.get_rng_state(), before))

    @staticmethod
    def stateful(use):
        """`use(StatefulDataLoader)`; {} without torchdata."""
        try:
            from torchdata.stateful_dataloader import StatefulDataLoader
        except ImportError:
            print("SKIPPED, NOT PASSED: a StatefulDataLoader as a source needs torchdata (./dev python)", file=sys.stderr)
            return {}
        return use(StatefulDataLoader)

    def test_a_loader_of_torchdata_goes_on_from_its_newest_state(self):
        def check(loader):
            for processes in (0, 2):
                make = lambda: loader(given(100), batch_size=None, num_workers=processes)
                self.core = fake_core.Core(SLOTS)
                self.assertEqual(self.train(make()), list(range(100)))
                self.assertEqual(self.go_on_at(make(), 80), list(range(80, 100)))
                self.assertEqual(self.go_on_at(make(), 10), list(range(10, 100)))
        self.stateful(check)

    def test_padding_is_checked(self):
        for padding in ("0", 0.5, True, {"user": 1.5}):
            with self.subTest(padding), self.assertRaisesRegex(TypeError, "padding= is .*integer"):
                self.worker(Net(), source=lambda *_: [], padding=padding)
        with self.assertRaisesRegex(ValueError, r"padding= names 'uesr'; the categorical features are user, item"):
            Converter([("age", 0)], ["user", "item"], {"uesr": 0})

    def test_options_without_a_source_are_refused(self):
        for options in ({"epoch_steps": 3}, {"padding": 0}, {"eval_source": lambda rank, world: []}):
            with self.assertRaisesRegex(ValueError, "need source"):
                self.worker(Net(), **options)


class CellsTest(unittest.TestCase):
    """Values as Model.keys and Model.rows take them."""

    def test_whole_numbers_are_integers(self):
        self.assertEqual([_cell("f", value) for value in ("a", 5, 5.0, np.float64(5), np.int32(-5), 2.5)],
                         ["a", "5", "5", "5", "-5", "2.5"])

    def test_what_is_no_cell_is_refused_by_name(self):
        for value in (True, None, b"1", [1, 2], float("nan"), math.inf):
            with self.subTest(value), self.assertRaisesRegex(TypeError, "feature 'f' has the value"):
                _cell("f", value)
        with self.assertRaisesRegex(TypeError, "give a list"):
            _listed("f", "12")


class DeclareTest(unittest.TestCase):
    def test_tied_parameters_count_once_and_frozen_ones_apart(self):
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
        net[1].weight = net[0].weight
        net[2].bias.requires_grad_(False)
        net.none = nn.Parameter(torch.zeros(0), requires_grad=False)
        declared = declare(net)
        self.assertEqual([name for name, _ in declared.parameters], ["0.weight", "0.bias", "1.bias", "2.weight"])
        self.assertEqual([name for name, _ in declared.frozen], ["2.bias"])
        self.assertEqual([name for name, _ in declared.constants], ["none"])
        for value in (-math.inf, math.nan):
            with torch.no_grad():
                net[2].bias.fill_(value)
            self.assertEqual((declare(net).frozen, [name for name, _ in declare(net).constants]), ([], ["none", "2.bias"]))
            self.assertRegex(" ".join(_check.hints(net)), r"^frozen parameter '2.bias' has a NaN or an infinite value: .*finite values")
        net[2].bias = nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False)
        self.assertRegex(" ".join(_check.hints(net)), "^frozen parameter '2.bias' is torch.int64: .*; register it as a buffer, or")

    def test_a_pattern_chooses_the_optimizer(self):
        declared = declare(Net(), {"mlp.0.*": Optimizer("sgd", 0.1), "*.bias": Optimizer("adam", 0.2)})
        self.assertEqual({name: rule.learning_rate for name, rule in declared.optimizers.items()},
                         {"mlp.0.weight": 0.1, "mlp.0.bias": 0.1, "mlp.2.bias": 0.2})

    def test_what_cannot_be_trained_is_refused_by_name(self):
        with self.assertRaisesRegex(TypeError, "0.weight.*float64"):
            declare(nn.Sequential(nn.Linear(2, 1).double()))
        with self.assertRaisesRegex(ValueError, r"'nothing\.\*' .* matches no parameter; there are mlp.0.weight, .*, mlp.2.bias$"):
            declare(Net(), {"nothing.*": Optimizer("sgd", 0.1)})
        many = nn.Sequential(*(nn.Linear(1, 1) for _ in range(6)))
        with self.assertRaisesRegex(ValueError, r"there are 0.weight, .*, 4.weight, 4.bias and 2 more$"):
            declare(many, {"6.*": Optimizer("sgd", 0.1)})
        for dtype in (torch.float64, torch.bfloat16, torch.complex64):
            for persistent in (True, False):
                net = Net()
                net.register_buffer("mean", torch.zeros(2, dtype=dtype), persistent=persistent)
                if persistent:
                    with self.assertRaisesRegex(TypeError, r"buffer 'mean' is %s.*float32.*persistent=False" % dtype):
                        declare(net)
                else:
                    self.assertEqual([name for name, _ in declare(net).constants], ["mean"])
        net = Net()
        with self.assertRaisesRegex(TypeError, "SGD"):
            declare(net, {"*": torch.optim.SGD(net.parameters(), lr=0.1)})
        lazy = nn.Sequential(nn.LazyLinear(3))
        with self.assertRaisesRegex(TypeError, r"'0.weight' has no shape yet"):
            declare(lazy)
        with self.assertRaisesRegex(TypeError, r"'0.weight' is on the device meta.*to_empty"):
            declare(nn.Sequential(nn.Linear(2, 1, device="meta")))
        for dtype in (torch.float16, torch.complex64):
            with self.assertRaisesRegex(TypeError, r"'0.weight' is torch\.%s" % str(dtype)[6:]):
                declare(nn.Sequential(nn.Linear(2, 1, dtype=dtype)))
        with self.assertRaisesRegex(TypeError, r"the model is a DataParallel.*\.module"):
            declare(nn.DataParallel(nn.Linear(2, 1)))
        with self.assertRaisesRegex(TypeError, "the model is a dict"):
            declare({})
        net.other = EmbeddingCollection("emb", 2, features=["day"])
        with self.assertRaisesRegex(ValueError, "two collections"):
            declare(net)

    def test_objects_of_torch_optim_are_refused_with_our_counterpart(self):
        net = nn.Linear(2, 1)
        sgd = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.8, nesterov=True, weight_decay=0.25)
        scheduler = torch.optim.lr_scheduler
        for value, instead in (
            (sgd, r'SGD.*Optimizer\("momentum", learning_rate=0.5, options=\{\'momentum\': 0.8, \'nesterov\': True\}, '
                  r'others=\{\'weight_decay\': 0.25\}\)'),
            (torch.optim.SGD(net.parameters(), lr=0.5), r'Optimizer\("sgd", learning_rate=0.5\)'),
            (torch.optim.Adam(net.parameters(), lr=0.25), r'Optimizer\("adam", learning_rate=0.25, options=.*0.999'),
            (torch.optim.Adagrad(net.parameters(), lr=0.25), r'Optimizer\("adagrad"'),
            (torch.optim.RMSprop(net.parameters()), "rules are sgd, momentum"),
            (torch.amp.GradScaler("cpu"), "bfloat16"),
            (scheduler.LambdaLR(sgd, lambda epoch: 1), r'LambdaLR.*"schedule"'),
            (scheduler.CosineAnnealingLR(sgd, 10), r'"schedule": \{"cosine"'),
            (scheduler.ReduceLROnPlateau(sgd), "ReduceLROnPlateau.*no counterpart"),
        ):
            for arguments in ({"optimizers": value}, {"optimizers": {"*": value}}, {"predict": value}):
                with self.subTest(value=type(value).__name__), self.assertRaisesRegex(TypeError, instead):
                    sluice.torch.worker(net, sluice.Job(""), **arguments)
        with self.assertRaisesRegex(TypeError, r"^optimizers\['\*'\] is a torch\.optim\.sgd\.SGD: .*; give sluice.torch.Opt"):
            declare(net, {"*": sgd})
        # What is suggested in the place of the mapping is taken there.
        for value in (sgd, torch.optim.Adam(net.parameters())):
            with self.assertRaises(TypeError) as caught:
                declare(net, value)
            declare(net, eval(str(caught.exception).partition("give optimizers=")[2]))
        with self.assertRaisesRegex(TypeError, "^optimizer is a torch.optim"):
            EmbeddingCollection("emb", 2, features=["day"], optimizer=sgd)
        with self.assertRaisesRegex(TypeError, "^loss is a torch.optim"):
            sluice.torch.train(net, sgd, sluice.Job(""))

    def test_arguments_of_other_types_are_refused_by_name(self):
        net, job, function = nn.Linear(1, 1), sluice.Job(""), lambda *_: []
        with self.assertRaisesRegex(TypeError, "the job is a str; give a sluice.Job"):
            sluice.torch.worker(net, "train {}")
        with self.assertRaisesRegex(TypeError, "the model is a dict; give an nn.Module"):
            sluice.torch.worker({}, job)
        for arguments, message in (
            ({"predict": 5}, r"predict= is an int; give a function: predict\(batch\)"),
            ({"source": 5}, r"source= is an int; give a function: source\(rank, world_size, epoch, start\)"),
            ({"source": iter([])}, r"source= is a list_iterator, which can be read once; give a function: source"),
            ({"source": function, "eval_source": {}}, r"eval_source= is a dict; give a function: eval_source\(rank, world_size\)"),
            ({"predict": function, "metrics": [function]}, "metrics= is a list; give a mapping"),
            ({"predict": function, "metrics": {"m": 1}}, r"metrics\['m'\] is an int; give a function: fn\(batch, output\)"),
            ({"optimizers": [Optimizer("sgd", 0.1)]}, "optimizers= is a list; give a mapping"),
            ({"source": function, "epoch_steps": 2.5}, "epoch_steps= is 2.5; give the number"),
            ({"resume": "yes"}, "resume= is 'yes'; give True or False"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(TypeError, message):
                sluice.torch.worker(net, job, **arguments)
        with self.assertRaisesRegex(TypeError, r"the loss is a float; give a function: loss\(logits, batch\)"):
            sluice.torch.train(net, 0.5, job)
        with self.assertRaisesRegex(ValueError, "epoch_steps is 0"):
            sluice.torch.worker(net, job, source=function, epoch_steps=0)

    def test_collections_and_optimizers_of_other_types_are_refused_by_name(self):
        def make(name="emb", dim=2, features=("day",), **more):
            return EmbeddingCollection(name, dim, features=features, **more)

        make(initializer={"constant": 0}, optimizer=Optimizer("sgd", np.float32(0.5)))
        for arguments, error, message in (
            ({"name": 3}, TypeError, "name of an EmbeddingCollection is an int"),
            ({"dim": "8"}, TypeError, "dim= of the collection 'emb' is '8'"),
            ({"dim": 0}, ValueError, "dim= of the collection 'emb' is 0"),
            ({"features": "day"}, TypeError, "features= of the collection 'emb' is a str; give a list"),
            ({"features": ["day", 3]}, TypeError, "features= of the collection 'emb' has an int"),
            ({"features": []}, ValueError, "features= of the collection 'emb' is empty"),
            ({"optimizer": "adam"}, TypeError, "optimizer= of the collection 'emb' is a str; give a sluice.torch.Optimizer"),
            ({"initializer": 0.5}, TypeError, "initializer= of the collection 'emb' is a float; give a dictionary"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(error, message):
                make(**arguments)
        for arguments, error, message in (
            ((torch.optim.SGD, 0.1), TypeError, "the rule of an Optimizer is a type; give its name: sgd"),
            (("adam", "high"), TypeError, r"learning_rate of Optimizer\('adam'\) is 'high'"),
            (("adam", math.nan), ValueError, "is nan; give a finite one"),
            (("adam", -1), ValueError, "is -1"),
            (("adam", 0.1, [0.9]), TypeError, r"options= of Optimizer\('adam'\) is a list.*beta1"),
            (("adam", 0.1, {}, 0.9), TypeError, r"others= of Optimizer\('adam'\) is a float.*weight_decay"),
        ):
            with self.subTest(arguments), self.assertRaisesRegex(error, message):
                Optimizer(*arguments)
        with self.assertRaisesRegex(ValueError, r"the program: collections\[0\].initializer.normal.stddev is nan"):
            declare(nn.ModuleList([make(initializer={"normal": {"stddev": math.nan}})])).to_json()
        with self.assertRaisesRegex(TypeError, r"collections\[0\].optimizer.adam.beta1 is a set"):
            declare(nn.ModuleList([make(optimizer=Optimizer("adam", 0.1, {"beta1": {1}}))])).to_json()

    def test_errors_of_the_declaration_have_the_names_of_its_parts(self):
        declared = declare(Net(), {"mlp.2.bias": Optimizer("sgd", 0.1)})
        for error, shown in (
            ("the program: collections[1].initializer.normal: no 'x'", "the program: collection 'lin': initializer.normal: no 'x'"),
            ("parameters[3].optimizer.sgd: no", "parameter 'mlp.2.bias': optimizer.sgd: no"),
            ("features[1].name: 7", "features[1].name: 7"),
            ("collections[9].dim", "collections[9].dim"),
        ):
            self.assertEqual(declared.with_names(error), shown)

    def test_a_large_frozen_parameter_gets_a_hint(self):
        with mock.patch.object(_check, "LARGE_FROZEN", 20):
            net = nn.Sequential(nn.Linear(4, 5), nn.Linear(7, 3), nn.Linear(7, 3)).requires_grad_(False)
            net[2].weight.requires_grad_(True)
            hint, = _check.hints(net)
            self.assertRegex(hint, r"^frozen parameter '1.weight' has 21 elements.*register_buffer\(..., persistent=False\)")

    def test_a_large_embedding_gets_a_hint(self):
        with mock.patch.object(_check, "LARGE_EMBEDDING", 20):
            net = nn.Sequential(nn.Embedding(10, 2), nn.Embedding(11, 2), nn.EmbeddingBag(11, 2))
            net[2].weight.requires_grad_(False)
            self.assertRegex(" ".join(_check.hints(net)), r"^1 is a Embedding of 22 elements.*EmbeddingCollection\S* moves")


class TorchRanksTest(unittest.TestCase):
    def ranks(self, rank, port):
        return TorchRanks({"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

    def setUp(self):
        self.port = sluice_testing.free_port()

    def test_rank_0_waits_for_nobody_until_it_needs_them(self):
        made = []
        thread = threading.Thread(target=lambda: made.append(self.ranks(0, self.port)), daemon=True)
        thread.start()
        thread.join(60)
        self.assertEqual(len(made), 1, "rank 0 waits for rank 1")
        with mock.patch("sluice.torch._torchrun.time.sleep", side_effect=KeyboardInterrupt), \
                self.assertRaises(KeyboardInterrupt):
            made[0].await_all()
        other = self.ranks(1, self.port)
        made[0].share("/folder")
        self.assertEqual(other.share(None), "/folder")
        other.await_all()
        made[0].await_all()

    def test_another_rank_looks_for_signals_while_there_is_no_rank_0(self):
        with mock.patch("sluice.torch._torchrun.time.sleep", side_effect=KeyboardInterrupt), \
                self.assertRaises(KeyboardInterrupt):
            self.ranks(1, self.port)

    def test_a_rank_whose_rank_0_has_gone_says_so(self):
        first = self.ranks(0, self.port)
        other = self.ranks(1, self.port)
        del first
        with self.assertRaisesRegex(sluice.JobError, "rank 0 or torchrun has ended"):
            other.share(None)


if __name__ == "__main__":
    unittest.main()
