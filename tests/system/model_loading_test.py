"""Jobs whose initial_model takes longer to load than limits.wait_s: progress, cancellation and end."""
import json
import os
import pathlib
import time
import unittest

from sluice_testing import ADULT, ENDED, SluiceTest, free_port, wait_until

TEST_BIN = pathlib.Path(os.environ.get("SLUICE_TEST_BIN_DIR", "build/release/tests/bin")).resolve()
WAIT = 8  # seconds
READ = 0.2  # seconds for each of about a hundred reads of a shard file
LOAD = 18  # seconds, less than a load takes and more than WAIT


class ModelLoadingTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.scheduler = "127.0.0.1:%d" % free_port()
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1\nname: "slow"\nscheduler: "%s"\npservers: "127.0.0.1:%d"\nworker_num: 1\n'
                           'limits { wait_s: %d }\n' % (self.scheduler, free_port(), WAIT))
        flags = ["--cluster=%s" % cluster, "--log_dir=%s" % (self.tmp / "log")]
        self.start("sluice-scheduler", *flags)
        # Members wait for it only so long, and the first job for its pserver.
        wait_until(lambda: (self.tmp / "log" / "endpoints.log").exists(), "the scheduler listens")
        self.pserver = self.start(TEST_BIN / "slow_disk_pserver", *flags, "--rank=0", "--read_ms=%d" % (READ * 1000),
                                  log="pserver.out")
        self.start("sluice-worker", *flags, "--rank=0")
        wait_until(lambda: sum(m["alive"] for m in self.look()["members"]) == 2, "both members")

    def look(self):
        return json.loads(self.sluice("status", self.tmp / "log", "--scheduler=%s" % self.scheduler, "--json"))

    def submit(self, name, *flags):
        out = self.sluice("submit", self.tmp / "log", "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--epochs=1",
                          "--worker_num=1", "--output_dir=%s" % (self.tmp / name), *flags)
        return out.splitlines()[-1]

    def hosted(self, status, job):
        pserver = next(m for m in status["members"] if m["role"] == "pserver")
        return next((h for h in pserver.get("hosted", []) if h["job_id"] == job), None)

    def test_a_slow_load_shows_its_progress_outlasts_the_wait_and_can_be_cancelled(self):
        self.submit("first")
        model = self.tmp / "first" / "model"
        begin = time.monotonic()
        job = self.submit("second", "--set=initial_model=%s" % model, "--set=evaluate_only=true", "--detach")
        read, told, text = set(), "", ""

        def ended():
            status = self.look()
            state = next(j for j in status["jobs"] if j["job_id"] == job)
            hosted = self.hosted(status, job)
            if state["state"] == "starting" and hosted and int(hosted.get("load_bytes", 0)) > 0:
                read.add(int(hosted["loaded_bytes"]))
                nonlocal told, text
                told = state["waiting_for"]
                text = text or self.sluice("status", self.tmp / "log", "--scheduler=%s" % self.scheduler)
            return state if state["state"] in ENDED else None
        state = wait_until(ended, "the end of the job")
        self.assertEqual(state["state"], "done", state.get("message"))
        self.assertGreater(time.monotonic() - begin, LOAD)
        self.assertGreater(len(read), 1, read)
        self.assertRegex(told, r"pserver 0 .*[0-9.]+ of [0-9.]+ MiB")
        self.assertRegex(text, r"pserver 0 .*%s .*[0-9.]+ of [0-9.]+ MiB" % model)

        cancelled = self.submit("third", "--set=initial_model=%s" % model, "--detach")
        wait_until(lambda: self.hosted(self.look(), cancelled), "the load")
        begin = time.monotonic()
        self.sluice("cancel", self.tmp / "log", "--scheduler=%s" % self.scheduler, cancelled)
        wait_until(lambda: self.hosted(self.look(), cancelled) is None, "the pserver to drop the job")
        self.assertLess(time.monotonic() - begin, LOAD)
        self.submit("fourth")  # the cluster still works
        self.assertIsNone(self.pserver.poll())

    def test_a_stop_does_not_wait_for_a_load(self):
        self.submit("first")
        job = self.submit("second", "--set=initial_model=%s" % (self.tmp / "first" / "model"), "--detach")
        wait_until(lambda: self.hosted(self.look(), job), "the load")
        begin = time.monotonic()
        self.pserver.terminate()
        self.exit_code(self.pserver)
        self.assertLess(time.monotonic() - begin, LOAD)


if __name__ == "__main__":
    unittest.main()
