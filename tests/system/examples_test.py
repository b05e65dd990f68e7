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
