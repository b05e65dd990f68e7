"""Two schedulers with their state in etcd, one of which stands by: it takes over when the leader is killed, stopped or told to
end, and members and commands that know both addresses follow."""
import pathlib
import signal
import time
import unittest
import urllib.error
import urllib.request

from sluice_testing import ADULT_TRAIN_EXAMPLES, PATIENCE, TIME_SCALE, ClusterJobsTest, free_port, needs_etcd, wait_until

LEASE_MS = 5000 * TIME_SCALE  # members that a busy machine starves are not to be lost
EPOCHS = 15  # of a job that must not end before its leader is killed
LEFT = 1  # exit code of a scheduler that may be started again
TERMINATED = 143


@needs_etcd
class StandbyTest(ClusterJobsTest):
    def setUp(self):
        super().setUp()
        self.etcd, self.etcd_port = self.start_etcd()
        self.addresses = ["127.0.0.1:%d" % free_port() for _ in range(2)]
        self.admin = ["127.0.0.1:%d" % free_port() for _ in range(2)]
        self.address = ",".join(self.addresses)
        self.cluster_file = self.tmp / "cluster.textproto"
        self.cluster_file.write_text(
            'version: 1\nname: "two"\nscheduler: "%s"\npservers: "127.0.0.1:0"\npservers: "127.0.0.1:0"\nworker_num: 2\n'
            'limits { lease_ms: %d heartbeat_ms: 200 }\nstate_store: "etcd:127.0.0.1:%d/test"\n' % (
                self.address, LEASE_MS, self.etcd_port))
        self.schedulers = [None, None]

    # ------------------------------------------------------------------------------ schedulers

    def start_scheduler(self, i):
        """Each has a log folder of its own, as on another host. Its log begins anew."""
        log_dir = self.tmp / ("log%d" % i)
        log_dir.mkdir(exist_ok=True)
        (log_dir / "schedulerlog.0").unlink(missing_ok=True)
        self.schedulers[i] = self.start("sluice-scheduler", "--cluster=%s" % self.cluster_file, "--standby",
                                        "--bind=%s" % self.addresses[i], "--admin_bind=%s" % self.admin[i],
                                        "--log_dir=%s" % log_dir)
        return self.schedulers[i]

    def log(self, i):
        path = self.tmp / ("log%d" % i) / "schedulerlog.0"
        return path.read_text() if path.exists() else ""

    def await_leader(self, i):
        wait_until(lambda: "scheduler at %s" % self.addresses[i] in self.log(i), "scheduler %d leads" % i)

    def await_standby(self, i):
        """Waits until scheduler i says that the other one leads."""
        wait_until(lambda: "standby: %s leads" % self.addresses[1 - i] in self.log(i), "scheduler %d stands by" % i)

    def start_both(self):
        self.start_scheduler(0)
        self.await_leader(0)
        self.start_scheduler(1)
        self.await_standby(1)

    def get(self, i, page):
        try:
            with urllib.request.urlopen("http://%s%s" % (self.admin[i], page), timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    # ------------------------------------------------------------------------------ members and jobs

    def start_members(self):
        log_dir = self.tmp / "members"
        log_dir.mkdir()
        self.members = [self.start("sluice-" + role, "--cluster=%s" % self.cluster_file, "--rank=%d" % rank, "--log_dir=%s" % log_dir)
                        for role in ("pserver", "worker") for rank in range(2)]
        wait_until(lambda: self.alive() == 4, "four members")

    def alive(self):
        return sum(member["alive"] for member in self.cluster_status()["members"])

    def await_first_heartbeat(self, i, begin, what):
        """Prints how long after `begin` scheduler i leads, and hears of its first member."""
        times = {}

        def look():
            log = self.log(i)
            for event, text in (("leads", "scheduler at "), ("member", "registered as member")):
                if text in log:
                    times.setdefault(event, time.monotonic() - begin)
            return "member" in times
        wait_until(look, "a member at scheduler %d" % i)
        print("\n%s: the standby leads after %.1f s and has its first member after %.1f s; the lease is %.1f s" % (
            what, times["leads"], times["member"], LEASE_MS / 1000))

    # ------------------------------------------------------------------------------ tests

    def test_the_standby_takes_over_when_the_leader_is_killed(self):
        self.start_both()
        self.start_members()
        expected = self.result(self.submit("undisturbed", "--a_sync=false", "--epochs=%d" % EPOCHS), "undisturbed")
        leader = 0
        for name, flags in (("sync", ("--a_sync=false",)),
                            ("async", ("--a_sync=true", "--k_steps=0", "--set", "data.task_bytes=20000"))):
            with self.subTest(name):
                job = self.submit(name, "--epochs=%d" % EPOCHS, "--set", "train.log_every=5", *flags)
                self.await_training(job)
                self.schedulers[leader].kill()
                begin = time.monotonic()
                self.schedulers[leader].wait()
                self.await_first_heartbeat(1 - leader, begin, name)
                # The dead one comes back, and stands by.
                self.start_scheduler(leader)
                self.await_standby(leader)
                leader = 1 - leader
                result = self.result(job, name)
                self.assertEqual((result["status"], result["examples"]), ("done", EPOCHS * ADULT_TRAIN_EXAMPLES))
                self.assertEqual(result["recovery"]["scheduler_restarts"], 1)
                for field in ("worker_losses", "pserver_losses", "rollbacks", "updates_lost", "examples_replayed"):
                    self.assertEqual(result["recovery"][field], 0, field)
                if name == "sync":
                    self.assertEqual(result["model_digest"], expected["model_digest"])
        self.assertEqual([member.poll() for member in self.members], [None] * 4)

    def test_a_stopped_leader_is_fenced_and_never_acts(self):
        self.start_both()
        self.start_members()
        job = self.submit("run", "--a_sync=true", "--k_steps=0", "--epochs=100000", "--set", "data.task_bytes=20000",
                          "--set", "checkpoint.every_s=1")  # one is due when the stopped leader continues
        self.await_training(job)
        stopped = self.schedulers[0]
        stopped.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        threads = pathlib.Path("/proc/%d/task" % stopped.pid)
        # A thread that writes finishes that first.
        wait_until(lambda: all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in threads.glob("*/stat")),
                   "all threads of the leader stop")
        curve = next((self.tmp / "run").glob("events.out.tfevents.*"))
        before = (self.log(0), curve.stat().st_size)
        self.await_first_heartbeat(1, begin, "stopped")
        # Its port is still open, but the members and the commands have left it.
        wait_until(lambda: self.alive() == 4, "all members")
        stopped.send_signal(signal.SIGCONT)
        self.assertEqual(self.exit_code(stopped), LEFT)
        # It may note that it has lost members, and with them the checkpoint that was open. Files are changed under its term only.
        self.assertNotRegex(self.log(0)[len(before[0]):], r"checkpoint \d+ is complete")
        self.assertEqual(curve.stat().st_size, before[1])
        self.assertFalse((self.tmp / "run" / "result.json").exists())
        self.assertEqual([member.poll() for member in self.members], [None] * 4)
        # As a supervisor starts it again.
        self.start_scheduler(0)
        self.await_standby(0)
        step = int(self.job(job)["global_step"])
        self.await_training(job, step + 100)
        for field in ("worker_losses", "pserver_losses", "rollbacks", "updates_lost"):
            self.assertEqual(int(self.job(job)["recovery"].get(field, 0)), 0, field)
        self.assertIsNone(self.schedulers[1].poll())

    def test_a_standby_waits_for_the_leader_to_leave(self):
        self.start_both()
        self.assertEqual(self.get(1, "/livez")[0], 200)
        self.assertEqual(self.get(1, "/readyz"), (503, "not ready: standby: %s leads\n" % self.addresses[0]))
        self.assertIn("standby", self.get(1, "/statusz")[1])
        # Told to end, both leave.
        self.schedulers[1].terminate()
        self.assertEqual(self.exit_code(self.schedulers[1]), TERMINATED)
        self.start_scheduler(1)
        self.await_standby(1)
        time.sleep(LEASE_MS / 1000)
        self.assertEqual(self.log(1).count("standby:"), 1)
        self.schedulers[0].terminate()
        self.assertEqual(self.exit_code(self.schedulers[0]), TERMINATED)
        self.await_leader(1)
        self.assertNotIn("standby", self.get(1, "/readyz")[1])
        # The end of the cluster is the end of both.
        self.start_scheduler(0)
        self.await_standby(0)
        done = self.run_program("sluice", "down", "--scheduler=%s" % self.address)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([self.exit_code(scheduler) for scheduler in self.schedulers], [0, 0])
        # It may be started anew.
        self.start_both()

    def test_a_standby_without_etcd_is_refused(self):
        for store in ("", 'state_store: "rocksdb:%s"\n' % (self.tmp / "state"), 'state_store: "none"\n'):
            file = self.tmp / "other.textproto"
            file.write_text('version: 1\nscheduler: "%s"\npservers: "127.0.0.1:0"\nworker_num: 2\n%s' % (self.addresses[0], store))
            done = self.run_program("sluice-scheduler", "--cluster=%s" % file, "--standby", "--log_dir=%s" % (self.tmp / "other"))
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("--standby", done.stdout)
            self.assertIn("state_store", done.stdout)


if __name__ == "__main__":
    unittest.main()
