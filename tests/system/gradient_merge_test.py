"""Steps of merged batches (sync_configs.gradient_merge_steps): k batches of b give the model of batches of k x b."""
import unittest

from sluice_testing import ADULT_TRAIN_EXAMPLES, DisturbedLaunchTest

MERGE = "--set=strategy.sync_configs.gradient_merge_steps=%d"
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
DROPOUT = "--set=model.wide_deep.dropout=0.2"
OPTIMIZERS = "--set=optimizers.dense={adam {} learning_rate: 0.002}", "--set=optimizers.embedding={adagrad {} learning_rate: 0.02}"


class GradientMergeTest(DisturbedLaunchTest):
    def train(self, name, workers, batch, merged, *flags, epochs=1):
        result, _ = self.launch("--a_sync=false", "--epochs=%d" % epochs, "--worker_num=%d" % workers, "--server_num=2",
                                "--batch_size=%d" % batch, "--threads=1", DROPOUT, *OPTIMIZERS, *[MERGE % merged] * bool(merged),
                                *flags, name=name)
        self.assertEqual((result["status"], result["mode"]), ("done", "sync"))
        self.assertEqual(result["examples"], epochs * ADULT_TRAIN_EXAMPLES)
        return result

    def test_merged_batches_have_the_bits_of_one_larger_batch(self):
        for dense in ((), (COLLECTIVE,)):
            for workers in (1, 2):
                with self.subTest(dense=dense, workers=workers):
                    name = "%d%s" % (workers, "c" * len(dense))
                    large = self.train("large" + name, workers, 256, 0, *dense)
                    merged = self.train("merged" + name, workers, 64, 4, *dense)
                    self.assertEqual(merged["global_step"], large["global_step"])
                    self.assertEqual(merged["model_digest"], large["model_digest"])
                    self.assertEqual(merged["epochs_log"][0]["loss"], large["epochs_log"][0]["loss"])
                    self.assertEqual(merged["eval"], large["eval"])
            # The global batch is the same on one worker and on two.
            self.train("half" + "c" * len(dense), 2, 32, 4, *dense)
            self.assert_models_close("large1" + "c" * len(dense), "half" + "c" * len(dense))

    def test_clipping_acts_on_the_gradient_of_the_whole_step(self):
        clip = "--set=optimizers.clip_global_norm=0.05"
        large = self.train("large", 2, 256, 0, clip)
        merged = self.train("merged", 2, 64, 4, clip)
        self.assertEqual(merged["model_digest"], large["model_digest"])
        self.assertNotEqual(self.train("free", 2, 64, 4)["model_digest"], merged["model_digest"])

    def test_passes_that_split_the_chunks_of_sums_differ_by_roundings(self):
        large = self.train("large", 2, 600, 0)
        merged = self.train("merged", 2, 24, 25)
        self.assertEqual(merged["global_step"], large["global_step"])
        self.assert_models_close("large", "merged")

    def test_a_resumed_job_has_the_bits_of_one_that_never_stopped(self):
        for dense in ((), (COLLECTIVE,)):
            with self.subTest(dense=dense):
                name = "c" * len(dense)
                whole = self.train("whole" + name, 2, 64, 4, *dense, epochs=2)
                again = self.train("again" + name, 2, 64, 4, "--set=train.reader_threads=2", *dense, epochs=2)
                self.assertEqual(again["model_digest"], whole["model_digest"])
                self.train("resumed" + name, 2, 64, 4, "--set=checkpoint.every_epochs=1", *dense)
                result = self.train("resumed" + name, 2, 64, 4, "--resume", *dense, epochs=2)
                self.assertNotEqual(result["recovery"]["resumed_from"], "")
                self.assertEqual(result["model_digest"], whole["model_digest"])
        _, out = self.launch("--a_sync=false", "--epochs=3", "--worker_num=2", "--batch_size=64", "--server_num=2", DROPOUT,
                             *OPTIMIZERS, MERGE % 2, "--resume", name="resumed", expect=2)
        self.assertIn("gradient_merge_steps is 2, but was 4", out)

    def test_a_rank_without_examples_takes_part(self):
        # The last step of an epoch has one example, so all ranks but one push nothing.
        self.write_csv("train.csv", [(i % 2, i % 5, "ab"[i % 2]) for i in range(97)])
        job = self.small_job()
        for name, batch, merged, dense in (("large", 16, 1, "PSERVER"), ("merged", 4, 4, "PSERVER"),
                                           ("collective", 4, 4, "COLLECTIVE")):
            result, _ = self.launch("--a_sync=false", "--worker_num=3", "--batch_size=%d" % batch, MERGE % merged,
                                    "--set=strategy.sync_configs.dense=" + dense, job=job, name=name)
            self.assertEqual([e["examples"] for e in result["epochs_log"]], [97] * len(result["epochs_log"]))
            self.assertEqual(result["global_step"], 3 * len(result["epochs_log"]))
        for name in ("merged", "collective"):
            self.assert_models_close("large", name)

    def test_async_geo_and_impossible_values_are_refused_with_the_reason(self):
        for flags, reason in ((("--a_sync=true",), "gradients_to_wait"), (("--k_steps=10",), "k_steps"),
                              (("--a_sync=false", MERGE % 0), "1 to 1024"), (("--a_sync=false", MERGE % 1025), "1 to 1024")):
            _, out = self.launch(MERGE % 4, *flags, name="refused", expect=2)
            self.assertIn("strategy.sync_configs.gradient_merge_steps", out)
            self.assertIn(reason, out)


if __name__ == "__main__":
    unittest.main()
