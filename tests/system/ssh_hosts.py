"""Hosts with a root, a network, processes, a name and an ssh server of their own, as namespaces of this machine.

A host of the tests sees this machine's /usr, the tree of the sources and the folder of the test, each at its own path; all
else is its own: /etc, /tmp (a tmpfs), /root and the processes. The folder of the test is what the hosts share.
"""
import os
import pathlib
import shutil
import signal
import subprocess

from sluice_testing import BIN, PATIENCE, ROOT, TIME_SCALE, SluiceTest, kill_unless_over, wait_until
from net_namespaces import NetNamespaces, why_no_namespaces

SSHD = "/usr/sbin/sshd"  # of the Debian package openssh-server
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")  # of the Debian package faketime

# Runs as the first process of the host, before its root is entered.
START = r"""
set -e
hostname "$NAME"
mount --make-rprivate /
mkdir -p "$HOST"
mount -t tmpfs none "$HOST"
cd "$HOST"
mkdir -p usr etc proc dev sys run/sshd var tmp root/.ssh
for link in bin sbin lib lib64; do if [ -L /$link ]; then ln -s usr/$link $link; fi; done
mount --bind /usr usr
mount -t proc none proc
mount --rbind /dev dev
mount -t tmpfs -o size="$TMP_SIZE",mode=1777 none tmp
for folder in $SHARED; do mkdir -p ".$folder"; mount --bind "$folder" ".$folder"; done
for hidden in $HIDDEN; do mount -t tmpfs none ".$hidden"; done
if [ -d "$OVER" ]; then (cd "$OVER" && find . -type f) | while read -r file; do mount --bind "$OVER/$file" "./$file"; done; fi
cp -r "$ETC"/. etc/
cp /etc/ld.so.cache etc/
cp "$ETC"/ssh/id root/.ssh/id_ed25519
chmod 700 root/.ssh && chmod 600 root/.ssh/id_ed25519 etc/ssh/host_key
exec chroot . /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config
"""


def why_no_ssh_hosts():
    """Says why this machine cannot run such hosts, or ""."""
    reason = why_no_namespaces(faults=True)
    if reason:
        return reason
    if not os.access(SSHD, os.X_OK) or shutil.which("ssh") is None:
        return "there is no ssh server (openssh-server)"
    if not FAKETIME.exists():
        return "there is no %s (faketime)" % FAKETIME
    tried = subprocess.run(["unshare", "--mount", "--pid", "--uts", "--fork", "sh", "-c",
                            "mount --make-rprivate / && mount -t tmpfs none /mnt && mount -t proc none /proc"],
                           capture_output=True, text=True)
    return "" if tried.returncode == 0 else "namespaces of mounts are not allowed: " + tried.stderr.strip()


class SshHost:
    """One host. `process` is its first process, seen from outside."""

    def __init__(self, name, process, log):
        self.name, self.process, self.log = name, process, log

    @property
    def pid(self):
        """Of the ssh server, the first process of the host's own pid namespace."""
        children = pathlib.Path("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)).read_text().split()
        return int(children[0]) if children else 0

    def kill(self):
        """Kills all processes of the host."""
        if self.process.poll() is None and self.pid:
            kill_unless_over(self.pid)
        self.process.wait()


class SshHostsTest(SluiceTest):
    """`add_hosts` starts hosts; `on` gives the command line of a program on one of them."""

    def setUp(self):
        super().setUp()
        self.hosts = {}

    def tearDown(self):
        try:
            super().tearDown()
        finally:
            for host in self.hosts.values():
                host.kill()
            if self.hosts:
                self.net.close()

    def add_hosts(self, names="ab", tmp_size="1g", **special):
        """`special`: options by host name: down, wrong_key, noisy (the login shell prints),
        ahead_s, tmp_size, hidden (folders), shared (more folders of this machine), over ({path: text})."""
        self.net = NetNamespaces(list(names))
        keys = self.tmp / "keys"
        keys.mkdir()
        for key in ("host_key", "id", "other"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / key)], check=True)
        self._addresses = "".join("%s %s\n" % (self.net.address(name), name) for name in names)
        for name in names:
            options = {"tmp_size": tmp_size, **special.get(name, {})}
            if not options.get("down"):
                self._start_host(name, **options)
        for host in self.hosts.values():
            wait_until(lambda host=host: "Server listening" in host.log.read_text(), lambda host=host: host.log.read_text())

    def _start_host(self, name, tmp_size, wrong_key=False, noisy=False, ahead_s=0, hidden=(), shared=(), over=None):
        etc = self.tmp / ("etc-" + name)
        (etc / "ssh").mkdir(parents=True)
        keys = self.tmp / "keys"
        for key in ("host_key", "id"):
            shutil.copy(keys / key, etc / "ssh" / key)
        shutil.copy(keys / ("other.pub" if wrong_key else "id.pub"), etc / "ssh" / "authorized_keys")
        host_key = (keys / "host_key.pub").read_text().split()
        (etc / "ssh" / "ssh_known_hosts").write_text("* %s %s\n" % tuple(host_key[:2]))
        (etc / "ssh" / "ssh_config").write_text("Host *\n  IdentityFile %s\n" % os.path.expanduser("~root/.ssh/id_ed25519"))
        clock = "SetEnv LD_PRELOAD=%s FAKETIME=+%ds\n" % (FAKETIME, ahead_s) if ahead_s else ""
        (etc / "ssh" / "sshd_config").write_text(
            "HostKey /etc/ssh/host_key\nPidFile none\nUsePAM no\nStrictModes no\nPermitRootLogin yes\n"
            "AuthorizedKeysFile /etc/ssh/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n" + clock)
        shell = etc / "noisy"
        shell.write_text("#!/bin/sh\necho 3 updates wait\necho 1 ok no\necho no such file >&2\nprintf title\nexec /bin/sh \"$@\"\n")
        shell.chmod(0o755)
        (etc / "passwd").write_text("root:x:0:0:root:/root:%s\n" % ("/etc/noisy" if noisy else "/bin/sh") +
                                    "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
                                    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
        (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n" + self._addresses)
        (etc / "nsswitch.conf").write_text("hosts: files\n")
        over_folder = self.tmp / ("over-" + name)
        for path, text in (over or {}).items():
            file = over_folder / str(path).lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        log = self.tmp / ("sshd-" + name)
        shared = sorted({str(ROOT), str(BIN.parents[2]), str(self.tmp), *map(str, shared)})
        environment = {**os.environ, "NAME": name, "HOST": str(self.tmp / ("root-" + name)), "ETC": str(etc),
                       "TMP_SIZE": tmp_size, "SHARED": " ".join(shared), "HIDDEN": " ".join(map(str, hidden)),
                       "OVER": str(over_folder)}
        with open(log, "wb") as out:
            process = subprocess.Popen(self.net.command(name, ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child",
                                                               "sh", "-c", START]),
                                       stdout=out, stderr=subprocess.STDOUT, env=environment, cwd="/")
        self.hosts[name] = SshHost(name, process, log)

    # -------------------------------------------------------------------------------------------------------- on a host

    def on(self, name, *args):
        """The command line of a program on a host. Signals must go to the program itself: find it by `processes_on`."""
        return ["nsenter", "-t", str(self.hosts[name].pid), "--mount", "--pid", "--uts", "--net", "--root", "--",
                "env", "-C", str(self.tmp), "HOME=/root", *map(str, args)]

    def run_on(self, name, *args, timeout=4 * PATIENCE):
        done = subprocess.run(self.on(name, *args), capture_output=True, text=True, timeout=timeout * TIME_SCALE)
        return done.returncode, done.stdout + done.stderr

    def processes_on(self, name, text="sluice"):
        """(pid outside, command line) of the processes of a host with this text."""
        if self.hosts[name].process.poll() is not None:
            return []
        space, found = os.readlink("/proc/%d/ns/pid" % self.hosts[name].pid), []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or os.readlink(entry / "ns" / "pid") != space:
                    continue
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in command and not command.startswith(("sshd", "/usr/sbin/sshd")):
                found.append((int(entry.name), command))
        return found

    def daemons_on(self, name, role=""):
        return self.processes_on(name, "/sluice-" + role)

    def signal_launcher(self, name, number):
        """Sends a signal to `sluice launch` itself."""
        pids = [pid for pid, command in self.processes_on(name, "sluice launch") if command.split()[0].endswith("/sluice")]
        for pid in pids:
            kill_unless_over(pid, number)
        return len(pids)

    def kill_launcher(self, name):
        return self.signal_launcher(name, signal.SIGKILL)
