"""./dev bench --networks: jobs of two hosts whose link is limited, dense tables on the workers beside dense tables on pservers.

The hosts are network namespaces of this machine: they share its cores and disk, but neither local sockets nor shared memory
of Sluice, and each sends and receives at most --mbit. For each number of workers, a cluster has as many pservers. The first
half of the workers is on host a, the others on host b; pserver i is on the host where worker i is not. On this cluster, the
standard model trains in sync mode in turns: dense tables on the pservers, then on the workers (`sync_configs { dense:
COLLECTIVE }`) with each engine. The figure is that of the last epoch. Needs root.
"""
import contextlib
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import turns

sys.path.insert(1, str(turns.ROOT / "tests/faults"))
from net_namespaces import NetNamespaces, remove_abandoned, why_no_namespaces  # noqa: E402

PREFIX = "sluice-bench"  # of the namespaces
WORKERS = (1, 2, 3, 4)
BATCHES = (512, 2048)
COLLECTIVE = "--set=strategy.sync_configs.dense=COLLECTIVE"
START_S, JOB_S = 30, 240  # at most, for the daemons and for one job
SCHEDULER_PORT, PSERVER_PORT, TCP_PORT = 7100, 7200, 7300
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

JOB = """
name: "standard"
data { format: CRITEO_TSV train_files: "%s" }
features { name: "I{1..13}" numeric { log: true } }
features { name: "C{1..26}" categorical { missing_is_value: true } }
model { wide_deep { wide_categorical: false hidden_units: [400, 400, 400] embedding_dim: 10 } }
optimizers { all { sgd {} learning_rate: 0.05 } }
strategy { a_sync: false }
train { epochs: 2 seed: 1 threads: 1 }
checkpoint { save_final_model: false }
"""


def engines(workers):
    """TWO_LEVEL differs from GLOO when a host has several workers."""
    return ("gloo", "two_level") if workers > 2 else ("gloo",)


def name(mbit, batch, workers, engine):
    return "networks/%dmbit/sync/batch%d/workers%d/collective_%s" % (mbit, batch, workers, engine)


def leave(number, _):
    """Ends this program. What it has made is removed on the way out, which another signal does not disturb."""
    for other in ENDS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


@contextlib.contextmanager
def limited_hosts(mbit):
    net = NetNamespaces(["a", "b"], prefix=PREFIX)
    try:
        for host in "ab":
            net.limit(host, mbit * 10**6)
            net.limit_arrivals(host, mbit * 10**6)
        yield net
    finally:
        net.close()


class Cluster:
    """Daemons on hosts a and b. A context manager that ends them."""

    def __init__(self, programs, net, folder, workers):
        self._programs, self._net, self._workers = programs, net, workers
        self._folder = folder / ("workers%d" % workers)
        self._folder.mkdir()
        self._processes, self._jobs = [], 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def _start(self):
        of_workers = ["a" if 2 * i < self._workers else "b" for i in range(self._workers)]
        of_pservers = ["b" if host == "a" else "a" for host in of_workers]
        self._scheduler = "%s:%d" % (self._net.address("a"), SCHEDULER_PORT)
        (self._folder / "cluster").write_text(
            'name: "networks"\nscheduler: "%s"\nworker_num: %d\nsecurity { insecure: true }\n' % (self._scheduler, self._workers)
            + "".join('worker_hosts: "%s"\n' % self._net.address(host) for host in of_workers)
            + "".join('pservers: "%s:%d"\n' % (self._net.address(host), PSERVER_PORT + i) for i, host in enumerate(of_pservers)))
        self._daemon("a", "scheduler")
        for rank, host in enumerate(of_pservers):
            self._daemon(host, "pserver", "--rank=%d" % rank)
        for rank, host in enumerate(of_workers):
            self._daemon(host, "worker", "--rank=%d" % rank, "--threads=1")
        end = time.monotonic() + START_S
        while self._sluice("status").returncode != 0:
            if time.monotonic() > end:
                sys.exit("the scheduler does not answer after %d s:\n%s" % (START_S, self._printed()))
            time.sleep(0.1)

    def _daemon(self, host, role, *flags):
        with open(self._folder / "printed", "ab") as out:
            self._processes.append(subprocess.Popen(
                self._net.command(host, [self._programs / ("sluice-" + role), "--cluster=%s" % (self._folder / "cluster"),
                                        "--log_dir=%s" % (self._folder / ("log-" + host)), *flags]),
                stdout=out, stderr=subprocess.STDOUT, cwd=self._folder, preexec_fn=turns.die_with_parent))

    def _sluice(self, command, *flags, timeout=START_S):
        command = self._net.command("a", [self._programs / "sluice", command, "--scheduler=" + self._scheduler, "--insecure",
                                         *flags])
        return subprocess.run(command, capture_output=True, text=True, cwd=self._folder, timeout=timeout,
                              preexec_fn=turns.die_with_parent)

    def _printed(self):
        return (self._folder / "printed").read_text(errors="replace")[-3000:]

    def train(self, job, batch, *flags):
        """Thousand examples a second of all workers, in the last epoch."""
        self._jobs += 1
        out = self._folder / ("job%d" % self._jobs)
        try:
            done = self._sluice("submit", "--job=%s" % job, "--output_dir=%s" % out, "--worker_num=%d" % self._workers,
                                "--batch_size=%d" % batch, *flags, timeout=JOB_S)
        except subprocess.TimeoutExpired:
            sys.exit("a job with %s has not ended within %d s:\n%s" % (" ".join(flags), JOB_S, self._printed()))
        if done.returncode != 0:
            sys.exit("a job with %s failed:\n%s" % (" ".join(flags), (done.stdout + done.stderr)[-3000:]))
        last = json.loads((out / "result.json").read_text())["epochs_log"][-1]
        return last["examples"] / last["seconds"] / 1e3


def tcp_mbit(net, seconds):
    """Megabits a second of one plain TCP connection from host a to host b."""
    server = net.call("b", lambda: socket.create_server((net.address("b"), TCP_PORT)))
    sender = net.call("a", lambda: socket.create_connection((net.address("b"), TCP_PORT), START_S))
    receiver = server.accept()[0]
    end = time.monotonic() + seconds

    def send():
        with sender:
            while time.monotonic() < end:
                sender.sendall(bytes(1 << 20))
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    received, begin = 0, time.monotonic()
    with server, receiver:
        receiver.settimeout(START_S)
        while True:
            count = len(receiver.recv(1 << 20))
            if count == 0:
                break
            received += count
    thread.join()
    return 8 * received / (time.monotonic() - begin) / 1e6


def measure_batch(options, cluster, job, batch, wanted, rows, may_continue):
    """Adds a row for each (engine, name) in `wanted`."""
    measures = {"pserver": lambda: cluster.train(job, batch)}
    measures.update({engine: lambda engine=engine: cluster.train(
        job, batch, COLLECTIVE, "--set=strategy.sync_configs.engine=" + engine.upper()) for engine, _ in wanted})
    measured = turns.take(measures, options.repetitions, may_continue)
    for engine, of in wanted:
        turns.Rows.print_row(rows.add(of, "k/s", measured[engine], measured["pserver"],
                                      "dense tables on the pservers, in the same turns"))


def measure_link(options, rows):
    with limited_hosts(options.mbit) as net:
        rates = [tcp_mbit(net, 1 if options.quick else 3) for _ in range(options.repetitions)]
    turns.Rows.print_row(rows.add("networks/%dmbit/tcp" % options.mbit, "Mbit/s", rates, [options.mbit], "the limit of the link"))


def measure_jobs(options, folder, rows):
    data = folder / "train.tsv"
    turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % (20_000 if options.quick else 300_000),
               "--output=%s" % data])
    job = folder / "job.textproto"
    job.write_text(JOB % data)
    deadline = time.monotonic() + 60 * options.max_minutes
    for workers in WORKERS:
        wanted = {batch: [(engine, name(options.mbit, batch, workers, engine)) for engine in engines(workers)
                          if re.search(options.filter, name(options.mbit, batch, workers, engine))]
                  for batch in (BATCHES[:1] if options.quick else BATCHES)}
        if not any(wanted.values()):
            continue
        with limited_hosts(options.mbit) as net, Cluster(options.bin, net, folder, workers) as cluster:
            for batch, of in wanted.items():
                if of:
                    measure_batch(options, cluster, job, batch, of, rows, lambda: time.monotonic() < deadline)


def parse():
    flags = turns.flags(__doc__, repetitions=3)
    flags.add_argument("--quick", action="store_true", help="few examples, once: shows that everything runs, not how fast")
    flags.add_argument("--mbit", type=int, default=1000, help="megabits a second that a host sends, and that it receives")
    flags.add_argument("--max_minutes", type=float, default=30, help="later rows have fewer repetitions when this is over")
    options = flags.parse_args()
    if options.quick:
        options.repetitions = 1
    known = [name(options.mbit, batch, workers, engine) for workers in WORKERS for batch in BATCHES for engine in engines(workers)]
    if not any(re.search(options.filter, row) for row in known):
        sys.exit("no row matches --filter=%s; rows are\n  %s" % (options.filter, "\n  ".join(known)))
    return options


def main():
    options = parse()
    reason = why_no_namespaces(limits=True)
    if reason:
        sys.exit("./dev bench --networks: %s; run it as root of a machine that allows network namespaces" % reason)
    for number in ENDS:
        signal.signal(number, leave)
    remove_abandoned(PREFIX)
    rows = turns.Rows()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice_networks_"))
    try:
        turns.Rows.print_header("value", "limit")
        measure_link(options, rows)
        measure_jobs(options, folder, rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows.write(options.json)


if __name__ == "__main__":
    main()
