"""Daemons started by hand from a cluster file, in every order; replaced, refused, alone, and stopped."""
import itertools
import json
import os
import re
import signal
import time
import unittest

from sluice_testing import ADULT, SluiceTest, free_port, wait_until


class HandStartedTest(SluiceTest):
    def cluster(self, pservers=1, workers=1, limits="", extra=""):
        self.scheduler = "127.0.0.1:%d" % free_port()
        self.pservers = ["127.0.0.1:%d" % free_port() for _ in range(pservers)]
        self.file = self.tmp / "cluster.textproto"
        self.file.write_text('version: 1\nname: "by-hand"\nscheduler: "%s"\n%sworker_num: %d\nlimits { %s }\n%s' % (
            self.scheduler, "".join('pservers: "%s"\n' % p for p in self.pservers), workers, limits, extra))
        self.log_dir = self.tmp / "log"
        return self.file

    def daemon(self, role, rank=0, *flags, **kwargs):
        """Starts a daemon from the cluster file, with the rank as a flag."""
        ranks = [] if role == "scheduler" else ["--rank=%d" % rank]
        return self.start("sluice-" + role, "--cluster=%s" % self.file, "--log_dir=%s" % self.log_dir, *ranks, *flags,
                          log="%s.%d.out" % (role, len(self._started)), **kwargs)

    def log(self, name):
        path = self.log_dir / name
        return path.read_text() if path.exists() else ""

    def submit(self, name, *flags, expect=0):
        out = self.sluice("submit", self.log_dir, "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--epochs=1",
                          "--output_dir=%s" % (self.tmp / name), *flags, expect=expect)
        path = self.tmp / name / "result.json"
        return json.loads(path.read_text()) if path.exists() else None, out

    def down(self, *processes):
        self.sluice("down", self.tmp / "elsewhere", "--scheduler=%s" % self.scheduler)
        self.assertEqual([self.exit_code(p) for p in processes], [0] * len(processes))

    # ------------------------------------------------------------------------------------------ order and identity

    def test_any_order_of_starting_gives_the_same_cluster(self):
        digests = set()
        for order in itertools.permutations(("scheduler", "pserver", "worker")):
            self.cluster()
            self.log_dir = self.tmp / "".join(role[0] for role in order)
            processes = []
            for role in order:
                processes.append(self.daemon(role))
                # Each daemon is up, and waits if it has to, before the next one starts.
                wait_until(lambda: re.search(r"^%s 0 " % role, self.log("endpoints.log"), re.M), role)
            result, _ = self.submit("".join(order), "--a_sync=false", "--worker_num=1")
            digests.add(result["model_digest"])
            self.down(*processes)
        # A person sees in the terminal when a daemon is ready, and why it ends.
        for role in ("scheduler", "pserver", "worker"):
            said = next(self.tmp.glob("%s.*.out" % role)).read_text()
            self.assertRegex(said, r"(?m)^ready: ")
            self.assertRegex(said, r"(?m)^ends with exit code 0$")
            self.assertNotIn("epoch 1 step", said)
        self.assertEqual(len(digests), 1)

    def test_identity_comes_from_flags_or_variables_alone(self):
        self.cluster()
        self.log_dir.mkdir()
        scheduler = self.start("sluice-scheduler", "--bind=%s" % self.scheduler, "--server_num=2", "--worker_num=2",
                               "--log_dir=%s" % self.log_dir)
        by_flag = self.start("sluice-pserver", "--rank=0", "--bind=127.0.0.1:0", "--scheduler=%s" % self.scheduler,
                             "--log_dir=%s" % self.log_dir)
        variables = {**os.environ, "SLUICE_SCHEDULER": self.scheduler, "SLUICE_LOG_DIR": str(self.log_dir)}
        pserver = self.start("sluice-pserver", env={**variables, "SLUICE_RANK": "1", "SLUICE_BIND": "127.0.0.1:0",
                                                    "SLUICE_ROLE": "pserver"})
        worker = self.start("sluice-worker", env={**variables, "SLUICE_RANK": "0", "SLUICE_ROLE": "worker"})
        other = self.start("sluice-worker", "--rank=1", env={**variables, "SLUICE_RANK": "0"})  # the flag wins
        result, _ = self.submit("out", "--worker_num=2")
        self.assertEqual(result["status"], "done")
        wrong = self.run_program("sluice-worker", env={**variables, "SLUICE_ROLE": "pserver"})
        self.assertEqual(wrong.returncode, 2, wrong.stdout)
        self.assertRegex(wrong.stdout, "SLUICE_ROLE: 'pserver' .*worker")
        self.down(scheduler, by_flag, pserver, worker, other)

    def test_wrong_identities_are_refused(self):
        self.cluster()
        for flags, message in (([], "rank 7 "),
                               (["--scheduler=nowhere"], "--scheduler: "),
                               (["--admin_bind=0.0.0.0:0"], "not a loopback address")):
            done = self.run_program("sluice-worker", "--cluster=%s" % self.file,
                                    "--rank=%d" % (0 if flags else 7), "--log_dir=%s" % self.log_dir, *flags)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(message, done.stdout)
        # The scheduler refuses a rank that the member could not check against a cluster file.
        self.daemon("scheduler")
        done = self.run_program("sluice-worker", "--scheduler=%s" % self.scheduler, "--rank=7",
                                "--log_dir=%s" % self.log_dir)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stdout, r"rank 7 .*the cluster has 1\b")

    def test_an_address_in_use_is_reported_once(self):
        self.cluster()
        first = self.daemon("scheduler")
        wait_until(lambda: "scheduler 0 " in self.log("endpoints.log"), "the first listens")
        for args in (["sluice-scheduler", "--cluster=%s" % self.file],
                     ["sluice-pserver", "--cluster=%s" % self.file, "--rank=0", "--bind=%s" % self.scheduler]):
            done = self.run_program(*args, "--log_dir=%s" % (self.tmp / "second"))
            self.assertEqual(done.returncode, 1, done.stdout)
            where, why = done.stdout.splitlines()  # and no line of gRPC's own log
            self.assertRegex(where, r"^%s( 0)?: logs in .*/second/\w+log\.0$" % args[0])
            self.assertIn(self.scheduler, why)
        self.down(first)

    # --------------------------------------------------------------------------------------------------- waiting

    def test_members_name_the_scheduler_they_wait_for_and_give_up_in_time(self):
        self.cluster(limits="wait_s: 8")
        processes = {role: self.daemon(role) for role in ("pserver", "worker")}
        for role, name in (("pserver", "serverlog.0"), ("worker", "workerlog.0")):
            waits = r"waiting for the scheduler at %s \(\d of 8 s\)" % re.escape(self.scheduler)
            wait_until(lambda: re.search(waits, self.log(name)),
                       "%s names the scheduler" % role)
        for role, process in processes.items():
            self.assertEqual(self.exit_code(process), 1)
            out = next(self.tmp.glob("%s.*.out" % role)).read_text()
            self.assertRegex(out, r"%s .*\b8s\b" % re.escape(self.scheduler))
            self.assertRegex(out, r"(?m)^waiting for the scheduler at ")

    def test_the_scheduler_names_missing_members_and_a_job_gives_up_in_time(self):
        self.cluster(pservers=2, limits="wait_s: 8")
        scheduler = self.daemon("scheduler")
        wait_until(lambda: "scheduler 0 " in self.log("endpoints.log"), "it listens")  # the members wait for 8 s, too
        worker = self.daemon("worker")
        pserver = self.daemon("pserver", 1)
        wait_until(lambda: "pserver 1 (" in self.log("schedulerlog.0"), "registered")
        missing = "pserver 0 (%s) to register" % self.pservers[0]
        wait_until(lambda: "waiting for %s" % missing in self.log("schedulerlog.0"), "the name of the missing")
        result, out = self.submit("out", "--worker_num=1", expect=1)
        self.assertEqual(result["status"], "failed")
        self.assertRegex(out, r"\b8s\b.*%s" % re.escape(missing))
        self.down(scheduler, worker, pserver)

    def test_a_member_that_waits_stops_at_once_when_told(self):
        self.cluster()
        for role in ("pserver", "worker"):
            process = self.daemon(role)
            wait_until(lambda: re.search(r"^%s 0 " % role, self.log("endpoints.log"), re.M), role)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.exit_code(process), 143)  # it would wait for 120 s

    # ------------------------------------------------------------------------------------------ replacing and fencing

    def test_a_pserver_restarted_between_jobs_serves_the_next_one(self):
        self.cluster(pservers=2)
        scheduler, worker = self.daemon("scheduler"), self.daemon("worker")
        first, second = self.daemon("pserver", 0), self.daemon("pserver", 1)
        before, _ = self.submit("before", "--worker_num=1", "--a_sync=false")
        first.kill()  # it cannot take leave
        first.wait()
        again = self.daemon("pserver", 0)
        wait_until(lambda: "pserver 0 (pid %d" % again.pid in self.log("schedulerlog.0"), "registered again")
        after, _ = self.submit("after", "--worker_num=1", "--a_sync=false")
        self.assertEqual(before["model_digest"], after["model_digest"])
        self.down(scheduler, worker, again, second)

    def test_a_second_process_with_a_used_rank_is_refused_without_harm(self):
        self.cluster()
        scheduler, pserver, worker = self.daemon("scheduler"), self.daemon("pserver"), self.daemon("worker")
        job = self.start("sluice", "submit", "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--epochs=100000",
                         "--worker_num=1", "--output_dir=%s" % (self.tmp / "out"), log="submit")
        wait_until(lambda: "running, train" in (self.tmp / "submit").read_text(), "the job trains")
        elsewhere = ["--bind=127.0.0.1:0", "--advertise=127.0.0.1:0"]
        for role, incumbent in (("worker", worker), ("pserver", pserver)):
            second = self.run_program("sluice-" + role, "--cluster=%s" % self.file, "--rank=0",
                                      "--log_dir=%s" % (self.tmp / "second"), *(elsewhere if role == "pserver" else []))
            self.assertEqual(second.returncode, 2, second.stdout)
            self.assertIn("%s 0 is pid %d on host" % (role, incumbent.pid), second.stdout)
            self.assertIsNone(incumbent.poll())
        self.assertIsNone(job.poll(), (self.tmp / "submit").read_text())
        job.send_signal(signal.SIGINT)
        self.exit_code(job)
        self.down(scheduler, pserver, worker)

    def test_a_second_daemon_in_a_live_log_folder_changes_nothing_there(self):
        self.cluster()
        started = {role: self.daemon(role) for role in ("scheduler", "pserver", "worker")}
        wait_until(lambda: self.log("endpoints.log").count("\n") == 4, "all are up")
        endpoints = self.log("endpoints.log")
        other = ["--bind=127.0.0.1:0", "--advertise=127.0.0.1:0"]
        for role, process in started.items():
            second = self.run_program("sluice-" + role, "--cluster=%s" % self.file, "--log_dir=%s" % self.log_dir,
                                      *([] if role == "scheduler" else ["--rank=0"]),
                                      *([] if role == "worker" else other))
            self.assertEqual(second.returncode, 2, second.stdout)
            self.assertIn("pid %d" % process.pid, second.stdout)
        self.assertEqual(self.log("endpoints.log"), endpoints)
        # The refusal of the last one, a worker, names the first worker; the log of that one does not have it.
        self.assertNotIn("is pid %d" % started["worker"].pid, self.log("workerlog.0"))
        self.assertEqual(self.submit("after", "--worker_num=1")[0]["status"], "done")
        self.down(*started.values())

    def test_a_restarted_process_gets_its_rank_back_at_once(self):
        self.cluster(limits="lease_ms: 600000")
        scheduler, pserver, worker = self.daemon("scheduler"), self.daemon("pserver"), self.daemon("worker")
        self.assertEqual(self.submit("before", "--worker_num=1")[0]["status"], "done")
        for role, old in (("worker", worker), ("pserver", pserver)):
            old.kill()
            old.wait()
            new = self.daemon(role)
            wait_until(lambda: re.search(r"%s 0 \(pid %d on host [^)]*\): registered" % (role, new.pid),
                                         self.log("schedulerlog.0")), "the new %s" % role)
            worker, pserver = (new, pserver) if role == "worker" else (worker, new)
        self.assertEqual(self.submit("after", "--worker_num=1")[0]["status"], "done")
        self.down(scheduler, pserver, worker)

    def test_members_find_a_restarted_scheduler_after_the_clock_was_set_back(self):
        self.cluster()
        env, set_ahead = self.clock_for_test()
        scheduler, pserver, worker = [self.daemon(role, env=env) for role in ("scheduler", "pserver", "worker")]
        wait_until(lambda: self.log("schedulerlog.0").count("registered as member") == 2, "both are members")
        set_ahead(-1)
        time.sleep(1)  # the waits began at the old time
        scheduler.kill()
        scheduler.wait()
        time.sleep(1)  # the members have found nobody and pause before the next try
        scheduler = self.daemon("scheduler", env=env)
        wait_until(lambda: self.log("schedulerlog.0").count("registered as member") == 4, "both are back")
        self.down(scheduler, pserver, worker)

    def test_the_rank_of_a_hanging_process_is_free_after_its_lease(self):
        self.cluster(limits="lease_ms: 10000 heartbeat_ms: 200")  # the second must ask before the lease is over
        scheduler, pserver, hung = self.daemon("scheduler"), self.daemon("pserver"), self.daemon("worker")
        wait_until(lambda: re.search(r"worker 0 .*: registered", self.log("schedulerlog.0")), "registered")
        hung.send_signal(signal.SIGSTOP)
        second = self.start("sluice-worker", "--cluster=%s" % self.file, "--rank=0",
                            "--log_dir=%s" % (self.tmp / "second"))
        named = r"worker 0 is pid %d on host .* last seen [\d.]+ s ago" % hung.pid
        log = self.tmp / "second" / "workerlog.0"
        wait_until(lambda: log.exists() and re.search(named, log.read_text()), "it names the one that hangs")
        wait_until(lambda: re.search(r"worker 0 \(pid %d on host [^)]*\): registered" % second.pid,
                                     self.log("schedulerlog.0")), "it has the place")
        hung.send_signal(signal.SIGCONT)
        self.assertEqual(self.exit_code(hung), 2)
        self.assertEqual(self.submit("after", "--worker_num=1")[0]["status"], "done")
        self.down(scheduler, pserver, second)

    # --------------------------------------------------------------------------------------------------- stopping

    def test_a_signal_to_a_scheduler_without_a_store_stops_the_cluster(self):
        self.cluster(pservers=2, workers=2, extra='state_store: "none"\n')
        members = [self.daemon("pserver", 0), self.daemon("pserver", 1), self.daemon("worker", 0),
                   self.daemon("worker", 1)]
        scheduler = self.daemon("scheduler")
        job = self.start("sluice", "submit", "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--epochs=100000",
                         "--output_dir=%s" % (self.tmp / "out"), log="submit")
        wait_until(lambda: "running, train" in (self.tmp / "submit").read_text(), "the job trains")
        scheduler.send_signal(signal.SIGTERM)
        self.assertEqual([self.exit_code(process) for process in members], [0, 0, 0, 0])
        self.assertEqual(self.exit_code(scheduler), 143)
        self.assertIn(self.exit_code(job), (1, 3))
        self.assertEqual(json.loads((self.tmp / "out" / "result.json").read_text())["status"], "cancelled")
        self.await_none_left()

    def test_members_outlive_jobs_and_a_scheduler_that_restarts(self):
        self.cluster()
        scheduler, pserver, worker = self.daemon("scheduler"), self.daemon("pserver"), self.daemon("worker")
        self.assertEqual(self.submit("before", "--worker_num=1")[0]["status"], "done")
        scheduler.kill()
        scheduler.wait()
        scheduler = self.daemon("scheduler")
        self.assertEqual(self.submit("after", "--worker_num=1")[0]["status"], "done")
        self.assertIsNone(pserver.poll())
        self.assertIsNone(worker.poll())
        self.down(scheduler, pserver, worker)

    def test_a_job_after_a_restart_never_uses_tables_of_an_earlier_job_with_its_id(self):
        self.cluster(extra='state_store: "none"\n')
        scheduler, pserver, worker = self.daemon("scheduler"), self.daemon("pserver"), self.daemon("worker")
        sync = ["--scheduler=%s" % self.scheduler, "--job=%s" % ADULT, "--a_sync=false", "--worker_num=1"]
        fresh, _ = self.submit("fresh", "--a_sync=false", "--worker_num=1")
        scheduler.kill()
        scheduler.wait()

        # The first job of a new scheduler trains until that scheduler dies. Its id comes again because the job numbers of the
        # log folder are removed.
        (self.log_dir / "job_numbers").unlink()
        scheduler = self.daemon("scheduler")
        first = self.start("sluice", "submit", *sync, "--epochs=100000", "--output_dir=%s" % (self.tmp / "first"), log="1")
        wait_until(lambda: "running, train" in (self.tmp / "1").read_text(), "the first job trains")
        pserver.send_signal(signal.SIGSTOP)  # keeps the tables until it hears from the next scheduler
        scheduler.kill()
        scheduler.wait()
        first.kill()

        # The first job of the next scheduler has the same id and waits for this pserver.
        (self.log_dir / "job_numbers").unlink()
        scheduler = self.daemon("scheduler")
        second = self.start("sluice", "submit", *sync, "--epochs=1", "--output_dir=%s" % (self.tmp / "second"), log="2")
        wait_until(lambda: "pserver 0" in (self.tmp / "2").read_text(), "the second job waits for the pserver")

        def worker_is_free():
            members = json.loads(self.sluice("status", self.log_dir, "--json", "--scheduler=%s" % self.scheduler))["members"]
            return any(m["rank"] == 0 and m["role"] == "worker" and m["memory_bytes"] != 0 and not m["doing"]
                       for m in members)

        wait_until(worker_is_free, "the worker has given up the first job")
        pserver.send_signal(signal.SIGCONT)
        self.assertEqual(self.exit_code(second), 0, (self.tmp / "2").read_text())
        ids = [re.search(r"\badult\S*-\d+", (self.tmp / name).read_text()).group() for name in "12"]
        self.assertEqual(ids[0], ids[1])
        result = json.loads((self.tmp / "second" / "result.json").read_text())
        self.assertEqual(result["model_digest"], fresh["model_digest"])
        self.down(scheduler, pserver, worker)


if __name__ == "__main__":
    unittest.main()
