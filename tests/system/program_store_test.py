"""PyTorch programs whose data, checkpoints and output are on a store, also when processes are killed.

Needs a build with SLUICE_PYTHON, SLUICE_TORCH_PYTHON, an interpreter with torch and numpy, and moto.
"""
import json
import os
import re
import unittest

import places_test
from sluice_testing import ROOT, kill_unless_over, processes_naming, torch_python

PYTHON = torch_python()
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # bits depend on the number of threads
OUT = "out=1/a b/run"
MANIFEST = r"/checkpoints/step-\d+/MANIFEST$"
SCRIPT = (ROOT / "examples" / "adult_wide_deep.py").read_text().replace(
    "pathlib.Path(__file__).resolve().parents[1]", "pathlib.Path(%r)" % str(ROOT)).replace(
    "            worker.backward(loss)\n", """\
            worker.backward(loss)
            while batch.epoch >= 2 and HOLD.exists():  # the first checkpoint comes into force meanwhile
                time.sleep(0.02)
""").replace("import re\n", "import re\nimport time\n").replace(
    '\n\nif __name__ == "__main__":', '''
    if worker.is_main:
        score(worker)


def score(worker: sluice.torch.Worker) -> None:
    """Compares the saved model with the job's result, and writes what it has found."""
    model = WideDeep()
    saved = sluice.torch.load(model, worker.model_dir)
    model.eval()
    loss, examples = 0.0, 0
    with torch.no_grad():
        for batch in saved.batches(FILES):
            loss += float(F.binary_cross_entropy_with_logits(model(batch), batch.label, reduction="sum"))
            examples += batch.examples
    same = examples == worker.result["eval"]["examples"] and abs(loss / examples - worker.result["eval"]["log_loss"]) < 1e-5
    print("scored", examples, "examples:", same, flush=True)


if __name__ == "__main__":''')


class ProgramStoreTest(places_test.StoreTest):
    def train(self, *more, data="s3://data/day=*/*.csv", output="s3://data/" + OUT, name="run", expect=0):
        script = self.tmp / "train.py"
        script.write_text(SCRIPT.replace("NUMBERS = ", "FILES = %r\nHOLD = pathlib.Path(%r)\nNUMBERS = " % (
            str(data), str(self.tmp / "hold")), 1))
        done = self.run_program(
            "sluice", "launch", "--program=%s" % script, "--python=%s" % PYTHON, "--server_num=1", "--worker_num=2",
            "--output_dir=%s" % output, "--log_dir=%s" % (self.tmp / (name + ".log")), "--set=data.train_files=%s" % data,
            "--set=data.eval_files=%s" % data, "--a_sync=false", "--set=checkpoint.every_steps=40", *more, "--", "--epochs=5",
            timeout=240, env={**os.environ, **ONE_THREAD})
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def after_first_checkpoint(self, kill):
        """Calls `kill` once, in the request that puts the first checkpoint in force, before its answer. The job waits."""
        calls = []
        (self.tmp / "hold").touch()

        def after(method, path):
            if method == "PUT" and re.search(MANIFEST, path) and not calls:
                calls.append(path)
                kill()
                (self.tmp / "hold").unlink()
        self.proxy.after = after
        return calls

    def test_a_program_with_nothing_local_equals_one_on_files_also_when_processes_die(self):
        self.train(data=self.local / "day=*" / "*.csv", output=self.tmp / "here", name="here")
        here = json.loads((self.tmp / "here" / "result.json").read_text())

        def check(out, losses):
            there = json.loads(self.text(OUT + "/result.json"))
            self.assertEqual(there["model_digest"], here["model_digest"], out)
            self.assertEqual(there["eval"], here["eval"])
            self.assertEqual(there["recovery"]["worker_losses"], losses)
            self.assertIn("scored 6000 examples: True", out)
            done = self.run_program("sluice", "ckpt", "verify", "s3://data/" + OUT)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertFalse((self.tmp / "s3:").exists())

        # A worker is killed.
        calls = self.after_first_checkpoint(lambda: kill_unless_over(
            [e.pid for e in self.endpoints() if (e.role, e.rank) == ("worker", 1)][-1]))
        out = self.train()
        self.assertTrue(calls, out)
        check(out, 1)
        # All processes are killed, and the job is resumed.
        for one in self.objects(OUT):
            self.command("delete", one)
        calls = self.after_first_checkpoint(lambda: [kill_unless_over(pid) for pid, _ in processes_naming(str(self.tmp))])
        out = self.train(expect=None)
        self.assertTrue(calls, out)
        self.await_none_left()
        self.assertNotIn(OUT + "/result.json", self.objects(OUT))
        self.proxy.after = lambda method, path: None
        check(self.train("--resume"), 0)
        self.assert_no_secret_in_files()


if __name__ == "__main__":
    places_test.skip_without_store()
    unittest.main()
