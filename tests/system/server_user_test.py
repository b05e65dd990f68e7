"""Without TLS, nobody speaks on loopback to a server of another user, who could bind a port while it is free."""
import json
import os
import re
import signal
import subprocess
import sys
import unittest

from sluice_testing import ADULT, BIN, SluiceTest, free_port, wait_until

NOBODY = 65534
MODULE = BIN.parent / "python"
# A program as a worker, without what needs NumPy.
PROGRAM = """
import time
from sluice import _core
job, _ = _core.declare('features { name: "user" key: RAW categorical {} }', "",
                       '{"collections": [{"name": "user", "dim": 4, "features": ["user"]}]}', True, False, True)
worker = _core.Worker(job, 1)
while True:
    time.sleep(1)
"""
# Accepts connections at a port as soon as it is free, and writes a line with the number of bytes for each that has ended.
SERVER = """
import os, socket, sys, threading, time
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while True:
    try:
        server.bind(("127.0.0.1", int(sys.argv[1])))
        server.listen(64)
        break
    except OSError:
        time.sleep(0.001)
print("listens", flush=True)
def read(connection):
    size = 0
    try:
        while data := connection.recv(65536):
            size += len(data)
            connection.sendall(b"\\0\\0\\0\\4\\0\\0\\0\\0\\0")  # the settings with which a server of HTTP/2 begins
    except OSError:
        pass
    print("bytes", size, flush=True)
while True:
    connection, _ = server.accept()
    threading.Thread(target=read, args=(connection,), daemon=True).start()
"""


class ServerOfNobody:
    """Takes a port as another user."""

    def __init__(self, test, port):
        self.out = test.tmp / ("nobody.%d" % len(list(test.tmp.glob("nobody.*"))))
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(port), str(NOBODY)], stdout=out, stderr=out,
                                            cwd="/")
        test.addCleanup(self.end)

    def await_listens(self):
        wait_until(lambda: "listens" in self.out.read_text(), lambda: "listens:\n%s" % self.out.read_text())

    def sizes(self):
        return [int(size) for size in re.findall(r"^bytes (\d+)$", self.out.read_text(), re.M)]

    def end(self):
        self.process.kill()
        self.process.wait()


@unittest.skipUnless(os.geteuid() == 0, "only root can run a program as another user")
class ServerUserTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.address = "127.0.0.1:%d" % self.port
        self.pserver_port = free_port()
        self.log_dir = self.tmp / "log"
        self.log_dir.mkdir()

    def start_scheduler(self):
        self.scheduler = self.start("sluice-scheduler", "--bind=%s" % self.address, "--server_num=1", "--worker_num=1",
                                    "--log_dir=%s" % self.log_dir)

    def start_pserver(self):
        self.pserver = self.start("sluice-pserver", "--rank=0", "--scheduler=%s" % self.address, "--transport=grpc",
                                  "--bind=127.0.0.1:%d" % self.pserver_port, "--log_dir=%s" % self.log_dir, log="pserver.out")

    def start_worker(self):
        return self.start("sluice-worker", "--rank=0", "--scheduler=%s" % self.address, "--transport=grpc",
                          "--log_dir=%s" % self.log_dir, log="worker.out")

    def log_of(self, role):
        name = "serverlog.0" if role == "pserver" else "workerlog.0"
        paths = [self.tmp / (role + ".out"), self.log_dir / name]
        return "".join(path.read_text() for path in paths if path.exists())

    def refusals(self, role):
        return len(re.findall(r"user %d serves at 127\.0\.0\.1:" % NOBODY, self.log_of(role)))

    def command(self, name, *args):
        return self.run_program("sluice", name, "--scheduler=%s" % self.address, *args)

    def submit(self):
        done = self.command("submit", "--job=%s" % ADULT, "--a_sync=true", "--worker_num=1", "--epochs=100000", "--detach",
                            "--output_dir=%s" % (self.tmp / "run"))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.split()[-1]

    def state(self):
        done = self.command("status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {"members": [], "jobs": []}

    def step_of(self, job):
        return next((int(j["global_step"]) for j in self.state()["jobs"] if j["job_id"] == job), 0)

    def await_training(self, job):
        before = self.step_of(job)
        wait_until(lambda: self.step_of(job) > before, lambda: "a step:\n%s" % self.command("status").stdout)

    def assert_got_nothing(self, server, connections):
        wait_until(lambda: len(server.sizes()) >= connections, lambda: "connections:\n%s" % server.out.read_text())
        server.end()
        self.assertEqual(set(server.sizes()), {0})

    def test_members_and_commands_refuse_a_scheduler_of_another_user(self):
        fake = ServerOfNobody(self, self.port)
        fake.await_listens()
        members = [self.start_worker()]
        self.start_pserver()
        members.append(self.pserver)
        for name, args in (("status", ()), ("cancel", ("no-1",)),
                           ("submit", ("--job=%s" % ADULT, "--output_dir=%s" % (self.tmp / "run")))):
            done = self.command(name, *args)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("user %d serves at %s" % (NOBODY, self.address), done.stdout)
        for role in ("worker", "pserver"):
            wait_until(lambda: self.refusals(role), lambda: "a refusal:\n%s" % self.log_of(role))
        self.assert_got_nothing(fake, 5)
        self.assertEqual([m.poll() for m in members], [None, None])

        # The right scheduler comes, dies, and leaves its port to somebody else for a while.
        self.start_scheduler()
        wait_until(lambda: sum(m["alive"] for m in self.state()["members"]) == 2, "two members")
        job = self.submit()
        self.await_training(job)
        seen = {role: self.refusals(role) for role in ("worker", "pserver")}
        fake = ServerOfNobody(self, self.port)
        self.scheduler.send_signal(signal.SIGKILL)
        self.scheduler.wait()
        fake.await_listens()
        self.assertNotEqual(self.command("status").returncode, 0)
        for role in ("worker", "pserver"):
            wait_until(lambda: self.refusals(role) > seen[role], lambda: "a refusal:\n%s" % self.log_of(role))
        self.assert_got_nothing(fake, 3)
        self.assertEqual([m.poll() for m in members], [None, None])
        self.start_scheduler()
        wait_until(lambda: self.step_of(job) > 0, lambda: "the job:\n%s" % self.command("status").stdout)
        self.await_training(job)
        self.assertEqual(self.command("cancel", job).returncode, 0)

    def test_a_worker_refuses_a_pserver_of_another_user(self):
        self.start_scheduler()
        self.start_pserver()
        worker = self.start_worker()
        job = self.submit()
        self.await_training(job)
        fake = ServerOfNobody(self, self.pserver_port)
        self.pserver.send_signal(signal.SIGKILL)
        self.pserver.wait()
        fake.await_listens()
        self.assert_got_nothing(fake, 1)
        self.start_pserver()
        self.await_training(job)
        self.assertIsNone(worker.poll())
        self.assertEqual(self.command("cancel", job).returncode, 0)

    @unittest.skipUnless(list(MODULE.glob("sluice/_core*.so")), "needs a build with SLUICE_PYTHON")
    def test_a_program_refuses_a_scheduler_of_another_user(self):
        fake = ServerOfNobody(self, self.port)
        fake.await_listens()
        program = self.start(sys.executable, "-B", "-c", PROGRAM, log="worker.out", env=dict(
            os.environ, PYTHONPATH=str(MODULE), SLUICE_SCHEDULER=self.address, SLUICE_RANK="0", SLUICE_LOG_DIR=str(self.log_dir)))
        wait_until(lambda: self.refusals("worker"), lambda: "a refusal:\n%s" % self.log_of("worker"))
        self.assert_got_nothing(fake, 1)
        self.start_scheduler()
        wait_until(lambda: [m for m in self.state()["members"] if m["alive"]], lambda: "a member:\n%s" % self.log_of("worker"))
        self.assertIsNone(program.poll())

    def test_any_local_user_lets_a_user_call_the_cluster_of_another_one(self):
        fake = ServerOfNobody(self, self.port)
        fake.await_listens()
        done = self.command("status", "--any_local_user")
        self.assertNotEqual(done.returncode, 0, done.stdout)  # it is no scheduler
        self.assertNotIn("user %d" % NOBODY, done.stdout)
        wait_until(lambda: any(fake.sizes()), "bytes")


if __name__ == "__main__":
    unittest.main()
