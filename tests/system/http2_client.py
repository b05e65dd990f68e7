"""A client of HTTP/2 and gRPC that tests make misbehave: it speaks the frames itself, and only as well as it must."""
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5  # settings


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header field without indexing and without Huffman coding (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def grpc_headers(path, encoding=None):
    """The server does not compare the scheme, which is http, with the connection."""
    return (b"\x83\x86" + literal(b":path", path) + literal(b":authority", b"sluice") + literal(b"te", b"trailers")
            + literal(b"content-type", b"application/grpc") + (literal(b"grpc-encoding", encoding) if encoding else b""))


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


class Connection:
    """Keeps to the flow control of the other end, so that messages of any length arrive."""

    def __init__(self, port, timeout, source="127.0.0.1", context=None, window=65535):
        """`context`: an ssl.SSLContext; without it there is no TLS. `window`: the bytes of an answer that it takes."""
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout, source_address=(source, 0))
        if context:
            self.socket = context.wrap_socket(self.socket)
        self.buffer = b""
        self.window = self.initial_window = 65535
        self.windows = {}  # of streams
        self.max_frame = 16384
        self.next_stream = 1
        self.ended = set()  # streams
        self.data = {}  # that has come on each stream
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 28)))

    def close(self):
        self.socket.close()

    def open(self, path, encoding=None):
        """Begins a call by sending its headers; returns its stream."""
        stream = self.next_stream
        self.next_stream += 2
        self.windows[stream] = self.initial_window
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, grpc_headers(path, encoding)))
        return stream

    def call(self, path, message, encoding=None):
        """Makes a whole call; returns when it has ended. `encoding`: in which the message is compressed."""
        stream = self.open(path, encoding)
        rest = memoryview(struct.pack(">BI", 1 if encoding else 0, len(message)) + message)
        while rest and stream not in self.ended:
            n = min(self.max_frame, self.window, self.windows[stream], len(rest))
            if n <= 0:
                self.read_frame()
                continue
            self.socket.sendall(frame(DATA, END_STREAM if n == len(rest) else 0, stream, bytes(rest[:n])))
            self.window -= n
            self.windows[stream] -= n
            rest = rest[n:]
        self.await_end(stream)

    def ask(self, path, message):
        """Begins a call with a short message; returns its stream."""
        stream = self.open(path)
        self.socket.sendall(frame(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message))
        return stream

    def answer(self, stream):
        """The message that a call is answered with."""
        self.await_end(stream)
        return self.data[stream][5:]

    def await_end(self, stream):
        while stream not in self.ended:
            self.read_frame()

    def read_frame(self):
        header = self.read(9)
        length, kind, flags = int.from_bytes(header[:3], "big"), header[3], header[4]
        stream = int.from_bytes(header[5:], "big")
        payload = self.read(length)
        if kind == SETTINGS and not flags & ACK:
            for setting, value in struct.iter_unpack(">HI", payload):
                if setting == INITIAL_WINDOW_SIZE:
                    for other in self.windows:
                        self.windows[other] += value - self.initial_window
                    self.initial_window = value
                elif setting == MAX_FRAME_SIZE:
                    self.max_frame = value
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE:
            self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
        if kind == DATA:
            self.data[stream] = self.data.get(stream, b"") + payload
        if kind == GOAWAY:
            raise EOFError("the server closes the connection: %r" % payload)
        elif kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
            self.ended.add(stream)

    def read(self, n):
        while len(self.buffer) < n:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the server closed the connection")
            self.buffer += data
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken
