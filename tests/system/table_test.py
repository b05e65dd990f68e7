"""`sluice table`: tables of saved models to files that other programs read, and files to models that jobs begin with."""
import ast
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import unittest
import zipfile

from sluice_testing import BIN, ROOT as TREE, SluiceTest, wait_until

ROWS = 600
ARROW_PYTHON = os.environ.pop("SLUICE_ARROW_PYTHON", str(TREE / "build" / "python-env" / "bin" / "python"))
# Compares what NumPy and pyarrow read, and writes the same rows as other programs do.
READERS = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
folder = sys.argv[1]
arrays, table = np.load(folder + "/rows.npz"), pq.read_table(folder + "/rows.parquet")
assert sorted(arrays.files) == sorted(table.column_names), (arrays.files, table.column_names)
assert arrays["key"].dtype == np.uint64 and table.schema.field("key").type == pa.uint64()
for name in arrays.files:
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    fixed = pa.types.is_fixed_size_list(column.type)
    values = (column.flatten() if fixed else column).to_numpy()
    assert arrays[name].tobytes() == values.tobytes(), name
    assert not fixed or arrays[name].shape == (len(table), column.type.list_size), name
rows = [table[name].to_pylist() for name in ("wide", "embedding")]
pq.write_table(pa.table({"key": table["key"].cast(pa.uint64()), "wide": pa.array(rows[0], pa.list_(pa.float64())),
                         "embedding": pa.array(rows[1], pa.large_list(pa.float32()))}), folder + "/other.parquet",
               compression="snappy", row_group_size=50)
"""
# Imports the weights of a module of PyTorch, exports the model, and compares.
STATE_DICT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, torch
import sluice
from sluice._programs import run
folder = sys.argv[2]
items = torch.nn.Embedding(300, 4)
weights = items.weight.detach().numpy()
words = ["v%d" % (7 * i % 300) for i in range(300)]
open(folder + "/words.txt", "w").write("\\n".join(words) + "\\n")
module = torch.nn.ModuleDict({"user": torch.nn.Embedding(5, 4), "item": items})
print(sluice.import_table(module.state_dict(), folder + "/model", job=folder + "/small.textproto", name="item.weight", feature="c",
                          vocabulary=folder + "/words.txt"))
run(["table", "export", folder + "/model", "--feature=c", "--vocabulary=" + folder + "/words.txt", "--output=" + folder + "/rows.npz"])
rows = np.load(folder + "/rows.npz")
there = dict(zip(map(str, rows["value"]), rows["embedding"]))
assert len(there) == len(rows["value"]) == 300, rows["value"]
assert all(there[word].tobytes() == row.tobytes() for word, row in zip(words, weights)), there
"""


def npy(descr, shape, values):
    """The bytes of a NumPy array, without NumPy."""
    header = str({"descr": descr, "fortran_order": False, "shape": shape})
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values


def array(path, name):
    """(shape as text, values) of an array of an .npz."""
    with zipfile.ZipFile(path) as file:
        raw = file.read(name + ".npy")
    length = struct.unpack("<H", raw[8:10])[0]
    return ast.literal_eval(raw[10:10 + length].decode().strip())["shape"], raw[10 + length:]


class TableTest(SluiceTest):
    def setUp(self):
        super().setUp()
        source = random.Random(5)
        self.write_csv("train.csv", [(source.randint(0, 1), source.randint(0, 9), "v%d" % source.randint(0, 200))
                                     for _ in range(ROWS)])
        self.job = self.small_job(train="train.csv")
        self.job.write_text(self.job.read_text().replace("all { sgd {} learning_rate: 0.1 }",
                                                         "all { adam {} } wide { ftrl {} }"))
        self.flags = ["--a_sync=false", "--worker_num=1", "--server_num=2", "--threads=1"]

    def table(self, *words, expect=0):
        done = self.run_program("sluice", "table", *words)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def train(self, name="run", *more):
        result, out = self.launch(*self.flags, "--epochs=1", *more, job=self.job, name=name)
        self.assertEqual(result["status"], "done", out)
        return result

    def checkpoint(self, name="run"):
        return max((self.tmp / name / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))

    def predict(self, model, name):
        done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % (self.tmp / "train.csv"),
                                "--output=%s" % (self.tmp / name))
        self.assertEqual(done.returncode, 0, done.stdout)
        return (self.tmp / name).read_bytes()

    def test_a_table_comes_back_with_the_same_bits(self):
        result = self.train()
        model, rows = self.tmp / "run" / "model", self.tmp / "rows.npz"
        for words in (["table", "export", model], ["predict", "--model=%s" % model, "--data=%s" % (self.tmp / "train.csv")]):
            done = self.run_program("sluice", *words, "--output=%s" % (model / "new.npz"))
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("lies in the folder that is read (%s)" % model, done.stdout)
        out = self.table("export", model, "--output=%s" % rows)
        self.assertIn("lies in the folder that is read (%s)" % model,
                      self.table("import", rows, "--like=%s" % model, "--output=%s" % (model / "new"), expect=2))
        shape, keys = array(rows, "key")
        self.assertIn("%d rows" % shape[0], out)
        self.assertEqual(array(rows, "embedding")[0], (shape[0], 4))
        self.assertEqual(len(set(struct.unpack("<%dQ" % shape[0], keys))), shape[0])
        out = self.table("import", rows, "--like=%s" % model, "--output=%s" % (self.tmp / "again"))
        self.assertIn(result["model_digest"], out)
        self.assertEqual(self.predict(model, "a.txt"), self.predict(self.tmp / "again", "b.txt"))
        # It is a model from which jobs begin.
        before = self.train("from_model", "--set=initial_model=%s" % model)
        after = self.train("from_import", "--set=initial_model=%s" % (self.tmp / "again"))
        self.assertEqual(after["model_digest"], before["model_digest"])

    def test_values_of_a_vocabulary_make_the_same_rows(self):
        self.train()
        model, rows, words = self.tmp / "run" / "model", self.tmp / "rows.npz", self.tmp / "words.txt"
        words.write_text("".join("v%d\n" % i for i in range(202)))
        out = self.table("export", model, "--feature=c", "--vocabulary=%s" % words, "--output=%s" % rows)
        count = array(rows, "value")[0][0]
        self.assertIn("%d value" % (202 - count), out)
        self.assertNotIn("left out", out)
        out = self.table("import", rows, "--like=%s" % model, "--output=%s" % (self.tmp / "again"))
        self.assertEqual(self.predict(model, "a.txt"), self.predict(self.tmp / "again", "b.txt"))

    def test_training_goes_on_from_an_imported_checkpoint_with_the_same_bits(self):
        self.train()
        checkpoint, rows = self.checkpoint(), self.tmp / "rows.npz"
        self.table("export", checkpoint, "--state", "--output=%s" % rows)
        self.table("import", rows, "--state", "--like=%s" % checkpoint, "--output=%s" % (self.tmp / "again"))
        done = self.run_program("sluice", "ckpt", "verify", self.tmp / "again")
        self.assertEqual(done.returncode, 0, done.stdout)
        first = self.train("a", "--set=initial_checkpoint=%s" % checkpoint)
        second = self.train("b", "--set=initial_checkpoint=%s" % (self.tmp / "again"))
        self.assertEqual(second["model_digest"], first["model_digest"])
        # Without the state the next steps are others.
        third = self.train("c", "--set=initial_model=%s" % (self.tmp / "run" / "model"))
        self.assertNotEqual(third["model_digest"], first["model_digest"])

    def test_other_programs_read_and_write_the_files(self):
        if not (BIN / "sluice-arrow.so").exists() or subprocess.run([ARROW_PYTHON, "-c", "import numpy, pyarrow.parquet"],
                                                                    stderr=subprocess.DEVNULL).returncode:
            print("SKIPPED, NOT PASSED: needs Arrow (./dev arrow), and NumPy and pyarrow in build/python-env or in "
                  "SLUICE_ARROW_PYTHON", file=sys.stderr)
            self.skipTest("no pyarrow")
        result = self.train()
        for name in ("rows.npz", "rows.parquet"):
            self.table("export", self.checkpoint(), "--state", "--output=%s" % (self.tmp / name))
        subprocess.run([ARROW_PYTHON, "-c", READERS, str(self.tmp)], check=True)
        for name in ("rows.parquet", "other.parquet"):
            out = self.table("import", self.tmp / name, "--like=%s" % self.checkpoint(), "--overwrite",
                             "--output=%s" % (self.tmp / "again"))
            self.assertIn(result["model_digest"], out)

    def test_a_state_dict_becomes_a_table_with_the_same_bits(self):
        package = BIN.parent / "python"
        if not (package / "sluice").exists() or subprocess.run([ARROW_PYTHON, "-c", "import numpy, torch"],
                                                               stderr=subprocess.DEVNULL).returncode:
            print("SKIPPED, NOT PASSED: needs a build with SLUICE_PYTHON, and torch and NumPy in build/python-env or in "
                  "SLUICE_ARROW_PYTHON", file=sys.stderr)
            self.skipTest("no torch")
        done = subprocess.run([ARROW_PYTHON, "-B", "-c", STATE_DICT, str(package), str(self.tmp)], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("300 rows", done.stdout)

    def test_a_killed_import_leaves_no_half_model(self):
        count = 300000
        keys = struct.pack("<%dQ" % count, *range(count))
        with zipfile.ZipFile(self.tmp / "rows.npz", "w") as file:
            file.writestr("key.npy", npy("<u8", (count,), keys))
            file.writestr("embedding.npy", npy("<f4", (count, 4), bytes(count * 16)))
        words = ["table", "import", str(self.tmp / "rows.npz"), "--job=%s" % self.job, "--output=%s" % (self.tmp / "model")]
        killed = 0
        for wait in range(40):
            process = self.start("sluice", *words, "--overwrite")

            def begun():
                return process.poll() is not None or len(list((self.tmp / "model").glob("*"))) > wait % 16

            wait_until(begun, "the first shards")
            process.send_signal(signal.SIGKILL)
            killed += self.exit_code(process) == -signal.SIGKILL
            if (self.tmp / "model" / "MANIFEST").exists():  # it was faster
                shutil.rmtree(self.tmp / "model")
                continue
            done = self.run_program("sluice", "table", "export", self.tmp / "model", "--output=%s" % (self.tmp / "no.npz"))
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertFalse((self.tmp / "no.npz").exists())
            if killed == 4:
                break
        self.assertGreater(killed, 0)
        self.assertEqual(list(self.tmp.glob("model/rows.*")), [])
        self.table(*words[1:], "--overwrite")
        manifest = (self.tmp / "model" / "MANIFEST").read_text(errors="replace")
        left = [path.name for path in (self.tmp / "model").glob("*.shard") if path.name not in manifest]
        self.assertEqual(left, [], "files of killed imports")

    def stats(self, folder):
        (table,) = json.loads(self.table("stats", folder, "--json"))["tables"]
        return table

    def test_a_smaller_checkpoint_takes_the_place_of_the_old_one(self):
        epochs = ["--epochs=2", "--set=checkpoint.every_epochs=1", "--set=checkpoint.keep=5"]
        whole = self.train("run", *epochs)
        steps = sorted(int(path.name[5:]) for path in (self.tmp / "run" / "checkpoints").glob("step-*"))
        first = "checkpoints/step-%d" % steps[0]
        rows = self.stats(self.tmp / "run" / first)["rows"]
        outputs = []
        for name, most in (("all", 1000000), ("half", rows // 2)):
            shutil.copytree(self.tmp / "run", self.tmp / name)
            for step in steps[1:]:
                shutil.rmtree(self.tmp / name / "checkpoints" / ("step-%d" % step))
            (self.tmp / name / "result.json").unlink()
            source = self.tmp / name / first
            out = self.table("shrink", source, "--max_rows=%d" % most, "--output=%s" % (self.tmp / "new"))
            self.assertIn("stay in", out)
            shutil.rmtree(source)
            (self.tmp / "new").rename(source)
            self.assertEqual(self.stats(source)["rows"], min(rows, most))
            self.assertEqual(self.run_program("sluice", "ckpt", "verify", source).returncode, 0)
            outputs.append(self.train(name, *epochs, "--resume")["model_digest"])
        # Where nothing went, the job goes on with the same bits; else rows begin anew.
        self.assertEqual(outputs[0], whole["model_digest"])
        self.assertNotEqual(outputs[1], whole["model_digest"])
        # Another job begins with it, too.
        self.train("next", "--set=initial_checkpoint=%s" % (self.tmp / "half" / first))

    def test_values_that_are_deleted_are_new_to_the_model(self):
        self.train()
        checkpoint, names = self.checkpoint(), self.tmp / "names.txt"
        before = self.stats(checkpoint)
        self.assertEqual(sum(bucket["rows"] for bucket in before["count"]), before["rows"])
        self.assertIn("updates of a row", self.table("stats", checkpoint))
        self.assertIn("has no counts", " ".join(self.table("stats", self.tmp / "run" / "model").split()))
        names.write_text("v1\nv2\nv3\nno such value\n")
        flags = ["--feature=c", "--keys=%s" % names, "--output=%s" % (self.tmp / "less")]
        self.assertIn("3 of 4 keys found", self.table("delete", checkpoint, *flags, "--dry_run"))
        self.assertFalse((self.tmp / "less").exists())
        self.assertIn("3 of 4 keys found", self.table("delete", checkpoint, *flags))
        after = self.stats(self.tmp / "less")
        self.assertEqual(after["rows"], before["rows"] - 3)
        self.assertEqual(after["turnover"]["deleted"], 3)
        self.assertIn("0 of 4 keys found", self.table("delete", self.tmp / "less", *flags[:2], "--dry_run"))
        # A model scores them as if it had never seen them, and others as before.
        self.table("delete", self.tmp / "run" / "model", *flags[:2], "--output=%s" % (self.tmp / "model"))
        header = (self.tmp / "train.csv").read_text().splitlines()[0]
        (self.tmp / "two.csv").write_text("%s\n0,5,v1\n0,5,v4\n" % header)
        scores = []
        for model in (self.tmp / "run" / "model", self.tmp / "model"):
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % (self.tmp / "two.csv"),
                                    "--output=%s" % (self.tmp / "two.txt"), "--overwrite")
            self.assertEqual(done.returncode, 0, done.stdout)
            scores.append((self.tmp / "two.txt").read_text().split())
        self.assertNotEqual(scores[0][0], scores[1][0])
        self.assertEqual(scores[0][1], scores[1][1])

    def test_a_killed_shrink_leaves_no_half_checkpoint(self):
        count = 200000
        (self.tmp / "rows.txt").write_text("".join("%d 0.5 1 2 3 4\n" % i for i in range(count)))
        source, small = self.tmp / "model", self.tmp / "small"
        self.table("import", self.tmp / "rows.txt", "--job=%s" % self.job, "--feature=c", "--output=%s" % source)
        before = {path.name: path.read_bytes() for path in source.iterdir()}
        words = ["table", "shrink", str(source), "--max_rows=100000", "--score=NORM", "--output=%s" % small]
        killed = 0
        for wait in range(40):
            process = self.start("sluice", *words)

            def begun():
                return process.poll() is not None or len(list(small.glob("*"))) > wait % 16

            wait_until(begun, "the first shards")
            process.send_signal(signal.SIGKILL)
            killed += self.exit_code(process) == -signal.SIGKILL
            if (small / "MANIFEST").exists():  # it was faster
                shutil.rmtree(small)
                continue
            self.table("stats", small, expect=2)
            if killed == 4:
                break
        self.assertGreater(killed, 0)
        self.assertEqual({path.name: path.read_bytes() for path in source.iterdir()}, before)
        self.table(*words[1:])
        self.assertEqual(self.stats(small)["rows"], 100000)
        self.assertEqual(sorted(path.name for path in small.iterdir()), sorted(before))
        for output in (source, small, "%s/" % source):
            self.table(*words[1:5], "--output=%s" % output, expect=2)
        self.assertEqual({path.name: path.read_bytes() for path in source.iterdir()}, before)

    def test_text_of_paddle_and_wrong_files_are_refused_by_name(self):
        (self.tmp / "part-000").write_text("11 0.5 1 2 3 4\n12 0.25 5 6 7 8\n")
        (self.tmp / "part-001").write_text("13 0.5 1 2 3 4\n")
        like = ["--job=%s" % self.job, "--feature=c"]
        out = self.table("import", "%s/part-*" % self.tmp, *like, "--output=%s" % (self.tmp / "model"))
        self.assertIn("3 rows", out)
        self.assertIn("holds a model", self.table("import", self.tmp / "part-000", *like,
                                                  "--output=%s" % (self.tmp / "model"), expect=2))
        for text, message in (("11 0.5 1 2 3\n", "bad:1"), ("11 0.5 1 2 3 4\n11 0.5 1 2 3 4\n", "bad:2"),
                              ("11 0.5 1 nan 3 4\n", "value '11'")):
            (self.tmp / "bad").write_text(text)
            self.assertIn(message, self.table("import", self.tmp / "bad", *like, "--output=%s" % (self.tmp / "none"), expect=2))
            self.assertFalse((self.tmp / "none").exists())
        for words in (["exprt"], ["export", self.tmp / "model"], ["import", self.tmp / "part-000", "--output=x"],
                      ["export", self.tmp / "model", "--output=x.npz", "--like=y"],
                      ["stats", self.tmp / "model", "--output=x"], ["shrink", self.tmp / "model", "--max_rows=5"],
                      ["shrink", self.tmp / "model", "--keys=x", "--output=y"], ["delete", self.tmp / "model", "--output=y"],
                      ["shrink", self.tmp / "model", "--max_rows=-1", "--output=y"]):
            self.table(*words, expect=2)


if __name__ == "__main__":
    unittest.main()
