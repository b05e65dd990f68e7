"""Clusters without pservers (--server_num=0): sync jobs whose models have no sparse tables train with workers alone."""
import json
import os
import signal
import unittest

from numbers_job import BATCH, COLLECTIVE, EVAL_EXAMPLES, SYNC, NumbersJobTest
from sluice_testing import PATIENCE, free_port, kill_unless_over

EXAMPLES = NumbersJobTest.examples
STEPS = EXAMPLES // BATCH


class NoPserversTest(NumbersJobTest):
    servers = 0

    # ------------------------------------------------------------------------------ values

    def test_models_are_those_of_dense_tables_on_pservers(self):
        pserver = self.train("pserver", servers=2)
        self.assertGreater(pserver["eval"]["auc"], 0.7)  # it learns
        for workers in (1, 2, 4):
            name = "w%d" % workers
            result = self.train(name, workers=workers)
            self.assert_models_close("pserver", name, tables=5)
            self.assertEqual(result["examples"], EXAMPLES)
            self.assertEqual(result["global_step"], STEPS)
            self.assertAlmostEqual(result["eval"]["auc"], pserver["eval"]["auc"], places=5)
            self.assertEqual([e.role for e in self.endpoints(name)].count("pserver"), 0)

    def test_two_runs_are_equal_to_the_bit_with_pservers_or_without(self):
        first = self.train("first", epochs=2)
        again = self.train("again", COLLECTIVE, "--set=train.reader_threads=2", epochs=2)
        with_pservers = self.train("pservers", COLLECTIVE, servers=2, epochs=2)
        for other in (again, with_pservers):
            self.assertEqual(first["model_digest"], other["model_digest"])
            self.assertEqual(first["eval"], other["eval"])

    def test_auto_starts_no_pservers_for_a_job_that_needs_none(self):
        _, out = self.launch(*self.flags(COLLECTIVE, servers="auto"), job=self.job_file, name="auto")
        self.assertIn("chooses 0 pservers", out)

    # ------------------------------------------------------------------------------ checkpoints

    def test_checkpoints_resume_to_the_bit_with_pservers_and_without(self):
        whole = self.train("whole", epochs=4)
        for first, then in ((0, 0), (0, 2), (2, 0)):
            with self.subTest("%d, then %d pservers" % (first, then)):
                name = "resumed%d%d" % (first, then)
                self.train(name, COLLECTIVE, "--set=checkpoint.every_epochs=1", servers=first, epochs=2)
                self.verify_newest_checkpoint(name)
                result = self.resume(name, COLLECTIVE, servers=then, epochs=4)
                self.assertEqual(result["model_digest"], whole["model_digest"])

    def test_a_job_moves_its_dense_tables_between_pservers_and_workers(self):
        self.train("whole", servers=2, epochs=2)
        for name, first, then in (("to_workers", 2, 0), ("to_pservers", 0, 2)):
            self.train(name, "--set=checkpoint.every_epochs=1", servers=first, epochs=1)
            self.resume(name, servers=then, epochs=2)
            self.assert_models_close("whole", name, tables=5)

    def test_resume_with_another_number_of_workers_and_a_next_days_job(self):
        self.train("whole", workers=4, epochs=2)
        self.train("more", "--set=checkpoint.every_epochs=1", workers=2, epochs=1)
        self.train("more", "--resume", workers=4, batch=BATCH // 2, epochs=2)  # the global batch stays
        self.assert_models_close("whole", "more", tables=5)
        self.train("next", "--set=initial_checkpoint=%s" % (self.tmp / "more"))

    # ------------------------------------------------------------------------------ losses

    def test_a_killed_worker_is_replaced_and_the_job_ends_with_the_same_bits(self):
        flags = (COLLECTIVE, "--set=checkpoint.every_steps=20")
        expected = self.train("undisturbed", *flags, epochs=16)
        # Also a pserver, which holds nothing of the job.
        for role, rank, servers in (("worker", 0, 0), ("worker", 1, 0), ("pserver", 0, 1)):
            name = "%s%d" % (role, rank)
            with self.subTest(name):
                result = self.train_and_kill(name, role, rank, (30, 4 * STEPS), *flags, servers=servers, epochs=16)
                self.assertEqual(result["model_digest"], expected["model_digest"])
                self.assertEqual(result["recovery"]["rollbacks"], int(role == "pserver"))

    def test_shrink_continues_without_the_lost_worker(self):
        launcher = self.start_train("shrink", "--set=checkpoint.every_steps=20",
                                    "--set=strategy.sync_configs.on_worker_loss=SHRINK", workers=4, epochs=16)
        self.await_step(launcher, 60, "shrink")
        kill_unless_over(self.pid_of("worker", 2, "shrink"))
        result = self.result(launcher, "shrink")
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["recovery"]["shrinks"], 1)
        self.assertEqual(result["recovery"]["rollbacks"], 0)
        self.assertEqual(result["examples"], 16 * EXAMPLES)

    def test_a_killed_scheduler_takes_the_running_job_back(self):
        expected = self.train("undisturbed", "--set=checkpoint.every_steps=50", epochs=16)
        launcher = self.start_train("killed", "--set=checkpoint.every_steps=50", epochs=16)
        self.await_step(launcher, 60, "killed")
        os.kill(self.pid_of("scheduler", 0, "killed"), signal.SIGKILL)
        result = self.result(launcher, "killed")
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["recovery"]["scheduler_restarts"], 1)
        self.assertEqual(result["model_digest"], expected["model_digest"])

    # ------------------------------------------------------------------------------ models

    def test_the_model_evaluates_and_predicts_as_one_of_pservers(self):
        self.train("pserver", servers=2)
        trained = self.train("workers")
        evaluated, _ = self.launch(*self.flags("--set=evaluate_only=true", "--set=initial_model=%s" % (self.tmp / "workers/model"),
                                               workers=2), job=self.job_file, name="evaluated")
        self.assertEqual(evaluated["eval"]["auc"], trained["eval"]["auc"])
        scores = {}
        for name in ("pserver", "workers"):
            output = self.tmp / (name + ".scores")
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / name / "model"),
                                    "--data=%s" % (self.tmp / "eval.csv"), "--output=%s" % output)
            self.assertEqual(done.returncode, 0, done.stdout)
            scores[name] = [float(line.split(",")[-1]) for line in output.read_text().splitlines()]
        self.assertEqual(len(scores["pserver"]), EVAL_EXAMPLES)
        for a, b in zip(scores["pserver"], scores["workers"]):
            self.assertAlmostEqual(a, b, places=4)

    # ------------------------------------------------------------------------------ clusters

    def test_a_standing_cluster_runs_jobs_one_after_another_and_scales_them(self):
        expected = self.train("expected", epochs=2)
        log_dir = self.up("--server_num=0", "--worker_num=2", "--threads=1")
        for name in ("one", "two"):
            # The job leaves `dense` open, and the scheduler says what it chooses.
            self.sluice("submit", log_dir, "--job=%s" % self.job_file, "--output_dir=%s" % (self.tmp / name), SYNC,
                        "--worker_num=2", "--batch_size=%d" % (BATCH // 2), "--epochs=2", "--set=train.threads=1")
            result = json.loads((self.tmp / name / "result.json").read_text())
            self.assertEqual(result["status"], "done")
            self.assertEqual(result["model_digest"], expected["model_digest"])
            self.assertTrue(any("sync_configs.dense" in warning for warning in result["warnings"]), result)
        refused = self.run_program("sluice", "submit", "--log_dir=%s" % log_dir, "--job=%s" % self.job_file, "--worker_num=1")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("--a_sync=false", refused.stdout)
        self.assertIn("no pserver 0", self.run_program("sluice", "drain", "--log_dir=%s" % log_dir, "0").stdout)

    def test_a_running_job_is_scaled(self):
        log_dir = self.up("--server_num=0", "--worker_num=2", "--threads=1")
        out = self.sluice("submit", log_dir, "--job=%s" % self.job_file, "--output_dir=%s" % (self.tmp / "scaled"), SYNC,
                          "--worker_num=2", "--batch_size=%d" % (BATCH // 2), "--epochs=2000", "--detach")
        job_id = out.split()[-1]
        self.await_job(log_dir, job_id, lambda job: int(job.get("global_step", 0)) > 20, "20 steps")
        self.sluice("scale", log_dir, job_id, "--worker_num=1")
        self.await_job(log_dir, job_id, lambda job: int(job.get("recovery", {}).get("scalings", 0)) == 1, "one worker")
        self.sluice("cancel", log_dir, job_id)

    # ------------------------------------------------------------------------------ refusals

    def test_refusals_say_what_to_do(self):
        for job, flags, said in (
                (self.job_file, ("--a_sync=true",), ("async", "--a_sync=false")),
                (self.job_file, ("--a_sync=true", "--k_steps=10"), ("geo", "--a_sync=false")),
                (self.keys, (SYNC,), ('"e"', "--server_num=1", "dense: true")),
                (self.keys, (SYNC, COLLECTIVE), ('"e"', "dense: true"))):
            with self.subTest(said):
                done = self.run_program("sluice", "launch", "--job=%s" % job, "--server_num=0", "--worker_num=1", *flags,
                                        "--output_dir=%s" % (self.tmp / "refused"), "--log_dir=%s" % (self.tmp / "refused.log"))
                self.assertEqual(done.returncode, 2, done.stdout)
                for text in said:
                    self.assertIn(text, done.stdout)
        for command in ("launch", "up"):
            done = self.run_program("sluice", command, *(["--job=%s" % self.job_file] if command == "launch" else []),
                                    "--server_num=-1", "--log_dir=%s" % (self.tmp / "none.log"))
            self.assertEqual(done.returncode, 2, done.stdout)

    def test_a_cluster_file_without_pservers_has_none(self):
        address = "127.0.0.1:%d" % free_port()
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1\nname: "workers"\nscheduler: "%s"\nworker_num: 1\n' % address)
        log = "--log_dir=%s" % (self.tmp / "cluster.log")
        self.start("sluice-scheduler", "--cluster=%s" % cluster, log)
        self.start("sluice-worker", "--cluster=%s" % cluster, "--rank=0", "--threads=1", log)
        done = self.run_program("sluice", "submit", "--scheduler=%s" % address, "--job=%s" % self.job_file, SYNC, "--worker_num=1",
                                "--epochs=1", "--output_dir=%s" % (self.tmp / "by_hand"), timeout=2 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout)
        pserver = self.start("sluice-pserver", "--cluster=%s" % cluster, "--rank=0", log)
        self.assertEqual(self.exit_code(pserver), 2)
        self.run_program("sluice", "down", "--scheduler=%s" % address)


if __name__ == "__main__":
    unittest.main()
