"""A TCP relay between clients and a port of this host."""
import socket
import threading


class Relay:
    """Passes connections on to the port `target`, and keeps the first bytes that each client sends."""
    KEPT = 1 << 18

    def __init__(self, port, target):
        self.sent = []  # a bytearray for each connection
        self.target = target  # of connections that come later
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self._sockets += [client, server]
            self.sent.append(bytearray())
            for source, to, kept in ((client, server, self.sent[-1]), (server, client, None)):
                threading.Thread(target=self._pass_on, args=(source, to, kept), daemon=True).start()

    def _pass_on(self, source, to, kept):
        try:
            while content := source.recv(1 << 18):
                if kept is not None and len(kept) < self.KEPT:
                    kept += content
                to.sendall(content)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        for one in self._sockets:
            one.close()
