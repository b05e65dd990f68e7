"""sluice.launch, sluice.predict and the command of the wheel, on a stand-in for the program `sluice`."""
import contextlib
import io
import json
import math
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import threading
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import sluice  # noqa: E402
from sluice import _command, _job, _launch, _private, _programs  # noqa: E402

# Writes its arguments into a file, and then does what a test says. `tell` writes a status into the pipe.
STAND_IN = """#!%s
import json, os, signal, sys, time
arguments = sys.argv[1:]
json.dump(arguments, open(%r, "w"))
flags = dict(word[2:].split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
def tell(state, **more):
    status = dict(job_id="adult-1", state=state, message="", phase="train", epoch=1, epochs=2, global_step=3, examples=30,
                  examples_per_second=10.0, loss=0.5, epochs_log=[], workers_alive=2, worker_num=2, eta_s=0,
                  config={"output_dir": %r})
    os.write(int(flags["progress_fd"]), json.dumps({**status, **more}).encode() + b"\\n")
def result(status, **more):
    json.dump({"status": status, "message": "", "examples": 60, "seconds": 1.5, "model_dir": "/out/model", **more},
              open(os.path.join(%r, "result.json"), "w"))
%s
"""
EPOCH = {"epoch": 1, "examples": 30, "seconds": 0.5, "loss": 0.4, "eval": {"examples": 10, "auc": 0.75, "log_loss": 0.3}}
DONE = "tell('running')\nresult('done', eval=%r, epochs_log=[%r])\ntell('done', epochs_log=[%r])" % (EPOCH["eval"], EPOCH, EPOCH)
WAITS = """
def stop(number, frame):
    result("cancelled")
    tell("cancelled")
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
tell("running")
time.sleep(60)
"""


class StandInTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patch = mock.patch.object(_programs, "_FOLDERS", (self.folder,))
        patch.start()
        self.addCleanup(patch.stop)

    def stand_in(self, does):
        program = self.folder / "sluice"
        folder = str(self.folder)
        program.write_text(STAND_IN % (sys.executable, folder + "/arguments", folder, folder, does))
        program.chmod(0o755)

    def arguments(self):
        return json.loads((self.folder / "arguments").read_text())

    def launch(self, does, job="adult.textproto", **more):
        self.stand_in(does)
        run = sluice.launch(job, **{"show": False, **more})
        self.addCleanup(run.__exit__, None, None, None)
        return run


class Ranks:
    """Rank 1 of 2, whose rank 0 has this folder."""
    rank, size = 1, 2

    def __init__(self, folder):
        self.share = lambda _: str(folder)

    def await_all(self):
        pass


class PrivateClusterTest(StandInTest):
    def test_a_rank_whose_rank_0_was_killed_ends(self):
        (self.folder / "alive").touch()  # without a lock: it has gone with its process
        signal.alarm(60)
        self.addCleanup(signal.alarm, 0)
        with self.assertRaisesRegex(sluice.JobError, "rank 0 has ended"):
            _private.PrivateCluster(False, Ranks(self.folder))

    def test_rank_0_that_gives_up_ends_the_launcher(self):
        self.stand_in("try:\n    while True: tell('running'); time.sleep(0.05)\nexcept BrokenPipeError: os._exit(7)")
        looks, clusters = [], []

        def look(cluster, listener):
            looks.append(_private._is_locked(os.path.join(cluster._folder, "alive")))
            clusters.append(cluster)
            raise KeyboardInterrupt

        closed = []
        close = os.close
        with mock.patch.object(_private.PrivateCluster, "_accept", look), mock.patch.object(
                _private.os, "close", lambda file: (closed.append(threading.current_thread().name), close(file))), \
                self.assertRaises(KeyboardInterrupt):
            _private.PrivateCluster(False)
        self.assertEqual(looks, [True])
        self.assertEqual(clusters[0]._launcher.wait(60), 7)
        # Only the thread that reads the launcher's statuses closes the pipe.
        self.assertEqual(closed.count("sluice-launcher"), 1)
        self.assertFalse(os.path.exists(clusters[0]._folder))


class LaunchTest(StandInTest):
    def test_keywords_become_flags(self):
        self.launch(DONE, server_num=1, worker_num=2, a_sync=False, k_steps=0, resume=True, output=pathlib.Path("out"),
                    log_dir="logs", batch_size=512, tls=True, set={"train.log_every": 10, "eval.every_epochs": 2}).wait()
        words = [word for word in self.arguments() if not word.startswith("--progress_fd=")]
        self.assertEqual(words, [
            "launch", "--job=adult.textproto", "--server_num=1", "--worker_num=2", "--a_sync=false", "--k_steps=0",
            "--resume=true", "--output_dir=out", "--log_dir=logs", "--progress=plain", "--batch_size=512", "--tls=true",
            "--set=train.log_every=10", "--set=eval.every_epochs=2"])

    def test_a_program_runs_with_this_interpreter_and_its_arguments(self):
        self.launch(DONE, job=None, program="train.py", args=["--lr", "0.1"]).wait()
        words = self.arguments()
        self.assertIn("--python=" + sys.executable, words)
        self.assertEqual(words[-3:], ["--", "--lr", "0.1"])

    def test_the_result_is_that_of_the_job(self):
        result = self.launch(DONE).wait()
        self.assertEqual((result.status, result.auc, result.log_loss, result.model_dir), ("done", 0.75, 0.3, "/out/model"))
        self.assertEqual([(epoch.epoch, epoch.auc) for epoch in result.epochs_log], [(1, 0.75)])
        self.assertEqual(result.output_dir, str(self.folder))
        self.assertEqual(result.raw["seconds"], 1.5)

    def test_progress_is_handed_out_and_ends_with_the_job(self):
        told = []
        run = self.launch(DONE, on_progress=told.append)
        seen = list(run.progress)
        self.assertEqual(seen[-1].state, "done")
        self.assertEqual((told[-1].state, told[-1].epoch, told[-1].step, told[-1].loss), ("done", 1, 3, 0.5))
        self.assertEqual(run.progress.last.auc, 0.75)
        self.assertEqual(run.job_id, "adult-1")

    def test_a_metric_that_nobody_has_computed_is_nan(self):
        first = next(iter(self.launch(WAITS).progress))
        self.assertEqual(first.state, "running")
        self.assertTrue(math.isnan(first.auc))

    def test_a_slow_callback_gets_the_newest_status_and_holds_nobody_up(self):
        told, go_on = [], threading.Event()

        def slow(progress):
            told.append(progress)
            go_on.wait(30)

        # More than the pipes hold: the stand-in ends only when somebody reads them.
        run = self.launch("tell('running')\nfor step in range(2000): tell('running', global_step=step)\n"
                          "print('x' * 1000000)\n" + DONE, on_progress=slow)
        self.assertEqual(run._process.wait(30), 0)
        with self.assertRaises(TimeoutError):
            run.wait(0.01)  # the callback has not had the last status
        go_on.set()
        run.wait(30)
        self.assertEqual(told[-1].state, "done")
        self.assertLess(len(told), 10)

    def test_a_failed_job_raises_its_message_and_has_its_result(self):
        run = self.launch("tell('running')\nresult('failed', message='a pserver died')\n"
                          "tell('failed', message='a pserver died')\nsys.exit(1)")
        with self.assertRaisesRegex(sluice.JobError, "^job adult-1 failed: a pserver died$") as caught:
            run.wait()
        self.assertEqual(caught.exception.result.status, "failed")

    def test_wrong_options_raise_the_message_of_the_command(self):
        run = self.launch("print('note: x', file=sys.stderr)\n"
                          "print('sluice: --a_sync=5 is no bool;\\n  give true', file=sys.stderr)\nsys.exit(2)")
        with self.assertRaisesRegex(sluice.UsageError, r"^--a_sync=5 is no bool;\n  give true$"):
            run.wait()

    def test_another_end_raises_the_last_message(self):
        run = self.launch("tell('running')\nprint('sluice: the scheduler is lost', file=sys.stderr)\nsys.exit(3)")
        with self.assertRaisesRegex(sluice.JobError, "^the scheduler is lost$"):
            run.wait()

    def test_the_traceback_of_a_program_is_part_of_the_error(self):
        run = self.launch("print('Traceback:\\nNameError: x\\nsluice: train.py has ended', file=sys.stderr)\nsys.exit(1)", job=None,
                          program="train.py")
        with self.assertRaisesRegex(sluice.JobError, "^Traceback:\nNameError: x\nsluice: train.py has ended$"):
            run.wait()

    def test_a_killed_launcher_is_an_error(self):
        with self.assertRaisesRegex(sluice.JobError, "code -9"):
            self.launch("tell('running')\nos.kill(os.getpid(), 9)").wait()

    def test_cancel_gives_the_result(self):
        run = self.launch(WAITS)
        next(iter(run.progress))
        run.cancel()
        self.assertEqual(run.wait(30).status, "cancelled")

    def test_a_job_that_somebody_else_cancels_is_an_error(self):
        run = self.launch(WAITS)
        next(iter(run.progress))
        os.kill(run.pid, signal.SIGINT)
        with self.assertRaises(sluice.JobError) as caught:
            run.wait(30)
        self.assertEqual(caught.exception.result.status, "cancelled")

    def test_leaving_the_block_cancels(self):
        with self.assertRaises(ZeroDivisionError):
            with self.launch(WAITS) as run:
                next(iter(run.progress))
                1 / 0
        self.assertEqual(run._process.returncode, 130)

    def test_a_timeout_lets_the_job_go_on(self):
        run = self.launch(WAITS)
        next(iter(run.progress))
        with self.assertRaises(TimeoutError):
            run.wait(0.01)
        self.assertIsNone(run._process.poll())

    def test_an_interrupt_cancels_and_goes_on(self):
        run = self.launch(WAITS)
        next(iter(run.progress))
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            run.wait(30)
        self.assertEqual(run._process.returncode, 130)

    def test_output_goes_through_the_streams_of_python(self):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            self.launch("print('epoch 1')\nprint('warning: x', file=sys.stderr)\n" + DONE, show=True).wait()
        self.assertEqual((out.getvalue(), errors.getvalue()), ("epoch 1\n", "warning: x\n"))

    def test_a_forked_child_keeps_no_pipe_open(self):
        run = self.launch(WAITS)
        next(iter(run.progress))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if run._reads is None else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIsNotNone(run._reads)

    def test_an_exception_of_the_callback_cancels_and_is_raised(self):
        def fail(progress):
            raise ZeroDivisionError
        with self.assertRaises(ZeroDivisionError):
            self.launch(WAITS, on_progress=fail).wait(30)

    def test_a_closed_stream_does_not_stop_the_job(self):
        closed = io.StringIO()
        closed.close()
        with contextlib.redirect_stdout(closed):
            self.assertEqual(self.launch("print('epoch 1', flush=True)\n" + DONE, show=True).wait(30).status, "done")

    def test_progress_that_cannot_be_read_ends_the_launch_with_an_error(self):
        # As the launcher does, the stand-in ends when nobody reads its progress; but first it prints more than a pipe holds.
        ends = "print('x' * 1000000, flush=True)\nwhile True:\n    tell('running')\n    time.sleep(0.01)"
        for wrong, error in (("b'{no JSON\\n'", json.JSONDecodeError), ("b'{}\\n'", KeyError)):
            with self.subTest(wrong), self.assertRaises(error):
                self.launch("os.write(int(flags['progress_fd']), %s)\n" % wrong + ends).wait(30)

    def test_a_stream_that_raises_ends_the_launch_with_its_error(self):
        class Broken(io.StringIO):
            def write(self, text):
                raise ZeroDivisionError
        with contextlib.redirect_stdout(Broken()):
            run = self.launch("print('x' * 1000000, flush=True)\nwhile True:\n    tell('running')\n    time.sleep(0.01)", show=True)
            with self.assertRaises(ZeroDivisionError):
                run.wait(30)

    def test_characters_that_come_in_parts_stay_whole(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.launch("for one in '\u20ac\\n'.encode():\n    os.write(1, bytes([one]))\n    time.sleep(0.05)\n" + DONE, show=True).wait(30)
        self.assertEqual(out.getvalue(), "\u20ac\n")

    def test_a_worker_launches_nothing(self):
        with mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": "log/program"}):
            with self.assertRaisesRegex(RuntimeError, "worker of a job"):
                sluice.launch("adult.textproto")

    def test_a_child_of_multiprocessing_is_refused(self):
        with mock.patch.object(multiprocessing, "parent_process", return_value=object()):
            with self.assertRaisesRegex(RuntimeError, "multiprocessing"):
                sluice.launch("adult.textproto")

    def test_neither_or_both_of_job_and_program_are_refused(self):
        for wrong in ({}, {"job": "a", "program": "b"}, {"job": "a", "args": ["x"]}):
            with self.subTest(wrong), self.assertRaises(sluice.UsageError):
                sluice.launch(**wrong)

    def test_missing_programs_are_named(self):
        with self.assertRaisesRegex(sluice.UsageError, str(self.folder)):
            sluice.launch("adult.textproto")


class Core:
    """What Job needs of sluice._core."""

    def set_in_job(self, text, path, value):
        if path == "nowhere":
            raise ValueError("there is no field nowhere")
        return "%s %s: %s" % (text, path, value)

    def merge_into_job(self, text, fields):
        return "%s %s" % (text, fields)

    def resolve_job(self, text, base_dir, name):
        return "name: %s base: %s %s" % (name, base_dir, text)


class JobTest(StandInTest):
    def setUp(self):
        super().setUp()
        patch = mock.patch.object(_job, "_core", Core)
        patch.start()
        self.addCleanup(patch.stop)
        self.file = self.folder / "adult.textproto"
        self.file.write_text("train {}")

    def job_of(self, run):
        return next(word[len("--job="):] for word in self.arguments() if word.startswith("--job="))

    def test_an_unchanged_file_is_the_job(self):
        run = self.launch(DONE, sluice.Job.from_file(self.file))
        run.wait()
        self.assertEqual(self.job_of(run), str(self.file))

    def test_a_changed_job_gets_a_file_that_goes_with_the_launch(self):
        job = sluice.Job.from_file(self.file).set("train.epochs", 3)
        run = self.launch("import shutil\nshutil.copy(flags['job'], %r)\n" % str(self.folder / "copy") + DONE, job)
        run.wait()
        self.assertEqual((self.folder / "copy").read_text(), "name: adult base: %s train {} train.epochs: 3" % self.folder)
        self.assertFalse(os.path.exists(self.job_of(run)))

    def test_values_are_written_as_on_the_command_line(self):
        for value, text in ((3, "3"), (0.5, "0.5"), (True, "true"), ("a b", "a b"), ([64, 32], "[64, 32]"),
                            (["a,b", "c"], '["a,b", "c"]')):
            with self.subTest(value):
                self.assertEqual(str(sluice.Job().set("x", value)), " x: " + text)

    def test_fields_are_merged_as_json(self):
        self.assertEqual(str(sluice.Job("a: 1", train={"epochs": 3})), 'a: 1 {"train": {"epochs": 3}}')

    def test_values_of_other_types_are_refused_by_name(self):
        for make, error, message in (
            (lambda: sluice.Job(None), TypeError, "text of a sluice.Job is None.*from_file"),
            (lambda: sluice.Job({"train": {}}), TypeError, r"text of a sluice.Job is .*\*\*fields"),
            (lambda: sluice.Job("jobs/adult.textproto"), sluice.UsageError, r"from_file\('jobs/adult.textproto'\) reads it"),
            (lambda: sluice.Job("", base_dir=3), TypeError, "base_dir= of a sluice.Job is 3"),
            (lambda: sluice.Job.from_file(None), TypeError, "path of sluice.Job.from_file is None"),
            (lambda: sluice.Job.from_file("nope.textproto"), sluice.UsageError, "'nope.textproto' cannot be read: No such file"),
            (lambda: sluice.Job.from_file("nope.textproto"), OSError, "^the job's file 'nope.textproto'"),
            (lambda: sluice.Job.from_file(sys.executable), sluice.UsageError, "cannot be read: it is not text"),
            (lambda: sluice.Job("").set(3, 4), TypeError, "path of sluice.Job.set is 3"),
            (lambda: sluice.Job("").set("train.epochs", None), TypeError, "'train.epochs'.* was given None"),
            (lambda: sluice.Job("").set("train", {"epochs": 1}), TypeError, "'train'.*dictionaries"),
            (lambda: sluice.Job(train={"epochs": {1}}), TypeError, "the job: train.epochs is a set"),
            (lambda: sluice.Job(optimizers={"all": {"learning_rate": float("nan")}}), ValueError,
             "the job: optimizers.all.learning_rate is nan"),
            (lambda: sluice.Job(train={1: 2}), TypeError, "the job: train has the key 1"),
            (lambda: sluice.launch({"train": {}}), TypeError, "the job of sluice.launch is a dict"),
            (lambda: sluice.launch(program="a.py", args="--x"), TypeError, "args= of sluice.launch is the text '--x'"),
        ):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                make()

    def test_paths_and_numbers_of_other_packages_are_plain_values(self):
        class Number:
            def tolist(self):
                return 3

        job = sluice.Job(data={"train_files": [pathlib.Path("a.csv")]}, train={"epochs": Number()})
        self.assertEqual(str(job), ' {"data": {"train_files": ["a.csv"]}, "train": {"epochs": 3}}')
        job = sluice.Job().set("train.epochs", Number()).set("initial_model", pathlib.Path("m"))
        self.assertEqual(str(job), " train.epochs: 3 initial_model: m")

    def test_a_wrong_field_is_named(self):
        with self.assertRaisesRegex(sluice.UsageError, "there is no field nowhere"):
            sluice.Job().set("nowhere", 1)


class StoreResultTest(unittest.TestCase):
    def setUp(self):
        self.files = {}
        core = mock.Mock(read_file=lambda path: self.files[path])
        for patch in (mock.patch.dict(sys.modules, {"sluice._core": core}), mock.patch.object(sluice, "_core", core, create=True)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_a_result_on_a_store_is_read_there(self):
        raw = {"status": "done", "examples": 60, "seconds": 1.5, "model_dir": "s3://b/out/model"}
        self.files["s3://b/out/result.json"] = json.dumps(raw).encode()
        result = sluice.Result.from_file("s3://b/out/result.json")
        self.assertEqual((result.status, result.output_dir, result.model_dir), ("done", "s3://b/out", "s3://b/out/model"))
        with self.assertRaises(FileNotFoundError):
            sluice.Result.from_file("s3://b/none/result.json")


class PredictTest(StandInTest):
    def predict(self, does, *more, **options):
        self.stand_in(does)
        return sluice.predict("model", *more, **options)

    def test_files_and_options_become_flags(self):
        self.assertIsNone(self.predict("", ["a.csv", pathlib.Path("b*.csv")], output="scores", worker_num=2, overwrite=True))
        self.assertEqual(self.arguments(), ["predict", "--model=model", "--data=a.csv", "--data=b*.csv", "--overwrite=true",
                                            "--worker_num=2", "--progress=plain", "--output=scores"])

    def test_without_output_the_scores_are_returned(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("needs NumPy")
        scores = self.predict("open(flags['output'], 'w').write('0.5\\nnan\\n0.25\\n')", "a.csv")
        self.assertEqual(scores.dtype, numpy.float32)
        numpy.testing.assert_array_equal(scores, [0.5, numpy.nan, 0.25])

    def test_errors_have_the_message_of_the_command(self):
        for code, kind in ((2, sluice.UsageError), (1, RuntimeError)):
            with self.subTest(code), self.assertRaisesRegex(kind, "^model is not a model$"):
                self.predict("print('note: x\\nsluice: model is not a model', file=sys.stderr)\nsys.exit(%d)" % code, "a.csv",
                             output="scores")


class CommandTest(StandInTest):
    def command(self, *words):
        """What the command becomes."""
        self.stand_in("")
        with mock.patch.object(os, "execv") as execv:
            with contextlib.suppress(TypeError):  # execv returns here, so that main has no exit code
                _command.main(words)
        (program, became), _ = execv.call_args
        self.assertEqual(program, str(self.folder / "sluice"))
        return became[1:]

    def test_it_becomes_the_program(self):
        self.assertEqual(self.command("status", "--json"), ["status", "--json"])

    def test_programs_run_with_its_interpreter(self):
        self.assertEqual(self.command("launch", "--program=a.py", "--", "--python=b"),
                         ["launch", "--python=" + sys.executable, "--program=a.py", "--", "--python=b"])
        self.assertEqual(self.command("launch", "--program", "a.py", "--python=b"), ["launch", "--program", "a.py", "--python=b"])
        self.assertEqual(self.command("launch", "--job=a"), ["launch", "--job=a"])

    def test_missing_programs_end_it_with_a_message(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(_command.main(["status"]), 2)
        self.assertIn("sluice: there is no program sluice", errors.getvalue())



if __name__ == "__main__":
    unittest.main()
