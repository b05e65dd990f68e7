"""Exports of running jobs: a base and its deltas give the model of their moment to the byte, whatever happens meanwhile."""
import os
import re
import shutil
import signal
import unittest

import save_kill_test
from sluice_testing import DisturbedLaunchTest, wait_until

FLAGS = ["--worker_num=2", "--threads=1", "--batch_size=8", "--set=data.shuffle_lanes=7", "--epochs=100000",
         "--set=checkpoint.every_s=0", "--set=export.keep=100"]
MEMBER = re.compile(r"([0-9a-f]{16})-(\d+)$")


class Member:
    """A base or delta of an export, by its manifest."""

    def __init__(self, folder):
        self.folder = folder
        text = (folder / "MANIFEST").read_text()
        facts = re.search(r"^export \{\n(.*?)^\}", text, re.M | re.S).group(1)
        number = lambda name, of: int((re.search(r"^ *%s: (\d+)" % name, of, re.M) or [0, 0])[1])
        self.instance, self.cut = MEMBER.search(folder.name).groups()
        self.cut = int(self.cut)
        self.start = number("from", facts)
        self.gone, self.rows = number("gone", facts), number("rows", facts)
        self.time = float(re.search(r"unix_time: ([\d.e+]+)", facts)[1])
        self.step = number("global_step", text)


def newest_chain(root):
    """The newest chain whose members are in force, the base first."""
    found = []
    for path in root.glob("*/MANIFEST"):
        try:
            found.append(Member(path.parent))
        except FileNotFoundError:  # it was removed meanwhile
            pass
    bases = [member for member in found if member.start == 0]
    if not bases:
        return []
    chain = [max(bases, key=lambda member: member.time)]
    while True:
        following = [m for m in found if m.instance == chain[-1].instance and m.start == chain[-1].cut]
        if not following:
            return chain
        chain.append(following[0])


class ExportTest(DisturbedLaunchTest):
    def setUp(self):
        super().setUp()
        # 300 values that come often, and 20 that come once in an epoch of 250 steps.
        rows = [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i * 7919 % 4001 % 300) if i % 200 else "rare%d" % i)
                for i in range(4000)]
        self.write_csv("train.csv", rows)
        self.job = self.small_job(train="train.csv", extra=self.extra())

    def extra(self):
        """What the job has beside the usual."""
        return ""

    def chain(self, name="run"):
        return newest_chain(self.tmp / name / "export")

    def await_chain(self, launcher, wanted, name="run"):
        """Waits for a newest chain that `wanted(chain)` takes, and returns it."""
        def look():
            self.assertIsNone(launcher.poll(), self.output(name))
            chain = self.chain(name)
            return chain if chain and wanted(chain) else None
        return wait_until(look, lambda: "a chain:\n%s" % self.output(name))

    def await_members(self, launcher, members, wanted=lambda chain: True):
        """The same for a chain with so many members. One after the other: a slow machine needs its time for each."""
        for so_far in range(1, members + 1):
            chain = self.await_chain(launcher, lambda now: wanted(now) and len(now) >= so_far)
        return chain

    def end(self, launcher, name="run"):
        """Cancels the job; its exports stay."""
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130, self.output(name))

    def delta(self, verb, *args, expect=0):
        done = self.run_program("sluice", "delta", verb, *args)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def files(self, folder):
        """The bytes of a model's shard files, by table and shard."""
        files = {}
        for path in folder.glob("*.shard"):
            name = re.sub(r"\.[0-9a-f]{16}\.shard$", "", path.name)
            self.assertNotIn(name, files)
            files[name] = path.read_bytes()
        self.assertGreater(len(files), 1)
        return files

    def start_exports(self, *flags, name="run", steps=20):
        return self.start_launch("--a_sync=false", *FLAGS, "--set=export.every_steps=%d" % steps, *flags, job=self.job, name=name)

    def model_at(self, step):
        """The files of the whole model after this step of an undisturbed sync run: those of a first base."""
        name = "at%d" % step
        launcher = self.start_exports("--server_num=1", name=name, steps=step)

        def steps():
            self.assertIsNone(launcher.poll(), self.output(name))
            return re.findall(r"step ([\d,]+) loss", self.output(name))[-1:]
        # A run that took long has made more steps than a slow machine makes within one wait.
        while not self.chain(name):
            before = steps()
            wait_until(lambda: self.chain(name) or steps() != before, lambda: "a step or a base:\n%s" % self.output(name))
        base = self.chain(name)[0]
        self.end(launcher, name=name)
        self.assertEqual(base.step, step)
        return self.files(base.folder)

    def applied(self, chain):
        """The files of the chain's model."""
        output = self.tmp / "applied"
        self.delta("apply", *(member.folder for member in chain), "--output=%s" % output, "--overwrite")
        return self.files(output)


class ExportChainTest(ExportTest):
    def extra(self):
        return 'tables { name: "embedding" expire { after_steps: 120 } }'  # 256 shards, whatever the pservers

    def test_a_chain_is_the_whole_model_also_after_a_resume_on_other_pservers(self):
        launcher = self.start_exports("--server_num=2", "--set=checkpoint.every_steps=90")
        chain = self.await_members(launcher, 11)
        self.end(launcher)
        self.assertTrue(any(member.gone > 0 for member in chain[1:]), "rows have expired")
        self.assertEqual(self.applied(chain), self.model_at(chain[-1].step))
        log = (self.tmp / "run.log" / "schedulerlog.0").read_text()
        self.assertIn("export %d is complete" % chain[-1].cut, log)
        self.assertNotIn("checkpoint %d is complete" % chain[-1].cut, log)
        self.assertIn("export %d of step %d is written" % (chain[-1].cut, chain[-1].step), (self.tmp / "run.log" / "serverlog.0").read_text())
        lines = self.delta("verify", self.tmp / "run" / "export")
        # If no pserver heard of the first base in time, the next export is a base, too.
        self.assertEqual(lines.count("ok "), len(list((self.tmp / "run" / "export").glob("*/MANIFEST"))), lines)
        launcher = self.start_exports("--server_num=3", "--resume")
        again = self.await_members(launcher, 3, lambda now: now[0].instance != chain[0].instance)
        self.end(launcher)
        self.assertGreater(again[0].step, 0)
        self.assertEqual(self.applied(again), self.model_at(again[-1].step))
        # `keep` counts bases: the chain of the first run is whole.
        lines = self.delta("verify", self.tmp / "run" / "export")
        self.assertGreaterEqual(lines.count("base "), 2, lines)
        refused = self.delta("apply", chain[0].folder, again[1].folder, "--output=%s" % (self.tmp / "no"), expect=1)
        self.assertIn("another", refused)
        self.assertIn(again[1].folder.name, refused)
        # What the first run lacks costs the second one nothing, unlike a gap of its own.
        root, newest = self.tmp / "run" / "export", self.chain()
        (chain[1].folder / "MANIFEST").unlink()
        lines = self.delta("apply", root, "--output=%s" % (self.tmp / "newest"))
        self.assertRegex(lines, r"warning: .*%s" % chain[2].folder.name)
        self.assertEqual(self.files(self.tmp / "newest"), self.applied(newest))
        for words in ([root], [newest[0].folder, newest[1].folder]):
            refused = self.delta("compact", *words, "--output=%s" % (words[-1] / "new"), expect=2)
            self.assertIn("lies in the folder that is read (%s)" % words[-1], refused)
        (newest[1].folder / "MANIFEST").unlink()
        refused = self.delta("apply", root, "--output=%s" % (self.tmp / "no"), expect=1)
        self.assertIn(newest[2].folder.name, refused)
        self.assertIn(newest[0].folder.name + " is a base", refused)
        # Another job does not add to them.
        _, out = self.launch("--a_sync=false", *FLAGS, "--set=export.every_steps=20",
                             "--set=export.dir=%s" % (self.tmp / "run" / "export"), job=self.job, name="other", expect=1)
        self.assertIn("holds exports of the job with output_dir %s" % (self.tmp / "run"), out)

    def test_a_drained_pserver_ends_a_chain_that_holds_and_another_one_begins(self):
        launcher = self.start_exports("--server_num=2", "--set=checkpoint.every_steps=90")
        before = self.await_members(launcher, 3)
        out = self.sluice("drain", self.tmp / "run.log", "1")
        job = self.status(self.tmp / "run.log")["jobs"][0]
        self.assertEqual(int(job["recovery"]["scalings"]), 1, out)
        chain = self.await_members(launcher, 3, lambda now: now[0].folder != before[0].folder)
        self.end(launcher)
        for one in (before, chain):
            self.assertEqual(self.applied(one), self.model_at(one[-1].step))

    def test_kills_within_exports_leave_chains_that_hold(self):
        launcher = self.start_exports("--server_num=2", "--set=checkpoint.every_steps=90", "--set=recovery.max_losses=100")
        self.await_members(launcher, 2)
        for role in ("scheduler", "pserver"):
            def unfinished():
                return [folder for folder in (self.tmp / "run" / "export").iterdir()
                        if MEMBER.search(folder.name) and not (folder / "MANIFEST").exists()]
            wait_until(unfinished, "an export under way")
            before = self.chain()[0]
            os.kill(self.pid_of(role, 0), signal.SIGKILL)
            chain = self.await_members(launcher, 2, lambda now: now[0].folder != before.folder)
        self.end(launcher)
        self.delta("verify", self.tmp / "run" / "export")
        self.assertEqual(self.applied(chain), self.model_at(chain[-1].step))


class LostBaseTest(ExportTest):
    """A base that something else removes while the job runs, such as a store's rule for old objects."""

    def test_one_export_fails_by_name_and_a_new_base_follows(self):
        launcher = self.start_exports("--server_num=2")
        chain = self.await_members(launcher, 3)
        base = chain[0].folder
        (base / "MANIFEST").unlink()
        shutil.rmtree(base, ignore_errors=True)  # the scheduler may remove it, too
        self.await_members(launcher, 2, lambda now: now[0].step > chain[-1].step)
        export = self.status(self.tmp / "run.log")["jobs"][0]["export"]
        self.end(launcher)
        self.assertEqual(int(export["failed"]), 1)
        self.assertRegex(" ".join(self.output().split()), r"the export of step \d+ failed: %s is gone" % re.escape(str(base)))
        newest = self.chain()
        lines = self.delta("apply", self.tmp / "run" / "export", "--output=%s" % (self.tmp / "model"))
        self.assertIn("warning: exports before the newest base cannot be used", lines)
        self.assertEqual(self.files(self.tmp / "model"), self.model_at(newest[-1].step))


class NextDayTest(ExportTest):
    """A job that continues another one, whose tables have other schedule steps than a table that joins it."""

    def test_a_table_that_joins_on_the_second_day_makes_deltas_no_larger(self):
        first = self.job.rename(self.tmp / "first.textproto")
        day = [flag for flag in FLAGS if not flag.startswith("--epochs")]
        result, _ = self.launch("--a_sync=false", *day, "--epochs=40", "--server_num=2", "--set=export.every_steps=1000", job=first,
                                name="first")
        # The second day has 20 of the 320 values, and a feature with a table of its own.
        self.write_csv("train.csv", [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i % 20), "w%d" % (i * 7919 % 40))
                                     for i in range(4000)], header="label,x,c,d")
        self.job = self.small_job(train="train.csv", extra='features { name: "d" categorical {} table: "later" }\n'
                                  'initial_checkpoint: "%s"' % (self.tmp / "first"))
        launcher = self.start_exports("--server_num=2")
        chain = self.await_members(launcher, 3)
        self.end(launcher)
        self.assertGreaterEqual(chain[0].rows, 320 + 1, "the base has all rows")
        # Until the new table is as old as the first day, all rows of that day are younger than its steps.
        self.assertLess(chain[0].step, result["global_step"])
        for delta in chain[1:]:
            self.assertLessEqual(delta.rows, 20 + 40, "only what the second day trains")
        self.assertEqual(self.applied(chain), self.model_at(chain[-1].step))
        # The chain of the first day stays as it was.
        self.delta("verify", self.tmp / "first" / "export")


class TakeoverTest(ExportTest):
    """Pservers that are lost in async. After the steps of an epoch the rate is 0, so that no value changes any more."""

    def lose_a_pserver(self, *flags, epoch, frozen):
        """Kills a pserver between exports. From step `frozen` on all rows are there and keep their values. Returns the job's
        status after the first exports that follow the kill."""
        self.write_csv("train.csv", [(int(i % 7 < 3), i % 3, "v%d" % i) for i in range(epoch)])
        launcher = self.start_launch("--a_sync=true", *FLAGS, "--batch_size=1", "--worker_num=1", "--server_num=2",
                                     "--set=export.every_steps=100", "--set=optimizers.all.schedule.polynomial.steps=%d" % epoch,
                                     *flags, job=self.job)
        before = self.await_members(launcher, 2)[0]
        os.kill(self.pid_of("pserver", 1), signal.SIGKILL)
        self.await_members(launcher, 2, lambda chain: chain[0].folder != before.folder)
        job = self.status(self.tmp / "run.log")["jobs"][0]
        for step in range(0, frozen, 1000):
            chain = self.await_chain(launcher, lambda chain: chain[-1].step > step and len(chain) > 1)
        # The base of a new scheduler has the same values.
        os.kill(self.pid_of("scheduler", 0), signal.SIGKILL)
        base = self.await_chain(launcher, lambda now: now[0].folder not in [member.folder for member in chain])[0]
        self.end(launcher)
        self.assertEqual(self.applied(chain), self.files(base.folder))
        self.assertIn("pserver 1 was lost", job["export"]["new_base"])
        return job

    def test_after_a_takeover_from_copies_a_new_base_begins_a_chain_that_holds(self):
        job = self.lose_a_pserver("--set=recovery.replicas=1", epoch=10000, frozen=11001)
        self.assertEqual(job["recovery"]["updates_lost"], 0)

    def test_after_lost_updates_a_new_base_begins_a_chain_that_holds(self):
        # Rows that went with the updates come back in the next epoch.
        self.lose_a_pserver("--set=checkpoint.every_steps=200", epoch=5000, frozen=12001)


class ExportKillTest(save_kill_test.KillTest):
    EXPORTS = ["--set=export.every_steps=4", "--set=export.keep=1"]
    # Changes of files in the folder of the exports: of the base, of the removal of the earlier chain, of the first delta.
    STEPS = [("pserver", 1), ("pserver", 4), ("pserver", save_kill_test.SHARDS + 6),
             *(("scheduler", change) for change in (1, 2, 3, 4, 5, 6, 9, 20, 40))]

    def test_a_kill_at_any_step_of_an_export_leaves_a_chain(self):
        flags = [*save_kill_test.FLAGS, *self.EXPORTS]
        launcher = self.start_launch(*flags, "--epochs=100000", "--server_num=1", *save_kill_test.CHECKPOINTS)
        wait_until(lambda: len(newest_chain(self.tmp / "run" / "export")) > 2,
                   lambda: "a chain:\n%s" % (self.tmp / "run.out").read_text())
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130)
        (self.tmp / "run").rename(self.tmp / "earlier")
        for victim, change in self.STEPS:
            with self.subTest("%s before change %d" % (victim, change)):
                shutil.rmtree(self.tmp / "run", ignore_errors=True)
                shutil.copytree(self.tmp / "earlier", self.tmp / "run")
                self.kill_and_go_on(victim, change, [*flags, "--epochs=100000"])

    def verify(self):
        done = self.run_program("sluice", "delta", "verify", self.tmp / "run" / "export")
        self.assertEqual(done.returncode, 0, done.stdout)

    def kill_and_go_on(self, victim, change, flags):
        root = self.tmp / "run" / "export"
        self.kill_at(self.tmp / "run", victim, "export/*/*", "before:%d" % change, [*flags, "--resume"])
        self.assertTrue(newest_chain(root), "there is a chain at every moment")
        self.verify()
        before = newest_chain(root)[0]
        launcher = self.start_launch(*flags, "--server_num=1", *save_kill_test.CHECKPOINTS, "--resume")

        def follows():
            # None if the chain before was removed while the folders were read.
            chain = newest_chain(root)
            return len(chain) > 1 and chain[0].instance != before.instance
        wait_until(follows, lambda: "a chain:\n%s" % (self.tmp / "run.out").read_text())
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130)
        self.verify()
        # The removal of the chain before may have been cut short by the end of the job.
        instances = {MEMBER.search(path.name)[1] for path in root.iterdir() if MEMBER.search(path.name)}
        self.assertIn(newest_chain(root)[0].instance, instances)
        self.assertLessEqual(len(instances), 2)


if __name__ == "__main__":
    unittest.main()
