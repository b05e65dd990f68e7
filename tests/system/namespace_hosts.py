"""A base class for tests of daemons on two hosts, a and b, as network namespaces of this machine."""
import json
import os
import subprocess

from sluice_testing import ADULT, BIN, PATIENCE, TIME_SCALE, SluiceTest
from net_namespaces import NetNamespaces

A, B = "10.77.0.1", "10.77.0.2"


class NamespaceHostsTest(SluiceTest):
    """`file` is the daemons' cluster file, and `access` how commands find the scheduler."""

    access = ["--scheduler=%s:7100" % A, "--insecure"]

    def setUp(self):
        super().setUp()
        self.net = NetNamespaces(["a", "b"])
        self.addCleanup(self.net.close)
        self.assertEqual((self.net.address("a"), self.net.address("b")), (A, B))
        self.file = self.tmp / "cluster.textproto"

    def on(self, host, program, *args):
        """The command line of a program on a host."""
        return self.net.command(host, [BIN / program, *args])

    def daemon(self, host, role, *flags, container=False):
        """Starts a daemon on a host; with `container` in a pid namespace of its own."""
        out = open(self.tmp / ("%s-%s.out" % (host, role)), "ab")
        prefix = ["unshare", "--pid", "--fork", "--kill-child"] if container else []
        # The leak sanitizer looks for threads in /proc, which shows the pids of the outer namespace.
        leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if container else {}
        process = subprocess.Popen(self.net.command(host, [*prefix, BIN / ("sluice-" + role), *flags,
                                                           "--cluster=%s" % self.file,
                                                           "--log_dir=%s" % (self.tmp / ("log-" + host))]),
                                   stdout=out, stderr=subprocess.STDOUT, cwd=self.tmp, env={**os.environ, **leaks})
        out.close()
        self._started.append(process)
        return process

    def run_on(self, host, *args):
        done = subprocess.run(self.on(host, *args), capture_output=True, text=True,
                              timeout=4 * PATIENCE * TIME_SCALE, cwd=self.tmp)
        return done.returncode, done.stdout + done.stderr

    def status_on(self, host="a"):
        """The status of the cluster; {} when the scheduler does not answer."""
        code, out = self.run_on(host, "sluice", "status", *self.access, "--json")
        return json.loads(out) if code == 0 else {}

    def members(self):
        """The status of all members; [] when the scheduler does not answer."""
        return self.status_on().get("members", [])

    def job(self):
        """The status of the first job; {} when there is none."""
        jobs = self.status_on().get("jobs", [])
        return jobs[0] if jobs else {}

    def submit(self, host, name, *flags, expect=0):
        code, out = self.run_on(host, "sluice", "submit", "--job=%s" % ADULT, *self.access,
                                "--output_dir=%s" % (self.tmp / name), *flags)
        self.assertEqual(code, expect, out)
        return json.loads((self.tmp / name / "result.json").read_text()), out
