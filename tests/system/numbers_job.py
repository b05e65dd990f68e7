"""Sync jobs over numbers that the test draws: without a sparse table, or with one for a column of keys."""
import random
import shutil

from sluice_testing import DisturbedLaunchTest, kill_unless_over

SYNC = "--a_sync=false"
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
BATCH = 256  # of all workers
EVAL_EXAMPLES = 2048

# Without dropout, and with a rule that has state.
_JOB = """
name: "numbers"
data {
  format: CSV
  train_files: "%(folder)s/train.csv"
  eval_files: "%(folder)s/eval.csv"
  csv { header: true }
  label { column: "label" }
}
features { name: "a" numeric {} }
features { name: "b" numeric {} }
features { name: "c" numeric { log: true } }
features { name: "d" numeric {} }
%(more)s
model { wide_deep { hidden_units: 16 hidden_units: 8 %(dim)s } }
optimizers { all { adam {} learning_rate: 0.01 } }
train { seed: 7 }
"""


class NumbersJobTest(DisturbedLaunchTest):
    """`numbers` and `keys` are the job files; the job with keys has a sparse table."""
    examples = 16384
    servers = 2  # unless a test says another number
    job = "numbers"  # or "keys", unless a test says another file

    def setUp(self):
        super().setUp()
        values = random.Random(5)
        for name, count in (("train.csv", self.examples), ("eval.csv", EVAL_EXAMPLES)):
            rows = []
            for _ in range(count):
                a, b, c, d = values.gauss(0, 1), values.gauss(0, 1), values.expovariate(0.5), values.random()
                label = int(values.random() < 1 / (1 + 2.718281828 ** -(a - 2 * b + c * d - 1)))
                rows.append((label, "%.5f" % a, "%.5f" % b, "%.5f" % c, "%.5f" % d, "k%d" % values.randrange(20)))
            self.write_csv(name, rows, header="label,a,b,c,d,e")
        self.numbers = self._write_job("numbers", "", "")
        self.keys = self._write_job("keys", 'features { name: "e" categorical {} }', "embedding_dim: 4")
        self.job_file = getattr(self, self.job)

    def _write_job(self, name, more, dim):
        path = self.tmp / (name + ".textproto")
        path.write_text(_JOB % {"folder": self.tmp, "more": more, "dim": dim})
        return path

    def flags(self, *flags, workers=2, servers=None, epochs=1, batch=None):
        """`batch`: of a worker."""
        return (SYNC, "--epochs=%d" % epochs, "--worker_num=%d" % workers, "--batch_size=%d" % (batch or BATCH // workers),
                "--server_num=%s" % (self.servers if servers is None else servers), "--threads=1", *flags)

    def train(self, name, *flags, job=None, **kwargs):
        result, out = self.launch(*self.flags(*flags, **kwargs), job=job or self.job_file, name=name)
        self.assertEqual((result["status"], result["mode"]), ("done", "sync"), out)
        return result

    def start_train(self, name, *flags, **kwargs):
        return self.start_launch(*self.flags(*flags, **kwargs), job=self.job_file, name=name)

    def train_and_kill(self, name, role, rank, steps, *flags, **kwargs):
        """Kills a member at a step in range(*steps); returns the result of the job, which still ends well."""
        for _ in range(5):  # a small job may be over before it can be killed
            for path in (self.tmp / name, self.tmp / (name + ".log")):
                shutil.rmtree(path, ignore_errors=True)
            launcher = self.start_train(name, *flags, **kwargs)
            self.await_step(launcher, self.random.randrange(*steps), name)
            if kill_unless_over(self.pid_of(role, rank, name)):
                break
        result = self.result(launcher, name)
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["recovery"]["%s_losses" % role], 1)
        return result

    def verify_newest_checkpoint(self, name):
        folder = max((self.tmp / name / "checkpoints").glob("step-*"))
        verified = self.run_program("sluice", "ckpt", "verify", str(folder))
        self.assertEqual(verified.returncode, 0, verified.stdout)

    def resume(self, name, *flags, **kwargs):
        result = self.train(name, *flags, "--resume", **kwargs)
        self.assertNotEqual(result["recovery"]["resumed_from"], "")
        return result
