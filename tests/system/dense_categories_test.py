"""Features with `dense: true` train in every mode, on pservers and on workers, as well as the sparse table does."""
import gzip
import math
import os
import signal
import unittest

from sluice_testing import ADULT, ADULT_TEST_EXAMPLES, ADULT_TRAIN_EXAMPLES, ROOT, DisturbedLaunchTest

COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
SGD = "--set=optimizers.all={sgd {} learning_rate: 0.05}"
TABLES = 10  # embedding, wide/embedding, three layers, wide/weight and wide/bias
STEPS = 128  # an epoch with a global batch of 256
TEST_DATA = ROOT / "data" / "adult" / "adult.test.gz"


def adult_job(dense):
    """The job for Adult with bounded categories; with `dense`, in dense tables."""
    flag = "dense: true" if dense else ""
    text = ADULT.read_text().replace('"../data', '"%s/data' % ROOT)
    text = text.replace("keep_numeric: true\n", "keep_numeric: true %s\n" % flag)
    text = text.replace('name: "sex" categorical {', 'name: "sex" categorical { vocabulary: ["Female", "Male"] %s' % flag)
    text = text.replace('name: "race" categorical {', 'name: "race" categorical { vocabulary: ["White", "Black"] %s' % flag)
    lines = []
    for line in text.splitlines():
        if "categorical {" in line and "vocabulary" not in line:
            line = line.replace("categorical {", "categorical { hash_buckets: 60 %s" % flag)
        if "cross {" in line:
            line = line.replace("cross {", "cross { hash_buckets: 400 %s" % flag)
        lines.append(line)
    return "\n".join(lines) + "\n"


class DenseCategoriesTest(DisturbedLaunchTest):
    def setUp(self):
        super().setUp()
        self.jobs = {}
        for dense in (True, False):
            self.jobs[dense] = self.tmp / ("dense.textproto" if dense else "sparse.textproto")
            self.jobs[dense].write_text(adult_job(dense))

    def train(self, name, *flags, dense=True, workers=2, epochs=1):
        result, _ = self.launch("--epochs=%d" % epochs, "--worker_num=%d" % workers, "--batch_size=%d" % (256 // workers),
                                "--server_num=2", "--threads=1", *flags, job=self.jobs[dense], name=name)
        self.assertEqual(result["status"], "done")
        return result

    def sync(self, name, *flags, **kwargs):
        result = self.train(name, "--a_sync=false", *flags, **kwargs)
        self.assertEqual(result["mode"], "sync")
        return result

    def test_tables_of_workers_equal_tables_of_pservers(self):
        mixed = ("--set=optimizers.wide={ftrl { l1: 0.0001 } learning_rate: 0.05}",
                 "--set=optimizers.embedding={momentum {} learning_rate: 0.02 weight_decay: 0.001}")
        for name, flags in (("adam", ()), ("mixed", mixed)):
            pserver = self.sync(name + ".p", *flags)
            for workers in (1, 2, 4):
                with self.subTest(name, workers=workers):
                    collective = "%s.c%d" % (name, workers)
                    result = self.sync(collective, COLLECTIVE, *flags, workers=workers)
                    self.assert_models_close(name + ".p", collective, tables=TABLES)
                    self.assertEqual(result["examples"], pserver["examples"])
                    self.assertAlmostEqual(result["eval"]["auc"], pserver["eval"]["auc"], places=5)

    def test_workers_and_pservers_change_nothing(self):
        self.sync("w1", workers=1)
        self.sync("w4", "--server_num=3", workers=4)
        self.assert_models_close("w1", "w4", tables=TABLES)

    def test_two_runs_are_equal_to_the_bit(self):
        for flags in ((), (COLLECTIVE,)):
            with self.subTest(flags):
                name = "run%d" % len(flags)
                first = self.sync(name, *flags)
                again = self.sync(name + "again", "--set=train.reader_threads=2", "--server_num=1", *flags)
                self.assertEqual(first["model_digest"], again["model_digest"])
                self.assertEqual(first["eval"], again["eval"])

    # Without moments and decay, rows that a step does not use stay as they are, as those of the sparse table do. All
    # embeddings start from one value, since those of a table start by position and those of a row by key.
    def test_sgd_gives_the_results_of_the_sparse_table(self):
        flags = (SGD, "--set=model.wide_deep.embedding_initializer={constant: 0.01}")
        sparse = self.sync("sparse", *flags, dense=False, epochs=2)
        for name, more in (("pserver", ()), ("collective", (COLLECTIVE,))):
            with self.subTest(name):
                dense = self.sync(name, *flags, *more, epochs=2)
                for figure in ("auc", "log_loss", "accuracy"):
                    self.assertAlmostEqual(dense["eval"][figure], sparse["eval"][figure], places=4, msg=figure)

    def test_async_and_geo_are_as_good_as_the_sparse_table(self):
        sparse = self.sync("sparse", dense=False, epochs=2)["eval"]["auc"]
        self.assertGreater(sparse, 0.89)
        for name, flags in (("sync", ("--a_sync=false",)), ("async", ("--a_sync=true",)),
                            ("deep_async", ("--a_sync=true", "--set=train.pipeline_depth=3")),
                            ("geo", ("--a_sync=true", "--k_steps=10"))):
            with self.subTest(name):
                result = self.train(name, *flags, epochs=2)
                self.assertGreater(result["eval"]["auc"], sparse - 0.01)
                self.assertNotIn("hot_rows", result)

    def test_scores_agree_with_the_evaluation(self):
        for name, flags in (("pserver", ()), ("collective", (COLLECTIVE,))):
            with self.subTest(name):
                trained = self.sync(name, *flags)
                model = self.tmp / name / "model"
                output = self.tmp / (name + ".scores")
                done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % TEST_DATA,
                                        "--output=%s" % output)
                self.assertEqual(done.returncode, 0, done.stdout)
                scores = [float(line) for line in output.read_text().splitlines()]
                truth = [">50K" in line for line in gzip.open(TEST_DATA, "rt").read().splitlines()
                         if line and not line.startswith("|")]
                self.assertEqual((len(scores), len(truth)), (ADULT_TEST_EXAMPLES,) * 2)
                loss = -math.fsum(math.log(s) if t else math.log1p(-s) for s, t in zip(scores, truth)) / len(truth)
                self.assertLessEqual(abs(loss - trained["eval"]["log_loss"]), 1e-6)
                again = self.train(name + "eval", "--set=evaluate_only=true", "--set=initial_model=%s" % model, workers=1)
                self.assertEqual(again["eval"], trained["eval"])

    def test_a_resumed_job_ends_with_the_bits_of_one_that_never_stopped(self):
        for name, flags in (("pserver", ()), ("collective", (COLLECTIVE,))):
            with self.subTest(name):
                whole = self.sync(name + ".whole", *flags, epochs=3)
                self.sync(name, *flags, "--set=checkpoint.every_epochs=1", epochs=2)
                result = self.sync(name, *flags, "--resume", epochs=3)
                self.assertNotEqual(result["recovery"]["resumed_from"], "")
                self.assertEqual(result["model_digest"], whole["model_digest"])
                folder = next((self.tmp / name / "checkpoints").glob("step-*"))
                verified = self.run_program("sluice", "ckpt", "verify", str(folder))
                self.assertEqual(verified.returncode, 0, verified.stdout)

    def test_without_pservers_the_bits_are_those_with_them(self):
        expected = self.sync("with", COLLECTIVE, epochs=3)
        without = ("--server_num=0",)
        self.sync("without", *without, "--set=checkpoint.every_epochs=1", epochs=2)
        result = self.sync("without", *without, "--resume", epochs=3)
        self.assertEqual({e.role for e in self.endpoints("without")} & {"worker", "pserver"}, {"worker"})
        self.assertNotEqual(result["recovery"]["resumed_from"], "")
        self.assertEqual(result["model_digest"], expected["model_digest"])
        self.assertEqual(result["eval"], expected["eval"])
        scores = {}
        for name in ("with", "without"):
            output = self.tmp / (name + ".scores")
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / name / "model"), "--data=%s" % TEST_DATA,
                                    "--output=%s" % output)
            self.assertEqual(done.returncode, 0, done.stdout)
            scores[name] = output.read_text()
        self.assertEqual(scores["with"].count("\n"), ADULT_TEST_EXAMPLES)
        self.assertEqual(scores["without"], scores["with"])

    # No pserver has a shard of such a job. The first one closes its steps.
    def test_lost_members_of_a_collective_job_change_no_bit(self):
        flags = ("--a_sync=false", COLLECTIVE, "--epochs=6", "--worker_num=2", "--batch_size=128", "--server_num=2",
                 "--threads=1", "--set=checkpoint.every_steps=20")
        expected, _ = self.launch(*flags, job=self.jobs[True], name="undisturbed")
        for role, rank in (("worker", 1), ("pserver", 0)):
            name = "%s%d" % (role, rank)
            with self.subTest(name):
                launcher = self.start_launch(*flags, job=self.jobs[True], name=name)
                self.await_step(launcher, self.random.randrange(30, 2 * STEPS), name)
                os.kill(self.pid_of(role, rank, name), signal.SIGKILL)
                result = self.result(launcher, name)
                self.assertEqual(result["status"], "done")
                self.assertEqual(result["model_digest"], expected["model_digest"])
                self.assertEqual(result["recovery"]["%s_losses" % role], 1)

    def test_a_collective_job_shrinks(self):
        launcher = self.start_launch("--a_sync=false", COLLECTIVE, "--epochs=6", "--worker_num=3", "--batch_size=64",
                                     "--server_num=1", "--threads=1", "--set=checkpoint.every_steps=20",
                                     "--set=strategy.sync_configs.on_worker_loss=SHRINK", job=self.jobs[True], name="shrink")
        self.await_step(launcher, 60, "shrink")
        os.kill(self.pid_of("worker", 2, "shrink"), signal.SIGKILL)
        result = self.result(launcher, "shrink")
        self.assertEqual(result["status"], "done")
        self.assertEqual(result["examples"], 6 * ADULT_TRAIN_EXAMPLES)

    def test_a_sparse_model_is_refused_as_a_start(self):
        self.sync("sparse", dense=False)
        _, out = self.launch("--set=initial_model=%s" % (self.tmp / "sparse" / "model"), job=self.jobs[True],
                             name="refused", expect=None)
        self.assertIn("dense", out)
        self.assertIn("embedding", out)
        self.assertFalse((self.tmp / "refused" / "model").exists())

    def test_some_dense_and_some_sparse_features_are_refused_with_the_field(self):
        text = self.jobs[True].read_text().replace('"education" categorical { hash_buckets: 60 dense: true',
                                                   '"education" categorical { hash_buckets: 60')
        mixed = self.tmp / "mixed.textproto"
        mixed.write_text(text)
        _, out = self.launch(job=mixed, name="mixed", expect=2)
        self.assertIn(".categorical.dense", out)
        self.assertIn("'education'", out)

    def test_plan_measures_a_dense_job(self):
        done = self.run_program("sluice", "plan", "--job=%s" % self.jobs[True], "--measure_s=2")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("\nbest: ", done.stdout)


if __name__ == "__main__":
    unittest.main()
