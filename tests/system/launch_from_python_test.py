"""sluice.launch, sluice.predict and sluice.load_model with real processes.

Needs a build with SLUICE_PYTHON, and SLUICE_TORCH_PYTHON, the interpreter for which its module is built, with NumPy.
"""
import os
import re
import signal
import subprocess
import sys
import unittest

from sluice_testing import ADULT, ADULT_TEST_EXAMPLES, ADULT_TRAIN_EXAMPLES, BIN, PATIENCE, ROOT, SluiceTest

PYTHON = os.environ.get("SLUICE_TORCH_PYTHON", sys.executable)
if PYTHON != sys.executable:
    os.execv(PYTHON, [PYTHON, "-B", *sys.argv])
PACKAGE = BIN.parent / "python"
sys.path.insert(1, str(PACKAGE))
try:
    import numpy as np
    import sluice
    from sluice import _core  # noqa: F401
except ImportError as error:
    print("SKIPPED, NOT PASSED: launch_from_python_test needs a build with SLUICE_PYTHON, and NumPy: %s" % error, file=sys.stderr)
    sys.exit(77)

TEST_DATA = ROOT / "data" / "adult" / "adult.test.gz"
# What a test kills or interrupts: a script whose job would take an hour.
SCRIPT = """
import sys
sys.path.insert(0, %r)
import sluice
if __name__ == "__main__":
    run = sluice.launch(%r, server_num=1, worker_num=1, epochs=100000, output=sys.argv[1] + "/run", log_dir=sys.argv[1] + "/run.log",
                        show=False)
    for progress in run.progress:
        if progress.step > 20:
            print("it trains", flush=True)
            run.wait()
"""


class LaunchFromPythonTest(SluiceTest):
    def run_job(self, job=ADULT, name="run", **more):
        options = {"server_num": 1, "worker_num": 1, "show": False, **more}
        return sluice.launch(job, output=self.tmp / name, log_dir=self.tmp / (name + ".log"), **options)

    def start_script(self):
        """A script whose job trains."""
        script = self.tmp / "script.py"
        script.write_text(SCRIPT % (str(PACKAGE), str(ADULT)))
        process = subprocess.Popen([sys.executable, "-B", script, self.tmp], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, cwd=self.tmp)
        self._started.append(process)
        self.assertEqual(process.stdout.readline(), "it trains\n")
        self.assertTrue(self.endpoints())
        return process

    def test_a_job_is_launched_watched_loaded_and_used(self):
        job = sluice.Job.from_file(ADULT).set("train.epochs", 2)
        states = []
        with self.run_job(job, a_sync=False, on_progress=lambda progress: states.append(progress.state)) as run:
            result = run.wait(4 * PATIENCE)
        self.assertEqual((states[-1], result.status, len(result.epochs_log)), ("done", "done", 2))
        self.assertEqual(result.examples, 2 * ADULT_TRAIN_EXAMPLES)
        self.assertGreater(result.auc, 0.9)
        self.assertEqual(result.auc, result.raw["eval"]["auc"])
        self.assertEqual(run.progress.last.auc, result.auc)

        model = sluice.load_model(result.model_dir)
        self.assertEqual((model.digest, model.epochs), (result.raw["model_digest"], 2))
        table = model.table("embedding")
        self.assertEqual(table.values.shape, (len(table), table.dim))
        self.assertTrue(np.all(table.keys[1:] > table.keys[:-1]))
        np.testing.assert_array_equal(table.rows(table.keys[::7]), table.values[::7])
        row = model.rows("occupation", ["Sales"])
        np.testing.assert_array_equal(row[0], table[model.keys("occupation", ["Sales"])[0]])
        # A value that no example has: its row is the initial one, and the table has none.
        self.assertFalse(table.contains(model.keys("occupation", ["Astronaut"]))[0])
        self.assertEqual({name: array.shape for name, array in model.dense.items()}["deep/1/weight"][1:], (50,))
        self.assertIn("adam", model.optimizers["embedding"][0].optimizer)

        scores = sluice.predict(result.model_dir, TEST_DATA)
        self.assertEqual(scores.shape, (ADULT_TEST_EXAMPLES,))
        self.assertTrue(np.all((scores > 0) & (scores < 1)))
        self.assertIsNone(sluice.predict(result.model_dir, [TEST_DATA], output=self.tmp / "scores"))
        np.testing.assert_array_equal(np.loadtxt(self.tmp / "scores", np.float32), scores)
        with self.assertRaisesRegex(sluice.UsageError, "scores"):
            sluice.predict(result.model_dir, TEST_DATA, output=self.tmp / "scores")

    def test_a_cancelled_job_is_resumed(self):
        with self.run_job(epochs=1000) as run:
            next(progress for progress in run.progress if progress.step > 20)
            run.cancel()
            result = run.wait(4 * PATIENCE)
        self.assertEqual(result.status, "cancelled")
        epochs = run.progress.last.epoch
        again = self.run_job(epochs=epochs + 1, resume=True).wait(4 * PATIENCE)
        self.assertEqual(again.status, "done")
        self.assertIn("step-", again.raw["recovery"]["resumed_from"])

    def test_mistakes_are_raised_with_their_message(self):
        with self.assertRaisesRegex(sluice.UsageError, "epohcs"):
            sluice.Job.from_file(ADULT).set("train.epohcs", 3)
        with self.assertRaisesRegex(sluice.UsageError, "nowhere.csv"):
            self.run_job(set={"data.train_files": "nowhere.csv"}).wait(PATIENCE)
        with self.assertRaisesRegex(sluice.UsageError, "MANIFEST"):
            sluice.load_model(self.tmp)
        bad = self.tmp / "bad.csv"
        bad.write_text("1,2\n" * 3000)
        with self.assertRaisesRegex((sluice.UsageError, sluice.JobError), "bad.csv"):
            self.run_job(set={"data.train_files": str(bad)}).wait(PATIENCE)

    def test_functions_of_other_packages_are_not_called(self):
        """A package that gives the whole process another protobuf, as TensorFlow does: here, each function of it crashes."""
        module = next((PACKAGE / "sluice").glob("_core*.so"))
        listed = subprocess.run(["nm", "-D", "--undefined-only", module], check=True, capture_output=True, text=True).stdout
        names = {name for name in re.findall(r" U (\w+)", listed) if "protobuf" in name}
        self.assertGreater(len(names), 50)
        library = self.tmp / "libother.so"
        subprocess.run([os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True, text=True,
                       input="".join("void %s(void) { __builtin_trap(); }\n" % name for name in sorted(names)))
        for order in ("other(); from sluice import _core", "from sluice import _core; other()"):
            with self.subTest(order):
                subprocess.run([sys.executable, "-B", "-c", "import ctypes, sys; sys.path.insert(0, %r)\n"
                                "other = lambda: ctypes.CDLL(%r, ctypes.RTLD_GLOBAL)\n"
                                "%s\nassert _core.declare('data { train_files: \"x\" }', '', '{}')[1]"
                                % (str(PACKAGE), str(library), order)], check=True, env={**os.environ, "LD_PRELOAD": ""})

    def test_nothing_is_left_when_python_is_killed(self):
        process = self.start_script()
        process.kill()
        process.wait()
        process.stdout.close()
        self.await_none_left()
        # It was stopped as by a signal, with a last checkpoint.
        self.assertTrue(list((self.tmp / "run" / "checkpoints").glob("step-*")))

    def test_an_interrupt_cancels_the_job(self):
        process = self.start_script()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=2 * PATIENCE)
        self.assertIn("KeyboardInterrupt", out)
        self.await_none_left()
        self.assertEqual(sluice.Result.from_file(self.tmp / "run" / "result.json").status, "cancelled")


if __name__ == "__main__":
    unittest.main()
