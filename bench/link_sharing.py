"""How plain TCP shares limited links in the patterns of a training step, in units of the time that the fullest link needs.

    python3 -B bench/link_sharing.py [--mbit=50] [--rounds=30]

Sync steps: every worker pushes to every pserver, gets an answer from each, commits, and pulls from each what a pserver sends
once all have committed. Exchanges: every rank sends a part of an array to every other one, either to all at once or in turns,
as common/collective/gloo_reduction.h describes. Nothing is computed, so only the links bind. The plan's model of sync steps
(SyncSharing in cli/plan/plan_model.h) is fitted to these figures. Hosts are network namespaces; needs root.
"""
import argparse
import functools
import os
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "faults"))
from net_namespaces import NetNamespaces, why_no_namespaces

PORT = 7000
STEP_BYTES = 600_000  # that a worker pushes, and pulls
ARRAY_BYTES = 884_000  # that ranks exchange; each sends one part of it to each other rank
BURST = 8 << 10  # of the links, small beside a transfer; a busy machine then leaves part of fast links unused
WIRE_BYTES_PER_BYTE = 1.055  # as kWireBytesPerByte of the plan
WARM_UP = 3  # rounds
SYNC_STEPS = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (2, 8), (4, 1), (4, 2), (4, 4), (4, 8), (8, 2)]
RANKS = [2, 3, 4, 6]


def receive(connection, size):
    buffer, got = bytearray(size), 0
    while got < size:
        count = connection.recv_into(memoryview(buffer)[got:])
        if count == 0:
            raise EOFError("the other end closed its connection")
        got += count


class Links:
    """Hosts with limited links, and connections between some of them."""

    def __init__(self, hosts, mbit, pairs):
        self.net = NetNamespaces(hosts)
        try:
            listeners = {host: self.net.call(host, lambda: socket.create_server((self.net.address(host), PORT)))
                         for host in {accepts for _, accepts in pairs}}
            self.ends = {}  # (host, other host) -> the socket at the first one
            for connects, accepts in pairs:
                self.ends[connects, accepts] = self.net.call(
                    connects, lambda: socket.create_connection((self.net.address(accepts), PORT)))
                self.ends[accepts, connects] = listeners[accepts].accept()[0]
            for end in self.ends.values():
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for host in hosts:
                self.net.limit(host, mbit * 10 ** 6, BURST)
                self.net.limit_arrivals(host, mbit * 10 ** 6, BURST)
        except BaseException:
            self.net.close()
            raise


def run_threads(functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def sync_steps(pservers, workers, mbit, rounds):
    """The mean time of a step, in seconds."""
    servers, clients = ["p%d" % i for i in range(pservers)], ["w%d" % i for i in range(workers)]
    links = Links(servers + clients, mbit, [(w, p) for w in clients for p in servers])
    committed = {p: threading.Barrier(workers) for p in servers}
    together = {w: threading.Barrier(pservers) for w in clients}  # a worker's threads
    frame, ends = b"x" * (STEP_BYTES // pservers), []

    def serve(p, w):
        connection = links.ends[p, w]
        for _ in range(rounds):
            receive(connection, len(frame))
            connection.sendall(b"a")
            receive(connection, 1)
            committed[p].wait()
            connection.sendall(frame)

    def work(w, p):
        connection = links.ends[w, p]
        for _ in range(rounds):
            connection.sendall(frame)
            receive(connection, 1)
            together[w].wait()
            connection.sendall(b"c")
            receive(connection, len(frame))
            together[w].wait()
            if (w, p) == (clients[0], servers[0]):
                ends.append(time.monotonic())
    try:
        run_threads([functools.partial(serve, p, w) for p in servers for w in clients]
                    + [functools.partial(work, w, p) for p in servers for w in clients])
    finally:
        links.net.close()
    return (ends[-1] - ends[WARM_UP - 1]) / (len(ends) - WARM_UP)


def exchanges(ranks, in_turns, mbit, rounds):
    """The median time of an exchange, in seconds."""
    hosts = ["h%d" % i for i in range(ranks)]
    links = Links(hosts, mbit, [(hosts[i], hosts[j]) for i in range(ranks) for j in range(i)])
    part = b"x" * (ARRAY_BYTES // ranks)
    begin = threading.Barrier(2 * len(links.ends) + 1)
    end = threading.Barrier(2 * len(links.ends) + 1)
    got = [{(i, d): threading.Event() for i in range(ranks) for d in range(1, ranks)} for _ in range(rounds)]
    seconds = []

    def send(i, distance):
        for events in got:
            begin.wait()
            if in_turns and distance > 1:
                events[i, distance - 1].wait()
            links.ends[hosts[i], hosts[(i + distance) % ranks]].sendall(part)
            end.wait()

    def get(i, distance):
        for events in got:
            begin.wait()
            receive(links.ends[hosts[i], hosts[(i - distance) % ranks]], len(part))
            events[i, distance].set()
            end.wait()

    def watch():
        for _ in range(rounds):
            begin.wait()
            began = time.monotonic()
            end.wait()
            seconds.append(time.monotonic() - began)
    try:
        run_threads([watch] + [functools.partial(function, i, distance) for function in (send, get) for i in range(ranks)
                               for distance in range(1, ranks)])
    finally:
        links.net.close()
    return statistics.median(seconds[WARM_UP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=30)
    flags = parser.parse_args()
    if flags.rounds <= WARM_UP or flags.mbit <= 0:
        sys.exit("--rounds must be more than %d, and --mbit positive" % WARM_UP)
    why = why_no_namespaces(limits=True)
    if why:
        sys.exit("cannot measure: " + why)
    bytes_per_s = flags.mbit * 1e6 / 8 / WIRE_BYTES_PER_BYTE
    for pservers, workers in SYNC_STEPS:
        ideal = 2 * STEP_BYTES * max(1, workers / pservers) / bytes_per_s
        print("sync step, %d pservers, %d workers: %.2f" % (
            pservers, workers, sync_steps(pservers, workers, flags.mbit, flags.rounds) / ideal), flush=True)
    for ranks in RANKS:
        ideal = (ranks - 1) * (ARRAY_BYTES // ranks) / bytes_per_s
        print("exchange, %d ranks: all at once %.2f, in turns %.2f" % (
            ranks, exchanges(ranks, False, flags.mbit, flags.rounds) / ideal,
            exchanges(ranks, True, flags.mbit, flags.rounds) / ideal), flush=True)


if __name__ == "__main__":
    main()
