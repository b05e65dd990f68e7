"""Streams between workers and pservers that break all the time change no result: every frame is applied once."""
import json
import os
import re
import unittest

from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, TEST_BIN, SluiceTest, free_port
from fault_proxy import FaultProxy, Truncate

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=5"]}


class CutStreamsTest(SluiceTest):
    transport = "grpc"

    def start_worker(self, name, rank, mean_bytes, *flags):
        return self.start("sluice-worker", "--threads=1", *flags)

    def cuts_by_workers(self, name, workers):
        return 0

    def run_job(self, name, mode, workers, mean_bytes, *flags):
        """Trains one epoch of Adult on daemons started by hand; streams break every `mean_bytes` or so (0: never).

        Returns (result, cuts).
        """
        log_dir = self.tmp / (name + ".log")
        log_dir.mkdir()
        scheduler = "127.0.0.1:%d" % free_port()
        common = ["--scheduler=%s" % scheduler, "--log_dir=%s" % log_dir, "--transport=%s" % self.transport]
        daemons = [self.start("sluice-scheduler", "--bind=%s" % scheduler, "--server_num=2",
                              "--worker_num=%d" % workers, "--log_dir=%s" % log_dir)]
        proxy = FaultProxy(seed=1)
        if mean_bytes:
            proxy.set(Truncate(every=mean_bytes))
        for rank in (0, 1):
            port = free_port()
            daemons.append(self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:%d" % port,
                                      "--advertise=127.0.0.1:%d" % proxy.forward(("127.0.0.1", port)), *common))
        for rank in range(workers):
            daemons.append(self.start_worker(name, rank, mean_bytes, "--rank=%d" % rank, *common))
        try:
            done = self.run_program("sluice", "submit", "--scheduler=%s" % scheduler, "--job=%s" % ADULT, "--epochs=1",
                                    "--worker_num=%d" % workers, "--output_dir=%s" % (self.tmp / name),
                                    *MODES[mode], *flags, timeout=4 * PATIENCE)
            self.assertEqual(done.returncode, 0, done.stdout)
        finally:
            for daemon in daemons:
                daemon.terminate()
            for daemon in daemons:
                self.exit_code(daemon)
            proxy.close()
        result = json.loads((self.tmp / name / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["examples"], ADULT_TRAIN_EXAMPLES)
        self.assertEqual(result["examples_replayed"], 0)
        return result, proxy.count(Truncate) + self.cuts_by_workers(name, workers)

    def assert_same_model(self, mode, workers, *flags):
        whole, _ = self.run_job("whole", mode, workers, 0, *flags)
        cut, cuts = self.run_job("cut", mode, workers, 400000, *flags)
        self.assertGreater(cuts, 10)
        self.assertEqual(cut["global_step"], whole["global_step"])
        self.assertEqual(cut["model_digest"], whole["model_digest"])
        self.assertEqual(cut["eval"], whole["eval"])

    def test_sync_model_is_the_same_to_the_bit(self):
        self.assert_same_model("sync", 2)

    # One asynchronous worker is deterministic: a frame applied twice, lost or out of order would show.
    def test_async_model_of_one_worker_is_the_same_to_the_bit(self):
        self.assert_same_model("async", 1)

    def test_geo_model_of_one_worker_is_the_same_to_the_bit(self):
        self.assert_same_model("geo", 1)

    def test_async_and_geo_with_two_workers_end_and_count_every_example(self):
        for mode in ("async", "geo"):
            result, cuts = self.run_job(mode, mode, 2, 400000)
            self.assertGreater(cuts, 10)
            self.assertGreater(result["eval"]["auc"], 0.85)


class CutSharedMemoryTest(CutStreamsTest):
    """The same through shared memory, where the workers cut the streams: no proxy is between them and the pservers."""
    transport = "shm"
    MESSAGE_BYTES = 20000  # roughly, of a stream's messages in both directions

    def start_worker(self, name, rank, mean_bytes, *flags):
        if not mean_bytes:
            return super().start_worker(name, rank, mean_bytes, *flags)
        every = str(mean_bytes // self.MESSAGE_BYTES)
        return self.start(TEST_BIN / "cutting_worker", *flags, log="%s.worker%d.out" % (name, rank),
                          env={**os.environ, "CUT_EVERY": every})

    def cuts_by_workers(self, name, workers):
        logs = [self.tmp / ("%s.worker%d.out" % (name, rank)) for rank in range(workers)]
        return sum(int(re.search(r"cut (\d+) streams", log.read_text()).group(1)) for log in logs if log.exists())


if __name__ == "__main__":
    unittest.main()
