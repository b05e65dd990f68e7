"""The daemons of a job, started one by one. Daemons that were killed start again.

This stands for a supervisor such as systemd: a process that ended by a signal of the test is started again with the same
flags; one that ends by itself fails the test.
"""
import json
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent / "system"))
sys.path.insert(2, str(HERE.parent / "faults"))

from fault_proxy import Delay, Drop, FaultProxy, HalfClose, Reset, Throttle, Truncate  # noqa: E402
from socket_cutter import SocketCutter  # noqa: E402
from sluice_testing import ENDED, free_port, wait_until  # noqa: E402

BREAKING = (Reset, Truncate, HalfClose)
STREAM_BYTES_PER_S = 4e6
STREAM_S = 0.2  # between two cuts of streams through shared memory
LOCAL_SOCKETS = "sluice-"  # how the abstract names of pservers' sockets begin
DROP_S = 0.2
RESTART_DELAY_S = 0.2
STATUS_AGE_S = 0.1
CERTIFICATE_S = 3  # until a certificate is replaced


class Certificates:
    """A CA and a certificate for each role, which can be replaced while processes use them."""

    def __init__(self, test, folder):
        self._test, self._folder = test, folder
        self._made_at = float("-inf")
        self.replace()

    def environment(self, role):
        files = {"CERT": "%s.pem" % role, "KEY": "%s.key" % role, "CA": "ca.pem"}
        return {**os.environ, **{"SLUICE_TLS_" + name: str(self._folder / file) for name, file in files.items()}}

    def replace(self):
        done = self._test.run_program("sluice", "certs", self._folder)
        self._test.assertEqual(done.returncode, 0, done.stdout)
        self._made_at = time.monotonic()

    def replace_when_old(self):
        if time.monotonic() - self._made_at >= CERTIFICATE_S:
            self.replace()


class NoCertificates:
    def environment(self, _):
        return dict(os.environ)

    def replace_when_old(self):
        pass


class Daemons:
    """Call tend() often while the job runs."""

    def __init__(self, test, programs, name, pservers, workers, seed, out, stream_bytes=None, tls=False, transport="grpc"):
        """`programs`: the folder of the binaries. `stream_bytes`: streams between workers and pservers break after so
        many bytes, on average, in a proxy before each pserver; None: never, and there is no proxy. `tls`: with mutual
        TLS, whose certificates are replaced all the time.
        `transport`: only gRPC passes through the proxy. Streams through shared memory break when their sockets are
        cut, about every STREAM_S; the calls beside them still pass through the proxy."""
        self._test, self._programs, self._name = test, programs, name
        self._tls = tls
        self._certificates = Certificates(test, test.tmp / (name + ".certs")) if tls else NoCertificates()
        self.log_dir = test.tmp / (name + ".log")
        self.log_dir.mkdir()
        self.scheduler = "127.0.0.1:%d" % free_port()
        self.proxy = FaultProxy(seed, out)
        common = ["--scheduler=%s" % self.scheduler, "--log_dir=%s" % self.log_dir, "--transport=%s" % transport]
        self._commands = {"scheduler 0": ["sluice-scheduler", "--bind=%s" % self.scheduler, "--server_num=%d" % pservers,
                                          "--worker_num=%d" % workers, "--log_dir=%s" % self.log_dir,
                                          "--heartbeat_ms=100", "--lease_ms=5000"]}
        for rank in range(pservers):
            port = free_port()
            advertised = self.proxy.forward(("127.0.0.1", port)) if stream_bytes else port
            self._commands["pserver %d" % rank] = ["sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:%d" % port,
                                                   "--advertise=127.0.0.1:%d" % advertised, *common]
        for rank in range(workers):
            self._commands["worker %d" % rank] = ["sluice-worker", "--rank=%d" % rank, "--threads=1", *common]
        self._processes = {name: self._start(name) for name in self._commands}
        self._dead_since = {}
        self._cutter = SocketCutter(lambda: [self._pid(name) for name in self._commands if name.startswith("pserver")],
                                    LOCAL_SOCKETS, seed, out)
        self._status, self._asked = {}, float("-inf")
        if stream_bytes:
            # Not Duplicate: TCP delivers no byte twice, and without TLS nothing would notice it in a message.
            for kind in BREAKING:
                self.proxy.set(kind(every=len(BREAKING) * stream_bytes))
            self.proxy.set(Delay(0, jitter=0.001))
            self.proxy.set(Throttle(STREAM_BYTES_PER_S))
            if transport != "grpc":
                self._cutter.start(STREAM_S)

    def _start(self, name):
        program, *flags = self._commands[name]
        return self._test.start(self._programs / program, *flags, log="%s.%s.out" % (self._name, name.replace(" ", "")),
                                env=self._certificates.environment(name.split()[0]))

    def _ask(self, *command):
        """Runs `sluice COMMAND`; returns it when it has ended."""
        return self._test.run_program(self._programs / "sluice", command[0], "--scheduler=%s" % self.scheduler, *command[1:],
                                      env=self._certificates.environment("operator"))

    def victims(self, roles):
        """Functions that return the pids of the daemons of these roles, by "role rank", for KillHarness."""
        return {name: lambda name=name: self._pid(name) for name in self._commands if name.split()[0] in roles}

    def _pid(self, name):
        process = self._processes[name]
        return process.pid if process.poll() is None else None

    def tend(self):
        """Starts again what was killed. Fails when a daemon has ended by itself."""
        self._certificates.replace_when_old()
        for name, process in self._processes.items():
            code = process.poll()
            if code is None:
                continue
            self._test.assertEqual(code, -signal.SIGKILL, "%s ended by itself; logs: %s" % (name, self.tail(name)))
            since = self._dead_since.setdefault(name, time.monotonic())
            if time.monotonic() - since >= RESTART_DELAY_S:
                del self._dead_since[name]
                self._processes[name] = self._start(name)

    def tail(self, name):
        path = self._test.tmp / ("%s.%s.out" % (self._name, name.replace(" ", "")))
        return path.read_text(errors="replace")[-2000:]

    def faults(self):
        """The number of broken streams, over gRPC and through shared memory."""
        return sum(self.proxy.count(kind) for kind in BREAKING) + self.cuts()

    def cuts(self):
        """The number of streams through shared memory that were cut."""
        return self._cutter.cuts

    def drop_streams(self):
        """For a moment all bytes between workers and pservers vanish. The streams of that moment stay silent; those
        through shared memory are all cut at once."""
        self._cutter.cut_all()
        rule = self.proxy.set(Drop())
        time.sleep(DROP_S)
        self.proxy.lift(rule)

    def submit(self, *flags):
        """Submits a job and does not wait for it."""
        def accepted():
            done = self._ask("submit", "--detach", *flags)
            return done.returncode == 0 or done.stdout
        answer = wait_until(accepted, "an answer of the scheduler")
        self._test.assertIs(answer, True, answer)

    def job(self):
        """The latest known status of the job, at most STATUS_AGE_S old if it can be had; {} before the first one."""
        if time.monotonic() - self._asked < STATUS_AGE_S:
            return self._status
        self._asked = time.monotonic()
        jobs = self._cluster_status().get("jobs")
        self._status = jobs[0] if jobs else self._status
        return self._status

    def _cluster_status(self):
        """The status of the cluster; {} if it cannot be had."""
        status = None if self._tls else self._test.scheduler_status(self.log_dir)
        if status:
            return status
        done = self._ask("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def examples(self):
        """The examples that the job is known to have trained."""
        return int(self.job().get("examples", 0))

    def has_ended(self):
        """Tends the daemons; true when the job has ended."""
        self.tend()
        return self.job().get("state") in ENDED

    def stop(self):
        """Ends all daemons, which must do so cleanly."""
        wait_until(lambda: self.tend() or not self._dead_since, "the daemons that were killed last to start again")
        self._cutter.stop()
        for process in self._processes.values():
            process.terminate()
        codes = {name: self._test.exit_code(process) for name, process in self._processes.items()}
        self.proxy.close()
        clean = (0, 128 + signal.SIGTERM, -signal.SIGTERM)  # the last: one that had just been started again
        self._test.assertEqual({name: code for name, code in codes.items() if code not in clean}, {})


class ReplicatedDaemons(Daemons):
    """Shows no progress while copies are being made, so that each kill waits for complete ones."""

    _AGE_S = 0.3  # between two looks
    _looked = float("-inf")

    def examples(self):
        if time.monotonic() - self._looked < self._AGE_S:
            return 0
        complete = self._complete()
        self._looked = time.monotonic()
        return super().examples() if complete else 0

    def _complete(self):
        members = self._cluster_status().get("members", [])
        pservers = {int(member.get("rank", 0)): member for member in members if member.get("role") == "pserver"}
        copied = set()
        for rank, member in pservers.items():
            # The scheduler may not know yet that a process was killed.
            if self._pid("pserver %d" % rank) != int(member.get("pid", 0)):
                return False
            for job in member.get("hosted", []):
                if not job.get("replication", {}).get("complete") or job["replication"].get("error"):
                    return False
                copied |= {int(copies.get("pserver", 0)) for copies in job.get("copies", []) if copies.get("complete")}
        return bool(pservers) and copied == set(pservers)
