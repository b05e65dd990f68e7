"""Schedulers with their state in etcd: one takes over from another that was killed or that still lives, etcd fails for a
while or is full, and a second scheduler that cannot start leaves the first one alone."""
import base64
import json
import os
import pathlib
import re
import signal
import unittest
import urllib.error
import urllib.request

from sluice_testing import ADULT_TRAIN_EXAMPLES, ClusterJobsTest, free_port, needs_etcd, wait_until

SUPERSEDED = 5
EPOCHS = 10  # enough that a job does not end before its scheduler is killed


@needs_etcd
class EtcdSchedulerTest(ClusterJobsTest):
    def setUp(self):
        super().setUp()
        self.etcd, self.etcd_port = self.start_etcd()
        self.address = "127.0.0.1:%d" % free_port()
        self.cluster_file = self.write_cluster("first")
        self.schedulers = 0

    def write_cluster(self, name):
        file = self.tmp / ("%s.textproto" % name)
        file.write_text('version: 1\nname: "%s"\nscheduler: "%s"\npservers: "127.0.0.1:0"\nworker_num: 2\n'
                        'state_store: "etcd:127.0.0.1:%d/test"\n' % (name, self.address, self.etcd_port))
        return file

    def start_scheduler(self, *flags, cluster=None):
        """Each has a log folder of its own, as on another host."""
        self.schedulers += 1
        log_dir = self.tmp / ("log%d" % self.schedulers)
        log_dir.mkdir()
        return self.start("sluice-scheduler", "--cluster=%s" % (cluster or self.cluster_file), "--log_dir=%s" % log_dir, *flags)

    def start_cluster(self, *flags):
        scheduler = self.start_scheduler(*flags)
        log_dir = self.tmp / "members"
        log_dir.mkdir()
        self.members = [self.start("sluice-" + role, "--cluster=%s" % self.cluster_file, "--rank=%d" % rank, "--log_dir=%s" % log_dir)
                        for role, rank in (("pserver", 0), ("worker", 0), ("worker", 1))]
        wait_until(lambda: sum(m["alive"] for m in self.cluster_status()["members"]) == 3, "three members")
        return scheduler

    def assert_nothing_lost(self, result, restarts):
        self.assertEqual(result["recovery"]["scheduler_restarts"], restarts)
        for field in ("worker_losses", "pserver_losses", "rollbacks", "updates_lost", "examples_replayed"):
            self.assertEqual(result["recovery"][field], 0, field)

    def test_another_scheduler_takes_over_when_the_first_one_is_killed(self):
        scheduler = self.start_cluster()
        expected = self.result(self.submit("undisturbed", "--a_sync=false", "--epochs=%d" % EPOCHS), "undisturbed")
        for name, flags in (("sync", ("--a_sync=false",)),
                            ("async", ("--a_sync=true", "--k_steps=0", "--set", "data.task_bytes=20000"))):
            with self.subTest(name):
                job = self.submit(name, "--epochs=%d" % EPOCHS, "--set", "train.log_every=5", *flags)
                self.await_training(job)
                scheduler.kill()
                scheduler.wait()
                scheduler = self.start_scheduler()
                result = self.result(job, name)
                self.assertEqual((result["status"], result["examples"]), ("done", EPOCHS * ADULT_TRAIN_EXAMPLES))
                self.assert_nothing_lost(result, restarts=1)
                if name == "sync":
                    self.assertEqual(result["model_digest"], expected["model_digest"])

    def stop_all_threads(self, process):
        process.send_signal(signal.SIGSTOP)
        threads = pathlib.Path("/proc/%d/task" % process.pid)
        # A thread that writes finishes that first.
        wait_until(lambda: all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in threads.glob("*/stat")),
                   "all threads of the scheduler stop")

    def test_a_live_scheduler_is_fenced_by_its_successor(self):
        first = self.start_cluster()
        job = self.submit("run", "--a_sync=false", "--epochs=100000")
        self.await_training(job)
        self.stop_all_threads(first)
        # The members cannot reach it.
        second = self.start_scheduler("--bind=127.0.0.1:0")
        log = self.tmp / "log2" / "schedulerlog.0"
        wait_until(lambda: log.exists() and "job %s: taken over" % job in log.read_text(), "the second scheduler has the job")
        # It may write, too, when it is slow and its members become overdue.
        self.stop_all_threads(second)
        curve = next((self.tmp / "run").glob("events.out.tfevents.*"))
        size = curve.stat().st_size
        first.send_signal(signal.SIGCONT)
        self.assertEqual(self.exit_code(first), SUPERSEDED)
        # At most the points that it was about to write when it was stopped.
        self.assertLess(curve.stat().st_size, size + 500)
        second.send_signal(signal.SIGCONT)
        self.assertFalse((self.tmp / "run" / "result.json").exists())
        self.assertEqual(list((self.tmp / "run").glob("checkpoints/step-*/MANIFEST")), [])
        self.assertEqual([member.poll() for member in self.members], [None] * 3)
        self.assertIsNone(second.poll())
        # At the members' address, a third one takes over from the second.
        third = self.start_scheduler()
        self.assertEqual(self.exit_code(second), SUPERSEDED)
        self.await_training(job)
        self.assertIsNone(third.poll())

    def test_a_job_continues_while_etcd_is_away(self):
        scheduler = self.start_cluster()
        job = self.submit("run", "--a_sync=true", "--k_steps=0", "--epochs=100000", "--set", "data.task_bytes=20000")
        self.await_training(job)
        self.etcd.send_signal(signal.SIGSTOP)
        in_trouble = lambda: any(m["role"] == "scheduler" for m in self.cluster_status()["members"])
        wait_until(in_trouble, "the scheduler says so")
        step = int(self.job(job)["global_step"])
        self.await_training(job, step + 200)  # more than the tasks that the workers had
        self.etcd.send_signal(signal.SIGCONT)
        wait_until(lambda: not in_trouble(), "the state is written again")
        self.await_training(job, step + 400)
        recovery = self.job(job)["recovery"]
        for field in ("worker_losses", "pserver_losses", "rollbacks", "scheduler_restarts"):
            self.assertEqual(int(recovery.get(field, 0)), 0, field)
        self.assertIsNone(scheduler.poll())

    def call_etcd(self, path, **body):
        """A call over etcd's gateway; returns its answer, or the code of its error."""
        request = urllib.request.Request("http://127.0.0.1:%d/v3/%s" % (self.etcd_port, path), json.dumps(body).encode())
        try:
            return json.loads(urllib.request.urlopen(request, timeout=30).read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["code"]

    def fill_etcd(self):
        value = base64.b64encode(bytes(100000)).decode()
        for n in range(1000):
            if self.call_etcd("kv/put", key=base64.b64encode(b"fill").decode(), value=value) == 8:
                return
        self.fail("the quota is not full")

    def free_etcd(self):
        revision = self.call_etcd("kv/range", key=base64.b64encode(b"fill").decode())["header"]["revision"]
        self.call_etcd("kv/compaction", revision=revision, physical=True)
        self.call_etcd("maintenance/defragment")
        for alarm in self.call_etcd("maintenance/alarm").get("alarms", []):
            self.call_etcd("maintenance/alarm", action="DEACTIVATE", **alarm)

    def test_a_full_etcd_ends_neither_jobs_nor_members(self):
        self.etcd, self.etcd_port = self.start_etcd("--data-dir=%s" % (self.tmp / "small"),
                                                    "--quota-backend-bytes=%d" % (8 << 20))
        self.cluster_file = self.write_cluster("first")
        scheduler = self.start_cluster()
        job = self.submit("run", "--a_sync=true", "--k_steps=0", "--epochs=100000", "--set", "data.task_bytes=20000")
        self.await_training(job)
        self.fill_etcd()
        said = lambda: [m.get("doing", "") for m in self.cluster_status()["members"] if m["role"] == "scheduler"]
        wait_until(lambda: any("alarm disarm" in text for text in said()), lambda: "the scheduler says so: %s" % said())
        step = int(self.job(job)["global_step"])
        self.await_training(job, step + 200)  # more than the tasks that the workers had
        self.assertIsNone(scheduler.poll())
        # The next scheduler waits for its term, and the members for it.
        scheduler.kill()
        scheduler.wait()
        scheduler = self.start_scheduler()
        wait_until(lambda: any("waits for its term" in text for text in said()), lambda: "it waits: %s" % said())
        self.free_etcd()
        wait_until(lambda: sum(m["alive"] for m in self.cluster_status()["members"]) == 3, "three members")
        self.await_training(job)
        self.assertEqual([member.poll() for member in self.members], [None] * 3)
        self.assertIsNone(scheduler.poll())

    def test_a_scheduler_that_is_cut_off_from_etcd_ends(self):
        scheduler = self.start_cluster("--lease_ms=2000")
        self.etcd.send_signal(signal.SIGSTOP)
        self.assertEqual(self.exit_code(scheduler), 1)
        self.assertEqual([member.poll() for member in self.members], [None] * 3)
        self.etcd.send_signal(signal.SIGCONT)
        self.start_scheduler("--lease_ms=2000")
        wait_until(lambda: sum(m["alive"] for m in self.cluster_status()["members"]) == 3, "three members")

    def test_a_second_scheduler_that_cannot_start_leaves_the_first_one_alone(self):
        first = self.start_cluster()
        job = self.submit("run", "--a_sync=false", "--epochs=100000")
        self.await_training(job)
        other = self.write_cluster("other")
        for flags, code, word in (((), 1, self.address),
                                  (("--cluster=%s" % other, "--bind=127.0.0.1:0"), 2, "first")):
            log_dir = self.tmp / ("refused%d" % code)
            log_dir.mkdir()
            done = self.run_program("sluice-scheduler", *(flags or ("--cluster=%s" % self.cluster_file,)), "--log_dir=%s" % log_dir)
            self.assertEqual(done.returncode, code, done.stdout)
            self.assertIn(word, done.stdout)
        # It still has the store: a submission is kept.
        self.submit("second", "--a_sync=false", "--epochs=1")
        self.assertIsNone(first.poll())
        self.assertFalse(re.search("taken over", (self.tmp / "log1" / "schedulerlog.0").read_text()))


@needs_etcd
class EtcdTlsTest(ClusterJobsTest):
    """An etcd that serves only clients with a certificate."""

    def setUp(self):
        super().setUp()
        self.certs = self.tmp / "etcd_certs"
        done = self.run_program("sluice", "certs", str(self.certs))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.etcd, self.etcd_port = self.start_etcd(
            "--cert-file=%s/scheduler.pem" % self.certs, "--key-file=%s/scheduler.key" % self.certs,
            "--client-cert-auth", "--trusted-ca-file=%s/ca.pem" % self.certs, scheme="https")
        self.address = "127.0.0.1:%d" % free_port()

    def flags(self, name, host="127.0.0.1"):
        log_dir, file = self.tmp / name, self.tmp / ("%s.textproto" % name)
        log_dir.mkdir()
        file.write_text('version: 1\nname: "%s"\nscheduler: "%s"\npservers: "127.0.0.1:0"\nworker_num: 1\n'
                        'state_store: "etcd:%s:%d/%s"\n' % (name, self.address, host, self.etcd_port, name))
        return ["--cluster=%s" % file, "--log_dir=%s" % log_dir]

    def files(self, folder, owner="scheduler"):
        return ["--etcd_ca=%s/ca.pem" % folder, "--etcd_cert=%s/%s.pem" % (folder, owner),
                "--etcd_key=%s/%s.key" % (folder, owner)]

    def test_a_scheduler_keeps_its_jobs_over_tls(self):
        flags = self.flags("kept")
        scheduler = self.start("sluice-scheduler", *flags, *self.files(self.certs))
        for role in ("pserver", "worker"):
            self.start("sluice-" + role, "--rank=0", *flags)
        wait_until(lambda: sum(m["alive"] for m in self.cluster_status()["members"]) == 2, "two members")
        job = self.submit("run", "--a_sync=false", "--worker_num=1", "--epochs=100000")
        self.await_training(job)
        scheduler.kill()
        scheduler.wait()
        # The next one is told by variables.
        names = dict(zip(("SLUICE_ETCD_CA", "SLUICE_ETCD_CERT", "SLUICE_ETCD_KEY"),
                         (flag.split("=")[1] for flag in self.files(self.certs))))
        self.start("sluice-scheduler", *flags, env={**os.environ, **names})
        log = self.tmp / "kept" / "schedulerlog.0"
        wait_until(lambda: "job %s: taken over" % job in log.read_text(), "the job is taken over")

    def test_who_does_not_fit_is_refused(self):
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        no_client = ["--etcd_ca=%s/ca.pem" % self.certs]
        foreign_client = no_client + self.files(others)[1:]
        wrong_ca = ["--etcd_ca=%s/ca.pem" % others] + self.files(self.certs)[1:]
        for name, files, host, code in (
                ("plain", [], "127.0.0.1", 1), ("no_client", no_client, "127.0.0.1", 1),
                ("foreign_client", foreign_client, "127.0.0.1", 1), ("wrong_ca", wrong_ca, "127.0.0.1", 1),
                # A name of this host that the certificate does not have.
                ("wrong_host", self.files(self.certs), "127.0.0.2", 1),
                ("off_loopback", [], "192.0.2.1", 2), ("half", self.files(self.certs)[:2], "127.0.0.1", 2)):
            with self.subTest(name):
                done = self.run_program("sluice-scheduler", *self.flags(name, host), *files)
                self.assertEqual(done.returncode, code, done.stdout)
                if code == 2:
                    self.assertIn("--etcd_", done.stdout)

    def test_files_for_etcd_without_etcd_are_refused(self):
        log_dir = self.tmp / "folder"
        done = self.run_program("sluice-scheduler", "--bind=127.0.0.1:0", "--log_dir=%s" % log_dir, *self.files(self.certs))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("--etcd_ca", done.stdout)


if __name__ == "__main__":
    unittest.main()
