"""The command line as users meet it: help, exit codes, misspelt words, and progress on and off a terminal."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import unittest

from sluice_testing import ADULT, BIN, ROOT, SluiceTest, free_port, wait_until

DAEMONS = ("sluice-scheduler", "sluice-pserver", "sluice-worker")
LONG = ("--epochs=100000", "--a_sync=true")
ERASE = "\x1b[K"  # to the end of the line
TABLE = re.compile(r"^epoch +examples +seconds +loss +AUC +log loss +accuracy +MAE +RMSE$", re.M)


def is_live(text):
    """The whole live line of a running job, in words."""
    return re.fullmatch(r"adult-1 epoch \d+/\d+ (train|eval) \| step [\d,]+ \| [\d,]+ examples/s \| loss \d\.\d+ \| "
                        r"AUC 0\.\d+ \| staleness \d+\.\d \(max \d+\) \| workers 2/2 \| ETA [\dhms. ]+", text)


def is_short_live(text):
    return re.fullmatch(r"ep \d+/\d+ step \d+ \d+k? ex/s loss \d\.\d+ AUC 0\.\d+ stale \d+\.\d workers 2/2 "
                        r"ETA [\dhms.]+", text)


class Terminal:
    """A program whose stdin, stdout and stderr are a terminal of so many columns."""

    def __init__(self, test, columns, *args):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

        def take_the_terminal():  # so that Ctrl-C comes from it
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([str(BIN / args[0])] + [str(a) for a in args[1:]], stdin=theirs, stdout=theirs,
                                        stderr=theirs, cwd=test.tmp, preexec_fn=take_the_terminal)
        test._started.append(self.process)
        os.close(theirs)
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        test.addCleanup(os.close, self._ours)

    def _read(self):
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # nobody has it open any more
                return
            self.text += data.decode()

    def type(self, keys):
        os.write(self._ours, keys)

    def whole_text(self):
        self._reader.join()
        return self.text

    def live_lines(self):
        """What was written over and over: from a carriage return to the code that erases what a longer one left."""
        return re.findall(r"\r([^\r\n\x1b]+)" + re.escape(ERASE), self.text)


class HelpTest(SluiceTest):
    def help_of(self, *args):
        done = self.run_program(*args, "--help")
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def commands(self):
        text = self.help_of("sluice").split("Commands", 1)[1].split("\n\n", 1)[0]
        return re.findall(r"^  (\w+) ", text, re.M)

    def test_every_command_has_help_with_an_example_of_flags_that_exist(self):
        commands = self.commands()
        for needed in ("launch", "up", "submit", "status", "logs", "cancel", "down", "predict"):
            self.assertIn(needed, commands)
        self.assertRegex(self.help_of("sluice"), r"Examples:\n  sluice \w+")
        for command in commands:
            with self.subTest(command):
                text = self.help_of("sluice", command)
                self.assertRegex(text, r"^sluice %s\b" % command)
                examples = re.findall(r"^  (sluice %s\b.*)" % command, text.split("Examples:", 1)[1], re.M)
                self.assertTrue(examples, text)
                flags = set(re.findall(r"^  --(\w+)", text, re.M))
                for example in examples:
                    for flag in re.findall(r" --(\w+)", example):
                        self.assertIn(flag, flags, example)

    def test_every_daemon_has_help_with_an_example_of_flags_that_exist(self):
        for daemon in DAEMONS:
            with self.subTest(daemon):
                text = self.help_of(daemon)
                self.assertTrue(text.startswith(daemon + ": "), text)
                examples, flags = text.split("\nFlags:\n")
                names = re.findall(r"^  --(\w+)", flags, re.M)
                self.assertIn("log_dir", names)
                self.assertNotIn("logtostderr", names)  # a library's
                said = re.findall(r"^  %s (.*)" % daemon, examples, re.M)
                self.assertTrue(said, text)
                for flag in re.findall(r"--(\w+)", " ".join(said)):
                    self.assertIn(flag, names)

    def test_every_program_says_its_version(self):
        version = re.search(r"^project\(sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
        for program in ("sluice",) + DAEMONS:
            done = self.run_program(program, "--version")
            self.assertEqual(done.returncode, 0)
            # The commit follows where the build was made in a work tree.
            self.assertRegex(done.stdout.strip(), r"^%s version %s( \([0-9a-f]{10}\))?$" % (program, re.escape(version)))

    def test_unknown_variables_are_refused(self):
        for args in (["sluice", "status"], ["sluice", "launch", "--job=%s" % ADULT], ["sluice-worker", "--rank=0"]):
            done = self.run_program(*args, env={**os.environ, "SLUICE_BATCHSIZE": "4"})
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("SLUICE_BATCHSIZE=4: there is no such variable; did you mean 'SLUICE_BATCH_SIZE'?", done.stdout)

    def test_misspelt_words_are_named_with_the_nearest_or_with_all(self):
        for args, texts in ((["sluice", "lunch"], ["'lunch'", "did you mean 'launch'?"]),
                            (["sluice", "xylophone"], ["'xylophone'"] + self.commands()),
                            (["sluice", "status", "--jsn"], ["--jsn", "did you mean 'json'?"]),
                            (["sluice", "status", "--xylophone"], ["--xylophone", "json", "log_dir", "scheduler"]),
                            (["sluice", "status", "word"], ["does not take 'word'"]),
                            (["sluice-worker", "--rnak=0"], ["--rnak", "did you mean 'rank'?", "sluice-worker --help"]),
                            (["sluice-pserver", "--xylophone"], ["--xylophone", "rank", "scheduler", "log_dir"]),
                            (["sluice-worker", "--rank=first"], ["--rank=first", "int32"]),
                            (["sluice-worker", "--rank"], ["--rank has no value"]),
                            (["sluice-scheduler", "word"], ["unknown argument word"])):
            with self.subTest(" ".join(args)):
                done = self.run_program(*args)
                self.assertEqual(done.returncode, 2, done.stdout)
                for text in texts:
                    self.assertIn(text, done.stdout)


class ExitCodeTest(SluiceTest):
    """Those that cli/README.md and `sluice --help` list; 0 to 3 of `launch`, `submit`, `status` and `cancel`."""

    def small(self):
        self.write_csv("train.csv", [(i % 2, i, "ab"[i % 2]) for i in range(64)])
        return self.small_job(train="train.csv")

    def test_the_table_names_them_all(self):
        said = self.run_program("sluice", "--help").stdout.split("Exit codes:", 1)[1]
        for code in ("0 done", "1 ", "2 ", "3 ", "130", "143"):
            self.assertIn(code, said)
            self.assertIn(code, (ROOT / "cli" / "README.md").read_text().split("**Exit codes**", 1)[1])

    def test_done_failed_and_wrong_usage(self):
        job = self.small()
        self.launch(job=job, expect=0)
        self.launch("--set=data.label.positive=yes", "--set=data.label.negative=no", job=job, expect=1)
        self.launch("--no_such_flag", job=job, expect=2)
        self.launch("--set=train.batch_size=0", job=job, expect=2)
        nobody = "--scheduler=127.0.0.1:%d" % free_port()
        for command in (["status"], ["cancel", "job-1"], ["down"]):
            self.assertEqual(self.run_program("sluice", *command, nobody).returncode, 3)

    def test_what_a_launch_leaves_is_told_apart_from_a_cluster(self):
        self.launch("--epochs=1", job=self.small(), name="run")
        log_dir = self.tmp / "run.log"
        said = self.sluice("status", log_dir, expect=3)
        self.assertRegex(said, r"no cluster runs: the scheduler 127\.0\.0\.1:\d+ that %s/endpoints\.log names has ended; "
                               r"start one with sluice up, or give --scheduler=HOST:PORT\n$" % re.escape(str(log_dir)))
        said = self.sluice("logs", log_dir, "small-1", expect=2)
        self.assertIn("a job that was launched logs into log_dir itself: sluice logs --log_dir=%s" % log_dir, said)
        self.assertIn("schedulerlog.0", self.sluice("logs", log_dir))
        _, said = self.launch("--epochs=1", job=self.tmp / "small.textproto", name="run")
        self.assertIn("note: replaces the earlier result in %s\n" % (self.tmp / "run"), said)
        self.assertEqual(len(list((self.tmp / "run").glob("events.out.tfevents.*"))), 1)

    def test_cancelled_is_failed_for_who_waits_for_it(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        submit = self.start("sluice", "submit", "--job=%s" % ADULT, "--log_dir=%s" % log_dir, "--worker_num=1", *LONG,
                            "--output_dir=%s" % (self.tmp / "out"), log="submit")
        wait_until(lambda: "running, train" in (self.tmp / "submit").read_text(), "the job trains")
        self.sluice("cancel", log_dir, "adult-1", expect=0)
        self.assertEqual(self.exit_code(submit), 1)
        self.assertIn("cancelled", (self.tmp / "submit").read_text().splitlines()[-1])
        self.sluice("cancel", log_dir, "adult-7", expect=2)
        self.assertIn("adult-1 has ended already (cancelled)", self.sluice("cancel", log_dir, "adult-1", expect=1))
        said = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1", "--epochs=1", "--detach",
                           "--output_dir=%s" % (self.tmp / "out2"))
        self.assertEqual(said.splitlines()[-1], "adult-2")

    def test_signals(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            name = "signal%d" % number
            launcher = self.start_launch(*LONG, name=name)
            wait_until(lambda: "running, train" in (self.tmp / (name + ".out")).read_text(), "the job trains")
            launcher.send_signal(number)
            self.assertEqual(self.exit_code(launcher), code)


class SideBySideTest(SluiceTest):
    def test_launches_from_one_folder_have_logs_of_their_own(self):
        long = ["sluice", "launch", "--job=%s" % ADULT, "--server_num=1", "--worker_num=1", *LONG]
        first = self.start(*long, "--output_dir=%s" % (self.tmp / "a"), log="first")
        wait_until(lambda: "running, train" in (self.tmp / "first").read_text(), "the first trains")
        endpoints = (self.tmp / "log" / "endpoints.log").read_text()
        # One that asks for the folder is refused, one that does not gets the next.
        refused = self.run_program(*long, "--output_dir=%s" % (self.tmp / "b"), "--log_dir=log")
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("pid %d" % first.pid, refused.stdout)
        self.assertFalse((self.tmp / "b").exists())
        second = self.run_program("sluice", "launch", "--job=%s" % ADULT, "--server_num=1", "--worker_num=1",
                                  "--epochs=1", "--output_dir=%s" % (self.tmp / "b"))
        self.assertEqual(second.returncode, 0, second.stdout)
        self.assertIn("logs in log-2", second.stdout)
        self.assertIn("workerlog.0", os.listdir(self.tmp / "log-2"))
        self.assertEqual((self.tmp / "log" / "endpoints.log").read_text(), endpoints)
        self.assertIsNone(first.poll())
        first.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(first), 130)


class ThreadsTest(SluiceTest):
    """Threads that wait for one another sleep: else more threads than cores cost many times the time."""

    def policies_of_workers(self, name, **environment):
        inherited = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
        launcher = self.start("sluice", "launch", "--job=%s" % ADULT, "--output_dir=%s" % (self.tmp / name),
                              "--log_dir=%s" % (self.tmp / (name + ".log")), "--threads=2", "--worker_num=2", *LONG,
                              env={**inherited, **environment}, log=name + ".out")
        wait_until(lambda: "running, train" in (self.tmp / (name + ".out")).read_text(), "the job trains")
        found = []
        for worker in [endpoint for endpoint in self.endpoints(name) if endpoint.role == "worker"]:
            with open("/proc/%d/environ" % worker.pid, "rb") as file:
                found.append([v.decode() for v in file.read().split(b"\0") if v.startswith(b"OMP_WAIT_POLICY=")])
            with open("/proc/%d/comm" % worker.pid) as file:
                self.assertEqual(file.read(), "sluice-worker\n")
        launcher.send_signal(signal.SIGTERM)
        self.assertEqual(self.exit_code(launcher), 143)
        return found

    def test_workers_wait_passively_unless_told_otherwise(self):
        self.assertEqual(self.policies_of_workers("default"), [["OMP_WAIT_POLICY=passive"]] * 2)
        self.assertEqual(self.policies_of_workers("active", OMP_WAIT_POLICY="active"), [["OMP_WAIT_POLICY=active"]] * 2)


class ProgressTest(SluiceTest):
    def terminal(self, columns, *flags):
        return Terminal(self, columns, "sluice", "launch", "--job=%s" % ADULT, "--output_dir=%s" % (self.tmp / "run"),
                        "--log_dir=%s" % (self.tmp / "log"), "--server_num=2", "--worker_num=2", *flags)

    def assert_one_line_rewritten(self, terminal):
        """A live line is followed by the next one, or erased: never by a new line."""
        text = terminal.text
        for live in terminal.live_lines():
            self.assertNotIn(live + ERASE + "\r\n", text)
            self.assertNotIn(live + "\r\n", text)

    def test_a_terminal_shows_one_live_line_with_every_figure(self):
        terminal = self.terminal(160, *LONG)
        wait_until(lambda: len(set(filter(is_live, terminal.live_lines()))) >= 2, lambda: terminal.text)
        terminal.type(b"\x03")  # Ctrl-C
        self.assertEqual(self.exit_code(terminal.process), 130)
        text = terminal.whole_text()
        self.assert_one_line_rewritten(terminal)
        self.assertTrue(all(len(line) < 160 for line in terminal.live_lines()))
        self.assertIn("stopping adult-1", text)
        self.await_none_left()

    def test_eighty_columns_hold_every_figure(self):
        terminal = self.terminal(80, "--a_sync=true", "--epochs=40")
        wait_until(lambda: any(map(is_short_live, terminal.live_lines())), lambda: terminal.text)
        terminal.type(b"\x03")
        self.assertEqual(self.exit_code(terminal.process), 130)
        terminal.whole_text()
        self.assert_one_line_rewritten(terminal)
        self.assertTrue(all(len(line) < 80 for line in terminal.live_lines()))

    def test_a_terminal_ends_with_the_table(self):
        terminal = self.terminal(160, "--epochs=2")
        self.assertEqual(self.exit_code(terminal.process), 0)
        text = terminal.whole_text()
        self.assertTrue(terminal.live_lines(), text)
        self.assertNotRegex(text, r"worker \d: epoch")  # the plain lines of the steps
        self.assert_one_line_rewritten(terminal)
        end = text.replace("\r\n", "\n").rsplit("\r" + ERASE, 1)[1]
        self.assert_table(end, epochs=2)
        self.assertNotIn("\x1b", end)

    def test_off_a_terminal_there_are_plain_lines_every_log_every_steps(self):
        _, text = self.launch("--server_num=2", "--worker_num=2", "--epochs=2", "--log_every=7", "--a_sync=false")
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        steps = re.findall(r"^worker (\d): epoch (\d) step ([\d,]+) loss \d\.\d+ [\d,]+ examples/s$", text, re.M)
        for rank in "01":
            found = [int(step.replace(",", "")) for r, _, step in steps if r == rank]
            self.assertGreater(len(found), 10)
            self.assertEqual(found, [7 * (i + 1) for i in range(len(found))])
        for epoch in (1, 2):
            self.assertRegex(text, r"(?m)^epoch %d: 32,561 examples in .* loss .* AUC .* accuracy" % epoch)
        self.assert_table(text, epochs=2)

    def assert_table(self, text, epochs):
        """The last that is printed."""
        head = TABLE.search(text)
        self.assertTrue(head, text)
        rows = text[head.end():].strip().splitlines()
        for epoch in range(epochs):
            self.assertRegex(rows[epoch], r"^%d +32,561 +[\d.]+( +0\.\d{5}){6}$" % (epoch + 1))
        self.assertRegex(rows[epochs], r"^final: AUC 0\.\d+ .* log loss 0\.\d+ accuracy 0\.\d+ MAE .* on 16,281 ")
        self.assertRegex(rows[epochs + 1], r"^adult-1: done, mode a?sync, %d epochs, [\d,]+ steps, 65,122 ex" % epochs)


if __name__ == "__main__":
    unittest.main()
