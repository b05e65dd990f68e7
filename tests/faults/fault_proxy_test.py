"""Each fault does to a stream what it says, and a seed breaks it at the same places again."""
import io
import os
import socket
import threading
import time
import unittest

from fault_proxy import (BOTH, FROM_TARGET, TO_TARGET, Delay, Drop, Duplicate, FaultProxy, HalfClose, Reset, Throttle,
                         Truncate)

WAIT = 20  # seconds until a test gives up
DATA = bytes(i * 7 % 251 for i in range(20000))


def read_all(end):
    """What arrives until the end of the stream, and whether it ended with a reset."""
    got = b""
    try:
        while True:
            data = end.recv(65536)
            if not data:
                return got, False
            got += data
    except ConnectionResetError:
        return got, True


def read_exactly(end, size):
    got = b""
    while len(got) < size:
        data = end.recv(size - len(got))
        if not data:
            raise AssertionError("%d of %d bytes arrived" % (len(got), size))
        got += data
    return got


class FaultProxyTest(unittest.TestCase):
    def setUp(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(WAIT)
        self.addCleanup(self.server.close)

    def proxy(self, seed=1):
        proxy = FaultProxy(seed, out=io.StringIO())
        self.addCleanup(proxy.close)
        self.port = proxy.forward(self.server.getsockname())
        return proxy

    def connect(self):
        """The client's end and the target's end of a new connection."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)
        target, _ = self.server.accept()
        target.settimeout(WAIT)
        for end in (client, target):
            self.addCleanup(end.close)
        return client, target

    def assert_resets_a_new_client(self):
        """The RST may come before connect() returns."""
        with self.assertRaises(ConnectionResetError), \
                socket.create_connection(("127.0.0.1", self.port), timeout=WAIT) as client:
            client.recv(1)

    def round_trip(self, client, target, data=b"ping"):
        begin = time.monotonic()
        client.sendall(data)
        target.sendall(read_exactly(target, len(data)))
        self.assertEqual(read_exactly(client, len(data)), data)
        return time.monotonic() - begin

    # ------------------------------------------------------------------------------------------------- no fault

    def test_bytes_and_ends_pass(self):
        proxy = self.proxy()
        client, target = self.connect()
        sender = threading.Thread(target=lambda: (client.sendall(DATA * 500), client.shutdown(socket.SHUT_WR)))
        sender.start()
        self.assertEqual(read_all(target), (DATA * 500, False))
        sender.join()
        target.sendall(DATA)  # this direction is still open
        target.close()
        self.assertEqual(read_all(client), (DATA, False))
        self.assertEqual([proxy.count(kind) for kind in (Reset, Truncate, HalfClose, Duplicate)], [0] * 4)

    def test_a_target_that_is_absent_resets(self):
        self.proxy()
        self.server.close()
        self.assert_resets_a_new_client()

    # --------------------------------------------------------------------------------------------- time and rate

    def test_delay(self):
        proxy = self.proxy()
        client, target = self.connect()
        both = proxy.set(Delay(0.2, jitter=0.05))
        self.assertGreaterEqual(self.round_trip(client, target), 0.4)
        proxy.lift(both)
        one = proxy.set(Delay(0.3), FROM_TARGET)
        self.assertGreaterEqual(self.round_trip(client, target), 0.3)
        proxy.lift(one)
        self.assertLess(min(self.round_trip(client, target) for _ in range(5)), 0.2)

    def test_jitter_keeps_the_order(self):
        proxy = self.proxy()
        client, target = self.connect()
        proxy.set(Delay(0, jitter=0.02), TO_TARGET)
        for i in range(50):
            client.sendall(DATA[i * 100:(i + 1) * 100])
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(target), (DATA[:5000], False))

    def test_throttle(self):
        proxy = self.proxy()
        client, target = self.connect()
        rule = proxy.set(Throttle(40000), TO_TARGET)
        begin = time.monotonic()
        client.sendall(DATA)
        self.assertEqual(read_exactly(target, len(DATA)), DATA)
        self.assertGreaterEqual(time.monotonic() - begin, len(DATA) / 40000 - 0.05)

        def seconds_back():
            begin = time.monotonic()
            target.sendall(DATA)
            self.assertEqual(read_exactly(client, len(DATA)), DATA)
            return time.monotonic() - begin
        # The quickest of several: a busy machine may delay one.
        self.assertLess(min(seconds_back() for _ in range(5)), len(DATA) / 40000)
        proxy.lift(rule)
        self.assertLess(min(self.round_trip(client, target, DATA) for _ in range(5)), len(DATA) / 40000)

    # ---------------------------------------------------------------------------------------------------- breaks

    def test_dropped_bytes_leave_the_stream_silent_and_open(self):
        proxy = self.proxy()
        client, target = self.connect()
        self.round_trip(client, target)
        rule = proxy.set(Drop(), TO_TARGET, port=self.port)
        client.sendall(b"lost")
        target.sendall(b"back")
        self.assertEqual(read_exactly(client, 4), b"back")
        deadline = time.monotonic() + WAIT
        while not any("dropped" in note for note in proxy.log.notes) and time.monotonic() < deadline:
            time.sleep(0.01)
        proxy.lift(rule)
        client.sendall(b"lost, too")
        self.round_trip(*self.connect())  # new connections work
        client.shutdown(socket.SHUT_WR)
        self.round_trip(*self.connect())
        target.setblocking(False)
        with self.assertRaises(BlockingIOError):
            target.recv(1)

    def test_reset(self):
        proxy = self.proxy()
        client, target = self.connect()
        proxy.set(Reset(at=1000), TO_TARGET)
        client.sendall(DATA[:1000])
        self.assertEqual(read_exactly(target, 1000), DATA[:1000])
        client.sendall(b"x")
        self.assertEqual(read_all(target), (b"", True))
        self.assertEqual(read_all(client), (b"", True))
        self.assertEqual(proxy.count(Reset), 1)

    def test_a_reset_at_once_meets_idle_and_new_connections_until_it_is_lifted(self):
        proxy = self.proxy()
        client, target = self.connect()
        self.round_trip(client, target)
        rule = proxy.set(Reset())
        self.assertEqual(read_all(client), (b"", True))
        self.assertEqual(read_all(target), (b"", True))
        self.assert_resets_a_new_client()
        self.server.accept()[0].close()
        proxy.lift(rule)
        self.round_trip(*self.connect())

    def test_half_close(self):
        proxy = self.proxy()
        client, target = self.connect()
        proxy.set(HalfClose(at=1500), TO_TARGET)
        client.sendall(DATA)
        self.assertEqual(read_all(target), (DATA[:1500], False))
        target.sendall(DATA)
        self.assertEqual(read_exactly(client, len(DATA)), DATA)
        client.sendall(DATA)  # vanishes
        target.close()
        self.assertEqual(read_all(client), (b"", False))

    def test_truncate(self):
        proxy = self.proxy()
        client, target = self.connect()
        proxy.set(Truncate(at=1500), FROM_TARGET)
        target.sendall(DATA)
        self.assertEqual(read_all(client), (DATA[:1500], False))
        self.assertEqual(read_all(target)[0], b"")

    def test_duplicate(self):
        proxy = self.proxy()
        proxy.set(Duplicate(at=1000, size=50), TO_TARGET)
        client, target = self.connect()
        client.sendall(DATA)
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(target), (DATA[:1000] + DATA[950:], False))

    def test_rules_cover_their_port_and_direction_and_end_with_their_number(self):
        proxy = self.proxy()
        first = self.port
        other = proxy.forward(self.server.getsockname())
        proxy.set(Truncate(at=10, most=2), TO_TARGET, port=first)
        for port, cut in ((other, False), (first, True), (first, True), (first, False)):
            self.port = port
            client, target = self.connect()
            target.sendall(DATA)
            self.assertEqual(read_exactly(client, len(DATA)), DATA)
            client.sendall(DATA[:1000])
            client.shutdown(socket.SHUT_WR)
            self.assertEqual(read_all(target)[0], DATA[:10 if cut else 1000])
        self.assertEqual(proxy.count(Truncate), 2)

    # ---------------------------------------------------------------------------------------------------- replay

    def broken(self, seed, chunk):
        """What three connections deliver when the client sends in chunks of a size."""
        proxy = self.proxy(seed)
        proxy.set(Duplicate(every=2000, size=20), TO_TARGET)
        proxy.set(Truncate(every=30000), TO_TARGET)
        got = []
        for _ in range(3):
            client, target = self.connect()
            try:
                for at in range(0, len(DATA), chunk):
                    client.sendall(DATA[at:at + chunk])
                client.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            got.append(read_all(target)[0])
        self.assertGreater(proxy.count(Duplicate), 5)
        return got

    def test_a_seed_breaks_the_same_places_whatever_the_chunks(self):
        seed = 5
        self.assertEqual(self.broken(seed, 20000), self.broken(seed, 333))
        self.assertNotEqual(self.broken(seed, 20000), self.broken(seed + 1, 20000))

    def test_the_seed_comes_from_the_environment_and_is_printed_with_every_fault(self):
        old = os.environ.get("SLUICE_FAULT_SEED")
        os.environ["SLUICE_FAULT_SEED"] = "77"
        try:
            out = io.StringIO()
            proxy = FaultProxy(out=out)
            self.addCleanup(proxy.close)
        finally:
            del os.environ["SLUICE_FAULT_SEED"]
            if old is not None:
                os.environ["SLUICE_FAULT_SEED"] = old
        self.port = proxy.forward(self.server.getsockname())
        proxy.set(Reset(at=0), BOTH)
        client, _ = self.connect()
        client.sendall(b"x")
        self.assertEqual(read_all(client), (b"", True))
        self.assertIn("SLUICE_FAULT_SEED=77", out.getvalue())
        self.assertRegex(out.getvalue(), r"\d\.\d{3} fault_proxy: listener 0 connection 0 to_target: Reset at byte 0")


if __name__ == "__main__":
    unittest.main()
