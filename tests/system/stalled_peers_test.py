"""Processes that stop reading: what waits for them is bounded, and the job ends with all its examples."""
import json
import re
import signal
import socket
import struct
import threading
import time
import unittest
import urllib.request

from relay import Relay
from sluice_testing import ADULT, ADULT_TRAIN_EXAMPLES, PATIENCE, TIME_SCALE, SluiceTest, free_port, wait_until

MESSAGE_MIB, QUEUED_MIB = 5, 64  # limits.max_message_mib and limits.max_queued_mib
DEPTH = 4  # train.pipeline_depth
WORKERS = 4
# What a process needs beside the bounded queues: rows and updates of a busier moment, and what the allocator keeps.
OTHER_MIB = 64 * (8 if TIME_SCALE > 1 else 1)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, END_HEADERS = 0, 1, 4, 4
WINDOW = 65535  # bytes of DATA that a peer takes before it must say more (RFC 9113, 6.9.2)
PULL, PUSH = 7, 5  # fields of a FrameHeader


def resident_mib(pid):
    with open("/proc/%d/status" % pid) as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


class MemoryWatch(threading.Thread):
    """The most memory of each process from start() to stop()."""

    def __init__(self, pids):
        super().__init__()
        self.first = {pid: resident_mib(pid) for pid in pids}
        self.most = dict(self.first)
        self._over = threading.Event()

    def run(self):
        while not self._over.wait(0.05):
            self.look()

    def look(self):
        for pid in self.most:
            self.most[pid] = max(self.most[pid], resident_mib(pid))

    def stop(self):
        self._over.set()
        self.join()
        self.look()

    def growth(self, pid):
        return self.most[pid] - self.first[pid]


# ------------------------------------------------------------------------------------------- the data plane

def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def frames(content):
    """(kind, stream, payload) of the whole HTTP/2 frames at the beginning of what a client sent."""
    at = len(PREFACE)
    while at + 9 <= len(content):
        size = int.from_bytes(content[at:at + 3], "big")
        if at + 9 + size > len(content):
            return
        yield content[at + 3], int.from_bytes(content[at + 5:at + 9], "big"), content[at + 9:at + 9 + size]
        at += 9 + size


def messages(content):
    """The whole messages of the first call of a client, with gRPC's five bytes in front."""
    sent = list(frames(content))
    first = next((stream for kind, stream, _ in sent if kind == DATA), None)
    data = b"".join(payload for kind, stream, payload in sent if (kind, stream) == (DATA, first))
    while len(data) >= 5 and len(data) >= 5 + int.from_bytes(data[1:5], "big"):
        end = 5 + int.from_bytes(data[1:5], "big")
        yield data[:end]
        data = data[end:]


def varint(content, at):
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return value, at


def fields_of_header(message):
    """The numbers of the fields in the FrameHeader of a message (proto/pserver.proto)."""
    size, at = varint(message, 5 + 5 + 1)
    end, fields = at + size, set()
    while at < end:
        tag, at = varint(message, at)
        fields.add(tag >> 3)
        value, after = (varint(message, at) if tag & 7 in (0, 2) else (0, at + 8))
        at = after + value if tag & 7 == 2 else after
    return fields


class Greedy(threading.Thread):
    """Opens a stream with the hello of a worker, asks for values as often as HTTP/2 allows, and reads nothing.

    When its stream has ended it begins again, as long as the job runs.
    """

    def __init__(self, port, hello, pull):
        super().__init__()
        self.rounds = 0
        self._port, self._hello, self._pull = port, hello, pull
        self._over = threading.Event()

    def run(self):
        def literal(name, value):
            return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        headers = (b"\x83\x86" + literal(b":path", b"/sluice.Pserver/Exchange") + literal(b":authority", b"sluice") +
                   literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc"))
        pulls = (WINDOW - len(self._hello)) // len(self._pull)
        while not self._over.is_set():
            self.rounds += 1
            with socket.create_connection(("127.0.0.1", self._port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                try:
                    peer.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, headers) +
                                 frame(DATA, 0, 1, self._hello) + frame(DATA, 0, 1, self._pull) * pulls)
                except OSError:
                    pass
                self._over.wait(2)

    def stop(self):
        self._over.set()
        self.join()


# ------------------------------------------------------------------------------------------- the tests

class StalledPeersTest(SluiceTest):
    def cluster(self, name, limits="", relayed=False):
        """Starts a scheduler, two pservers and the workers by hand. With `relayed`, pserver 0 is reached by self.relay."""
        self.log_dir = self.tmp / (name + ".log")
        self.scheduler = "127.0.0.1:%d" % free_port()
        self.ports = [free_port() for _ in range(2)]
        advertised = list(self.ports)
        if relayed:
            advertised[0] = free_port()
            self.relay = Relay(advertised[0], self.ports[0])
            self.addCleanup(self.relay.close)
        file = self.tmp / (name + ".textproto")
        file.write_text('version: 1 name: "%s" scheduler: "%s" worker_num: %d\n%slimits { %s %s }\n' % (
            name, self.scheduler, WORKERS, "".join('pservers: "127.0.0.1:%d"\n' % port for port in advertised),
            "max_message_mib: %d max_queued_mib: %d" % (MESSAGE_MIB, QUEUED_MIB), limits))
        common = ["--cluster=%s" % file, "--log_dir=%s" % self.log_dir]
        self.log_dir.mkdir()
        scheduler = self.start("sluice-scheduler", *common)
        self.pservers = [self.start("sluice-pserver", "--rank=%d" % rank, "--bind=127.0.0.1:%d" % port, *common)
                         for rank, port in enumerate(self.ports)]
        self.workers = [self.start("sluice-worker", "--rank=%d" % rank, "--transport=grpc", *common) for rank in range(WORKERS)]
        self.daemons = [scheduler, *self.pservers, *self.workers]

    def down(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            self.exit_code(daemon)

    def start_job(self, name, epochs, *flags):
        """Starts a job and returns its command when it trains."""
        job = self.start("sluice", "submit", "--scheduler=%s" % self.scheduler, "--job=%s" % ADULT,
                         "--worker_num=%d" % WORKERS, "--epochs=%d" % epochs, "--output_dir=%s" % (self.tmp / name),
                         "--threads=1", "--set=model.wide_deep.hidden_units=512,512", "--set=eval.every_epochs=0",
                         "--set=train.pipeline_depth=%d" % DEPTH, *flags, log=name + ".out")

        def trains():
            self.assertIsNone(job.poll(), self.output(name))
            return re.search(r"step [1-9]", self.output(name))
        wait_until(trains, lambda: "training in:\n" + self.output(name))
        return job

    def output(self, name):
        return (self.tmp / (name + ".out")).read_text()

    def result_of(self, job, name, epochs):
        """The result of a job, which must have trained every example of every epoch."""
        self.assertEqual(self.exit_code(job, 4 * PATIENCE), 0, self.output(name))
        result = json.loads((self.tmp / name / "result.json").read_text())
        self.assertEqual(result["status"], "done", result)
        self.assertEqual(result["examples"], epochs * ADULT_TRAIN_EXAMPLES)
        self.assertEqual(result["recovery"]["worker_losses"], 0, result["recovery"])
        return result

    # --------------------------------------------------------------------------------- a pserver that is stopped

    def stop_a_pserver(self, name, seconds, limits, epochs, *flags):
        """Stops pserver 1 for so long while a job trains. Returns the job's result, with the memory checked."""
        self.cluster(name, limits)
        before = self.start_job(name + "-calm", epochs, "--a_sync=true", *flags)
        calm = self.result_of(before, name + "-calm", epochs)["examples_per_second"]
        job = self.start_job(name, epochs, "--a_sync=true", *flags)
        others = [self.pservers[0], *self.workers]
        self.pservers[1].send_signal(signal.SIGSTOP)
        watch = MemoryWatch([process.pid for process in others])
        watch.start()
        try:
            time.sleep(seconds)
            self.assertIsNone(job.poll(), self.output(name))
        finally:
            watch.stop()
            self.pservers[1].send_signal(signal.SIGCONT)
        result = self.result_of(job, name, epochs)
        worker_mib = max(watch.growth(worker.pid) for worker in self.workers)
        pserver_mib = watch.growth(self.pservers[0].pid)
        rate = result["examples"] / max(0.001, result["examples"] / result["examples_per_second"] - seconds)
        print("%s: while a pserver was stopped for %g s, a worker grew by at most %.1f MiB, the other pserver by %.1f MiB; "
              "%.0f examples/s without the time of the stop, %.2f of those of a calm run"
              % (name, seconds, worker_mib, pserver_mib, rate, rate / calm), flush=True)
        # A worker has DEPTH steps under way, and a step's gradients are no longer than a message.
        self.assertLess(worker_mib, DEPTH * MESSAGE_MIB + OTHER_MIB)
        self.assertLess(pserver_mib, QUEUED_MIB + OTHER_MIB)
        self.down()
        return result

    def test_a_pserver_stopped_for_less_than_its_lease_costs_only_the_time(self):
        result = self.stop_a_pserver("short", 5, "lease_ms: 20000", 8)
        self.assertEqual(result["recovery"]["pserver_losses"], 0, result["recovery"])
        self.assertEqual(result["examples_replayed"], 0)

    def test_a_pserver_stopped_for_longer_than_its_lease_comes_back_from_its_checkpoint(self):
        result = self.stop_a_pserver("long", 16, "lease_ms: 8000", 8, "--set=checkpoint.every_s=0.5")
        self.assertEqual(result["recovery"]["pserver_losses"], 1, result["recovery"])
        self.assertEqual(result["recovery"]["rollbacks"], 0, result["recovery"])

    # --------------------------------------------------------------------------------- a worker that does not read

    def hello_and_pull(self):
        """The hello and the first request of a worker that only pulls, as gRPC messages."""
        for sent in self.relay.sent:
            first = list(messages(bytes(sent)))
            pulls = [m for m in first[1:] if PULL in fields_of_header(m) and PUSH not in fields_of_header(m)]
            if pulls:
                return first[0], pulls[0]
        return None

    def streams_cut(self):
        """What pserver 0 counts."""
        line = next(line for line in (self.log_dir / "endpoints.log").read_text().splitlines()
                    if line.startswith("pserver 0 "))
        with urllib.request.urlopen("http://%s/metrics" % line.split()[4], timeout=PATIENCE) as page:
            return int(re.search(r"^sluice_pserver_streams_cut_total (\d+)", page.read().decode(), re.M).group(1))

    def train(self, name, epochs, greedy):
        """Trains while so many peers ask pserver 0 for values and do not read. Returns the examples per second."""
        self.cluster(name, relayed=True)
        job = self.start_job(name, epochs, "--a_sync=true")
        hello, pull = wait_until(self.hello_and_pull, "a worker's first messages")
        peers = [Greedy(self.ports[0], hello, pull) for _ in range(greedy)]
        watch = MemoryWatch([self.pservers[0].pid])
        for thread in [watch, *peers]:
            thread.start()
        try:
            result = self.result_of(job, name, epochs)
        finally:
            for thread in [watch, *peers]:
                thread.stop()
        cut, log = self.streams_cut(), (self.log_dir / "serverlog.0").read_text()
        growth = watch.growth(self.pservers[0].pid)
        print("%s: %.0f examples/s with %d peers that do not read; %d streams of %d were cut; the pserver grew by %.1f MiB"
              % (name, result["examples_per_second"], greedy, cut, sum(p.rounds for p in peers), growth), flush=True)
        self.assertLess(growth, QUEUED_MIB + OTHER_MIB)
        # Nobody who reads is cut.
        self.assertLessEqual(cut, sum(peer.rounds for peer in peers))
        self.assertEqual(cut > 0, greedy > 0)
        self.assertEqual(len(re.findall(r"ended /sluice.Pserver/Exchange of 127\.0\.0\.1:\d+: .*max_queued_mib", log)), cut)
        self.assertEqual(result["recovery"]["pserver_losses"], 0, result["recovery"])
        self.assertEqual(result["examples_replayed"], 0)
        self.down()
        return result["examples_per_second"]

    def test_peers_that_do_not_read_are_cut_and_workers_train_on(self):
        calm = self.train("calm", 8, greedy=0)
        stalled = self.train("stalled", 8, greedy=4)
        print("examples/s beside peers that do not read: %.2f of those of a calm run" % (stalled / calm), flush=True)


if __name__ == "__main__":
    unittest.main()
