"""Clusters with mutual TLS: they train as without it, and nobody gets in without the right certificate."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import threading
import unittest

from relay import Relay
from sluice_testing import ADULT, PATIENCE, SluiceTest, free_port, kill_unless_over, processes_naming, wait_until


def tls_flags(folder, role):
    return ["--tls_cert=%s/%s.pem" % (folder, role), "--tls_key=%s/%s.key" % (folder, role),
            "--tls_ca=%s/ca.pem" % folder]


def client_of(folder, role=None, trusted=None):
    """A client that shows the role's certificate, if any, and trusts the CA of `trusted`, else of `folder`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations((trusted or folder) / "ca.pem")
    if role:
        context.load_cert_chain(folder / (role + ".pem"), folder / (role + ".key"))
    return context


def page(address, path, context, method="GET"):
    """The status and the text of a page; without a context, over plain HTTP."""
    host, port = address.split(":")
    timeout = PATIENCE
    connection = (http.client.HTTPSConnection(host, int(port), timeout=timeout, context=context) if context else
                  http.client.HTTPConnection(host, int(port), timeout=timeout))
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def call(address, method, context, message=b""):
    """Makes a gRPC call with one short message, and waits for its end."""
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
    headers = ((":method", "POST"), (":scheme", "https"), (":path", method), (":authority", address),
               ("te", "trailers"), ("content-type", "application/grpc"))
    block = b"".join(bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                     for name, value in headers)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(address.split(":"), PATIENCE) as raw, context.wrap_socket(raw) as wrapped:
        wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, block) +
                        frame(0, 1, 1, struct.pack(">BI", 0, len(message)) + message))
        stream = wrapped.makefile("rb")
        while True:
            head = stream.read(9)
            assert len(head) == 9, "the connection ended before the call"
            stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == 1 and head[4] & 1:  # headers, which end the stream
                return


def hello_of(job_id, instance, rank):
    """The first message of a worker's stream (proto/pserver.proto), without the pass of its rank."""
    def field(number, payload):
        return bytes([number << 3 | 2, len(payload)]) + payload
    hello = (bytes([1 << 3, 1]) + field(2, job_id.encode()) + bytes([3 << 3, rank, 4 << 3, 1, 5 << 3 | 1]) +
             struct.pack("<Q", instance))
    header = bytes([1 << 3, 1, 3 << 3, 1]) + field(4, hello)
    return b"\x0dSLU1" + field(2, header)


def shown_certificate(address, context):
    """The certificate that a daemon shows to a new connection."""
    with socket.create_connection(address.split(":"), PATIENCE) as raw, context.wrap_socket(raw) as wrapped:
        return wrapped.getpeercert(binary_form=True)


def answer(address, context, own_addresses=None):
    """What a gRPC server says first, or nothing when it refuses the client, whose address is added to the list."""
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(address.split(":"), PATIENCE) as raw, context.wrap_socket(raw) as wrapped:
            if own_addresses is not None:
                own_addresses.append("%s:%d" % wrapped.getsockname())
            return wrapped.recv(9)
    except (ssl.SSLError, ConnectionError):
        return b""


def audit_lines(log_dir, name, **wanted):
    """The lines of an audit log that have these values."""
    lines = [json.loads(line) for line in (log_dir / name).read_text().splitlines()]
    return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]


class TlsTest(SluiceTest):
    def train(self, log_dir):
        """Submits a job that goes on until it is cancelled; returns its name once it trains."""
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--detach", "--epochs=100000",
                          "--set=eval.every_epochs=0", "--output_dir=%s" % (self.tmp / "out"))
        job_id = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > 50, "it trains")
        return job_id

    def kill_worker(self, log_dir):
        pid = next(pid for pid, command in processes_naming(str(log_dir))
                   if "sluice-worker" in command and "--rank=1" in command)
        os.kill(pid, signal.SIGKILL)

    def check_that_only_the_killed_worker_was_lost(self, log_dir, job_id):
        """The job trains on, and the cluster takes another one."""
        step = int(self.job_status(log_dir, job_id)["global_step"])
        status = self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > step + 50, "it trains on")
        self.assertEqual([int(status["recovery"][key]) for key in ("worker_losses", "pserver_losses")], [1, 0])
        self.sluice("cancel", log_dir, job_id)
        self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--epochs=1",
                    "--output_dir=%s" % (self.tmp / "after"))

    def test_a_job_has_the_same_bits_with_and_without_tls(self):
        flags = ("--a_sync=false", "--epochs=1", "--server_num=2", "--worker_num=2")
        plain, _ = self.launch(*flags, name="plain")
        encrypted, _ = self.launch("--tls", *flags, name="encrypted")
        self.assertEqual(encrypted["status"], "done")
        self.assertEqual(encrypted["model_digest"], plain["model_digest"])

    def test_replicas_and_other_modes_train_with_tls(self):
        for name, flags in (("async", ("--set=recovery.replicas=1",)), ("geo", ("--k_steps=20",))):
            with self.subTest(mode=name):
                result, _ = self.launch("--tls", "--epochs=1", "--server_num=2", "--worker_num=2", *flags, name=name)
                self.assertEqual((result["status"], result["mode"]), ("done", name))

    def test_a_pserver_is_refused_in_the_place_of_another(self):
        """The owner of pserver 1's key who is on the way to pserver 0 cannot play it. Once it has gone, jobs train."""
        own, log_dir = self.tmp / "certificates", self.tmp / "log"
        made = self.run_program("sluice", "certs", str(own))
        self.assertEqual(made.returncode, 0, made.stdout)
        for rank in range(2):
            self.sign_certificate(own, "pserver", rank)
        scheduler, ports, way = "127.0.0.1:%d" % free_port(), [free_port() for _ in range(2)], free_port()
        relay = Relay(way, ports[1])
        self.addCleanup(relay.close)
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1 scheduler: "%s" pservers: "127.0.0.1:%d" pservers: "127.0.0.1:%d" worker_num: 2' % (
            scheduler, way, ports[1]))
        log_dir.mkdir()
        common = ["--cluster=%s" % cluster, "--log_dir=%s" % log_dir]
        self.start("sluice-scheduler", *common, *tls_flags(own, "scheduler"))
        for rank, port in enumerate(ports):
            self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:%d" % port, *common,
                       *tls_flags(own, "pserver-%d" % rank))
        for rank, transport in enumerate(("grpc", "auto")):
            self.start("sluice-worker", "--rank=%d" % rank, "--transport=%s" % transport, *common, *tls_flags(own, "worker"))

        def submit(name, *flags):
            job = self.start("sluice", "submit", "--scheduler=%s" % scheduler, "--job=%s" % ADULT, "--worker_num=2",
                             "--epochs=1", "--output_dir=%s" % (self.tmp / name), *tls_flags(own, "operator"), *flags,
                             log=name + ".log")
            return self.exit_code(job, 2 * PATIENCE), (self.tmp / (name + ".log")).read_text()
        # The shortest wait for a pserver that cannot be reached.
        code, output = submit("refused", "--set=train.step_timeout_s=5", "--set=recovery.max_losses=0")
        self.assertNotEqual(code, 0, output)
        self.assertIn("pserver 1, not for pserver 0", output)
        relay.target = ports[0]
        code, output = submit("done")
        self.assertEqual(code, 0, output)

    def test_a_cluster_serves_only_operators_of_its_authority(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        self.assertEqual((own / "ca.key").stat().st_mode & 0o077, 0)
        self.assertNotIn("without TLS", (log_dir / "schedulerlog.0").read_text())
        self.assertEqual(len(self.status(log_dir)["members"]), 2)  # with the certificate of log_dir
        address = next(e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")

        def status(*flags):
            done = self.run_program("sluice", "status", "--scheduler=%s" % address, "--log_dir=%s" % self.tmp, *flags)
            return done.returncode, done.stdout
        self.assertEqual(status(*tls_flags(own, "operator"))[0], 0)
        self.assertEqual(status()[0], 3, "a client without TLS")
        code, output = status(*tls_flags(own, "worker"))
        self.assertNotEqual(code, 0)
        self.assertIn("operator", output)
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        self.assertEqual(status(*tls_flags(others, "operator"))[0], 3, "an operator of another authority")
        done = self.run_program("sluice", "submit", "--job=%s" % ADULT, "--scheduler=%s" % address,
                                "--log_dir=%s" % self.tmp, *tls_flags(others, "operator"))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("certificate", done.stdout.split("--tls_cert")[0].lower(), "the cause, not only the advice")
        # Neither does a process of another authority, or of another role, become a member.
        for role, flags in (("worker", tls_flags(others, "worker")), ("worker", tls_flags(own, "operator"))):
            stranger = self.start("sluice-" + role, "--rank=0", "--scheduler=%s" % address, "--log_dir=%s" % self.tmp,
                                  *flags, log="stranger.out")
            self.assertEqual([m["role"] for m in self.status(log_dir)["members"]], ["pserver", "worker"])
            kill_unless_over(stranger.pid)
            stranger.wait()
        self.assertIn("is down", self.sluice("down", log_dir))

    def test_errors_between_tls_and_none_or_another_authority_say_what_to_do(self):
        addresses = {}
        for name, flags in (("encrypted", ["--tls"]), ("plain", [])):
            log_dir = self.up(*flags, "--server_num=1", "--worker_num=1", name=name)
            addresses[name] = next(e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")
        others = self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        fixes = {"no flags": "give --tls_cert", "another CA": "CA in --tls_ca", "no TLS there": "no TLS"}
        for case, address, role_of_certificate in (("no flags", addresses["encrypted"], False),
                                                   ("another CA", addresses["encrypted"], True),
                                                   ("no TLS there", addresses["plain"], True)):
            def flags(role):
                return ["--scheduler=%s" % address, "--log_dir=%s" % self.tmp,
                        *(tls_flags(others, role) if role_of_certificate else [])]
            log = self.tmp / "workerlog.0"
            log.unlink(missing_ok=True)
            worker = self.start("sluice-worker", "--rank=0", *flags("worker"), log="stranger.out")
            with self.subTest(case):
                for command in (["status"], ["submit", "--job=%s" % ADULT]):
                    done = self.run_program("sluice", *command, *flags("operator"))
                    self.assertEqual(done.returncode, 3, done.stdout)
                    last = done.stdout.splitlines()[-1]
                    self.assertEqual([fix for fix in fixes.values() if fix in last], [fixes[case]], last)
                    # The scheduler may also have died, where the connection was only closed.
                    self.assertEqual("--scheduler" in last, case == "no flags", last)
                wait_until(lambda: log.exists() and re.search(r"waiting for .*%s" % fixes[case], log.read_text()),
                           lambda: "the worker's log says why it waits: " + log.read_text())
            kill_unless_over(worker.pid)
            worker.wait()

    def test_a_flood_of_strangers_hides_no_refusal_of_a_member(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        admin = self.admin_addresses(log_dir)["scheduler 0"]
        scheduler, = (e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")
        flood, calls, method = 260, 5, "/sluice.Scheduler/CancelJob"
        for _ in range(flood):  # more than a burst, refused before the admin port asks for a certificate
            self.assertEqual(page(admin, "/metrics", client_of(own), "POST")[0], 405)
        counted = 'sluice_scheduler_refusals_total{method="/metrics",reason="invalid"} %d\n' % flood
        wait_until(lambda: counted in page(admin, "/metrics", client_of(own, "operator"))[1], "all are counted")
        for _ in range(calls):
            call(scheduler, method, client_of(own, "worker"))
        wait_until(lambda: len(audit_lines(log_dir, "scheduleraudit.0", method=method, role="worker")) == calls,
                   "a line for each call")
        strangers = len(audit_lines(log_dir, "scheduleraudit.0", method="/metrics", role="none"))
        self.assertLess(strangers, flood - 50)
        left_out = audit_lines(log_dir, "scheduleraudit.0", event="left_out")
        self.assertEqual(sum(line["strangers"] for line in left_out), flood - strangers)
        self.assertEqual(sum(line["refusals"] for line in left_out), 0)

    def test_admin_ports_serve_operators_and_only_health_to_others(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own, others = log_dir / "cluster_tls", self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        operator, nobody, worker = client_of(own, "operator"), client_of(own), client_of(own, "worker")
        stranger = client_of(others, "operator", trusted=own)
        admin = self.admin_addresses(log_dir)
        self.assertEqual(sorted(admin), ["pserver 0", "scheduler 0", "worker 0"])
        for who, address in admin.items():
            role, rank = who.split()
            wait_until(lambda: page(address, "/readyz", nobody) == (200, "ok\n"), who + " ready")
            self.assertEqual(page(address, "/livez", nobody), (200, "ok\n"))
            for path in ("/", "/metrics", "/statusz", "/api/v1/status"):
                self.assertEqual(page(address, path, operator)[0], 200, who + path)
                self.assertEqual(page(address, path, nobody)[0], 403, who + path)
                self.assertEqual(page(address, path, worker)[0], 403, who + path)
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                page(address, "/livez", stranger)
            self.assertEqual(page(address, "/livez", None)[0], 400, "plain HTTP")
            # Each of these refusals has a line and is counted.
            name = {"scheduler": "scheduleraudit.", "pserver": "serveraudit.", "worker": "workeraudit."}[role] + rank
            self.assertEqual((log_dir / name).stat().st_mode & 0o777, 0o600)
            for wanted in ({"method": "/metrics", "reason": "role", "role": "worker"},
                           {"method": "/metrics", "reason": "certificate", "role": "none"}):
                wanted.update(event="refusal", daemon=who)
                wait_until(lambda: audit_lines(log_dir, name, **wanted), "a line of the refusal")
                line, = audit_lines(log_dir, name, **wanted)
                self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
            wait_until(lambda: len(audit_lines(log_dir, name, reason="handshake")) == 2, "handshakes are not recorded")
            metrics = page(address, "/metrics", operator)[1]
            for labels, count in (('method="/metrics",reason="role"', 1), ('method="/metrics",reason="certificate"', 1),
                                  ('method="handshake",reason="handshake"', 2)):
                self.assertIn("sluice_%s_refusals_total{%s} %d\n" % (role, labels, count), metrics)
            self.assertIn("sluice_%s_audit_lines_lost_total 0\n" % role, metrics)

    def test_refusals_and_orders_are_in_the_audit_logs(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        addresses = {e.role: e.address for e in self.endpoints_of(log_dir)}
        call(addresses["scheduler"], "/sluice.Scheduler/CancelJob", client_of(own, "worker"))
        line, = audit_lines(log_dir, "scheduleraudit.0", event="refusal", method="/sluice.Scheduler/CancelJob",
                            reason="role", role="worker")
        self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
        for method, reason in (("/sluice.Replica/Exchange", "role"), ("/sluice.Pserver/Nothing", "no_rule")):
            call(addresses["pserver"], method, client_of(own, "operator"))
            line, = audit_lines(log_dir, "serveraudit.0", event="refusal", method=method, reason=reason, role="operator")
            self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1", "--detach", "--epochs=1000",
                          "--output_dir=%s" % (self.tmp / "out"))
        job_id = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.sluice("cancel", log_dir, job_id)
        for action in ("submit", "cancel"):
            line, = audit_lines(log_dir, "scheduleraudit.0", event="action", action=action, target=job_id, outcome="OK",
                                role="operator")
            self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
        metrics = page(self.admin_addresses(log_dir)["scheduler 0"], "/metrics", client_of(own, "operator"))[1]
        self.assertIn('sluice_scheduler_refusals_total{method="/sluice.Scheduler/CancelJob",reason="role"} 1\n', metrics)
        self.assertIn('sluice_scheduler_actions_total{action="cancel"} 1\n', metrics)
        self.sluice("down", log_dir)
        self.assertEqual(len(audit_lines(log_dir, "scheduleraudit.0", action="shutdown", outcome="OK")), 1)

    def test_orders_of_members_change_nothing(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=2")
        own = log_dir / "cluster_tls"
        address, = (e.address for e in self.endpoints_of(log_dir) if e.role == "scheduler")
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--detach", "--epochs=100000",
                          "--set=eval.every_epochs=0", "--set=checkpoint.every_s=0", "--output_dir=%s" % (self.tmp / "out"))
        job_id = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > 10, "it trains")

        def state():
            status = self.status(log_dir)
            return ([(m["role"], m["rank"], m["pid"], m["alive"]) for m in status["members"]],
                    [(j["job_id"], j["state"], j["worker_num"], j["route"]) for j in status["jobs"]])
        before = state()
        named = bytes([1 << 3 | 2, len(job_id)]) + job_id.encode()
        orders = {"CancelJob": named, "ScaleJob": named + bytes([2 << 3, 1]), "CheckpointJob": named, "DeleteRows": named, "Shutdown": b"",
                  "SubmitJob": bytes([1 << 3 | 2, 0])}
        for role, calls in (("worker", {**orders, "DrainPserver": b""}), ("pserver", orders)):
            for method, message in calls.items():
                call(address, "/sluice.Scheduler/" + method, client_of(own, role), message)
                audit_lines(log_dir, "scheduleraudit.0", event="refusal", method="/sluice.Scheduler/" + method, reason="role",
                            role=role)
        step = int(self.job_status(log_dir, job_id)["global_step"])
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > step + 50, "it trains on")
        self.assertEqual(state(), before)
        self.assertFalse(list((self.tmp / "out").glob("checkpoints/step-*")))
        actions = [line["action"] for line in audit_lines(log_dir, "scheduleraudit.0", event="action")]
        self.assertEqual(actions, ["submit"])

    def test_what_a_pserver_refuses_while_a_job_trains_is_in_its_audit_log_and_nothing_else(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=2")
        own = log_dir / "cluster_tls"
        address, = (e.address for e in self.endpoints_of(log_dir) if e.role == "pserver")
        out = self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--detach", "--epochs=100000",
                          "--set=eval.every_epochs=0", "--output_dir=%s" % (self.tmp / "out"))
        job_id = re.search(r"^submitted (\S+)", out, re.M).group(1)
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > 10, "it trains")
        instance, = (int(hosted["instance"]) for member in self.status(log_dir)["members"]
                     for hosted in member.get("hosted", []))
        exchange, save, open_memory = ("/sluice.Pserver/" + method
                                       for method in ("Exchange", "SaveShards", "OpenSharedMemory"))
        for method, message in ((exchange, hello_of(job_id, instance, 0)), (exchange, b""),
                                (exchange, hello_of(job_id, instance, 0)[:-1]), (save, b"\xff"), (open_memory, b"\xff")):
            call(address, method, client_of(own, "worker"), message)
        expected = [(exchange, "pass"), (exchange, "invalid"), (exchange, "invalid"), (save, "invalid"),
                    (open_memory, "invalid")]
        lines = audit_lines(log_dir, "serveraudit.0", event="refusal")
        for line in lines:
            self.assertEqual(line["role"], "worker")
            self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
        self.assertIn("rank 0 of " + job_id, lines[0]["detail"])
        metrics = page(self.admin_addresses(log_dir)["pserver 0"], "/metrics", client_of(own, "operator"))[1]
        for labels, count in (('method="%s",reason="pass"' % exchange, 1), ('method="%s",reason="invalid"' % exchange, 2),
                              ('method="%s",reason="invalid"' % save, 1)):
            self.assertIn("sluice_pserver_refusals_total{%s} %d\n" % (labels, count), metrics)
        # The job has trained, a worker is lost and replaced, and the job ends early: none of that is a refusal.
        self.kill_worker(log_dir)
        self.await_job(log_dir, job_id, lambda job: int(job["recovery"]["worker_losses"]) == 1, "the loss")
        step = int(self.job_status(log_dir, job_id)["global_step"])
        self.await_job(log_dir, job_id, lambda job: int(job["global_step"]) > step + 50, "it trains on")
        self.sluice("cancel", log_dir, job_id)
        self.sluice("down", log_dir)
        lines = audit_lines(log_dir, "serveraudit.0", event="refusal")
        self.assertEqual([(line["method"], line["reason"]) for line in lines], expected)

    def test_failed_handshakes_are_in_the_audit_logs(self):
        """On gRPC ports; each line says why, and nothing else happens."""
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own, others = log_dir / "cluster_tls", self.tmp / "others"
        self.assertEqual(self.run_program("sluice", "certs", str(others)).returncode, 0)
        # The operator's own certificate and key, but its time is over.
        request = own / "expired.csr"
        for step in (["-x509toreq", "-in", own / "operator.pem", "-signkey", own / "operator.key", "-out", request],
                     ["-req", "-in", request, "-CA", own / "ca.pem", "-CAkey", own / "ca.key", "-set_serial", "7",
                      "-days", "-1", "-out", own / "expired.pem"]):
            subprocess.run(["openssl", "x509", "-copy_extensions", "copy", *step], check=True, stderr=subprocess.DEVNULL)
        shutil.copy(own / "operator.key", own / "expired.key")
        old = client_of(own, "operator")
        old.set_ciphers("ALL:@SECLEVEL=0")  # else the client itself would refuse old versions
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        cases = [(client_of(own), "no certificate"), (client_of(others, "operator", trusted=own), "--tls_ca"),
                 (client_of(own, "expired"), "expired"), (old, "TLS 1.2")]

        before = self.status(log_dir)
        addresses = {e.role: e.address for e in self.endpoints_of(log_dir)}
        for role, name in (("scheduler", "scheduleraudit.0"), ("pserver", "serveraudit.0")):
            own_addresses = []
            self.assertNotEqual(answer(addresses[role], client_of(own, "operator"), own_addresses), b"")
            for count, (context, cause) in enumerate(cases, 1):
                with self.subTest(role=role, cause=cause):
                    self.assertEqual(answer(addresses[role], context, own_addresses), b"")
                    wait_until(lambda: len(audit_lines(log_dir, name, event="refusal", reason="handshake")) == count,
                               "line %d" % count)
                    line = audit_lines(log_dir, name, reason="handshake")[-1]
                    self.assertIn(cause, line["detail"])
                    self.assertEqual((line["method"], line["role"]), ("handshake", "none"))
                    self.assertRegex(line["address"], r"^127\.0\.0\.1:\d+$")
            # Clients of TLS 1.3 learn of a refusal after their own handshake, so they know their address.
            lines = audit_lines(log_dir, name, reason="handshake")
            self.assertEqual([line["address"] for line in lines[:3]], own_addresses[1:4])
            metrics = page(self.admin_addresses(log_dir)[role + " 0"], "/metrics", client_of(own, "operator"))[1]
            self.assertIn('sluice_%s_refusals_total{method="handshake",reason="handshake"} %d\n' % (role, len(cases)),
                          metrics)
        after = self.status(log_dir)
        for state in (before, after):
            self.assertEqual(state.get("jobs", []), [])
            self.assertEqual([(m["role"], m["rank"], m["pid"]) for m in state["members"]],
                             [(m["role"], m["rank"], m["pid"]) for m in before["members"]])

    def test_streams_without_a_hello_do_not_delay_a_job(self):
        """Whoever has a worker's certificate opens far more streams than the pserver has room for, again and again."""
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=2")
        own = log_dir / "cluster_tls"
        address, = (e.address for e in self.endpoints_of(log_dir) if e.role == "pserver")

        def frame(kind, flags, stream, payload):
            return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
        headers = ((":method", "POST"), (":scheme", "https"), (":path", "/sluice.Pserver/Exchange"),
                   (":authority", address), ("te", "trailers"), ("content-type", "application/grpc"))
        block = b"".join(bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                         for name, value in headers)
        over = threading.Event()

        def flood():
            context = client_of(own, "worker")
            context.set_alpn_protocols(["h2"])
            while not over.is_set():
                with socket.create_connection(address.split(":"), PATIENCE) as raw, context.wrap_socket(raw) as wrapped:
                    wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") +
                                    b"".join(frame(1, 4, 2 * i + 1, block) for i in range(100)))
                    over.wait(1)
        attackers = [threading.Thread(target=flood) for _ in range(12)]
        for attacker in attackers:
            attacker.start()
        try:
            wait_until(lambda: audit_lines(log_dir, "serveraudit.0", method="/sluice.Pserver/Exchange", reason="room"),
                       "streams are given up")
            self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=2", "--a_sync=false", "--epochs=1",
                        "--output_dir=%s" % (self.tmp / "out"))
        finally:
            over.set()
            for attacker in attackers:
                attacker.join()
        result = json.loads((self.tmp / "out" / "result.json").read_text())
        self.assertEqual(result["status"], "done")
        line = audit_lines(log_dir, "serveraudit.0", reason="room")[0]
        self.assertEqual((line["role"], line["event"]), ("worker", "refusal"))
        metrics = page(self.admin_addresses(log_dir)["pserver 0"], "/metrics", client_of(own, "operator"))[1]
        self.assertRegex(metrics, r'refusals_total\{method="/sluice.Pserver/Exchange",reason="room"\} [1-9]')
        self.assertRegex(metrics, r'sluice_pserver_certificate_end_seconds\{use="grpc"\} [1-9]')
        self.assertRegex((log_dir / "serverlog.0").read_text(), r"/sluice.Pserver/Exchange of worker .*streams")

    def test_admin_ports_notice_replaced_certificates(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        address = self.admin_addresses(log_dir)["scheduler 0"]
        before = shown_certificate(address, client_of(own))
        self.assertEqual(shown_certificate(address, client_of(own)), before)
        self.assertEqual(self.run_program("sluice", "certs", str(own)).returncode, 0)
        wait_until(lambda: shown_certificate(address, client_of(own)) != before, "the new certificate")

    def test_certificates_are_replaced_while_a_job_trains(self):
        log_dir = self.up("--tls", "--server_num=2", "--worker_num=2")
        own = log_dir / "cluster_tls"
        job_id = self.train(log_dir)
        servers = [e.address for e in self.endpoints_of(log_dir) if e.role in ("scheduler", "pserver")]
        self.assertEqual(len(servers), 3)

        def shown():
            return [shown_certificate(address, client_of(own, "operator")) for address in servers]
        old, files = shown(), [own / (role + ".pem") for role in ("scheduler", "pserver", "worker", "operator")]
        texts = [file.read_bytes() for file in files]
        done = self.run_program("sluice", "certs", str(own))
        self.assertEqual(done.returncode, 0, done.stdout)
        for file, before in zip(files, texts):
            self.assertNotEqual(file.read_bytes(), before, file)
        # A worker that takes over shows the new certificate to processes that began with the old one.
        self.kill_worker(log_dir)
        self.await_job(log_dir, job_id, lambda job: int(job["recovery"]["worker_losses"]) == 1, "the loss")
        # These processes show the new one to whoever connects now, and the job trains on over its old connections.
        wait_until(lambda: all(new != before for new, before in zip(shown(), old)), "new certificates")
        self.check_that_only_the_killed_worker_was_lost(log_dir, job_id)

    def test_the_authority_is_replaced_while_a_job_trains(self):
        """As docs/guide.md says: both CAs first, then new certificates, then the new CA alone."""
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=2")
        own, old, new, both = log_dir / "cluster_tls", self.tmp / "old", self.tmp / "new", self.tmp / "both"
        shutil.copytree(own, old)
        self.assertEqual(self.run_program("sluice", "certs", new).returncode, 0)
        both.mkdir()
        (both / "ca.pem").write_bytes((old / "ca.pem").read_bytes() + (new / "ca.pem").read_bytes())
        job_id = self.train(log_dir)
        grpc = [e.address for e in self.endpoints_of(log_dir) if e.role in ("scheduler", "pserver")]

        def ports():
            return grpc + list(self.admin_addresses(log_dir).values())

        def put(name, folder):
            shutil.copy(folder / name, own / "unfinished")
            os.replace(own / "unfinished", own / name)

        def serves(address, folder, trusted=both):
            """Whether a new connection with the operator's certificate of this folder is served."""
            context = client_of(folder, "operator", trusted)
            try:
                return answer(address, context) != b"" if address in grpc else page(address, "/", context)[0] == 200
            except (ssl.SSLError, ConnectionError):
                return False
        self.assertEqual(len(ports()), 2 + 4)
        self.assertTrue(all(serves(port, old) for port in ports()))
        self.assertFalse(any(serves(port, new) for port in ports()))
        put("ca.pem", both)
        wait_until(lambda: all(serves(port, new) for port in ports()), "both CAs are trusted")
        self.assertTrue(all(serves(port, old) for port in ports()))
        # Certificates come later than their keys: gRPC ports refuse new connections meanwhile, and open ones go on.
        roles = ("scheduler", "pserver", "worker", "operator")
        for role in roles:
            put(role + ".key", new)
        wait_until(lambda: not any(serves(port, new) for port in grpc), "pairs that do not fit")
        for role in roles:
            put(role + ".pem", new)
        # A worker that takes over now waits for daemons that have not seen their certificates yet.
        self.kill_worker(log_dir)
        wait_until(lambda: all(serves(port, new, trusted=new) for port in ports()), "new certificates")
        self.await_job(log_dir, job_id, lambda job: int(job["recovery"]["worker_losses"]) == 1, "the loss")
        put("ca.pem", new)
        wait_until(lambda: not any(serves(port, old) for port in ports()), "the old CA is out")
        self.assertTrue(all(serves(port, new) for port in ports()))
        self.check_that_only_the_killed_worker_was_lost(log_dir, job_id)

    def test_certificates_of_a_user_are_not_replaced(self):
        folder = self.tmp / "run.log" / "cluster_tls"
        folder.parent.mkdir()
        self.assertEqual(self.run_program("sluice", "certs", str(folder)).returncode, 0)
        before = (folder / "ca.key").read_bytes()
        _, said = self.launch("--tls", "--epochs=1", expect=2)
        self.assertIn(str(folder), said)
        self.assertEqual((folder / "ca.key").read_bytes(), before)
        shutil.rmtree(folder)
        self.launch("--tls", "--epochs=1")
        own = (folder / "ca.key").read_bytes()
        self.assertEqual(folder.stat().st_mode & 0o077, 0)
        self.launch("--epochs=1")  # a cluster without TLS leaves the folder alone
        self.assertEqual((folder / "ca.key").read_bytes(), own)
        self.launch("--tls", "--epochs=1")
        self.assertNotEqual((folder / "ca.key").read_bytes(), own, "every cluster has a CA of its own")

    def test_a_folder_that_others_may_write_to_gets_no_keys(self):
        folder = self.tmp / "run.log" / "cluster_tls"
        folder.mkdir(parents=True)
        (folder / "made_by_tls_flag").touch()
        folder.chmod(0o777)
        _, said = self.launch("--tls", "--epochs=1", expect=2)
        self.assertIn(str(folder), said)
        self.assertIn("0777", said)
        self.assertEqual([path.name for path in folder.iterdir()], ["made_by_tls_flag"])

    def test_old_versions_of_tls_are_refused(self):
        log_dir = self.up("--tls", "--server_num=1", "--worker_num=1")
        own = log_dir / "cluster_tls"
        anything = "ALL:@SECLEVEL=0"  # else OpenSSL itself would refuse old versions

        def version_with(newest, address):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.set_ciphers(anything)
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.load_cert_chain(own / "operator.pem", own / "operator.key")
            context.set_alpn_protocols(["h2"])
            with socket.create_connection(address.split(":")) as raw, context.wrap_socket(raw) as wrapped:
                return wrapped.version()

        def lax_server():
            """The address of a server that accepts old versions, for one connection."""
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_ciphers(anything)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.load_cert_chain(own / "scheduler.pem", own / "scheduler.key")
            listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
            self.addCleanup(listener.close)
            threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
            return "127.0.0.1:%d" % listener.getsockname()[1]
        self.assertEqual(version_with(ssl.TLSVersion.TLSv1_1, lax_server()), "TLSv1.1", "this client can")
        grpc = [e.address for e in self.endpoints_of(log_dir) if e.role in ("scheduler", "pserver")]
        addresses = grpc + list(self.admin_addresses(log_dir).values())
        self.assertEqual(len(addresses), 5)
        for address in addresses:
            with self.subTest(address):
                self.assertEqual(version_with(ssl.TLSVersion.TLSv1_2, address), "TLSv1.2")
                with self.assertRaises((ssl.SSLError, ConnectionError)):
                    version_with(ssl.TLSVersion.TLSv1_1, address)

    def test_wrong_files_are_refused_at_start(self):
        folder = self.tmp / "certificates"
        made = self.run_program("sluice", "certs", str(folder))
        self.assertEqual(made.returncode, 0, made.stdout)
        worker = ["sluice-worker", "--rank=0", "--scheduler=127.0.0.1:%d" % free_port(), "--log_dir=%s" % self.tmp]

        def refusal(*flags):
            done = self.run_program(*worker, *flags)
            self.assertEqual(done.returncode, 2, done.stdout)
            return done.stdout
        self.assertIn("--tls_key", refusal("--tls_cert=%s/worker.pem" % folder, "--tls_ca=%s/ca.pem" % folder))
        self.assertIn("nothing.pem", refusal("--tls_cert=%s/nothing.pem" % folder, *tls_flags(folder, "worker")[1:]))
        self.assertIn("pserver.key", refusal("--tls_key=%s/pserver.key" % folder, tls_flags(folder, "worker")[0],
                                             tls_flags(folder, "worker")[2]))
        (folder / "worker.key").chmod(0o644)
        self.assertIn("chmod 600", refusal(*tls_flags(folder, "worker")))


if __name__ == "__main__":
    unittest.main()
