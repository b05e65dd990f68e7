"""The command line as users meet it: help, exit codes, misspelt words, and progress on and off a terminal."""
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import unittest

from sluice_testing import ADULT, BIN, ROOT, SluiceTest, free_port, wait_until

DAEMONS = ("sluice-scheduler", "sluice-pserver", "sluice-worker")
LONG = ("--epochs=100000", "--a_sync=true")
ERASE = "\x1b[K"  # erases to the end of the line
TABLE = re.compile(r"^epoch +examples +seconds +loss +AUC +log loss +accuracy +MAE +RMSE$", re.M)


def is_live(text):
    """Matches the whole live line of a running job."""
    return re.fullmatch(r"adult-1 epoch [\d,]+/[\d,]+ (train|eval) \| step [\d,]+ \| [\d,]+ examples/s \| loss \d\.\d+ \| "
                        r"AUC 0\.\d+ \| staleness \d+\.\d \(max \d+\) \| workers 2/2 \| ETA [\dhms. ]+", text)


def is_short_live(text):
    return re.fullmatch(r"ep [\d,]+/[\d,]+ step [\d,]+ \d+k? ex/s loss \d\.\d+ AUC 0\.\d+ stale \d+\.\d "
                        r"ETA [\dhms.]+", text)


class Terminal:
    """A program whose stdin, stdout and stderr are a terminal with this many columns."""

    ENVIRONMENT = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm"}

    def __init__(self, test, columns, *args, **environment):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

        def take_the_terminal():  # so that Ctrl-C reaches the program
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.process = subprocess.Popen([str(BIN / args[0])] + [str(a) for a in args[1:]], stdin=theirs, stdout=theirs,
                                        stderr=theirs, cwd=test.tmp, preexec_fn=take_the_terminal,
                                        env={**self.ENVIRONMENT, **environment})
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
            except OSError:  # no process has it open any more
                return
            self.text += data.decode()

    def type(self, keys):
        os.write(self._ours, keys)

    def whole_text(self):
        self._reader.join()
        return self.text

    def live_lines(self):
        """The live lines. Each begins with a carriage return and ends with the code that erases a longer one."""
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
                self.assertNotIn("logtostderr", names)  # a flag of a library
                said = re.findall(r"^  %s (.*)" % daemon, examples, re.M)
                self.assertTrue(said, text)
                for flag in re.findall(r"--(\w+)", " ".join(said)):
                    self.assertIn(flag, names)

    def test_every_program_prints_its_version(self):
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
            self.assertRegex(done.stdout, "SLUICE_BATCHSIZE=4: .*did you mean 'SLUICE_BATCH_SIZE'")

    def test_misspelt_words_are_named_with_the_nearest_or_with_all(self):
        for args, texts in ((["sluice", "lunch"], ["'lunch'", "did you mean 'launch'?"]),
                            (["sluice", "xylophone"], ["'xylophone'"] + self.commands()),
                            (["sluice", "status", "--jsn"], ["--jsn", "did you mean 'json'?"]),
                            (["sluice", "status", "--xylophone"], ["--xylophone", "json", "log_dir", "scheduler"]),
                            (["sluice", "status", "job", "word"], ["does not take 'word'"]),
                            (["sluice", "launch", "--job=a/train.py"], ["Python program", "did you mean sluice launch --program=a/train.py?"]),
                            (["sluice", "launch", "--program=a.textproto"], ["job file", "did you mean --job=a.textproto?"]),
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
    """Exit codes listed by cli/README.md and `sluice --help`; 0 to 3 for `launch`, `submit`, `status` and `cancel`."""

    def small(self):
        self.write_csv("train.csv", [(i % 2, i, "ab"[i % 2]) for i in range(64)])
        return self.small_job(train="train.csv")

    def test_help_and_readme_list_all_codes(self):
        said = self.run_program("sluice", "--help").stdout.split("Exit codes:", 1)[1]
        for code in ("0 done", "1 ", "2 ", "3 ", "4 done", "130", "143"):
            self.assertIn(code, said)
            self.assertIn(code, (ROOT / "cli" / "README.md").read_text().split("**Exit codes**", 1)[1])

    def test_done_failed_and_wrong_usage(self):
        job = self.small()
        self.launch(job=job, expect=0)
        self.launch("--set=data.label.positive=yes", "--set=data.label.negative=no", job=job, expect=2)
        self.launch("--set=data.drop_last=true", "--set=train.batch_size=1000000", job=job, expect=1)
        self.launch("--no_such_flag", job=job, expect=2)
        self.launch("--set=train.batch_size=0", job=job, expect=2)
        nobody = "--scheduler=127.0.0.1:%d" % free_port()
        for command in (["status"], ["cancel", "job-1"], ["down"]):
            self.assertEqual(self.run_program("sluice", *command, nobody).returncode, 3)

    def test_files_left_by_a_launch_are_not_taken_for_a_cluster(self):
        self.launch("--epochs=1", job=self.small(), name="run")
        log_dir = self.tmp / "run.log"
        said = self.sluice("status", log_dir, expect=3)
        self.assertRegex(said, r" 127\.0\.0\.1:\d+\b.* %s/endpoints\.log\b.* sluice up\b.* --scheduler=HOST:PORT\n$"
                         % re.escape(str(log_dir)))
        self.assertRegex(self.sluice("logs", log_dir, "small-1"), r"job small-1: .*done")
        said = self.sluice("logs", log_dir, "small-2", expect=2)
        self.assertIn("no log of job small-2", said)
        self.assertIn("schedulerlog.0", self.sluice("logs", log_dir))
        _, said = self.launch("--epochs=1", job=self.tmp / "small.textproto", name="run")
        self.assertRegex(said, r"(?m)^note: .*earlier result in %s$" % re.escape(str(self.tmp / "run")))
        self.assertEqual(len(list((self.tmp / "run").glob("events.out.tfevents.*"))), 1)

    def test_submit_exits_1_when_its_job_is_cancelled(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        submit = self.start("sluice", "submit", "--job=%s" % ADULT, "--log_dir=%s" % log_dir, "--worker_num=1", *LONG,
                            "--output_dir=%s" % (self.tmp / "out"), log="submit")
        wait_until(lambda: "running, train" in (self.tmp / "submit").read_text(), "the job trains")
        self.sluice("cancel", log_dir, "adult-1", expect=0)
        self.assertEqual(self.exit_code(submit), 1)
        self.assertIn("cancelled", (self.tmp / "submit").read_text().splitlines()[-1])
        self.sluice("cancel", log_dir, "adult-7", expect=2)
        self.assertRegex(self.sluice("cancel", log_dir, "adult-1", expect=1), "adult-1 .*cancelled")
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
    def test_launches_from_one_folder_have_separate_logs(self):
        long = ["sluice", "launch", "--job=%s" % ADULT, "--server_num=1", "--worker_num=1", *LONG]
        first = self.start(*long, "--output_dir=%s" % (self.tmp / "a"), log="first")
        wait_until(lambda: "running, train" in (self.tmp / "first").read_text(), "the first trains")
        endpoints = (self.tmp / "log" / "endpoints.log").read_text()
        # A launch that asks for the folder is refused; one that does not gets the next folder.
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


class VariablesTest(SluiceTest):
    """A variable that a command does not read is refused before anything starts (proto/config.proto)."""

    OF_DAEMONS = ("ADMIN_BIND", "ADVERTISE", "BIND", "CLUSTER", "INSECURE", "LOG_DIR", "RANK", "ROLE", "SCHEDULER")

    def refused(self, variable, value, *args):
        name = "SLUICE_" + variable
        if args[1] in ("launch", "up"):  # if it starts anyway, tearDown ends the processes that name this folder
            args += ("--log_dir=%s" % (self.tmp / "log"),)
        with self.subTest("%s=%s %s" % (name, value, args)):
            done = self.run_program(*args, env={**os.environ, name: value})
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertTrue(done.stdout.startswith("sluice"), done.stdout)
            self.assertIn("%s=%s: " % (name, value), done.stdout)
            return done.stdout

    def test_launch_up_and_submit_refuse_variables_that_they_do_not_read(self):
        job = "--job=%s" % ADULT
        for variable in self.OF_DAEMONS:
            self.refused(variable, "1", "sluice", "launch", job)
            self.refused(variable, "1", "sluice", "up")
            if variable not in ("LOG_DIR", "SCHEDULER"):
                self.refused(variable, "1", "sluice", "submit", job, "--scheduler=127.0.0.1:1")
        for variable in ("EPOCHS", "WORKER_NUM", "THREADS", "TRACE"):
            self.refused(variable, "1", "sluice", "up")
        self.refused("DEVICE", "cuda", "sluice", "submit", job)
        self.assertFalse((self.tmp / "log").exists())
        self.assertFalse((self.tmp / "output").exists())

    def test_daemons_and_other_commands_refuse_variables_of_flags_that_they_have(self):
        for daemon in DAEMONS:
            self.refused("BATCH_SIZE", "4", daemon, "--log_dir=%s" % (self.tmp / "log"))
        for variable, *args in (("WORKER_NUM", "sluice", "predict"), ("SEED", "sluice", "data", "gen"),
                                ("THREADS", "sluice", "data", "gen")):
            said = self.refused(variable, "4", *args)
            flag = re.search(r"give (--\w+)=4", said).group(1)
            self.assertIn(flag + "=", self.run_program(*args[:2], "--help").stdout)

    def test_the_advised_flag_exists(self):
        for variable, command in (("BIND", "up"), ("INSECURE", "up"), ("LOG_DIR", "up"), ("WORKER_NUM", "up"),
                                  ("THREADS", "up"), ("LOG_DIR", "launch")):
            said = self.refused(variable, "1", "sluice", command, *(["--job=%s" % ADULT] if command == "launch" else []))
            flag = re.search(r"give (--\w+)=1", said).group(1)
            self.assertRegex(self.run_program("sluice", command, "--help").stdout, r"(?m)^  %s\b" % flag)

    def test_the_log_folder_of_a_cluster_may_be_a_variable(self):
        log_dir = self.up("--server_num=1", "--worker_num=0")
        env = {**os.environ, "SLUICE_LOG_DIR": str(log_dir)}
        for command in (["status"], ["logs"], ["down"]):
            done = self.run_program("sluice", *command, env=env)
            self.assertEqual(done.returncode, 0, done.stdout)


class LostOutputTest(SluiceTest):
    """A command whose output cannot be written exits with code 4 if it otherwise succeeded."""

    def run_into(self, stdout, *args, **kwargs):
        program = subprocess.Popen([str(BIN / "sluice")] + [str(a) for a in args], stdout=stdout,
                                   stderr=subprocess.PIPE, text=True, cwd=self.tmp, **kwargs)
        self._started.append(program)
        _, err = program.communicate()
        return program.returncode, err

    def into_full(self, *args):
        with open("/dev/full", "wb") as full:
            return self.run_into(full, *args)

    def into_closed_pipe(self, *args):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return self.run_into(writer, *args)
        finally:
            os.close(writer)

    def assert_lost(self, outcome, reason):
        code, err = outcome
        self.assertEqual(code, 4, err)
        self.assertIn("standard output", err)
        self.assertIn(reason, err)

    def test_every_command_reports_lost_output(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        for args in (["--help"], ["--version"], ["launch", "--help"], ["launch", "--job=%s" % ADULT, "--dry_run"],
                     ["status", "--log_dir=%s" % log_dir], ["status", "--json", "--log_dir=%s" % log_dir],
                     ["logs", "--log_dir=%s" % log_dir], ["logs", "--follow", "--log_dir=%s" % log_dir],
                     ["data", "gen", "--examples=10", "--output=%s" % (self.tmp / "data.tsv")],
                     ["submit", "--job=%s" % ADULT, "--detach", "--epochs=100000", "--log_dir=%s" % log_dir,
                      "--worker_num=1", "--output_dir=%s" % (self.tmp / "out")],
                     ["cancel", "adult-1", "--log_dir=%s" % log_dir]):
            with self.subTest(" ".join(args)):
                self.assert_lost(self.into_full(*args), "No space left on device")
        # `sluice logs | head`: the reader has seen enough of a command that only prints.
        for args in (["--help"], ["status", "--log_dir=%s" % log_dir], ["logs", "--log_dir=%s" % log_dir],
                     ["logs", "--follow", "--log_dir=%s" % log_dir]):
            self.assertEqual(self.into_closed_pipe(*args), (0, ""))

    def test_files_do_not_take_the_place_of_a_closed_standard_output(self):
        done = subprocess.run("exec %s data gen --examples=1000 --output=%s >&-" % (BIN / "sluice", self.tmp / "data.tsv"),
                              shell=True, stderr=subprocess.PIPE, text=True, cwd=self.tmp)
        self.assert_lost((done.returncode, done.stderr), "Bad file descriptor")
        lines = (self.tmp / "data.tsv").read_text().splitlines()
        self.assertEqual([line.count("\t") for line in lines], [39] * 1000)

    def test_a_launched_job_is_done_and_saved_without_output(self):
        self.write_csv("train.csv", [(i % 2, i, "ab"[i % 2]) for i in range(64)])
        job = self.small_job(train="train.csv")
        for name, run in (("full", self.into_full), ("pipe", self.into_closed_pipe)):
            outcome = run("launch", "--job=%s" % job, "--output_dir=%s" % (self.tmp / name),
                          "--log_dir=%s" % (self.tmp / (name + ".log")))
            self.assert_lost(outcome, {"full": "No space left", "pipe": "Broken pipe"}[name])
            self.assertEqual(json.loads((self.tmp / name / "result.json").read_text())["status"], "done")
            self.assertTrue((self.tmp / name / "model" / "MANIFEST").exists())
        # A failed job keeps its own exit code.
        self.assertEqual(self.into_full("launch", "--job=%s" % job, "--set=data.drop_last=true",
                                        "--set=train.batch_size=1000000", "--output_dir=%s" % (self.tmp / "failed"))[0], 1)


class AdviceTest(SluiceTest):
    """Does exactly what an error advises, and checks that it works."""

    def advice(self, done):
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stdout

    def resolves(self):
        try:
            socket.getaddrinfo(socket.gethostname(), 1)
        except OSError:
            self.skipTest("the name of this host, %s, has no address" % socket.gethostname())

    def test_up_on_an_address_that_others_reach(self):
        self.resolves()
        bind = "--bind=0.0.0.0:%d" % free_port()
        log_dir = "--log_dir=%s" % (self.tmp / "cluster")
        said = self.advice(self.run_program("sluice", "up", "--server_num=1", "--worker_num=1", bind, log_dir))
        flags = re.search(r"(--bind=\S+) (--tls)\s*$", said).groups()
        without = self.advice(self.run_program("sluice", "up", "--server_num=1", "--worker_num=1", flags[0], log_dir))
        self.assertIn(flags[1], without)
        cluster = self.up("--server_num=1", "--worker_num=1", *flags)
        address = next(line.split()[2] for line in (cluster / "endpoints.log").read_text().splitlines()
                       if line.startswith("scheduler "))
        self.assertEqual("--bind=" + address, flags[0])
        self.sluice("submit", cluster, "--job=%s" % ADULT, "--epochs=1", "--worker_num=1",
                    "--output_dir=%s" % (self.tmp / "out"))

    def test_a_scheduler_on_all_interfaces(self):
        flags = ["--bind=0.0.0.0:%d" % free_port(), "--log_dir=%s" % (self.tmp / "log")]
        for needed in ("--insecure", "--advertise"):
            said = self.advice(self.run_program("sluice-scheduler", *flags))
            self.assertIn(needed, said)
            flags.append("--insecure" if needed == "--insecure" else "--advertise=localhost:" + flags[0].split(":")[1])
        scheduler = self.start("sluice-scheduler", *flags)
        wait_until(lambda: (self.tmp / "log" / "endpoints.log").exists(), "the scheduler listens")
        scheduler.terminate()
        self.assertEqual(self.exit_code(scheduler), 143)

    def test_daemons_without_a_cluster_file_name_the_missing_flags(self):
        said = self.advice(self.run_program("sluice-worker"))
        self.assertIn("--rank=N", said)
        self.assertNotIn("cluster file", said)
        said = self.advice(self.run_program("sluice-worker", "--rank=0"))
        self.assertIn("--scheduler=HOST:PORT", said)
        said = self.advice(self.run_program("sluice-scheduler", "--lease_ms=300"))
        most = re.search(r"at most (\d+) .*(--heartbeat_ms)", said)
        log = "--log_dir=%s" % (self.tmp / "log")
        scheduler = self.start("sluice-scheduler", "--lease_ms=300", "%s=%s" % (most[2], most[1]), log)
        wait_until(lambda: (self.tmp / "log" / "endpoints.log").exists(), "the scheduler listens")
        scheduler.terminate()
        self.assertEqual(self.exit_code(scheduler), 143)

    def test_commands_in_the_wrong_place_get_advice(self):
        self.assertIn("sluice launch --job=x", self.advice(self.run_program("sluice", "--job=x")))
        self.assertIn("--job=%s" % ADULT, self.advice(self.run_program("sluice", "launch", ADULT)))
        self.assertIn("--program=train.py", self.advice(self.run_program("sluice", "launch", "train.py")))
        self.assertEqual(self.run_program("sluice", "help", "up").stdout, self.run_program("sluice", "up", "--help").stdout)
        job = "--job=%s" % ADULT
        self.assertIn("'train.batch_size'", self.advice(self.run_program("sluice", "launch", job, "--set=batch_size=3")))


class ThreadsTest(SluiceTest):
    """Threads sleep while they wait for each other. Otherwise more threads than cores would be far slower."""

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
    def terminal(self, columns, *flags, **environment):
        return Terminal(self, columns, "sluice", "launch", "--job=%s" % ADULT, "--output_dir=%s" % (self.tmp / "run"),
                        "--log_dir=%s" % (self.tmp / "log"), "--server_num=2", "--worker_num=2", *flags, **environment)

    def assert_one_line_rewritten(self, terminal):
        """A live line is overwritten by the next one or erased, and never followed by a newline."""
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

    def test_every_figure_fits_in_eighty_columns(self):
        terminal = self.terminal(80, "--a_sync=true", "--epochs=40")
        wait_until(lambda: any(map(is_short_live, terminal.live_lines())), lambda: terminal.text)
        terminal.type(b"\x03")
        self.assertEqual(self.exit_code(terminal.process), 130)
        terminal.whole_text()
        self.assert_one_line_rewritten(terminal)
        self.assertTrue(all(len(line) < 80 for line in terminal.live_lines()))

    def test_a_terminal_shows_each_epoch_once_and_no_line_breaks_inside_a_word(self):
        terminal = self.terminal(80, "--epochs=2")
        self.assertEqual(self.exit_code(terminal.process), 0)
        text = terminal.whole_text()
        self.assertTrue(terminal.live_lines(), text)
        self.assertNotRegex(text, r"worker \d: epoch")  # the plain lines of steps
        self.assert_one_line_rewritten(terminal)
        self.assert_table(text, epochs=2)
        # No line breaks inside a word, and the numbers of an epoch appear once.
        plain = re.sub("\r[^\r\n\x1b]*" + re.escape(ERASE), "", text.replace("\r\n", "\n"))
        for line in plain.splitlines():
            self.assertTrue(len(line) <= 80 or " " not in line.strip(), line)
        self.assertEqual(len(re.findall(r"(?m)^1 +32,561 ", plain)), 1)
        self.assertNotIn("+-", plain)
        self.assertNotIn("\x1b", plain)

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
            line = r"(?m)^epoch %d: 32,561 examples in .* loss .* AUC .* accuracy .* RMSE" % epoch
            self.assertEqual(len(re.findall(line, text)), 1)
            # Steps come before what follows them.
            self.assertLess(text.rindex(": epoch %d step" % epoch), re.search(line, text).start())
            self.assertLess(text.rindex(": epoch %d step" % epoch), text.find("running, eval, epoch %d/2" % epoch) % len(text))
        self.assertNotRegex(text, TABLE)
        self.assertRegex(text, r"(?m)^final: AUC ")

    def test_a_dumb_terminal_and_no_color_get_no_escapes(self):
        for environment, live in (({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, True)):
            with self.subTest(environment):
                terminal = self.terminal(100, "--epochs=1", **environment)
                self.assertEqual(self.exit_code(terminal.process), 0)
                text = terminal.whole_text()
                self.assertNotIn("\x1b", text)
                self.assertEqual(bool(re.search(r"\r[^\n]", text)), live, text)
                if live:
                    self.assert_table("\n".join(re.split(r"\r\n|\r", text)), epochs=1)
                else:
                    self.assertRegex(text, r"(?m)^epoch 1: 32,561 examples")

    def test_a_job_is_described_in_a_few_lines_and_its_configuration_is_named(self):
        columns = ["y"] + ["f%d" % i for i in range(200)]
        self.write_csv("train.csv", [[i % 2] + [i] * 200 for i in range(32)], header=",".join(columns))
        job = self.tmp / "many.textproto"
        job.write_text("""
data { format: CSV train_files: "train.csv" csv { header: true } label { column: "y" } }
features { name: "f*" numeric {} }
model { wide_deep { hidden_units: 4 } }
""")
        _, text = self.launch(job=job)
        # How many states of the job are seen depends on the machine's pace.
        described = [line for line in text.splitlines() if not line.startswith("many-1: ")]
        self.assertLess(len(described), 20, text)
        self.assertRegex(text, r"(?m)^model: .*200 features")
        self.assertRegex(text, r"(?m)^data: CSV, train on 1 file ")
        saved = re.search(r"effective configuration: (\S+)$", text, re.M).group(1)
        # The saved configuration and the one that --dry_run prints have every feature.
        self.assertEqual(pathlib.Path(saved).read_text().count("features {"), 200)
        whole = self.run_program("sluice", "launch", "--job=%s" % job, "--dry_run").stdout
        self.assertEqual(whole.count("features {"), 200)

    def assert_table(self, text, epochs):
        """The table of the epochs, and the result below it. Live lines between the rows are left out."""
        text = re.sub("\r[^\r\n\x1b]*" + re.escape(ERASE), "", text.replace("\r\n", "\n"))
        head = TABLE.search(text)
        self.assertTrue(head, text)
        rows = [line for line in text[head.end():].splitlines() if line.strip() and not re.match(r"adult-\d+ \w|ep \d", line)]
        self.assertTrue(all(len(line) <= 80 for line in [head.group(0)] + rows[:epochs]), text)
        for epoch in range(epochs):
            self.assertRegex(rows[epoch], r"^%d +32,561 +[\d.]+( +0\.\d{5}){6}$" % (epoch + 1))
        self.assertRegex(rows[epochs], r"^final: AUC 0\.\d+ (\(standard error 0\.\d+\) )?on 16,281 ")
        self.assertRegex(rows[epochs + 1], r"^ +log loss 0\.\d+, accuracy 0\.\d+, MAE 0\.\d+, RMSE 0\.\d+,$")
        self.assertRegex(rows[epochs + 2], r"^ +calibration ")
        result = " ".join(row.strip() for row in rows[epochs + 3:epochs + 5])  # a terminal may break the line
        self.assertRegex(result, r"^adult-\d+: done, mode a?sync, %d epochs?, [\d,]+ steps, %s examples in "
                         % (epochs, format(32561 * epochs, ",")))


if __name__ == "__main__":
    unittest.main()
