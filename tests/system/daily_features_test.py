"""A next day's job with other features: what the features that stay have trained keeps its bits."""
import array
import ast
import json
import random
import struct
import unittest
import zipfile

from sluice_testing import SluiceTest

ROWS = 600
COLUMNS = "label a b gone new x y left fresh"
FLAGS = ["--a_sync=false", "--worker_num=2", "--epochs=1", "--batch_size=32", "--threads=1", "--set=data.shuffle_lanes=2"]
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
# AdaGrad changes neither a weight nor its state where the gradient is 0.
JOB = """
name: "days"
data { format: CSV train_files: "%(train)s" csv { header: true } label { column: "label" } }
%(features)s
model { wide_deep { hidden_units: [6, 3] %(width)s embedding_initializer { uniform { min: 0.5 max: 0.6 } } } }
optimizers { all { adagrad { initial_accumulator: 0.25 } learning_rate: 0.1 } }
train { seed: 3 }
"""
NUMBER, KEYS = 'features { name: "%s" numeric {} }\n', 'features { name: "%s" categorical {} %s }\n'
FIRST = "".join([NUMBER % "a", NUMBER % "gone", NUMBER % "b", KEYS % ("x", ""), KEYS % ("y", ""), KEYS % ("left", "")])
# Two features added, two removed (a number and one with keys), the others in another order, and the table widened.
SECOND = "".join([KEYS % ("fresh", ""), KEYS % ("y", ""), NUMBER % "b", NUMBER % "new", KEYS % ("x", ""), NUMBER % "a"])


def arrays_of(path):
    """The arrays of an .npz: by name, the shape and the rows as lists of 32-bit words (keys: 64-bit)."""
    arrays = {}
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            raw = file.read(name)
            length = struct.unpack("<H", raw[8:10])[0]
            header = ast.literal_eval(raw[10:10 + length].decode().strip())
            words = array.array("Q" if header["descr"] == "<u8" else "I", raw[10 + length:])
            shape = header["shape"]
            width = len(words) // shape[0] if shape[0] else 1
            arrays[name[:-len(".npy")]] = [tuple(words[i * width:(i + 1) * width]) for i in range(shape[0])]
    return arrays


def word(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


class DailyFeaturesTest(SluiceTest):
    def setUp(self):
        super().setUp()
        source = random.Random(7)
        key = lambda letter: "%s%d" % (letter, source.randrange(40))
        self.write_csv("day1.csv", [(source.randint(0, 1), *("%.3f" % source.gauss(0, 1) for _ in range(3)), 0,
                                     key("x"), key("y"), key("l"), "") for _ in range(ROWS)], header=COLUMNS.replace(" ", ","))
        # What both days have is missing or 0 on the second day, so only what is new has gradients.
        self.write_csv("day2.csv", [(source.randint(0, 1), 0, 0, 0, "%.3f" % source.gauss(0, 1), "", "", "", key("f"))
                                    for _ in range(ROWS)], header=COLUMNS.replace(" ", ","))
        self.first = self.job("first", FIRST, "embedding_dim: 4", "day1.csv")
        self.second = self.job("second", SECOND, "embedding_dim: 6", "day2.csv")

    def job(self, name, features, width, train):
        path = self.tmp / (name + ".textproto")
        path.write_text(JOB % {"features": features, "width": width, "train": self.tmp / train})
        return path

    def train(self, name, job, *flags, servers=2):
        result, out = self.launch(*FLAGS, "--server_num=%d" % servers, *flags, job=job, name=name)
        self.assertEqual(result["status"], "done", out)
        return result, out

    def tables(self, name):
        """The tables of a job's last checkpoint."""
        checkpoint = max((self.tmp / name / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
        tables = {}
        for table in ("embedding", "deep/0/weight", "deep/1/weight", "wide/weight"):
            path = self.tmp / ("%s.%s.npz" % (name, table.replace("/", ".")))
            done = self.run_program("sluice", "table", "export", checkpoint, "--state", "--table=%s" % table,
                                    "--output=%s" % path, "--overwrite")
            self.assertEqual(done.returncode, 0, done.stdout)
            tables[table] = arrays_of(path)
        return tables

    def assert_kept(self, day1, day2, state=True):
        """Rows and columns of both days have the bits of day 1. Without `state`, those of the weights alone."""
        before, after = self.tables(day1), self.tables(day2)
        # x 0-3, y 4-7, left 8-11, a, gone, b; then fresh 0-5, y 6-11, x 12-17, b, new, a.
        moved = {0: 12, 1: 13, 2: 14, 3: 15, 4: 6, 5: 7, 6: 8, 7: 9, 12: 20, 14: 18}
        self.assertEqual({name: len(rows) for name, rows in after["deep/0/weight"].items()},
                         {name: 21 for name in before["deep/0/weight"]})
        accumulator = next(name for name in before["deep/0/weight"] if name != "weights")
        arrays = ["weights", accumulator] if state else ["weights"]
        for name in arrays:
            old, new = before["deep/0/weight"][name], after["deep/0/weight"][name]
            self.assertEqual([new[to] for to in moved.values()], [old[row] for row in moved])
            old, new = before["wide/weight"][name], after["wide/weight"][name]
            self.assertEqual((new[0], new[2]), (old[2], old[0]), "b, new, a were a, gone, b")
        fresh = (word(0.25),) * 6
        states = after["deep/0/weight"][accumulator]
        self.assertEqual([states[row] for row in (10, 11, 16, 17)], [fresh] * 4, "new columns of y and x have fresh state")
        self.assertNotIn(fresh, [states[row] for row in (0, 1, 2, 3, 4, 5, 19)], "what is new has trained")
        self.assert_rows_kept(before["embedding"], after["embedding"], state)

    def assert_rows_kept(self, before, after, state):
        old = {key: i for i, (key,) in enumerate(before["key"])}
        new = {key: i for i, (key,) in enumerate(after["key"])}
        self.assertEqual(len(old), 120, "x, y and left")
        self.assertEqual(len(new), 160, "their rows stay, and fresh has its own")
        self.assertLess(set(old), set(new))
        floats = [name for name in before if name not in ("key", "count", "last_seen")]
        for name in floats if state else ("wide", "embedding"):
            for key, i in old.items():
                row = after[name][new[key]]
                self.assertEqual(row[:len(before[name][i])], before[name][i], name)
                for added in row[len(before[name][i]):]:
                    value = struct.unpack("<f", struct.pack("<I", added))[0]
                    if name == "embedding":
                        self.assertTrue(0.5 <= value <= 0.6, value)
                    else:
                        self.assertEqual(value, 0.25, name)
        for name in ("count", "last_seen") if state else ():
            self.assertEqual([after[name][new[key]] for key in old], [before[name][i] for i in old.values()])

    def assert_told_once(self, out):
        told = [line for line in out.splitlines() if line.startswith(("note: ", "warning: "))]
        for feature in ("fresh", "new", "gone", "left"):
            self.assertEqual(sum('"%s"' % feature in line for line in told), 1, told)

    def test_what_stays_keeps_its_bits(self):
        self.train("day1", self.first)
        start = "--set=initial_checkpoint=%s" % (self.tmp / "day1")
        result, out = self.train("day2", self.second, start, servers=3)
        for words in ('features added: "fresh", "new"; removed: "gone", "left"; moved: ', 'widened: "x" (4 to 6), "y" (4 to 6)',
                      "'deep/0/weight': 10 rows kept, 11 initialized, 5 dropped",
                      "'wide/weight': 2 rows kept, 1 initialized, 1 dropped",
                      "'embedding': 5 columns kept, 2 initialized, 0 dropped; all of its rows stay"):
            self.assertIn("note: initial_checkpoint: ", out)
            self.assertIn(words, out)
        self.assert_told_once(out)
        self.assert_kept("day1", "day2")
        # The same on another number of pservers and after a resume from its own checkpoint, which moves nothing again.
        again, _ = self.train("again", self.second, start, servers=1)
        self.assertEqual(again["model_digest"], result["model_digest"])
        more, _ = self.train("day2", self.second, "--resume", "--epochs=2", servers=2)
        self.assertNotEqual(more["recovery"]["resumed_from"], "")
        self.assert_kept("day1", "day2")

    def test_dense_tables_on_the_workers_follow_as_well(self):
        self.train("day1", self.first, COLLECTIVE)
        for name, start, state in (("day2", "initial_checkpoint", True), ("values", "initial_model", False)):
            with self.subTest(name):
                folder = self.tmp / "day1" / ("" if state else "model")
                self.train(name, self.second, COLLECTIVE, "--set=%s=%s" % (start, folder))
                self.assert_kept("day1", name, state)

    def test_a_dry_run_says_it_before_anything_starts(self):
        self.train("day1", self.first)
        start = "--set=initial_checkpoint=%s" % (self.tmp / "day1")
        dry = lambda job, *flags: self.run_program("sluice", "launch", "--job=%s" % job, "--dry_run", start, *flags)
        said = dry(self.second)
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertIn('features added: "fresh", "new"', said.stdout)
        self.assertIn("'deep/0/weight': 10 rows kept, 11 initialized, 5 dropped", said.stdout)
        self.assert_told_once(said.stdout)
        same = dry(self.first)
        self.assertNotIn("note: initial_checkpoint", same.stdout)
        narrow = dry(self.job("narrow", SECOND, "embedding_dim: 3", "day2.csv"))
        self.assertNotEqual(narrow.returncode, 0)
        self.assertIn("narrowed", narrow.stdout)
        one = SECOND.replace('name: "x"', 'name: "x" embedding_dim: 6')
        split = dry(self.job("split", one, "embedding_dim: 4", "day2.csv"))
        self.assertNotEqual(split.returncode, 0)
        for words in ('"x" in "embedding_6"', "`table`"):
            self.assertIn(words, split.stdout)


if __name__ == "__main__":
    unittest.main()
