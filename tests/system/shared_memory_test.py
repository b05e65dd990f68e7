"""Pushes and pulls through shared memory: the same results as over gRPC, and nothing left behind."""
import json
import os
import pathlib
import re
import signal
import sys
import time
import unittest

from sluice_testing import (ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, TIME_SCALE, SluiceTest, free_port, kill_unless_over,
                            wait_until)

SHARED = re.compile(r"pserver \S+: through shared memory")
NOT_SHARED = re.compile(r"pserver \S+: over gRPC, not through shared memory: (.*)")


def shared_files():
    """In /dev/shm, by the names that Sluice and its libraries could give. Other tests have files of browsers and clocks there."""
    return {name for name in os.listdir("/dev/shm") if re.search("sluice|gloo|nccl", name)}


class NothingLeftTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.files = shared_files()

    def tearDown(self):
        super().tearDown()
        self.assertEqual(shared_files() - self.files, set(), "left behind in /dev/shm")


class SharedMemoryTest(NothingLeftTest):
    def worker_log(self, folder, rank=0):
        return (pathlib.Path(folder) / ("workerlog.%d" % rank)).read_text(errors="replace")

    def train(self, name, *flags):
        """Launches one epoch of Adult; returns its result."""
        result, _ = self.launch("--epochs=1", "--threads=1", "--server_num=2", "--worker_num=2", *flags, name=name)
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        return result

    def test_the_sync_model_has_the_bits_of_one_that_was_trained_over_grpc(self):
        shared = self.train("shared", "--a_sync=false", "--transport=shm")
        grpc = self.train("grpc", "--a_sync=false", "--transport=grpc")
        self.assertEqual(shared["model_digest"], grpc["model_digest"])
        self.assertEqual(shared["eval"], grpc["eval"])
        for rank in (0, 1):
            self.assertEqual(len(SHARED.findall(self.worker_log(self.tmp / "shared.log", rank))), 2)
            self.assertEqual(SHARED.findall(self.worker_log(self.tmp / "grpc.log", rank)), [])

    def test_shared_memory_is_the_default_with_and_without_tls(self):
        for name, flags in (("plain", ()), ("tls", ("--tls",))):
            self.train(name, *flags)
            self.assertEqual(len(SHARED.findall(self.worker_log(self.tmp / (name + ".log")))), 2, name)

    def test_shm_alone_trains_with_tls(self):
        self.train("forced", "--tls", "--transport=shm")
        for rank in (0, 1):
            log = self.worker_log(self.tmp / "forced.log", rank)
            self.assertEqual(len(SHARED.findall(log)), 2)
            self.assertEqual(NOT_SHARED.findall(log), [])

    def daemons(self, worker_transport, pserver_transport):
        """A cluster of one pserver and one worker; returns the scheduler's address and the folder of the logs."""
        log_dir = self.tmp / "log"
        log_dir.mkdir()
        scheduler = "127.0.0.1:%d" % free_port()
        common = ["--scheduler=%s" % scheduler, "--log_dir=%s" % log_dir, "--rank=0"]
        self.start("sluice-scheduler", "--bind=%s" % scheduler, "--server_num=1", "--worker_num=1",
                   "--log_dir=%s" % log_dir)
        self.start("sluice-pserver", "--transport=%s" % pserver_transport, *common)
        self.worker = self.start("sluice-worker", "--threads=1", "--transport=%s" % worker_transport, *common)
        return scheduler, log_dir

    def submit(self, scheduler, *flags):
        return self.run_program("sluice", "submit", "--scheduler=%s" % scheduler, "--job=%s" % ADULT, "--worker_num=1",
                                "--output_dir=%s" % (self.tmp / "out"), *flags, timeout=4 * PATIENCE)

    def test_auto_falls_back_to_grpc_and_says_so_once(self):
        scheduler, log_dir = self.daemons("auto", "grpc")
        for _ in range(2):
            done = self.submit(scheduler, "--epochs=1")
            self.assertEqual(done.returncode, 0, done.stdout)
        reasons = NOT_SHARED.findall(self.worker_log(log_dir))
        self.assertEqual(len(reasons), 1, reasons)
        self.assertIn("--transport=grpc", reasons[0])

    def test_shm_fails_the_job_with_the_reason_where_it_cannot_be_used(self):
        scheduler, _ = self.daemons("shm", "grpc")
        done = self.submit(scheduler, "--epochs=1")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("--transport=shm", done.stdout)
        self.assertIn("--transport=grpc", done.stdout)

    def test_streams_of_both_transports_share_the_limit_of_a_pserver(self):
        log_dir = self.tmp / "log"
        log_dir.mkdir()
        scheduler = "127.0.0.1:%d" % free_port()
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1 name: "shared" scheduler: "%s" worker_num: 2 pservers: "127.0.0.1:%d" '
                           "limits { max_streams: 1 }\n" % (scheduler, free_port()))
        common = ["--cluster=%s" % cluster, "--log_dir=%s" % log_dir]
        self.start("sluice-scheduler", *common)
        self.start("sluice-pserver", "--rank=0", *common)
        for rank, transport in enumerate(("grpc", "auto")):
            self.start("sluice-worker", "--threads=1", "--rank=%d" % rank, "--transport=%s" % transport, *common)
        started = self.run_program("sluice", "submit", "--scheduler=%s" % scheduler, "--job=%s" % ADULT,
                                   "--worker_num=2", "--epochs=1", "--detach", "--output_dir=%s" % (self.tmp / "out"),
                                   timeout=4 * PATIENCE)
        self.assertEqual(started.returncode, 0, started.stdout)

        def log():
            return (log_dir / "serverlog.0").read_text(errors="replace")
        wait_until(lambda: "limits.max_streams" in log(), log)

    def pserver_line(self, scheduler):
        out = self.run_program("sluice", "status", "--scheduler=%s" % scheduler).stdout
        return next((line for line in out.splitlines() if line.split()[:1] == ["pserver"]), "")

    def test_status_shows_the_streams_and_a_killed_worker_leaves_none(self):
        scheduler, _ = self.daemons("auto", "auto")
        self.submit(scheduler, "--epochs=100000", "--detach")
        wait_until(lambda: "1 shm" in self.pserver_line(scheduler), lambda: self.pserver_line(scheduler))
        self.worker.send_signal(signal.SIGKILL)
        self.worker.wait(PATIENCE * TIME_SCALE)
        wait_until(lambda: "shm" not in self.pserver_line(scheduler), lambda: self.pserver_line(scheduler))


class StoppedPeersTest(NothingLeftTest):
    """A stopped process holds its memory and its sockets open: only its lease tells that it is lost."""
    EPOCHS, LEASE_S = 50, 8
    JOB = ("--a_sync=false", "--epochs=%d" % EPOCHS, "--batch_size=128", "--set=checkpoint.every_s=0",
           "--set=checkpoint.every_steps=50", "--set=eval.every_epochs=%d" % EPOCHS)

    stopped = None

    def tearDown(self):
        if self.stopped is not None:  # it would not hear that it shall end
            kill_unless_over(self.stopped)
        super().tearDown()

    def start_cluster(self, workers):
        log_dir = self.tmp / "log"
        log_dir.mkdir()
        self.scheduler = "127.0.0.1:%d" % free_port()
        self.common = ["--scheduler=%s" % self.scheduler, "--log_dir=%s" % log_dir, "--transport=shm"]
        self.start("sluice-scheduler", "--bind=%s" % self.scheduler, "--server_num=2", "--worker_num=%d" % workers,
                   "--log_dir=%s" % log_dir, "--lease_ms=%d" % (1000 * self.LEASE_S), "--heartbeat_ms=200")
        for rank in (0, 1):
            self.start("sluice-pserver", "--rank=%d" % rank, *self.common)
        for rank in range(workers):
            self.start("sluice-worker", "--rank=%d" % rank, "--threads=1", *self.common)

    def status(self):
        done = self.run_program("sluice", "status", "--scheduler=%s" % self.scheduler, "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"jobs": [], "members": []}

    def losses(self, what):
        jobs = self.status()["jobs"]
        return int(jobs[0].get("recovery", {}).get(what, 0)) if jobs else 0

    def stop_one(self, role, what, serves):
        """Stops a member of that role while the job trains, and waits until the job has lost it; returns its rank."""
        submit = self.start("sluice", "submit", "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--worker_num=2",
                            "--output_dir=%s" % (self.tmp / "out"), *self.JOB, log="submit.out")

        def trains():
            self.assertIsNone(submit.poll(), (self.tmp / "submit.out").read_text())
            jobs = self.status()["jobs"]
            return jobs and int(jobs[0].get("global_step", 0)) > 100
        wait_until(trains, "training")
        member = next(m for m in self.status()["members"] if m["role"] == role and serves(m))
        os.kill(int(member["pid"]), signal.SIGSTOP)
        stopped = time.monotonic()
        self.stopped = int(member["pid"])
        wait_until(lambda: self.losses(what) > 0, lambda: "the loss of %s: %s" % (member, self.status()["jobs"]))
        print("%s: lost after %.1f s; the lease is %d s" % (role, time.monotonic() - stopped, self.LEASE_S), file=sys.stderr)
        self.assertLess(time.monotonic() - stopped, TIME_SCALE * (self.LEASE_S + PATIENCE))
        return submit, int(member["rank"])

    def assert_undisturbed_bits(self, submit):
        self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit.out").read_text())
        result = json.loads((self.tmp / "out" / "result.json").read_text())
        whole, _ = self.launch("--threads=1", "--server_num=2", "--worker_num=2", "--transport=shm", *self.JOB, name="whole")
        for field in ("status", "examples", "global_step", "model_digest", "eval"):
            self.assertEqual(result[field], whole[field], field)
        return result["recovery"]

    def test_a_stopped_worker_is_replaced_and_the_bits_are_the_same(self):
        self.start_cluster(workers=3)
        submit, _ = self.stop_one("worker", "worker_losses", lambda m: m.get("job_id"))
        self.assertEqual(self.assert_undisturbed_bits(submit)["worker_losses"], 1)

    def test_a_stopped_pserver_is_replaced_and_the_bits_are_the_same(self):
        self.start_cluster(workers=2)
        submit, rank = self.stop_one("pserver", "pserver_losses", lambda m: True)
        # The stopped process still holds the lock of its log.
        (self.tmp / "log2").mkdir()
        self.start("sluice-pserver", "--rank=%d" % rank, *self.common, "--log_dir=%s" % (self.tmp / "log2"))
        self.assertEqual(self.assert_undisturbed_bits(submit)["pserver_losses"], 1)


if __name__ == "__main__":
    unittest.main()
