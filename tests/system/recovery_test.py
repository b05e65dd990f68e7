"""Jobs continue by themselves when workers and pservers die or hang. Sync jobs end with the bits of an undisturbed run."""
import json
import os
import re
import shutil
import signal
import unittest

from sluice_testing import ADULT, BIN, TEST_BIN, DisturbedLaunchTest, kill_unless_over, wait_until

SYNC = ("--a_sync=false",)
SHAPE = ("--server_num=2", "--worker_num=2")
STEPS = 128  # an epoch of Adult with two workers of batch 128
KILLED_BEFORE = 2 * STEPS  # the progress shows a smaller step when a process is killed
EPOCHS = "--epochs=8"  # the progress lags behind the job, which must not end before the kill
FEW_EPOCHS = "--epochs=2"
ATTEMPTS = 10  # to kill a process in a short phase
EVERY_20 = ("--set", "checkpoint.every_steps=20")
LEASE = "--lease_ms=5000"  # no member of a busy machine is silent for so long
ASYNC_AND_GEO = (("async", ("--a_sync=true",)), ("geo", ("--a_sync=true", "--k_steps=20")))
OFTEN = ("--set", "checkpoint.every_s=0.5")


class RecoveryTest(DisturbedLaunchTest):
    def kill(self, role, rank, name="run"):
        pid = self.pid_of(role, rank, name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def await_successor(self, role, rank, pid, name="run"):
        wait_until(lambda: self.pid_of(role, rank, name) != pid, lambda: "a new %s:\n%s" % (role, self.output(name)))

    def undisturbed(self, *flags, epochs=EPOCHS):
        return self.launch(*SHAPE, epochs, *flags, name="undisturbed")[0]

    def assert_same(self, result, expected):
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["model_digest"], expected["model_digest"])
        for field in ("epochs", "global_step", "examples"):
            self.assertEqual(result[field], expected[field], field)
        self.assertEqual(result["eval"]["auc"], expected["eval"]["auc"])
        self.assertEqual([e["loss"] for e in result["epochs_log"]], [e["loss"] for e in expected["epochs_log"]])

    def disturbed(self, victims, *flags, name="run"):
        """Runs the job and kills each of `victims`, a list of lists of (role, rank), at a random step of its own."""
        launcher = self.start_launch(*SHAPE, EPOCHS, *SYNC, *flags, name=name)
        after = 0
        for together in victims:
            self.await_step(launcher, self.random.randrange(1, KILLED_BEFORE), name, after)
            before = len(self.output(name))
            for role, rank in together:
                self.kill(role, rank, name)
            # The job rolls back when it loses a pserver; the rank of a lost worker goes to another worker.
            rolls_back = any(role == "pserver" for role, _ in together)
            seen = self.await_output(launcher, "recovering" if rolls_back else "runs again", name, before)
            after = before + seen.end()
        return self.result(launcher, name)

    def test_sync_ends_with_the_bits_of_an_undisturbed_run(self):
        expected = self.undisturbed(*SYNC)
        for name, victims, flags in (
                ("pserver", [[("pserver", 1)]], EVERY_20),
                ("worker", [[("worker", 0)]], EVERY_20),
                ("both", [[("pserver", 0), ("worker", 1)]], EVERY_20),
                ("all", [[("pserver", 0), ("pserver", 1), ("worker", 0), ("worker", 1)]], EVERY_20),
                ("twice", [[("pserver", 0)], [("pserver", 1)]], EVERY_20),
                ("without", [[("pserver", 1)]], ()),
                ("without_worker", [[("worker", 1)]], ())):
            with self.subTest(name):
                result = self.disturbed(victims, *flags, name=name)
                self.assert_same(result, expected)
                recovery = result["recovery"]
                lost = [role for together in victims for role, _ in together]
                self.assertEqual(recovery["pserver_losses"], lost.count("pserver"))
                self.assertEqual(recovery["worker_losses"], lost.count("worker"))
                if "pserver" in lost:
                    self.assertGreaterEqual(recovery["rollbacks"], 1)
                else:
                    self.assertEqual(recovery["rollbacks"], 0)
                self.assertEqual(recovery["updates_lost"], 0)
                self.assertEqual(recovery["resumed_from"], "")
                # Either the launcher, as the parent, or the scheduler, which asks the system, sees the death first.
                self.assertRegex(recovery["last"], "killed by signal 9|process has ended")
                # One line for each death and one for each start.
                self.assertEqual(len(re.findall(r"^sluice-\w+ rank \d \(pid \d+\) was killed", self.output(name), re.M)),
                                 len(lost))
                self.assertEqual(len(re.findall(r"^sluice-\w+ rank \d runs again", self.output(name), re.M)), len(lost))
                # Nothing is left of checkpoints that were given up.
                for folder in (self.tmp / name).glob("checkpoints/step-*"):
                    self.assertTrue((folder / "MANIFEST").exists(), sorted(folder.iterdir()))

    def test_async_and_geo_continue(self):
        for name, flags in ASYNC_AND_GEO:
            expected = self.launch(*SHAPE, EPOCHS, *flags, name=name + "_undisturbed")[0]
            for role in ("pserver", "worker"):
                with self.subTest("%s %s" % (name, role)):
                    run = "%s_%s" % (name, role)
                    launcher = self.start_launch(*SHAPE, EPOCHS, *flags, *OFTEN, name=run)
                    self.await_step(launcher, self.random.randrange(1, KILLED_BEFORE), run)
                    self.kill(role, 1, run)
                    result = self.result(launcher, run)
                    self.assert_went_on(result, expected, **{role + "_losses": 1})
                    self.assertAlmostEqual(result["eval"]["auc"], expected["eval"]["auc"], delta=0.02)
                    if role == "pserver":
                        self.assertEqual(result["recovery"]["examples_replayed"], 0)

    def assert_went_on(self, result, expected, **losses):
        """The job has lost members, and has trained each example of each epoch without a rollback."""
        recovery = result["recovery"]
        self.assertEqual(result["status"], "done", result["message"])
        self.assertEqual({key: recovery[key] for key in losses}, losses)
        self.assertEqual(recovery["rollbacks"], 0, recovery["last"])
        self.assertEqual(result["examples"], expected["examples"])
        self.assertEqual([e["examples"] for e in result["epochs_log"]], [e["examples"] for e in expected["epochs_log"]])

    def await_job_of(self, launcher, condition, what, name):
        def look():
            self.assertTrue(launcher.poll() is None, self.output(name))
            return condition(self.status(self.tmp / (name + ".log"))["jobs"][0])
        wait_until(look, lambda: "%s:\n%s" % (what, self.output(name)))

    def await_takeover(self, launcher, losses, name):
        """Waits until the shards of all lost pservers are served again and have heard from every rank."""
        self.await_job_of(launcher, lambda job: int(job["recovery"].get("pserver_losses", 0)) == losses and
                          "its shards" in job["recovery"]["last"], "a takeover", name)

    def test_pservers_are_lost_one_after_another_and_then_a_worker(self):
        for name, flags in ASYNC_AND_GEO:
            with self.subTest(name):
                flags = (*SHAPE, "--epochs=16", *flags, *OFTEN)
                expected = self.launch(*flags, name=name + "_undisturbed")[0]
                launcher = self.start_launch(*flags, name=name)
                for losses, rank in enumerate((1, 0, 1), 1):
                    after = len(self.output(name))
                    self.await_step(launcher, self.random.randrange(1, STEPS) if losses == 1 else 1, name, after)
                    self.kill("pserver", rank, name)
                    self.await_takeover(launcher, losses, name)
                self.await_step(launcher, 1, name, len(self.output(name)))
                self.kill("worker", 0, name)
                result = self.result(launcher, name)
                self.assert_went_on(result, expected, pserver_losses=3, worker_losses=1)
                self.assertGreater(result["recovery"]["updates_lost"], 0)
                self.assertGreater(result["checkpoints"]["made"], 0)

    def test_both_pservers_are_lost_at_once(self):
        for name, flags in ASYNC_AND_GEO:
            with self.subTest(name):
                expected = self.launch(*SHAPE, EPOCHS, *flags, name=name + "_undisturbed")[0]
                launcher = self.start_launch(*SHAPE, EPOCHS, *flags, *OFTEN, name=name)
                self.await_step(launcher, self.random.randrange(1, KILLED_BEFORE), name)
                for rank in (0, 1):
                    self.kill("pserver", rank, name)
                self.assert_went_on(self.result(launcher, name), expected, pserver_losses=2)

    def test_a_pserver_without_shards(self):
        """A model of one shard on two pservers: checkpoints are completed, and the loss of the idle one holds nothing."""
        self.write_csv("train.csv", [(int(i % 5 < 2), "v%d" % (i * i % 331)) for i in range(2000)], header="label,c")
        job = self.tmp / "one_shard.textproto"
        job.write_text("""
name: "one_shard"
data { format: CSV train_files: "train.csv" csv { header: true } label { column: "label" } }
features { name: "c" categorical {} }
model { wide_deep { wide_numeric: false } }
tables { name: "embedding" num_shards: 1 }
optimizers { all { sgd {} learning_rate: 0.1 } }
train { batch_size: 8 seed: 3 }
""")
        for name, flags in (("sync", SYNC), *ASYNC_AND_GEO):
            with self.subTest(name):
                result, _ = self.launch(*SHAPE, "--epochs=4", *flags, "--set", "checkpoint.every_epochs=1", job=job, name=name)
                self.assertGreater(result["checkpoints"]["made"], 0)
                self.assertEqual(result["checkpoints"]["failed"], 0)
        for name, flags in ASYNC_AND_GEO:
            with self.subTest("%s, killed" % name):
                run = name + "_killed"
                launcher = self.start_launch(*SHAPE, "--epochs=100", *flags, *OFTEN, job=job, name=run)
                self.await_step(launcher, 1, run)
                self.kill("pserver", 1, run)
                result = self.result(launcher, run)
                self.assertEqual(result["status"], "done", result["message"])
                self.assertEqual(result["recovery"]["pserver_losses"], 1)
                self.assertEqual(result["recovery"]["rollbacks"], 0, result["recovery"]["last"])
                self.assertEqual(result["recovery"]["updates_lost"], 0)
                self.assertFalse([w for w in result["warnings"] if "updates_lost" in w])

    def lose_a_pserver_in(self, phase, name, *flags):
        """Kills pserver 0 in a phase at the end of a job. Returns the result of the first job that was not over by then."""
        for attempt in range(ATTEMPTS):
            run = "%s_%s_%d" % (name, phase, attempt)
            launcher = self.start_launch(*SHAPE, FEW_EPOCHS, *flags, name=run)
            wait_until(lambda: launcher.poll() is not None or "running, %s, epoch 2" % phase in self.output(run),
                       lambda: "phase %s:\n%s" % (phase, self.output(run)), pause=0.005)
            if launcher.poll() is None:
                kill_unless_over(self.pid_of("pserver", 0, run))
            result = self.result(launcher, run)
            if result["recovery"]["pserver_losses"] > 0:
                return result
        self.fail("all of %d jobs were over before the kill in phase %s" % (ATTEMPTS, phase))

    def test_a_pserver_lost_while_the_model_is_evaluated_or_saved(self):
        for name, flags in ASYNC_AND_GEO:
            for phase in ("eval", "save"):
                with self.subTest("%s %s" % (name, phase)):
                    result = self.lose_a_pserver_in(phase, name, *flags, *OFTEN)
                    self.assertEqual(result["status"], "done")
                    self.assertEqual(result["recovery"]["rollbacks"], 0)
                    self.assertGreater(result["eval"]["auc"], 0.5)

    def test_a_paused_pserver_comes_back_and_its_shards_continue(self):
        for name, flags in ASYNC_AND_GEO:
            with self.subTest(name):
                expected = self.launch(*SHAPE, EPOCHS, *flags, name=name + "_undisturbed")[0]
                launcher = self.start_launch(*SHAPE, EPOCHS, *flags, LEASE, name=name)
                self.await_step(launcher, self.random.randrange(1, KILLED_BEFORE), name)
                pid = self.pid_of("pserver", 1, name)
                os.kill(pid, signal.SIGSTOP)
                self.await_job_of(launcher, lambda job: "pserver 1 to register" in job.get("waiting_for", ""),
                                  "the loss", name)
                os.kill(pid, signal.SIGCONT)
                result = self.result(launcher, name)
                self.assert_went_on(result, expected, pserver_losses=1)
                self.assertEqual(self.pid_of("pserver", 1, name), pid)

    def test_a_paused_member_is_fenced_and_comes_back(self):
        expected = self.undisturbed(*SYNC)
        for role in ("worker", "pserver"):
            with self.subTest(role):
                launcher = self.start_launch(*SHAPE, EPOCHS, *SYNC, *EVERY_20, LEASE, name=role)
                self.await_step(launcher, self.random.randrange(1, KILLED_BEFORE), role)
                pid = self.pid_of(role, 1, role)
                os.kill(pid, signal.SIGSTOP)
                self.await_output(launcher, r"recover(ing|y): %s 1 .*no heartbeat" % role, role)
                os.kill(pid, signal.SIGCONT)
                result = self.result(launcher, role)
                self.assert_same(result, expected)
                self.assertEqual(result["recovery"][role + "_losses"], 1)
                self.assertEqual(self.pid_of(role, 1, role), pid)

    def test_a_loss_while_the_model_is_saved(self):
        expected = self.undisturbed(*SYNC, epochs=FEW_EPOCHS)
        self.assert_same(self.lose_a_pserver_in("save", "sync", *SYNC, *EVERY_20), expected)

    def test_a_worker_that_always_dies_ends_the_job(self):
        flags = (*SHAPE, "--epochs=100000", *SYNC)
        # The job has enough first ...
        launcher = self.start_launch(*flags, "--set", "recovery.max_losses=2", name="losses")
        self.await_step(launcher, 1, "losses")
        self.kill("worker", 1, "losses")
        for losses in (1, 2):
            # Only a worker that has the rank is a loss.
            self.await_output(launcher, r"(?s)(rank 1 \S+ as worker 1.*){%d}" % losses, "losses")
            self.kill("worker", 1, "losses")
        result = self.result(launcher, "losses", expect=1)
        self.assertIn("max_losses", self.output("losses").splitlines()[-1])
        self.assertEqual(result["status"], "failed")
        self.assertEqual(result["recovery"]["worker_losses"], 3)
        # ... or the launcher.
        launcher = self.start_launch(*flags, name="restarts")
        self.die_again_and_again(launcher, "restarts")
        self.assertEqual(self.exit_code(launcher), 1)
        last = self.output("restarts").splitlines()[-1]
        self.assertRegex(last, r"sluice-worker rank 1 .*killed by signal 9")
        self.assertIn("within a minute", self.output("restarts"))
        self.assertIn("workerlog.1", self.output("restarts"))
        self.assertEqual(json.loads((self.tmp / "restarts" / "result.json").read_text())["status"], "failed")

    def die_again_and_again(self, launcher, name):
        self.await_step(launcher, 1, name)
        killed = set()

        def kill_the_newest():
            pid = self.pid_of("worker", 1, name)
            if pid not in killed:
                killed.add(pid)
                kill_unless_over(pid)
            return launcher.poll() is not None
        wait_until(kill_the_newest, lambda: "the end:\n" + self.output(name))

    def test_a_damaged_checkpoint_ends_the_job_and_is_named(self):
        launcher = self.start_launch(*SHAPE, "--epochs=100000", *SYNC, "--set", "checkpoint.every_steps=200")
        self.await_output(launcher, r"checkpoint of step \d+ is complete")
        os.kill(launcher.pid, signal.SIGSTOP)  # nobody starts the pserver again before the damage is done
        self.kill("pserver", 1)
        wait_until(lambda: self.newest_manifests(), "a checkpoint")
        for folder in (self.tmp / "run" / "checkpoints").glob("step-*"):
            for file in folder.glob("*"):
                if file.name not in ("MANIFEST", "job.textproto"):
                    self.damage(file)
        os.kill(launcher.pid, signal.SIGCONT)
        result = self.result(launcher, expect=1)
        self.assertEqual(result["status"], "failed")
        self.assertIn("checkpoints/step-", result["message"])

    def damage(self, path):
        """Unless the file is removed meanwhile, with a checkpoint that is given up or no longer kept."""
        try:
            with open(path, "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size > 100:
                    file.seek(size // 2)
                    file.write(b"damage!!")
        except FileNotFoundError:
            pass

    def newest_manifests(self):
        return sorted((self.tmp / "run" / "checkpoints").glob("step-*/MANIFEST"))

    def test_a_worker_that_exits_well_without_having_left_is_started_again(self):
        programs, log_dir, mark = self.tmp / "bin", self.tmp / "log", self.tmp / "exits"
        programs.mkdir()
        shutil.copy(BIN / "sluice", programs)  # it looks for the others in its own folder
        for name in ("sluice-scheduler", "sluice-pserver"):
            (programs / name).symlink_to(BIN / name)
        # The worker of the tests has neither --threads nor --device.
        worker = programs / "sluice-worker"
        worker.write_text('#!/bin/sh\nfor flag; do\n  shift\n  case $flag in --threads=*|--device=*) ;; *) set -- "$@" "$flag" ;; esac\ndone\n'
                          'exec %s "$@"\n' % (TEST_BIN / "failpoint_worker"))
        worker.chmod(0o755)
        mark.touch()
        done = self.run_program(programs / "sluice", "up", "--log_dir=%s" % log_dir, "--server_num=1", "--worker_num=1",
                                env=dict(os.environ, FAILPOINT="exit", FAILPOINT_WHILE=str(mark), FAILPOINT_PATH=str(self.tmp / "run" / "model" / "*")))
        self.assertEqual(done.returncode, 0, done.stdout)
        try:
            out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1", "--epochs=1",
                              "--output_dir=%s" % (self.tmp / "run"))
        finally:
            self.sluice("down", log_dir)
        self.assertFalse(mark.exists(), out)
        self.assertEqual(json.loads((self.tmp / "run" / "result.json").read_text())["recovery"]["worker_losses"], 1, out)
        self.assertRegex((log_dir / "supervisorlog.0").read_text(), r"sluice-worker rank 0 \(pid \d+\) exited with code 0; it is started")

    def test_a_lasting_cluster_starts_its_dead_again(self):
        log_dir = self.up(*SHAPE, name="run.log")
        flags = ("--job=%s" % ADULT, EPOCHS, *SYNC, *EVERY_20)
        expected = self.undisturbed(*SYNC)
        job = self.start("sluice", "submit", "--log_dir=%s" % log_dir, "--output_dir=%s" % (self.tmp / "run"), *flags,
                         log="run.out")
        self.await_step(job, self.random.randrange(1, KILLED_BEFORE))
        killed = {(role, 1): self.kill(role, 1) for role in ("pserver", "worker")}
        self.assert_same(self.result(job), expected)
        for (role, rank), pid in killed.items():
            self.await_successor(role, rank, pid)
        log = (log_dir / "supervisorlog.0").read_text()
        for (role, rank), pid in killed.items():
            self.assertRegex(log, r"sluice-%s rank %d \(pid %d\) was killed" % (role, rank, pid))
        # The restarted ones stay, run the next job, and end with the cluster.
        self.sluice("submit", log_dir, *flags, "--output_dir=%s" % (self.tmp / "next"))
        self.assert_same(json.loads((self.tmp / "next" / "result.json").read_text()), expected)
        self.assertIn("is down", self.sluice("down", log_dir))
        self.await_none_left()

    def test_down_ends_a_cluster_whose_scheduler_hangs(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", name="run.log")
        os.kill(self.pid_of("scheduler", 0), signal.SIGSTOP)
        self.run_program("sluice", "down", "--log_dir=%s" % log_dir)
        self.await_none_left()

    def test_a_cluster_without_its_supervisor_keeps_running(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", name="run.log")
        os.kill(self.pid_of("supervisor", 0), signal.SIGKILL)
        self.sluice("submit", log_dir, "--job=%s" % ADULT, "--epochs=1", "--worker_num=1",
                    "--output_dir=%s" % (self.tmp / "run"))
        self.assertIn("is down", self.sluice("down", log_dir))
        self.await_none_left()

    def test_cancel_while_the_job_waits(self):
        launcher = self.start_launch(*SHAPE, "--epochs=100000", *SYNC, LEASE)
        self.await_step(launcher, 1)
        pid = self.pid_of("pserver", 1)
        os.kill(pid, signal.SIGSTOP)
        self.await_output(launcher, "recovering: pserver 1")
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130, self.output())
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["status"], "cancelled")
        self.await_none_left()

    def test_a_replacement_that_does_not_come_ends_the_job(self):
        launcher = self.start_launch(*SHAPE, "--epochs=100000", *SYNC, LEASE, "--set", "recovery.wait_s=1")
        self.await_step(launcher, 1)
        os.kill(self.pid_of("worker", 0), signal.SIGSTOP)
        result = self.result(launcher, expect=1)
        self.assertEqual(result["status"], "failed")
        self.assertIn("recovery.wait_s", result["message"])


if __name__ == "__main__":
    unittest.main()
