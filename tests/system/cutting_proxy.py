"""A TCP proxy that breaks the connections through it at seeded random moments.

Put between a worker and a pserver (`--bind` is the pserver's port, `--advertise` the proxy's), the proxy breaks streams
in the middle of frames and replies, as a bad network does.
"""
import random
import socket
import threading


class CuttingProxy:
    """Forwards 127.0.0.1:port to `target`; each connection is reset after a random number of bytes."""

    def __init__(self, target_port, seed, mean_bytes, max_cuts):
        self._target = target_port
        self._random = random.Random(seed)
        self._mean = mean_bytes
        self._left = max_cuts
        self.cuts = 0
        self._lock = threading.Lock()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._closed = True
        self._listener.close()

    def _accept(self):
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                budget = [self._random.expovariate(1 / self._mean)] if self._left > 0 else [float("inf")]
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(source, sink, budget), daemon=True).start()

    def _pump(self, source, sink, budget):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                with self._lock:
                    budget[0] -= len(data)
                    cut = budget[0] < 0 and self._left > 0
                    if cut:
                        self._left -= 1
                        self.cuts += 1
                if cut:
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
