"""The Python blocks of docs/python.md and docs/jobs_from_python.md run, one after another, on stand-ins.

Jobs of docs/python.md have a few batches of a stand-in core (fake_core.py), those of docs/jobs_from_python.md a stand-in for the
program `sluice` (launch_test.py). Where the module is built (SLUICE_MODULE_DIR), jobs and declarations are also checked as
real ones are.
"""
import contextlib
import io
import os
import pathlib
import random
import re
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = pathlib.Path(os.environ.get("SLUICE_MODULE_DIR", ROOT / "python"))
sys.path[:0] = [str(MODULE if list(MODULE.glob("sluice/_core*.so")) else ROOT / "python"), str(pathlib.Path(__file__).parent)]

try:
    import torch
except ImportError:
    print("SKIPPED, NOT PASSED: pages_test needs PyTorch (./dev python)", file=sys.stderr)
    sys.exit(77)

import numpy as np  # noqa: E402

import fake_core  # noqa: E402
import sluice.torch  # noqa: E402
from launch_test import DONE, STAND_IN  # noqa: E402
from launch_test import Core as JobCore  # noqa: E402
from sluice._model import Model  # noqa: E402

try:
    from sluice import _core as real_core
except ImportError:
    print("the module is not built: jobs and declarations are not checked", file=sys.stderr)
    real_core = None

PAGE = ROOT / "docs" / "python.md"
JOBS_PAGE = ROOT / "docs" / "jobs_from_python.md"
# The program `sluice`: a launch trains at once, and a prediction gives two scores.
SLUICE = """
if arguments[0] == "predict":
    open(flags["output"], "w").write("0.25\\n0.5\\n")
    sys.exit(0)
if "job" in flags and not os.path.exists(flags["job"]):
    sys.exit(print("sluice: cannot open", flags["job"], file=sys.stderr) or 2)
""" + DONE
BATCHES = 3


class Core(fake_core.Core):
    """Features of any names, in one table; one number."""

    def __init__(self):
        super().__init__([])
        self.jobs = 0

    def declare(self, job, base_dir, program, *sources):
        features = re.findall(r'^features \{ name: "(\w+)".* categorical', job, re.M)
        self.slots = [(name, 0) for name in features]
        if real_core is not None:
            real_core.declare(job, base_dir, program, *sources)
        super().declare(job, base_dir, program, *sources)
        draw = random.Random(1)
        self.batches = [([[[draw.randrange(5)] for _ in features] for _ in range(6)], [draw.randrange(2) for _ in range(6)],
                         [draw.random() for _ in range(6)], step) for step in range(BATCHES)]
        self.batches.append((*self.batches[0], False))  # of an evaluation
        self.jobs += 1
        return job, "digest"

    def take_given(self):
        return None  # the batches are those above, also when the page has a source


class ClientCore(fake_core.ClientCore):
    """Of a client whose process takes over for the last steps."""

    def declare(self, job, base_dir, program, *sources):
        if real_core is not None:
            real_core.declare(job, base_dir, program, *sources)
        return super().declare(job, base_dir, program, *sources)

    def Worker(self, job, epoch_steps=0):
        self.coming = [("train", 0, epoch_steps - BATCHES)]
        return super().Worker(job, epoch_steps)


class Reader:
    """A saved model with one dense and one sparse table."""

    job_id, step, epochs, digest, job = "adult-1", 20, 3, "d1", ""
    keys_ = np.array([3, 5], np.uint64)
    tables = lambda self: [("deep/0/weight", False, [32, 25], []), ("embedding", True, [], [("embedding", 0, 8, "")])]
    dense = lambda self, name: np.zeros(32 * 25, np.float32)
    rows = lambda self, name: self
    table_of = lambda self, feature: "embedding"
    keys_of = lambda self, feature, values: self.keys_[: len(values)]
    find = lambda self, keys: np.zeros((len(keys), 8), np.float32)
    contains = lambda self, keys: np.isin(keys, self.keys_)


class PagesTest(unittest.TestCase):
    def run_blocks(self, page, names, before_each=lambda: None):
        for block in re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S):
            before_each()
            # So that a traceback names the line of the page.
            line = page.read_text().count("\n", 0, block.start(1))
            with self.subTest("%s:%d" % (page.name, line + 1)):
                exec(compile("\n" * line + block[1], str(page), "exec"), names)

    def launch(self):
        """Each block is a program of a launch of its own."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": folder.name, "SLUICE_RANK": "0"})
        patch.start()
        self.addCleanup(patch.stop)
        sluice._process.leave(again=True)

    def test_programs_train(self):
        core = Core()
        names = {"__name__": "program"}
        torch.manual_seed(1)
        client = ClientCore()
        with mock.patch("sluice.torch._worker._load_core", lambda: core), \
                mock.patch("sluice._client._load_core", lambda: client), \
                mock.patch("sluice.torch._saved._load_core", lambda: fake_core.SavedModel(core, "output/first-1/model")):
            self.run_blocks(PAGE, names, self.launch)
        steps = [event for event in core.events if event[0] == "step"]
        self.assertEqual({name: len(value) for name, value in names["first"].items()},
                         dict.fromkeys(("age", "user", "bought", "label"), 100))
        self.assertEqual(len(names["loader"](0, 2, 0, 3)), 17)
        self.assertGreaterEqual(core.jobs, 5)
        self.assertEqual(len(steps), BATCHES * core.jobs)
        self.assertEqual(len(core.logits_seen), core.jobs)
        self.assertEqual([event[0] for event in client.events].count("step"), BATCHES)

    def test_jobs_are_launched_and_their_models_are_used(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name, "sluice")
        program.write_text(STAND_IN % (sys.executable, folder.name + "/arguments", folder.name, folder.name, SLUICE))
        program.chmod(0o755)
        patches = [mock.patch("sluice._programs._FOLDERS", (pathlib.Path(folder.name),)),
                   mock.patch("sluice._model.load_model", lambda folder: Model(Reader()))]
        if real_core is None:
            patches.append(mock.patch("sluice._job._core", JobCore))
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)
        out = io.StringIO()
        names = {"__name__": "script"}
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(ROOT)  # the page's files are relative to it
        with contextlib.redirect_stdout(out):
            self.run_blocks(JOBS_PAGE, names)
        self.assertIn("nothing was started: cannot open no_such_job.textproto", out.getvalue())
        self.assertEqual((names["result"].status, names["result"].auc), ("done", 0.75))
        self.assertEqual(names["scores"].tolist(), [0.25, 0.5])
        self.assertEqual(names["vectors"].shape, (2, 8))
        if real_core is not None:
            self.assertIn("hidden_units: [64, 32]", str(names["small"]))


if __name__ == "__main__":
    unittest.main()
