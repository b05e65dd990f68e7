"""Garbage sent to every port of every daemon while a job trains changes nothing."""
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import resource
import socket
import struct
import time
import unittest
import urllib.request

from http2_client import DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, Connection, frame, grpc_headers, varint
from sluice_testing import PATIENCE, TIME_SCALE, SluiceTest, free_port, wait_until
from tls_test import audit_lines, client_of, tls_flags

IDLE = 2000  # connections
IDLE_MIB = 100  # of a daemon with half of them
FLOOD = 3000  # connections to each daemon
MOST_OF_A_HOST = 1024  # connections that a daemon of a small cluster keeps
OTHER_FILES = 150  # of a daemon
FEW_FILES = 160  # a limit of descriptors
HANDSHAKE = 10  # seconds that a connection has for it
REQUEST = 10  # seconds that a call has for it
MIB = 1 << 20
# More calls than a daemon takes, each host with less than a quarter of them. Of those of one host fewer may wait.
HOSTS, CONNECTIONS_OF_A_HOST, CALLS_OF_A_CONNECTION, MOST_CALLS, MOST_WAITING = 17, 6, 85, 8192, 512
LISTEN = "0A"  # a TCP state in /proc/net/tcp


def grpc_call(path, messages):
    """A whole gRPC call with valid framing, in which only the messages are wrong."""
    data = b"".join(frame(DATA, 0, 1, struct.pack(">BI", 0, len(m)) + m) for m in messages)
    return PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, grpc_headers(path)) + data


def data_frame(header):
    """A whole frame of the data plane without a payload, in which only the header is wrong."""
    return b"\x0dSLU1\x12" + bytes([len(header)]) + header


def hello(job, protocol=1, rank=0):
    body = b"\x08" + bytes([protocol]) + b"\x12" + bytes([len(job)]) + job + b"\x18" + bytes([rank])
    return data_frame(b"\x18\x01\x22" + bytes([len(body)]) + body)


def fields_of(message):
    """The varints and byte strings of a protobuf message, by field number."""
    fields, rest = {}, message

    def number():
        nonlocal rest
        value, shift = 0, 0
        while True:
            byte, rest = rest[0], rest[1:]
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value
    while rest:
        key = number()
        value = number()
        if key & 7 == 2:
            value, rest = rest[:value], rest[value:]
        fields[key >> 3] = value
    return fields


def register(connection, number):
    """Makes so many worker processes members of a cluster that does not say how many it has: [(id, secret)]."""
    workers = []
    for first in range(0, number, CALLS_OF_A_CONNECTION):
        calls = []
        for rank in range(first, min(number, first + CALLS_OF_A_CONNECTION)):
            # Protocol, role, rank, host, pid, life.
            request = (b"\x08\x01\x10\x03\x18" + varint(rank) + b"\x2a\x01h\x30" + varint(rank + 1)
                       + b"\x51" + struct.pack("<Q", rank + 1))
            calls.append(connection.ask(b"/sluice.Scheduler/Register", request))
        for call in calls:
            reply = fields_of(connection.answer(call))
            workers.append((reply[1], reply[7]))
    return workers


def poll_of(worker, seen):
    """Waits for 20 seconds, unless there is a newer version of what the worker has to do."""
    return (b"\x08" + varint(worker[0]) + b"\x10" + varint(seen) + b"\x18" + varint(20000)
            + b"\x4a" + varint(len(worker[1])) + worker[1])


def ports_of(pid):
    """Loopback ports that a process listens on."""
    rows = []
    for protocol in ("tcp", "tcp6"):  # gRPC binds IPv4 addresses as IPv6 ones
        with open("/proc/%d/net/%s" % (pid, protocol)) as table:
            rows += [line.split() for line in table.readlines()[1:]]
    inodes = {row[9]: int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTEN}
    ports = set()
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            found = re.match(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except FileNotFoundError:
            continue
        if found and found.group(1) in inodes:
            ports.add(inodes[found.group(1)])
    return sorted(ports)


class HostilePeersTest(SluiceTest):
    def attacks(self, source):
        noise = [source.randbytes(source.randint(1, 5000)) for _ in range(4)]
        methods = [b"/sluice.Pserver/Exchange", b"/sluice.Scheduler/SubmitJob", b"/sluice.Scheduler/NextPhase",
                   b"/sluice.Scheduler/NextTask", b"/sluice.Scheduler/Gather", b"/sluice.Scheduler/Register",
                   b"/sluice.Scheduler/Poll", b"/sluice.Scheduler/FailJob", b"/no/such"]
        # A frame's header is a protobuf: fields 1 and 2 as varints, bytes, and lengths beyond the end.
        messages = noise[:2] + [b"", b"\x08\x01", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 64, b"\x0a\x05small" + noise[3][:40]]
        yield from noise
        yield b"GET / HTTP/1.1\r\n\r\n"
        yield b"GET /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" % (b"a" * 3000)
        yield b"\x00" * 10000
        yield PREFACE + noise[0]
        yield PREFACE + frame(SETTINGS, 0, 0, b"") + noise[1]
        yield PREFACE + frame(SETTINGS, 0, 0, b"") + struct.pack(">I", 0xFFFFFF)[1:] + b"\x00" * 50
        for method in methods:
            yield grpc_call(method, [source.choice(messages)])
        for first in [[message] for message in messages] + [
                [data_frame(b"\x08\x01\x18\x01")], [data_frame(b"")], [hello(b"nobody-1")], [hello(b"small-2", protocol=9)],
                [hello(b"small-2", rank=99)], [hello(b"small-2", rank=99), data_frame(b"\x08\x02\x18\x01")]]:
            yield grpc_call(b"/sluice.Pserver/Exchange", first)
        yield grpc_call(b"/sluice.Pserver/Exchange", messages)

    def send(self, port, content):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as peer:
            peer.settimeout(0.02)
            try:
                peer.sendall(content)
                peer.recv(4096)
            except OSError:
                pass  # the daemon may hang up and need not answer

    def test_garbage_at_every_port_while_a_job_trains(self):
        self.write_csv("train.csv", [(i % 2, i % 9, "abcdefg"[i % 7]) for i in range(6000)])
        job = self.small_job(train="train.csv")
        log_dir = self.up("--server_num=2", "--worker_num=2", name="cluster.log")
        flags = ["--a_sync=false", "--worker_num=2", "--batch_size=4", "--epochs=12"]
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "calm"), *flags)

        members = [e for e in self.endpoints("cluster") if e.role != "supervisor"]  # which serves nobody
        ports = {member: ports_of(member.pid) for member in members}
        self.assertEqual(sorted((m.role, len(p)) for m, p in ports.items()),
                         [("pserver", 2)] * 2 + [("scheduler", 2)] + [("worker", 1)] * 2)
        known = sorted((m["role"], m["rank"], m["pid"]) for m in self.status(log_dir)["members"])
        job_id = re.search(r"submitted (\S+)", self.sluice(
            "submit", log_dir, "--detach", "--job=%s" % job, "--output_dir=%s" % (self.tmp / "attacked"), *flags)).group(1)
        self.await_job(log_dir, job_id, lambda j: j["state"] == "running" and int(j["global_step"]) > 0,
                       "trains")
        source, result = random.Random(11), self.tmp / "attacked" / "result.json"
        rounds, deadline = 0, time.monotonic() + 5 * PATIENCE * TIME_SCALE
        while not result.exists():
            self.assertLess(time.monotonic(), deadline, "the job does not end")
            for content in self.attacks(source):
                for listening in ports.values():
                    for port in listening:
                        self.send(port, content)
            rounds += 1
        self.assertGreater(rounds, 0, "the job had ended before the attack")
        calm, attacked = json.loads((self.tmp / "calm" / "result.json").read_text()), json.loads(result.read_text())
        self.assertEqual(attacked["status"], "done", attacked)
        self.assertEqual(attacked["model_digest"], calm["model_digest"])
        # The same processes run, listen on the same ports and work. The cluster knows no other members or jobs.
        status = self.status(log_dir)
        self.assertEqual(sorted((m["role"], m["rank"], m["pid"]) for m in status["members"]), known)
        self.assertEqual([job["job_id"] for job in status["jobs"]], ["small-1", "small-2"])
        self.assertEqual({member: ports_of(member.pid) for member in members}, ports)
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "after"), "--worker_num=2",
                    "--epochs=1")

    def rate_of(self, log_dir, job, name):
        """Trains on four workers; returns the examples per second."""
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / name), "--worker_num=4",
                    "--epochs=10")
        return json.loads((self.tmp / name / "result.json").read_text())["examples_per_second"]

    def test_idle_connections_do_not_keep_others_out(self):
        """Ports stay open to members while thousands of connections say nothing, and these end soon."""
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self.raise_own_file_limit(IDLE + 1000)
        self.write_csv("train.csv", [(i % 2, i % 9, "abcdefg"[i % 7]) for i in range(3000)])
        job = self.small_job(train="train.csv")
        # The daemons begin with the limit that most systems give, and raise it themselves.
        log_dir = self.up("--server_num=1", "--worker_num=4", name="cluster.log",
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
        ports = [port for e in self.endpoints("cluster") if e.role in ("scheduler", "pserver")
                 for port in [int(e.address.rsplit(":", 1)[1])]]
        before, idle = self.rate_of(log_dir, job, "before"), []
        try:
            for i in range(IDLE // len(ports)):
                for port in ports:
                    idle.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                    if i % 2 == 0:
                        idle[-1].sendall(PREFACE + frame(SETTINGS, 0, 0, b""))  # a client that then calls nothing
            began = time.monotonic()
            beside = self.rate_of(log_dir, job, "beside")
            silent = [s for i, s in enumerate(idle) if (i // len(ports)) % 2 == 1]
            for peer in silent:
                peer.settimeout(max(0.1, began + (HANDSHAKE + PATIENCE) * TIME_SCALE - time.monotonic()))
                while peer.recv(4096):  # gRPC's settings, then the end
                    pass
            memory = max(self.resident_mib(e.pid) for e in self.endpoints("cluster")
                         if e.role in ("scheduler", "pserver"))
            self.assertLess(memory, IDLE_MIB * (10 if TIME_SCALE > 1 else 1), "MiB of a daemon")
        finally:
            for peer in idle:
                peer.close()
        after = self.rate_of(log_dir, job, "after")
        calm = min(before, after)
        print("%d idle connections: at most %.0f MiB in a daemon, and %.0f examples/s, %.2f of those without them" % (
            len(idle), memory, beside, beside / calm), flush=True)

    def test_a_flood_of_connections_is_bounded_and_others_get_in(self):
        """Connections that call nothing make room for others, and no member loses its own."""
        self.raise_own_file_limit(2 * FLOOD + 1000)
        most = {}

        def files(pid):
            """Open files; a daemon has two descriptors for each connection."""
            opened = set()
            for fd in pathlib.Path("/proc/%d/fd" % pid).iterdir():
                with contextlib.suppress(FileNotFoundError):
                    opened.add(os.readlink(fd))
            return len(opened)

        def attack(ports):
            flood = []
            pids = {e.role: e.pid for e in self.endpoints("cluster") if e.role in ports}
            try:
                for i in range(FLOOD):
                    for role, port in ports.items():
                        flood.append(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                        try:
                            if i % 2 == 0:
                                flood[-1].sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
                        except OSError:
                            pass  # it has been ended already
                        if i % 50 == 0:
                            most[role] = max(most.get(role, 0), files(pids[role]))
                for role, port in ports.items():
                    # An address of its own stands for another host.
                    with socket.create_connection(("127.0.0.1", port), PATIENCE * TIME_SCALE, ("127.0.0.9", 0)) as other:
                        other.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
                        self.assertTrue(other.recv(9), "another host is kept out")
                    wait_until(lambda: files(pids[role]) < MOST_OF_A_HOST + OTHER_FILES,
                               lambda: "%d files of %s" % (files(pids[role]), role))
            finally:
                for peer in flood:
                    peer.close()

        grown = self.train_beside(attack)
        print("a flood of %d connections to each daemon: at most %s files; grew by %s MiB" % (FLOOD, most, grown),
              flush=True)
        for role, mib in grown.items():
            self.assertLess(mib, IDLE_MIB * (10 if TIME_SCALE > 1 else 1), role)
            self.assertLess(most[role], MOST_OF_A_HOST * 5 // 4 + OTHER_FILES)
            self.assertIn(("connect", "room"), self.refusals(role))
        admin = self.admin_addresses(self.tmp / "cluster.log")
        for name in ("scheduler 0", "pserver 0"):
            page = urllib.request.urlopen("http://%s/metrics" % admin[name], timeout=PATIENCE).read().decode()
            self.assertRegex(page, r'_refusals_total\{method="connect",reason="room"\} [1-9]')

    def test_ports_serve_again_after_the_descriptors_ran_out(self):
        """gRPC alone never accepts another connection once it has met the limit."""
        self.raise_own_file_limit(8 * FEW_FILES)
        self.write_csv("train.csv", [(i % 2, i % 9, "abcdefg"[i % 7]) for i in range(300)])
        job = self.small_job(train="train.csv")
        log_dir = self.up("--server_num=1", "--worker_num=1", name="cluster.log",
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES)))
        daemons = [e for e in self.endpoints("cluster") if e.role in ("scheduler", "pserver")]
        self.assertEqual(len(daemons), 2)
        admin = self.admin_addresses(log_dir)
        idle = []
        for daemon in daemons:
            # An admin port has a short queue, and keeps few connections.
            for address, n in ((daemon.address, 2 * FEW_FILES), (admin["%s %d" % (daemon.role, daemon.rank)], 3)):
                port = int(address.rsplit(":", 1)[1])
                idle += [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(n)]
        time.sleep(3)  # the members report meanwhile
        for peer in idle:
            peer.close()
        for daemon in daemons:
            url = "http://%s/livez" % admin["%s %d" % (daemon.role, daemon.rank)]
            self.assertEqual(urllib.request.urlopen(url, timeout=PATIENCE).status, 200)
        self.assertEqual(sorted(e.pid for e in self.endpoints("cluster") if e.role in ("scheduler", "pserver")),
                         sorted(e.pid for e in daemons), "a daemon was started again")
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "out"), "--worker_num=1",
                    "--epochs=1")

    def train_beside(self, attack):
        """Runs `attack(ports by role)` while a job trains, and then another job; returns by how many MiB each daemon grew."""
        self.write_csv("train.csv", [(i % 2, i % 9, "abcdefg"[i % 7]) for i in range(6000)])
        job = self.small_job(train="train.csv")
        log_dir = self.up("--server_num=1", "--worker_num=1", name="cluster.log")
        job_id = re.search(r"submitted (\S+)", self.sluice(
            "submit", log_dir, "--detach", "--job=%s" % job, "--output_dir=%s" % (self.tmp / "attacked"), "--worker_num=1",
            "--batch_size=4", "--epochs=500")).group(1)
        steps = self.await_job(log_dir, job_id, lambda j: j["state"] == "running" and int(j["global_step"]) > 0, "trains")
        daemons = {e.role: e for e in self.endpoints("cluster") if e.role in ("scheduler", "pserver")}
        before = {role: self.resident_mib(e.pid) for role, e in daemons.items()}
        attack({role: int(e.address.rsplit(":", 1)[1]) for role, e in daemons.items()})
        grown = {role: self.resident_mib(e.pid) - before[role] for role, e in daemons.items()}
        self.await_job(log_dir, job_id, lambda j: int(j["global_step"]) > int(steps["global_step"]), "trains on")
        self.sluice("cancel", log_dir, job_id)
        self.sluice("submit", log_dir, "--job=%s" % job, "--output_dir=%s" % (self.tmp / "after"), "--worker_num=1",
                    "--epochs=1")
        self.assertEqual({e.role: e.pid for e in self.endpoints("cluster") if e.role in daemons},
                         {role: e.pid for role, e in daemons.items()}, "a daemon was started again")
        return grown

    def refusals(self, role):
        """The audit lines of refusals of a daemon, as (method, reason)."""
        name = {"scheduler": "scheduleraudit.*", "pserver": "serveraudit.*"}[role]
        return [(line["method"], line["reason"]) for path in (self.tmp / "cluster.log").glob(name)
                for line in map(json.loads, path.read_text().splitlines()) if line["event"] == "refusal"]

    def test_requests_that_would_take_much_memory_are_refused(self):
        """Protobuf makes an object of hundreds of bytes from an empty sub-message, which takes two on the wire."""
        empty_traces, unknown_group = b"\x3a\x00", b"\xa3\x06\xa4\x06"
        hosted = b"\x22" + varint(2 * MIB) + b"\x62\x00" * MIB  # one job, with empty tables
        costly = [("scheduler", b"/sluice.Scheduler/Poll", empty_traces * (4 * MIB)),
                  ("scheduler", b"/sluice.Scheduler/Poll", hosted),
                  ("scheduler", b"/sluice.Scheduler/NextPhase", unknown_group * (2 * MIB)),
                  ("scheduler", b"/sluice.Scheduler/CancelJob", unknown_group * (2 * MIB)),
                  ("pserver", b"/sluice.Pserver/SaveShards", unknown_group * (2 * MIB)),
                  ("pserver", b"/sluice.Pserver/OpenSharedMemory", unknown_group * (2 * MIB))]
        zeros = gzip.compress(bytes(256 * MIB))  # a thousandth of it travels
        inflated = [("scheduler", b"/sluice.Scheduler/GetRoute", zeros), ("pserver", b"/sluice.Pserver/SaveShards", zeros)]

        def attack(ports):
            for encoding, messages in ((None, costly), (b"gzip", inflated)):
                for role, method, message in messages:
                    connection = Connection(ports[role], PATIENCE * TIME_SCALE)
                    connection.call(method, message, encoding)
                    connection.close()

        grown = self.train_beside(attack)
        print("costly requests: grew by %s MiB" % grown, flush=True)
        for role, mib in grown.items():
            self.assertLess(mib, 100, role)
        for role, method, _ in costly + inflated:
            self.assertIn((method.decode(), "invalid"), self.refusals(role))

    def test_calls_that_send_only_headers_are_ended(self):
        connections, calls = 50, 100  # as many as a connection may have
        methods = {"scheduler": b"/sluice.Scheduler/Poll", "pserver": b"/sluice.Pserver/SaveShards"}

        def attack(ports):
            held = [Connection(ports[role], REQUEST * 3 * TIME_SCALE) for role in ports for _ in range(connections)]
            for i, connection in enumerate(held):
                method = methods[list(ports)[i // connections]]
                opened = [connection.open(method) for _ in range(calls)]
                self.assertEqual(len(opened), calls)
            for connection in held:
                while len(connection.ended) < calls:
                    connection.read_frame()
            for connection in held:
                connection.close()

        grown = self.train_beside(attack)
        print("%d calls that send only headers: grew by %s MiB" % (connections * calls, grown), flush=True)
        for role, mib in grown.items():
            self.assertLess(mib, 100 * (10 if TIME_SCALE > 1 else 1), role)
            self.assertIn((methods[role].decode(), "room"), self.refusals(role))

    def test_one_certificate_cannot_take_all_calls_of_the_scheduler(self):
        """While a worker parks Polls from many hosts, operators are served, and a pserver joins the cluster."""
        self.raise_own_file_limit(2000)
        own, log_dir, port = self.tmp / "certificates", self.tmp / "cluster.log", free_port()
        made = self.run_program("sluice", "certs", str(own))
        self.assertEqual(made.returncode, 0, made.stdout)
        cluster = self.tmp / "cluster.textproto"
        # Any number of workers.
        cluster.write_text('version: 1 scheduler: "127.0.0.1:%d" %s' % (
            port, " ".join('pservers: "127.0.0.1:%d"' % free_port() for _ in range(2))))
        log_dir.mkdir()
        common = ["--cluster=%s" % cluster, "--log_dir=%s" % log_dir]
        scheduler = self.start("sluice-scheduler", *common, *tls_flags(own, "scheduler"))

        def members():
            done = self.run_program("sluice", "status", "--json", "--scheduler=127.0.0.1:%d" % port, "--log_dir=%s" % self.tmp,
                                    *tls_flags(own, "operator"))
            self.assertEqual(done.returncode, 0, done.stdout)
            return [(m["role"], m["rank"]) for m in json.loads(done.stdout)["members"] if m["alive"]]
        endpoints = log_dir / "endpoints.log"
        wait_until(lambda: endpoints.exists() and "scheduler 0 " in endpoints.read_text(), "the scheduler listens")
        context = client_of(own, "worker")
        context.set_alpn_protocols(["h2"])
        held = []
        self.addCleanup(lambda: [connection.close() for connection in held])

        def connect(*args):
            held.append(Connection(port, PATIENCE * TIME_SCALE, *args))
            return held[-1]

        def park(polls, host, connections, window):
            for _ in range(connections):
                connection = connect("127.0.0.%d" % host, context, window)
                for poll in itertools.islice(polls, CALLS_OF_A_CONNECTION):
                    connection.ask(b"/sluice.Scheduler/Poll", poll)

        def others_are_served(rank):
            print("the scheduler has %.0f MiB" % self.resident_mib(scheduler.pid), flush=True)
            members()
            self.start("sluice-pserver", "--rank=%d" % rank, *common, *tls_flags(own, "pserver"))
            wait_until(lambda: ("pserver", rank) in members(), "pserver %d joins" % rank)
            self.assertIsNone(scheduler.poll(), "the scheduler has ended")

        def version_of(worker):
            connection = connect("127.0.0.1", context)
            return fields_of(connection.answer(connection.ask(b"/sluice.Scheduler/Poll", poll_of(worker, 0))))[1]

        # Calls that wait. Each is the only one of its member, since a newer Poll of a member answers the older one.
        connections = 2 * MOST_WAITING // CALLS_OF_A_CONNECTION
        workers = register(connect("127.0.0.1", context), connections * CALLS_OF_A_CONNECTION)
        seen = version_of(workers[0])
        park((poll_of(worker, seen) for worker in workers), 1, connections, 65535)
        others_are_served(0)
        wait_until(lambda: "answered early" in (log_dir / "schedulerlog.0").read_text(), "more calls wait than may")

        # Calls that are answered and stay open, because nobody reads the answers. One member is enough for them.
        worker, = register(connect("127.0.0.1", context), 1)
        polls = itertools.repeat(poll_of(worker, version_of(worker)))
        self.assertGreater(HOSTS * CONNECTIONS_OF_A_HOST * CALLS_OF_A_CONNECTION, MOST_CALLS)
        for host in range(2, 2 + HOSTS):
            park(polls, host, CONNECTIONS_OF_A_HOST, 0)
        others_are_served(1)
        wait_until(lambda: audit_lines(log_dir, "scheduleraudit.0", method="/sluice.Scheduler/Poll", reason="room",
                                       role="worker"), "the calls never were too many")

    def raise_own_file_limit(self, wanted):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def resident_mib(self, pid):
        with open("/proc/%d/statm" % pid) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


if __name__ == "__main__":
    unittest.main()
