"""However a job ends, the user's models, results, curves and own files are not lost."""
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import unittest

from sluice_testing import BIN, PATIENCE, TIME_SCALE, SluiceTest, wait_until

SMALL = ["--server_num=1", "--worker_num=1", "--epochs=1"]


class OutputTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.data = self.write_csv("train.csv", [(i % 2, i % 7, "ab"[i % 2]) for i in range(200)])
        self.job = self.small_job(train="train.csv", evaluation="train.csv")

    def train(self, *flags, name="run", expect=0):
        return self.launch(*SMALL, *flags, job=self.job, name=name, expect=expect)[0]

    def scores(self, model, *flags, expect=0):
        """Scores the data with a model, which reads and checks the whole model."""
        done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=%s" % self.data,
                                "--output=%s" % (self.tmp / "scores"), "--overwrite", *flags)
        self.assertEqual(done.returncode, expect, done.stdout)
        return (self.tmp / "scores").read_bytes()

    def curves(self, folder):
        return sorted(path.name for path in folder.glob("events.out.tfevents.*"))

    # --------------------------------------------------------------------------------- an earlier model

    def test_the_last_good_model_outlives_jobs_that_make_none(self):
        first = self.train()
        run, link = self.tmp / "run", self.tmp / "link"
        model, expected, curves = run / "model", self.scores(run / "model"), self.curves(run)
        link.symlink_to(run)
        nan = ["--set=optimizers.all={sgd {} learning_rate: 1e30}"]
        # The launch looks at the first 1,000 lines before it starts anything.
        (self.tmp / "bad.csv").write_text("label,x,c\n" + "1,2,a\n" * 1500 + "no,number,here\n" * 20)
        for what, flags, code in (
                ("evaluates only", ["--set=evaluate_only=true", "--set=initial_model=%s/" % model], 0),
                ("saves no model", ["--set=checkpoint.save_final_model=false", "--set=initial_model=%s" % (link / "model")], 0),
                ("has malformed data", ["--set=data.train_files=%s" % (self.tmp / "bad.csv")], 1),
                ("ends in NaN", nan, 1)):
            for folder in (run, "%s/" % run, link):
                with self.subTest(what, folder=str(folder)):
                    done = self.run_program("sluice", "launch", "--job=%s" % self.job, "--output_dir=%s" % folder,
                                            "--log_dir=%s" % (self.tmp / "log"), "--overwrite", *SMALL, *flags)
                    self.assertEqual(done.returncode, code, done.stdout)
                    result = json.loads((run / "result.json").read_text())
                    self.assertEqual((result["status"], result["model_dir"], result["model_digest"]),
                                     ("failed" if code else "done", "", ""))
                    self.assertEqual(json.loads((run / "model_result.json").read_text())["model_digest"],
                                     first["model_digest"])
                    self.assertEqual(self.scores(model), expected)
                    if what != "saves no model":
                        self.assertEqual(self.curves(run)[:1], curves[:1])
                    else:
                        curves = self.curves(run)
                        self.assertEqual(len(curves), 1)  # it has trained, so its curve is the only one
        # Save a model over the one that the job started from.
        second = self.train("--set=initial_model=%s" % model, "--overwrite")
        self.assertNotEqual(second["model_digest"], first["model_digest"])
        self.assertNotEqual(self.scores(model), expected)
        self.assertEqual(len(self.curves(run)), 1)
        self.assertFalse((run / "model_result.json").exists())
        self.assertEqual([path.name for path in run.iterdir() if path.name.startswith("rerun")], [])

    def big_job(self):
        """Returns a job whose model takes a while to save, and its flags."""
        rows = ["label,x,c"] + ["%d,%d,v%d" % (i % 2, i % 7, i) for i in range(120000)]
        (self.tmp / "big.csv").write_text("\n".join(rows) + "\n")
        return ["--server_num=2", "--worker_num=1", "--epochs=1", "--batch_size=4096", "--set=data.eval_files=",
                "--set=data.train_files=%s" % (self.tmp / "big.csv"), "--set=model.wide_deep.embedding_dim=64"]

    def test_a_job_killed_while_saving_over_its_own_model_leaves_a_whole_one(self):
        flags = self.big_job()
        first, _ = self.launch(*flags, job=self.job, timeout=5 * PATIENCE)
        run = self.tmp / "run"
        model, result = run / "model", (run / "result.json").read_bytes()
        expected = self.scores(model)
        before = {path.name for path in model.iterdir()}
        again = ["--set=initial_model=%s" % model, "--overwrite"]
        for stage, seen in (("the first shard is there", lambda names: any(n.endswith(".shard") for n in names)),
                            ("the manifest is prepared", lambda names: any(n.startswith("MANIFEST.") for n in names))):
            with self.subTest(stage):
                launcher = self.start_launch(*flags, *again, job=self.job)
                wait_until(lambda: seen({path.name for path in model.iterdir()} - before) or launcher.poll() is not None, stage)
                launcher.send_signal(signal.SIGKILL)
                launcher.wait()
                self.await_none_left()
                now = self.scores(model)
                seen_result = json.loads((run / "result.json").read_text())
                digest = seen_result["model_digest"]
                if seen_result["status"] == "replaced":  # the signal may come between the new model and its result
                    self.assertEqual(digest, first["model_digest"])
                    expected, result = now, (run / "result.json").read_bytes()
                elif digest == first["model_digest"]:
                    self.assertEqual((run / "result.json").read_bytes(), result)
                    self.assertEqual(now, expected)
                elif digest == "":  # the scheduler had time to write that the job was cancelled
                    self.assertEqual(now, expected)
                    self.assertEqual((run / "model_result.json").read_bytes(), result)
                else:
                    self.assertNotEqual(now, expected)  # the job was over before the signal came
                    first, expected, result = {"model_digest": digest}, now, (run / "result.json").read_bytes()
                before = {path.name for path in model.iterdir()}
        # The next job removes the files that the killed ones left.
        last, _ = self.launch(*flags, *again, job=self.job, timeout=5 * PATIENCE)
        listed = set(re.findall(r'name: "([^"]*\.shard)"', (model / "MANIFEST").read_text()))
        self.assertEqual({path.name for path in model.iterdir()}, listed | {"MANIFEST", "job.textproto"})
        self.scores(model)

    def test_a_full_disk_keeps_the_earlier_model(self):
        folder = self.tmp / "disk"
        folder.mkdir()
        launch = "%s launch --job=%s --output_dir=%s/run --log_dir=%s %s" % (
            BIN / "sluice", self.job, folder, self.tmp / "log", " ".join(SMALL))
        predict = "%s predict --model=%s/run/model --data=%s --overwrite --output=%s" % (
            BIN / "sluice", folder, self.data, self.tmp)
        script = ("set -e; mount -t tmpfs -o size=700k none %s || exit 77; %s; %s/one; "
                  "%s --set=model.wide_deep.hidden_units=700,700 && exit 1; "
                  "%s/two; cat %s/run/result.json; ls -la %s/run/model" % (folder, launch, predict, launch, predict, folder, folder))
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=4 * PATIENCE * TIME_SCALE)
        if done.returncode == 77 or "unshare" in done.stdout:
            self.skipTest("a small file system cannot be mounted here: %s" % done.stdout.strip())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("No space left", done.stdout)
        self.assertEqual((self.tmp / "one").read_bytes(), (self.tmp / "two").read_bytes())

    # ------------------------------------------------------------------------------------- foreign files

    def refused(self, *args, words=(), code=2):
        done = self.run_program("sluice", *args)
        self.assertEqual(done.returncode, code, done.stdout)
        for word in words:
            self.assertIn(str(word), done.stdout)
        return done.stdout

    def test_an_output_folder_that_holds_the_users_own_files(self):
        job = self.tmp / "job.textproto"
        job.write_text(self.job.read_text())
        launch = ["launch", "--job=job.textproto", "--output_dir=.", "--log_dir=log", *SMALL]
        # The job file stays, whatever flags are given.
        for flags in ([], ["--overwrite"]):
            self.refused(*launch, *flags, words=["output_dir", job, "the job file"])
        job.rename(self.tmp / "mine.textproto")
        launch[1] = "--job=mine.textproto"
        for name in ("job.textproto", "result.json"):
            (self.tmp / name).write_text("mine")
            self.refused(*launch, words=["output_dir", self.tmp / name, "--overwrite"])
            self.assertEqual((self.tmp / name).read_text(), "mine")
            self.assertFalse((self.tmp / "log").exists())  # nothing was started
            (self.tmp / name).unlink()
        (self.tmp / "result.json").write_text("mine")
        done = self.run_program("sluice", *launch, "--overwrite")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(json.loads((self.tmp / "result.json").read_text())["status"], "done")
        # Sluice replaces its own files without a flag, but the folder's configuration cannot be the job file.
        done = self.run_program("sluice", *launch)
        self.assertEqual(done.returncode, 0, done.stdout)
        launch[1] = "--job=job.textproto"
        self.refused(*launch, words=["the job file"])

    def test_a_model_folder_is_refused_as_output_folder(self):
        model = pathlib.Path(self.train()["model_dir"])
        expected, names = self.scores(model), sorted(os.listdir(model))
        launch = ["launch", "--job=%s" % self.job, "--output_dir=%s" % model, "--log_dir=%s" % (self.tmp / "log"), *SMALL]
        for flags in ([], ["--overwrite"]):
            self.refused(*launch, *flags, words=["output_dir", model / "MANIFEST"])
        log_dir = self.up("--server_num=1", "--worker_num=1")
        self.sluice("submit", log_dir, "--job=%s" % self.job, "--worker_num=1", "--epochs=1", "--output_dir=%s" % model,
                    expect=2)
        self.assertEqual(sorted(os.listdir(model)), names)
        self.assertEqual(self.scores(model), expected)

    def test_the_users_own_files_beside_a_model_stay(self):
        model = pathlib.Path(self.train()["model_dir"])
        run, curve = model.parent, self.curves(model.parent)[0]
        shard = next(name for name in os.listdir(model) if name.endswith(".shard"))
        copies = [(model / "MANIFEST", model / "MANIFEST.old"), (model / "job.textproto", model / "job.old.textproto"),
                  (model / shard, model / "mine-0.old.shard"), (run / curve, run / (curve + ".bak"))]
        for source, copy in copies:
            shutil.copy(source, copy)
        (run / "rerun-mine").mkdir()
        self.train()
        self.assertFalse((model / shard).exists())
        for _, copy in copies:
            self.assertTrue(copy.exists(), copy)
        self.assertTrue((run / "rerun-mine").exists())
        (model / "job.textproto").write_text("mine")
        launch = ["launch", "--job=%s" % self.job, "--output_dir=%s" % run, "--log_dir=%s" % (self.tmp / "log"), *SMALL]
        self.refused(*launch, words=["output_dir", model / "job.textproto", "--overwrite"])
        self.assertEqual((model / "job.textproto").read_text(), "mine")
        done = self.run_program("sluice", *launch, "--overwrite")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.scores(model)

    def test_a_log_folder_that_holds_the_users_own_files(self):
        log, run = self.tmp / "log", self.tmp / "run"
        log.mkdir()
        for name in ("cluster.textproto", "endpoints.log"):
            (log / name).write_text("mine\n")
            for command in (["launch", "--job=%s" % self.job, "--output_dir=%s" % run, *SMALL],
                            ["up", "--server_num=1", "--worker_num=1"]):
                self.refused(*command, "--log_dir=%s" % log, words=[log / name, "--log_dir"])
            self.assertEqual((log / name).read_text(), "mine\n")
            self.assertEqual(os.listdir(log), [name])  # nothing was started
            (log / name).unlink()
        self.assertFalse(run.exists())
        for _ in range(2):  # the second time the folder is its own
            self.train()

    def test_a_scheduler_refuses_foreign_files_that_submit_did_not_see(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        (self.tmp / "out").mkdir()
        (self.tmp / "out" / "result.json").write_text("mine")
        submit = ["--job=%s" % self.job, "--worker_num=1", "--epochs=1"]
        out = self.sluice("submit", log_dir, *submit, "--output_dir=%s" % (self.tmp / "out"), expect=2)
        self.assertIn("--overwrite", out)
        self.assertEqual(os.listdir(self.tmp / "out"), ["result.json"])
        self.sluice("submit", log_dir, *submit, "--output_dir=%s" % (self.tmp / "out"), "--overwrite")
        self.assertEqual(json.loads((self.tmp / "out" / "result.json").read_text())["status"], "done")

    def test_traces_and_generated_data_replace_nothing_foreign(self):
        trace = self.tmp / "trace.json"
        trace.write_text("mine")
        launch = ["launch", "--job=%s" % self.job, "--output_dir=%s" % (self.tmp / "run"), "--log_dir=%s" % (self.tmp / "log"),
                  "--trace=%s" % trace, *SMALL]
        self.refused(*launch, words=["trace_file", trace, "--overwrite"])
        self.refused(*launch[:-4], "--trace=%s" % self.data, "--overwrite", *SMALL, words=["trace_file", self.data])
        self.assertEqual(trace.read_text(), "mine")
        done = self.run_program("sluice", *launch, "--overwrite")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.run_program("sluice", *launch).returncode, 0)  # its own files
        self.assertEqual(json.loads(trace.read_text())["otherData"]["producer"], "sluice")
        generate = ["data", "gen", "--examples=10", "--output=%s" % (self.tmp / "gen.tsv")]
        (self.tmp / "gen.tsv").write_text("mine")
        self.refused(*generate, words=["--output", self.tmp / "gen.tsv", "--overwrite"])
        self.assertEqual((self.tmp / "gen.tsv").read_text(), "mine")
        self.assertEqual(self.run_program("sluice", *generate, "--overwrite").returncode, 0)
        self.assertEqual(len((self.tmp / "gen.tsv").read_text().splitlines()), 10)

    def test_predictions_replace_nothing_that_is_there(self):
        model = self.train()["model_dir"]
        text = self.data.read_bytes()
        (self.tmp / "link").symlink_to(self.data)
        predict = ["predict", "--model=%s" % model, "--data=%s" % self.data]
        for output in (self.data, self.tmp / "link", pathlib.Path(model) / "MANIFEST", pathlib.Path(model) / "job.textproto"):
            for flags in ([], ["--overwrite"], ["--overwrite", "--worker_num=2"]):
                self.refused(*predict, "--output=%s" % output, *flags, words=["--output", output])
        self.assertEqual(self.data.read_bytes(), text)
        self.scores(model)
        expected = (self.tmp / "scores").read_bytes()
        (self.tmp / "notes").write_text("mine")
        for workers in (1, 2):
            self.refused(*predict, "--output=notes", "--worker_num=%d" % workers, words=["notes", "--overwrite"])
        self.assertEqual((self.tmp / "notes").read_text(), "mine")
        self.assertEqual(self.run_program("sluice", *predict, "--output=notes", "--overwrite").returncode, 0)
        self.assertEqual((self.tmp / "notes").read_bytes(), expected)
        # Standard input is the output file itself.
        with open(self.data) as source:
            done = self.run_program("sluice", "predict", "--model=%s" % model, "--data=-", "--output=%s" % self.data,
                                    "--overwrite", stdin=source)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(self.data.read_bytes(), text)

    # ---------------------------------------------------------------------------------------- prediction

    def test_standard_input_and_ids(self):
        model = self.train()["model_dir"]
        data = self.tmp / "data.csv"
        data.write_text("user,x,c\n" + "".join("u%d,%s,%s\n" % (i, "three" if i == 5 else i % 7, "ab"[i % 2]) for i in range(50)))

        def predict(source, *flags):
            """Reads data from a pipe or file and returns the scores from a pipe."""
            done = subprocess.run([str(BIN / "sluice"), "predict", "--model=%s" % model, "--output=/dev/stdout",
                                   "--max_bad_lines=1", *flags], input=source, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=PATIENCE * TIME_SCALE)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.decode().splitlines()
        plain = predict(None, "--data=%s" % data)
        # Standard output is written where it stands, as when a shell script appends to a file.
        appended = self.tmp / "appended"
        with open(appended, "wb") as out:
            out.write(b"first\n")
            out.flush()
            done = subprocess.run([str(BIN / "sluice"), "predict", "--model=%s" % model, "--output=-", "--data=%s" % data,
                                   "--max_bad_lines=1"], stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE * TIME_SCALE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(appended.read_text().splitlines(), ["first"] + plain)
        appended.unlink()
        self.assertEqual(len(plain), 50)
        self.assertEqual([i for i, score in enumerate(plain) if score == "nan"], [5])
        self.assertEqual(predict(data.read_bytes(), "--data=-"), plain)
        self.assertEqual(predict(gzip.compress(data.read_bytes()), "--data=-"), plain)
        with_ids = ["u%d\t%s" % pair for pair in enumerate(plain)]
        self.assertEqual(predict(data.read_bytes(), "--data=-", "--id_column=user"), with_ids)
        for workers in (1, 3):
            self.assertEqual(predict(None, "--data=%s" % data, "--id_column=user", "--worker_num=%d" % workers), with_ids)
        self.refused("predict", "--model=%s" % model, "--data=%s" % data, "--id_column=usr", "--output=x", words=["usr", "user"])
        self.refused("predict", "--model=%s" % model, "--data=-", "--output=x", "--worker_num=2", words=["--worker_num"])
        self.assertFalse((self.tmp / "x").exists())

    # -------------------------------------------------------------------------------------------- folders

    def test_concurrent_launches_from_one_folder_take_different_numbers(self):
        launches = [self.start("sluice", "launch", "--job=%s" % self.job, "--log_dir=%s" % (self.tmp / ("log%d" % i)), *SMALL,
                               log="launch%d" % i) for i in range(4)]
        for i, launch in enumerate(launches):
            self.assertEqual(self.exit_code(launch, 3 * PATIENCE), 0, (self.tmp / ("launch%d" % i)).read_text())
        results = sorted((self.tmp / "output").iterdir())
        self.assertEqual([path.name for path in results], ["small-%d" % n for n in range(1, 5)])
        for path in results:
            result = json.loads((path / "result.json").read_text())
            self.assertEqual((result["status"], result["job"]), ("done", path.name))
            self.assertTrue((path / "model" / "MANIFEST").exists())

    def test_concurrently_submitted_jobs_take_different_numbers(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        submits = [self.start("sluice", "submit", "--log_dir=%s" % log_dir, "--job=%s" % self.job, "--worker_num=1",
                              "--epochs=1", log="submit%d" % i) for i in range(3)]
        for i, submit in enumerate(submits):
            self.assertEqual(self.exit_code(submit, 3 * PATIENCE), 0, (self.tmp / ("submit%d" % i)).read_text())
        self.assertEqual(sorted(os.listdir(self.tmp / "output")), ["small-1", "small-2", "small-3"])


if __name__ == "__main__":
    unittest.main()
