"""The PyTorch programs in examples/, and the first one of docs/python.md, train as they say. Needs what program_test needs."""
import json
import os
import pathlib
import random
import re
import unittest

from sluice_testing import ADULT_TRAIN_EXAMPLES, BIN, ROOT, SluiceTest, torch_python

PYTHON = torch_python()

EXAMPLES = ROOT / "examples"


# Prints the RMSE of a saved model, and of the same training in NumPy.
BESIDE = '''
import numpy as np
import matrix_factorization as mf
import sluice

def rmse(user_rows, item_rows):
    user, item, rating = mf.ratings(1000, 0, n=50_000)
    return np.sqrt(np.mean(((user_rows[user] * item_rows[item]).sum(axis=1) - rating) ** 2))

saved = sluice.load_model(%r)
ours = rmse(saved.rows("user", [str(i) for i in range(mf.USERS)]), saved.rows("item", [str(i) for i in range(mf.ITEMS)]))
draw = np.random.default_rng(7)
tables = [draw.normal(scale=mf.STDDEV, size=(n, mf.TASTES)).astype(np.float32) for n in (mf.USERS, mf.ITEMS)]
squares = [np.zeros_like(table) for table in tables]
for step in range(1000):
    user, item, rating = mf.ratings(0, step)
    *gradients, _ = mf.gradients(tables[0][user], tables[1][item], rating)
    for table, sums, ids, gradient in zip(tables, squares, (user, item), gradients):
        total = np.zeros_like(table)
        np.add.at(total, ids, gradient)
        sums += total**2
        table -= mf.RATE * total / (np.sqrt(sums) + 1e-10)
print(ours, rmse(*tables))
'''


# Trains two steps of SGD on one batch, in which features have any number of values. The first one leaves all values as they
# are, so its checkpoint has those with which training starts.
TWO_STEPS = '''
import torch
from torch.nn import functional as F
import sluice.torch
from adult import CATEGORIES, NUMBERS
from deepfm import DeepFM

EXAMPLES, VALUES, MEANS, RATE = 64, 7, ("education", "sex"), 0.5
JOB = "train { epochs: 1 } checkpoint { every_steps: 1 keep: 3 } optimizers { all { sgd {} learning_rate: %g } }" % RATE
JOB += "".join('features { name: "%s" numeric {} }' % name for name in NUMBERS)
JOB += "".join('features { name: "%s" categorical { pooling: %s } }' % (name, "MEAN" if name in MEANS else "SUM") for name in CATEGORIES)
draw = torch.Generator().manual_seed(1)
numbers = torch.randn(len(NUMBERS), EXAMPLES, generator=draw)
label = torch.randint(0, 2, (EXAMPLES,), generator=draw)
lists = {name: [torch.randint(0, VALUES, (int(n),), generator=draw) for n in torch.randint(0, 4, (EXAMPLES,), generator=draw)]
         for name in CATEGORIES}


def source(rank, world, epoch, start):
    features = {name: (torch.cat(made), torch.tensor([0, *map(len, made)]).cumsum(0)) for name, made in lists.items()}
    return (2 * [{**dict(zip(NUMBERS, numbers)), **features, "label": label}])[start:]


if __name__ == "__main__":
    torch.manual_seed(1)
    model = DeepFM()
    with sluice.torch.worker(model, sluice.Job(JOB), source=source) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label) * batch.step)
'''

# Prints by how much each table has moved, and the distance from where plain PyTorch has moved it.
PLAIN_STEP = '''
import sys
import torch
from torch.nn import functional as F
import sluice
from equality_test import Bags, PlainDeepFM
from two_steps import CATEGORIES, MEANS, NUMBERS, RATE, VALUES, label, lists, numbers

first, last = (sluice.load_model(folder) for folder in sys.argv[1:])
rows = lambda model, column: [torch.tensor(model.rows(name, range(VALUES), column)) for name in CATEGORIES]
tables = {column: [torch.nn.Parameter(one) for one in rows(first, column)] for column in ("embedding", "first_order")}
features = [(name, i) for i, name in enumerate(CATEGORIES)]
plain = PlainDeepFM(*(Bags(of, features, MEANS) for of in tables.values()), len(CATEGORIES) * 8 + len(NUMBERS))
plain.load_state_dict({name: torch.tensor(value) for name, value in first.dense.items()}, strict=False)
values = [[one.tolist() for one in lists[name]] for name in CATEGORIES]
F.binary_cross_entropy_with_logits(plain(values, numbers.t()), label.float()).backward()
moved = [(column, torch.stack(of), torch.stack(rows(last, column)), torch.stack([one.grad for one in of])) for column, of in tables.items()]
moved += [(name, *(torch.tensor(model.dense[name]) for model in (first, last)), value.grad)
          for name, value in plain.named_parameters() if name in first.dense]
for name, begin, end, gradient in moved:
    print(name, float((begin - end).abs().max()), float((begin - end - RATE * gradient).abs().max()))
'''


class ExamplesTest(SluiceTest):
    def check(self, file, examples, auc, *arguments, epochs=1, flags=()):
        done = self.run_program("sluice", "launch", "--program=%s" % file, "--python=%s" % PYTHON, "--server_num=1",
                                "--worker_num=1", "--epochs=%d" % epochs, "--output_dir=%s" % (self.tmp / "run"),
                                "--log_dir=%s" % (self.tmp / "log"), *flags, *(["--", *arguments] if arguments else []),
                                env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stdout)
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["examples"], examples * epochs)
        print("%s: AUC %.4f" % (file.name, result["eval"]["auc"]), flush=True)
        self.assertGreater(result["eval"]["auc"], auc)

    def test_deepfm(self):
        self.check(EXAMPLES / "deepfm.py", ADULT_TRAIN_EXAMPLES, 0.87)

    def test_a_step_of_deepfm_on_lists_is_that_of_plain_pytorch(self):
        (self.tmp / "two_steps.py").write_text(TWO_STEPS)
        path = {"PYTHONPATH": ":".join(map(str, (BIN.parent / "python", EXAMPLES, ROOT / "tests" / "python")))}
        done = self.run_program("sluice", "launch", "--program=two_steps.py", "--python=%s" % PYTHON, "--server_num=2",
                                "--worker_num=1", "--a_sync=false", "--output_dir=run", env={**os.environ, **path})
        self.assertEqual(done.returncode, 0, done.stdout)
        (self.tmp / "plain_step.py").write_text(PLAIN_STEP)
        done = self.run_program(PYTHON, "-B", "plain_step.py", "run/checkpoints/step-1", "run/model", env={**os.environ, **path})
        self.assertEqual(done.returncode, 0, done.stdout)
        tables = re.findall(r"^(\S+) (\S+) (\S+)$", done.stdout, re.M)
        self.assertEqual(len(tables), 2 + 8, done.stdout)
        for name, moved, distance in tables:
            self.assertGreater(float(moved), 0, name)
            self.assertLessEqual(float(distance), 1e-4 * float(moved), name)

    def test_dcn_v2(self):
        self.check(EXAMPLES / "dcn_v2.py", ADULT_TRAIN_EXAMPLES, 0.87)

    def test_two_tower(self):
        self.check(EXAMPLES / "two_tower.py", ADULT_TRAIN_EXAMPLES, 0.87)

    def test_din(self):
        self.check(EXAMPLES / "din.py", 40_000, 0.7, "--data=%s" % (self.tmp / "data"), epochs=4)

    def test_matrix_factorization(self):
        file = EXAMPLES / "matrix_factorization.py"
        done = self.run_program("sluice", "launch", "--program=%s" % file, "--python=%s" % PYTHON, "--server_num=1",
                                "--worker_num=1", "--output_dir=%s" % (self.tmp / "run"), "--log_dir=%s" % (self.tmp / "log"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(json.loads((self.tmp / "run" / "result.json").read_text())["examples"], 512_000)
        # The same in NumPy alone, from other first values. The noise of the ratings is 0.1.
        beside = self.tmp / "beside.py"
        beside.write_text(BESIDE % str(self.tmp / "run" / "model"))
        path = "%s:%s" % (BIN.parent / "python", EXAMPLES)
        done = self.run_program(PYTHON, beside, env=dict(os.environ, PYTHONPATH=path))
        self.assertEqual(done.returncode, 0, done.stdout)
        ours, plain = (float(figure) for figure in done.stdout.split()[-2:])
        print("matrix_factorization.py: RMSE %.4f, plain NumPy %.4f" % (ours, plain), flush=True)
        self.assertLess(ours, 0.15)
        self.assertLess(abs(ours - plain), 0.015)

    def test_flights_wide_deep(self):
        """The data is not here: flights of the same form, which are late in the evening."""
        draw = random.Random(1)
        for name, lines in (("train", 20_000), ("test", 4_000)):
            with open(self.tmp / (name + ".csv"), "w") as out:
                out.write("date,delay,distance,origin,destination\n")
                for _ in range(lines):
                    hour = draw.randrange(24)
                    delay = draw.randrange(15, 60) if draw.random() < 0.1 + 0.7 * (hour >= 18) else draw.randrange(-10, 15)
                    out.write("2001-%02d-%02d %02d:%02d,%d,%d,%s,%s\n" % (
                        draw.randrange(1, 13), draw.randrange(1, 29), hour, draw.randrange(60), delay, draw.randrange(100, 2500),
                        *draw.sample(("LAS", "PHL", "ATL", "SAV", "ORD"), 2)))
        self.check(EXAMPLES / "flights_wide_deep.py", 20_000, 0.75, flags=[
            "--set=data.train_files=%s" % (self.tmp / "train.csv"), "--set=data.eval_files=%s" % (self.tmp / "test.csv")])

    def test_the_first_program_of_the_page(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
        file = self.tmp / "train.py"
        file.write_text(blocks[0].replace('"data/adult/', '"%s/data/adult/' % ROOT))
        self.check(file, ADULT_TRAIN_EXAMPLES, 0.85)
        # The page then looks at the model.
        block, = (block for block in blocks if block.startswith("def look("))
        look = self.tmp / "look.py"
        look.write_text("import sluice\n%slook(%r)\n" % (block, str(self.tmp / "run" / "model")))
        done = self.run_program(PYTHON, look, env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")))
        self.assertIn("(32, 25)", done.stdout)

    def test_the_loop_the_evaluation_and_the_saved_model_of_the_page(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
        head, found, _ = blocks[0].replace('"data/adult/', '"%s/data/adult/' % ROOT).partition("\nmodel = Net()\n")
        self.assertTrue(found)
        loop, = (block for block in blocks if "batch.first_of_epoch and worker.is_main" in block)
        hits, found, _ = next(block for block in blocks if block.startswith("def hits(")).partition("\nmodel = Net()\n")
        self.assertTrue(found)
        # A process has one job: the page's metric is measured in the page's loop.
        (self.tmp / "train.py").write_text(head + hits + loop.replace("predict=model)", 'predict=model, metrics={"hits": hits})'))
        self.check(self.tmp / "train.py", ADULT_TRAIN_EXAMPLES, 0.85)
        evaluation = json.loads((self.tmp / "run" / "result.json").read_text())["eval"]
        self.assertAlmostEqual(evaluation["user"]["hits"], evaluation["accuracy"], places=6)
        saved, = (block for block in blocks if "person = saved.batch(" in block)
        (self.tmp / "saved.py").write_text(head + saved.replace("output/first-1/model", str(self.tmp / "run" / "model")).replace(
            '"data/adult/', '"%s/data/adult/' % ROOT) + "print(len(logits), float(score))\n"
            "print(float(((logits > 0) == torch.cat([batch.label > 0 for batch in saved.batches(%r)])).double().mean()))\n"
            % str(ROOT / "data" / "adult" / "adult.test.gz"))
        done = self.run_program(PYTHON, self.tmp / "saved.py", env=dict(os.environ, PYTHONPATH=str(BIN.parent / "python")))
        self.assertEqual(done.returncode, 0, done.stdout)
        examples, score, accuracy = map(float, done.stdout.split())
        self.assertEqual(examples, evaluation["examples"])
        self.assertTrue(0 < score < 1, score)
        self.assertAlmostEqual(accuracy, evaluation["accuracy"], delta=1e-4)

    def test_the_page_and_this_file_name_every_example(self):
        page, tests = (ROOT / "docs" / "python.md").read_text(), pathlib.Path(__file__).read_text()
        for file in EXAMPLES.glob("*.py"):
            if file.name == "adult.py":  # the job of the others
                continue
            self.assertIn("(../examples/%s)" % file.name, page)
            if file.name != "adult_wide_deep.py":  # program_test trains it
                self.assertIn('"%s"' % file.name, tests)


if __name__ == "__main__":
    unittest.main()
