"""How a worker computes: bf16 factors cost no quality on Adult, and pinned threads change no bit."""
import unittest

from sluice_testing import SluiceTest

SYNC = ["--server_num=1", "--worker_num=2", "--epochs=2", "--a_sync=false"]


class ComputeOptionsTest(SluiceTest):
    def logs(self, name):
        return [(self.tmp / (name + ".log") / ("workerlog.%d" % rank)).read_text() for rank in (0, 1)]

    def test_bf16_is_as_good_as_f32_and_pinning_changes_no_bit(self):
        plain, _ = self.launch(*SYNC, name="plain")
        pinned, _ = self.launch(*SYNC, "--set", "train.pin_threads=true", name="pinned")
        self.assertEqual(pinned["model_digest"], plain["model_digest"])
        for text in self.logs("pinned"):
            self.assertRegex(text, r"computes on CPU \d")
        for text in self.logs("plain"):
            self.assertNotIn("computes on CPU", text)

        bf16, _ = self.launch(*SYNC, "--set", "train.compute_dtype=BF16", name="bf16")
        self.assertNotEqual(bf16["model_digest"], plain["model_digest"])
        # Other seeds move these by about 0.0005 and 0.001.
        self.assertAlmostEqual(bf16["eval"]["auc"], plain["eval"]["auc"], delta=0.001)
        self.assertAlmostEqual(bf16["eval"]["log_loss"], plain["eval"]["log_loss"], delta=0.002)
        for exact, rounded in zip(plain["epochs_log"], bf16["epochs_log"]):
            self.assertAlmostEqual(rounded["loss"], exact["loss"], delta=0.002)

    def test_unknown_type_is_refused(self):
        _, output = self.launch("--set", "train.compute_dtype=FP8", expect=2)
        self.assertIn("compute_dtype", output)
        self.assertIn("BF16", output)


if __name__ == "__main__":
    unittest.main()
