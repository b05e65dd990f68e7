"""Hosts as network namespaces of this machine, and a network between them that loses packets, splits and is slow.

    net = NetNamespaces(["a", "b"])                # 10.77.0.1 and 10.77.0.2
    subprocess.Popen(net.command("a", ["sluice-scheduler", ...]))
    net.lose("b", 0.05)                            # of what arrives at b
    net.partition("a", "b")
    net.heal()
    net.close()

The hosts are joined by a bridge in a namespace of its own, so nothing is added to the machine's own network. Losses are
random and cannot be replayed: the kernel draws them. Needs root; why_no_namespaces() says what a machine lacks.
"""
import atexit
import ctypes
import itertools
import os
import re
import shutil
import subprocess
import threading

COMMAND_S = 20  # for one command of ip, nft or tc
CLONE_NEWNET = 0x40000000
LINK = "eth0"  # of each host
_numbers = itertools.count()  # of the networks of this process
TABLE = "sluice_faults"


def _run(*args):
    """OK: "". Otherwise says what failed."""
    try:
        done = subprocess.run(args, capture_output=True, text=True, timeout=COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "%s: %s" % (" ".join(args), error)
    return "" if done.returncode == 0 else "%s failed: %s" % (
        " ".join(args), " ".join((done.stderr or done.stdout).split()))


def why_no_namespaces(faults=False, limits=False):
    """Says why this machine cannot run hosts as network namespaces, "" when it can. Tries each step of such a test.

    `limits`: with limited bandwidth, too. `faults`: also with losses and partitions. A container may let root make a
    namespace but not enter it (`ip netns exec` mounts /sys) or connect it.
    """
    if os.geteuid() != 0:
        return "network namespaces need root"
    needed = {"ip": "iproute2", **({"tc": "iproute2"} if faults or limits else {}), **({"nft": "nftables"} if faults else {})}
    for command, package in needed.items():
        if shutil.which(command) is None:
            return "there is no %s command (%s)" % (command, package)
    try:
        net = NetNamespaces(["a", "b"], prefix="sluice-try")
    except OSError as error:
        return str(error)
    try:
        why = _run(*net.command("a", ["true"]))
        if not why and faults:
            net.lose("a", 0.5)
        if not why and (faults or limits):
            net.limit("a", 10**6)
            net.limit_arrivals("a", 10**6)
        return why
    except OSError as error:
        return str(error)
    finally:
        net.close()


def remove_abandoned(prefix):
    """Removes the namespaces with this prefix whose process was killed before it could remove them. Returns their names."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=COMMAND_S).stdout
    names = re.findall(r"^(%s-(\d+)-\d+-\S+)" % re.escape(prefix), listed, re.M)
    abandoned = [name for name, pid in names if not os.path.exists("/proc/" + pid)]
    for name in abandoned:
        _run("ip", "netns", "del", name)
    return abandoned


class NetNamespaces:
    """Thread safety: one thread."""

    def __init__(self, names, network="10.77.0", prefix="sluice"):
        """OSError when a namespace cannot be made; then none is left. At most 200 hosts, with short names."""
        self._names = list(names)
        self._network = network
        prefix = "%s-%d-%d-" % (prefix, os.getpid(), next(_numbers))
        self._namespaces = {name: prefix + name for name in names}
        self._switch = prefix + "switch"
        self._closed = False
        atexit.register(self.close)
        try:
            self._build()
        except OSError:
            self.close()
            raise

    def _build(self):
        self._must("ip", "netns", "add", self._switch)
        self._must("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        self._must("ip", "-n", self._switch, "link", "set", "switch", "up")
        for name, namespace in self._namespaces.items():
            port = "port%d" % self._names.index(name)
            self._must("ip", "netns", "add", namespace)
            self._must("ip", "-n", namespace, "link", "set", "lo", "up")
            self._must("ip", "-n", namespace, "link", "add", LINK, "type", "veth", "peer", "name", port,
                       "netns", self._switch)
            self._must("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")
            self._must("ip", "-n", namespace, "addr", "add", self.address(name) + "/24", "dev", LINK)
            self._must("ip", "-n", namespace, "link", "set", LINK, "up")

    @staticmethod
    def _must(*args):
        why = _run(*args)
        if why:
            raise OSError(why)

    # ------------------------------------------------------------------------------------------------- the hosts

    def address(self, name):
        return "%s.%d" % (self._network, 1 + self._names.index(name))

    def command(self, name, args):
        """The command line that runs a program on a host. `ip netns exec` becomes the program: the pid is the program's."""
        return ["ip", "netns", "exec", self._namespaces[name], *map(str, args)]

    def call(self, name, function):
        """Calls a function on a thread of this process that is on the host. A socket that it makes stays there."""
        outcome = {}

        def enter_and_call():
            try:
                with open("/var/run/netns/" + self._namespaces[name]) as namespace:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                        raise OSError(ctypes.get_errno(), "cannot enter %s" % self._namespaces[name])
                outcome["value"] = function()
            except BaseException as error:
                outcome["error"] = error
        thread = threading.Thread(target=enter_and_call)
        thread.start()
        thread.join()
        if "error" in outcome:
            raise outcome["error"]
        return outcome["value"]

    # ------------------------------------------------------------------------------------------------ the faults

    def unplug(self, name):
        """Takes a host's link away; its programs see that."""
        self._must("ip", "-n", self._namespaces[name], "link", "set", LINK, "down")

    def plug(self, name):
        self._must("ip", "-n", self._namespaces[name], "link", "set", LINK, "up")

    def lose(self, name, probability, sender=None):
        """Loses packets that arrive at a host, from one sender or from all."""
        source = "ip saddr %s " % self.address(sender) if sender else ""
        below = round(probability * 10000)
        self._drop(name, "%snumgen random mod 10000 < %d drop" % (source, below))

    def partition(self, one, other, one_way=False):
        """No packet goes between two hosts; `one_way`: none from `one` to `other`. Nobody is told."""
        self._drop(other, "ip saddr %s drop" % self.address(one))
        if not one_way:
            self._drop(one, "ip saddr %s drop" % self.address(other))

    def partition_but(self, one, other, ports):
        """As partition, but TCP connections from or to these ports go on."""
        but = ", ".join(map(str, ports))
        for at, sender in ((one, other), (other, one)):
            self._drop(at, "ip saddr %s tcp sport != { %s } tcp dport != { %s } drop" % (self.address(sender), but, but))

    def heal(self):
        """Ends all losses and partitions."""
        for namespace in self._namespaces.values():
            self._must("ip", "netns", "exec", namespace, "nft", "add table inet %s; flush table inet %s" % (TABLE, TABLE))

    def limit(self, name, bits_per_s, burst=None):
        """The most that a host sends. `burst`: bytes that may leave at once after a pause; None: as few as are safe."""
        self._limit(self._namespaces[name], LINK, bits_per_s, burst)

    def limit_arrivals(self, name, bits_per_s, burst=None):
        """The most that arrives at a host. The switch keeps what comes faster waiting, as the port of a real one does."""
        self._limit(self._switch, "port%d" % self._names.index(name), bits_per_s, burst)

    def unlimit(self, name):
        """Ends the limit of what a host sends."""
        self._must("tc", "-n", self._namespaces[name], "qdisc", "del", "dev", LINK, "root")

    def _limit(self, namespace, device, bits_per_s, burst):
        # The queue is served when it is woken, so it must be able to send what has gathered since: at 1 Gbit/s, 32 KiB
        # would leave a quarter of the link unused.
        burst = burst or max(32 << 10, bits_per_s // 8 // 1000)
        self._must("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
                   "rate", "%dbit" % bits_per_s, "burst", str(burst), "latency", "400ms")

    def _drop(self, name, rule):
        """Adds a rule for what arrives: what is dropped on its way out would be an error to the sending program."""
        self._must("ip", "netns", "exec", self._namespaces[name], "nft",
                   "add table inet %s; add chain inet %s arrives { type filter hook input priority 0; }; "
                   "add rule inet %s arrives iifname %s %s" % (TABLE, TABLE, TABLE, LINK, rule))

    def close(self):
        """Removes the namespaces. Programs that still run in them keep a network that leads nowhere."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        for namespace in (*self._namespaces.values(), self._switch):
            _run("ip", "netns", "del", namespace)
