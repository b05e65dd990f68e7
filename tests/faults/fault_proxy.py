"""A TCP proxy that breaks the connections through it, by rules that are set and lifted while it runs.

    proxy = FaultProxy(seed=3)
    port = proxy.forward(("127.0.0.1", 7200))              # clients connect to 127.0.0.1:port
    slow = proxy.set(Delay(0.05, jitter=0.02), TO_TARGET)
    proxy.set(Reset(every=100000), port=port)
    proxy.lift(slow)
    proxy.close()

Where a rule breaks a stream depends on the seed, the order of forward(), of connections and of set(), and on the number of
bytes in the stream, not on time or on the sizes in which bytes arrive. `most` and a rule that is set while streams run
depend on time, too. The seed and each fault are printed.
"""
import collections
import dataclasses
import os
import select
import socket
import struct
import threading
import time

from fault_log import FaultLog

TO_TARGET, FROM_TARGET, BOTH = "to_target", "from_target", "both"

READ_BYTES = 65536
PENDING_BYTES = 4 << 20  # of a stream; beyond it the source waits
THROTTLE_SLICE_S = 0.02
CONNECT_S = 10


# ------------------------------------------------------------------------------------------------------ the faults

@dataclasses.dataclass(frozen=True)
class Delay:
    """Each chunk of bytes arrives this much later, plus up to `jitter` seconds. The order stays."""
    seconds: float
    jitter: float = 0


@dataclasses.dataclass(frozen=True)
class Throttle:
    bytes_per_s: float


@dataclasses.dataclass(frozen=True)
class Drop:
    """A black hole: bytes vanish, also the end of the stream, and the connection stays.

    A stream that has lost bytes stays silent after the rule is lifted; new connections work then.
    """


@dataclasses.dataclass(frozen=True)
class AtByte:
    """What happens at a place of the stream, between two bytes.

    `at`: after so many bytes, once a connection. `every`: again and again, after a random number of bytes with this mean.
    Neither: at once, and at the beginning of new connections. Bytes count from the beginning of the connection, or from
    the moment when the rule was set where that is later. `most`: so many times in all connections together.
    """
    at: int = None
    every: float = None
    most: int = None


@dataclasses.dataclass(frozen=True)
class Reset(AtByte):
    """Both sides of the connection get an RST; bytes under way are lost."""


@dataclasses.dataclass(frozen=True)
class HalfClose(AtByte):
    """The receiver sees the end of the stream, and the rest of it vanishes. The other direction continues."""


@dataclasses.dataclass(frozen=True)
class Truncate(AtByte):
    """The bytes before the place arrive, and then both sides see the end of the connection."""


@dataclasses.dataclass(frozen=True)
class Duplicate(AtByte):
    """The `size` bytes before the place are sent again, or those since the rule was set where they are fewer."""
    size: int = 100

    def __post_init__(self):
        if self.at is None and self.every is None:
            raise ValueError("Duplicate needs `at` or `every`: at once there is nothing to repeat")


class _Rule:
    """A fault that is set. `number` names it in the generators; `used` is guarded by the proxy's lock."""

    def __init__(self, number, fault, direction, listener):
        self.number, self.fault, self.direction, self.listener = number, fault, direction, listener
        self.used = 0

    def covers(self, stream):
        return self.direction in (BOTH, stream.direction) and self.listener in (None, stream.listener)


# ---------------------------------------------------------------------------------------------------- the streams

class _Ended(Exception):
    """The connection is over; `reset`: by an RST."""

    def __init__(self, reset):
        super().__init__()
        self.reset = reset


_END, _CLOSE = object(), object()  # in a stream's queue: the end of the stream, and of the connection


class _Stream:
    """One direction of a connection. Belongs to the connection's thread."""

    def __init__(self, proxy, source, sink, listener, connection, direction):
        self.source, self.sink = source, sink
        self.listener, self.direction = listener, direction
        self.finished = False  # the sink has seen the end
        self._proxy = proxy
        self._names = (listener, connection, direction)
        self._received = 0
        self._tail = b""  # the last bytes, for Duplicate
        self._reads = True  # until the source has ended
        self._silent = False  # whatever the source says
        self._queue = collections.deque()  # [time, bytes or mark]
        self._queued = 0
        self._free_at = 0.0  # when the throttle lets the next byte pass
        self._throttle = None
        self._rules = []  # that cover this stream
        self._places = {}  # rule: (generator, the byte where it strikes next, None: never again)

    def note(self, text):
        self._proxy.log.note("listener %d connection %d %s: %s" % (*self._names, text))

    # What the stream waits for.

    def wants_to_read(self):
        return self._reads and self._queued < PENDING_BYTES

    def ready_at(self):
        """When something can be sent; None: not before something is read."""
        return max(self._queue[0][0], self._free_at) if self._queue else None

    # Rules.

    def look_at(self, rules):
        """Takes over the rules in force. Faults that happen at once do so here."""
        mine = [rule for rule in rules if rule.covers(self)]
        self._rules = mine
        throttles = [rule.fault.bytes_per_s for rule in mine if isinstance(rule.fault, Throttle)]
        self._throttle = min(throttles, default=None)
        if self._throttle is None:
            self._free_at = 0.0
        for rule in mine:
            if isinstance(rule.fault, AtByte) and rule not in self._places:
                generator = self._proxy.log.random(*self._names, rule.number)
                self._places[rule] = (generator, self._next_place(rule.fault, generator))
                if rule.fault.at is None and rule.fault.every is None:
                    self._places[rule] = (generator, None)
                    self._strike(rule)

    def _next_place(self, fault, generator):
        if fault.every is not None:
            return self._received + 1 + int(generator.expovariate(1 / fault.every))
        return self._received + (fault.at or 0)

    def _has(self, kind):
        return any(isinstance(rule.fault, kind) for rule in self._rules)

    # Bytes.

    def read(self):
        try:
            data = self.source.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._reads = False
            if self._silent or self._has(Drop):
                return
            raise _Ended(reset=True)
        if not data:
            self._reads = False
        if self._silent:
            return
        if self._has(Drop):
            self._silent = True
            self.note("dropped from byte %d on" % self._received)
        elif not data:
            self._put(_END)
        else:
            self._pass_on(data)

    def _pass_on(self, data):
        while data and not self._silent:
            rule = min((rule for rule in self._rules if self._places.get(rule, (None, None))[1] is not None),
                       key=lambda rule: self._places[rule][1], default=None)
            place = len(data) if rule is None else self._places[rule][1] - self._received
            if rule is None or place >= len(data):
                self._forward(data)
                return
            self._forward(data[:place])
            data = data[place:]
            generator, _ = self._places[rule]
            again = rule.fault.every is not None
            self._places[rule] = (generator, self._next_place(rule.fault, generator) if again else None)
            self._strike(rule)

    def _forward(self, data):
        self._put(data)
        self._received += len(data)
        kept = max((rule.fault.size for rule in self._rules if isinstance(rule.fault, Duplicate)), default=0)
        self._tail = (self._tail + data)[-kept:] if kept else b""

    def _strike(self, rule):
        fault = rule.fault
        if not self._proxy._take(rule):
            self._places[rule] = (None, None)
            return
        self.note("%s at byte %d" % (type(fault).__name__, self._received))
        if isinstance(fault, Reset):
            raise _Ended(reset=True)
        if isinstance(fault, Duplicate):
            self._put(self._tail[-fault.size:])
        else:
            self._silent = True
            self._put(_CLOSE if isinstance(fault, Truncate) else _END)

    def _put(self, item):
        if item == b"":
            return
        due = time.monotonic()
        for rule in self._rules:
            if isinstance(rule.fault, Delay):
                if rule not in self._places:
                    self._places[rule] = (self._proxy.log.random(*self._names, rule.number), None)
                due += rule.fault.seconds + self._places[rule][0].uniform(0, rule.fault.jitter)
        if self._queue:
            due = max(due, self._queue[-1][0])
        self._queue.append([due, item])
        self._queued += len(item) if isinstance(item, bytes) else 0

    def send(self):
        """Sends what is due."""
        while self._queue and time.monotonic() >= self.ready_at():
            item = self._queue[0][1]
            if item is _CLOSE:
                raise _Ended(reset=False)
            if item is _END:
                self._queue.popleft()
                self.finished = True
                try:
                    self.sink.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                continue
            part = item
            if self._throttle is not None:
                part = item[:max(1, int(self._throttle * THROTTLE_SLICE_S))]
            try:
                sent = self.sink.send(part)
            except BlockingIOError:
                return
            except OSError:
                raise _Ended(reset=True)
            if self._throttle is not None:
                self._free_at = max(self._free_at, time.monotonic()) + sent / self._throttle
            self._queued -= sent
            if sent < len(item):
                self._queue[0][1] = item[sent:]
            else:
                self._queue.popleft()


def _close(end, reset):
    """Closes a socket with an RST or with the end of its stream."""
    if reset:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        end.setblocking(False)
        try:
            while end.recv(READ_BYTES):  # the system sends an RST when something is unread
                pass
        except OSError:
            pass
    end.close()


class _Connection:
    """A client's connection and the one to the target, moved by one thread."""

    def __init__(self, proxy, client, target, listener, number):
        self._proxy = proxy
        self._client, self._target_address = client, target
        self._names = (listener, number)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def wake(self):
        os.eventfd_write(self._wake, 1)

    def close(self):
        self._closing = True
        self.wake()

    def _run(self):
        ends = [self._client]
        reset = False
        try:
            target = socket.create_connection(self._target_address, timeout=CONNECT_S)
            ends.append(target)
            for end in ends:
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._move([_Stream(self._proxy, self._client, target, *self._names, TO_TARGET),
                        _Stream(self._proxy, target, self._client, *self._names, FROM_TARGET)])
        except _Ended as ended:
            reset = ended.reset
        except OSError:  # the target does not answer
            reset = True
        for end in ends:
            _close(end, reset)
        self._proxy._forget(self)
        os.close(self._wake)

    def _move(self, streams):
        for stream in streams:
            stream.look_at(self._proxy._rules)
        while not self._closing and not all(stream.finished for stream in streams):
            wanted = collections.Counter()
            sleep_until = None
            for stream in streams:
                if stream.wants_to_read():
                    wanted[stream.source.fileno()] |= select.POLLIN
                ready = stream.ready_at()
                if ready is None:
                    continue
                if ready <= time.monotonic():
                    wanted[stream.sink.fileno()] |= select.POLLOUT
                else:
                    sleep_until = min(ready, sleep_until or ready)
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            for descriptor, events in wanted.items():
                poll.register(descriptor, events)
            timeout = None if sleep_until is None else max(0, sleep_until - time.monotonic()) * 1000 + 1
            seen = dict(poll.poll(timeout))
            if self._wake in seen:
                os.eventfd_read(self._wake)
                for stream in streams:  # before they read what was sent after the change
                    stream.look_at(self._proxy._rules)
            for stream in streams:
                if stream.source.fileno() in seen and stream.wants_to_read():
                    stream.read()
            for stream in streams:
                stream.send()


# ------------------------------------------------------------------------------------------------------ the proxy

class FaultProxy:
    """Forwards TCP connections to their targets and breaks them by the rules that are set.

    Thread safety: safe from any thread.
    """

    def __init__(self, seed=None, out=None):
        self.log = FaultLog("fault_proxy", seed, out)
        self._lock = threading.Lock()
        self._rules = ()  # replaced as a whole
        self._set = 0  # rules ever set
        self._counts = collections.Counter()
        self._listeners = {}  # port: (socket, index)
        self._connections = set()
        self._closed = False

    def forward(self, target, listen=("127.0.0.1", 0)):
        """Listens on an address and forwards to `target`, a (host, port). Returns the port."""
        listener = socket.create_server(listen)
        port = listener.getsockname()[1]
        with self._lock:
            index = len(self._listeners)
            self._listeners[port] = (listener, index)
        threading.Thread(target=self._accept, args=(listener, target, index), daemon=True).start()
        self.log.note("listener %d: port %d to %s:%d" % (index, port, *target))
        return port

    def set(self, fault, direction=BOTH, port=None):
        """Puts a fault in force, for one direction or both, on one port of forward() or all. Returns what lift() takes."""
        with self._lock:
            listener = None if port is None else self._listeners[port][1]
            rule = _Rule(self._set, fault, direction, listener)
            self._set += 1
            self._change(self._rules + (rule,))
        self.log.note("set %s %s%s" % (fault, direction, "" if listener is None else " on listener %d" % listener))
        return rule

    def lift(self, rule):
        with self._lock:
            self._change(tuple(one for one in self._rules if one is not rule))
        self.log.note("lift %s %s" % (rule.fault, rule.direction))

    def count(self, kind):
        """How often a fault of a kind (Reset, HalfClose, Truncate, Duplicate) has happened."""
        with self._lock:
            return self._counts[kind]

    def close(self):
        """Ends all connections and waits for the threads."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
            for listener, _ in self._listeners.values():
                try:
                    listener.shutdown(socket.SHUT_RDWR)  # ends accept()
                except OSError:
                    pass
                listener.close()
            for connection in connections:
                connection.close()
        for connection in connections:
            connection.thread.join()

    def _change(self, rules):
        self._rules = rules
        for connection in self._connections:
            connection.wake()

    def _take(self, rule):
        """Counts a use of the rule; False when it has none left."""
        with self._lock:
            if rule.fault.most is not None and rule.used >= rule.fault.most:
                return False
            rule.used += 1
            self._counts[type(rule.fault)] += 1
            return True

    def _forget(self, connection):
        with self._lock:
            self._connections.discard(connection)

    def _accept(self, listener, target, index):
        number = 0
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    client.close()
                    return
                self._connections.add(_Connection(self, client, target, index, number))
            number += 1
