"""sluice.torch against plain PyTorch, on a fake worker (fake_core.py). Needs torch."""
import os
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent)]

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("SKIPPED, NOT PASSED: torch_test needs PyTorch (pip install torch==2.5.1 numpy)", file=sys.stderr)
    sys.exit(77)

import fake_core  # noqa: E402
import sluice  # noqa: E402
import sluice.torch  # noqa: E402
from sluice.torch import EmbeddingCollection, Optimizer  # noqa: E402
from sluice.torch._declare import declare  # noqa: E402
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


class LoopTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": folder.name, "SLUICE_RANK": "0"})
        patch.start()
        self.addCleanup(patch.stop)
        self.core = fake_core.Core(SLOTS)

    def worker(self, net, **more):
        return Worker(net, sluice.Job("train { epochs: 1 }"), core=self.core, **more)

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

    def test_leaving_the_loop_early_is_an_error_yet(self):
        net = Net()
        self.core.batches = batches(2)
        with self.assertRaisesRegex(sluice.JobError, "before the end of the job"):
            with self.worker(net) as worker:
                for batch in worker:
                    worker.backward(loss_of(net(batch), batch))
                    break

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


class DeclareTest(unittest.TestCase):
    def test_tied_parameters_count_once_and_frozen_ones_are_no_tables(self):
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
        net[1].weight = net[0].weight
        net[2].bias.requires_grad_(False)
        self.assertEqual([name for name, _ in declare(net).parameters], ["0.weight", "0.bias", "1.bias", "2.weight"])

    def test_a_pattern_chooses_the_optimizer(self):
        declared = declare(Net(), {"mlp.0.*": Optimizer("sgd", 0.1), "*.bias": Optimizer("adam", 0.2)})
        self.assertEqual({name: rule.learning_rate for name, rule in declared.optimizers.items()},
                         {"mlp.0.weight": 0.1, "mlp.0.bias": 0.1, "mlp.2.bias": 0.2})

    def test_what_cannot_be_trained_is_refused_by_name(self):
        with self.assertRaisesRegex(TypeError, "0.weight.*float64"):
            declare(nn.Sequential(nn.Linear(2, 1).double()))
        with self.assertRaisesRegex(ValueError, "matches no parameter"):
            declare(Net(), {"nothing.*": Optimizer("sgd", 0.1)})
        net = Net()
        with self.assertRaisesRegex(TypeError, "SGD"):
            declare(net, {"*": torch.optim.SGD(net.parameters(), lr=0.1)})
        net.other = EmbeddingCollection("emb", 2, features=["day"])
        with self.assertRaisesRegex(ValueError, "two collections"):
            declare(net)


if __name__ == "__main__":
    unittest.main()
