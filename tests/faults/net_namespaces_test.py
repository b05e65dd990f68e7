"""Hosts reach each other, and each fault of the network does what it says."""
import os
import socket
import subprocess
import sys
import time
import unittest

from net_namespaces import NetNamespaces, remove_abandoned, why_no_namespaces

REASON = why_no_namespaces(faults=True)
NO_LIMITS = why_no_namespaces(limits=True)
for reason in sorted({REASON, NO_LIMITS} - {""}):
    print("skipped: " + reason, file=sys.stderr)

PORT = 7100
WAIT = 20  # seconds until a test gives up
SILENCE_S = 0.3  # without an answer
TRIES = 20  # of what must arrive
ALL_ROUTES = {"ab", "ba", "ac", "ca", "bc", "cb"}


class ThreeHosts(unittest.TestCase):
    def setUp(self):
        self.net = NetNamespaces(["a", "b", "c"])
        self.addCleanup(self.net.close)

    def open(self, host, kind=socket.SOCK_DGRAM, timeout=WAIT):
        made = self.net.call(host, lambda: socket.socket(socket.AF_INET, kind))
        self.addCleanup(made.close)
        made.settimeout(timeout)
        return made

    def listen(self, host, kind=socket.SOCK_DGRAM):
        made = self.open(host, kind)
        made.bind((self.net.address(host), PORT))
        return made


@unittest.skipIf(REASON, REASON)
class NetNamespacesTest(ThreeHosts):
    def arrives(self, sender, receiver, ends, tries=1):
        """True when one of `tries` datagrams gets from one host to another; `ends`: {host: its listening socket}."""
        begin, end = self.open(sender), ends[receiver]
        end.settimeout(SILENCE_S)
        mark = os.urandom(8)  # an earlier datagram may come late
        for _ in range(tries):
            begin.sendto(mark, (self.net.address(receiver), PORT))
            try:
                while end.recv(10) != mark:
                    pass
                return True
            except TimeoutError:
                pass
        return False

    def check_routes(self, ends, open_routes):
        """Exactly `open_routes` carry datagrams. A busy machine may delay one, and a link that comes up may lose one."""
        for route in sorted(ALL_ROUTES):
            expected = route in open_routes
            self.assertEqual(self.arrives(*route, ends, TRIES if expected else 1), expected, route)

    def test_partitions_one_way_and_both_ways(self):
        ends = {host: self.listen(host) for host in "abc"}
        self.check_routes(ends, ALL_ROUTES)
        self.net.partition("a", "b", one_way=True)
        self.check_routes(ends, ALL_ROUTES - {"ab"})
        self.net.partition("b", "c")
        self.check_routes(ends, ALL_ROUTES - {"ab", "bc", "cb"})
        self.net.heal()
        self.check_routes(ends, ALL_ROUTES)

    def test_a_partition_is_silent_for_a_connection(self):
        listener = self.listen("b", socket.SOCK_STREAM)
        listener.listen()
        client = self.open("a", socket.SOCK_STREAM)
        client.connect((self.net.address("b"), PORT))
        server, _ = listener.accept()
        self.addCleanup(server.close)
        server.settimeout(SILENCE_S)
        self.net.partition("a", "b")
        client.sendall(b"late")
        with self.assertRaises(TimeoutError):
            server.recv(10)
        self.net.heal()
        server.settimeout(WAIT)
        self.assertEqual(server.recv(10), b"late")  # TCP sends it again

    def test_an_unplugged_host_knows_it(self):
        self.net.unplug("a")
        with self.assertRaises(OSError) as raised:
            self.open("a").sendto(b"x", (self.net.address("b"), PORT))
        self.assertNotIsInstance(raised.exception, TimeoutError)
        self.net.plug("a")
        ends = {"b": self.listen("b")}
        self.assertTrue(self.arrives("a", "b", ends, TRIES))  # the first ones may be lost while the link comes up

    def count_arrivals(self, sender, receiver, end, count, within):
        """How many of `count` datagrams get from one host to another, whose socket is `end`, at most `within` seconds apart."""
        begin, got = self.open(sender), 0
        for _ in range(count // 100):
            for _ in range(100):  # few enough for the receiver's buffer
                begin.sendto(b"x", (self.net.address(receiver), PORT))
            end.settimeout(within)
            try:
                for _ in range(100):
                    got += len(end.recv(10))
            except TimeoutError:
                pass
        return got

    def test_loss(self):
        end = self.listen("b")
        self.net.lose("b", 0.3, sender="a")
        self.assertTrue(350 < self.count_arrivals("a", "b", end, 600, SILENCE_S) < 490)  # 420 on average, deviation 11
        self.assertEqual(self.count_arrivals("c", "b", end, 600, WAIT), 600)

    def namespaces(self):
        """Those of this process."""
        out = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return [line for line in out.splitlines() if "-%d-" % os.getpid() in line]

    def test_programs_run_on_their_host_and_nothing_is_left(self):
        out = subprocess.run(self.net.command("b", ["ip", "-o", "addr"]), capture_output=True, text=True, check=True).stdout
        self.assertIn(self.net.address("b"), out)
        self.assertNotIn(self.net.address("a"), out)
        self.assertEqual(len(self.namespaces()), 4)
        with self.assertRaises(OSError):
            NetNamespaces(["a"], network="no network")
        self.assertEqual(len(self.namespaces()), 4)
        self.net.close()
        self.assertEqual(self.namespaces(), [])

    def test_namespaces_of_a_killed_process_can_be_removed(self):
        prefix = "sluice-abandoned"
        ours = NetNamespaces(["a"], prefix=prefix)
        self.addCleanup(ours.close)
        killed = subprocess.Popen([sys.executable, "-c", "import os, signal, net_namespaces\n"
                                   "net_namespaces.NetNamespaces(['a'], prefix='%s')\n"
                                   "os.kill(os.getpid(), signal.SIGKILL)" % prefix], cwd=os.path.dirname(__file__))
        killed.wait(WAIT)
        left = {"%s-%d-0-%s" % (prefix, killed.pid, name) for name in ("a", "switch")}
        self.assertEqual(set(remove_abandoned(prefix)), left)
        self.assertEqual(remove_abandoned(prefix), [])
        self.assertEqual(len([name for name in self.namespaces() if name.startswith(prefix)]), 2)


@unittest.skipIf(NO_LIMITS, NO_LIMITS)
class LimitsTest(ThreeHosts):
    def seconds_of(self, size):
        listener = self.listen("b", socket.SOCK_STREAM)
        listener.listen()
        client = self.open("a", socket.SOCK_STREAM)
        client.connect((self.net.address("b"), PORT))
        server, _ = listener.accept()
        listener.close()
        begin = time.monotonic()
        client.sendall(b"x" * size)
        client.close()
        with server:
            server.settimeout(WAIT)
            while server.recv(65536):
                pass
        return time.monotonic() - begin

    def test_bandwidth(self):
        size, bits_per_s = 400000, 5000000
        least = (size - 40000) * 8 / bits_per_s  # without what may burst
        self.net.limit("a", bits_per_s)
        self.assertGreaterEqual(self.seconds_of(size), least)
        self.net.unlimit("a")
        self.assertLess(min(self.seconds_of(size) for _ in range(3)), least)  # a busy machine may delay one

    def test_bandwidth_of_arrivals(self):
        size, bits_per_s = 400000, 5000000
        self.net.limit_arrivals("b", bits_per_s)
        self.assertGreaterEqual(self.seconds_of(size), (size - 40000) * 8 / bits_per_s)


if __name__ == "__main__":
    unittest.main()
