"""In sync mode W workers with batch b equal one worker with batch W x b, and runs are equal to the bit."""
import gzip
import os
import random
import subprocess
import unittest

from sluice_testing import SluiceTest

MODEL_DIFF = os.path.join(os.environ.get("SLUICE_TEST_BIN_DIR", "build/release/tests/bin"), "model_diff")


class SyncEquivalenceTest(SluiceTest):
    def sync(self, name, workers, batch, pservers=2, *flags):
        result, _ = self.launch("--a_sync=false", "--epochs=1", "--worker_num=%d" % workers,
                                "--batch_size=%d" % batch, "--server_num=%d" % pservers, "--threads=1", *flags, name=name)
        self.assertEqual(result["mode"], "sync")
        self.assertEqual(result["examples"], 32561)
        return result

    def assert_models_equal(self, a, b, tolerance):
        done = subprocess.run([os.path.abspath(MODEL_DIFF), self.tmp / a / "model", self.tmp / b / "model"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertGreater(len(lines), 3)
        for table, difference in lines:
            self.assertTrue(float(difference) <= tolerance, "%s: %s and %s differ by %s" % (table, a, b, difference))

    def test_one_worker_equals_two_and_four(self):
        self.sync("w1", 1, 256)
        self.sync("w2", 2, 128)
        self.sync("w4", 4, 64)
        self.assert_models_equal("w1", "w2", 1e-6)
        self.assert_models_equal("w1", "w4", 1e-6)

    def test_dropout_and_uneven_batches_keep_the_equivalence(self):
        dropout = "--set=model.wide_deep.dropout=0.2"
        self.sync("w1", 1, 300, 2, dropout)
        self.sync("w2", 2, 150, 2, dropout)
        self.assert_models_equal("w1", "w2", 1e-6)

    def test_any_lanes_files_and_malformed_lines_keep_the_equivalence(self):
        source = random.Random(4)
        rows = [(source.randint(0, 1), source.randint(0, 9), source.choice("abcdefgh")) for _ in range(20000)]
        for i in range(0, 20000, 1999):
            rows[i] = ("maybe", 1, "a")
        path = self.write_csv("train0.csv", rows[:14000])
        (self.tmp / "train1.csv.gz").write_bytes(gzip.compress(path.read_bytes()[:10]))  # only the gzip header
        path = self.write_csv("rest", rows[14000:])
        (self.tmp / "train2.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        job = self.small_job(train="train*", data_extra="max_bad_lines: 20 shuffle_lanes: 7 shuffle_window: 300")
        for workers in (1, 2, 3, 7):
            result, _ = self.launch("--a_sync=false", "--worker_num=%d" % workers, "--batch_size=%d" % (84 / workers),
                                    "--threads=1", "--set=model.wide_deep.dropout=0.2", job=job, name="w%d" % workers)
            self.assertEqual(([e["examples"] for e in result["epochs_log"]], result["bad_lines"]), ([19989] * 2, 11))
            self.assertEqual(result["global_step"], 2 * 239)
            self.assert_models_equal("w1", "w%d" % workers, 1e-6)

    def test_runs_are_equal_to_the_bit_on_any_number_of_pservers(self):
        first = self.sync("first", 2, 128)
        again = self.sync("again", 2, 128)
        one = self.sync("one", 2, 128, 1)
        three = self.sync("three", 2, 128, 3, "--set=train.reader_threads=3")
        self.assertEqual(first["model_digest"], again["model_digest"])
        self.assertEqual(first["model_digest"], one["model_digest"])
        self.assertEqual(first["model_digest"], three["model_digest"])
        self.assertEqual(first["eval"], three["eval"])
        self.assertEqual(len(first["model_digest"]), 64)


if __name__ == "__main__":
    unittest.main()
