"""The wheel works in a clean environment: without our packages, PATH and LD_LIBRARY_PATH.

SLUICE_WHEEL is the wheel, SLUICE_WHEEL_PYTHON an interpreter for which it is made: `./dev wheel --test`. SLUICE_TORCH_PYTHON is an
interpreter of the same version with torch, for the test of a PyTorch program.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

WHEEL = os.environ.get("SLUICE_WHEEL", "")
PYTHON = os.environ.get("SLUICE_WHEEL_PYTHON", "python3")
TORCH_PYTHON = os.environ.get("SLUICE_TORCH_PYTHON", "")
ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 40_500_000
if not WHEEL:
    print("SKIPPED, NOT PASSED: wheel_test needs a wheel; ./dev wheel --test", file=sys.stderr)
    sys.exit(77)

SCRIPT = """
import sluice
if __name__ == "__main__":
    job = sluice.Job.from_file("sluice-demo/configs/adult_wide_deep.textproto").set("train.epochs", 2)
    with sluice.launch(job, server_num=1, worker_num=1, a_sync=False, output="out", log_dir="log", show=False) as run:
        result = run.wait(120)
    assert result.auc > 0.9, result
    model = sluice.load_model(result.model_dir)
    assert len(model.table("embedding")) > 100, model
    assert model.rows("occupation", ["Sales"]).shape[0] == 1
    assert all(model.dense[name].size for name in model.dense)
    scores = sluice.predict(result.model_dir, "sluice-demo/data/adult/adult.test.gz")
    assert len(scores) == 16281 and 0 < scores.min() < scores.max() < 1, scores
    print("AUC", result.auc)
"""


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([PYTHON, "-m", "venv", cls.folder / "env"], check=True)
        subprocess.run([cls.folder / "env/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", WHEEL],
                       check=True)

    def run_clean(self, name, *words):
        done = subprocess.run([self.folder / "env/bin" / name, *words], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300,
                              env={"HOME": str(self.folder), "PATH": "", "LD_LIBRARY_PATH": ""})
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_1_the_demo_gives_an_auc(self):
        out = self.run_clean("sluice", "demo")
        self.assertGreater(float(re.search(r"final: AUC ([0-9.]+)", out)[1]), 0.91, out)

    def test_2_a_script_launches_predicts_and_loads(self):
        (self.folder / "script.py").write_text(SCRIPT)
        self.assertIn("AUC", self.run_clean("python", "script.py"))

    def test_3_the_first_program_of_the_guide_trains(self):
        where = "import pathlib, sys, torch; print(*sys.version_info[:2], pathlib.Path(torch.__file__).parents[1])"
        found = subprocess.run([shutil.which(TORCH_PYTHON) or "false", "-c", where], capture_output=True, text=True).stdout
        package = next((self.folder / "env/lib").glob("python*/site-packages"))
        version = package.parent.name[len("python"):].split(".")
        if found.split()[:2] != version:
            print("SKIPPED, NOT PASSED: a program with the wheel needs SLUICE_TORCH_PYTHON, a Python %s with torch" % ".".join(version),
                  file=sys.stderr)
            self.skipTest("no torch")
        # As if torch were installed beside the wheel.
        link = package / "torch_test.pth"
        link.write_text(found.split(maxsplit=2)[2])
        self.addCleanup(link.unlink)
        text = (ROOT / "docs" / "python.md").read_text()
        program = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)[1]
        (self.folder / "train.py").write_text(program.replace("data/adult/", "sluice-demo/data/adult/"))
        out = self.run_clean("sluice", "launch", "--program=train.py", "--server_num=1", "--worker_num=2", "--epochs=1",
                             "--output_dir=first")
        result = json.loads((self.folder / "first" / "result.json").read_text())
        self.assertEqual((result["status"], result["eval"]["examples"]), ("done", 16281), out)
        self.assertGreater(result["eval"]["auc"], 0.85)

    def test_libraries_come_from_the_wheel_or_the_c_runtime(self):
        package = next((self.folder / "env/lib").glob("python*/site-packages"))
        programs = [*(package / "sluice/bin").iterdir(), *(package / "sluice").glob("_core*.so")]
        self.assertEqual(len(programs), 5)
        for program in programs:
            listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env={}).stdout
            self.assertNotIn("not found", listed)
            outside = {pathlib.Path(path).name for path in re.findall(r"=> (\S+)", listed) if not path.startswith(str(package))}
            # What the manylinux policy takes for granted.
            self.assertLessEqual(outside, {"libc.so.6", "libm.so.6", "libz.so.1", "libstdc++.so.6", "libgcc_s.so.1",
                                           "libpthread.so.0", "libdl.so.2", "libresolv.so.2", "librt.so.1"}, program)

    def test_types_and_licence_are_in_it_and_it_is_small(self):
        names = zipfile.ZipFile(WHEEL).namelist()
        self.assertIn("sluice/py.typed", names)
        self.assertIn("sluice/_core.pyi", names)
        self.assertTrue([name for name in names if name.endswith("licenses/LICENSE")])
        self.assertLess(os.path.getsize(WHEEL), MOST_BYTES)


if __name__ == "__main__":
    unittest.main()
