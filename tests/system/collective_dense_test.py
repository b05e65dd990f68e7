"""Dense tables that workers keep (sync_configs.dense: COLLECTIVE) give the models of dense tables on pservers."""
import json
import os
import signal
import unittest

from sluice_testing import ADULT, DisturbedLaunchTest, kill_unless_over, optimizers

SYNC = "--a_sync=false"
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
# The dense tables of the hidden layers; the others stay F32.
BF16 = "--set=tables=[%s]" % ", ".join("{name: 'deep/%d/%s' wire_type: BF16}" % (layer, kind)
                                       for layer in range(3) for kind in ("weight", "bias"))
STEPS = 128  # an epoch of Adult with two workers of batch 128
# Flags of their own for some rules; the others train with those of the list.
OPTIMIZERS = {
    "momentum": ("--set=optimizers.all={momentum { nesterov: true } learning_rate: 0.05}",),
    "adam": ("--set=optimizers.all={adam {} learning_rate: 0.002 schedule { polynomial { steps: 100 } warmup_steps: 20 }}",
             "--set=model.wide_deep.dropout=0.2"),
    "adagrad": ("--set=optimizers.all={adagrad {} learning_rate: 0.02 clip_value: 0.01}",),
    "ftrl": ("--set=optimizers.all={ftrl { l1: 0.0001 } learning_rate: 0.05}",),
    "sgd": ("--set=optimizers.all={sgd {} learning_rate: 0.1}", "--set=optimizers.clip_global_norm=0.5"),
}


class CollectiveDenseTest(DisturbedLaunchTest):
    def train(self, name, *flags, workers=2, epochs=1):
        result, _ = self.launch(SYNC, "--epochs=%d" % epochs, "--worker_num=%d" % workers,
                                "--batch_size=%d" % (256 // workers), "--server_num=2", "--threads=1", *flags, name=name)
        self.assertEqual((result["status"], result["mode"]), ("done", "sync"))
        return result

    def test_models_are_those_of_dense_tables_on_pservers(self):
        pserver = self.train("pserver")
        for workers in (1, 2, 4):
            result = self.train("c%d" % workers, COLLECTIVE, workers=workers)
            self.assert_models_close("pserver", "c%d" % workers)
            self.assertEqual(result["examples"], pserver["examples"])
            self.assertAlmostEqual(result["eval"]["auc"], pserver["eval"]["auc"], places=5)

    def test_every_optimizer_schedule_dropout_and_clipping(self):
        plain = {rule: ("--set=optimizers.all={%s}" % text,) for rule, text in optimizers().items()}
        for name, flags in {**plain, **OPTIMIZERS}.items():
            with self.subTest(name):
                self.compare_with_pservers(name, 2, *flags)

    def test_dropout_and_the_global_norm_with_one_and_four_workers(self):
        # Both depend on the number of workers, so each is compared with a pserver job that has as many.
        for name in ("adam", "sgd"):
            for workers in (1, 4):
                with self.subTest(name, workers=workers):
                    self.compare_with_pservers("%s%d" % (name, workers), workers, *OPTIMIZERS[name])

    def compare_with_pservers(self, name, workers, *flags):
        self.train(name + ".p", *flags, workers=workers)
        self.train(name + ".c", COLLECTIVE, *flags, workers=workers)
        self.assert_models_close(name + ".p", name + ".c")

    def test_two_runs_are_equal_to_the_bit(self):
        first = self.train("first", COLLECTIVE)
        again = self.train("again", COLLECTIVE, "--set=train.reader_threads=2")
        self.assertEqual(first["model_digest"], again["model_digest"])
        self.assertEqual(first["eval"], again["eval"])
        self.assertEqual(first["model_digest"], self.train("tls", COLLECTIVE, "--tls")["model_digest"])

    def test_several_communicators_change_no_bit(self):
        # A batch for each table: more of them than communicators.
        flags = (COLLECTIVE, "--set=strategy.sync_configs.fuse_layers=1")
        one = self.train("one", *flags)
        for engine in ("SHM", "GLOO"):
            with self.subTest(engine):
                several = self.train("several." + engine, *flags, "--set=strategy.sync_configs.comm_num=2",
                                     "--set=strategy.sync_configs.engine=" + engine)
                self.assertEqual(several["model_digest"], one["model_digest"])

    def test_gradients_in_bf16_train_close_to_f32_and_two_runs_are_equal_to_the_bit(self):
        exact = self.train("f32", COLLECTIVE)
        first = self.train("bf16", COLLECTIVE, BF16)
        again = self.train("again", COLLECTIVE, BF16, "--set=strategy.sync_configs.comm_num=2")
        self.assertEqual(first["model_digest"], again["model_digest"])
        self.assertNotEqual(first["model_digest"], exact["model_digest"])
        # A gradient is off by up to 2^-7 of its largest value in each step; the roundings of the steps differ in sign.
        self.assert_models_close("f32", "bf16", tolerance=0.05)
        self.assertAlmostEqual(first["eval"]["auc"], exact["eval"]["auc"], delta=0.002)

    def test_a_resumed_job_ends_with_the_bits_of_one_that_never_stopped(self):
        whole = self.train("whole", COLLECTIVE, epochs=3)
        self.train("resumed", COLLECTIVE, "--set=checkpoint.every_epochs=1", epochs=2)
        result = self.train("resumed", COLLECTIVE, "--resume", epochs=3)
        self.assertNotEqual(result["recovery"]["resumed_from"], "")
        self.assertEqual(result["model_digest"], whole["model_digest"])
        # The checkpoint is one like any other: every byte is checked, and the next day starts from it.
        folder = next((self.tmp / "resumed" / "checkpoints").glob("step-*"))
        verified = self.run_program("sluice", "ckpt", "verify", str(folder))
        self.assertEqual(verified.returncode, 0, verified.stdout)
        self.train("next", COLLECTIVE, "--set=initial_checkpoint=%s" % (self.tmp / "resumed"))

    def test_lost_members_are_replaced_and_the_job_ends_with_the_same_bits(self):
        flags = (SYNC, COLLECTIVE, "--epochs=8", "--worker_num=2", "--batch_size=128", "--server_num=2", "--threads=1",
                 "--set=checkpoint.every_steps=20")
        expected, _ = self.launch(*flags, name="undisturbed")
        for role, rank, how in (("worker", 0, signal.SIGKILL), ("worker", 1, signal.SIGKILL), ("pserver", 1, signal.SIGKILL)):
            name = "%s%d" % (role, rank)
            with self.subTest(name):
                launcher = self.start_launch(*flags, name=name)
                self.await_step(launcher, self.random.randrange(30, 2 * STEPS), name)
                os.kill(self.pid_of(role, rank, name), how)
                result = self.result(launcher, name)
                self.assertEqual(result["status"], "done")
                self.assertEqual(result["model_digest"], expected["model_digest"])
                self.assertEqual(result["recovery"]["%s_losses" % role], 1)
                self.assertEqual(result["recovery"]["rollbacks"], int(role == "pserver"))

    def test_shrink_continues_without_the_lost_worker(self):
        flags = (SYNC, COLLECTIVE, "--epochs=8", "--worker_num=3", "--batch_size=64", "--server_num=1", "--threads=1",
                 "--set=checkpoint.every_steps=20", "--set=strategy.sync_configs.on_worker_loss=SHRINK")
        launcher = self.start_launch(*flags, name="shrink")
        self.await_step(launcher, 60, "shrink")
        kill_unless_over(self.pid_of("worker", 2, "shrink"))
        result = self.result(launcher, "shrink")
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["recovery"]["shrinks"], 1)
        self.assertEqual(result["recovery"]["rollbacks"], 0)
        self.assertEqual(result["examples"], 8 * 32561)

    def test_the_model_predicts_as_one_trained_on_pservers(self):
        self.train("pserver")
        self.train("collective", COLLECTIVE)
        scores = {}
        for name in ("pserver", "collective"):
            output = self.tmp / (name + ".scores")
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / name / "model"),
                                    "--data=%s" % os.path.abspath("data/adult/adult.test.gz"), "--output=%s" % output)
            self.assertEqual(done.returncode, 0, done.stdout)
            scores[name] = [float(line.split(",")[-1]) for line in output.read_text().splitlines()[1:]]
        self.assertGreater(len(scores["pserver"]), 1000)
        for a, b in zip(scores["pserver"], scores["collective"]):
            self.assertAlmostEqual(a, b, places=4)

    def test_nccl_is_refused_where_workers_compute_on_the_cpu(self):
        _, out = self.launch(SYNC, COLLECTIVE, "--set=strategy.sync_configs.engine=NCCL", "--epochs=1", "--worker_num=2",
                             "--server_num=1", name="nccl", expect=1)
        self.assertIn("strategy.sync_configs.engine NCCL", out)

    def test_other_modes_refuse_it_and_say_why(self):
        for flags in (("--a_sync=true",), ("--a_sync=true", "--k_steps=10")):
            _, out = self.launch(COLLECTIVE, *flags, name="refused", expect=2)
            self.assertIn("strategy.sync_configs.dense", out)


if __name__ == "__main__":
    unittest.main()
