"""`mypy --strict` and ruff find nothing in python/ and examples/. Needs both, and torch, whose types they follow."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

MISSING = [name for name in ("mypy", "ruff", "torch") if importlib.util.find_spec(name) is None]
if MISSING:
    print("SKIPPED, NOT PASSED: lint_test needs %s (./dev python)" % " and ".join(MISSING), file=sys.stderr)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ["SLUICE_LINT_CACHE"]).resolve()


class LintTest(unittest.TestCase):
    def check(self, *command):
        done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT / "python", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_types(self):
        self.check("mypy", "--strict", "--cache-dir=%s" % (CACHE / "mypy"), "sluice")
        # A call of a module gives Any, in torch as in its users' programs.
        self.check("mypy", "--strict", "--no-warn-return-any", "--cache-dir=%s" % (CACHE / "mypy"),
                   *sorted((ROOT / "examples").glob("*.py")))

    def test_style(self):
        self.check("ruff", "check", "--config=ruff.toml", "--cache-dir=%s" % (CACHE / "ruff"), ".", ROOT / "examples")


if __name__ == "__main__":
    unittest.main()
