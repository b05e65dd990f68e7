"""The HTTP side of every daemon: metrics, health, status; on loopback only."""
import collections
import http.client
import json
import re
import socket
import ssl
import threading
import time
import unittest
import urllib.error
import urllib.request

from sluice_testing import ADULT, PATIENCE, ROOT, SluiceTest, free_port, wait_until

METRICS = ROOT / "docs" / "metrics.md"
ROLES = ("scheduler", "pserver", "worker")
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*\})? (\S+)$')


def parse_metrics(text):
    """Parses Prometheus text to {name: {labels text: value}}; HELP and TYPE must precede a family's samples."""
    values, types, helped = {}, {}, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split(" ", 3)[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped"), line
            assert name not in types, "two families " + name
            types[name] = kind
        elif line:
            match = SAMPLE.match(line)
            assert match, "no sample: " + line
            name, labels, value = match.groups()
            assert name in types and name in helped, "no TYPE or HELP: " + line
            assert labels not in values.setdefault(name, {}), "twice: " + line
            values[name][labels] = float(value)
    return values


def client_hello():
    """The bytes with which a TLS client begins."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return sent.read()


class Flood:
    """Opens connections that send one of `beginnings` and nothing more, until it ends."""

    def __init__(self, port, beginnings, per_second):
        self.port, self.beginnings, self.per_second, self.opened, self.ends = port, beginnings, per_second, 0, False
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.thread.join()

    def run(self):
        clients = collections.deque(maxlen=400)  # the server has closed older ones
        begin = time.monotonic()
        while not self.ends:
            if len(clients) == clients.maxlen:
                clients.popleft().close()
            client = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
            clients.append(client)
            try:
                client.sendall(self.beginnings[self.opened % len(self.beginnings)])
            except OSError:
                pass
            self.opened += 1
            time.sleep(max(0, begin + self.opened / self.per_second - time.monotonic()))
        for client in clients:
            client.close()


def is_alive(port, context, limit=5.0):
    """Whether /livez answers within the limit."""
    begin = time.monotonic()
    connection = (http.client.HTTPSConnection("127.0.0.1", port, timeout=limit, context=context) if context else
                  http.client.HTTPConnection("127.0.0.1", port, timeout=limit))
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().read() == b"ok\n" and time.monotonic() - begin < limit
    except OSError:
        return False
    finally:
        connection.close()


class AdminTest(SluiceTest):
    def get(self, address, path, expect=200):
        try:
            with urllib.request.urlopen("http://%s%s" % (address, path), timeout=PATIENCE) as reply:
                code, kind, body = reply.status, reply.headers["Content-Type"], reply.read().decode()
        except urllib.error.HTTPError as error:
            code, kind, body = error.code, error.headers["Content-Type"], error.read().decode()
        self.assertEqual(code, expect, "%s%s: %s" % (address, path, body))
        return kind, body

    def metrics(self, address):
        kind, text = self.get(address, "/metrics")
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
        return parse_metrics(text)

    def test_every_daemon_serves_every_page(self):
        log_dir = self.up("--server_num=2", "--worker_num=1")
        admin = self.admin_addresses(log_dir)
        self.assertEqual(sorted(admin), ["pserver 0", "pserver 1", "scheduler 0", "worker 0"])
        for who, address in admin.items():
            role = who.split()[0]
            self.assertEqual(address.split(":")[0], "127.0.0.1", who)
            self.assertEqual(self.get(address, "/livez"), ("text/plain; charset=utf-8", "ok\n"))
            wait_until(lambda: self.ready(address), who + " ready")
            self.assertEqual(self.get(address, "/readyz")[1], "ok\n")
            self.assertIn("/metrics", self.get(address, "/")[1])
            self.assertTrue(self.get(address, "/statusz")[1].strip(), who)
            kind, body = self.get(address, "/api/v1/status")
            self.assertEqual(kind, "application/json")
            self.assertIsInstance(json.loads(body), dict)
            self.get(address, "/nothing", expect=404)
            for name, samples in self.metrics(address).items():
                self.assertRegex(name, r"^sluice_(%s_[a-z0-9_]+|build_info)$" % role)
                for labels in samples:
                    for label in re.findall(r"(\w+)=", labels or ""):
                        self.assertIn(label, ("job", "rank", "table", "state", "role", "stage", "method", "reason", "action", "version"), name)
            for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", self.get(address, "/metrics")[1], re.MULTILINE):
                self.assertEqual(kind, "counter" if name.endswith("_total") else "gauge", name)
        status = json.loads(self.get(admin["scheduler 0"], "/api/v1/status")[1])
        self.assertEqual(len(status["members"]), 3)
        self.assertIn("pserver 1", self.get(admin["scheduler 0"], "/statusz")[1])

    def test_daemons_listen_on_loopback_only(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        ports = {int(address.rsplit(":", 1)[1]) for address in self.admin_addresses(log_dir).values()}
        listening = {}
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in open(table).read().splitlines()[1:]:
                fields = line.split()
                address, port = fields[1].split(":")
                if fields[3] == "0A" and int(port, 16) in ports:
                    listening.setdefault(int(port, 16), set()).add(address)
        self.assertEqual(listening, {port: {"0100007F"} for port in ports})

    def test_values_move_while_a_job_runs(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        admin = self.admin_addresses(log_dir)
        self.sluice("submit", log_dir, "--job=%s" % ADULT, "--worker_num=1", "--epochs=100000", "--detach",
                    "--output_dir=%s" % (self.tmp / "out"))
        job = '{job="adult-1"}'

        def look():
            worker, pserver = self.metrics(admin["worker 0"]), self.metrics(admin["pserver 0"])
            rank = '{job="adult-1",rank="0"}'
            return {"steps": worker.get("sluice_worker_steps_total", {}).get(rank, 0),
                    "examples": worker["sluice_worker_examples_total"][None],
                    "compute": worker.get("sluice_worker_stage_seconds_total", {}).get(
                        '{job="adult-1",rank="0",stage="compute"}', 0),
                    "frames": pserver.get("sluice_pserver_frames_applied_total", {}).get(job, 0),
                    "received": pserver["sluice_pserver_bytes_received_total"][None]}
        first = wait_until(lambda: (lambda v: v if all(v.values()) else None)(look()), look)
        wait_until(lambda: all(now > first[name] for name, now in look().items()), lambda: "more than %s" % first)

        pserver = self.metrics(admin["pserver 0"])
        embedding = '{job="adult-1",table="embedding"}'
        self.assertGreater(pserver["sluice_pserver_rows"][embedding], 0)
        self.assertGreater(pserver["sluice_pserver_table_bytes"][embedding], 0)
        self.assertGreater(pserver["sluice_pserver_table_reserved_bytes"][embedding],
                           pserver["sluice_pserver_table_bytes"][embedding])
        self.assertGreater(pserver["sluice_pserver_memory_bytes"][None], 1e6)
        self.assertEqual(pserver["sluice_pserver_streams"][None], 1)
        scheduler = self.metrics(admin["scheduler 0"])
        self.assertEqual(scheduler["sluice_scheduler_jobs"]['{state="running"}'], 1)
        # The scheduler learns of steps with the worker's next report.
        wait_until(lambda: all(self.metrics(admin["scheduler 0"])["sluice_scheduler_job_" + figure][job] > 0
                               for figure in ("steps_total", "epoch", "examples_total", "examples_per_second")),
                   "the scheduler's figures of the job")
        # docs/metrics.md lists every metric.
        named = re.findall(r"(?m)^\| `(sluice_[\w<>]+)` \|", METRICS.read_text())
        listed = {name.replace("<role>", role) for name in named for role in ROLES}
        for who, address in admin.items():
            self.assertEqual(set(self.metrics(address)) - listed, set(), who)
        self.assertEqual(scheduler["sluice_scheduler_members"], {'{role="pserver"}': 1, '{role="worker"}': 1})
        self.assertIn("adult-1", self.get(admin["scheduler 0"], "/statusz")[1])
        self.assertEqual(json.loads(self.get(admin["worker 0"], "/api/v1/status")[1])["job_id"], "adult-1")

        self.sluice("cancel", log_dir, "adult-1")
        # The tables' series end with the tables; the worker's totals stay.
        wait_until(lambda: job not in self.metrics(admin["pserver 0"]).get("sluice_pserver_frames_applied_total", {}),
                   "no series of the job")
        wait_until(lambda: not any("adult-1" in (labels or "") for series in self.metrics(admin["pserver 0"]).values()
                                   for labels in series), "no series of its tables")
        wait_until(lambda: self.metrics(admin["pserver 0"])["sluice_pserver_streams"][None] == 0, "no stream")
        self.assertGreaterEqual(self.metrics(admin["worker 0"])["sluice_worker_examples_total"][None],
                                first["examples"])
        # Its result may be written after its tables are dropped.
        wait_until(lambda: self.metrics(admin["scheduler 0"])["sluice_scheduler_jobs"]['{state="cancelled"}'] == 1,
                   "a cancelled job")

    def test_a_status_that_is_too_large_is_shown_in_part(self):
        log_dir = self.up("--server_num=1", "--worker_num=1")
        scheduler = self.admin_addresses(log_dir)["scheduler 0"]
        large = self.tmp / "large.textproto"
        # A configuration of 0.9 MiB, of jobs that wait for the worker of the first one.
        names = ", ".join('"%s"' % ("%06d" % i).ljust(250, "c") for i in range(3700))
        large.write_text(ADULT.read_text().replace("../data", str(ROOT / "data")).replace(
            '"age", "workclass"', names + ', "age", "workclass"'))
        jobs = [ADULT] + 20 * [large]
        for i, job in enumerate(jobs):
            self.sluice("submit", log_dir, "--job=%s" % job, "--worker_num=1", "--detach", "--epochs=100000",
                        "--output_dir=%s" % (self.tmp / ("run%d" % i)))
        text = self.get(scheduler, "/api/v1/status")[1]
        self.assertLess(len(text), 2 ** 24)
        status = json.loads(text)
        self.assertEqual(len(status["jobs"]), len(jobs))
        self.assertIn("left out", status["members"][-1]["doing"])
        self.assertIn("left out", self.get(scheduler, "/statusz")[1])

    def test_readyz_says_what_is_missing(self):
        scheduler = "127.0.0.1:%d" % free_port()
        ports = {role: "127.0.0.1:%d" % free_port() for role in ("scheduler", "pserver", "worker")}
        for role in ("worker", "pserver"):
            self.start("sluice-" + role, "--rank=0", "--scheduler=%s" % scheduler, "--admin_bind=%s" % ports[role],
                       "--log_dir=%s" % (self.tmp / "log"))
        admin = wait_until(lambda: (self.tmp / "log" / "endpoints.log").exists() and
                           len(self.admin_addresses(self.tmp / "log")) == 2 and self.admin_addresses(self.tmp / "log"), "admin")
        self.assertEqual(admin, {"worker 0": ports["worker"], "pserver 0": ports["pserver"]})
        for role in ("worker", "pserver"):
            self.get(ports[role], "/livez")
            self.assertIn(scheduler, self.get(ports[role], "/readyz", expect=503)[1])
        self.start("sluice-scheduler", "--bind=%s" % scheduler, "--server_num=1", "--worker_num=2",
                   "--admin_bind=%s" % ports["scheduler"], "--log_dir=%s" % (self.tmp / "log"))
        for role in ("worker", "pserver"):
            wait_until(lambda: self.ready(ports[role]), role + " ready")
        self.assertRegex(self.get(ports["scheduler"], "/readyz", expect=503)[1], r"worker 1\b")
        self.start("sluice-worker", "--rank=1", "--scheduler=%s" % scheduler, "--log_dir=%s" % (self.tmp / "log"))
        wait_until(lambda: self.ready(ports["scheduler"]), "scheduler ready")

    def check_probes_during_floods(self, log_dir, beginnings, context):
        """Floods from the address of the probes: the worst case."""
        port = int(self.admin_addresses(log_dir)["scheduler 0"].rsplit(":", 1)[1])
        for per_second in (100, 400):
            with Flood(port, beginnings, per_second) as flood:
                wait_until(lambda: flood.opened > per_second / 2, "the flood does not begin")
                alive = []
                for _ in range(12):
                    alive.append(is_alive(port, context))
                    time.sleep(0.5)
            print("%d connections of %d a second: %d of %d probes answered" % (flood.opened, per_second, sum(alive), len(alive)),
                  flush=True)
            self.assertGreater(flood.opened, 256, "more than there are places for")
            # A pause of the machine lets the flood push out a probe that has not asked yet.
            self.assertGreater(sum(alive), len(alive) // 2, alive)
        # Each connection that was closed for another is counted, and some have a line.
        lines = [json.loads(line) for line in (log_dir / "scheduleraudit.0").read_text().splitlines()]
        refused = [line for line in lines if line["event"] == "refusal"]
        self.assertIn(("connect", "room"), {(line["method"], line["reason"]) for line in refused})
        self.assertTrue(all(line["address"].startswith("127.0.0.1:") for line in refused))
        self.assertLess(len(refused), 300)

    def test_probes_are_answered_during_a_flood(self):
        log_dir = self.up("--server_num=0", "--worker_num=1")
        self.check_probes_during_floods(log_dir, (b"", b"G", b"GET /livez HTTP/1.1\r\nX: "), None)
        counts = self.metrics(self.admin_addresses(log_dir)["scheduler 0"])["sluice_scheduler_refusals_total"]
        self.assertGreater(counts['{method="connect",reason="room"}'], 1000)

    def test_probes_are_answered_during_a_flood_with_tls(self):
        log_dir = self.up("--tls", "--server_num=0", "--worker_num=1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(log_dir / "cluster_tls" / "ca.pem")
        self.check_probes_during_floods(log_dir, (b"", b"\x16", client_hello()), context)

    def test_refused_requests_are_recorded(self):
        log_dir = self.up("--server_num=0", "--worker_num=1")
        address = self.admin_addresses(log_dir)["scheduler 0"]
        port = int(address.rsplit(":", 1)[1])
        for request in (b"POST /metrics HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 70000, b"nonsense\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(request)
                self.assertRegex(client.recv(100), rb"^HTTP/1.1 4")

        def refused():
            lines = map(json.loads, (log_dir / "scheduleraudit.0").read_text().splitlines())
            return sorted((line["method"], line["reason"], line["role"]) for line in lines if line["event"] == "refusal")
        expected = [("/metrics", "invalid", "unverified")] + 2 * [("request", "invalid", "unverified")]
        wait_until(lambda: refused() == expected, refused)

    def ready(self, address):
        try:
            with urllib.request.urlopen("http://%s/readyz" % address, timeout=PATIENCE) as reply:
                return reply.status == 200
        except urllib.error.URLError:
            return False


if __name__ == "__main__":
    unittest.main()
