"""With uneven data, every run succeeds and counts every example exactly once per epoch, in each mode."""
import unittest

from sluice_testing import SluiceTest

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=3"],
         "collective": ["--a_sync=false", "--set=strategy.sync_configs.dense=COLLECTIVE"]}
SYNC = ("sync", "collective")
EPOCHS = 2
PER_RANK = "assignment: PER_RANK_FILES"
DROP_LAST = "drop_last: true"


class UnevenDataTest(SluiceTest):
    def write(self, *sizes):
        """Writes train0.csv, train1.csv, ... with these numbers of examples."""
        for old in self.tmp.glob("train*.csv"):
            old.unlink()
        for number, size in enumerate(sizes):
            self.write_csv("train%d.csv" % number, [(i % 2, i * 0.1, "abcdefg"[i % 7]) for i in range(size)])

    def train(self, name, data_extra="", batch_size=8, workers=2):
        """Runs the job in each mode and yields (mode, result)."""
        job = self.small_job(data_extra=data_extra)
        for mode, flags in MODES.items():
            with self.subTest(mode=mode):
                result, _ = self.launch("--server_num=2", "--worker_num=%d" % workers, "--batch_size=%d" % batch_size,
                                        *flags, job=job, name="%s.%s" % (name, mode))
                self.assertEqual((result["status"], result["mode"], result["epochs"]),
                                 ("done", "sync" if mode in SYNC else mode, EPOCHS))
                yield mode, result

    def assert_counted(self, result, examples, dropped=0):
        """Checks that each epoch has `examples`, less the dropped ones."""
        self.assertEqual(result["examples"] + result["examples_dropped"], examples * EPOCHS)
        self.assertEqual(result["examples_dropped"], dropped * EPOCHS)
        self.assertEqual(result["examples_replayed"], 0)
        self.assertEqual([e["examples"] for e in result["epochs_log"]], [examples - dropped] * EPOCHS)

    def test_worker_without_data(self):
        self.write(100)
        for mode, result in self.train("none", PER_RANK, workers=3):
            self.assert_counted(result, 100)
            if mode != "geo":
                self.assertEqual(result["global_step"], 13 * EPOCHS)

    def test_worker_with_a_tenth_of_the_data(self):
        self.write(20, 200, 200)
        for mode, result in self.train("tenth", PER_RANK, workers=3):
            self.assert_counted(result, 420)
            if mode in SYNC:
                self.assertEqual(result["global_step"], 25 * EPOCHS)

    def test_files_go_to_ranks_in_turn(self):
        self.write(30, 1, 0, 17, 90)
        for _, result in self.train("turn", PER_RANK, workers=2):
            self.assert_counted(result, 138)

    def test_batch_size_that_does_not_divide(self):
        self.write(103, 52)
        for mode, result in self.train("odd", batch_size=7, workers=3):
            self.assert_counted(result, 155)  # the last global batch of 8: 2, 3 and 3
            if mode in SYNC:
                self.assertEqual(result["global_step"], 8 * EPOCHS)

    def test_drop_last_drops_the_short_batch(self):
        self.write(101, 52)
        # Sync drops the last global batch of 14. Other modes drop the last batch of each task, here one per file.
        dropped = {"sync": 153 % 14, "collective": 153 % 14, "async": 101 % 7 + 52 % 7, "geo": 101 % 7 + 52 % 7}
        for mode, result in self.train("drop", DROP_LAST, batch_size=7):
            self.assert_counted(result, 153, dropped[mode])

    def test_drop_last_with_files_by_rank(self):
        self.write(50, 3, 23)
        for _, result in self.train("droprank", PER_RANK + " " + DROP_LAST, batch_size=8, workers=3):
            self.assert_counted(result, 76, 50 % 8 + 3 + 23 % 8)

    def test_drop_last_drops_nothing_when_the_batch_size_divides(self):
        self.write(56, 28)
        for _, result in self.train("even", DROP_LAST, batch_size=7):
            self.assert_counted(result, 84)

    def test_fewer_examples_than_workers(self):
        self.write(3)
        for mode, result in self.train("few", workers=5):
            self.assert_counted(result, 3)
            if mode in SYNC:
                self.assertEqual(result["global_step"], EPOCHS)

    def test_empty_file_among_others(self):
        self.write(0, 40, 0)
        (self.tmp / "train3.csv").write_text("")
        for _, result in self.train("empty"):
            self.assert_counted(result, 40)

    def test_one_example(self):
        self.write(1)
        for _, result in self.train("one"):
            self.assert_counted(result, 1)

    def test_many_small_tasks(self):
        self.write(300, 211)
        for _, result in self.train("tasks", "task_bytes: 1024", workers=4):
            self.assert_counted(result, 511)

    def test_data_without_examples_is_refused_and_named(self):
        self.write(0, 0)
        job = self.small_job()
        for mode, flags in MODES.items():
            _, output = self.launch(*flags, job=job, name="nothing." + mode, expect=2)
            self.assertIn("data.train_files", output)

    def test_drop_last_that_leaves_nothing_is_refused_and_named(self):
        self.write(5)
        job = self.small_job(data_extra=DROP_LAST)
        for mode, flags in MODES.items():
            _, output = self.launch(*flags, job=job, name="nothing." + mode, expect=1)
            self.assertIn("data.drop_last", output)


class EvalTest(SluiceTest):
    def test_metrics_do_not_depend_on_the_number_of_workers(self):
        self.launch("--epochs=1", "--a_sync=false", name="trained")
        evals = []
        for workers in (1, 4):
            result, _ = self.launch("--worker_num=%d" % workers, "--set=evaluate_only=true",
                                    "--set=initial_model=%s" % (self.tmp / "trained" / "model"),
                                    name="eval%d" % workers)
            self.assertEqual(result["status"], "done")
            self.assertEqual(result["examples"], 0)
            evals.append(result["eval"])
        self.assertEqual(evals[0], evals[1])
        self.assertEqual(evals[0]["examples"], 16281)
        self.assertGreater(evals[0]["auc"], 0.9)

    def test_small_evaluation_files_are_dealt_out_whole(self):
        rows = [(i % 2, i * 0.1, "abc"[i % 3]) for i in range(30)]
        self.write_csv("train.csv", rows)
        self.write_csv("eval0.csv", rows[:3])
        self.write_csv("eval1.csv", [])
        self.write_csv("eval2.csv", rows[3:4])
        job = self.small_job(evaluation="eval*.csv")
        for workers in (1, 2, 7):
            result, _ = self.launch("--a_sync=false", "--worker_num=%d" % workers, job=job, name="w%d" % workers)
            self.assertEqual(result["eval"]["examples"], 4)


if __name__ == "__main__":
    unittest.main()
