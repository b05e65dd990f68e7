"""sluice.import_table and `python -m sluice.table`, on a stand-in for the program `sluice`."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
try:
    import numpy
    import torch
except ImportError:
    print("SKIPPED, NOT PASSED: needs torch and numpy (./dev python)", file=sys.stderr)
    sys.exit(77)

import sluice  # noqa: E402
from sluice import _programs, table  # noqa: E402

# Keeps its arguments and the file that it is given.
STAND_IN = """#!%s
import json, shutil, sys
json.dump(sys.argv[1:], open(%r + "/arguments", "w"))
if sys.argv[3].endswith(".npy"):
    shutil.copy(sys.argv[3], %r + "/weights.npy")
%s
"""


class ImportTableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = mock.patch.object(_programs, "_FOLDERS", (self.folder,))
        patch.start()
        self.addCleanup(patch.stop)
        self.stand_in("print('table embedding: 3 rows')")
        self.rows = numpy.arange(12, dtype="f4").reshape(3, 4)

    def stand_in(self, does):
        program = self.folder / "sluice"
        program.write_text(STAND_IN % (sys.executable, str(self.folder), str(self.folder), does))
        program.chmod(0o755)

    def arguments(self):
        return json.loads((self.folder / "arguments").read_text())

    def imported(self, source, **options):
        """What the command got as the weights."""
        report = sluice.import_table(source, self.folder / "model", job="job.textproto", **options)
        self.assertEqual(report, "table embedding: 3 rows\n")
        self.assertFalse(os.path.exists(self.arguments()[2]), "the temporary file is left")
        return numpy.load(self.folder / "weights.npy")

    def test_arrays_and_tensors_become_a_file_for_the_command(self):
        for source in (self.rows, torch.from_numpy(self.rows), numpy.asfortranarray(self.rows), self.rows.astype(">f4"),
                       torch.nn.Parameter(torch.from_numpy(self.rows)), torch.from_numpy(self.rows).bfloat16()):
            weights = self.imported(source, feature="item", overwrite=True)
            self.assertEqual(weights.dtype, "<f4")
            numpy.testing.assert_array_equal(weights, self.rows)
        self.assertEqual(self.arguments()[:2] + self.arguments()[3:],
                         ["table", "import", "--job=job.textproto", "--feature=item", "--overwrite=true",
                          "--output=%s" % (self.folder / "model")])

    def test_a_state_dict_gives_the_named_matrix(self):
        module = torch.nn.ModuleDict({"item": torch.nn.Embedding(3, 4), "user": torch.nn.Embedding(5, 4)})
        wanted = module["item"].weight.detach().numpy()
        numpy.testing.assert_array_equal(self.imported(module.state_dict(), name="item.weight"), wanted)
        for saved in (module.state_dict(), {"epoch": 3, "state_dict": module.state_dict()}):
            torch.save(saved, self.folder / "weights.pt")
            numpy.testing.assert_array_equal(self.imported(self.folder / "weights.pt", name="item.weight"), wanted)
        with self.assertRaisesRegex(sluice.UsageError, "item.weight, user.weight"):
            self.imported(module.state_dict())
        with self.assertRaisesRegex(sluice.UsageError, "there is no 'items'"):
            self.imported(self.folder / "weights.pt", name="items")

    def test_safetensors_are_read(self):
        path = self.folder / "weights.safetensors"

        def write(kind, values, shape=(3, 4)):
            bias = b"\0" * 16
            header = json.dumps({"__metadata__": {"format": "pt"},
                                 "bias": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
                                 "item": {"dtype": kind, "shape": list(shape), "data_offsets": [16, 16 + len(values)]}}).encode()
            path.write_bytes(len(header).to_bytes(8, "little") + header + bias + values)

        halves = torch.from_numpy(self.rows).bfloat16().view(torch.int16).numpy().tobytes()
        for kind, values in (("F32", self.rows.tobytes()), ("F16", self.rows.astype("f2").tobytes()), ("BF16", halves)):
            write(kind, values)
            numpy.testing.assert_array_equal(self.imported(path), self.rows)
        write("F32", self.rows.tobytes(), shape=(4, 4))
        with self.assertRaisesRegex(sluice.UsageError, "is damaged"):
            self.imported(path)
        for text in (b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{]"):
            path.write_bytes(text)
            with self.assertRaisesRegex(sluice.UsageError, "weights.safetensors"):
                self.imported(path)

    def test_files_of_the_command_go_to_it(self):
        sluice.import_table("part-*", "out", like="model", name="emb")
        self.assertEqual(self.arguments(), ["table", "import", "part-*", "--like=model", "--output=out", "--name=emb"])

    def test_wrong_arrays_are_refused(self):
        for wrong in (numpy.zeros(3, "f4"), numpy.zeros((3, 4), "i4"), "missing.pt"):
            with self.subTest(wrong), self.assertRaises(sluice.UsageError):
                self.imported(wrong)

    def test_errors_have_the_message_of_the_command(self):
        self.stand_in("print('sluice:', sys.argv[3], 'has 4 values a row', file=sys.stderr); sys.exit(2)")
        with self.assertRaisesRegex(sluice.UsageError, "^the array has 4 values a row"):
            sluice.import_table(self.rows, self.folder / "model", job="job.textproto")
        for code, kind in ((2, sluice.UsageError), (1, RuntimeError)):
            self.stand_in("print('sluice: key 4 occurs twice', file=sys.stderr)\nsys.exit(%d)" % code)
            with self.subTest(code), self.assertRaisesRegex(kind, "^key 4 occurs twice$"):
                self.imported(self.rows)

    def test_the_module_is_a_command(self):
        numpy.save(self.folder / "x.npy", self.rows)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(table.main([str(self.folder / "x.npy"), "--output=out", "--job=j", "--feature=item"]), 0)
        self.assertIn("3 rows", out.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(table.main(["missing.pt", "--output=out", "--job=j"]), 2)
        self.assertIn("missing.pt", errors.getvalue())


if __name__ == "__main__":
    unittest.main()
