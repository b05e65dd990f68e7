"""The dashboard in headless Chromium: it renders, updates, follows a killed worker, and axe finds nothing."""
import http.server
import json
import os
import pathlib
import re
import signal
import ssl
import threading
import unittest
import urllib.error
import urllib.request

from browser import PHONE, SCREENSHOTS, WIDTH, BrowserTest, skip_without_browser
from sluice_testing import PATIENCE, ROOT, SluiceTest, wait_until

PAGE = ROOT / "scheduler" / "page"
CHART = pathlib.Path("/usr/share/javascript/chart.js/chart.min.js")


class HostileScheduler(http.server.ThreadingHTTPServer):
    """Serves the page, and JSON whose every text is markup that would run."""
    daemon_threads = True
    MARKUP = "<img src=x onerror=\"document.title='ran'\"><b>a</b>-1"

    def __init__(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.split("?")[0]
                name = "dashboard.html" if path == "/" else path[len("/page/"):]
                kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
                if path == "/" or path.startswith("/page/"):
                    body, kind = (CHART if name == "chart.js" else PAGE / name).read_bytes(), kinds[name.split(".")[-1]]
                else:
                    body, kind = json.dumps(server.answer(path)).encode(), "application/json"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)

    def answer(self, path):
        text = self.MARKUP
        job = {"job_id": text, "state": "running", "mode": text, "phase": text, "message": text, "waiting_for": text,
               "queue_position": 0, "worker_num": 2, "workers_alive": 2, "epoch": 1, "epochs": 2, "global_step": 7, "examples": 9,
               "examples_per_second": 5.5, "loss": None, "auc": None, "log_loss": None, "eta_s": None, "checkpoint_step": 0,
               "checkpoint_age_s": None, "checkpoints_made": 0, "checkpoints_failed": 0, "worker_losses": 0,
               "pserver_losses": 0, "rollbacks": 0, "warning_count": 1}
        if path == "/api/v1/jobs":
            others = [dict(job, job_id="job-%d" % i, state="done") for i in range(200)]
            member = {"role": "worker", "rank": 0, "address": text, "host": text, "pid": 1, "alive": True, "draining": False,
                      "last_seen_s": 1, "job_id": text, "job_rank": 0, "doing": text, "device": text, "memory_bytes": 1 << 20,
                      "cpu_seconds": None, "admin_address": text, "log_file": text, "log_name": None, "examples_per_second": None}
            return {"cluster": text, "version": text, "time_s": 1.8e9, "uptime_s": 5, "notes": [text], "jobs": [job] + others,
                    "jobs_left_out": 3, "members": [member], "members_left_out": 1}
        if path.endswith("/curves"):
            return {"job_id": text, "most_points": 400, "curves": [{"name": "train/loss", "x": "step", "points": [[1, 0.5], [2, None]]}]}
        checkpoint = {"step": 1, "age_s": 1, "bytes": 1, "seconds": 1, "made": 1, "failed": 1, "last_error": text, "doing": text, "dir": text}
        recovery = {"worker_losses": 0, "pserver_losses": 0, "scheduler_restarts": 0, "rollbacks": 0, "shrinks": 0, "scalings": 0,
                    "examples_replayed": 0, "updates_lost": 0, "steps_rolled_back": 0, "last": text}
        return dict(job, time_s=1.8e9, examples_in_epoch=1, examples_expected=2, staleness={"pushes": 0, "mean": 0, "max": 0},
                    checkpoint=checkpoint, recovery=recovery, warnings=[text], epochs_log=[], workers=[], workers_left_out=0,
                    pservers=[], shards=[{"pserver": 0, "table": text, "kind": text, "shards": 1, "rows": 1, "bytes": 1,
                                          "reserved_bytes": 1}], shards_left_out=0, output_dir=text, model_dir="", model_digest="",
                    resumed_from="", config=text, config_cut=False)


class DashboardTest(BrowserTest):
    def show(self, name, **size):
        """A screenshot once the charts have the new width and colours, which they take with the next answer."""
        step = self.text("#loss-now")
        if SCREENSHOTS and step:
            wait_until(lambda: self.text("#loss-now") != step, "the next answer")
        self.screenshot("dashboard_" + name, **size)

    def open(self, url):
        self.driver.get(url)
        self.await_text("#live", "live")

    def test_shows_a_running_job_and_follows_a_killed_worker(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        admin = self.admin_addresses(log_dir)["scheduler 0"]
        self.assertIn("http://%s/" % admin, self.sluice("status", log_dir))
        job = self.sluice("submit", log_dir, "--job=%s" % (ROOT / "configs" / "adult_wide_deep.textproto"), "--worker_num=2", "--epochs=100000",
                          "--output_dir=%s" % (self.tmp / "out"), "--detach").split()[-1]
        self.open("http://%s/" % admin)
        self.await_text("#jobs tbody", re.escape(job))
        self.await_text("#job-title", "running")
        # It updates by itself: the step grows, the charts get points, and the members their rates.
        self.await_text("#loss-now", r"0\.\d+ at step")
        self.await_text("#auc-now", r"0\.\d+ at epoch")
        step = self.text("#jobs tbody td:nth-child(5)")
        wait_until(lambda: self.text("#jobs tbody td:nth-child(5)") not in ("", step), "the step grows")
        self.await_text("#members tbody", r"pserver 1[\s\S]*updates/s")
        self.await_text("#members tbody", r"\d %")
        self.await_text("#shards tbody", "embedding|wide|deep")
        self.driver.execute_script("document.getElementById('each-shard-details').open = true")
        self.await_text("#each-shard tbody", r"[1-9]\d* rows/s")
        self.driver.execute_script("document.getElementById('each-shard-details').open = false")
        self.assertIn("train_files", self.driver.execute_script("return document.getElementById('config').textContent"))
        self.assertTrue(self.driver.execute_script(
            "return Chart.getChart('loss').data.datasets[0].data.length > 1 && Chart.getChart('auc').data.datasets[0].data.length > 0"))
        names = self.driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        self.assertEqual([name for name in names if not name.startswith("http://%s/" % admin)], [])
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            self.width(WIDTH)
            self.show(scheme, **({"height": 2060} if scheme == "light" else {}))
            self.assert_accessible(scheme)
        self.scheme("light")
        self.width(PHONE)
        self.show("phone")
        self.assert_accessible("phone")
        self.width(WIDTH)
        # Keyboard: the first stop leads to the jobs, and a log opens by Enter.
        log = self.driver.find_element("css selector", "#members a[href*='log=workerlog.0']")
        log.send_keys("\n")
        self.await_text("#log-text", r"step \d+ loss")
        self.assert_accessible("with a log")
        worker = next(e for e in self.endpoints_of(log_dir) if (e.role, e.rank) == ("worker", 0))
        os.kill(worker.pid, signal.SIGKILL)
        self.await_text("#recovery", r"Workers lost\s+1")
        self.await_text("#recovery-last", "worker 0")
        self.await_text("#job-title", "running")
        self.assert_console_is_empty()
        self.sluice("cancel", log_dir, job)
        self.await_text("#job-title", "cancelled")
        self.assert_console_is_empty()
        # The job is over, and its curves are still there.
        with urllib.request.urlopen("http://%s/api/v1/jobs/%s/curves" % (admin, job), timeout=PATIENCE) as answer:
            self.assertIn("train/loss", [curve["name"] for curve in json.load(answer)["curves"]])

    def test_says_when_the_scheduler_is_gone(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        self.open("http://%s/" % self.admin_addresses(log_dir)["scheduler 0"])
        self.await_text("#jobs-empty", "No jobs")
        self.sluice("down", log_dir)
        self.await_text("#live", "no answer")

    def test_markup_is_shown_as_text(self):
        server = HostileScheduler()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            self.open("http://127.0.0.1:%d/" % server.server_port)
            self.await_text("#jobs tbody tr:first-child", re.escape("<b>a</b>-1"))
            self.await_text("#job-title", re.escape("<b>a</b>-1"))
            self.assertEqual(self.driver.execute_script("return document.querySelectorAll('main img, main b').length"), 0)
            self.assertNotEqual(self.driver.title, "ran")
            self.width(PHONE)
            self.assert_accessible("markup")
            self.assert_console_is_empty()
        finally:
            self.quit()
            server.shutdown()
            thread.join()
            server.server_close()


class DashboardCommandTest(SluiceTest):
    def start_command(self, log_dir):
        process = self.start("sluice", "dashboard", "--log_dir=%s" % log_dir, log="dashboard.out")
        out = self.tmp / "dashboard.out"
        wait_until(lambda: re.search(r"^  http://", out.read_text(), re.MULTILINE) or process.poll() is not None, out.read_text)
        self.assertIsNone(process.poll(), out.read_text())
        return process, re.search(r"^  (http://\S+)/$", out.read_text(), re.MULTILINE).group(1)

    def test_serves_a_cluster_with_tls_through_the_users_certificate(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--tls")
        self.assertIn("sluice dashboard", self.sluice("status", log_dir))
        admin = self.admin_addresses(log_dir)["scheduler 0"]
        # Without an operator's certificate nobody reads the page.
        context = ssl.create_default_context(cafile=str(log_dir / "cluster_tls" / "ca.pem"))
        with self.assertRaises((urllib.error.HTTPError, OSError)):
            urllib.request.urlopen("https://%s/api/v1/jobs" % admin, timeout=PATIENCE, context=context)
        process, url = self.start_command(log_dir)
        with urllib.request.urlopen(url + "/", timeout=PATIENCE) as answer:
            self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
            self.assertIn(b"<!doctype html>", answer.read())
        with urllib.request.urlopen(url + "/api/v1/jobs", timeout=PATIENCE) as answer:
            self.assertEqual(len(json.load(answer)["members"]), 3)
        with urllib.request.urlopen(url + "/api/v1/logs/serverlog.0?bytes=100", timeout=PATIENCE) as answer:
            self.assertLessEqual(len(json.load(answer)["text"]), 400)
        for path in ("/api/v1/jobs/no%3F%2541-1", "/api/v1/logs/..%2Fjob_numbers"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url + path, timeout=PATIENCE)
            self.assertEqual(refused.exception.code, 404)
            self.assertIn(b"error", refused.exception.read())
            refused.exception.close()
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.exit_code(process), 130)


if __name__ == "__main__":
    skip_without_browser(DashboardTest)
    unittest.main()
