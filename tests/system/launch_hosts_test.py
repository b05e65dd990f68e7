"""sluice launch --hosts on hosts with ssh servers: it starts, checks, survives, and leaves nothing behind."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from sluice_testing import ADULT, BIN, ROOT, SluiceTest, wait_until
from ssh_hosts import SshHostsTest, why_no_ssh_hosts

REASON = why_no_ssh_hosts()
SCRIPT = ROOT / "examples" / "adult_wide_deep.py"
if REASON:
    print("SKIPPED, NOT PASSED: " + REASON, file=sys.stderr)


class HostFlagsTest(SluiceTest):
    def test_flags_that_contradict_the_list_are_refused(self):
        for flags, pattern in ((["--hosts=a:2,b:2", "--worker_num=3"], r"--worker_num=3 .*4 workers"),
                               (["--hosts=a:x"], r"--hosts=a:x: 'a:x' has no number"),
                               (["--hosts=a", "--ips=b"], r"--hosts and --ips"),
                               (["-H", "a:1", "--ports=7100-7100"], r"--ports=7100-7100 has 1 port"),
                               (["--ips=a,b", "--scheduler_host=c"], r"--scheduler_host=c is not in the list"),
                               (["--hosts_file=none"], r"none cannot be read"),
                               (["--ship"], r"--ship without --hosts"),
                               (["--hosts=a", "--gpus=0"], r"--gpus with --hosts"),
                               (["--hosts=a", "--program=%s" % SCRIPT, "--pdb"], r"--program with --pdb"),
                               (["--hosts=a,b", "--program=%s" % SCRIPT, "--worker_num=3"], r"--worker_num=3 .*2 workers")):
            job = [] if any("--program" in flag for flag in flags) else ["--job=%s" % ADULT]
            done = self.run_program("sluice", "launch", *job, *flags)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertRegex(done.stdout, pattern)


@unittest.skipIf(REASON, REASON)
class LaunchHostsTest(SshHostsTest):
    def command(self, *flags, hosts="a:1,b:1", name="run"):
        return [BIN / "sluice", "launch", "--job=%s" % ADULT, "--hosts=%s" % hosts,
                "--output_dir=%s" % (self.tmp / name), "--log_dir=%s" % (self.tmp / (name + ".log")),
                "--progress=plain", *flags]

    def launch_on(self, *flags, expect=0, hosts="a:1,b:1", name="run"):
        """Runs the command on host a to its end; returns its output."""
        code, out = self.run_on("a", *self.command(*flags, hosts=hosts, name=name))
        self.assertEqual(code, expect, out)
        return out

    def start_on(self, *flags, hosts="a:1,b:1", name="run"):
        with open(self.tmp / (name + ".out"), "wb") as out:
            process = subprocess.Popen(self.on("a", *self.command(*flags, hosts=hosts, name=name)),
                                       stdout=out, stderr=subprocess.STDOUT)
        self._started.append(process)
        return process

    def output(self, name="run"):
        return (self.tmp / (name + ".out")).read_text()

    def result(self, name="run"):
        return json.loads((self.tmp / name / "result.json").read_text())

    def await_training(self, process, name="run", steps=1):
        """Waits until a worker has printed so many lines of steps since now."""
        before = len(re.findall(r"\bloss\b", self.output(name)))

        def trains():
            self.assertIsNone(process.poll(), self.output(name))
            return len(re.findall(r"\bloss\b", self.output(name))) >= before + steps
        wait_until(trains, lambda: "training:\n" + self.output(name))

    def assert_no_daemon_left(self, hosts="ab"):
        begin = time.monotonic()
        left = lambda: {h: self.daemons_on(h) + self.processes_on(h, "host-guard") for h in hosts}
        wait_until(lambda: not any(left().values()), lambda: "left: %s" % left())
        print("nothing was left after %.1f s; 15 s are promised" % (time.monotonic() - begin), file=sys.stderr)
        # The guards' folders have the keys.
        for host in hosts:
            if self.hosts[host].process.poll() is None:
                find = lambda: subprocess.run(self.on(host, "sh", "-c", "ls -d /tmp/sluice-own-* 2>/dev/null"),
                                              capture_output=True, text=True).stdout
                wait_until(lambda: find() == "", find)

    # -------------------------------------------------------------------------------------------------------- it works

    def test_two_hosts_train_to_the_bits_of_one(self):
        self.add_hosts("ab", b={"noisy": True})
        flags = ("--a_sync=false", "--epochs=1", "--set=train.threads=2")
        out = self.launch_on(*flags, "--ports=7100-7110", "--show_logs")
        self.assertRegex(out, r"(?m)^.*b workerlog\.1: .*7100")
        logs = sorted(p.name for p in (self.tmp / "run.log").glob("*log.*"))
        self.assertLessEqual({"schedulerlog.0", "serverlog.0", "serverlog.1", "workerlog.0", "workerlog.1"}, set(logs))
        self.assertIn("hosts: a (scheduler, 1 worker), b (1 worker); mutual TLS", out)
        self.assert_no_daemon_left()
        one, _ = self.launch(*flags, "--server_num=2", "--worker_num=2", name="one")
        self.assertEqual(self.result()["model_digest"], one["model_digest"])

    def test_shipped_programs_run_where_none_are_installed(self):
        self.add_hosts("ab", b={"hidden": [BIN], "noisy": True})
        out = self.launch_on("--epochs=1", expect=2, name="bare")
        self.assertRegex(out, r"b has no sluice.*--ship")
        cache = os.path.expanduser("~root/.cache/sluice")
        self.run_on("b", "sh", "-c", "for i in 1 2 3; do mkdir -p %s/old$i; touch -d 2020-01-0$i %s/old$i; done" % (cache, cache))
        out = self.launch_on("--epochs=1", "--ship", name="first")
        self.assertRegex(out, r"sends the programs to b \(")
        self.assertEqual(self.result("first")["status"], "done")
        kept = self.run_on("b", "ls", cache)[1].split()
        self.assertEqual(len(kept), 3, kept)
        self.assertNotIn("old1", kept)
        # Sent once.
        self.assertNotIn("sends the programs", self.launch_on("--epochs=1", "--ship", name="second"))
        self.assert_no_daemon_left()

    # ------------------------------------------------------------------------------------------------------ the checks

    def test_everything_that_is_wrong_on_a_host_is_named_before_anything_starts(self):
        version = "#!/bin/sh\necho sluice version 0.0.9\n[ $1 = --version ]\n"
        library = next(line.split()[2] for line in subprocess.run(["ldd", BIN / "sluice-worker"], capture_output=True, text=True)
                       .stdout.splitlines() if "libgloo" in line or "libdnnl" in line)
        self.add_hosts("abcdefgh", c={"down": True}, d={"wrong_key": True}, e={"over": {os.path.realpath(library): ""}},
                       f={"over": {BIN / "sluice": version}}, g={"ahead_s": 120}, h={"tmp_size": "8m"})
        hosts = "a,b,c,d,e,f,g,h"
        out = self.launch_on(hosts=hosts, expect=2)
        for pattern in (r"c cannot be reached .*Connection refused", r"d refuses the key", r"e: sluice-worker does not run: .*librar",
                        r"f: sluice is another version there, '0\.0\.9'", r"g: its clock is 1[1-9]\d s ahead of",
                        r"h: the disk is full"):
            self.assertRegex(out, pattern)
        self.assertNotRegex(out, r"(?m)^  (a|b)\b")
        self.assertNotIn("logs in", out)
        # A folder of the same name that is not the same.
        for host in "ab":
            self.run_on(host, "mkdir", "/tmp/out")
        out = self.launch_on("--output_dir=/tmp/out/run", hosts="a,b", expect=2)
        self.assertRegex(out, r"b: output_dir: /tmp/out is not the same folder")
        # Without TLS, the time of day is only compared.
        out = self.launch_on("--epochs=1", "--notls", hosts="a,g", name="late")
        self.assertRegex(out, r"warning: g: its clock is 1[1-9]\d s ahead of")
        self.assertEqual(self.result("late")["status"], "done")
        self.assert_no_daemon_left("abdefgh")

    # --------------------------------------------------------------------------------------------------------- the ends

    def endless(self, *flags, **kwargs):
        launcher = self.start_on("--a_sync=false", "--epochs=100000", "--set=train.log_every=20",
                                 "--set=checkpoint.every_steps=200", *flags, **kwargs)
        self.await_training(launcher)
        return launcher

    def test_an_interrupt_saves_the_job_and_ends_all_hosts(self):
        self.add_hosts("ab")
        launcher = self.endless()
        self.assertEqual(self.signal_launcher("a", signal.SIGINT), 1)
        self.exit_code(launcher)
        out = self.output()
        self.assertRegex(out, r"to continue from .*:\n  sluice launch .*--hosts=a:1,b:1.* --resume")
        self.assert_no_daemon_left()

    def test_a_killed_launcher_leaves_no_orphan(self):
        self.add_hosts("ab")
        self.endless()
        self.assertTrue(self.daemons_on("b"))
        self.assertEqual(self.kill_launcher("a"), 1)
        self.assert_no_daemon_left()

    def test_a_cut_network_leaves_no_orphan(self):
        self.add_hosts("ab")
        launcher = self.endless()
        self.net.partition("a", "b")
        self.assert_no_daemon_left("b")
        self.signal_launcher("a", signal.SIGTERM)
        self.exit_code(launcher)
        self.assert_no_daemon_left()

    def test_the_daemons_of_a_dead_host_start_on_another(self):
        self.add_hosts("abcd")
        launcher = self.endless("--server_num=3", hosts="a:1,b:1,c:1,d:1")
        self.hosts["b"].kill()
        wait_until(lambda: re.search(r"sluice-worker rank 1 runs again on (c|d|a)", self.output()) and
                   re.search(r"sluice-pserver rank 1 runs again on (c|d|a)", self.output()), self.output)
        self.assertRegex(self.output(), r"host b is lost")
        self.await_training(launcher, steps=3)
        self.signal_launcher("a", signal.SIGINT)
        self.exit_code(launcher)
        self.assert_no_daemon_left("acd")

    def test_a_killed_daemon_starts_again_on_its_host(self):
        self.add_hosts("ab")
        launcher = self.endless()
        (pid, _), = self.daemons_on("b", "worker")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: re.search(r"sluice-worker rank 1 on b \(pid \d+\) was killed by signal 9.*started again", self.output())
                   and "sluice-worker rank 1 runs again on b" in self.output(), self.output)
        self.await_training(launcher, steps=3)
        self.signal_launcher("a", signal.SIGINT)
        self.exit_code(launcher)

    def test_the_loss_of_the_schedulers_host_ends_the_run_with_the_command_that_resumes(self):
        self.add_hosts("ab")
        launcher = self.endless("--scheduler_host=b")
        wait_until(lambda: "checkpoint of step" in self.output(), self.output)
        self.hosts["b"].kill()
        self.assertEqual(self.exit_code(launcher), 1, self.output())
        self.assertRegex(self.output(), r"to continue from .*step-\d+:\n  sluice launch .* --resume")
        self.assert_no_daemon_left("a")


if __name__ == "__main__":
    unittest.main()
