"""Data on a store that speaks S3's protocol and checks signatures, through a proxy that breaks some answers."""
import contextlib
import gzip
import http.client
import http.server
import json
import os
import pathlib
import re
import select
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import unittest

from sluice_testing import ADULT, BIN, ROOT, SluiceTest, free_port

# Programs refuse variables that they do not know.
MOTO_PYTHON = os.environ.pop("SLUICE_MOTO_PYTHON", str(ROOT / "build" / "python-env" / "bin" / "python"))
# Writes a Parquet file beside each CSV.
PARQUET_OF_CSV = """
import sys
import pyarrow.csv, pyarrow.parquet
for path in sys.argv[1:]:
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), path + ".parquet", row_group_size=500)
"""
# Names that a URL, a signature or a shell could take for something else.
TRAIN = ("day=2026-11-01/a b+c%41.csv", "day=2026-11-02/\u00fc&'~.csv")


class FaultyProxy(http.server.ThreadingHTTPServer):
    """Forwards requests to a store on this machine. `fault(number, method, path)` names what breaks: "busy", "cut",
    "slow", "other" (another version), "lost" (the request is carried out, and no answer comes), "late" (it is carried out, and
    the answer is 503), "never" (no answer comes, and the connection stays), a number of seconds (it is carried out so much later),
    or None. `after(method, path)` is called when a request was carried out, before its answer. `region`: requests that are
    signed for another are refused as S3 does; "": for any. `sent`: bytes of GET's answers by path; `ranges`: their first and last bytes. `tls`: the
    context to speak TLS with."""
    daemon_threads = True
    conditional = threading.Lock()  # moto looks at a condition and writes in two steps: of two that write at once both may succeed

    def __init__(self, store_port, tls=None):
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self):
                with proxy.lock:
                    proxy.requests += 1
                    fault = proxy.fault(proxy.requests, self.command, self.path)
                    if fault:
                        proxy.faults.append(fault)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if fault == "busy":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if fault == "never":
                    proxy.ended.wait()
                    return
                if proxy.region and "/%s/s3/" % proxy.region not in self.headers.get("Authorization", ""):
                    # Listings go to any region of the store; S3 sees at once that a signature is for another.
                    status, code = (301, "PermanentRedirect") if "?" in self.path else (400, "AuthorizationHeaderMalformed")
                    body = "" if self.command == "HEAD" else "<Error><Code>%s</Code></Error>" % code
                    self.send_response(status)
                    self.send_header("x-amz-bucket-region", proxy.region)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body.encode())
                    return
                if fault == "slow" or isinstance(fault, float):
                    time.sleep(0.5 if fault == "slow" else fault)
                alone = self.command in ("PUT", "POST") and ("If-Match" in self.headers or "If-None-Match" in self.headers)
                with proxy.conditional if alone else contextlib.nullcontext():
                    store = http.client.HTTPConnection("127.0.0.1", store_port, timeout=60)
                    store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        store.putheader(name, value)
                    store.endheaders(body or None)
                    answer = store.getresponse()
                    body = answer.read()
                    store.close()
                proxy.after(self.command, self.path)
                if fault == "lost":
                    self.close_connection = True
                    return
                if fault == "late":
                    body = b""
                self.send_response(503 if fault == "late" else answer.status)
                for name, value in answer.getheaders():
                    if name.lower() in ("connection", "transfer-encoding", "server", "date"):
                        continue
                    if name.lower() == "etag" and fault == "other":
                        value = '"another"'
                    if name.lower() == "content-length" and self.command != "HEAD":
                        value = str(len(body))
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    wanted = self.headers.get("Range")
                    with proxy.lock:
                        if wanted:
                            first, last = wanted[len("bytes="):].split("-")
                            proxy.ranges.setdefault(self.path, []).append((int(first), int(last)))
                        proxy.sent[self.path] = proxy.sent.get(self.path, 0) + len(body)
                if self.command != "HEAD":
                    self.wfile.write(body[:len(body) // 2] if fault == "cut" else body)
                if fault == "cut":
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

            def log_message(self, *args):
                pass

        self.lock = threading.Lock()
        self.requests = 0
        self.faults = []
        self.sent = {}
        self.ranges = {}
        self.region = ""
        self.ended = threading.Event()
        self.fault = lambda number, method, path: None
        self.after = lambda method, path: None
        super().__init__(("127.0.0.1", free_port()), Handler)
        if tls:
            # Shakes hands when a thread first reads, so that nobody keeps others from connecting.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a program that ends leaves its requests


class RangeServer(http.server.ThreadingHTTPServer):
    """Serves the files of a folder in parts, as web servers do. A path below /moved/ redirects to the file."""
    daemon_threads = True

    def __init__(self, folder):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = self.path.lstrip("/")
                if path.startswith("moved/"):
                    self.send_response(302)
                    self.send_header("Location", "/" + path[len("moved/"):])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = (folder / path).read_bytes()
                wanted = self.headers.get("Range")
                if wanted:
                    first, last = wanted[len("bytes="):].split("-")
                    whole, body = len(body), body[int(first):int(last) + 1]
                self.send_response(206 if wanted else 200)
                if wanted:
                    self.send_header("Content-Range", "bytes %s-%s/%d" % (first, last, whole))
                self.send_header("ETag", '"1"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", free_port()), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass


class ConnectProxy(socketserver.ThreadingTCPServer):
    """A proxy for HTTPS. `asked`: the first lines of the requests."""
    daemon_threads = True

    def __init__(self):
        asked = self.asked = []

        class Handler(socketserver.StreamRequestHandler):
            rbufsize = 0  # what follows the request belongs to the tunnel

            def handle(self):
                line = self.rfile.readline().decode().strip()
                asked.append(line)
                while self.rfile.readline().strip():
                    pass
                host, port = line.split()[1].split(":")
                with socket.create_connection((host, int(port))) as there:
                    self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    ends = {self.connection: there, there: self.connection}
                    while True:
                        for end in select.select(list(ends), [], [])[0]:
                            part = end.recv(1 << 16)
                            if not part:
                                return
                            ends[end].sendall(part)

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a program that ends leaves its connections


class StoreTest(SluiceTest):
    """Starts a store with two data files (TRAIN), which are also in tmp/files."""

    def setUp(self):
        super().setUp()
        if subprocess.run([MOTO_PYTHON, "-c", "import moto.server, boto3"], stderr=subprocess.DEVNULL).returncode:
            self.fail("moto has gone away")
        self.port = free_port()
        self.store = self.enterContextManager(subprocess.Popen(
            [MOTO_PYTHON, "-B", str(ROOT / "tests" / "system" / "object_store.py"), str(self.port)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        line = self.store.stdout.readline()
        self.assertTrue(line.startswith("{"), line)
        self.keys = json.loads(line)
        self.proxy = self.start_proxy()
        self.environment = {"AWS_ACCESS_KEY_ID": self.keys["id"], "AWS_SECRET_ACCESS_KEY": self.keys["secret"],
                            "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % self.proxy.server_address[1],
                            "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.tmp)}
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(self.environment)
        for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            os.environ.pop(name, None)  # a proxy does not lead to this machine
        text = gzip.decompress((ROOT / "data" / "adult" / "adult.data.gz").read_bytes())
        lines = text.splitlines(keepends=True)[:6000]
        self.local = self.tmp / "files"
        half = len(lines) // 2
        for name, part in zip(TRAIN, (lines[:half], lines[half:])):
            path = self.local / name
            path.parent.mkdir(parents=True)
            path.write_bytes(b"".join(part))
            self.put(name, path)

    def start_proxy(self, tls=None):
        proxy = FaultyProxy(self.port, tls)
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        self.addCleanup(proxy.ended.set)
        return proxy

    def enterContextManager(self, process):
        def end():
            process.stdin.close()
            process.stdout.close()
            process.kill()
            process.wait()
        self.addCleanup(end)
        return process

    def command(self, *words):
        self.store.stdin.write(json.dumps(words) + "\n")
        self.store.stdin.flush()
        return json.loads(self.store.stdout.readline())

    def put(self, name, path):
        self.assertEqual(self.command("put", name, str(path)), "done")

    def objects(self, prefix=""):
        """The keys that begin with `prefix`."""
        return self.command("list", prefix)

    def text(self, name):
        return self.command("get", name)

    def assert_slow_is_told(self, out, delay):
        found = re.search(r"s3://data is slow from this host: (\d+) bytes/s \((\d+) bytes of s3://data/", out)
        self.assertTrue(found, out)
        # It is told after the first answer.
        self.assertEqual(int(found[2]), 64 << 10)
        self.assertLessEqual(int(found[1]), (64 << 10) / delay)

    def make_slow(self, delay):
        """The first answer of an object comes late."""
        late = []

        def fault(number, method, path):
            if late or method != "GET" or "?" in path or "%2A" in path:
                return None
            late.append(path)
            return delay
        self.proxy.fault = fault

    def assert_no_secret_in_files(self):
        for path in self.tmp.rglob("*"):
            if path.is_file():
                for secret in (self.keys["secret"], self.keys["id"], *self.keys["session"].values()):
                    self.assertNotIn(secret.encode(), path.read_bytes(), path)


class PlacesTest(StoreTest):
    def train(self, files, *flags, **kwargs):
        return self.launch("--set=data.train_files=%s" % files, "--set=data.eval_files=%s" % files, "--epochs=1",
                           "--worker_num=2", "--server_num=1", "--a_sync=false", *flags, **kwargs)

    def test_training_from_a_store_that_fails_at_times_equals_training_from_files(self):
        kinds = {3: "busy", 5: "cut", 8: "slow"}
        self.proxy.fault = lambda number, method, path: kinds.get(number % 9)
        here, _ = self.train(self.local / "day=*" / "*.csv", name="here")
        os.environ.update(self.keys["session"])
        there, _ = self.train("s3://data/day=*/*.csv", name="there")
        self.assertEqual(there["examples"], 6000)
        self.assertEqual(there["model_digest"], here["model_digest"])
        self.assertEqual(there["eval"], here["eval"])
        self.assertEqual(set(self.proxy.faults), {"busy", "cut", "slow"})
        scores = [self.tmp / name for name in ("here.txt", "there.txt")]
        for source, output in zip((self.local / TRAIN[0], "s3://data/" + TRAIN[0]), scores):
            done = self.run_program("sluice", "predict", "--model=%s" % (self.tmp / "there" / "model"),
                                    "--data=%s" % source, "--output=%s" % output)
            self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(scores[0].read_bytes(), scores[1].read_bytes())
        self.assert_no_secret_in_files()

    def test_training_from_a_web_server_equals_training_from_files(self):
        folder = self.tmp / "web"
        folder.mkdir()
        for name, source in zip(("a.csv", "b.csv"), TRAIN):
            shutil.copy(self.local / source, folder / name)
        server = RangeServer(folder)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = "http://127.0.0.1:%d" % server.server_address[1]
        here, _ = self.train("%s,%s" % (folder / "a.csv", folder / "b.csv"), name="here")
        there, _ = self.train("%s/a.csv,%s/moved/b.csv" % (url, url), name="there")
        self.assertEqual(there["model_digest"], here["model_digest"])

    def make_certificate(self):
        """A certificate for 127.0.0.1, and the context of a server with it."""
        certificate, key = self.tmp / "store.pem", self.tmp / "store.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9",
                        "-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, stderr=subprocess.DEVNULL)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        return certificate, tls

    def test_a_store_with_https_needs_a_certificate_that_is_trusted(self):
        certificate, tls = self.make_certificate()
        proxy = self.start_proxy(tls)
        files, port = "s3://data/day=*/*.csv", proxy.server_address[1]
        for host, trusted in (("127.0.0.1", None), ("127.0.0.1", self.tmp / "none.pem"), ("localhost", certificate)):
            os.environ["AWS_ENDPOINT_URL"] = "https://%s:%d" % (host, port)
            if trusted:
                os.environ["AWS_CA_BUNDLE"] = str(trusted)
            _, text = self.train(files, expect=2)
            self.assertIn("AWS_CA_BUNDLE", text)
            self.assertEqual(proxy.requests, 0)
        os.environ["AWS_ENDPOINT_URL"] = "https://127.0.0.1:%d" % port
        here, _ = self.train(self.local / "day=*" / "*.csv", name="here")
        self.train(files, "--output_dir=s3://data/there")
        there = json.loads(self.text("there/result.json"))
        self.assertEqual(there["model_digest"], here["model_digest"])
        self.assertEqual(self.proxy.requests, 0)

    def test_a_store_is_reached_through_a_proxy(self):
        certificate, tls = self.make_certificate()
        proxy = self.start_proxy(tls)
        tunnel = ConnectProxy()
        self.addCleanup(tunnel.server_close)
        self.addCleanup(tunnel.shutdown)
        os.environ.update({"AWS_ENDPOINT_URL": "https://127.0.0.1:%d" % proxy.server_address[1], "AWS_CA_BUNDLE": str(certificate),
                           "HTTPS_PROXY": "http://127.0.0.1:%d" % tunnel.server_address[1]})
        for name in ("no_proxy", "NO_PROXY"):  # this machine may be in them
            os.environ.pop(name, None)
        result, _ = self.train("s3://data/day=*/*.csv")
        self.assertEqual(result["examples"], 6000)
        self.assertGreater(proxy.requests, 0)
        # Each daemon, and the command, have connections of their own.
        self.assertGreaterEqual(len(tunnel.asked), 3)
        self.assertEqual(set(tunnel.asked), {"CONNECT 127.0.0.1:%d HTTP/1.1" % proxy.server_address[1]})

    def training(self, name):
        """Whether a worker of the launch has begun with its job."""
        log = self.tmp / (name + ".log") / "workerlog.0"
        return log.exists() and "starts as rank" in log.read_text()

    def test_an_answer_that_never_comes_is_asked_for_again(self):
        here, _ = self.train(self.local / "day=*" / "*.csv", name="here")
        hung = []

        def fault(number, method, path):
            # The command also looks at the files, but waits for none of its answers that long.
            if hung or method != "GET" or "?" in path or "%2A" in path or not self.training("there"):
                return None
            hung.append(path)
            return "never"
        self.proxy.fault = fault
        there, _ = self.train("s3://data/day=*/*.csv", name="there")
        self.assertEqual(len(hung), 1)
        self.assertEqual(there["model_digest"], here["model_digest"])

    def test_a_proposed_job_trains_on_data_that_is_not_here(self):
        """Parquet on a store, and text of a web server."""
        def train_proposed(name, *files):
            job = self.tmp / (name + ".textproto")
            done = self.run_program("sluice", "data", "check", *files, "--output=%s" % job)
            self.assertEqual(done.returncode, 0, done.stdout)
            result, out = self.launch("--worker_num=1", "--server_num=1", "--epochs=2", job=job, name=name)
            self.assertGreater(result["eval"]["auc"], 0.9, out)
            return job.read_text()

        folder = self.tmp / "web"
        folder.mkdir()
        for name, first in (("train", 0), ("test", 1)):
            rows = [(i * i + first, i % 40, int(i % 40 < 20)) for i in range(3000)]
            self.write_csv("web/%s.csv" % name, rows, header="x,c,label")
        server = RangeServer(folder)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = "http://127.0.0.1:%d" % server.server_address[1]
        self.assertIn(url, train_proposed("web_job", url + "/train.csv", url + "/test.csv"))
        if not (BIN / "sluice-arrow.so").exists() or subprocess.run(
                [MOTO_PYTHON, "-c", PARQUET_OF_CSV, folder / "train.csv", folder / "test.csv"]).returncode:
            print("SKIPPED, NOT PASSED: Parquet on a store needs Arrow (./dev arrow), and pyarrow beside moto", file=sys.stderr)
            self.skipTest("no Arrow")
        for name in ("train", "test"):
            self.put("shop/%s.parquet" % name, folder / (name + ".csv.parquet"))
        self.assertIn("s3://data/shop/train.parquet", train_proposed("shop", "s3://data/shop/*.parquet"))
        # Rows of a file alone that are held out are copied here.
        self.assertIn('train_files: "alone-train.parquet"', train_proposed("alone", "s3://data/shop/train.parquet"))

    def test_a_bucket_of_another_region_is_named_at_the_start(self):
        self.proxy.region = "eu-west-3"
        for files in ("s3://data/day=*/*.csv", "s3://data/" + TRAIN[0]):
            _, text = self.train(files, expect=2)
            self.assertIn("set AWS_REGION=eu-west-3", text)
        _, text = self.train(self.local / TRAIN[0], "--output_dir=s3://data/out", expect=2)
        self.assertIn("set AWS_REGION=eu-west-3", text)
        os.environ["AWS_REGION"] = "eu-west-3"
        result, _ = self.train("s3://data/day=*/*.csv")
        self.assertEqual(result["examples"], 6000)

    def test_an_object_that_changes_fails_the_job(self):
        for how in ("other", "put"):
            reads = []

            def fault(number, method, path):
                # The command has looked at the files; while the workers read them, these become others.
                of_object = method == "GET" and "?" not in path and "%2A" not in path
                if of_object and (self.tmp / (how + ".log") / "workerlog.0").exists():
                    reads.append(path)
                    if len(reads) == 3 and how == "put":
                        for name in TRAIN:
                            self.put(name, ROOT / "data" / "adult" / "adult.test.gz")
                return "other" if len(reads) >= 3 and how == "other" else None
            self.proxy.fault = fault
            _, text = self.train("s3://data/day=*/*.csv", "--epochs=50", name=how, expect=1)
            self.assertIn("s3://data/day=2026-11-0", text)
            self.assertRegex(text, "has changed since|another version")

    def test_text_on_a_store_is_counted_once_for_a_version_of_it(self):
        first, _ = self.train("s3://data/day=*/*.csv", name="run")
        kept = self.tmp / "run.log" / "line_counts"
        counted = kept.read_text().splitlines()
        self.assertEqual(len(counted), 2, counted)
        again, _ = self.train("s3://data/day=*/*.csv", "--overwrite", name="run")
        self.assertEqual(again["model_digest"], first["model_digest"])
        self.assertEqual(kept.read_text().splitlines(), counted)
        whole = self.local / TRAIN[1]
        whole.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:-10]))
        self.put(TRAIN[1], whole)
        changed, _ = self.train("s3://data/day=*/*.csv", "--overwrite", name="run")
        self.assertEqual(changed["examples"], 5990)
        self.assertGreater(len(kept.read_text().splitlines()), len(counted))

    def test_a_slow_store_and_what_counting_takes_are_told_at_the_start(self):
        size, delay, files = sum((self.local / name).stat().st_size for name in TRAIN), 1.2, "s3://data/day=*/*.csv"
        counting = r"reads all (\d+) bytes .*\(about (\d+) s.*unless an earlier job"
        for flags in (("--dry_run",), ()):
            self.make_slow(delay)
            _, out = self.train(files, *flags)
            self.assert_slow_is_told(out, delay)
            told = re.search(counting, out)
            self.assertTrue(told, out)
            self.assertEqual(int(told[1]), size)
            self.assertGreaterEqual(int(told[2]), int(delay * size / (64 << 10)))
        self.make_slow(delay)
        _, out = self.launch("--set=data.train_files=%s" % files, "--set=data.eval_files=%s" % files, "--a_sync=true", "--dry_run")
        self.assert_slow_is_told(out, delay)
        self.assertNotRegex(out, counting)

    def test_values_in_names_of_folders_are_decoded_once(self):
        """Here and on the store, and as a column of the file itself."""
        values = {"a%2Fb": "a/b", "a%252fb": "a%2fb", "100%": "100%", "5%zz": "5%zz", "%C3%bc": "\u00fc", "a b": "a b"}
        whole = ["y,x,place\n"]
        for number, folder in enumerate(sorted(values, key=str.encode)):
            rows = ["%d,%d" % ((i + number) % 3 == 0, i % 7) for i in range(60)]
            path = self.tmp / "odd" / ("place=" + folder) / "a.csv"
            path.parent.mkdir(parents=True)
            path.write_text("\n".join(["y,x", *rows]) + "\n")
            self.put("odd/place=%s/a.csv" % folder, path)
            whole += ["%s,%s\n" % (row, values[folder]) for row in rows]
        (self.tmp / "whole.csv").write_text("".join(whole), encoding="utf-8")
        digests = {}
        for name, files in (("here", self.tmp / "odd" / "place=*" / "a.csv"), ("there", "s3://data/odd/place=*/a.csv"),
                            ("column", self.tmp / "whole.csv")):
            job = self.tmp / "odd.textproto"
            job.write_text("""
                data { format: CSV csv { header: true } label { column: "y" } shuffle: false shuffle_lanes: 1
                       train_files: "%s" eval_files: "%s" }
                features { name: "x" numeric {} }
                features { name: "place" categorical {} }
                model { wide_deep { hidden_units: 8 embedding_dim: 4 } }
                optimizers { all { adam {} learning_rate: 0.02 } }
                train { batch_size: 32 epochs: 2 seed: 1 }""" % (files, files))
            result, _ = self.launch("--worker_num=1", "--server_num=1", "--a_sync=false", job=job, name=name)
            digests[name] = result["model_digest"]
            if name == "column":
                continue
            done = self.run_program("sluice", "data", "check", files, "--label=y", "--json")
            self.assertEqual(done.returncode, 0, done.stdout)
            (place,) = json.loads(done.stdout)["folder_columns"]
            self.assertEqual((place["name"], place["distinct"]), ("place", len(values)))
        self.assertEqual(set(digests.values()), {digests["column"]}, digests)
        done = self.run_program("sluice", "data", "check", "s3://data/odd")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn('is a folder; write "s3://data/odd/place=*/*.csv"', done.stdout)

    def test_mistakes_are_named_at_the_start(self):
        for changes, files, words in (
                ({"AWS_SECRET_ACCESS_KEY": "wrongsecret"}, "s3://data/a.csv", "secret key is wrong"),
                ({"AWS_ACCESS_KEY_ID": "AKIAWRONG"}, "s3://data/a.csv", "does not know the access key"),
                ({}, "s3://none/a.csv", "no bucket none"),
                ({}, "s3://data/a.csv", "no such object"),
                ({}, "s3://data/none*.csv", "no data file matches"),
                ({}, "gs://data/a.csv", "AWS_ENDPOINT_URL"),
                ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "s3://data/a.csv", "connect")):
            os.environ.update({**self.environment, **changes})
            _, text = self.train(files, expect=2)
            self.assertIn(words, text)
            self.assertNotIn("wrongsecret", text)
        # Of commands that could have met no scheduler either.
        os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
        for files in ("s3://data/*.csv", "s3://data/a.csv"):
            done = self.run_program("sluice", "data", "check", files)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("AWS_ENDPOINT_URL is its address", done.stdout)
            self.assertNotIn("--scheduler", done.stdout)
        os.environ.update(self.environment)
        _, text = self.train("s3://data/day=*/*.csv", "--dry_run")
        self.assertIn("data.train_files", text)
        for output in ("https://host/out", "gs://data/out", "s3://data", "s3://none/out"):
            done = self.run_program("sluice", "launch", "--job=%s" % ADULT, "--output_dir=%s" % output, "--epochs=1")
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn(output, done.stdout)
        self.assertFalse((self.tmp / "s3:").exists() or pathlib.Path("s3:").exists())


def has_store():
    return shutil.which(MOTO_PYTHON) is not None and subprocess.run([MOTO_PYTHON, "-c", "import moto.server, boto3"],
                                                                    stderr=subprocess.DEVNULL).returncode == 0


def skip_without_store():
    if not has_store():
        print("SKIPPED, NOT PASSED: needs moto in build/python-env (CI=true ./dev test) or in SLUICE_MOTO_PYTHON",
              file=sys.stderr)
        sys.exit(77)


if __name__ == "__main__":
    skip_without_store()
    unittest.main()
