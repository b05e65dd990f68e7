"""A daemon that is killed before or after any step of a save leaves whole checkpoints and models, and the job resumes. A
scheduler that is killed before or after a commit of its state continues the job when it is started again."""
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, TEST_BIN, SluiceTest, free_port, wait_until

EPOCHS = 8  # long enough for several checkpoints
GEO_EPOCHS = 40  # the worker hears of a checkpoint with its progress reports, while it keeps training
SHAPE = ["--worker_num=1", "--threads=1", "--batch_size=2048", "--set=tables={name: 'embedding' num_shards: 1}",
         "--set=checkpoint.every_s=0"]
FLAGS = ["--a_sync=false", "--epochs=%d" % EPOCHS, *SHAPE]
GEO = ["--a_sync=true", "--k_steps=5", "--epochs=%d" % GEO_EPOCHS, *SHAPE]
CHECKPOINTS = ["--set=checkpoint.every_steps=5", "--set=checkpoint.keep=1"]
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
    ("scheduler", "checkpoints/step-*/job.*.textproto", 3),  # and its job's file, too
    ("scheduler", "checkpoints/step-*/*.shard", 3),  # is removed
    ("scheduler", "checkpoints/step-*", 3),  # rmdir
    ("scheduler", "model/MANIFEST", 1),
    ("scheduler", "model/job.textproto", 1),
    ("scheduler", "model/*.shard", 3),  # the earlier model's
    ("scheduler", "result.json", 1),  # the earlier job's is marked as replaced, before the model
    ("scheduler", "result.json", 2),
]


class KillTest(SluiceTest):
    """Runs jobs on daemons of which one kills itself at a change of files."""

    def setUp(self):
        super().setUp()
        (self.tmp / "log").mkdir()

    def start_daemons(self, victim, pattern, when):
        """Starts a scheduler, a pserver and a worker; the victim has the failpoint, if `when` is not "". Returns them and
        the command line of a scheduler without it."""
        scheduler = "127.0.0.1:%d" % free_port()
        shutil.rmtree(self.tmp / "log" / "state", ignore_errors=True)  # the job is resumed by another launch
        log = "--log_dir=%s" % (self.tmp / "log")
        flags = {"scheduler": ["--bind=%s" % scheduler, "--server_num=1", "--worker_num=1"],
                 "pserver": ["--rank=0", "--scheduler=%s" % scheduler, "--bind=127.0.0.1:0"],
                 "worker": ["--rank=0", "--scheduler=%s" % scheduler]}
        (self.tmp / "changes").write_text("")
        daemons = {}
        for role in flags:
            if role == victim:
                environment = dict(os.environ, FAILPOINT=when, FAILPOINT_PATH=pattern,
                                   FAILPOINT_LOG=str(self.tmp / "changes"))
                daemons[role] = self.start(TEST_BIN / ("failpoint_" + role), *flags[role], log, log=role + ".out",
                                           env=environment)
            else:
                daemons[role] = self.start("sluice-" + role, *flags[role], log, log=role + ".out")
        return daemons, ["sluice-scheduler", *flags["scheduler"], log]

    def submit(self, run, scheduler, flags):
        address = next(flag for flag in scheduler if flag.startswith("--bind="))[len("--bind="):]
        return self.start("sluice", "submit", "--scheduler=%s" % address, "--job=%s" % ADULT, "--output_dir=%s" % run,
                          *flags, *CHECKPOINTS, log="submit.out")

    def await_death(self, victim, daemons, submit):
        wait_until(lambda: daemons[victim].poll() is not None or submit.poll() == 0,
                   lambda: "the death of the %s:\n%s" % (victim, (self.tmp / "submit.out").read_text()))
        self.assertEqual(daemons[victim].poll(), -signal.SIGKILL, "the failpoint was not reached; changes:\n%s" %
                         (self.tmp / "changes").read_text())

    @staticmethod
    def kill_all(processes):
        for process in processes:
            process.kill()
            process.wait()

    def kill_at(self, run, victim, pattern, when, flags=tuple(FLAGS)):
        """Runs the job in `run` until the victim has killed itself. Then kills all others."""
        daemons, scheduler = self.start_daemons(victim, str(run / pattern), when)
        submit = self.submit(run, scheduler, flags)
        try:
            self.await_death(victim, daemons, submit)
        finally:
            self.kill_all((submit, *daemons.values()))


class SaveKillTest(KillTest):
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
        of_commit = victim == "scheduler" and pattern.startswith(("model/", "result")) and (pattern, change) != ("result.json", 1)
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
        self.launch("--a_sync=false", *SHAPE, "--server_num=1", "--epochs=1", "--seed=2", "--set=checkpoint.at_end=false",
                    name="earlier")
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

    def test_a_kill_at_the_file_of_a_geo_rank_leaves_whole_checkpoints(self):
        run = self.tmp / "run"
        for change, when in itertools.product((1, 2), ("before", "after")):
            with self.subTest("worker %s its file %d" % (when, change)):
                try:
                    self.kill_at(run, "worker", "checkpoints/step-*/worker-0.*", "%s:%d" % (when, change), GEO)
                    self.assertEqual(len(self.checkpoints(run)), change - 1)
                    self.assertEqual(len(list(run.glob("checkpoints/step-*/worker-0.????????????????"))),
                                     change - (when == "before"))
                    if change > 1:
                        done = self.run_program("sluice", "ckpt", "verify", run)
                        self.assertEqual(done.returncode, 0, done.stdout)
                    again, _ = self.launch(*GEO, "--server_num=1", *CHECKPOINTS, "--resume", name="run")
                    self.assertEqual((again["status"], again["examples"]), ("done", GEO_EPOCHS * ADULT_TRAIN_EXAMPLES))
                    self.assertEqual(bool(again["recovery"]["resumed_from"]), change > 1)
                    self.assertEqual(len(self.checkpoints(run)), 1)
                    self.assertEqual(len(list(run.glob("checkpoints/step-*/worker-0.*"))), 1, "nothing is left over")
                    done = self.run_program("sluice", "ckpt", "verify", run)
                    self.assertEqual(done.returncode, 0, done.stdout)
                finally:
                    shutil.rmtree(run, ignore_errors=True)

    def run_with_commits(self, when):
        """Runs a sync job on a scheduler that kills itself at a commit of its state, "": never, and then is started
        again. Returns the job's result."""
        run = self.tmp / "run"
        daemons, scheduler = self.start_daemons("scheduler", "meta_store", when)
        submit = self.submit(run, scheduler, FLAGS)
        if when:
            self.await_death("scheduler", daemons, submit)
            daemons["scheduler"] = self.start(*scheduler, log="scheduler.again.out")
        self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit.out").read_text())
        self.kill_all(daemons.values())
        return json.loads((run / "result.json").read_text())

    def test_a_kill_at_any_commit_of_the_schedulers_state_loses_nothing(self):
        whole = self.run_with_commits("")
        commits = len((self.tmp / "changes").read_text().splitlines())
        print("%d commits" % commits, file=sys.stderr)
        self.assertGreater(commits, 8)
        # The first one names the cluster. The last ones depend on time.
        for change, when in itertools.product((1, 2, 3, 4, 5, 6, min(commits // 2, 10)), ("before", "after")):
            with self.subTest("%s commit %d" % (when, change)):
                shutil.rmtree(self.tmp / "run")
                result = self.run_with_commits("%s:%d" % (when, change))
                for field in ("status", "model_digest", "epochs", "global_step", "examples"):
                    self.assertEqual(result[field], whole[field], field)
                self.assertEqual(result["status"], "done")
                # A job whose members had not heard of it yet begins another attempt, which counts as a rollback.
                for field in ("worker_losses", "pserver_losses", "updates_lost"):
                    self.assertEqual(result["recovery"][field], 0, field)


if __name__ == "__main__":
    unittest.main()
