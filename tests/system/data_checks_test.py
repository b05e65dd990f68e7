"""Sluice names data that differs between hosts, that changes, or that does not fit the job or its model."""
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from sluice_testing import BIN, SluiceTest, free_port, wait_until

MODES = {"sync": ["--a_sync=false"], "async": ["--a_sync=true"], "geo": ["--a_sync=true", "--k_steps=3"]}


def why_not():
    if shutil.which("unshare") is None:
        return "there is no unshare command (util-linux)"
    tried = subprocess.run(["unshare", "-mu", "true"], capture_output=True, text=True)
    return "" if tried.returncode == 0 else "unshare -mu failed: " + tried.stderr.strip()


REASON = why_not()
if REASON:
    print("skipped in part: " + REASON, file=sys.stderr)


def rows(n, first=0):
    return [(i % 2, i % 9, "abc"[i % 3]) for i in range(first, first + n)]


@unittest.skipIf(REASON, REASON)
class OtherHostTest(SluiceTest):
    """Worker 1 sees the folder `there` where all others see `here`, as if it were on another host."""

    def setUp(self):
        super().setUp()
        scheduler = "127.0.0.1:%d" % free_port()
        self.log_dir = self.tmp / "log"
        for name in ("here", "there"):
            (self.tmp / name).mkdir()
        common = ["--scheduler=%s" % scheduler, "--log_dir=%s" % self.log_dir]
        self.start("sluice-scheduler", "--bind=%s" % scheduler, "--server_num=1", "--worker_num=2", common[1])
        self.start("sluice-pserver", "--rank=0", "--bind=127.0.0.1:0", *common)
        self.start("sluice-worker", "--rank=0", *common)
        out = open(self.tmp / "other.out", "wb")
        self._started.append(subprocess.Popen(
            ["unshare", "-mu", "sh", "-c", 'hostname other-host && mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh",
             str(self.tmp / "there"), str(self.tmp / "here"), str(BIN / "sluice-worker"), "--rank=1"] + common,
            stdout=out, stderr=subprocess.STDOUT, cwd=self.tmp))
        out.close()
        self.scheduler = scheduler

    def write(self, name, here, there):
        """Writes the file's rows here and there; None: the file does not exist."""
        for folder, content in (("here", here), ("there", there)):
            path = self.tmp / folder / name
            if content is not None:
                self.write_csv("%s/%s" % (folder, name), content)
            elif path.exists():
                path.unlink()

    def submit(self, name, *flags, expect=1, **job):
        return self.sluice("submit", self.log_dir, "--scheduler=%s" % self.scheduler, "--worker_num=2",
                           "--job=%s" % self.small_job(train="here/train*.csv", **job), "--output_dir=%s" % (self.tmp / name),
                           *flags, expect=expect)

    def test_a_difference_fails_the_job_and_names_host_and_file(self):
        self.write("train0.csv", rows(40), rows(40))
        self.write("train1.csv", rows(40), rows(40))
        self.write("test.csv", rows(20), rows(20))
        self.submit("same", evaluation="here/test.csv", expect=0)
        other = rows(40)
        other[20] = (1 - other[20][0],) + other[20][1:]
        cases = (("train1.csv", rows(40), None, "missing for rank 1 on host other-host"),
                 ("train1.csv", None, rows(40), "rank 1 on host other-host sees it"),
                 ("train1.csv", rows(40), rows(41), "bytes for rank 1 on host other-host"),
                 ("train1.csv", rows(40), other, "differs in content"),
                 ("test.csv", rows(20), rows(22), "bytes for rank 1 on host other-host"))
        assignments = itertools.cycle(("", "assignment: PER_RANK_FILES"))
        for mode, (name, here, there, words) in zip(itertools.cycle(MODES), cases):
            with self.subTest(mode=mode, words=words):
                self.write(name, here, there)
                out = self.submit("bad", *MODES[mode], evaluation="here/test.csv", data_extra=next(assignments))
                self.assertIn("data file %s/here/%s" % (self.tmp, name), out)
                self.assertIn("other-host", out)
                self.assertIn(words, out)
                self.write("train1.csv", rows(40), rows(40))
        # evaluate_only deals files out by their bytes; it must find the same difference.
        self.submit("bad", "--set=evaluate_only=true", "--set=initial_model=%s" % (self.tmp / "same" / "model"),
                    evaluation="here/test.csv")


class ChangedFileTest(SluiceTest):
    def test_a_file_that_changes_during_the_job_fails_it_by_name(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        cases = [(mode, "train.csv", "--set=data.cache=%s" % cache) for mode, cache in
                 (("sync", "true"), ("async", "false"), ("async", "true"), ("geo", "true"))] + [("async", "test.csv", "")]
        for number, (mode, changed, flag) in enumerate(cases):
            with self.subTest(mode=mode, changed=changed, flag=flag):
                train = self.write_csv("train.csv", rows(400))
                test = self.write_csv("test.csv", rows(50))
                for path in (train, test):
                    os.utime(path, (1e9, 1e9))  # what was written just now is not cached
                job = self.small_job(train="train.csv", evaluation="test.csv")
                name = "out%d" % number
                submit = self.start("sluice", "submit", "--log_dir=%s" % log_dir, "--job=%s" % job, "--epochs=100000",
                                    "--output_dir=%s" % (self.tmp / name), "--worker_num=2", *MODES[mode],
                                    *([flag] if flag else []), log=name + ".out")
                out = self.tmp / (name + ".out")
                wait_until(lambda: re.search(r"epoch 2\b", out.read_text()), out.read_text)
                self.write_csv(changed, rows(400 if changed == "train.csv" else 50, first=1))
                self.assertEqual(self.exit_code(submit), 1)
                said = out.read_text()
                self.assertIn("data file %s has changed" % (self.tmp / changed), said)
                # The reason is printed once.
                self.assertEqual(said.count("has changed"), 1, said)


class TooManyTasksTest(SluiceTest):
    def test_data_that_makes_too_many_tasks_is_refused_and_the_cluster_goes_on(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        job = self.small_job(train="train*.csv")
        for name in ("train0.csv", "train1.csv"):
            os.truncate(self.write_csv(name, rows(40)), 1 << 30)  # sparse
        for mode in ("async", "geo"):
            with self.subTest(mode=mode):
                out = self.sluice("submit", log_dir, "--job=%s" % job, "--worker_num=2", *MODES[mode],
                                  "--set=data.task_bytes=1024", "--output_dir=%s" % (self.tmp / mode), expect=1)
                self.assertIn("%d bytes" % (2 << 30), out)
                advice = re.search(r"raise data.task_bytes to (\d+)", out)
                self.assertIsNotNone(advice, out)
                self.assertGreater(int(advice[1]), 1024)
                self.assertEqual(json.loads((self.tmp / mode / "result.json").read_text())["status"], "failed")
        self.assertEqual([m["alive"] for m in self.status(log_dir)["members"]].count(False), 0)
        for name in ("train0.csv", "train1.csv"):
            self.write_csv(name, rows(40))
        self.sluice("submit", log_dir, "--job=%s" % job, "--worker_num=2", *MODES["async"], "--set=data.task_bytes=1024",
                    "--output_dir=%s" % (self.tmp / "good"))


class SummaryTest(SluiceTest):
    def job(self, *flags, name, **kwargs):
        text = """
data { format: CSV train_files: "train*.csv" train_files: "train0.csv" eval_files: "test.csv"
       csv { header: true }
       label { column: "label" positive: "yes" positive: "y" negative: "no" } %s }
features { name: "x" numeric {} }
features { name: "c" categorical { vocabulary: ["a", "b", "z"] } }
features { name: "both" cross { features: ["c", "d"] } }
features { name: "d" categorical { column: "c" } }
model { wide_deep { embedding_dim: 4 hidden_units: 8 } }
train { batch_size: 16 epochs: 2 }
"""
        path = self.tmp / "summary.textproto"
        path.write_text(text % "task_bytes: 1024")
        return self.launch("--worker_num=2", "--server_num=1", *flags, job=path, name=name, **kwargs)

    def test_data_is_summarized_exactly_and_oddities_are_warnings(self):
        for number in range(3):
            self.write_csv("train%d.csv" % number, [("yes" if i % 4 == 0 else "no", "" if i % 5 == 0 else i, "abc"[i % 3])
                                                    for i in range(number, 600, 3)])
        self.write_csv("test.csv", [("no", i, "a") for i in range(50)])
        for path in self.tmp.glob("*.csv"):
            os.utime(path, (1e9, 1e9))  # what was written just now is not cached
        # The second async job finds all data cached.
        for number, mode in enumerate(["sync", "async", "async", "geo"]):
            with self.subTest(mode=mode, number=number):
                result, said = self.job(*MODES[mode], name="run%d" % number)
                self.assertEqual(result["data"], {
                    "examples": 600, "positive_rate": 0.25, "features": [
                        {"name": "x", "missing": 0.2},
                        {"name": "c", "missing": 0, "out_of_vocabulary": 200 / 600, "vocabulary": 3, "vocabulary_seen": 2},
                        {"name": "d", "missing": 0}]})
                warnings = result["warnings"]
                for words in ('"z"', "no example has label 1", '"y"', "train0.csv"):
                    self.assertEqual(sum(words in warning for warning in warnings), 1, warnings)
                self.assertEqual(len(warnings), 4, warnings)
                for evaluation in [result["eval"]] + [epoch["eval"] for epoch in result["epochs_log"]]:
                    self.assertIsNone(evaluation["auc"])
                    self.assertEqual(evaluation["auc_undefined"], "no example has label 1")
                    self.assertIsNone(evaluation["auc_standard_error"])
                    self.assertIsNotNone(evaluation["accuracy"])
                    self.assertEqual(evaluation["positive_rate"], 0)
                events = b"".join(p.read_bytes() for p in (self.tmp / ("run%d" % number)).glob("events.*"))
                self.assertIn(b"eval/log_loss", events)
                self.assertNotIn(b"eval/auc", events)


class ModelMatchTest(SluiceTest):
    def job(self, features, extra="", name="job"):
        path = self.tmp / (name + ".textproto")
        path.write_text("""
data { format: CSV train_files: "train.csv" eval_files: "test.csv" csv { header: true } label { column: "label" } }
%s
model { wide_deep { hidden_units: 8 } }
%s
""" % (features, extra))
        return path

    def test_a_model_with_other_columns_is_refused_before_anything_starts(self):
        header = "label,left,right"
        for name in ("train.csv", "test.csv"):
            self.write_csv(name, [(i % 2, i % 2, i % 5) for i in range(200)], header=header)
        good = 'features { name: "left" numeric {} } features { name: "right" numeric {} }'
        swapped = ('features { name: "left" numeric { column: "right" } } '
                   'features { name: "right" numeric { column: "left" } }')
        moved = 'features { name: "right" numeric {} } features { name: "left" numeric {} }'
        first, _ = self.launch("--worker_num=1", "--server_num=1", job=self.job(good), name="first")
        model = first["model_dir"]
        for features, extra in ((swapped, "evaluate_only: true"), (swapped, ""), (moved, "evaluate_only: true")):
            for flags in ([], ["--dry_run"]):
                job = self.job(features, 'initial_model: "%s" %s' % (model, extra))
                _, said = self.launch("--worker_num=1", "--server_num=1", *flags, job=job, name="bad", expect=2)
                self.assertIn('"left"', said)
                self.assertIn('"right"', said)
                self.assertFalse((self.tmp / "bad.log").exists(), "nothing was started")
        # A job that trains takes the weights from where the features were.
        _, said = self.launch("--worker_num=1", "--server_num=1", job=self.job(moved, 'initial_model: "%s"' % model), name="moved")
        self.assertIn("note: initial_model: features moved: ", said)
        # Other default values may be intended, so they only cause a warning. Another optimizer causes none.
        for features, extra, warnings in (
                (good.replace('"right" numeric {}', '"right" numeric { default_value: 3 }'), "", 1),
                (good, "optimizers { all { sgd {} } }", 0)):
            job = self.job(features, 'initial_model: "%s" %s' % (model, extra))
            result, _ = self.launch("--worker_num=1", "--server_num=1", job=job, name="warm")
            self.assertEqual(len(result["warnings"]), warnings, result["warnings"])
            self.assertTrue(all("right" in warning for warning in result["warnings"]))
        log_dir = self.up("--server_num=1", "--worker_num=1")
        self.sluice("submit", log_dir, "--job=%s" % self.job(swapped, 'initial_model: "%s"' % model),
                    "--output_dir=%s" % (self.tmp / "no"), expect=2)
        # The scheduler refuses the job, too, whoever submits it.
        self.assertEqual(self.status(log_dir).get("jobs", []), [])


class BeforeTheStartTest(SluiceTest):
    def refused(self, name, *flags, job):
        _, said = self.launch("--worker_num=1", "--server_num=1", *flags, job=job, name=name, expect=2)
        self.assertFalse((self.tmp / (name + ".log")).exists(), "nothing was started")
        return said

    def test_files_and_columns_are_checked_before_anything_starts(self):
        self.write_csv("train.csv", rows(20))
        self.write_csv("test.csv", rows(20), header="label,y,c")
        self.write_csv("good.csv", rows(20))
        for flags in ([], ["--dry_run"]):
            said = self.refused("eval", *flags, job=self.small_job(train="train.csv", evaluation="test.csv"))
            for words in ("data.eval_files", str(self.tmp / "test.csv"), 'no column "x"', 'did you mean "y"'):
                self.assertIn(words, said)
            said = self.refused("gone", *flags, job=self.small_job(train="gone.csv"))
            self.assertIn("data.train_files", said)
            self.assertIn("gone.csv", said)
        # Every file's columns, and the first lines: all problems at once.
        self.write_csv("more-1.csv", rows(20) + [(1, "2026-11-01 10:00", "a"), ("no", 1, "a")])
        self.write_csv("more-2.csv", rows(20), header="label,y,c")
        for flags in ([], ["--dry_run"]):
            said = self.refused("lines", *flags, job=self.small_job(train="more-*.csv"))
            for words in ('more-2.csv has no column "x"', "more-1.csv:22: ", "more-1.csv:23: ", '"no"'):
                self.assertEqual(said.count(words), 1, said)
        log_dir = self.up("--server_num=1", "--worker_num=1")
        bad = self.small_job(train="train.csv", evaluation="test.csv")
        for flags in ([], ["--dry_run"]):
            said = self.sluice("submit", log_dir, "--job=%s" % bad, *flags, expect=2)
            self.assertIn('no column "x"', said)
        self.assertEqual(self.status(log_dir).get("jobs", []), [])
        # A dry run needs no cluster and changes nothing.
        done = self.run_program("sluice", "submit", "--log_dir=%s" % (self.tmp / "none"), "--dry_run",
                                "--job=%s" % self.small_job(train="good.csv"))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("hidden_units", done.stdout)

    def test_the_reason_of_a_failure_is_printed_once(self):
        self.write_csv("train.csv", rows(1500) + [(1, "wide", "a")])  # behind the lines that the launch looks at
        for progress in ("plain", "live"):
            _, said = self.launch("--worker_num=2", "--server_num=1", "--progress=%s" % progress,
                                  job=self.small_job(train="train.csv"), name=progress, expect=1)
            shown = re.sub(r"[^\n]*\r", "", said)  # without the live lines
            self.assertEqual(shown.count("is not a finite number"), 1, said)


if __name__ == "__main__":
    unittest.main()
