"""`sluice predict`, evaluate-only jobs and warm starts agree with the training job's own evaluation."""
import gzip
import json
import math
import os
import signal
import subprocess
import threading
import unittest

from sluice_testing import (ADULT, ADULT_TEST_EXAMPLES, BIN, PATIENCE, ROOT, TIME_SCALE, SluiceTest, processes_naming,
                            wait_until)

TEST_DATA = ROOT / "data" / "adult" / "adult.test.gz"


def labels(text):
    return [1 if ">50K" in line else 0 for line in text.splitlines() if line and not line.startswith("|")]


def area_under_curve(scores, truth):
    """The AUC by ranks. Equal scores share their mean rank, so ties count half."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    ranks, i = 0.0, 0
    while i < len(order):
        j = i
        while j < len(order) and scores[order[j]] == scores[order[i]]:
            j += 1
        ranks += sum(truth[k] for k in order[i:j]) * (i + j + 1) / 2
        i = j
    positives = sum(truth)
    return (ranks - positives * (positives + 1) / 2) / (positives * (len(truth) - positives))


def log_loss(scores, truth):
    return -math.fsum(math.log(s) if t else math.log1p(-s) for s, t in zip(scores, truth)) / len(truth)


class PredictTest(SluiceTest):
    def predict(self, model, data, name="scores", workers=1, expect=0, flags=()):
        """Returns the bytes of the output and the printed text."""
        done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % data,
                                "--output=%s" % (self.tmp / name), "--worker_num=%d" % workers, "--overwrite", *flags)
        self.assertEqual(done.returncode, expect, done.stdout)
        return (self.tmp / name).read_bytes(), done.stdout

    def test_scores_agree_with_the_evaluation(self):
        first, _ = self.launch("--epochs=1", name="first")
        model = self.tmp / "first" / "model"
        self.assertEqual(first["model_dir"], str(model))
        text = gzip.open(TEST_DATA, "rt").read()
        truth = labels(text)
        one, said = self.predict(model, TEST_DATA)
        self.assertIn("scored 16,281 examples", said)
        scores = [float(line) for line in one.decode().splitlines()]
        self.assertEqual(len(scores), ADULT_TEST_EXAMPLES)
        self.assertTrue(all(0 < s < 1 for s in scores))
        self.assertLessEqual(abs(area_under_curve(scores, truth) - first["eval"]["auc"]), 1e-4)
        self.assertLessEqual(abs(log_loss(scores, truth) - first["eval"]["log_loss"]), 1e-6)
        accuracy = sum((s >= 0.5) == (t == 1) for s, t in zip(scores, truth)) / len(truth)
        self.assertLessEqual(abs(accuracy - first["eval"]["accuracy"]), 1e-6)

        for workers in (2, 3, 7):
            self.assertEqual(self.predict(model, TEST_DATA, "scores%d" % workers, workers)[0], one)
        plain = self.tmp / "adult.test"
        plain.write_text(text)
        self.assertEqual(self.predict(model, plain, "plain", 3)[0], one)
        # Scores follow the input: lines in reverse give the scores in reverse.
        backward = self.tmp / "backward"
        backward.write_text("\n".join(reversed([l for l in text.splitlines() if l and not l.startswith("|")])) + "\n")
        self.assertEqual(self.predict(model, backward, "back", 2)[0].splitlines(), one.splitlines()[::-1])

        # A job that only evaluates measures the same numbers, on another number of processes too.
        again, said = self.launch("--set=evaluate_only=true", "--set=initial_model=%s" % model, "--worker_num=3",
                                  "--server_num=1", name="again")
        self.assertIn("adult-1: done, evaluated 16,281 examples\n", said)
        self.assertNotIn("epoch", said.split("effective configuration", 1)[1].split("adult-1: ", 1)[1])
        self.assertEqual(again["eval"], first["eval"])
        self.assertEqual((again["epochs"], again["examples"], again["status"]), (0, 0, "done"))

        # A warm start continues where the first job ended.
        warm, _ = self.launch("--epochs=1", "--set=initial_model=%s" % model, name="warm")
        self.assertLess(warm["epochs_log"][0]["loss"], first["epochs_log"][0]["loss"] - 0.02)
        self.assertNotEqual(warm["model_digest"], first["model_digest"])

    def test_data_without_labels_and_malformed_rows(self):
        self.write_csv("train.csv", [(i % 2, i % 7, "ab"[i % 2]) for i in range(200)])
        result, _ = self.launch("--worker_num=1", "--server_num=1", job=self.small_job(train="train.csv"))
        model = result["model_dir"]
        self.write_csv("labelled.csv", [(1, 3, "b"), (0, 4, "a")])
        self.write_csv("bare.csv", [("b", 3), ("a", 4)], header="c,x")
        expected, _ = self.predict(model, self.tmp / "labelled.csv")
        self.assertEqual(self.predict(model, self.tmp / "bare.csv")[0], expected)
        bad = self.write_csv("bad.csv", [("b", 3), ("b", "three"), ("a", 4), ("a",), ("b", 3)], header="c,x")
        b, a = expected.decode().split()
        self.assertNotEqual(a, b)
        for workers in (1, 2, 3, 5):
            scores, said = self.predict(model, bad, workers=workers, flags=["--max_bad_lines=2"])
            self.assertEqual(scores.decode().split(), [b, "nan", a, "nan", b])
            self.assertRegex(said, r"\b2 lines .*\bnan\b")
            self.assertIn("%s:3: " % bad, said)
            self.assertIn("\"three\"", said)
            # An error leaves the output as it was.
            (self.tmp / "scores").write_text("earlier")
            again, said = self.predict(model, bad, workers=workers, expect=1)
            self.assertEqual(again, b"earlier")
            self.assertIn("%s:3: " % bad, said)
            self.assertRegex(said, r"data\.max_bad_lines .*\b0\b")
            again, said = self.predict(model, bad, workers=workers, expect=1, flags=["--max_bad_lines=1"])
            self.assertEqual(again, b"earlier")
            self.assertIn("--max_bad_lines 1", said)
        words = self.write_csv("words.csv", [("b", "three")] * 3, header="c,x")
        for workers in (1, 2):
            scores, said = self.predict(model, words, workers=workers, expect=1, flags=["--max_bad_lines=9"])
            self.assertEqual(scores, b"earlier")
            self.assertIn("\"three\"", said)
        # Data without lines must not make an empty output, either.
        none = self.write_csv("none.csv", [], header="c,x")
        (self.tmp / "empty.csv").write_text("")
        for workers, data in ((1, none), (2, none), (1, self.tmp / "empty.csv"), (1, "-")):
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % data, "--overwrite",
                                    "--output=%s" % (self.tmp / "scores"), "--worker_num=%d" % workers,
                                    stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertEqual((self.tmp / "scores").read_bytes(), b"earlier")
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % data,
                                    "--output=%s" % (self.tmp / "new"), stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertFalse((self.tmp / "new").exists())
        # A file that is named twice is scored twice, with a note.
        twice, said = self.predict(model, "%s,%s" % (self.tmp / "labelled.csv", self.tmp / "labelled.*"))
        self.assertEqual(twice, 2 * expected)
        self.assertIn("labelled.csv 2 times", said)

    def small_model(self):
        self.write_csv("train.csv", [(i % 2, i % 7, "ab"[i % 2]) for i in range(200)])
        return self.launch("--worker_num=1", "--server_num=1", job=self.small_job(train="train.csv"))[0]["model_dir"]

    def test_lines_that_begin_at_a_border_of_pieces_are_scored_once(self):
        # With lines of 8 bytes, the borders of pieces of 1 MiB fall between two lines.
        model, lines = self.small_model(), 200000
        data = self.tmp / "data.csv"
        data.write_text("x,c,pad\n" + "".join("%d,%s,pad\n" % (i * i % 7, "ab"[i % 3 == 0]) for i in range(lines - 1)))
        self.assertEqual(data.stat().st_size, 8 * lines)
        expected = self.predict(model, data)[0]
        self.assertEqual(len(expected.splitlines()), lines - 1)
        packed = self.tmp / "data.csv.gz"
        packed.write_bytes(gzip.compress(data.read_bytes(), 1))
        for workers in (2, 3, 7):
            self.assertTrue(self.predict(model, data, workers=workers)[0] == expected, workers)
            self.assertTrue(self.predict(model, packed, workers=workers)[0] == expected, workers)

    def test_pipes_stay_pipes_and_links_stay_links(self):
        model = self.small_model()
        data = self.write_csv("data.csv", [(i % 7, "ab"[i % 2]) for i in range(3000)], header="x,c")
        expected = self.predict(model, data)[0]
        self.assertEqual(len(expected.splitlines()), 3000)
        before = sorted(os.listdir(self.tmp))
        for workers in (1, 3):
            # A named pipe, and stdout as a pipe, receive nothing but scores.
            fifo = self.tmp / "fifo"
            os.mkfifo(fifo)
            read = []
            reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
            reader.start()
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % data,
                                    "--output=%s" % fifo, "--worker_num=%d" % workers)
            self.assertEqual(done.returncode, 0, done.stdout)
            reader.join(PATIENCE * TIME_SCALE)
            self.assertTrue(read == [expected], "%d reads" % len(read))
            self.assertTrue(fifo.is_fifo())
            fifo.unlink()
            piped = subprocess.run([str(BIN / "sluice"), "predict", "--model=%s" % model, "--data=%s" % data,
                                    "--output=/dev/stdout", "--worker_num=%d" % workers],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * PATIENCE * TIME_SCALE)
            self.assertEqual(piped.returncode, 0, piped.stderr)
            self.assertTrue(piped.stdout == expected, piped.stdout[-200:])
            self.assertIn(b"scored 3,000 examples", piped.stderr)
            # A link still points at the file, which has the scores.
            (self.tmp / "there").mkdir()
            link = self.tmp / "link"
            link.symlink_to("there/scores")
            self.assertEqual(self.predict(model, data, "link", workers)[0], expected)
            self.assertTrue(link.is_symlink())
            self.assertEqual(os.listdir(self.tmp / "there"), ["scores"])
            link.unlink()
            (self.tmp / "there" / "scores").unlink()
            (self.tmp / "there").rmdir()
        self.assertEqual(sorted(os.listdir(self.tmp)), before)

    def start_predict(self, model, data, workers):
        """Starts predict in the background with output in tmp/out; returns once it has written scores."""
        program = self.start("sluice", "predict", "--model=%s" % model, "--data=%s" % data, "--overwrite",
                             "--output=%s" % (self.tmp / "out"), "--worker_num=%d" % workers, log="predict.log")
        written = self.tmp / ("out.%d.unfinished" % program.pid)
        wait_until(lambda: written.exists() and written.stat().st_size > 0, "unfinished scores")
        return program

    def test_data_that_changes_while_it_is_scored_leaves_the_output_as_it_was(self):
        model = self.small_model()
        data = self.tmp / "data.csv"
        (self.tmp / "out").write_text("earlier")
        (self.tmp / "predict.log").write_text("")
        before = sorted(os.listdir(self.tmp) + [data.name])
        for workers in (1, 3):
            data.write_text("x,c\n" + "1,a\n" * 5000000)
            program = self.start_predict(model, data, workers)
            os.truncate(data, 4 + 4 * 1000)
            self.assertEqual(self.exit_code(program), 1)
            self.assertIn(str(data), (self.tmp / "predict.log").read_text())
            self.assertEqual((self.tmp / "out").read_text(), "earlier")
            self.assertEqual(sorted(os.listdir(self.tmp)), before)

    def test_a_killed_run_leaves_the_output_as_it_was(self):
        model = self.small_model()
        data = self.tmp / "data.csv"
        data.write_text("x,c\n" + "1,a\n" * 5000000)
        for workers in (1, 3):
            (self.tmp / "out").write_text("earlier")
            program = self.start_predict(model, data, workers)
            program.kill()
            program.wait()
            self.assertEqual((self.tmp / "out").read_text(), "earlier")
            self.assertEqual(processes_naming(str(self.tmp)), [])

    def test_the_next_run_removes_files_of_a_killed_one(self):
        model = self.small_model()
        data = self.tmp / "data.csv"
        data.write_text("x,c\n" + "1,a\n" * 5000000)
        small = self.write_csv("small.csv", [(1, "a")], header="x,c")
        for workers in (1, 3):
            program = self.start_predict(model, data, workers)
            program.send_signal(signal.SIGSTOP)  # neither may end first
            living = self.start_predict(model, data, 1)
            living.send_signal(signal.SIGSTOP)
            program.kill()
            program.wait()
            left = sorted(path.name for path in self.tmp.glob("out.*"))
            self.assertEqual(left, sorted("out.%d.unfinished" % run.pid for run in (program, living)))
            self.predict(model, small, "out", workers)
            self.assertEqual([path.name for path in self.tmp.glob("out.*")], ["out.%d.unfinished" % living.pid])
            living.terminate()
            living.send_signal(signal.SIGCONT)
            self.exit_code(living)
            self.assertEqual(list(self.tmp.glob("out.*")), [])

    def test_a_full_disk_or_a_folder_without_access_leaves_the_output_as_it_was(self):
        model = self.small_model()
        data = self.tmp / "data.csv"
        data.write_text("x,c\n" + "1,a\n" * 1000000)
        (self.tmp / "scores").write_text("earlier")
        before = sorted(os.listdir(self.tmp))
        for workers in (1, 3):
            command = [str(BIN / "sluice"), "predict", "--model=%s" % model, "--data=%s" % data, "--overwrite",
                       "--worker_num=%d" % workers]
            # A limit of the file's size fails as a full disk does: a write in the middle of the scores.
            done = subprocess.run(["prlimit", "--fsize=%d" % (5 << 20)] + command + ["--output=%s" % (self.tmp / "scores")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, restore_signals=False,
                                  timeout=2 * PATIENCE * TIME_SCALE)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(b"scores", done.stdout)
            self.assertEqual((self.tmp / "scores").read_text(), "earlier")
            done = self.run_program(*["sluice"] + command[1:], "--output=/dev/full")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("/dev/full", done.stdout)
            done = self.run_program(*["sluice"] + command[1:], "--output=%s" % (self.tmp / "none" / "scores"))
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertEqual(sorted(os.listdir(self.tmp)), before)

    def test_nothing_is_left_after_a_failure_or_a_signal(self):
        model = self.small_model()
        # Enough rows that the signal comes before all are scored.
        data = self.tmp / "data.csv"
        data.write_text("x,c\n" + "1,a\n" * 5000000)
        before = sorted(os.listdir(self.tmp))
        for workers in (1, 3):
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % (self.tmp / "none.csv"),
                                    "--output=%s" % (self.tmp / "out"), "--worker_num=%d" % workers)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertEqual(sorted(os.listdir(self.tmp)), before)
            # Interrupt it as soon as it writes.
            program = subprocess.Popen([str(BIN / "sluice"), "predict", "--model=%s" % model, "--data=%s" % data,
                                        "--output=%s" % (self.tmp / "out"), "--worker_num=%d" % workers],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._started.append(program)
            wait_until(lambda: sorted(os.listdir(self.tmp)) != before, "an unfinished file")
            program.send_signal(signal.SIGTERM)
            self.assertEqual(self.exit_code(program), 128 + signal.SIGTERM)
            self.assertEqual(sorted(os.listdir(self.tmp)), before)


if __name__ == "__main__":
    unittest.main()
