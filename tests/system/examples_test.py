"""The PyTorch programs in examples/, and the first one of docs/python.md, train as they say. Needs what program_test needs."""
import json
import os
import pathlib
import re
import unittest

from sluice_testing import ADULT_TRAIN_EXAMPLES, BIN, ROOT, SluiceTest, torch_python

PYTHON = torch_python()

EXAMPLES = ROOT / "examples"


class ExamplesTest(SluiceTest):
    def check(self, file, examples, auc, *arguments, epochs=1):
        done = self.run_program("sluice", "launch", "--program=%s" % file, "--python=%s" % PYTHON, "--server_num=1",
                                "--worker_num=1", "--epochs=%d" % epochs, "--output_dir=%s" % (self.tmp / "run"),
                                "--log_dir=%s" % (self.tmp / "log"), *(["--", *arguments] if arguments else []),
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
