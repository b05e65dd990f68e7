import io
import os
import socket
import subprocess
import sys
import unittest

from socket_cutter import SocketCutter, why_no_cuts

REASON = why_no_cuts()

# Accepts two connections at the abstract name, and prints when one of them ends.
CHILD = """
import socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print("listening", flush=True)
ends = [listener.accept()[0] for _ in range(2)]
print("accepted", flush=True)
for end in ends:
    print(repr(end.recv(100)), flush=True)
"""


@unittest.skipIf(REASON, REASON)
class SocketCutterTest(unittest.TestCase):
    def connect(self, name):
        child = subprocess.Popen([sys.executable, "-c", CHILD, name], stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "listening\n")
        ends = []
        for _ in range(2):
            end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(end.close)
            end.settimeout(30)
            end.connect("\0" + name)
            ends.append(end)
        self.assertEqual(child.stdout.readline(), "accepted\n")
        return child, ends

    def test_both_ends_see_the_end_of_a_connection_that_is_cut(self):
        name = "cutter-test-%d-a" % os.getpid()
        child, ends = self.connect(name)
        cutter = SocketCutter(lambda: [None, child.pid], name, seed=1, out=io.StringIO())
        cutter.cut_all()
        self.assertEqual(cutter.cuts, 2)
        self.assertEqual([end.recv(100) for end in ends], [b"", b""])
        self.assertEqual([child.stdout.readline() for _ in ends], ["b''\n"] * 2)
        self.assertEqual(child.wait(), 0)

    def test_other_sockets_and_processes_are_left_alone(self):
        name = "cutter-test-%d-b" % os.getpid()
        child, ends = self.connect(name)
        for pids, prefix in ((lambda: [child.pid], "other-"), (lambda: [os.getpid()], name), (lambda: [], name)):
            cutter = SocketCutter(pids, prefix, seed=1, out=io.StringIO())
            cutter.cut_all()
            self.assertEqual(cutter.cuts, 0)
        for end in ends:
            end.send(b"x")
        self.assertEqual([child.stdout.readline() for _ in ends], ["b'x'\n"] * 2)

    def test_cuts_go_on_until_stop(self):
        name = "cutter-test-%d-c" % os.getpid()
        child, ends = self.connect(name)
        cutter = SocketCutter(lambda: [child.pid], name, seed=1, out=io.StringIO())
        cutter.start(mean_s=0.001)
        self.assertEqual([end.recv(100) for end in ends], [b"", b""])
        cutter.stop()
        self.assertGreaterEqual(cutter.cuts, 2)


if __name__ == "__main__":
    unittest.main()
