"""Without TLS, daemons on loopback serve only the user who runs them, and root."""
import encodings.idna  # for addresses; loaded here, because the other user may not read Python's files
import json
import os
import socket
import struct
import sys
import time
import unittest

from http2_client import (DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, Connection,
                          frame, grpc_headers)
from sluice_testing import BIN, PATIENCE, SluiceTest, free_port, wait_until

NOBODY = 65534
BEGINNING = PREFACE + frame(SETTINGS, 0, 0, b"")
CANCEL = struct.pack(">I", 8)  # the payload of RST_STREAM
MOST_GROWTH_MIB = 8  # of a daemon whom only users call that it refuses; one such attack took hundreds


def call_headers(path, stream=1):
    return frame(HEADERS, END_HEADERS, stream, grpc_headers(path))


def connect(port, source=0):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.settimeout(PATIENCE)
    client.bind(("127.0.0.1", source))
    client.connect(("127.0.0.1", port))
    return client


def send_all(client, *parts):
    """Sends until the other end closes the connection. Returns whether everything was sent."""
    try:
        for part in parts:
            client.sendall(part)
        return True
    except OSError:
        return False


def reset(client):
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def wait_until_closed(client):
    """A client that leaves before it was accepted is not recorded, because it may have been a probe."""
    try:
        client.recv(1)
    except ConnectionError:
        pass
    client.close()


def padded_request_from(port, source):
    """A call that cancels a job, padded with fields that no reader knows, and a reset before it is answered."""
    client = connect(port, source)
    padded = b"\x0a\x04no-1" + b"\x7b\x7c" * 30000  # as much as may be sent before the server says more
    data = struct.pack(">BI", 0, len(padded)) + padded
    pieces = [data[at:at + 16384] for at in range(0, len(data), 16384)]
    send_all(client, BEGINNING + call_headers(b"/sluice.Scheduler/CancelJob"),
             *(frame(DATA, END_STREAM if piece is pieces[-1] else 0, 1, piece) for piece in pieces))
    reset(client)


def empty_traces(port):
    """A megabyte of empty entries in the list of traces of a report, each of which becomes an object."""
    try:
        Connection(port, timeout=PATIENCE).call(b"/sluice.Scheduler/Poll", b"\x3a\x00" * (1 << 19))
    except (EOFError, OSError):
        pass


def calls_without_a_message(port, path):
    """400 connections with 100 calls each that send only their headers."""
    clients = []
    for _ in range(400):
        client = connect(port)
        send_all(client, BEGINNING + b"".join(call_headers(path, 2 * i + 1) for i in range(100)))
        clients.append(client)
    time.sleep(0.5)
    for client in clients:
        client.close()


def rapid_reset(port, path, seconds=2):
    """Calls that are reset at once, on one connection after the other."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client, stream = connect(port), 1
        going = send_all(client, BEGINNING)
        while going and time.monotonic() < until:
            batch = b"".join(call_headers(path, stream + 2 * i) + frame(RST_STREAM, 0, stream + 2 * i, CANCEL)
                             for i in range(200))
            going, stream = send_all(client, batch), stream + 400
        client.close()


def memory_mib(pid):
    with open("/proc/%d/status" % pid) as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS:"))


def livez(port):
    """What comes from the health page of an admin port until it closes the connection."""
    client, answer = connect(port), b""
    send_all(client, b"GET /livez HTTP/1.1\r\n\r\n")
    try:
        while part := client.recv(4096):
            answer += part
    except ConnectionError:
        pass
    client.close()
    return answer


def expect_livez(port, served):
    answer = livez(port)
    assert answer.startswith(b"HTTP/1.1 200") if served else answer == b"", answer


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@unittest.skipUnless(os.geteuid() == 0, "only root can run a program as another user")
class LocalUsersTest(SluiceTest):
    def nobody_runs(self, run, program, *args):
        """Runs a program as a user who owns nothing here, by `run`."""
        file = os.open(BIN / program, os.O_RDONLY)  # that user may not search the folders above it
        os.set_inheritable(file, True)
        try:
            return run("/proc/self/fd/%d" % file, *args, pass_fds=[file],
                       preexec_fn=lambda: (os.chdir("/"), become_nobody()))
        finally:
            os.close(file)

    def as_nobody(self, *args):
        """Returns the program when it has ended."""
        return self.nobody_runs(self.run_program, *args)

    def call_as_nobody(self, function, *args):
        """Runs a function in a process of that user; fails when it raises."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                become_nobody()
                function(*args)
                code = 0
            except BaseException as error:  # pylint: disable=broad-except
                print("%s: %r" % (function.__name__, error), file=sys.stderr, flush=True)
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, function.__name__)

    def endpoint(self, log_dir, role):
        return next(e for e in self.endpoints_of(log_dir) if e.role == role)

    def port_of(self, log_dir, role):
        return int(self.endpoint(log_dir, role).address.rsplit(":", 1)[1])

    def refusals(self, log_dir, role):
        return [line for path in log_dir.glob("%saudit.*" % role)
                for line in map(json.loads, path.read_text().splitlines()) if line["event"] == "refusal"]

    def test_another_user_can_neither_look_nor_submit_nor_join(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        scheduler = "--scheduler=%s" % self.endpoint(log_dir, "scheduler").address
        known = sorted((m["role"], m["rank"], m["pid"]) for m in self.status(log_dir)["members"])

        looked = self.as_nobody("sluice", "status", scheduler)
        self.assertNotEqual(looked.returncode, 0, looked.stdout)
        cancelled = self.as_nobody("sluice", "cancel", "no-1", scheduler)
        self.assertNotEqual(cancelled.returncode, 0, cancelled.stdout)
        folder = self.tmp / "of_nobody"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        os.chmod(self.tmp, 0o711)
        before = len(self.refusals(log_dir, "scheduler"))
        worker = self.nobody_runs(lambda *args, **kwargs: self.start(*args, log="worker.out", **kwargs),
                                  "sluice-worker", scheduler, "--rank=0", "--log_dir=%s" % folder)
        wait_until(lambda: len(self.refusals(log_dir, "scheduler")) >= before + 3, "the worker does not try")
        worker.kill()
        worker.wait()
        self.assertEqual(sorted((m["role"], m["rank"], m["pid"]) for m in self.status(log_dir)["members"]), known)
        refused = self.refusals(log_dir, "scheduler")
        self.assertEqual({(line["method"], line["reason"]) for line in refused}, {("connect", "user")})
        for line in refused:
            self.assertIn("user %d" % NOBODY, line["detail"])
            self.assertTrue(line["address"].startswith("127.0.0.1:"), line)

    def test_any_local_user_opens_a_cluster_to_all(self):
        log_dir = self.up("--server_num=1", "--worker_num=1", "--any_local_user")
        looked = self.as_nobody("sluice", "status", "--scheduler=%s" % self.endpoint(log_dir, "scheduler").address)
        self.assertEqual(looked.returncode, 0, looked.stdout)
        self.assertIn("worker", looked.stdout)

    def test_admin_ports_are_closed_to_another_user(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        admin = {who: int(address.rsplit(":", 1)[1]) for who, address in self.admin_addresses(log_dir).items()}
        self.assertEqual(sorted(admin), ["pserver 0", "scheduler 0", "worker 0"])
        for who, port in admin.items():
            self.call_as_nobody(expect_livez, port, False)
            expect_livez(port, True)
            role = {"scheduler": "scheduler", "pserver": "server", "worker": "worker"}[who.split()[0]]
            line, = wait_until(lambda: self.refusals(log_dir, role), "no refusal was recorded")
            self.assertEqual((line["method"], line["reason"]), ("connect", "user"))
            self.assertIn("user %d" % NOBODY, line["detail"])
            self.assertTrue(line["address"].startswith("127.0.0.1:"), line)

    def test_any_local_user_opens_admin_ports(self):
        log_dir = self.up("--server_num=0", "--worker_num=1", "--any_local_user")
        for address in self.admin_addresses(log_dir).values():
            self.call_as_nobody(expect_livez, int(address.rsplit(":", 1)[1]), True)

    def test_a_request_is_not_taken_for_one_of_who_gets_the_port_next(self):
        """Another user sends a request and resets the connection; at once, this user calls from the same port."""
        log_dir = self.up("--server_num=0", "--worker_num=1")
        port = self.port_of(log_dir, "scheduler")
        source = free_port()
        for _ in range(20):
            self.call_as_nobody(padded_request_from, port, source)
            ours = connect(port, source)
            ours.sendall(BEGINNING)
            self.assertTrue(ours.recv(9), "this user is served")
            reset(ours)
        self.assertIn("worker", self.sluice("status", log_dir))
        lines = [line for path in log_dir.glob("scheduleraudit.*")
                 for line in map(json.loads, path.read_text().splitlines())]
        self.assertEqual([line for line in lines if line["event"] == "action"], [], "nobody's order was taken")
        self.assertEqual({(line["method"], line["reason"]) for line in lines if line["event"] == "refusal"},
                         {("connect", "user")})

    def test_another_user_cannot_make_a_daemon_allocate(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        for role, path in (("scheduler", b"/sluice.Scheduler/GetStatus"), ("pserver", b"/sluice.Pserver/SaveShards")):
            port, pid = self.port_of(log_dir, role), self.endpoint(log_dir, role).pid
            before = memory_mib(pid)
            if role == "scheduler":
                self.call_as_nobody(empty_traces, port)
            self.call_as_nobody(calls_without_a_message, port, path)
            self.call_as_nobody(rapid_reset, port, path)
            self.assertLess(memory_mib(pid), before + MOST_GROWTH_MIB, role)
        self.assertIn("worker", self.sluice("status", log_dir))

    def test_a_flood_of_another_user_writes_few_lines(self):
        log_dir = self.up("--server_num=0", "--worker_num=1")
        port = self.port_of(log_dir, "scheduler")

        def flood():
            for _ in range(2000):
                wait_until_closed(connect(port))
        self.call_as_nobody(flood)
        wait_until(lambda: self.refusals(log_dir, "scheduler"), "no refusal was recorded")
        self.assertLess(len(self.refusals(log_dir, "scheduler")), 300)
        self.assertIn("worker", self.sluice("status", log_dir))


if __name__ == "__main__":
    unittest.main()
