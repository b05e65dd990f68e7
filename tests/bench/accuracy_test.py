"""./dev bench --accuracy compares. Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, with torch and numpy."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "system"))
from sluice_testing import BIN, SluiceTest, torch_python  # noqa: E402

PYTHON = torch_python()


class AccuracyTest(SluiceTest):
    def test_one_epoch_in_sync_gives_the_same_auc(self):
        done = self.run_program(sys.executable, "-B", ROOT / "bench" / "accuracy.py", "--bin=%s" % BIN, "--python=%s" % PYTHON,
                                "--quick", "--filter=^adult/sync", "--json=%s" % (self.tmp / "rows.json"))
        self.assertEqual(done.returncode, 0, done.stdout)
        row, = json.loads((self.tmp / "rows.json").read_text())
        self.assertEqual(row["name"], "accuracy/adult/sync")
        self.assertGreater(row["native"], 0.9)
        # From the same initial values; sync repeats its bits.
        self.assertLess(abs(row["difference"]), 0.001)


if __name__ == "__main__":
    unittest.main()
