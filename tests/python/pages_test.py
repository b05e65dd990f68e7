"""The Python blocks of docs/python.md run, one after another, each job on a few batches of a stand-in core (fake_core.py).

Where the module is built (SLUICE_MODULE_DIR), the job and the declaration of each are also checked as a real job's are.
"""
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

import fake_core  # noqa: E402
import sluice.torch  # noqa: E402

try:
    from sluice import _core as real_core
except ImportError:
    print("the module is not built: jobs and declarations are not checked", file=sys.stderr)
    real_core = None

PAGE = ROOT / "docs" / "python.md"
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


class PagesTest(unittest.TestCase):
    def launch(self):
        """Each block is a program of a launch of its own."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": folder.name, "SLUICE_RANK": "0"})
        patch.start()
        self.addCleanup(patch.stop)
        sluice._process.leave(again=True)

    def test_every_block_runs(self):
        blocks = list(re.finditer(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
        core = Core()
        names = {"__name__": "program"}
        torch.manual_seed(1)
        client = ClientCore()
        with mock.patch("sluice.torch._worker._load_core", lambda: core), \
                mock.patch("sluice._client._load_core", lambda: client), \
                mock.patch("sluice.torch._saved._load_core", lambda: fake_core.SavedModel(core, "output/first-1/model")):
            for block in blocks:
                self.launch()
                # So that a traceback names the line of the page.
                line = PAGE.read_text().count("\n", 0, block.start(1))
                with self.subTest("%s:%d" % (PAGE.name, line + 1)):
                    exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)
        steps = [event for event in core.events if event[0] == "step"]
        self.assertEqual({name: len(value) for name, value in names["first"].items()},
                         dict.fromkeys(("age", "user", "bought", "label"), 100))
        self.assertEqual(len(names["loader"](0, 2, 0, 3)), 17)
        self.assertGreaterEqual(core.jobs, 5)
        self.assertEqual(len(steps), BATCHES * core.jobs)
        self.assertEqual(len(core.logits_seen), core.jobs)
        self.assertEqual([event[0] for event in client.events].count("step"), BATCHES)


if __name__ == "__main__":
    unittest.main()
