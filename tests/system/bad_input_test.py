"""Wrong input ends with a message that says what is wrong, where, and what to do. Nothing hangs or stays behind."""
import gzip
import json
import random
import re
import socket
import unittest

from sluice_testing import ADULT, SluiceTest, free_port

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=3"]}
CRASH = re.compile(r"SIG[A-Z]+|signal \d|Check failed|\*\*\* |Sanitizer|runtime error|core dumped|    @  ")


class BadInputTest(SluiceTest):
    def assert_says(self, output, *texts):
        for text in texts:
            self.assertIn(text, output)
        self.assertIsNone(CRASH.search(output), output)

    def refused(self, args, *texts, code=2):
        """Runs a command that must end with `code` and print all of `texts`."""
        done = self.run_program(*args)
        self.assertEqual(done.returncode, code, done.stdout)
        self.assert_says(done.stdout, *texts)
        return done.stdout

    def submit_fails(self, log_dir, job, *texts, flags=(), code=1, name="bad"):
        return self.refused(["sluice", "submit", "--job=%s" % job, "--log_dir=%s" % log_dir,
                             "--output_dir=%s" % (self.tmp / name)] + list(flags), *texts, code=code)

    def rows(self, n=40, first=0):
        return [(i % 2, i, "abc"[i % 3]) for i in range(first, first + n)]

    # -------------------------------------------------------------------------------------- configuration

    def assert_columns_are_checked(self):
        """The message names format and file, and comes before anything is started."""
        path = self.tmp / "columns.textproto"
        for data, wrong in (('format: CRITEO_TSV', "features[0].numeric.column: 'x'"),
                            ('format: MULTI_SLOT slots { name: "x" } slots { name: "lable" } label { column: "label" }',
                             "data.label.column: 'label'")):
            path.write_text('data { train_files: "t" %s }\nfeatures { name: "x" numeric {} }\n'
                            "model { wide_deep { hidden_units: 4 } }\n" % data)
            line = 2 if wrong.startswith("features") else 1
            self.refused(["sluice", "launch", "--job=%s" % path], "columns.textproto:%d: %s" % (line, wrong))

    def test_configuration_errors_name_file_line_and_fix(self):
        def job(old, new):
            path = self.tmp / "wrong.textproto"
            text = ADULT.read_text()
            self.assertIn(old, text)
            path.write_text(text.replace(old, new))
            return ["sluice", "launch", "--job=%s" % path]
        line = 1 + ADULT.read_text().split("batch_size: 128")[0].count("\n")
        self.refused(job("batch_size: 128", "batch_sise: 128"), "wrong.textproto:%d:" % line, "unknown field 'batch_sise'",
                     "did you mean 'batch_size'?")
        self.refused(job("batch_size: 128", "batch_size: -1"), "wrong.textproto:%d:" % line)
        self.refused(job("batch_size: 128", "batch_size: 0"), "wrong.textproto:%d: train.batch_size" % line, "0", "give 1 to")
        self.refused(job("train {", "train"), "wrong.textproto:")
        launch = ["sluice", "launch", "--job=%s" % ADULT]
        for flag in ("--server_num=1001", "--device=cuda:1023", "--gpus=1023"):  # a dry run checks the flags too
            self.refused(launch + ["--dry_run", flag], flag)
        self.refused(launch + ["--dry_run", "--set=optimizers.all.learning_rate=-1"],
                     "--set: optimizers.all.learning_rate: ")
        self.refused(["sluice-pserver", "--rank=0", "--cluster=nosuch"], "nosuch")
        self.refused(launch + ["--a_sync=false", "--k_steps=5"], "--k_steps", "5 contradicts a_sync=false", "set a_sync to true")
        self.refused(launch + ["--k_steps=-1"], "--k_steps", "-1 is negative", "give 0")
        self.refused(launch + ["--k_steps=many"], "--k_steps=many")
        self.refused(launch + ["--reader_threads=2"], "no flag --reader_threads", "--set train.reader_threads=VALUE")
        self.refused(launch + ["--k_step=5"], "no flag --k_step", "did you mean 'k_steps'?", "--help")
        self.refused(launch + ["--batch_size=0"], "--batch_size", "0 is out of range", "give 1 to")
        self.refused(launch + ["--set=optimizers.all.learning_rate=nan"], "optimizers.all", "learning_rate", "nan")
        self.refused(launch + ["--set=train.epoch=2"], "there is no field 'epoch'", "did you mean 'epochs'?")
        self.refused(launch + ["--set=evaluate_only=true"], "evaluate_only", "set initial_model")
        self.refused(launch + ["--set=data.label.column=lable"], "'lable'", "data.csv.columns", "'label'")
        self.assert_columns_are_checked()
        self.refused(launch + ["--set=tables={name: \"embedding\" wire_type: BF16}", "--k_steps=4"], "tables[0].wire_type",
                     "BF16 is refused in Geo", "use F32")
        self.refused(launch + ["--server_num=1001"], "--server_num=1001", "give 0 to")
        self.refused(launch + ["--server_threads=0"], "--server_threads=0", "give 1 to 1024")
        self.refused(launch + ["--log_dir=/proc/nowhere"], "/proc/nowhere", "writable --log_dir")
        self.refused(["sluice", "launch", "--job=nowhere.textproto"], "cannot open nowhere.textproto", "give the path")
        self.refused(["sluice", "launch"], "no job is given", "--job=FILE")
        self.refused(["sluice", "lunch"], "lunch")

    # ----------------------------------------------------------------------------------------------- data

    def test_missing_and_empty_data(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        self.write_csv("train.csv", self.rows())
        for mode, flags in MODES.items():
            with self.subTest(mode):
                job = self.small_job(train="none*.csv")
                self.submit_fails(log_dir, job, "%s/none*.csv" % self.tmp, "folder of the job file",
                                  flags=flags)
                (self.tmp / "empty.csv").write_text("")
                self.submit_fails(log_dir, self.small_job(train="empty.csv"), "the training data", "data.train_files",
                                  flags=flags)
                self.write_csv("header.csv", [])
                self.submit_fails(log_dir, self.small_job(train="header.csv"), "the training data", "data.train_files",
                                  flags=flags)
        job = self.small_job(train="train.csv", evaluation="gone.csv")
        self.submit_fails(log_dir, job, "no data file matches", "gone.csv")
        self.refused(["sluice", "submit", "--job=%s" % job, "--log_dir=%s" % log_dir, "--dry_run"],
                     "data.eval_files", "gone.csv")
        # The cluster still works.
        self.sluice("submit", log_dir, "--job=%s" % self.small_job(train="train.csv"), "--output_dir=%s" % (self.tmp / "good"))

    def test_malformed_lines_beyond_the_limit_are_named(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        # More than one task, so that every mode meets the bad lines in the middle of the file.
        rows = self.rows(4000)
        rows[2997] = (1, "wide", "a")
        rows[2998] = (2, 5, "a")
        rows[3998] = (1, 5)
        path = self.write_csv("train.csv", rows)
        for mode, flags in MODES.items():
            with self.subTest(mode):
                flags = list(flags) + ["--set=data.task_bytes=4096"]
                out = self.submit_fails(log_dir, self.small_job(train="train.csv"), "more", "data.max_bad_lines = 0", flags=flags)
                self.assertRegex(out, re.escape(str(path)) + ":(2999|3000|4000): ")
                out = self.submit_fails(log_dir, self.small_job(train="train.csv", data_extra="max_bad_lines: 2"),
                                        "data.max_bad_lines = 2", "3 malformed lines", "\"wide\"", "%s:2999: " % path,
                                        "\"2\"", "%s:3000: " % path, "%s:4000: " % path, flags=flags)

    def test_files_with_only_malformed_lines(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        self.write_csv("train.csv", self.rows())
        path = self.write_csv("bad.csv", [("yes", i, "a") for i in range(30)])
        for mode, flags in MODES.items():
            with self.subTest(mode):
                job = self.small_job(train="bad.csv", data_extra="max_bad_lines: 30")
                self.submit_fails(log_dir, job, "data has no examples", "30 malformed lines",
                                  "%s:2: " % path, "\"yes\"", "data.train_files", flags=flags)
                job = self.small_job(train="train.csv", evaluation="bad.csv", data_extra="max_bad_lines: 2")
                self.submit_fails(log_dir, job, "data.max_bad_lines = 2", "%s:" % path,
                                  flags=flags)

    def test_malformed_lines_within_the_limit_are_counted_in_one_pass(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        rows = self.rows(900)
        for bad in range(0, 900, 100):
            rows[bad] = ("yes", 1, "a")
        self.write_csv("train.csv", rows)
        job = self.small_job(train="train.csv", data_extra="max_bad_lines: 9")
        for mode, flags in MODES.items():
            with self.subTest(mode):
                self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / mode),
                            "--set=data.task_bytes=1024", *flags)
                result = json.loads((self.tmp / mode / "result.json").read_text())
                self.assertEqual(result["mode"], mode)
                self.assertEqual(result["bad_lines"], 9)
                self.assertEqual([e["examples"] for e in result["epochs_log"]], [891, 891])
        logs = "\n".join(p.read_text(errors="replace") for p in log_dir.rglob("workerlog.*"))
        self.assertIn("%s:2: " % (self.tmp / "train.csv"), logs)
        self.assertIn("\"yes\"", logs)

    def test_missing_columns_and_labels(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        path = self.write_csv("train.csv", self.rows())
        second = self.write_csv("train2.csv", [(1, "a")] * 40, header="label,c")
        for mode, flags in MODES.items():
            with self.subTest(mode):
                job = self.small_job(train="train.csv")
                # The first file is checked before the job is submitted, the others when they are read.
                self.submit_fails(log_dir, job, str(path), "no column \"lable\"", "the label", "label, x, c", code=2,
                                  flags=flags + ["--set=data.label.column=lable"])
                self.submit_fails(log_dir, job, str(path), "no column \"z\"", "a feature", "label, x, c", code=2,
                                  flags=flags + ["--set=features[0].numeric.column=z"])
                self.submit_fails(log_dir, job, "%s:2: " % path, "\"0\"",
                                  flags=flags + ["--set=data.label.positive=yes", "--set=data.label.negative=no"])
                self.submit_fails(log_dir, self.small_job(train="train*.csv"), str(second), "no column \"x\"", "a feature",
                                  "label, c", flags=flags)

    def test_damaged_files(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        text = ("label,x,c\n" + "".join("%d,%d,%s\n" % row for row in self.rows(3000))).encode()
        packed = gzip.compress(text)
        damaged = bytearray(packed)
        damaged[len(packed) // 2] ^= 0xFF
        files = {"cut.csv.gz": packed[:len(packed) // 2], "damaged.csv.gz": bytes(damaged),
                 "garbage.csv": b"\x00\xff\x01,\n\xfe" + random.Random(1).randbytes(20000), "noise.csv": b"label,x,c\n" + random.Random(2).randbytes(20000)}
        self.write_csv("a_good.csv", self.rows())
        for name, content in files.items():
            (self.tmp / name).write_bytes(content)
            for mode, flags in MODES.items():
                with self.subTest(name + " " + mode):
                    # Put it after a good file, because the first file's header is read before the job is submitted.
                    job = self.small_job(train='a_good.csv" train_files: "' + name)
                    out = self.submit_fails(log_dir, job, str(self.tmp / name), flags=flags)
                    if name.endswith(".gz"):
                        self.assertIn("gzip", out)
        statuses = {w["role"].lower().replace("role_", "") for w in self.status(log_dir)["members"]}
        self.assertEqual(statuses, {"pserver", "worker"})

    # -------------------------------------------------------------------------------------------- cluster

    def test_ports_in_use_are_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            nobody = "127.0.0.1:%d" % free_port()
            logs = "--log_dir=%s" % (self.tmp / "logs")
            scheduler = ["sluice-scheduler", logs, "--server_num=1", "--worker_num=1"]
            pserver = ["sluice-pserver", logs, "--rank=0", "--scheduler=%s" % nobody]
            worker = ["sluice-worker", logs, "--rank=0", "--scheduler=%s" % nobody]
            for args in (scheduler + ["--bind=" + address], scheduler + ["--bind=127.0.0.1:0", "--admin_bind=" + address],
                         pserver + ["--bind=" + address], pserver + ["--admin_bind=" + address],
                         worker + ["--admin_bind=" + address]):
                with self.subTest(" ".join(map(str, args[0:1] + args[-1:]))):
                    done = self.run_program(*args)
                    self.assertIn(done.returncode, (1, 2), done.stdout)
                    self.assert_says(done.stdout, address, "in use")

    def test_only_loopback_without_insecure(self):
        logs = "--log_dir=%s" % (self.tmp / "logs")
        for args in (["sluice-scheduler", "--bind=0.0.0.0:0", "--server_num=1", "--worker_num=1"],
                     ["sluice-pserver", "--bind=0.0.0.0:0", "--rank=0", "--scheduler=127.0.0.1:1"],
                     ["sluice-pserver", "--admin_bind=0.0.0.0:0", "--rank=0", "--scheduler=127.0.0.1:1"],
                     ["sluice-worker", "--admin_bind=0.0.0.0:0", "--rank=0", "--scheduler=127.0.0.1:1"]):
            with self.subTest(" ".join(args[:2])):
                self.refused(args + [logs], "0.0.0.0:0", "not a loopback address", "--insecure")

    def test_without_tls_or_insecure_the_scheduler_is_sought_only_on_loopback(self):
        far = "198.51.100.1:7100"  # reserved for documentation: nobody answers there
        for args in (["sluice-pserver", "--rank=0", "--log_dir=%s" % (self.tmp / "logs")],
                     ["sluice-worker", "--rank=0", "--log_dir=%s" % (self.tmp / "logs")],
                     ["sluice", "status"], ["sluice", "down"], ["sluice", "submit", "--job=%s" % ADULT]):
            with self.subTest(" ".join(args[:2])):
                self.refused(args + ["--scheduler=" + far], far, "not a loopback address", "--insecure", "--tls_cert")

    def test_the_wait_for_an_unreachable_scheduler_is_bounded(self):
        address = "127.0.0.1:%d" % free_port()
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('scheduler: "%s"\npservers: "127.0.0.1:0"\nworker_num: 1\nlimits { wait_s: 10 }\n' % address)
        daemons = {}
        for role in ("sluice-worker", "sluice-pserver"):
            daemons[role] = self.start(role, "--cluster=%s" % cluster, "--rank=0", "--log_dir=%s" % (self.tmp / role),
                                       log=role + ".out")
        self.refused(["sluice", "status", "--scheduler=" + address], address, "is it running", code=3)
        out = self.refused(["sluice", "submit", "--job=%s" % ADULT, "--scheduler=" + address], address, "did not answer within",
                           "start sluice-scheduler", code=3)
        self.assertGreaterEqual(len(re.findall("waiting for the scheduler at " + address, out)), 2, out)
        for role, daemon in daemons.items():
            self.assertNotEqual(self.exit_code(daemon), 0)
            out = (self.tmp / (role + ".out")).read_text() + "".join(
                p.read_text(errors="replace") for p in (self.tmp / role).glob("*log.*"))
            self.assert_says(out, address)
            # One line every 3 s.
            self.assertGreaterEqual(len(re.findall("wait.*" + re.escape(address), out)), 2, out)

    def test_jobs_that_the_cluster_can_never_run(self):
        address = "127.0.0.1:%d" % free_port()
        self.start("sluice-scheduler", "--bind=" + address, "--server_num=1", "--worker_num=0",
                   "--log_dir=%s" % (self.tmp / "logs"))
        self.write_csv("train.csv", self.rows())
        job = self.small_job()
        self.refused(["sluice", "submit", "--job=%s" % job, "--scheduler=" + address], "the cluster has no workers",
                     "sluice-worker", code=1)
        log_dir = self.up("--server_num=1", "--worker_num=2")
        self.submit_fails(log_dir, job, "asks for 3 workers", "the cluster has 2", "--worker_num", code=2, flags=["--worker_num=3"])

    # ----------------------------------------------------------------------------------- models and output

    def test_folders_that_hold_no_model(self):
        self.write_csv("train.csv", self.rows())
        log_dir = self.up("--server_num=1", "--worker_num=1")
        job = self.small_job(train="train.csv", evaluation="train.csv")
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "first"))
        model = self.tmp / "first" / "model"
        self.submit_fails(log_dir, job, "initial_model", str(self.tmp / "gone"), "not a saved model", "`model`",
                          flags=["--set=initial_model=%s" % (self.tmp / "gone")])
        self.submit_fails(log_dir, job, "initial_model", str(self.tmp / "first"), "not a saved model", "MANIFEST",
                          flags=["--set=initial_model=%s" % (self.tmp / "first")])
        other = ["--set=initial_model=%s" % model, "--set=model.wide_deep.hidden_units=7"]
        out = self.submit_fails(log_dir, job, "initial_model: table", "; the job's is dense", "more tables do not fit",
                                "features and widths", code=2, flags=other)  # before the job is submitted
        self.assertLess(len(out), 500, out)
        self.refused(["sluice", "launch", "--job=%s" % job, "--server_num=1", "--worker_num=1", *other],
                     "initial_model: table", "features and widths")
        self.refused(["sluice", "launch", "--job=%s" % job, "--server_num=1", "--worker_num=1", "--set=initial_model=gone"],
                     "initial_model: %s" % (self.tmp / "gone"),
                     "folder of the job file")
        files = [p for p in model.iterdir() if p.name not in ("MANIFEST", "job.textproto")]
        shard = max(files, key=lambda p: p.stat().st_size)
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(content)
        for flags in (["--set=evaluate_only=true"], []):
            self.submit_fails(log_dir, job, "initial_model", shard.name, "damaged",
                              flags=["--set=initial_model=%s" % model] + flags)
        self.refused(["sluice", "predict", "--model=%s" % model, "--data=%s" % (self.tmp / "train.csv"), "--output=scores"],
                     shard.name, "damaged", code=1)
        self.refused(["sluice", "predict", "--model=%s" % (self.tmp / "gone"), "--data=x", "--output=scores"],
                     "not a saved model", "`model`")
        self.assertFalse((self.tmp / "scores").exists())

    def test_a_loss_that_explodes_ends_the_job(self):
        self.write_csv("train.csv", self.rows(400))
        log_dir = self.up("--server_num=2", "--worker_num=2")
        for mode, flags in MODES.items():
            with self.subTest(mode):
                self.submit_fails(log_dir, self.small_job(train="train.csv"), "table '", "worker", "NaN", "learning rate",
                                  flags=flags + ["--set=optimizers.all={sgd {} learning_rate: 1e30}", "--worker_num=2"])

    def test_output_folders_that_cannot_be_made(self):
        self.write_csv("train.csv", self.rows())
        (self.tmp / "file").write_text("")
        log_dir = self.up("--server_num=1", "--worker_num=1")
        job = "--job=%s" % self.small_job(train="train.csv")
        for where, code in (("/proc/nowhere", 1), (self.tmp / "file", 2)):  # submit cannot check the first
            self.refused(["sluice", "submit", job, "--log_dir=%s" % log_dir, "--output_dir=%s" % where],
                         "output_dir", str(where), "writable", code=code)
            self.refused(["sluice", "launch", job, "--log_dir=%s" % (self.tmp / "unused"), "--output_dir=%s" % where],
                         "output_dir", str(where), "writable")

    def test_launch_looks_for_the_data_before_it_starts_anything(self):
        self.write_csv("train.csv", self.rows())
        for field, files in (("data.train_files", {"train": "none*.csv"}),
                             ("data.eval_files", {"train": "train.csv", "evaluation": "gone.csv"})):
            self.refused(["sluice", "launch", "--job=%s" % self.small_job(**files), "--log_dir=%s" % (self.tmp / "unused")],
                         field, "no data file matches", "folder of the job file")
        self.assertFalse((self.tmp / "unused").exists())


if __name__ == "__main__":
    unittest.main()
