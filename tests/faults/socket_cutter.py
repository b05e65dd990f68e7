"""Cuts the local sockets of other processes: both ends see the connection end, at a moment that neither can foresee.

    cutter = SocketCutter(lambda: [pserver.pid], "sluice-", seed=3)
    cutter.start(mean_s=0.05)           # cuts one socket about 20 times a second
    ...
    cutter.stop()
    cutter.cuts

A socket is taken from its process (pidfd_getfd) and shut down in both directions. This stands for what the two processes
cannot do themselves: a stream through shared memory has no proxy in its way. Bytes that lie in the shared memory stay
there. Only sockets are cut that were accepted at an abstract name which begins with `prefix`.
"""
import ctypes
import os
import socket
import threading

from fault_log import FaultLog

PIDFD_OPEN, PIDFD_GETFD = 434, 438  # on every architecture
LISTENS = 0x10000  # a flag of /proc/net/unix
_libc = ctypes.CDLL(None, use_errno=True)


def _system_call(number, *arguments):
    result = _libc.syscall(number, *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def why_no_cuts():
    """The reason why this process may not take sockets of its children; None: it may."""
    ends = socket.socketpair()
    child = os.fork()
    if child == 0:
        ends[1].recv(1)
        os._exit(0)
    try:
        _take(child, ends[0].fileno()).close()
        return None
    except OSError as error:
        return "sockets of other processes cannot be taken (pidfd_getfd): %s" % error
    finally:
        ends[0].send(b"x")
        os.waitpid(child, 0)
        for end in ends:
            end.close()


def _take(pid, descriptor):
    """The same socket as that descriptor of the process."""
    pidfd = _system_call(PIDFD_OPEN, pid, 0)
    try:
        return socket.socket(fileno=_system_call(PIDFD_GETFD, pidfd, descriptor, 0))
    finally:
        os.close(pidfd)


class SocketCutter:
    """Thread safety: one thread; the cuts of start() are made on another."""

    def __init__(self, pids, prefix, seed=None, out=None):
        """`pids`: a function that returns the processes whose sockets are cut; None among them is left out."""
        self._pids, self._prefix = pids, prefix
        self.log = FaultLog("socket_cutter", seed, out)
        self._draw = self.log.random("cuts")
        self._over, self._thread = threading.Event(), None
        self.cuts = 0

    def start(self, mean_s):
        def cut():
            while not self._over.wait(self._draw.expovariate(1 / mean_s)):
                self.cut_one()
        self._thread = threading.Thread(target=cut, daemon=True)
        self._thread.start()

    def stop(self):
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def cut_one(self):
        """Cuts one of the sockets, if there is any."""
        found = self._sockets()
        if found:
            self._cut(*self._draw.choice(found))

    def cut_all(self):
        for pid, descriptor, inode in self._sockets():
            self._cut(pid, descriptor, inode)

    def _cut(self, pid, descriptor, inode):
        try:
            with _take(pid, descriptor) as taken:
                # The process may have closed it and opened something else meanwhile.
                if os.fstat(taken.fileno()).st_ino != inode:
                    return
                taken.shutdown(socket.SHUT_RDWR)
        except OSError:  # the process or its socket has just ended
            return
        self.cuts += 1
        self.log.note("cut socket %d of process %d" % (inode, pid))

    def _sockets(self):
        """(pid, descriptor, inode) of the open sockets, in an order that does not depend on numbers of descriptors."""
        inodes = set()
        with open("/proc/net/unix") as table:
            for line in list(table)[1:]:
                words = line.split()
                if len(words) > 7 and words[7].startswith("@" + self._prefix) and not int(words[3], 16) & LISTENS:
                    inodes.add(int(words[6]))
        found = []
        for pid in self._pids():
            if pid is None:
                continue
            try:
                for name in os.listdir("/proc/%d/fd" % pid):
                    target = os.readlink("/proc/%d/fd/%s" % (pid, name))
                    if target.startswith("socket:[") and int(target[8:-1]) in inodes:
                        found.append((pid, int(name), int(target[8:-1])))
            except OSError:
                continue
        return sorted(found, key=lambda one: one[2])
