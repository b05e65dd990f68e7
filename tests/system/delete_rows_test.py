"""Rows counted and deleted while a job trains: gone from the next checkpoint and delta, and from all that continues."""
import json
import os
import re
import signal
import unittest

import export_test
from sluice_testing import kill_unless_over, processes_naming, wait_until

# Day 2, whose training the tests disturb, has rows of day 1 that its data does not train.
OLD = ["old%d" % i for i in range(40)]
BOTH = ["both%d" % i for i in range(40)]
GONE_OLD, GONE_BOTH = OLD[:10], BOTH[:5]
TWO_EPOCHS = 200  # steps; in between, each value of day 2 is trained
FLAGS = ["--worker_num=2", "--threads=1", "--batch_size=8", "--set=data.shuffle_lanes=7", "--set=checkpoint.every_s=0",
         "--set=checkpoint.keep=1000"]


class DeleteRowsTest(export_test.ExportTest):
    def write_day(self, day, values):
        rows = [(int(i * 7 % 4 < 3), i % 3, values[i * 7919 % len(values)]) for i in range(len(values) * 20)]
        self.write_csv("day%d.csv" % day, rows)
        return self.small_job(train="day%d.csv" % day).rename(self.tmp / ("day%d.textproto" % day))

    def begin(self, mode, *flags):
        """Starts the job of day 2, which trains until it is ended."""
        first = self.write_day(1, OLD + BOTH)
        self.job = self.write_day(2, BOTH + ["new%d" % i for i in range(40)])
        self.launch(mode, *FLAGS, "--epochs=1", "--server_num=2", job=first, name="first")
        self.assertEqual(self.found(self.tmp / "first" / "model", GONE_OLD + GONE_BOTH), 15)
        self.flags = [mode, *FLAGS, "--epochs=100000", "--server_num=2", *flags,
                      "--set=initial_checkpoint=%s" % (self.tmp / "first")]
        launcher = self.start_launch(*self.flags, job=self.job)
        self.await_step(launcher, 1)
        return launcher

    def key_flags(self, values):
        path = self.tmp / "keys.txt"
        path.write_text("".join("%s\n" % value for value in values))
        return ["--feature=c", "--keys=%s" % path]

    def found(self, folder, values):
        """How many of the values have a row in the model or checkpoint."""
        done = self.run_program("sluice", "table", "delete", folder, *self.key_flags(values), "--dry_run")
        self.assertEqual(done.returncode, 0, done.stdout)
        return int(re.search(r"^(\d+) of %d keys found" % len(values), done.stdout)[1])

    def delete_command(self, values):
        return ["table", "delete", "--job=small-1", "--log_dir=%s" % (self.tmp / "run.log"), *self.key_flags(values)]

    def checkpoint_of(self, out):
        return re.search(r"without\s+them:\s+step\s+\d+,\s+(\S+)", out)[1]

    def delete(self, values, rows):
        """Deletes the values' rows from the running job; returns the first checkpoint without them."""
        done = self.run_program("sluice", *self.delete_command(values))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("%d rows of %d keys deleted from table embedding of job small-1" % (rows, len(values)),
                      " ".join(done.stdout.split()))
        return self.checkpoint_of(done.stdout)

    def make_checkpoint(self):
        out = self.sluice("checkpoint", self.tmp / "run.log", "small-1")
        return re.search(r"checkpoint of step \d+: (\S+)", out)[1]

    def assert_gone_but_trained_again(self, folder):
        self.assertEqual(self.found(folder, GONE_OLD), 0, folder)
        self.assertEqual(self.found(folder, GONE_BOTH), len(GONE_BOTH), folder)
        self.assertEqual(self.found(folder, OLD), len(OLD) - len(GONE_OLD), folder)

    def await_recovery(self, count, step):
        """Waits until the job has this count (see Recovery) and has trained up to this step and beyond."""
        log_dir = self.tmp / "run.log"
        job = self.await_job(log_dir, "small-1", lambda job: int(job["recovery"][count]) > 0 and job["state"] == "running",
                             count)
        steps = max(step, int(job["global_step"]))
        return self.await_job(log_dir, "small-1", lambda job: int(job["global_step"]) > steps, "it trains on")


class StatsOfRunningJobTest(DeleteRowsTest):
    def test_stats_are_those_of_a_checkpoint_that_the_job_makes_now(self):
        launcher = self.begin("--a_sync=true")
        job = ["--job=small-1", "--log_dir=%s" % (self.tmp / "run.log")]
        done = self.run_program("sluice", "table", "stats", *job, "--json")
        self.assertEqual(done.returncode, 0, done.stdout)
        stats = json.loads(done.stdout[done.stdout.index("{"):])
        folder = self.tmp / "run" / "checkpoints" / ("step-%d" % stats["global_step"])
        self.assertEqual((stats["folder"], stats["checkpoint"]), (str(folder), True))
        (table,) = stats["tables"]
        self.assertGreaterEqual(table["rows"], len(OLD + BOTH))
        self.assertEqual(sum(bucket["rows"] for bucket in table["count"]), table["rows"])
        self.assertEqual(json.loads(self.run_program("sluice", "table", "stats", folder, "--json").stdout), stats)
        self.await_job(self.tmp / "run.log", "small-1", lambda job: int(job["global_step"]) > stats["global_step"], "it trains on")
        done = self.run_program("sluice", "table", "stats", *job)
        again = done.stdout
        self.assertEqual(done.returncode, 0, again)
        step = int(re.search(r"job small-1 at step (\d+), from %s" % (folder.parent / "step-"), again)[1])
        self.assertGreater(step, stats["global_step"])
        self.assertIn("updates of a row", again)
        # Before a checkpoint is made for it.
        out = self.sluice("table", self.tmp / "run.log", "stats", "--job=small-1", "--table=embeding", expect=2)
        self.assertIn("job small-1 has no sparse table 'embeding'; did you mean 'embedding'?", " ".join(out.split()))
        for refused, words in ((["stats", "--job=no-job"], "no job"), (["stats", folder, "--job=small-1"], "a folder"),
                               (["shrink", "--job=small-1", "--min_count=2"], "expire")):
            out = self.sluice("table", self.tmp / "run.log", *refused, expect=2)
            self.assertIn(words, " ".join(out.split()))
        self.end(launcher)


class DeleteInSyncTest(DeleteRowsTest):
    def test_rows_are_gone_from_checkpoints_and_deltas_and_stay_gone(self):
        # After day 1 with its 100 steps, and 200 more, the rate is 0 and no value changes any more.
        launcher = self.begin("--a_sync=false", "--set=export.every_steps=20", "--set=export.keep=100",
                              "--set=optimizers.all.schedule.polynomial.steps=300")
        before = self.await_members(launcher, 2)
        self.applied(before)
        self.assertEqual(self.found(self.tmp / "applied", GONE_OLD), len(GONE_OLD))
        for refused, flags in (("no job", ["--job=no-job"]), ("sparse table", ["--job=small-1", "--table=x"]),
                               ("a folder", [self.tmp / "run", "--job=small-1"]), ("--output", ["--job=small-1", "--output=x"])):
            keys = self.key_flags(OLD)[1 if refused == "sparse table" else 0:]
            if refused == "sparse table":
                (self.tmp / "keys.txt").write_text("17\n")
            out = self.sluice("table", self.tmp / "run.log", "delete", *flags, *keys, expect=2)
            self.assertIn(refused, " ".join(out.split()))
        folder = self.delete(GONE_OLD + GONE_BOTH + ["never"], rows=15)
        self.assertEqual(self.found(folder, GONE_OLD + GONE_BOTH), 0)
        self.assertEqual(self.found(folder, OLD), len(OLD) - len(GONE_OLD))
        step = int(re.search(r"step-(\d+)$", folder)[1])

        chain = self.await_chain(launcher, lambda now: now[0].folder == before[0].folder and
                                 now[-1].step > max(step, 200) + TWO_EPOCHS)
        self.assertTrue(any(member.gone >= len(GONE_OLD) for member in chain[1:] if member.step >= step))
        applied = self.applied(chain)
        self.assert_gone_but_trained_again(self.tmp / "applied")

        # The scheduler that made the checkpoint is gone, and a lost pserver sends the job back to it.
        os.kill(self.pid_of("scheduler", 0), signal.SIGKILL)
        self.await_recovery("scheduler_restarts", step)
        base = self.await_chain(launcher, lambda now: now[0].folder not in [member.folder for member in chain])[0]
        self.assertEqual(applied, self.files(base.folder))
        os.kill(self.pid_of("pserver", 1), signal.SIGKILL)
        self.await_recovery("rollbacks", step + TWO_EPOCHS)
        self.assert_gone_but_trained_again(self.make_checkpoint())
        self.end(launcher)
        # The run that went back has chains of its own.
        earlier = {export_test.MEMBER.search(path.name)[1] for path in (self.tmp / "run" / "export").iterdir()
                   if export_test.MEMBER.search(path.name)}
        launcher = self.start_launch(*self.flags, "--resume", job=self.job)
        again = self.await_chain(launcher, lambda now: now[0].instance not in earlier)
        self.assert_gone_but_trained_again(again[0].folder)
        self.end(launcher)

    def begin_to_delete(self):
        """Gives the command while pserver 1 stands still, so that no checkpoint without the rows can begin."""
        os.kill(self.pid_of("pserver", 1), signal.SIGSTOP)
        command = self.start("sluice", *self.delete_command(GONE_OLD + GONE_BOTH), log="delete.out")
        wait_until(lambda: "go with the next checkpoint" in self.output("delete"), lambda: self.output("delete"))
        return command

    def end_of_deletion(self, command):
        """The command has come to its end; returns what it has printed."""
        self.assertEqual(self.exit_code(command, 180), 0, self.output("delete"))
        folder = self.checkpoint_of(self.output("delete"))
        self.assertEqual(self.found(folder, GONE_OLD + GONE_BOTH), 0)
        self.assertEqual(self.found(folder, OLD), len(OLD) - len(GONE_OLD))
        return " ".join(self.output("delete").split())

    def test_a_pserver_that_is_killed_before_it_has_the_keys(self):
        launcher = self.begin("--a_sync=false")
        command = self.begin_to_delete()
        os.kill(self.pid_of("pserver", 1), signal.SIGKILL)
        self.end_of_deletion(command)
        job = self.job_status(self.tmp / "run.log", "small-1")
        self.assertEqual(int(job["recovery"]["pserver_losses"]), 1)
        self.end(launcher)

    def test_a_scheduler_that_is_killed_while_the_command_waits(self):
        launcher = self.begin("--a_sync=false")
        command = self.begin_to_delete()
        stopped = self.pid_of("pserver", 1)
        os.kill(self.pid_of("scheduler", 0), signal.SIGKILL)
        os.kill(stopped, signal.SIGCONT)
        out = self.end_of_deletion(command)
        self.assertIn("the scheduler does not answer", out)
        self.assertIn("15 rows of 15 keys deleted", out)
        self.assertIn("asked again", out)
        job = self.job_status(self.tmp / "run.log", "small-1")
        self.assertEqual(int(job["recovery"]["scheduler_restarts"]), 1)

        # It does not come back, and another one at its address knows nothing of the job.
        command = self.begin_to_delete()
        address = [e.address for e in self.endpoints() if e.role == "scheduler"][-1]
        launcher.kill()  # first: it would start the others again
        launcher.wait()

        def others():
            return [pid for pid, _ in processes_naming(str(self.tmp)) if pid != command.pid]
        for pid in others():
            kill_unless_over(pid)
        wait_until(lambda: not others(), others)
        self.start("sluice-scheduler", "--bind=" + address, "--server_num=1", "--worker_num=1",
                   "--log_dir=%s" % (self.tmp / "other.log"))
        self.assertNotEqual(self.exit_code(command, 180), 0)
        out = " ".join(self.output("delete").split())
        self.assertIn("no job small-1", out)
        self.assertIn("whether the rows are gone is not known", out)


class DeleteInAsyncTest(DeleteRowsTest):
    def copies_are_complete(self, after=0):
        """Whether there are complete copies of both pservers, begun after this generation of the route."""
        members = self.status(self.tmp / "run.log")["members"]
        return {0, 1} == {int(copies.get("pserver", 0)) for member in members if member.get("alive")
                          for job in member.get("hosted", []) for copies in job.get("copies", [])
                          if copies.get("complete") and int(copies.get("generation", 0)) > after}

    def test_copies_lose_the_rows_before_the_command_returns(self):
        launcher = self.begin("--a_sync=true", "--set=recovery.replicas=1")
        wait_until(self.copies_are_complete, lambda: "complete copies:\n%s" % self.output())
        folder = self.delete(GONE_OLD, rows=len(GONE_OLD))
        self.assertEqual(self.found(folder, GONE_OLD), 0)
        # Both pservers in turn, so that every shard goes on from a copy.
        for lost, victim in ((1, 0), (2, 1)):
            generation = int(self.job_status(self.tmp / "run.log", "small-1")["route"]["generation"])
            os.kill(self.pid_of("pserver", victim), signal.SIGKILL)
            job = self.await_job(self.tmp / "run.log", "small-1", lambda job: int(job["recovery"]["pserver_losses"]) == lost
                                 and self.copies_are_complete(after=generation), "pserver %d is replaced" % victim)
        self.assertEqual(int(job["recovery"]["updates_lost"]), 0)
        self.assertEqual(int(job["recovery"]["rollbacks"]), 0)
        checkpoint = self.make_checkpoint()
        self.assertEqual(self.found(checkpoint, GONE_OLD), 0)
        self.assertEqual(self.found(checkpoint, OLD), len(OLD) - len(GONE_OLD))
        self.end(launcher)


if __name__ == "__main__":
    unittest.main()
