"""What training costs whose data lies on a store: on S3 beside local files, and on S3 with latency beside none.

    python3 bench/store_reads.py [--examples=300000] [--delay_ms=50] [--filter=standard] [--quick]

Trains on generated click data (73 MB) in async, on 1 pserver and 2 workers, for two epochs: the first parses the files (`cold`),
the second maps the parsed data that the first has kept (`warm`). The places take turns. nginx on loopback is the store (Debian:
apt-get install nginx-light): it answers anonymous GETs of ranges with ETag and If-Match, and takes far less of the cores that the job
needs than a store in Python would. Latency is a pause before each answer, since not every kernel can delay packets; connections
open without it. Only the standard library is needed here. Rows, for the standard model and for a light one, which mostly reads:
  {cold,warm}/s3     examples a second of an epoch, beside local files; the goal of cold is 0.9
  {cold,warm}/delay  the same with latency, beside s3; the goal is 0.95
  cpu/s3, cpu/delay  CPU seconds of the whole launch, beside local files
  cpu/server         CPU seconds of the store in a run of s3, beside those of the launch: taken from the job's own cores
  requests/s3        requests of a run, beside the MiB of the files
  bytes/s3           MB that the store sent in a run, beside the size of the files
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import turns

BUCKET, FILES = "bucket", 8
START_S = 20

JOB = """
name: "store-reads"
data { format: CRITEO_TSV %s }
features { name: "I{1..13}" numeric { log: true } }
features { name: "C{1..26}" categorical { missing_is_value: true } }
model { wide_deep { wide_categorical: false hidden_units: [%s] embedding_dim: %d } }
optimizers { all { sgd {} learning_rate: 0.05 } }
strategy { a_sync: true }
train { epochs: 2 batch_size: 2048 seed: 1 threads: 1 }
checkpoint { every_s: 0 at_end: false save_final_model: false }
"""
MODELS = {"standard": ("400, 400, 400", 10), "light": ("16", 4)}

SERVER = """
daemon off;
master_process off;
pid %(folder)s/pid;
error_log %(folder)s/errors;
load_module %(modules)s/ngx_http_echo_module.so;
events { worker_connections 1024; }
http {
  sendfile on;
  keepalive_requests 1000000000;
  log_format sent "$status $bytes_sent";
  client_body_temp_path %(folder)s;
  proxy_temp_path %(folder)s;
  fastcgi_temp_path %(folder)s;
  uwsgi_temp_path %(folder)s;
  scgi_temp_path %(folder)s;
  default_type application/octet-stream;
  root %(root)s;
  server {
    listen 127.0.0.1:%(s3)d;
    access_log %(folder)s/s3 sent;
  }
  server {
    listen 127.0.0.1:%(delay)d;
    access_log %(folder)s/delay sent;
    location / { echo_sleep %(delay_s).3f; echo_exec @files; }
    location @files { }
  }
}
"""


class Store:
    """nginx on two ports of loopback, one of which waits before each answer. A context manager that ends it."""

    def __init__(self, folder, root, delay_s):
        self._folder = folder
        folder.mkdir()
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        modules = nginx and pathlib.Path(nginx).resolve().parents[1] / "lib/nginx/modules"
        if not nginx or not (modules / "ngx_http_echo_module.so").exists():
            sys.exit("there is no nginx with its module echo; apt-get install nginx-light")
        with contextlib.ExitStack() as held:
            sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            self._ports = dict(zip(("s3", "delay"), (one.getsockname()[1] for one in sockets)))
        config = folder / "nginx.conf"
        config.write_text(SERVER % {"folder": folder, "root": root, "modules": modules, "delay_s": delay_s, **self._ports})
        self._process = subprocess.Popen([nginx, "-c", config, "-e", folder / "errors"], preexec_fn=turns.die_with_parent)

    def __enter__(self):
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._ports["delay"]), START_S).close()
                return self
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    sys.exit("nginx does not answer (%s): %s" % (error, (self._folder / "errors").read_text()))
                time.sleep(0.05)

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def url(self, place):
        return "http://127.0.0.1:%d" % self._ports[place]

    def cpu_s(self):
        fields = pathlib.Path("/proc/%d/stat" % self._process.pid).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sent(self, place):
        """(requests, bytes) so far."""
        lines = [line.split() for line in (self._folder / place).read_text().splitlines()]
        bad = [line for line in lines if line[0] not in ("200", "206")]
        if bad:
            sys.exit("the store answered with HTTP %s" % bad[0][0])
        return len(lines), sum(int(line[1]) for line in lines)


def used_cpu_s():
    """Of the programs that have ended."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


class Job:
    """Runs of one model, each with no data kept from an earlier one."""

    def __init__(self, options, folder, store, files, model):
        self._options, self._folder, self._store, self._files, self._model = options, folder, store, files, model

    def run(self, place):
        """The figures of a run, by name."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
        names = ["s3://%s/%s" % (BUCKET, file.name) for file in self._files] if place != "local" else self._files
        (folder / "job.textproto").write_text(JOB % ("".join('train_files: "%s" ' % name for name in names), *MODELS[self._model]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        if place != "local":
            environment.update(AWS_ENDPOINT_URL=self._store.url(place), AWS_SKIP_SIGNATURE="true")
        server_before, before = self._store.cpu_s(), used_cpu_s()
        sent_before = self._store.sent(place) if place != "local" else (0, 0)
        turns.run([self._options.bin / "sluice", "launch", "--job=%s" % (folder / "job.textproto"), "--worker_num=2", "--server_num=1",
                   "--output_dir=%s" % (folder / "out"), "--log_dir=%s" % (folder / "log")], env=environment)
        figures = {"cpu": used_cpu_s() - before, "server": self._store.cpu_s() - server_before}
        sent = self._store.sent(place) if place != "local" else (0, 0)
        figures["requests"], figures["bytes"] = sent[0] - sent_before[0], (sent[1] - sent_before[1]) / 1e6
        for name, epoch in zip(("cold", "warm"), json.loads((folder / "out/result.json").read_text())["epochs_log"]):
            if epoch["examples"] != self._options.examples:
                sys.exit("%d examples were trained in an epoch, not %d" % (epoch["examples"], self._options.examples))
            figures[name] = epoch["examples"] / epoch["seconds"]
        shutil.rmtree(folder)
        return figures


def measure(options, job, model, size, rows):
    runs = turns.take({place: lambda place=place: job.run(place) for place in ("local", "s3", "delay")}, options.repetitions)

    def figures(place, name):
        return [run[name] for run in runs[place]]

    def add(name, unit, values, limits, limit_name):
        turns.Rows.print_row(rows.add("store_reads/%s/%s" % (model, name), unit, values, limits, limit_name))

    for epoch in ("cold", "warm"):
        add(epoch + "/s3", "examples/s", figures("s3", epoch), figures("local", epoch), "local files, in the same turns")
        add(epoch + "/delay", "examples/s", figures("delay", epoch), figures("s3", epoch), "s3 without latency, in the same turns")
    for place in ("s3", "delay"):
        add("cpu/" + place, "s", figures(place, "cpu"), figures("local", "cpu"), "local files, in the same turns")
    add("cpu/server", "s", figures("s3", "server"), figures("s3", "cpu"), "the launch")
    add("requests/s3", "requests", figures("s3", "requests"), [size / (1 << 20)], "MiB of the files")
    add("bytes/s3", "MB", figures("s3", "bytes"), [size / 1e6], "the files")
    local, s3, server = (statistics.median(figures(place, name)) for place, name in (("local", "cpu"), ("s3", "cpu"), ("s3", "server")))
    print("%s: were both epochs bound by CPU alone, s3 would reach %.2f of local, and %.2f with the store on another machine" %
          (model, local / (s3 + server), local / s3), flush=True)


def main():
    flags = turns.flags(__doc__, repetitions=5)
    flags.add_argument("--quick", action="store_true", help="few examples, once: shows that everything runs, not how fast")
    flags.add_argument("--examples", type=int, default=300000)
    flags.add_argument("--delay_ms", type=float, default=50, help="latency of each request")
    options = flags.parse_args()
    if options.quick:
        options.repetitions, options.examples = 1, 20000
    models = [model for model in MODELS if re.search(options.filter, model)]
    if not models:
        sys.exit("no model matches --filter=%s; models are %s" % (options.filter, ", ".join(MODELS)))
    rows = turns.Rows()
    with tempfile.TemporaryDirectory(prefix="sluice-store-reads-") as name:
        folder = pathlib.Path(name)
        turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % options.examples, "--files=%d" % FILES,
                   "--output=%s" % (folder / "root" / BUCKET)])
        files = sorted((folder / "root" / BUCKET).glob("*.tsv"))
        size = sum(file.stat().st_size for file in files)
        with Store(folder / "store", folder / "root", options.delay_ms / 1000) as store:
            turns.Rows.print_header("value", "beside")
            for model in models:
                measure(options, Job(options, folder, store, files, model), model, size, rows)
    rows.write(options.json)


if __name__ == "__main__":
    main()
