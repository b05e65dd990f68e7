"""Two hosts as network namespaces: daemons started by hand from the shipped cluster file, and a network that breaks."""
import json
import re
import subprocess
import sys
import time
import unittest

from sluice_testing import ADULT, PATIENCE, ROOT, commands_by_hand, wait_until
from namespace_hosts import A, B, NamespaceHostsTest
from net_namespaces import why_no_namespaces

FILE = ROOT / "configs" / "two_hosts_cluster.textproto"
TO_A = NamespaceHostsTest.access  # how commands find the scheduler


REASON = why_no_namespaces()
if REASON:
    print("skipped: " + REASON, file=sys.stderr)


NO_LOSSES = REASON or why_no_namespaces(faults=True)


@unittest.skipIf(REASON, REASON)
class TwoHostsTest(NamespaceHostsTest):
    def setUp(self):
        super().setUp()
        self.file.write_text(FILE.read_text().replace("10.0.0.1", A).replace("10.0.0.2", B))

    def start_all(self, *scheduler_flags):
        """The commands of deploy/README.md, the scheduler last."""
        daemons = {}
        for host in "ba":
            for program, *flags in reversed(commands_by_hand()["host " + host.upper()]):
                role = program[len("sluice-"):]
                rank = [" " + flag[-1] for flag in flags if flag.startswith("--rank=")]
                more = scheduler_flags if role == "scheduler" else []
                daemons["".join([role] + rank)] = self.daemon(host, role, *flags, *more)
        self.assertEqual(sorted(daemons), ["pserver 0", "pserver 1", "scheduler", "worker 0", "worker 1"])
        return daemons

    # -----------------------------------------------------------------------------------------------------------

    def test_two_hosts_train_to_the_same_bits_as_one(self):
        daemons = self.start_all()
        result, _ = self.submit("b", "two", "--a_sync=false", "--epochs=1")
        members = self.members()
        self.assertEqual([m["address"] for m in members if m["role"] == "pserver"], [A + ":7200", B + ":7200"])
        # Admin HTTP stays on loopback whatever the daemons bind.
        self.assertTrue(all(m["admin_address"].startswith("127.0.0.1:") for m in members), members)
        code, out = self.run_on("b", "sluice", "down", *TO_A)
        self.assertEqual(code, 0, out)
        self.assertEqual({who: self.exit_code(p) for who, p in daemons.items()}, {who: 0 for who in daemons})
        # The namespaces share a kernel and its boot id, but no local sockets.
        for host, rank, own, other in (("a", 0, A, B), ("b", 1, B, A)):
            log = (self.tmp / ("log-" + host) / ("workerlog.%d" % rank)).read_text(errors="replace")
            self.assertRegex(log, r"pserver %s:7200: through shared memory" % re.escape(own))
            self.assertRegex(log, r"pserver %s:7200: over gRPC, not through shared memory: .*namespace" % re.escape(other))
        local, _ = self.launch("--a_sync=false", "--epochs=1", "--server_num=2", "--worker_num=2", name="one")
        self.assertEqual(result["model_digest"], local["model_digest"])
        self.assertEqual(result["eval"], local["eval"])

    def test_the_death_of_a_container_is_noticed_by_its_closed_connection(self):
        # The scheduler cannot see the processes of a container.
        self.daemon("a", "scheduler", "--lease_ms=20000", "--heartbeat_ms=300")
        for host, rank in (("a", 0), ("b", 1)):
            self.daemon(host, "pserver", "--rank=%d" % rank)
        self.daemon("a", "worker", "--rank=0")
        worker = self.daemon("b", "worker", "--rank=1", container=True)
        submit = subprocess.Popen(self.on("a", "sluice", "submit", "--job=%s" % ADULT, *TO_A,
                                          "--output_dir=%s" % (self.tmp / "out"), "--a_sync=true", "--epochs=20",
                                          "--worker_num=2", "--progress=plain"),
                                  stdout=open(self.tmp / "submit", "wb"), stderr=subprocess.STDOUT, cwd=self.tmp)
        self._started.append(submit)
        wait_until(lambda: re.search(r"worker 1: epoch", (self.tmp / "submit").read_text()), "worker 1 trains")
        worker.kill()
        killed = time.monotonic()
        worker.wait()
        self.daemon("b", "worker", "--rank=1", container=True)
        self.assertEqual(self.exit_code(submit, within=180), 0, (self.tmp / "submit").read_text())
        recovery = json.loads((self.tmp / "out" / "result.json").read_text())["recovery"]
        self.assertEqual((recovery["worker_losses"], recovery["rollbacks"]), (1, 0))
        self.assertIn("connection", recovery["last"])
        print("the job ended %.1f s after the kill; the lease is 20 s" % (time.monotonic() - killed), file=sys.stderr)

    def test_other_addresses_than_loopback_need_insecure(self):
        self.file.write_text(self.file.read_text().replace("insecure: true\n", "insecure: false\n"))
        self.assertIn("insecure: false", self.file.read_text())
        for program, flags in (("sluice-scheduler", []), ("sluice-pserver", ["--rank=0"])):
            args = [program, "--cluster=%s" % self.file, "--log_dir=%s" % (self.tmp / "log"), *flags]
            code, out = self.run_on("a", *args)
            self.assertEqual(code, 2, out)
            self.assertIn(A, out)
            self.assertIn("insecure: true", out)
        scheduler = self.daemon("a", "scheduler", "--insecure")
        wait_until(lambda: self.run_on("a", "sluice", "status", *TO_A)[0] == 0,
                   "the scheduler with --insecure")
        scheduler.terminate()
        self.assertEqual(self.exit_code(scheduler), 143)

    def test_a_partition_ends_the_job_and_the_cluster_recovers_with_the_network(self):
        daemons = self.start_all("--lease_ms=8000", "--heartbeat_ms=300")
        submit = subprocess.Popen(self.on("a", "sluice", "submit", "--job=%s" % ADULT, *TO_A,
                                          "--output_dir=%s" % (self.tmp / "cut"), "--a_sync=false", "--epochs=100000",
                                          "--set=recovery.max_losses=0",
                                          "--progress=plain"), stdout=open(self.tmp / "submit", "wb"),
                                  stderr=subprocess.STDOUT, cwd=self.tmp)
        self._started.append(submit)
        wait_until(lambda: re.search(r"worker [01]: epoch", (self.tmp / "submit").read_text()), "training")
        self.net.unplug("a")
        cut = time.monotonic()
        self.assertEqual(self.exit_code(submit, within=2 * PATIENCE), 1)
        print("the job ended %.1f s after the cut" % (time.monotonic() - cut), file=sys.stderr)
        result = json.loads((self.tmp / "cut" / "result.json").read_text())
        self.assertEqual(result["status"], "failed")
        self.assertRegex(result["message"], r"^(worker|pserver) 1 \(.*no heartbeat for \d+ s")
        # Host A recovers: its worker has given up the job.
        wait_until(lambda: [m for m in self.members() if (m["role"], m["rank"]) == ("worker", 0)
                            and m["alive"] and not m["job_id"]], "worker 0 free")
        # The network heals before host B has given up. Its members register again, and a job runs.
        self.net.plug("a")
        wait_until(lambda: [m["alive"] for m in self.members()] == [True] * 4, "all members back")
        after, _ = self.submit("a", "after", "--a_sync=false", "--epochs=1")
        self.assertEqual(after["status"], "done")
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})
        # After a lasting cut, host B ends by itself and names what it lost. Host A stops when told to.
        self.net.unplug("a")
        self.assertEqual([self.exit_code(daemons[who]) for who in ("worker 1", "pserver 1")], [1, 1])
        for role in ("worker", "pserver"):
            self.assertRegex((self.tmp / ("b-%s.out" % role)).read_text(), r"%s:7100 .*\bno report\b" % re.escape(A))
        code, out = self.run_on("a", "sluice", "down", *TO_A)
        self.assertEqual(code, 0, out)
        self.assertEqual([self.exit_code(daemons[who]) for who in ("scheduler", "pserver 0", "worker 0")], [0, 0, 0])

    @unittest.skipIf(NO_LOSSES, NO_LOSSES)
    def test_a_job_outlives_lost_packets_and_partitions(self):
        lease = 8
        flags = ["--a_sync=false", "--epochs=40", "--set=checkpoint.every_s=0", "--set=checkpoint.every_steps=100"]
        daemons = self.start_all("--lease_ms=%d" % (1000 * lease), "--heartbeat_ms=300")
        submit = subprocess.Popen(self.on("a", "sluice", "submit", "--job=%s" % ADULT, *TO_A,
                                          "--output_dir=%s" % (self.tmp / "torn"), *flags),
                                  stdout=open(self.tmp / "submit", "wb"), stderr=subprocess.STDOUT, cwd=self.tmp)
        self._started.append(submit)

        def step():
            self.assertIsNone(submit.poll(), (self.tmp / "submit").read_text())
            return int(self.job().get("global_step", 0))

        def train_on(steps):
            begin = step()
            wait_until(lambda: step() >= begin + steps, lambda: "%d steps more:\n%s" % (steps, self.job()))

        wait_until(lambda: step() > 0, "training")
        for host in "ab":
            self.net.lose(host, 0.02)
        train_on(40)
        self.net.heal()
        train_on(40)
        self.net.partition("a", "b")
        time.sleep(1)
        self.net.heal()
        train_on(40)
        recovery = self.job()["recovery"]
        self.assertEqual([int(recovery.get(key, 0)) for key in ("worker_losses", "pserver_losses", "rollbacks")], [0, 0, 0])
        # Longer than the lease: the members on host B are lost, and register again.
        self.net.partition("a", "b")
        wait_until(lambda: sum(int(self.job()["recovery"].get(key, 0)) for key in ("worker_losses", "pserver_losses")) >= 2,
                   "the loss of host B")
        self.net.heal()
        self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit").read_text())
        result = json.loads((self.tmp / "torn" / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        self.assertGreaterEqual(result["recovery"]["rollbacks"], 1)
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})
        code, out = self.run_on("b", "sluice", "down", *TO_A)
        self.assertEqual(code, 0, out)
        local, _ = self.launch(*flags, "--server_num=2", "--worker_num=2", name="one")
        for field in ("model_digest", "global_step", "examples", "eval"):
            self.assertEqual(result[field], local[field], field)


if __name__ == "__main__":
    unittest.main()
