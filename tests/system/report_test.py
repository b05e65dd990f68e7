"""sluice report: the page of finished jobs, what it shows in headless Chromium, and what it must not show."""
import json
import os
import re
import signal
import unittest
import unittest.mock

from browser import PHONE, SCREENSHOTS, WIDTH, BrowserTest, skip_without_browser
from sluice_testing import ADULT, SluiceTest, wait_until


class ReportCommandTest(SluiceTest):
    def report(self, *args, expect=0):
        done = self.run_program("sluice", "report", *args)
        self.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def data(self, path):
        """The JSON in the page."""
        return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL).group(1))

    def test_a_job_that_resumed_has_one_curve_and_its_events(self):
        # Small batches, so that the first run is interrupted long before its end.
        flags = ("--a_sync=false", "--epochs=3", "--batch_size=16", "--set=train.log_every=1", "--set=checkpoint.every_steps=40")
        output = self.tmp / "run"
        process = self.start("sluice", "launch", "--job=%s" % ADULT, "--server_num=1", "--worker_num=1", "--progress=plain",
                             "--output_dir=%s" % output, "--log_dir=%s" % (self.tmp / "log"), *flags, log="first.out")
        wait_until(lambda: list(output.glob("checkpoints/step-*/MANIFEST")), lambda: (self.tmp / "first.out").read_text())
        process.send_signal(signal.SIGINT)
        self.exit_code(process)
        first = {c["name"]: c["points"] for c in map(json.loads, (output / "curves.jsonl").read_text().splitlines()[1:])}
        self.assertEqual(first["train/loss"][0][0], 1)
        result, _ = self.launch(*flags, "--server_num=1", "--worker_num=1", "--resume", name="run")
        self.assertEqual(result["status"], "done")
        self.assertGreater(len(result["calibration_bins"]), 10)
        self.report(output, "--output=%s" % (self.tmp / "page.html"))
        job, = self.data(self.tmp / "page.html")["jobs"]
        curves = {curve["name"]: curve["points"] for curve in job["curves"]}
        steps = [point[0] for point in curves["train/loss"]]
        # From the first step of the run that was interrupted to the last of this one, each once.
        self.assertEqual(steps[0], 1)
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(curves["train/loss"][0], first["train/loss"][0])
        self.assertEqual(steps[-1], result["global_step"])
        self.assertIn(["train.epochs", "3"], job["config"])
        self.assertEqual(job["lacks"], [])

    def test_refuses_what_it_cannot_show_and_keeps_files_of_others(self):
        empty, page = self.tmp / "empty", self.tmp / "page.html"
        empty.mkdir()
        self.assertRegex(self.report(expect=2), "no folder is given")
        self.assertRegex(self.report(empty, expect=2), "has no result.json")
        self.assertRegex(self.report(self.tmp / "none", expect=2), "has no result.json")
        old = self.tmp / "old"
        old.mkdir()
        (old / "result.json").write_text('{"job": "old-1", "status": "done", "seconds": 2.5}')
        page.write_text("mine")
        self.assertRegex(self.report(old, "--output=%s" % page, expect=2), "page.html exists.*--overwrite")
        self.assertEqual(page.read_text(), "mine")
        self.report(old, "--output=%s" % page, "--overwrite")
        # Its own page is replaced, and folders without a result are left out of a pattern.
        out = self.report(old, empty, "--output=%s" % page)
        self.assertRegex(out, r"left out: .*empty has no result.json")
        self.assertEqual([job["result"]["job"] for job in self.data(page)["jobs"]], ["old-1"])
        (old / "result.json").write_text('{"job": ')
        self.assertRegex(self.report(old, "--output=%s" % page, expect=2), "old/result.json cannot be shown")
        self.assertIn("Made by sluice report", self.run_program("sluice", "report", old, "--output=-").stdout + page.read_text())

    def test_no_secret_gets_into_the_page(self):
        output = self.tmp / "run"
        secret = "Hunter2Hunter2"
        with unittest.mock.patch.dict(os.environ, AWS_SECRET_ACCESS_KEY=secret, AWS_ACCESS_KEY_ID="AKIAIOSFODNN7EXAMPLE"):
            self.launch("--server_num=1", "--worker_num=1", "--epochs=1", "--tls", name="run")
        # As an address with a user, or one that is signed, would stand there.
        with open(output / "job.textproto", "a") as job:
            job.write('initial_model: "https://me:%s@host/model?X-Amz-Signature=%s"\n' % (secret, secret))
        result = json.loads((output / "result.json").read_text())
        result["warnings"] = ["cannot read s3://bucket/x?sig=%s with password=%s" % (secret, secret)]
        (output / "result.json").write_text(json.dumps(result))
        (output / "extra.pem").write_text("-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n" % secret)
        self.report(output, "--output=%s" % (self.tmp / "page.html"))
        text = (self.tmp / "page.html").read_text()
        self.assertNotIn(secret, text)
        self.assertNotIn("PRIVATE KEY", text)
        self.assertNotIn("AKIA", text)
        self.assertIn("https://***@host/model?***", text)


class ReportPageTest(BrowserTest):
    def test_shows_jobs_side_by_side(self):
        for name, flags in (("first", ("--a_sync=false", "--set=optimizers.all.learning_rate=0.002")),
                            ("second", ("--a_sync=true",))):
            self.launch(*flags, "--server_num=1", "--worker_num=2", "--epochs=4", "--set=train.log_every=2", name=name)
        # One of an earlier version, whose texts would be markup.
        old = self.tmp / "old"
        old.mkdir()
        (old / "result.json").write_text(json.dumps({
            "job": "</script><img src=x onerror=\"document.title='ran'\">", "status": "failed", "message": "<b>bold</b>",
            "recovery": {"last": "worker 1 was killed by signal 9"}}))
        done = self.run_program("sluice", "report", self.tmp / "first", self.tmp / "second", old, "--output=%s" % (self.tmp / "page.html"))
        self.assertEqual(done.returncode, 0, done.stdout)
        print("a page of three jobs has %d bytes" % (self.tmp / "page.html").stat().st_size)
        self.driver.get("file://%s" % (self.tmp / "page.html"))
        self.await_text("#jobs", r"0\.9\d+ ± 0\.00\d+")
        self.assertNotEqual(self.driver.title, "ran")
        self.assertEqual(self.driver.execute_script("return document.querySelectorAll('main img, main b').length"), 0)
        self.assertIn("<b>bold</b>", self.text("#jobs"))
        self.await_text("#lacks", "There is no curves.jsonl")
        # Jobs of one id are told apart by the end of their folders.
        self.await_text("#jobs", r"adult-1 \(first\)\s+adult-1 \(second\)")
        self.await_text("#config", r"optimizers\.all\S*learning_rate")
        self.await_text("#features", "occupation")
        self.await_text("#events", "worker 1 was killed")
        self.await_text("#stages-table", r"Compute\s+\d+\.\d+ s")
        points = self.driver.execute_script(
            "return [...document.querySelectorAll('canvas')].map(c => Chart.getChart(c).data.datasets.map(d => d.data.length))")
        self.assertGreaterEqual(len(points), 7)
        self.assertTrue(all(n > 0 for chart in points for n in chart), points)
        self.assertEqual(self.driver.execute_script("return performance.getEntriesByType('resource').length"), 0)
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.width(WIDTH)
            self.assert_accessible(scheme)
        self.width(PHONE)
        self.assert_accessible("phone")
        self.assert_console_is_empty()
        if SCREENSHOTS:
            self.run_program("sluice", "report", self.tmp / "first", self.tmp / "second", "--output=%s" % (self.tmp / "two.html"))
            self.driver.get("file://%s" % (self.tmp / "two.html"))
            self.scheme("light")
            self.width(WIDTH)
            self.await_text("#jobs", r"0\.9\d+ ± 0\.00\d+")
            self.screenshot("report", height=2400)


if __name__ == "__main__":
    skip_without_browser(ReportPageTest)
    unittest.main()
