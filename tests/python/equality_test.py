"""The modules of examples/ compute what they compute in plain PyTorch from the same weights, on a fake worker (fake_core.py).

Each module has a counterpart here, which is written another way, with nn.Embedding and nn.EmbeddingBag that hold our rows.
Needs torch.
"""
import pathlib
import random
import sys
import unittest

# Before torch_test, which adds the package, and ends this process when there is no torch.
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "examples"), str(pathlib.Path(__file__).parent)]

from torch_test import FakeWorkerTest  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import adult  # noqa: E402
import dcn_v2  # noqa: E402
import deepfm  # noqa: E402
import din  # noqa: E402
import fake_core  # noqa: E402

EXAMPLES, BATCHES, VALUES = 24, 4, 7


class Bags(nn.Module):
    """A pooled collection in plain PyTorch: a bag for each feature over the rows of its table."""

    def __init__(self, tables, features, means=()):
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(*tables[table].shape, mode="mean" if feature in means else "sum") for feature, table in features)
        for bag, (_, table) in zip(self.bags, features):
            bag.weight = tables[table]  # features of one table share it

    def forward(self, values):  # by feature: lists of rows by example
        pooled = []
        for bag, lists in zip(self.bags, values):
            starts = np.cumsum([0] + [len(one) for one in lists[:-1]])
            pooled.append(bag(torch.tensor(sum(lists, []), dtype=torch.int64), torch.from_numpy(starts)))
        return pooled


class PlainDeepFM(nn.Module):
    def __init__(self, embedding, first_order, width):
        super().__init__()
        self.embedding, self.first_order = embedding, first_order
        self.linear = nn.Linear(len(adult.NUMBERS), 1)
        self.deep = nn.Sequential(nn.Linear(width, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 1))

    def forward(self, values, numbers):
        rows = self.embedding(values)
        pairs = sum((rows[i] * rows[j]).sum(1) for i in range(len(rows)) for j in range(i))
        deep = self.deep(torch.cat([*rows, numbers], dim=1))[:, 0]
        return sum(one[:, 0] for one in self.first_order(values)) + self.linear(numbers)[:, 0] + pairs + deep


class PlainDCN(nn.Module):
    def __init__(self, embedding, width):
        super().__init__()
        self.embedding = embedding
        self.crosses = nn.ModuleList(nn.ModuleDict({"down": nn.Linear(width, 16, bias=False), "up": nn.Linear(16, width)})
                                     for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(width, 100), nn.ReLU(), nn.Identity(), nn.Linear(100, 50), nn.ReLU())
        self.out = nn.Linear(50, 1)

    def forward(self, values, numbers):
        x = x0 = torch.cat([*self.embedding(values), numbers], dim=1)
        for cross in self.crosses:
            whole = cross["up"].weight @ cross["down"].weight  # W of the paper, of a low rank
            x = x0 * (x @ whole.t() + cross["up"].bias) + x
        return self.out(self.deep(x))[:, 0]


class PlainDIN(nn.Module):
    def __init__(self, items):
        super().__init__()
        dim = items.shape[1]
        self.items = nn.Embedding(*items.shape)
        self.items.weight = items
        self.attention = nn.Sequential(nn.Linear(4 * dim, 32), nn.ReLU(), nn.Linear(32, 1))
        self.deep = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, values, numbers):
        items, histories = values
        logits = []
        for (item,), history in zip(items, histories):
            shown = self.items.weight[item]
            interest = torch.zeros_like(shown)
            for seen in self.items(torch.tensor(history, dtype=torch.int64)):
                interest = interest + self.attention(torch.cat([seen, shown, seen - shown, seen * shown])) * seen
            logits.append(self.deep(torch.cat([shown, interest])))
        return torch.cat(logits)


class ExamplesTest(FakeWorkerTest):
    def made(self, slots, counts, seed=5):
        """Batches. counts(draw, slot): how many values an example has there."""
        draw = random.Random(seed)
        return [([[[draw.randrange(VALUES) for _ in range(counts(draw, slot))] for slot in range(len(slots))]
                  for _ in range(EXAMPLES)],
                 [draw.randrange(2) for _ in range(EXAMPLES)],
                 [[draw.gauss(0, 1) for _ in adult.NUMBERS] for _ in range(EXAMPLES)], step) for step in range(BATCHES)]

    def check(self, module, slots, counts, plain_of, means=()):
        """plain_of(columns) makes the counterpart. columns(collection): parameters with our rows, by table."""
        core = self.core = fake_core.Core(slots, means=means)
        core.batches = self.made(slots, counts)
        steps = 0
        with self.worker(module) as worker:
            for batch in worker:
                turn = core.turn
                leaves = {}

                def columns(collection):
                    leaves[collection] = {}
                    for table, found in enumerate(core.columns):
                        if collection in dict(found):
                            begin = dict(found)[collection]
                            dim = getattr(module, collection).dim
                            leaves[collection][table] = nn.Parameter(torch.tensor(turn.rows(table)[:, begin:begin + dim]))
                    return leaves[collection]

                plain = plain_of(columns)
                values = [[[turn.unique[table].index(key) for key in example[slot]] for example in turn.example_keys]
                          for slot, (_, table) in enumerate(slots)]
                weights = {name: torch.tensor(turn.parameter(i)) for i, name in enumerate(core.parameters())}
                with torch.no_grad():
                    for name, parameter in plain.named_parameters():
                        if name in weights:
                            parameter.copy_(weights.pop(name))
                self.assertEqual(weights, {})
                expected = plain(values, torch.from_numpy(turn.numbers()))
                logits = module(batch)
                self.assert_close("logits", logits.detach(), expected.detach(), 1e-5)
                F.binary_cross_entropy_with_logits(expected, batch.label).backward()
                worker.backward(F.binary_cross_entropy_with_logits(logits, batch.label))
                self.compare_gradients(core, plain, leaves, module)
                steps += 1
        self.assertEqual(steps, BATCHES)

    def compare_gradients(self, core, plain, leaves, module):
        dense = dict(plain.named_parameters())
        for name, gradient in zip(core.parameters(), core.last._gradients):
            self.assert_close(name, torch.from_numpy(gradient), dense[name].grad, 1e-4)
        for collection, by_table in leaves.items():
            for table, leaf in by_table.items():
                begin = dict(core.columns[table])[collection]
                gradient = core.last.row_gradients(table)[:, begin:begin + leaf.shape[1]]
                self.assert_close(collection, torch.from_numpy(gradient), leaf.grad, 1e-4)

    def assert_close(self, name, ours, plain, tolerance):
        """Relative to the largest element, and never trivially."""
        self.assertEqual(ours.shape, plain.shape, name)
        largest = float(plain.abs().max())
        self.assertTrue(largest > 0, name)
        distance = float((ours - plain).abs().max())
        self.assertTrue(distance <= tolerance * largest, "%s: %.1e beside %.1e" % (name, distance, largest))

    def adult_slots(self):
        # Two tables, as when features have a table of their own.
        return [(name, int(name in ("education", "sex"))) for name in adult.CATEGORIES]

    def width(self, dim=8):
        return len(adult.CATEGORIES) * dim + len(adult.NUMBERS)

    def check_deepfm(self, counts, means=()):
        slots = self.adult_slots()
        self.check(deepfm.DeepFM(), slots, counts, lambda columns: PlainDeepFM(
            Bags(columns("embedding"), slots, means), Bags(columns("first_order"), slots, means), self.width()), means)

    def test_deepfm(self):
        self.check_deepfm(lambda draw, slot: 1)

    def test_deepfm_with_any_number_of_values_and_means(self):
        self.check_deepfm(lambda draw, slot: draw.randrange(4), means=("education", "sex"))

    def check_dcn(self, counts, means=()):
        slots = self.adult_slots()
        module = dcn_v2.DCN()
        module.deep[2] = nn.Identity()  # no random mask
        self.check(module, slots, counts, lambda columns: PlainDCN(Bags(columns("embedding"), slots, means), self.width()), means)

    def test_dcn_v2(self):
        self.check_dcn(lambda draw, slot: 1)

    def test_dcn_v2_with_any_number_of_values_and_means(self):
        self.check_dcn(lambda draw, slot: draw.randrange(4), means=("race", "native_country"))

    def test_din(self):
        slots = [("item", 0), ("history", 0)]
        self.check(din.DIN(), slots, lambda draw, slot: 1 if slot == 0 else draw.randrange(6),
                   lambda columns: PlainDIN(columns("items")[0]))


if __name__ == "__main__":
    unittest.main()
