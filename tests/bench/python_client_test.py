"""./dev bench --python measures. Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, an interpreter with NumPy."""
import json
import math
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "system"))
from sluice_testing import BIN, SluiceTest  # noqa: E402

PYTHON = os.environ.get("SLUICE_TORCH_PYTHON", "")
if not PYTHON or not list((BIN.parent / "python" / "sluice").glob("_core*.so")):
    print("SKIPPED, NOT PASSED: python_client_test needs a build with SLUICE_PYTHON and SLUICE_TORCH_PYTHON", file=sys.stderr)
    sys.exit(77)


class PythonClientTest(SluiceTest):
    def test_rows_have_the_format_of_the_suite(self):
        done = self.run_program(sys.executable, "-B", ROOT / "bench" / "python_client.py", "--bin=%s" % BIN, "--quick",
                                "--python=%s" % PYTHON, "--json=%s" % (self.tmp / "rows.json"))
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = json.loads((self.tmp / "rows.json").read_text())
        self.assertEqual([row["name"] for row in rows],
                         ["python_client/pull/dim16/uniform", "python_client/pull_push/dim16/uniform",
                          "python_client/pull/dim16/uniform/prefetch", "python_client/pull_push/dim16/uniform/prefetch"])
        for row in rows:
            self.assertEqual(set(row), {"name", "value", "unit", "limit", "limit_name", "ratio", "repetitions", "min", "max"})
            for field in ("value", "limit", "ratio", "min", "max", "repetitions"):
                self.assertTrue(math.isfinite(row[field]) and row[field] > 0, row)


if __name__ == "__main__":
    unittest.main()
