"""Streams between workers and pservers that break all the time change no result: every frame is applied once."""
import json
import unittest

from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, SluiceTest, free_port
from fault_proxy import FaultProxy, Truncate

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=5"]}


class CutStreamsTest(SluiceTest):
    def run_job(self, name, mode, workers, mean_bytes, *flags):
        """Trains one epoch of Adult on daemons started by hand; streams break every `mean_bytes` or so (0: never).

        Returns (result, cuts).
        """
        log_dir = self.tmp / (name + ".log")
        log_dir.mkdir()
        scheduler = "127.0.0.1:%d" % free_port()
        common = ["--scheduler=%s" % scheduler, "--log_dir=%s" % log_dir]
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
            daemons.append(self.start("sluice-worker", "--rank=%d" % rank, "--threads=1", *common))
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
        return result, proxy.count(Truncate)

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


if __name__ == "__main__":
    unittest.main()
