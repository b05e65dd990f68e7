"""A long-lived cluster: up, submit, status, logs, cancel, down; jobs one after another and side by side."""
import json
import os
import pathlib
import re
import signal
import time
import unittest

from sluice_testing import ADULT, ENDED, PATIENCE, TIME_SCALE, SluiceTest, free_port, processes_naming, wait_until

LONG = ("--epochs=100000", "--set=eval.every_epochs=0")


def running(job):
    return job["state"] == "running" and int(job["global_step"]) > 0


def cpu_seconds(pid):
    """Returns the processor time of the process with all its threads."""
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ClusterTest(SluiceTest):
    def submit(self, log_dir, name, *flags, workers=1, detach=False, expect=0):
        """Returns (job_id, output)."""
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=%d" % workers,
                          "--output_dir=%s" % (self.tmp / name), *flags, *(["--detach"] if detach else []),
                          expect=expect)
        return re.search(r"^submitted (\S+)", out, re.M).group(1), out

    def result(self, name):
        return json.loads((self.tmp / name / "result.json").read_text())

    def await_free(self, log_dir):
        """Waits until no worker has a job and no pserver has a table."""
        wait_until(lambda: not any(m["job_id"] or m["hosted"] for m in self.status(log_dir)["members"]),
                   "workers free, tables dropped")

    def await_status(self, log_dir, *patterns):
        """Waits until `sluice status` matches all patterns, because members report with their heartbeats."""
        wait_until(lambda: all(re.search(p, self.sluice("status", log_dir)) for p in patterns),
                   lambda: "%s in\n%s" % (patterns, self.sluice("status", log_dir)))

    # -------------------------------------------------------------------------------------------- up and down

    def test_up_returns_and_its_daemons_live_on_until_down(self):
        log_dir = self.up("--server_num=2", "--worker_num=2", "--server_threads=3")
        processes = processes_naming(str(log_dir))
        pids = {pid for pid, _ in processes}
        self.assertEqual(len(pids), 6)  # a scheduler, two pservers, two workers, and their supervisor
        self.assertEqual(sum("sluice-pserver" in command and "--threads=3" in command for _, command in processes), 2,
                         processes)
        for pid in pids:  # detached: no parent here, and their own session
            self.assertNotEqual(os.getsid(pid), os.getsid(0))
        status = self.status(log_dir)
        self.assertEqual([(m["role"], m["rank"]) for m in status["members"]],
                         [("pserver", 0), ("pserver", 1), ("worker", 0), ("worker", 1)])
        wait_until(lambda: all(m["alive"] and int(m["memory_bytes"]) > 0 for m in self.status(log_dir)["members"]),
                   "all members alive, with their memory")
        for name in ("schedulerlog.0", "serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"):
            self.assertEqual((log_dir / name).read_text().count("without TLS"), 1, "%s: nobody is verified" % name)
        again = self.run_program("sluice", "up", "--log_dir=%s" % log_dir)
        self.assertEqual(again.returncode, 1, again.stdout)
        self.assertIn(str(log_dir), again.stdout)
        self.assertIn("is down", self.sluice("down", log_dir))
        self.assertEqual(processes_naming(str(log_dir)), [])
        self.assertIn("no process", self.sluice("down", log_dir))
        # Start again in the same folder.
        self.up("--server_num=1", "--worker_num=1")
        self.assertEqual(len(self.status(log_dir)["members"]), 2)

    def test_idle_daemons_use_no_processor(self):
        """Threads must wait and not poll, even after a job, whose connections stay open."""
        log_dir = self.up("--server_num=2", "--worker_num=1")
        self.submit(log_dir, "short", "--epochs=1")
        self.await_free(log_dir)
        pids = [pid for pid, _ in processes_naming(str(log_dir))]
        self.assertEqual(len(pids), 5)
        seconds = 4
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)  # not a wait: the processor time used meanwhile is measured
        for pid, then in zip(pids, before):
            self.assertLess(cpu_seconds(pid) - then, 0.1 * seconds, "of pid %d" % pid)  # heartbeats: some ms

    @unittest.skipIf(TIME_SCALE > 1, "a sanitizer keeps freed memory")
    def test_memory_of_the_scheduler_does_not_grow_over_many_short_jobs(self):
        """An evaluation needs 16 MiB while it runs; none of it may stay."""
        log_dir = self.up("--server_num=1", "--worker_num=2")
        self.write_csv("train.csv", [(i % 2, i, "abc"[i % 3]) for i in range(40)])
        job = self.small_job(train="train.csv", evaluation="train.csv")
        pid = next(pid for pid, command in processes_naming(str(log_dir)) if "sluice-scheduler" in command)

        def resident_mib():
            status = pathlib.Path("/proc/%d/status" % pid).read_text()
            return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M).group(1)) / 1024
        before = None
        for i in range(8):
            self.sluice("submit", log_dir, "--job=%s" % job, "--worker_num=2",
                        "--output_dir=%s" % (self.tmp / ("out%d" % (i % 2))))
            before = before or resident_mib()
        self.assertEqual([j["state"] for j in self.status(log_dir)["jobs"]], ["done"] * 8)
        self.assertLess(resident_mib(), before + 12)

    def test_up_that_is_killed_while_it_starts_leaves_nothing(self):
        for i, after in enumerate((0.02, 0.04, 0.06, 0.1, 0.2, 0.3)):
            log_dir = self.tmp / ("killed%d" % i)
            up = self.start("sluice", "up", "--server_num=2", "--worker_num=2", "--log_dir=%s" % log_dir)
            time.sleep(after)  # not a wait: chooses where in its start it is killed
            up.kill()
            self.exit_code(up)
            # One write tells all daemons to stay, then `up` ends. If it is killed in between, the whole cluster stays.
            left, since = processes_naming(str(log_dir)), time.monotonic()
            # Until none seems to be about to end.
            while left and time.monotonic() < since + (4 if len(left) in (5, 6) else PATIENCE) * TIME_SCALE:
                time.sleep(0.05)
                now = processes_naming(str(log_dir))
                if now != left:
                    left, since = now, time.monotonic()
            self.assertIn(len(left), (0, 5, 6), left)  # with or without their supervisor
            if left:
                self._clusters.append(log_dir)

    def test_down_ends_a_running_job_as_cancelled(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        job, _ = self.submit(log_dir, "long", *LONG, workers=2, detach=True)
        self.await_job(log_dir, job, running, "running")
        out = self.sluice("down", log_dir)
        self.assertEqual(processes_naming(str(log_dir)), [])
        result = self.result("long")
        self.assertEqual(result["status"], "cancelled")
        self.assertIn("cancelled", result["message"])
        self.assertIn(job, out)
        saved = list((self.tmp / "long" / "checkpoints").glob("step-*/MANIFEST"))
        self.assertTrue(saved, "a running job makes a checkpoint first: %s" % out)
        self.assertIn("--resume", out)

    def test_the_cluster_is_found_by_flag_by_variable_and_by_folder(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", name="log")  # the default folder of cwd
        address = re.search(r"^scheduler 0 (\S+)", (log_dir / "endpoints.log").read_text(), re.M).group(1)

        def members(*args, **variables):
            done = self.run_program("sluice", "status", "--json", *args, env={**os.environ, **variables})
            return done.returncode, len(json.loads(done.stdout)["members"]) if done.returncode == 0 else 0
        elsewhere = "--log_dir=%s" % (self.tmp / "elsewhere")
        self.assertEqual(members(), (0, 2))
        self.assertEqual(members("--log_dir=%s" % log_dir), (0, 2))
        self.assertEqual(members(elsewhere, "--scheduler=%s" % address), (0, 2))
        self.assertEqual(members(elsewhere, SLUICE_SCHEDULER=address), (0, 2))
        self.assertEqual(members(elsewhere), (2, 0))  # no cluster is known
        nobody = "--scheduler=127.0.0.1:%d" % free_port()
        self.assertEqual(members(nobody, SLUICE_SCHEDULER=address), (3, 0))  # the flag wins, but nobody is there
        down = self.run_program("sluice", "down", elsewhere, "--scheduler=%s" % address)
        self.assertEqual(down.returncode, 0, down.stdout)
        # Without the folder `down` knows no pids. It returns when the scheduler, which ends last, no longer answers.
        self.await_none_left()

    # --------------------------------------------------------------------------------------------------- jobs

    def test_jobs_run_one_after_another(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        for i, flags in enumerate((["--a_sync=false"], ["--a_sync=true"], ["--a_sync=true", "--k_steps=20"])):
            job, out = self.submit(log_dir, "out%d" % i, "--epochs=1", *flags, workers=2)
            self.assertEqual(job, "adult-%d" % (i + 1))
            self.assertIn("%s: done" % job, out)
            result = self.result("out%d" % i)
            self.assertEqual((result["status"], result["mode"], result["examples"]),
                             ("done", ("sync", "async", "geo")[i], 32561))
            self.assertGreater(result["eval"]["auc"], 0.88)
        # The same job gives the same bits, whatever ran before on these processes.
        self.submit(log_dir, "again", "--epochs=1", "--a_sync=false", workers=2)
        self.assertEqual(self.result("again")["model_digest"], self.result("out0")["model_digest"])
        self.await_free(log_dir)

    def test_jobs_run_side_by_side_and_the_third_queues(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        first, _ = self.submit(log_dir, "first", *LONG, detach=True)
        second, _ = self.submit(log_dir, "second", "--a_sync=false", *LONG, detach=True)
        self.await_job(log_dir, first, running, "running")
        self.await_job(log_dir, second, running, "running")
        third, _ = self.submit(log_dir, "third", "--epochs=1", workers=2, detach=True)
        fourth, _ = self.submit(log_dir, "fourth", "--epochs=1", detach=True)
        queued = self.job_status(log_dir, third)
        self.assertEqual((queued["state"], queued["queue_position"], queued["allocated"]), ("queued", 0, []))
        self.assertRegex(queued["message"], r"\b2 free workers, 0\b")
        behind = self.job_status(log_dir, fourth)
        self.assertEqual((behind["state"], behind["queue_position"]), ("queued", 1))
        self.assertIn(third, behind["message"])

        self.await_status(log_dir, r"worker +0 +alive .* %s rank 0" % first, r"worker +1 +alive .* %s rank 0" % second,
                          "place 1 .*2 workers", "place 2 .*1 worker\n",
                          "2 free workers, 0 ", "runs on workers 0\n",
                          r"table \S+ +sparse +\d+ shards +[\d,]+ rows",
                          r"\d+ tables +dense +\d+ shards +[\d,]+ elements", r"scheduler +0 +alive ",
                          r"rank 0 on worker 0: epoch \d+ step [\d,]+ loss [\d.]+ [\d,]+ examples/s")

        # A cancelled queued job moves the next one up; a cancelled running one frees its worker.
        self.sluice("cancel", log_dir, fourth)
        self.await_job(log_dir, fourth, lambda j: j["state"] == "cancelled", "cancelled")
        self.sluice("cancel", log_dir, first)
        self.await_job(log_dir, first, lambda j: j["state"] == "cancelled", "cancelled")
        self.assertEqual(self.result("first")["status"], "cancelled")
        self.await_job(log_dir, third, lambda j: "2 free workers, 1 is free" in j["message"], "one free")
        before = int(self.job_status(log_dir, second)["global_step"])
        self.await_job(log_dir, second, lambda j: int(j["global_step"]) > before, "the other job continues")
        self.sluice("cancel", log_dir, second)
        done = self.await_job(log_dir, third, lambda j: j["state"] in ENDED, "the queued job runs")
        self.assertEqual((done["state"], done["allocated"]), ("done", [0, 1]))
        self.assertEqual(self.result("third")["examples"], 32561)
        self.await_free(log_dir)
        self.assertEqual(self.run_program("sluice", "cancel", "--log_dir=%s" % log_dir, third).returncode, 1)
        self.assertEqual(self.run_program("sluice", "cancel", "--log_dir=%s" % log_dir, "nobody-1").returncode, 2)

    def test_a_failed_job_leaves_the_cluster_usable(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        self.write_csv("train.csv", [(1, 2, "a"), (0, "word", "b")])
        out = self.sluice("submit", log_dir, "--job=%s" % self.small_job(), "--worker_num=2",
                          "--output_dir=%s" % (self.tmp / "bad"), expect=1)
        self.assertIn("train.csv:3", out)
        self.assertEqual(self.result("bad")["status"], "failed")
        self.await_free(log_dir)
        _, out = self.submit(log_dir, "good", "--epochs=1", workers=2)
        self.assertEqual(self.result("good")["status"], "done")
        # A job that the cluster can never run is refused at once.
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=3", expect=2)
        self.assertRegex(out, r"\b3 workers .*the cluster has 2\b")

    def test_two_jobs_do_not_write_to_one_folder(self):
        log_dir = self.up("--server_num=1", "--worker_num=2")
        first, _ = self.submit(log_dir, "same", *LONG, detach=True)
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1",
                          "--output_dir=%s" % (self.tmp / "same"), expect=1)
        self.assertRegex(out, r"job %s, .*same output_dir" % first)

    # --------------------------------------------------------------------------------------------------- logs

    def test_logs_of_a_job_are_its_lines_in_the_logs_of_the_processes(self):
        log_dir = self.up("--server_num=2", "--worker_num=2")
        first, _ = self.submit(log_dir, "first", "--epochs=1", workers=2)
        second, _ = self.submit(log_dir, "second", "--epochs=1")
        # A worker writes its last line after `submit` has seen the job end.
        for job, rank in ((first, 1), (second, 0)):
            wait_until(lambda: any(re.search(r"job %s: ended$" % job, path.read_text(), re.M)
                                   for path in log_dir.glob("workerlog.*")), "the last line of %s" % job)
        self.assertFalse((log_dir / first).exists())  # a line is written once
        out = self.sluice("logs", log_dir, first)
        for text in ("schedulerlog.0", "serverlog.1", "workerlog.0", "workerlog.1", "rank 1 epoch 1 step "):
            self.assertIn(text, out)
        for line in out.splitlines():
            self.assertRegex(line, r"^==> .* <==$|\b%s\b|starts: pid" % first)
        self.assertIn("done", self.sluice("logs", log_dir, first, "--role=scheduler"))
        one = self.sluice("logs", log_dir, first, "--role=worker", "--rank=1", "--lines=2")
        self.assertIn("job %s: ended" % first, one.splitlines()[-1])
        whole = self.sluice("logs", log_dir, "--role=worker")
        self.assertIn("job %s" % first, whole)
        self.assertIn("job %s" % second, whole)
        self.assertNotRegex(whole, r"epoch \d+ step")
        self.assertIn("--steps", whole)
        self.assertRegex(self.sluice("logs", log_dir, "--role=worker", "--steps"), r"epoch \d+ step")
        self.assertIn("no log of job nobody-7", self.sluice("logs", log_dir, "nobody-7", expect=2))

    def test_a_log_is_bounded_reopened_on_hang_up_and_followed(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--log_max_mb=1", "--log_keep=2")
        self.assertTrue(all("--log_max_mb=1" in command and "--log_keep=2" in command
                            for _, command in processes_naming(str(log_dir)) if "sluice-" in command))
        follow = self.start("sluice", "logs", "--log_dir=%s" % log_dir, "--role=worker", "--follow", log="follow")
        said = wait_until(lambda: re.search(r"pid (\d+)", (self.tmp / "follow").read_text()), "the start of the worker")
        (log_dir / "workerlog.0").rename(log_dir / "workerlog.0.1")
        os.kill(int(said.group(1)), signal.SIGHUP)
        wait_until((log_dir / "workerlog.0").exists, "a new log")
        job, _ = self.submit(log_dir, "job", "--epochs=1")
        wait_until(lambda: "job %s: ended" % job in (self.tmp / "follow").read_text(), "lines of the new file")
        self.assertIn("job %s: ended" % job, (log_dir / "workerlog.0").read_text())
        follow.terminate()
        self.exit_code(follow)

    def test_logs_follow(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        job, _ = self.submit(log_dir, "long", *LONG, detach=True)
        follow = self.start("sluice", "logs", job, "--log_dir=%s" % log_dir, "--role=worker", "--follow", log="follow")

        def steps():
            return re.findall(r"step (\d+)", (self.tmp / "follow").read_text())
        seen = wait_until(steps, "lines")
        wait_until(lambda: len(steps()) > len(seen) + 5, "new lines")
        follow.terminate()
        self.exit_code(follow)

    # ------------------------------------------------------------------------------------------- what it waits for

    def test_status_names_the_slowest_worker_of_a_sync_job_and_the_wait_it_caused(self):
        log_dir = self.up("--server_num=2", "--worker_num=2", "--lease_ms=600000")
        submitted = time.monotonic()
        job, _ = self.submit(log_dir, "sync", "--a_sync=false", *LONG, workers=2, detach=True)
        self.await_job(log_dir, job, running, "running")
        pid = next(m["pid"] for m in self.status(log_dir)["members"] if (m["role"], m["rank"]) == ("worker", 1))

        def hosted():
            return [h for m in self.status(log_dir)["members"] for h in m["hosted"]]
        os.kill(pid, signal.SIGSTOP)
        try:
            # The figures are sums over the job. The stop lasts longer than all earlier waits, so it determines them.
            before = max(h["slowest_wait_s"] for h in hosted())

            def waited(job):
                wait = re.search(r"waits for commit \d+ of rank 1 \(([\d.]+) s\)", job["waiting_for"])
                return wait and float(wait.group(1)) > before + 2
            now = self.await_job(log_dir, job, waited, "the commit that is waited for")
            # Nothing moves. The text output says so, too, and the other worker names what it waits for.
            self.assertRegex(self.sluice("status", log_dir), r"waits for commit \d+ of rank 1 \(\d")
            doing = next(w["doing"] for w in now["workers"] if w["rank"] == 0)
            self.assertRegex(doing, r"pserver|commit|pull|step")
            # It says when it gives up, and has no speed that it once had.
            self.await_job(log_dir, job, lambda j: any("gives up in" in w["doing"] and w["examples_per_second"] == 0
                                                       for w in j["workers"] if w["rank"] == 0), "a stalled worker")
            said = self.sluice("status", log_dir, job)
            self.assertNotRegex(said, r"members|worker 0: .*[1-9] examples/s")
            self.assertIn("gives up in", said)
            self.assertIn("no job 'nobody-7'", self.sluice("status", log_dir, "nobody-7", expect=2))
            one = json.loads(self.sluice("status", log_dir, job, "--json"))
            self.assertEqual((one["job_id"], one["state"], type(one["global_step"])), (job, "running", int))
        finally:
            os.kill(pid, signal.SIGCONT)
        # The figure grows with each report that a pserver makes after the step has closed.

        def caused(job):
            wait = re.search(r"slowest: rank 1 \(worker 1.*the others waited ([\d.]+) s for it", job["waiting_for"])
            return wait and float(wait.group(1)) > before + 1.9
        after = self.await_job(log_dir, job, caused, "who it was, with the wait it caused")
        self.assertLess(float(re.search(r"waited ([\d.]+) s for it", after["waiting_for"]).group(1)),
                        time.monotonic() - submitted)
        wait_until(lambda: any(h["slowest_rank"] == 1 and h["slowest_wait_s"] > before + 1.9 for h in hosted()),
                   "the pserver's figure of it")
        self.await_status(log_dir, "slowest worker is rank 1")
        # The worker was not lost: the job still trains.
        step = int(self.job_status(log_dir, job)["global_step"])
        self.await_job(log_dir, job, lambda j: int(j["global_step"]) > step, "steps after the stop")


if __name__ == "__main__":
    unittest.main()
