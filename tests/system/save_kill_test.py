"""A daemon that is killed before or after any step of a save leaves whole checkpoints and models, and the job resumes."""
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from sluice_testing import ADULT, TEST_BIN, SluiceTest, free_port, wait_until

EPOCHS = 8  # long enough for several checkpoints
FLAGS = ["--a_sync=false", "--worker_num=1", "--threads=1", "--batch_size=2048",
         "--set=tables={name: 'embedding' num_shards: 1}", "--set=checkpoint.every_s=0"]
CHECKPOINTS = ["--epochs=%d" % EPOCHS, "--set=checkpoint.every_steps=5", "--set=checkpoint.keep=1"]
SHARDS = 9  # files of a checkpoint or model: one for each table

# (daemon, pattern of paths in the output folder, number of the change whose path matches). Most are of the second
# checkpoint, after which the first one is removed.
STEPS = [
    ("scheduler", "checkpoints/step-*/MANIFEST", 1),  # of the first checkpoint
    ("pserver", "checkpoints/step-*", 2),  # the folder
    ("pserver", "checkpoints/step-*/*.shard", SHARDS + 1),
    ("pserver", "checkpoints/step-*/*.shard", 2 * SHARDS),
    ("pserver", "model/*.shard", 2),
    ("scheduler", "checkpoints/step-*/job.*.textproto", 2),
    ("scheduler", "checkpoints/step-*/MANIFEST.*", 2),
    ("scheduler", "checkpoints/step-*/MANIFEST", 2),
    ("scheduler", "checkpoints/step-*/job.textproto", 2),
    ("scheduler", "checkpoints/step-*/MANIFEST.*", 3),  # the old one gets a name that does not count
    ("scheduler", "checkpoints/step-*/*.shard", 3),  # is removed
    ("scheduler", "checkpoints/step-*", 3),  # rmdir
    ("scheduler", "model/MANIFEST", 1),
    ("scheduler", "model/job.textproto", 1),
    ("scheduler", "model/*.shard", 3),  # the earlier model's
    ("scheduler", "result.json", 1),
]


class SaveKillTest(SluiceTest):
    def setUp(self):
        super().setUp()
        (self.tmp / "log").mkdir()

    def start_daemons(self, victim, pattern, when):
        """Starts a scheduler, a pserver and a worker; the victim has the failpoint. Returns them and the address."""
        scheduler = "127.0.0.1:%d" % free_port()
        shutil.rmtree(self.tmp / "log" / "state", ignore_errors=True)  # the job is resumed by another launch
        log = "--log_dir=%s" % (self.tmp / "log")
        flags = {"scheduler": ["--bind=%s" % scheduler, "--server_num=1", "--worker_num=1"],
                 "pserver": ["--rank=0", "--scheduler=%s" % scheduler, "--bind=127.0.0.1:0"]}
        daemons = {}
        for role in flags:
            environment = dict(os.environ)
            if role == victim:
                environment.update(FAILPOINT=when, FAILPOINT_PATH=pattern, FAILPOINT_LOG=str(self.tmp / "changes"))
            daemons[role] = self.start(TEST_BIN / ("failpoint_" + role), *flags[role], log, log=role + ".out",
                                       env=environment)
        daemons["worker"] = self.start("sluice-worker", "--rank=0", "--scheduler=%s" % scheduler, log, log="worker.out")
        return daemons, scheduler

    def kill_at(self, run, victim, pattern, when):
        """Runs the job in `run` until the victim has killed itself. Then kills all others."""
        daemons, scheduler = self.start_daemons(victim, str(run / pattern), when)
        submit = self.start("sluice", "submit", "--scheduler=%s" % scheduler, "--job=%s" % ADULT,
                            "--output_dir=%s" % run, *FLAGS, *CHECKPOINTS, log="submit.out")
        wait_until(lambda: daemons[victim].poll() is not None or submit.poll() == 0,
                   lambda: "the death of the %s:\n%s" % (victim, (self.tmp / "submit.out").read_text()))
        self.assertEqual(daemons[victim].poll(), -signal.SIGKILL, "the failpoint was not reached; changes:\n%s" %
                         (self.tmp / "changes").read_text())
        for process in (submit, *daemons.values()):
            process.kill()
            process.wait()

    def checkpoints(self, run):
        return sorted(int(path.parent.name[len("step-"):]) for path in (run / "checkpoints").glob("step-*/MANIFEST"))

    def assert_same_model(self, run, other):
        done = subprocess.run([TEST_BIN / "model_diff", run / "model", other / "model"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({float(line.split()[1]) for line in done.stdout.splitlines()}, {0.0}, done.stdout)

    def assert_whole(self, run, whole, earlier, committed):
        """All checkpoints are intact, and the model is the earlier job's, or this one's when it is committed."""
        if self.checkpoints(run):
            done = self.run_program("sluice", "ckpt", "verify", run)
            self.assertEqual(done.returncode, 0, done.stdout)
        if committed:
            self.assert_same_model(run, whole)
        else:
            for path in (earlier / "model").iterdir():
                self.assertEqual((run / "model" / path.name).read_bytes(), path.read_bytes(), path.name)

    def kill_and_resume(self, victim, pattern, change, when):
        """Returns the steps of the checkpoints after the kill."""
        run, whole, earlier = self.tmp / "run", self.tmp / "whole", self.tmp / "earlier"
        shutil.copytree(earlier, run)
        self.kill_at(run, victim, pattern, "%s:%d" % (when, change))
        of_commit = victim == "scheduler" and pattern.startswith(("model/", "result"))
        self.assert_whole(run, whole, earlier, committed=of_commit and (pattern, when) != ("model/MANIFEST", "before"))
        steps = self.checkpoints(run)
        again, out = self.launch(*FLAGS, "--server_num=1", *CHECKPOINTS, "--resume", name="run")
        if steps:
            self.assertIn(str(run / "checkpoints" / ("step-%d" % steps[-1])), json.dumps(again), out)
        self.assertEqual(again["model_digest"], self.digest)
        self.assert_whole(run, whole, earlier, committed=True)
        self.assertEqual(len(self.checkpoints(run)), 1)
        return steps

    def test_a_kill_at_any_step_leaves_whole_checkpoints_and_models(self):
        self.launch(*FLAGS, "--server_num=1", "--epochs=1", "--seed=2", name="earlier")
        result, _ = self.launch(*FLAGS, "--server_num=1", *CHECKPOINTS, name="whole")
        self.digest = result["model_digest"]
        for (victim, pattern, change), when in itertools.product(STEPS, ("before", "after")):
            with self.subTest("%s %s %s %d" % (victim, when, pattern, change)):
                begin = time.monotonic()
                try:
                    steps = self.kill_and_resume(victim, pattern, change, when)
                finally:
                    shutil.rmtree(self.tmp / "run")
                print("%s %s %s %d: checkpoints %s, %.1f s" % (
                    victim, when, pattern, change, steps, time.monotonic() - begin), file=sys.stderr)
                first_commit = (pattern, change, when) == ("checkpoints/step-*/MANIFEST", 1, "before")
                self.assertEqual(bool(steps), not first_commit)


if __name__ == "__main__":
    unittest.main()
