"""A running job gets more or fewer workers, or loses a pserver on purpose."""
import json
import re
import signal
import unittest

from sluice_testing import SluiceTest, free_port, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=10"],
         "collective": ["--a_sync=false", "--set=strategy.sync_configs.dense=COLLECTIVE"]}
EXAMPLES, EPOCHS = 2000, 60
FLAGS = ["--threads=1", "--batch_size=8", "--epochs=%d" % EPOCHS, "--set=data.shuffle_lanes=8",
         "--set=data.task_bytes=2000", "--set=eval.every_epochs=%d" % EPOCHS]


class ScaleTest(SluiceTest):
    def setUp(self):
        super().setUp()
        rows = [(int((i * 7 % 4 < 3) == (i % 5 < 2)), i % 3, "v%d" % (i * i % 331)) for i in range(EXAMPLES)]
        self.write_csv("train.csv", rows)
        self.job = self.small_job(train="train.csv", evaluation="train.csv")
        self.where = []  # flags that say which cluster is meant

    def cluster(self, workers, pservers=2):
        self.log_dir = self.up("--server_num=%d" % pservers, "--worker_num=%d" % workers, name="cluster.log")

    def submit(self, mode, name, *flags, workers=2):
        log = name + ".out"
        process = self.start("sluice", "submit", "--log_dir=%s" % self.log_dir, *self.where, "--job=%s" % self.job,
                             "--output_dir=%s" % (self.tmp / name), "--worker_num=%d" % workers, *FLAGS, *MODES[mode],
                             *flags, log=log)

        def job_id():
            text = (self.tmp / log).read_text()
            self.assertIn(process.poll(), (None, 0), text)
            return re.search(r"small-\d+", text)
        return wait_until(job_id, "the job's id").group(), process

    def end(self, process, name):
        self.assertEqual(self.exit_code(process, within=300), 0, (self.tmp / (name + ".out")).read_text())
        return json.loads((self.tmp / name / "result.json").read_text())

    def whole(self, mode, workers=2):
        return self.end(self.submit(mode, "whole", workers=workers)[1], "whole")

    def await_job(self, job_id, condition, what):
        return super().await_job(self.log_dir, job_id, condition, what)

    def await_step(self, job_id, step):
        return self.await_job(job_id, lambda job: int(job.get("global_step", 0)) >= step, "step %d" % step)

    def await_workers(self, job_id, workers):
        self.await_job(job_id, lambda job: job["state"] == "running" and
                       len(job.get("allocated", [])) == workers, "%d workers" % workers)

    def scale(self, job_id, workers):
        self.sluice("scale", self.log_dir, job_id, "--worker_num=%d" % workers)
        self.await_workers(job_id, workers)

    def await_free_workers(self, number):
        # A worker stops the job of before at its own pace.
        wait_until(lambda: sum(m["role"] == "worker" and not m.get("job_id") for m in
                               self.status(self.log_dir)["members"]) >= number, "%d free workers" % number)

    def assert_counted(self, result, **counts):
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["examples"], EPOCHS * EXAMPLES)
        self.assertEqual(result["eval"]["examples"], EXAMPLES)
        for name in ("worker_losses", "pserver_losses", "rollbacks", "updates_lost", "shrinks", "scalings"):
            self.assertEqual(result["recovery"][name], counts.get(name, 0), (name, result["recovery"]))

    def test_more_and_fewer_workers_in_every_mode(self):
        self.cluster(workers=3)
        for mode in MODES:
            with self.subTest(mode):
                job_id, process = self.submit(mode, mode)
                self.await_step(job_id, 20)
                self.await_free_workers(1)
                self.scale(job_id, 3)
                self.scale(job_id, 1)
                self.assert_counted(self.end(process, mode), scalings=2)

    def test_sync_keeps_its_values_with_more_workers(self):
        self.cluster(workers=4)
        self.job = self.small_job(train="train.csv", evaluation="train.csv", wide_only=True)
        self.whole("sync")
        for mode in ("sync", "collective"):
            with self.subTest(mode):
                job_id, process = self.submit(mode, mode)
                self.await_step(job_id, 50)
                self.await_free_workers(2)
                self.scale(job_id, 4)
                self.assert_counted(self.end(process, mode), scalings=1)
                # The bound between numbers of workers, 1e-6, is one for an epoch; here the roundings of up to 60 add up.
                self.assert_models_close(mode, "whole", tolerance=1e-5, tables=3)

    def test_what_cannot_be_scaled_or_drained_is_refused(self):
        self.cluster(workers=2, pservers=1)
        job_id, process = self.submit("async", "run")
        self.await_step(job_id, 5)
        for number, named, code in ((2, "2 workers already", 0), (3, "free", 1), (0, "worker_num", 2)):
            out = self.sluice("scale", self.log_dir, job_id, "--worker_num=%d" % number, expect=code)
            self.assertIn(named, out)
        self.sluice("scale", self.log_dir, "small-99", "--worker_num=1", expect=2)
        self.assertIn("pserver", self.sluice("drain", self.log_dir, "0", expect=1))
        self.sluice("drain", self.log_dir, "7", expect=2)
        self.sluice("drain", self.log_dir, "zero", expect=2)
        self.assert_counted(self.end(process, "run"))
        self.sluice("scale", self.log_dir, job_id, "--worker_num=1", expect=1)

    def test_a_drained_pserver_holds_nothing_and_sync_keeps_its_bits(self):
        self.cluster(workers=2, pservers=3)
        whole = self.whole("sync")
        job_id, process = self.submit("sync", "run")
        self.await_step(job_id, 50)
        self.assertIn(job_id, self.sluice("drain", self.log_dir, "1"))
        member = next(m for m in self.status(self.log_dir)["members"] if m["role"] == "pserver" and
                      m.get("rank", 0) == 1)
        self.assertTrue(member["draining"])
        self.assertFalse(member.get("hosted"))
        result = self.end(process, "run")
        self.assert_counted(result, scalings=1)
        self.assertEqual(result["model_digest"], whole["model_digest"])
        # A later job uses the others, until the pserver may be used again.
        owners = self.run_and_count_pservers("async", "without")
        self.assertEqual(owners, 2)
        self.sluice("drain", self.log_dir, "1", "--cancel")
        self.assertEqual(self.run_and_count_pservers("async", "with"), 3)

    def run_and_count_pservers(self, mode, name):
        job_id, process = self.submit(mode, name)
        pservers = len(self.await_step(job_id, 1)["route"]["pservers"])
        self.end(process, name)
        return pservers

    def test_sigterm_moves_the_shards_of_a_pserver_first(self):
        for mode in MODES:
            with self.subTest(mode):
                scheduler = "127.0.0.1:%d" % free_port()
                self.log_dir = self.tmp / (mode + ".log")
                self.log_dir.mkdir()
                self.where = ["--scheduler=%s" % scheduler]
                daemons = [self.start("sluice-scheduler", "--bind=%s" % scheduler, "--server_num=2", "--worker_num=2",
                                      "--log_dir=%s" % self.log_dir, log=mode + ".scheduler")]
                for rank in range(2):
                    daemons.append(self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:0", *self.where,
                                              "--log_dir=%s" % self.log_dir, log="%s.pserver%d" % (mode, rank)))
                for rank in range(2):
                    daemons.append(self.start("sluice-worker", "--rank=%d" % rank, *self.where,
                                              "--log_dir=%s" % self.log_dir, log="%s.worker%d" % (mode, rank)))
                job_id, process = self.submit(mode, mode)
                self.await_step(job_id, 20)
                daemons[1].terminate()
                self.assertEqual(self.exit_code(daemons[1]), 128 + signal.SIGTERM)
                self.assertEqual(len(self.job_status(self.log_dir, job_id)["route"]["pservers"]), 1)
                self.assert_counted(self.end(process, mode), scalings=1)
                self.sluice("down", self.log_dir, *self.where)
                for daemon in daemons:
                    self.exit_code(daemon)


if __name__ == "__main__":
    unittest.main()
