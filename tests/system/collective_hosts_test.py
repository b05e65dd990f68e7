"""Dense tables that workers of two hosts keep: the models of one host, a lost worker, and a cluster with TLS.

The hosts are network namespaces: they share a kernel, but neither local sockets nor shared memory of Sluice.
"""
import collections
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from sluice_testing import ADULT, PATIENCE, wait_until
from namespace_hosts import A, B, NamespaceHostsTest
from net_namespaces import why_no_namespaces

COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
CLUSTER = """
version: 1
scheduler: "%(a)s:7100"
pservers: "%(a)s:7200"
pservers: "%(b)s:7200"
worker_num: %(workers)d
%(hosts)s
limits { wait_s: 60 }
security { %(security)s }
"""

REASON = why_no_namespaces()
WHY_NO_FAULTS = REASON or why_no_namespaces(faults=True)
if REASON:
    print("skipped: " + REASON, file=sys.stderr)


def engine(name):
    return "--set=strategy.sync_configs.engine=" + name


@unittest.skipIf(REASON, REASON)
class CollectiveHostsTest(NamespaceHostsTest):
    def start_all(self, hosts, security="insecure: true", tls=None, spares=""):
        """Starts a pserver on each of the two hosts, and workers: "aab" are two on host a and one on b. `tls`: the folder
        of the certificates. `spares`: hosts of workers that the cluster expects, and that the test starts with member()."""
        everywhere = hosts + spares
        self.file.write_text(CLUSTER % {
            "a": A, "b": B, "workers": len(everywhere), "security": security,
            "hosts": "\n".join('worker_hosts: "%s"' % self.net.address(host) for host in everywhere)})
        self.tls = tls
        if tls:
            self.access = ["--scheduler=%s:7100" % A, *self.certificate("operator")]
        daemons = {"scheduler": self.member("a", "scheduler")}
        for rank, host in enumerate("ab"):
            daemons["pserver %d" % rank] = self.member(host, "pserver", rank)
        for rank, host in enumerate(hosts):
            daemons["worker %d" % rank] = self.member(host, "worker", rank)
        return daemons

    def certificate(self, role):
        return [] if not self.tls else ["--tls_cert=%s/%s.pem" % (self.tls, role), "--tls_key=%s/%s.key" % (self.tls, role),
                                        "--tls_ca=%s/ca.pem" % self.tls]

    def member(self, host, role, rank=None):
        return self.daemon(host, role, *([] if rank is None else ["--rank=%d" % rank]), *self.certificate(role))

    @staticmethod
    def flags(workers, *more, epochs=1):
        return ["--a_sync=false", COLLECTIVE, "--epochs=%d" % epochs, "--worker_num=%d" % workers,
                "--batch_size=%d" % (256 // workers), "--threads=1", *more]

    def engines(self, hosts):
        """The engines that the newest job's workers have logged."""
        found = []
        for slot, host in enumerate(hosts):
            log = (self.tmp / ("log-" + host) / ("workerlog.%d" % slot)).read_text(errors="replace")
            found.append(re.findall(r"dense gradients are exchanged through (\w+)", log)[-1])
        return found

    def start_submit(self, name, *flags):
        with open(self.tmp / "submit", "wb") as out:
            submit = subprocess.Popen(self.on("a", "sluice", "submit", "--job=%s" % ADULT, *self.access,
                                              "--output_dir=%s" % (self.tmp / name), *flags),
                                      stdout=out, stderr=subprocess.STDOUT, cwd=self.tmp)
        self._started.append(submit)
        return submit

    def newest(self):
        """The status of the newest job."""
        return max(self.status_on().get("jobs", []), key=lambda job: job["job_id"], default={})

    def await_training(self):
        wait_until(lambda: int(self.newest().get("global_step", 0)) >= 30 and self.newest()["state"] == "running",
                   lambda: "training: %s" % self.newest())

    # -----------------------------------------------------------------------------------------------------------

    def test_one_worker_on_each_host_gives_the_bits_of_one_host(self):
        self.start_all("ab")
        local, _ = self.launch(*self.flags(2, engine("SHM"), "--server_num=2"), name="local")
        for name, more in (("gloo", [engine("GLOO")]), ("auto", []),
                           ("several", [engine("GLOO"), "--set=strategy.sync_configs.comm_num=2"])):
            with self.subTest(name):
                result, _ = self.submit("b", name, *self.flags(2, *more))
                self.assertEqual(self.engines("ab"), ["gloo"] * 2)
                self.assertEqual(result["model_digest"], local["model_digest"])
                self.assertEqual(result["eval"], local["eval"])
        # Shared memory does not reach the other host.
        result, out = self.submit("a", "shm", *self.flags(2, engine("SHM")), expect=1)
        self.assertIn("another host", result["message"])

    def test_two_workers_on_each_host_give_the_model_of_one_host(self):
        self.assert_two_levels_give_the_model_of_one_host("aabb", auto=[], again=[], named=[engine("TWO_LEVEL")])

    def test_two_workers_on_one_host_and_one_on_the_other_give_the_model_of_one_host(self):
        self.assert_two_levels_give_the_model_of_one_host("aab", auto=[], again=[])

    def assert_two_levels_give_the_model_of_one_host(self, hosts, **runs):
        self.start_all(hosts)
        self.launch(*self.flags(len(hosts), "--server_num=2"), name="local")
        digests = set()
        for name, more in runs.items():
            result, _ = self.submit("b", name, *self.flags(len(hosts), *more))
            self.assertEqual(self.engines(hosts), ["two_level"] * len(hosts))
            self.assert_models_close("local", name)
            digests.add(result["model_digest"])
        self.assertEqual(len(digests), 1, "all runs are equal to the bit")

    def test_a_lost_rank_that_restarts_beside_the_other_gives_the_same_bits(self):
        daemons = self.start_all("ab", spares="a")
        flags = self.flags(2, "--set=checkpoint.every_steps=20", epochs=16)
        expected, _ = self.submit("a", "undisturbed", *flags)
        submit = self.start_submit("moved", *flags)
        self.await_training()
        daemons["worker 2"] = self.member("a", "worker", 2)
        daemons["worker 1"].kill()
        daemons.pop("worker 1").wait()
        self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit").read_text())
        result = json.loads((self.tmp / "moved" / "result.json").read_text())
        self.assertEqual((result["recovery"]["worker_losses"], result["recovery"]["rollbacks"]), (1, 0))
        self.assertEqual(result["model_digest"], expected["model_digest"])
        log = (self.tmp / "log-a" / "workerlog.0").read_text(errors="replace")
        # Once for each job, and again when the ranks of the second have met on one host.
        self.assertEqual(re.findall(r"dense gradients are exchanged through (\w+)", log), ["gloo", "gloo", "shm"])
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})

    def test_a_killed_worker_of_the_other_host_is_replaced(self):
        daemons = self.start_all("aabb")
        flags = self.flags(4, "--set=checkpoint.every_steps=20", epochs=16)
        expected, _ = self.submit("a", "undisturbed", *flags)
        # Rank 2 leads host b, and rank 3 does not.
        for rank in (3, 2):
            with self.subTest(rank=rank):
                name = "killed%d" % rank
                submit = self.start_submit(name, *flags)
                self.await_training()
                daemons["worker %d" % rank].kill()
                killed = time.monotonic()
                daemons["worker %d" % rank].wait()
                wait_until(lambda: int(self.newest()["recovery"].get("worker_losses", 0)) == 1, "the loss")
                print("rank %d: noticed after %.1f s" % (rank, time.monotonic() - killed), file=sys.stderr)
                daemons["worker %d" % rank] = self.member("b", "worker", rank)
                self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit").read_text())
                result = json.loads((self.tmp / name / "result.json").read_text())
                self.assertEqual(result["model_digest"], expected["model_digest"])
                self.assertEqual(result["recovery"]["worker_losses"], 1)
                self.assertEqual(result["recovery"]["rollbacks"], 0, "the others have kept the tables")
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})

    @unittest.skipIf(WHY_NO_FAULTS, WHY_NO_FAULTS)
    def test_workers_that_cannot_reach_each_other_take_the_job_back_until_they_can(self):
        # Gloo is not told of packets that are lost. The time for a slow worker is 123 s here, and does not count.
        daemons = self.start_all("ab")
        flags = self.flags(2, engine("GLOO"), "--set=checkpoint.every_steps=20", "--set=train.step_timeout_s=3", epochs=16)
        expected, _ = self.submit("a", "undisturbed", *flags)
        submit = self.start_submit("parted", *flags)
        self.await_training()
        self.net.partition_but("a", "b", ports=(7100, 7200))  # the scheduler and the pservers
        parted = time.monotonic()
        wait_until(lambda: int(self.newest()["recovery"].get("rollbacks", 0)) >= 1, lambda: str(self.newest()))
        print("noticed after %.1f s" % (time.monotonic() - parted), file=sys.stderr)
        self.net.heal()
        self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit").read_text())
        result = json.loads((self.tmp / "parted" / "result.json").read_text())
        self.assertEqual(result["model_digest"], expected["model_digest"])
        self.assertEqual(result["recovery"]["worker_losses"], 0)
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})

    def test_strangers_at_the_ports_of_workers_change_nothing(self):
        daemons = self.start_all("ab")
        expected, _ = self.submit("a", "undisturbed", *self.flags(2))
        over, connected = threading.Event(), []

        def bother():
            """Connects to all ports at which workers of host b listen, with silence and with garbage."""
            address = "%08X" % int.from_bytes(socket.inet_aton(B), "little")

            def listening():
                with open("/proc/thread-self/net/tcp") as table:
                    fields = [line.split() for line in table]
                return [int(line[1][9:], 16) for line in fields
                        if line[1].startswith(address + ":") and line[3] == "0A" and line[1][9:] != "%04X" % 7200]

            kept = collections.deque()
            while not over.is_set():
                time.sleep(0.0005)
                for port in listening():
                    try:
                        stranger = socket.create_connection((B, port), 1)
                        connected.append(port)
                        stranger.send([b"x", b"\0" * 48, b"\xff" * 5000][len(connected) % 3])
                        kept.append(stranger)
                    except OSError:
                        pass
                while len(kept) > 50:
                    kept.popleft().close()
            for stranger in kept:
                stranger.close()
        # The namespace of a thread is that of the programs that it starts.
        thread = threading.Thread(target=lambda: self.net.call("b", bother))
        thread.start()
        try:
            # A port is open from a rank's report until the cards of all ranks have come. Rank 0, stopped, delays its own.
            # A worker that is stopped before it asks for a job gets none, and the job waits for it.
            for attempt in range(5):
                name = "bothered%d" % attempt
                wait_until(lambda: not any(member["hosted"] for member in self.members()), "idle pservers")
                daemons["worker 0"].send_signal(signal.SIGSTOP)
                submit, deadline = self.start_submit(name, *self.flags(2)), time.monotonic() + 20
                while len(connected) < 3 and time.monotonic() < deadline:
                    time.sleep(0.01)
                daemons["worker 0"].send_signal(signal.SIGCONT)
                self.assertEqual(self.exit_code(submit, within=4 * PATIENCE), 0, (self.tmp / "submit").read_text())
                result = json.loads((self.tmp / name / "result.json").read_text())
                self.assertEqual(result["model_digest"], expected["model_digest"])
                if connected:
                    break
        finally:
            daemons["worker 0"].send_signal(signal.SIGCONT)
            over.set()
            thread.join()
        self.assertGreater(len(connected), 0, "a stranger has met a worker's port")
        self.assertEqual({who: p.poll() for who, p in daemons.items()}, {who: None for who in daemons})

    def test_with_tls_gradients_leave_a_host_only_where_the_cluster_allows_it(self):
        certificates = self.tmp / "certs"
        done = self.run_program("sluice", "certs", str(certificates))
        self.assertEqual(done.returncode, 0, done.stdout)
        daemons = self.start_all("ab", security='tls_ca: "%s/ca.pem"' % certificates, tls=certificates)
        for name in ("AUTO", "GLOO", "TWO_LEVEL"):
            result, _ = self.submit("a", "refused." + name, *self.flags(2, engine(name)), expect=1)
            self.assertEqual(result["status"], "failed")
            self.assertIn("plain_collective", result["message"])
        code, out = self.run_on("a", "sluice", "down", *self.access)
        self.assertEqual(code, 0, out)
        self.assertEqual({who: self.exit_code(p) for who, p in daemons.items()}, {who: 0 for who in daemons})
        self.start_all("ab", security='tls_ca: "%s/ca.pem" plain_collective: true' % certificates, tls=certificates)
        local, _ = self.launch(*self.flags(2, "--server_num=2"), name="local")
        result, _ = self.submit("a", "allowed", *self.flags(2))
        self.assertEqual(self.engines("ab"), ["gloo"] * 2)
        self.assertEqual(result["model_digest"], local["model_digest"])


if __name__ == "__main__":
    unittest.main()
