"""Models, checkpoints and results on a store: nothing shared, and nothing of them on this machine."""
import json
import os
import re
import shutil
import signal
import threading
import unittest
import urllib.request

import delete_rows_test
import export_test
import places_test
from sluice_testing import ADULT, TEST_BIN, free_port, kill_unless_over, processes_naming, wait_until

# A key that a URL, a signature or a shell could take for something else.
OUT = "out=1/a b+c%41\u00fc/run"
MANIFEST = r"/step-\d+/MANIFEST$"
MODEL = r"/run/model/MANIFEST$"
RESULT = r"/run/result\.json$"
OWNER = r"/run/OWNER$"
places_test.skip_without_store()


class StoreOutputTest(places_test.StoreTest):
    def flags(self, *more, data="s3://data/day=*/*.csv", output="s3://data/" + OUT, name="run"):
        return ["--job=%s" % ADULT, "--output_dir=%s" % output, "--log_dir=%s" % (self.tmp / (name + ".log")),
                "--set=data.train_files=%s" % data, "--set=data.eval_files=%s" % data, "--epochs=3", "--worker_num=2",
                "--server_num=2", "--a_sync=false", "--set=checkpoint.every_epochs=1", *more]

    def train(self, *more, expect=0, **kwargs):
        done = self.run_program("sluice", "launch", *self.flags(*more, **kwargs), timeout=240)
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def trained_here(self):
        self.train(data=self.local / "day=*" / "*.csv", output=self.tmp / "here", name="here")
        return json.loads((self.tmp / "here" / "result.json").read_text())

    def result(self, out=OUT):
        return json.loads(self.text(out + "/result.json"))

    def verify(self, out=OUT, expect=0):
        done = self.run_program("sluice", "ckpt", "verify", "s3://data/" + out)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def test_a_job_with_nothing_local_equals_one_on_files_while_the_store_fails_at_times(self):
        here = self.trained_here()
        kinds = {2: "lost", 4: "busy", 6: "slow", 9: "cut"}
        self.proxy.fault = lambda number, method, path: kinds.get(number % 17)
        trace = "s3://data/traces/trace.json"
        text = self.train("--trace=%s" % trace)
        self.assertIn("s3://data/" + OUT, text)
        there = self.result()
        self.assertEqual(there["model_digest"], here["model_digest"])
        self.assertEqual(there["eval"], here["eval"])
        self.assertEqual(there["model_dir"], "s3://data/%s/model" % OUT)
        self.assertEqual(set(self.proxy.faults), {"lost", "busy", "slow", "cut"})
        self.assertTrue(json.loads(self.text("traces/trace.json"))["traceEvents"])
        names = [name[len(OUT) + 1:] for name in self.objects(OUT + "/")]
        self.assertEqual([name for name in names if name.startswith("events.out.tfevents.")][1:], [], names)
        self.assertFalse([name for name in names if "prepared" in name or "probe" in name], names)
        self.assertIn("ended: true", self.text(OUT + "/OWNER"))
        self.verify()
        listed = self.run_program("sluice", "ckpt", "list", "s3://data/" + OUT)
        self.assertIn("step-", listed.stdout)
        # Predicts from the model there, and puts the scores there.
        done = self.run_program("sluice", "predict", "--model=s3://data/%s/model" % OUT,
                                "--data=s3://data/" + places_test.TRAIN[0], "--output=s3://data/scores.txt")
        self.assertEqual(done.returncode, 0, done.stdout)
        done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / "here" / "model"),
                                "--data=%s" % (self.local / places_test.TRAIN[0]),
                                "--output=%s" % (self.tmp / "scores.txt"))
        self.assertEqual(self.text("scores.txt"), (self.tmp / "scores.txt").read_text())
        # A later job starts from both.
        self.proxy.fault = lambda number, method, path: None
        self.train("--set=initial_model=s3://data/%s/model" % OUT, "--epochs=1", output="s3://data/next", name="next")
        self.train("--set=initial_checkpoint=s3://data/%s" % OUT, "--epochs=1", output="s3://data/next", name="next")
        self.assertEqual(self.result("next")["status"], "done")
        self.assert_no_secret_in_files()
        self.assertFalse((self.tmp / "s3:").exists())

    def test_tables_come_from_a_store_and_go_there(self):
        here = self.trained_here()
        self.train()
        there, model = "s3://data/tables", "s3://data/%s/model" % OUT

        def table(*words, expect=0):
            done = self.run_program("sluice", "table", *words)
            self.assertEqual(done.returncode, expect, done.stdout)
            return done.stdout

        rows = json.loads(table("stats", model, "--json"))["tables"][0]["rows"]
        table("export", model, "--output=%s/rows.npz" % there)
        table("export", model, "--output=%s/rows.npz" % there, expect=2)
        out = table("import", there + "/rows.npz", "--like=" + model, "--output=%s/again" % there)
        self.assertIn(here["model_digest"], out)
        table("shrink", model, "--max_rows=%d" % (rows // 2), "--score=NORM", "--output=%s/small" % there)
        left = json.loads(table("stats", there + "/small", "--json"))["tables"][0]["rows"]
        self.assertLessEqual(left, rows // 2)
        self.assertGreater(left, rows // 3)
        table("export", there + "/small", "--output=%s/small.npz" % there)
        out = table("delete", there + "/small", "--keys=%s/small.npz" % there, "--output=%s/empty" % there)
        self.assertIn("%d of %d keys found" % (left, left), out.replace(",", ""))
        for output in (model, there + "/small", there + "/small/", there + "/small/new"):
            table("shrink", there + "/small", "--max_rows=9", "--score=NORM", "--output=" + output, expect=2)
        self.assertEqual(json.loads(table("stats", there + "/small", "--json"))["tables"][0]["rows"], left)

    def kill_at(self, method, pattern, carried, start=None):
        """Kills all processes of a launch, or of the job that `start` submits, at the first such request after the first checkpoint. `carried`: the store
        still gets the request."""
        first, killed = threading.Event(), threading.Event()

        def look(got, path):
            if killed.is_set() or not first.is_set() or got != method or not re.search(pattern, path):
                return None
            killed.set()
            for pid, _ in processes_naming(str(self.tmp)):
                kill_unless_over(pid)
            return "busy"

        def after(got, path):
            if carried:
                look(got, path)
            if got == "PUT" and re.search(MANIFEST, path):
                first.set()
        self.proxy.after = after
        if not carried:
            self.proxy.fault = lambda number, got, path: look(got, path)
        if start:
            submitted = start()
            wait_until(lambda: killed.is_set() or submitted.poll() is not None, lambda: (self.tmp / "submit.out").read_text(),
                       within=240)
            submitted.kill()
            submitted.wait()
        else:
            self.train(expect=None)
        self.assertTrue(killed.is_set(), "no %s of %s: %s" % (method, pattern, self.objects(OUT)))
        self.await_none_left()
        self.proxy.fault = lambda number, method, path: None
        self.proxy.after = lambda method, path: None

    def assert_nothing_left(self):
        """Only what manifests list is left of checkpoints, with the manifests. A save that was killed right after its manifest has left
        that under its first name, too, which goes with the checkpoint."""
        folders = {}
        for name in self.objects(OUT + "/checkpoints/"):
            folder, file = name.rsplit("/", 1)
            folders.setdefault(folder, set()).add(file)
        self.assertTrue(folders)
        for folder, files in folders.items():
            self.assertIn("MANIFEST", files, folder)
            manifest = self.text(folder + "/MANIFEST")
            in_force = lambda file: file.startswith("MANIFEST.") and file.split(".")[1] in manifest
            self.assertEqual([file for file in files if file not in manifest and not in_force(file)], ["MANIFEST"], folder)

    def test_a_kill_at_each_step_of_a_save_leaves_the_last_checkpoint_in_force(self):
        here = self.trained_here()
        for what, method, pattern, carried in (
                ("a shard", "PUT", r"/step-\d+/[^/]*\.shard$", False),
                ("the job of a checkpoint", "PUT", r"/step-\d+/job\.[0-9a-f]+\.textproto$", False),
                ("the prepared manifest", "PUT", r"/step-\d+/MANIFEST\.[0-9a-f]{16}$", True),
                ("before the manifest", "PUT", MANIFEST, False),
                ("after the manifest", "PUT", MANIFEST, True),
                ("the removal of a manifest", "DELETE", MANIFEST, True),
                ("the removal of what it listed", "DELETE", r"/step-\d+/[^/]*\.shard$", True),
                ("before the model is in force", "PUT", MODEL, False),
                ("after the model is in force", "PUT", MODEL, True),
                ("before the result", "PUT", RESULT, False),
                ("after the result", "PUT", RESULT, True),
                ("before the end of the claim", "PUT", OWNER, False),
                ("after the end of the claim", "PUT", OWNER, True)):
            with self.subTest(what):
                for one in self.objects(OUT):
                    self.command("delete", one)
                self.kill_at(method, pattern, carried)
                self.assertIn("step-", self.verify())
                if pattern == OWNER or (pattern == RESULT and carried):
                    self.assertEqual(self.result()["status"], "done")
                self.assertEqual("ended: true" in self.text(OUT + "/OWNER"), what == "after the end of the claim")
                if what == "a shard":  # it says that it writes there until somebody decides
                    self.assertIn("--resume", self.train(expect=2))
                self.train("--resume")
                self.assertEqual(self.result()["model_digest"], here["model_digest"])
                self.verify()
                if method == "DELETE":  # the next save goes on with it
                    self.train("--resume", "--epochs=4")
                self.assert_nothing_left()

    def test_a_daemon_that_dies_at_a_manifest_alone_changes_no_bit(self):
        here = self.trained_here()
        for role, carried, losses in (("pserver", True, "pserver_losses"), ("scheduler", False, "scheduler_restarts"),
                                      ("scheduler", True, "scheduler_restarts")):
            with self.subTest("%s, carried: %s" % (role, carried)):
                for one in self.objects(OUT):
                    self.command("delete", one)
                killed, claims = [], []

                def look(got, path):
                    if not killed and got == "PUT" and re.search(MANIFEST, path):
                        claims.append(self.text(OUT + "/OWNER"))
                        killed.extend(one.pid for one in self.endpoints() if (one.role, one.rank) == (role, 0))
                        kill_unless_over(killed[-1])
                        return "busy"
                    return None
                setattr(self.proxy, "after" if carried else "fault",
                        look if carried else lambda number, method, path: look(method, path))
                self.train()
                self.proxy.fault = lambda number, method, path: None
                self.proxy.after = lambda method, path: None
                result = self.result()
                self.assertEqual((result["status"], result["model_digest"]), ("done", here["model_digest"]))
                self.assertEqual(result["recovery"][losses], 1, result["recovery"])
                owner = self.text(OUT + "/OWNER")
                self.assertIn("ended: true", owner)
                same = [re.search("claim: .*", text)[0] for text in (claims[0], owner)]
                self.assertEqual(same[0] == same[1], role == "pserver", same)  # the next scheduler claims the folder for itself
                self.verify()
                shutil.rmtree(self.tmp / "run.log")

    def test_a_job_resumes_while_the_store_fails(self):
        here = self.trained_here()
        self.kill_at("PUT", r"/step-\d+/[^/]*\.shard$", False)
        kinds = {2: "lost", 4: "busy", 6: "slow", 9: "cut"}
        once, again = [], []

        def fault(number, method, path):
            """One shard of the checkpoint is read in another version, and later one is put without an answer."""
            wanted = ("GET", "other") if not once else ("PUT", "never")
            if len(once) < 2 and method == wanted[0] and path.endswith(".shard"):
                once.append(path)
                return wanted[1]
            if method == "PUT" and [path] == once[1:]:
                again.append(path)
                return None
            return kinds.get(number % 17)
        self.proxy.fault = fault
        refused = self.train("--resume", expect=1)
        self.assertIn("has another version now", refused)
        self.assertIn(once[0].rsplit("/", 1)[1], refused)
        self.train("--resume")
        self.assertEqual(set(self.proxy.faults), {"other", "never", *kinds.values()})
        self.assertEqual(len(again), 1)
        self.assertEqual(self.result()["model_digest"], here["model_digest"])
        self.verify()

    def start_with_small_parts(self, *flags):
        """Starts daemons whose pservers upload in small parts, and submits the job to them. Returns the submission."""
        address = "127.0.0.1:%d" % free_port()
        log = "--log_dir=%s" % (self.tmp / "parts.log")
        shutil.rmtree(self.tmp / "parts.log", ignore_errors=True)  # with the state, in which a killed job would go on
        self.start("sluice-scheduler", "--bind=%s" % address, "--server_num=2", "--worker_num=2", log)
        for rank in range(2):
            common = ["--rank=%d" % rank, "--scheduler=%s" % address, log]
            self.start(TEST_BIN / "small_parts_pserver", *common, "--bind=127.0.0.1:0", log="pserver.%d.out" % rank)
            self.start("sluice-worker", *common)
        flags = [flag for flag in self.flags(*flags) if not flag.startswith(("--log_dir=", "--server_num="))]
        return self.start("sluice", "submit", "--scheduler=%s" % address, *flags, log="submit.out")

    def test_a_kill_at_each_step_of_an_upload_in_parts_leaves_the_last_checkpoint_in_force(self):
        here = self.trained_here()
        shard = r"/checkpoints/step-\d+/[^/]*\.shard\?"
        for what, method, pattern, carried, left in (
                ("before the beginning", "POST", shard + "uploads=", False, False),
                ("after the beginning", "POST", shard + "uploads=", True, True),
                ("before a part", "PUT", shard + "partNumber=2", False, True),
                ("after a part", "PUT", shard + "partNumber=2", True, True),
                ("before the end", "POST", shard + "uploadId=", False, True),
                ("after the end", "POST", shard + "uploadId=", True, False),
                ("a part of the model", "PUT", r"/run/model/[^/]*\.shard\?partNumber=2", True, True)):
            with self.subTest(what):
                for one in self.objects(OUT):
                    self.command("delete", one)
                self.kill_at(method, pattern, carried, self.start_with_small_parts)
                if left:  # other pservers were uploading, too
                    self.assertTrue(self.command("uploads"))
                self.assertIn("step-", self.verify())
                self.train("--resume")
                self.assertEqual(self.result()["model_digest"], here["model_digest"])
                self.assertEqual(self.command("uploads"), [])
                self.verify()

    def test_an_upload_in_parts_whose_answers_fail_makes_the_same_files(self):
        here = self.trained_here()
        ends, wrong = [], []

        def fault(number, method, path):
            if method == "POST" and "?uploadId=" in path and path not in ends:
                ends.append(path)
                return ("late", "lost")[len(ends) % 2]
            # A part of the first checkpoint, which then fails alone.
            if "?partNumber=3&" in path and not wrong:
                wrong.append(path)
                return "other"
            return None
        self.proxy.fault = fault
        submitted = self.start_with_small_parts()
        self.assertEqual(self.exit_code(submitted, 240), 0, (self.tmp / "submit.out").read_text())
        self.proxy.fault = lambda number, method, path: None
        self.assertEqual(self.result()["model_digest"], here["model_digest"])
        self.assertEqual(set(self.proxy.faults), {"late", "lost", "other"})
        self.assertIn("InvalidPart", (self.tmp / "parts.log" / "schedulerlog.0").read_text())
        self.assertEqual(self.command("uploads"), [])
        self.verify()

    def test_of_two_that_resume_in_a_folder_the_first_fails_by_name(self):
        flags = self.flags("--epochs=2000", name="first")
        first = self.start("sluice", "launch", *flags, log="first.out")
        wait_until(lambda: any(name.endswith("/MANIFEST") for name in self.objects(OUT)), "a checkpoint")
        first.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(first), 130)
        writers, claims = [], [self.text(OUT + "/OWNER")]
        for name in ("one", "other"):
            writers.append(self.start("sluice", "launch", *self.flags("--epochs=2000", "--resume", name=name), log=name + ".out"))
            wait_until(lambda: self.text(OUT + "/OWNER") not in claims, lambda: (self.tmp / (name + ".out")).read_text())
            claims.append(self.text(OUT + "/OWNER"))
        self.assertEqual(self.exit_code(writers[0], 120), 1)
        self.assertIn("has lost its folder to job", (self.tmp / "one.out").read_text())
        writers[1].send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(writers[1]), 130, (self.tmp / "other.out").read_text())
        self.verify()

    def test_of_two_writers_of_a_folder_one_fails_by_name(self):
        first = self.start("sluice", "launch", *self.flags("--epochs=2000", name="first"), log="first.out")
        wait_until(lambda: any(name.endswith("/MANIFEST") for name in self.objects(OUT)), "a checkpoint")
        refused = self.train(expect=2, name="second")
        self.assertIn("has not", refused)
        self.train("--overwrite", name="second")
        self.assertEqual(self.exit_code(first, 120), 1)
        self.assertIn("has lost its folder to job", (self.tmp / "first.out").read_text())
        self.assertEqual(self.result()["status"], "done")
        self.verify()

    def test_a_store_that_is_away_at_the_end_costs_neither_result_nor_model(self):
        here = self.trained_here()
        away = threading.Event()

        def fault(number, method, path):
            if method == "PUT" and path.endswith("/run/model/MANIFEST"):
                away.set()
            return "busy" if away.is_set() else None
        self.proxy.fault = fault
        launcher = self.start("sluice", "launch", *self.flags(), log="run.out")
        wait_until(away.is_set, lambda: (self.tmp / "run.out").read_text(), within=240)
        status = ["status", "--log_dir=%s" % (self.tmp / "run.log")]
        wait_until(lambda: "waits for the place of its output" in self.run_program("sluice", *status).stdout,
                   lambda: (self.tmp / "run.out").read_text(), within=120)  # all tries of a request take a minute at most
        self.assertIsNone(launcher.poll())
        self.assertFalse([name for name in self.objects(OUT) if name.endswith(("/result.json", "/model/MANIFEST"))])
        self.proxy.fault = lambda number, method, path: None
        self.assertEqual(self.exit_code(launcher, 120), 0, (self.tmp / "run.out").read_text())
        result = self.result()
        self.assertEqual((result["status"], result["model_digest"]), ("done", here["model_digest"]))
        self.assertIn("did not answer", " ".join(result["warnings"]))
        self.assertIn("ended: true", self.text(OUT + "/OWNER"))
        self.verify()

    def start_alone(self, program, cluster, *flags):
        """Starts a daemon as if on a host of its own: its folders are no other's, and its roots are on the store."""
        host = self.tmp / "hosts" / ("%s-%s" % (program, cluster))
        for name in ("work", "tmp"):
            (host / name).mkdir(parents=True)
        self.start(program, "--log_dir=%s" % (host / "log"), "--output_root=s3://data/jobs/", "--data_root=s3://data", *flags,
                   cwd=host / "work", env={**os.environ, "TMPDIR": str(host / "tmp")})

    def test_a_cluster_of_one_host_has_its_root_on_the_store(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--output_root=s3://data/jobs", "--data_root=s3://data")
        data = "s3://data/day=*/*.csv"
        self.sluice("submit", log_dir, "--job=%s" % ADULT, "--epochs=1", "--worker_num=1", "--set=checkpoint.every_epochs=1",
                    "--set=data.train_files=" + data, "--set=data.eval_files=" + data)
        (name,) = [name for name in self.objects("jobs/") if name.endswith("/result.json")]
        self.assertEqual(json.loads(self.text(name))["status"], "done")
        self.assertIn("step-", self.verify(name[:-len("/result.json")]))
        # Each daemon counts what it asks of the store.
        for daemon, counted in (("scheduler 0", ("requests", "sent_bytes", "seconds")),
                                ("pserver 0", ("requests", "sent_bytes", "seconds")), ("worker 0", ("requests", "bytes", "seconds"))):
            with urllib.request.urlopen("http://%s/metrics" % self.admin_addresses(log_dir)[daemon], timeout=60) as page:
                metrics = page.read().decode()
            for what in counted:
                found = re.search(r'(?m)^sluice_%s_place_%s_total\{place="s3"\} (\S+)$' % (daemon[:-2], what), metrics)
                self.assertTrue(found, "%s of the %s in:\n%s" % (what, daemon, metrics))
                self.assertGreater(float(found[1]), 0)

    def test_clusters_with_one_root_on_the_store_give_their_jobs_different_folders(self):
        data = "s3://data/day=*/*.csv"
        at, submitted = [], []
        for name in ("one", "other"):
            at.append("--scheduler=127.0.0.1:%d" % free_port())
            members = [("pserver", "0"), ("worker", "0"), ("worker", "1")]
            self.start_alone("sluice-scheduler", name, at[-1].replace("--scheduler", "--bind"), "--server_num=1", "--worker_num=2")
            for role, rank in members:
                self.start_alone("sluice-" + role, name + rank, "--rank=" + rank, at[-1])
        for scheduler in at:
            wait_until(lambda: self.run_program("sluice", "status", scheduler).stdout.count(" alive ") == 4, "all members")
        job = ["--job=%s" % ADULT, "--epochs=1", "--worker_num=2", "--set=checkpoint.every_epochs=1",
               "--set=data.eval_files=" + data]
        for number, scheduler in enumerate(at):
            submitted.append(self.start("sluice", "submit", scheduler, *job, "--set=data.train_files=" + data,
                                        log="submit.%d.out" % number))
        for number, one in enumerate(submitted):
            self.assertEqual(self.exit_code(one, 180), 0, (self.tmp / ("submit.%d.out" % number)).read_text())
        names = sorted(name for name in self.objects("jobs/") if name.endswith("/result.json"))
        self.assertEqual(len(names), len(submitted), self.objects("jobs/"))
        for name in names:
            folder = name[:-len("/result.json")]
            self.assertEqual("jobs/" + json.loads(self.text(name))["job"], folder)
            self.assertIn("job: %s\n" % folder[len("jobs/"):], self.text(folder + "/OWNER"))
            self.assertIn("step-", self.verify(folder))
        for flags in (["data.train_files=s3://other/a.csv"], ["output_dir=s3://other/out"],
                      ["checkpoint.dir=s3://other/checkpoints"], ["output_dir=%s" % (self.tmp / "out")]):
            files = [] if "train_files" in flags[0] else ["data.train_files=" + data]
            done = self.run_program("sluice", "submit", at[0], *job, *("--set=" + flag for flag in flags + files))
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn(flags[0].split("=")[1], done.stdout)
            self.assertIn("_root", done.stdout)
        for scheduler in at:
            self.run_program("sluice", "down", scheduler)
        self.await_none_left()
        # Daemons left nothing but logs and state on their hosts.
        for host in (self.tmp / "hosts").iterdir():
            self.assertEqual(sorted(path.name for path in host.iterdir()), ["log", "tmp", "work"])
            self.assertEqual([*(host / "tmp").iterdir(), *(host / "work").iterdir()], [])
        self.assertEqual([*self.tmp.rglob("*.shard"), *self.tmp.rglob("MANIFEST")], [])

    def make_exports(self, wanted, made, output, name, *more, keep=9):
        """Trains with exports until made() says that there are as many as wanted, and then cancels the job."""
        flags = self.flags("--epochs=100000", "--set=checkpoint.every_epochs=0", "--set=export.every_steps=10", "--set=export.keep=%d" % keep,
                           *more, output=output, name=name)
        launcher = self.start("sluice", "launch", *flags, log=name + ".out")

        def look():
            self.assertIsNone(launcher.poll(), (self.tmp / (name + ".out")).read_text())
            return made() >= so_far
        for so_far in range(1, wanted + 1):  # one after the other: a slow machine needs its time for each
            wait_until(look, lambda: "exports in %s:\n%s" % (self.objects(OUT), (self.tmp / (name + ".out")).read_text()))
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(launcher), 130)

    def test_exports_are_on_the_store_as_they_would_be_in_a_folder(self):
        def delta(*words, expect=0):
            done = self.run_program("sluice", "delta", *words)
            self.assertEqual(done.returncode, expect, done.stdout)
            return done.stdout

        def digest(manifests):
            """The model digest of the first base or model."""
            text = next(text for text in manifests if not re.search(r"^ +from: ", text, re.M))
            return re.search(r'model_digest: "(\w+)"', text)[1]
        here = self.tmp / "here"
        self.make_exports(1, lambda: len(list(here.glob("export/*/MANIFEST"))), here, "here")
        kinds = {2: "lost", 4: "busy", 9: "cut"}
        self.proxy.fault = lambda number, method, path: kinds.get(number % 17)
        there = OUT + "/export"

        def members():
            return sorted(name for name in self.objects(there) if name.endswith("/MANIFEST"))
        self.make_exports(3, lambda: len(members()), "s3://data/" + OUT, "run")
        self.proxy.fault = lambda number, method, path: None
        self.assertEqual(digest(map(self.text, members())),
                         digest(path.read_text() for path in sorted(here.glob("export/*/MANIFEST"))))
        lines = delta("verify", "s3://data/" + there)
        self.assertEqual(lines.count("ok "), len(members()), lines)
        delta("apply", "s3://data/" + there, "--output=s3://data/applied")
        delta("apply", "s3://data/" + there, "--output=%s" % (self.tmp / "applied"))
        self.assertEqual(digest([self.text("applied/MANIFEST")]), digest([(self.tmp / "applied" / "MANIFEST").read_text()]))

        # A base of the second run replaces all that the first one has made.
        def instances():
            return {name.split("/")[-2].split("-")[0] for name in self.objects(there + "/") if "-" in name[len(there):]}
        first = instances()
        self.make_exports(1, lambda: members() and not first & instances(), "s3://data/" + OUT, "again", "--resume", keep=1)
        self.assertEqual((len(first), len(instances())), (1, 1))
        refused = self.train("--set=export.every_steps=10", "--set=export.dir=s3://data/" + there, output="s3://data/other",
                             name="other", expect=1)
        self.assertIn("holds exports of the job with output_dir s3://data/" + OUT, refused)
        self.assertIn("ended: true", self.text(there + "/OWNER"))

    def test_other_modes_and_the_best_model_are_on_the_store(self):
        for name, more in (("best", ["--set=checkpoint.save=BEST"]), ("async", ["--a_sync=true"]),
                           ("geo", ["--a_sync=true", "--k_steps=4"])):
            with self.subTest(name):
                out = "out/" + name
                self.train(*more, output="s3://data/" + out, name=name)
                result = self.result(out)
                self.assertEqual(result["status"], "done")
                self.assertGreater(result["eval"]["auc"], 0.8)
                self.verify(out)
                self.assertIn(out + "/model/MANIFEST", self.objects(out + "/model/"))


class ExportKillOnStoreTest(places_test.StoreTest, export_test.ExportTest):
    def test_a_scheduler_that_is_killed_within_an_export_leaves_a_chain(self):
        seen, killed = [], threading.Event()

        def fault(number, method, path):
            """Kills the scheduler before the manifest of the second delta comes into force."""
            if killed.is_set() or method != "PUT" or not re.search(r"/exports/[^/]+/MANIFEST$", path):
                return None
            if path not in seen:
                seen.append(path)
            if len(seen) < 3:
                return None
            os.kill(self.pid_of("scheduler", 0), signal.SIGKILL)
            killed.set()
            return "busy"
        self.proxy.fault = fault
        launcher = self.start_exports("--server_num=2", "--set=export.dir=s3://data/exports", "--set=export.keep=1")
        wait_until(killed.is_set, self.output)
        before = [path.split("/")[-2] for path in seen]

        for members in (1, 2):  # one after the other, as in await_members
            def followed():
                self.assertIsNone(launcher.poll(), self.output())
                names = self.objects("exports/")
                return sum(name.endswith("/MANIFEST") for name in names) >= members and not any(name.split("/")[1] in before for name in names)
            wait_until(followed, lambda: "another chain in place of the first: %s\n%s" % (self.objects("exports/"), self.output()))
        self.end(launcher)
        self.delta("verify", "s3://data/exports")
        self.delta("apply", "s3://data/exports", "--output=%s" % (self.tmp / "applied"))
        step = int(re.search(r"^ *global_step: (\d+)", (self.tmp / "applied" / "MANIFEST").read_text(), re.M)[1])
        self.assertEqual(self.files(self.tmp / "applied"), self.model_at(step))


class DeleteOnStoreTest(places_test.StoreTest, delete_rows_test.DeleteRowsTest):
    def test_rows_of_a_running_job_are_gone_from_its_checkpoints_on_the_store(self):
        kinds = {2: "lost", 4: "busy", 9: "cut"}
        self.proxy.fault = lambda number, method, path: kinds.get(number % 17)
        launcher = self.begin("--a_sync=false", "--set=checkpoint.dir=s3://data/checkpoints")
        before = self.make_checkpoint()
        self.assertEqual(self.found(before, delete_rows_test.GONE_OLD), len(delete_rows_test.GONE_OLD))
        folder = self.delete(delete_rows_test.GONE_OLD + delete_rows_test.GONE_BOTH, rows=15)
        self.assertTrue(folder.startswith("s3://data/checkpoints/step-"), folder)
        self.assertEqual(self.found(folder, delete_rows_test.GONE_OLD + delete_rows_test.GONE_BOTH), 0)
        step = int(re.search(r"step-(\d+)$", folder)[1])
        # The job goes back to this checkpoint, and trains on.
        os.kill(self.pid_of("pserver", 1), signal.SIGKILL)
        self.await_recovery("rollbacks", step + delete_rows_test.TWO_EPOCHS)
        self.assert_gone_but_trained_again(self.make_checkpoint())
        self.assertEqual(set(self.proxy.faults), {"lost", "busy", "cut"})
        self.end(launcher)


if __name__ == "__main__":
    unittest.main()
