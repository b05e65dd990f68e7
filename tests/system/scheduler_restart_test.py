"""Jobs continue by themselves when the scheduler is killed and started again, and their members keep training meanwhile. Sync jobs
end with the bits of an undisturbed run, async and Geo train each example once; no job is lost, and none runs twice."""
import json
import os
import re
import signal
import time
import unittest

from sluice_testing import (ADULT, ADULT_TRAIN_EXAMPLES, DisturbedLaunchTest, free_port, kill_unless_over,
                            processes_naming, wait_until)

STEPS = 128  # an epoch of Adult with two workers of batch 128
KILLED_BEFORE = 2 * STEPS  # the progress shows a smaller step when the scheduler is killed first
EPOCHS = 16  # the progress lags behind the job, which must not end before the last kill
SHAPE = ("--server_num=2", "--worker_num=2", "--a_sync=false", "--epochs=%d" % EPOCHS, "--set", "checkpoint.every_steps=20")


def epochs_of(events, tag):
    """The steps of the points with a tag in an event file (scheduler/files/event_file.h); for curves by epoch, below 128."""
    steps, at = set(), 0
    while at < len(events):
        data = events[at + 12:at + 12 + int.from_bytes(events[at:at + 8], "little")]
        # After wall_time come the byte 0x10 and the step.
        if bytes([len(tag)]) + tag in data:
            steps.add(data[10])
        at += 16 + len(data)
    return steps


class SchedulerRestartTest(DisturbedLaunchTest):
    # ---------------------------------------------------------------------------------- under sluice launch

    def scheduler_pid(self, name="run"):
        return self.pid_of("scheduler", 0, name)

    def kill_at_step(self, launcher, step, name, after=0):
        """Kills the scheduler, and waits until another one has the members."""
        self.await_step(launcher, step, name, after)
        pid, seen, curves = self.scheduler_pid(name), len(self.output(name)), len(self.curves(name))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.scheduler_pid(name) != pid, lambda: "a new scheduler:\n%s" % self.output(name))
        wait_until(lambda: len(self.curves(name)) > curves, lambda: "its curve:\n%s" % self.output(name))
        return seen

    def curves(self, name):
        return list((self.tmp / name).glob("events.out.tfevents.*"))

    def test_sync_ends_with_the_bits_of_an_undisturbed_run(self):
        expected, _ = self.launch(*SHAPE, name="undisturbed")
        for name, kills in (("once", 1), ("twice", 2)):
            with self.subTest(name):
                launcher = self.start_launch(*SHAPE, name=name)
                after = 0
                for _ in range(kills):
                    after = self.kill_at_step(launcher, self.random.randrange(1, KILLED_BEFORE), name, after)
                result = self.result(launcher, name)
                self.assertEqual(result["status"], "done")
                for field in ("model_digest", "epochs", "global_step", "examples"):
                    self.assertEqual(result[field], expected[field], field)
                self.assertEqual(result["eval"]["auc"], expected["eval"]["auc"])
                self.assertEqual([e["loss"] for e in result["epochs_log"]], [e["loss"] for e in expected["epochs_log"]])
                self.assertEqual(result["recovery"]["scheduler_restarts"], kills)
                self.assert_nothing_lost(result)
                self.assertEqual(len(re.findall(r"^sluice-scheduler rank 0 runs again", self.output(name), re.M)), kills)
                # The curves of all lives are one run.
                self.assertEqual(list((self.tmp / name).glob("rerun-*")), [])
                self.assertEqual(len(self.curves(name)), kills + 1)
                thinned = {curve["name"]: curve["points"] for curve in
                           map(json.loads, (self.tmp / name / "curves.jsonl").read_text().splitlines()[1:])}
                # A kill may cost points of that moment, in both.
                written = set().union(*(epochs_of(curve.read_bytes(), b"eval/auc") for curve in self.curves(name)))
                self.assertEqual([epoch for epoch, _ in thinned["eval/auc"]], sorted(written))
                self.assertEqual(max(written), EPOCHS)
                events = [event["text"] for event in result["recovery"]["events"]]
                self.assertEqual(len(events), kills, events)
                self.assertIn("scheduler was started again", events[0])  # and, unless it ended before, what came of it

    def assert_nothing_lost(self, result):
        for field in ("worker_losses", "pserver_losses", "rollbacks", "updates_lost", "examples_replayed"):
            self.assertEqual(result["recovery"][field], 0, field)

    def test_async_and_geo_train_each_example_once(self):
        for k_steps in (0, 20):
            with self.subTest(k_steps=k_steps):
                name = "k%d" % k_steps
                launcher = self.start_launch("--server_num=2", "--worker_num=2", "--a_sync=true", "--k_steps=%d" % k_steps,
                                             "--epochs=%d" % EPOCHS, "--set", "data.task_bytes=20000",
                                             "--set", "train.log_every=5", name=name)
                after = 0
                for _ in range(2):
                    after = self.kill_at_step(launcher, self.random.randrange(1, STEPS), name, after)
                result = self.result(launcher, name)
                self.assertEqual((result["status"], result["examples"]), ("done", EPOCHS * ADULT_TRAIN_EXAMPLES))
                self.assertEqual([e["examples"] for e in result["epochs_log"]], [ADULT_TRAIN_EXAMPLES] * EPOCHS)
                self.assertEqual(result["data"]["examples"], ADULT_TRAIN_EXAMPLES)
                self.assertGreater(result["eval"]["auc"], 0.88)
                self.assertEqual(result["recovery"]["scheduler_restarts"], 2)
                self.assert_nothing_lost(result)

    def test_a_worker_that_dies_with_the_scheduler_costs_a_rollback(self):
        expected, _ = self.launch(*SHAPE, name="undisturbed")
        launcher = self.start_launch(*SHAPE)
        wait_until(lambda: re.search(r"step [\d,]+ loss", self.output()), lambda: self.output())
        worker = [e.pid for e in self.endpoints() if e.role == "worker"][1]
        scheduler = self.scheduler_pid()
        os.kill(worker, signal.SIGKILL)
        os.kill(scheduler, signal.SIGKILL)
        result = self.result(launcher)
        self.assertEqual((result["status"], result["model_digest"]), ("done", expected["model_digest"]))
        self.assertEqual((result["recovery"]["scheduler_restarts"], result["recovery"]["rollbacks"]), (1, 1))

    def test_a_scheduler_that_dies_again_and_again_ends_the_launch(self):
        launcher = self.start_launch(*SHAPE, "--epochs=100000")
        wait_until(lambda: re.search(r"step [\d,]+ loss", self.output()), lambda: self.output())
        killed = set()

        def dies():
            pid = self.scheduler_pid()
            if pid not in killed:
                killed.add(pid)
                kill_unless_over(pid)
            return launcher.poll() is not None
        wait_until(dies, lambda: self.output())
        self.assertEqual(launcher.returncode, 1, self.output())
        self.assertIn("sluice-scheduler rank 0", self.output())

    def test_a_launch_begins_without_the_jobs_of_an_earlier_cluster(self):
        launcher = self.start_launch(*SHAPE, "--epochs=100000")
        wait_until(lambda: re.search(r"step [\d,]+ loss", self.output()), lambda: self.output())
        launcher.kill()  # its daemons end with it
        launcher.wait()
        self.await_none_left()
        self.assertTrue((self.tmp / "run.log" / "state").exists())
        result, out = self.launch("--server_num=1", "--worker_num=1", "--epochs=1", "--overwrite", name="run")
        self.assertEqual((result["status"], result["recovery"]["scheduler_restarts"]), ("done", 0), out)

    # -------------------------------------------------------------------------------------- under sluice up

    def test_up_starts_its_scheduler_again(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        flags = ("--job=%s" % ADULT, "--a_sync=false", "--worker_num=1", "--output_dir=%s" % (self.tmp / "run"))
        out = self.sluice("submit", log_dir, *flags, "--epochs=100000", "--detach")
        job = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.await_job(log_dir, job, lambda j: int(j["global_step"]) > 0, "it trains")
        for number in (signal.SIGKILL, signal.SIGTERM):
            pid = self.up_scheduler(log_dir)
            os.kill(pid, number)
            wait_until(lambda: self.up_scheduler(log_dir) != pid, "a new scheduler")
        seen = self.await_job(log_dir, job, lambda j: j["state"] == "running" and int(j["global_step"]) > 0, "it trains again")
        self.assertEqual(seen["recovery"]["scheduler_restarts"], 2)
        self.sluice("down", log_dir)
        self.assertEqual(processes_naming(str(log_dir)), [])
        self.assertEqual(json.loads((self.tmp / "run" / "result.json").read_text())["status"], "cancelled")

    def up_scheduler(self, log_dir):
        return int(re.findall(r"^scheduler 0 \S+ (\d+) ", (log_dir / "endpoints.log").read_text(), re.M)[-1])

    # -------------------------------------------------------------------------------------- started by hand

    def cluster(self):
        self.address = "127.0.0.1:%d" % free_port()
        self.log_dir = self.tmp / "log"
        self.log_dir.mkdir()
        self.start_scheduler()
        self.members = [self.start("sluice-" + role, "--rank=0", "--scheduler=%s" % self.address,
                                   "--log_dir=%s" % self.log_dir) for role in ("pserver", "worker")]
        wait_until(lambda: sum(m["alive"] for m in self.state()["members"]) == 2, "two members")

    def start_scheduler(self):
        self.scheduler = self.start("sluice-scheduler", "--bind=%s" % self.address, "--server_num=1", "--worker_num=1",
                                    "--log_dir=%s" % self.log_dir)

    def restart(self, number=signal.SIGKILL):
        """SIGTERM lets it write what it has decided, such as the end of a job that `status` already shows."""
        self.scheduler.send_signal(number)
        self.scheduler.wait()
        self.start_scheduler()

    def at(self, command, *args, expect=0):
        done = self.run_program("sluice", command, "--scheduler=%s" % self.address, *args)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def state(self):
        seen = self.scheduler_status(self.log_dir)
        if seen:
            return seen
        done = self.run_program("sluice", "status", "--json", "--scheduler=%s" % self.address)
        return json.loads(done.stdout) if done.returncode == 0 else {"members": [], "jobs": []}

    def submission(self, name, *flags):
        return ("submit", "--scheduler=%s" % self.address, "--job=%s" % ADULT, "--a_sync=false", "--worker_num=1",
                "--output_dir=%s" % (self.tmp / name), "--detach", *flags)

    def submit(self, name, *flags):
        done = self.run_program("sluice", *self.submission(name, *flags))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split()[-1]

    def job(self, job_id):
        return next((job for job in self.state()["jobs"] if job["job_id"] == job_id), None)

    def await_state(self, job_id, *states):
        seen = {}

        def look():
            seen.update(self.job(job_id) or {})
            return seen.get("state") in states
        wait_until(look, lambda: "%s: %s" % (job_id, seen))
        return seen

    def await_adopted(self, job_id):
        """Waits until all members of the running job have registered again."""
        def look():
            job = self.job(job_id) or {}
            return job.get("state") == "running" and job["message"] == "" and int(job["global_step"]) > 0
        wait_until(look, lambda: "adopted: %s" % self.job(job_id))

    def ends(self, job_id):
        """How often the scheduler has ended the job."""
        return len(re.findall(r"job %s: (?:done|failed|cancelled)\b" % job_id, (self.log_dir / "schedulerlog.0").read_text()))

    def test_running_and_queued_jobs_survive_in_their_order(self):
        self.cluster()
        jobs = [self.submit("first", "--epochs=10", "--set", "checkpoint.every_steps=20"),
                self.submit("second", "--epochs=1"), self.submit("third", "--epochs=1")]
        self.await_state(jobs[0], "running")
        self.restart()
        wait_until(lambda: self.state()["jobs"], "an answer")
        self.assertEqual([job["job_id"] for job in self.state()["jobs"]], jobs)
        for job in jobs:
            self.await_state(job, "done")
        results = [json.loads((self.tmp / name / "result.json").read_text()) for name in ("first", "second", "third")]
        self.assertEqual([r["recovery"]["scheduler_restarts"] for r in results], [1, 0, 0])
        self.assertEqual([self.ends(job) for job in jobs], [1, 1, 1])
        # They are no longer in the store.
        self.restart(signal.SIGTERM)
        wait_until(lambda: sum(m["alive"] for m in self.state()["members"]) == 2, "two members")
        self.assertEqual(self.state()["jobs"], [])
        self.assertNotIn(self.submit("fourth", "--epochs=1"), jobs)

    def test_status_cancel_and_checkpoint_work_after_a_restart(self):
        self.cluster()
        job = self.submit("run", "--epochs=100000")
        self.await_state(job, "running")
        self.restart()
        self.await_state(job, "running")
        self.await_adopted(job)
        self.at("checkpoint", job)
        self.restart()
        self.await_adopted(job)
        wait_until(lambda: "checkpoints/step-" in self.job(job)["checkpoint"]["dir"], "the checkpoint is known")
        self.at("checkpoint", job)  # its number is new to the members
        self.assertIn(job, self.at("status"))
        self.at("cancel", job)
        self.await_state(job, "cancelled")
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual((result["status"], result["recovery"]["scheduler_restarts"]), ("cancelled", 2))
        self.restart(signal.SIGTERM)
        wait_until(lambda: self.state()["members"], "an answer")
        self.assertEqual(self.state()["jobs"], [])

    def test_a_resumed_job_is_adopted_when_newer_checkpoints_have_replaced_the_one_it_resumed_from(self):
        self.cluster()
        job = self.submit("run", "--epochs=100000")
        wait_until(lambda: int((self.job(job) or {}).get("global_step", 0)) > 0, "it trains")
        self.at("checkpoint", job)
        self.at("cancel", job)
        self.await_state(job, "cancelled")
        first = next((self.tmp / "run" / "checkpoints").glob("step-*"))
        job = self.submit("run", "--epochs=100000", "--resume")
        self.await_state(job, "running")
        for _ in range(2):
            step = int(self.job(job)["global_step"])
            wait_until(lambda: int(self.job(job)["global_step"]) > step, "it trains")
            self.at("checkpoint", job)
        wait_until(lambda: not first.exists(), "the removal of the first checkpoint")
        self.restart()
        self.await_adopted(job)
        seen = self.job(job)["recovery"]
        self.assertEqual((seen["scheduler_restarts"], seen["rollbacks"]), (1, 0), seen)
        self.at("cancel", job)
        self.await_state(job, "cancelled")
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual(result["recovery"]["resumed_from"], str(first))

    def test_a_signal_stops_the_scheduler_alone_and_down_cancels_the_jobs(self):
        self.cluster()
        job = self.submit("run", "--epochs=100000")
        self.await_state(job, "running")
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            self.scheduler.send_signal(number)
            self.assertEqual(self.exit_code(self.scheduler), code)
            self.assertFalse((self.tmp / "run" / "result.json").exists())
            self.start_scheduler()
            self.await_adopted(job)
        self.assertEqual(self.job(job)["recovery"]["rollbacks"], 0, self.job(job)["recovery"]["last"])
        self.at("down")
        result = json.loads((self.tmp / "run" / "result.json").read_text())
        self.assertEqual((result["status"], result["recovery"]["scheduler_restarts"]), ("cancelled", 2))
        self.assertEqual([self.exit_code(process) for process in (self.scheduler, *self.members)], [0, 0, 0])
        self.start_scheduler()
        wait_until(lambda: "uptime_s" in self.state(), "an answer")
        self.assertEqual(self.state()["jobs"], [])

    def test_a_job_submitted_during_a_kill_runs_once(self):
        self.cluster()
        earlier = set()
        for i in range(4):
            submit = self.start("sluice", *self.submission("run%d" % i, "--epochs=1"), log="submit%d" % i)
            time.sleep(self.random.random() * 0.3)  # any moment will do
            self.restart()
            self.assertEqual(self.exit_code(submit), 0, (self.tmp / ("submit%d" % i)).read_text())
            job = (self.tmp / ("submit%d" % i)).read_text().split()[-1]
            wait_until(lambda: (self.tmp / ("run%d" % i) / "result.json").exists(), "the result of %s" % job)
            wait_until(lambda: self.ends(job) == 1, "its end")
            # The job before may still be in the store when the scheduler is killed. Then it is over there.
            self.assertLessEqual({j["job_id"] for j in self.state()["jobs"]}, earlier | {job})
            earlier.add(job)

    def test_a_damaged_checkpoint_fails_the_job_and_is_named(self):
        self.cluster()
        job = self.submit("run", "--epochs=100000")
        self.await_state(job, "running")
        wait_until(lambda: int(self.job(job)["global_step"]) > 0, "it trains")
        self.at("checkpoint", job)
        self.scheduler.kill()
        self.scheduler.wait()
        damaged = next((self.tmp / "run" / "checkpoints").glob("step-*/MANIFEST"))
        damaged.write_bytes(damaged.read_bytes()[:-20])
        self.members[0].kill()  # the job cannot be adopted
        self.members[0].wait()
        self.start_scheduler()
        self.start("sluice-pserver", "--rank=0", "--scheduler=%s" % self.address, "--log_dir=%s" % self.log_dir)
        failed = self.await_state(job, "failed")
        self.assertIn(str(damaged.parent), failed["message"])

    def test_a_second_scheduler_with_the_same_folder_does_not_start(self):
        self.cluster()
        file = self.tmp / "second.textproto"
        file.write_text('version: 1\nname: "second"\nscheduler: "127.0.0.1:%d"\npservers: "127.0.0.1:0"\nworker_num: 1\n'
                        'state_store: "rocksdb:%s/state"\n' % (free_port(), self.log_dir))
        second = self.run_program("sluice-scheduler", "--cluster=%s" % file, "--log_dir=%s" % (self.tmp / "second"))
        self.assertEqual(second.returncode, 2, second.stdout)
        self.assertIn("state_store", second.stdout)
        self.assertIsNone(self.scheduler.poll())


if __name__ == "__main__":
    unittest.main()
