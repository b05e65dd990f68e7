"""The systemd units and deploy/README.md are valid, use flags that exist, and are true."""
import ctypes.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import unittest

from sluice_testing import BIN, ROOT, TIME_SCALE, SluiceTest, commands_by_hand, free_port, wait_until

UNITS = sorted((ROOT / "deploy").glob("*.service"))
README = (ROOT / "deploy" / "README.md").read_text()
ANALYZE = shutil.which("systemd-analyze")
# The largest exposure by `systemd-analyze security`, from 0 to 10. 8.6 is a unit that only drops its privileges. What
# remains is the network, and for workers the code that oneDNN makes.
EXPOSURE = {"sluice-pserver@.service": 1.5, "sluice-scheduler.service": 1.5, "sluice-worker@.service": 1.7}
NO_SANDBOX = ("there is no systemd-analyze" if ANALYZE is None else
              "there is no libseccomp" if ctypes.util.find_library("seccomp") is None else
              "sanitizers need more system calls" if TIME_SCALE > 1 else None)
# PR_SET_MDWE, which stands for MemoryDenyWriteExecute here.
OLD_KERNEL = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2]) < (6, 3)


def setting(unit, name):
    return re.findall(r"^%s=(.*)$" % name, unit.read_text(), re.M)


class DeployTest(SluiceTest):
    def test_each_daemon_has_its_unit(self):
        self.assertEqual([unit.name for unit in UNITS],
                         ["sluice-pserver@.service", "sluice-scheduler.service", "sluice-worker@.service"])
        for unit in UNITS:
            with self.subTest(unit.name):
                # All hosts write into one output_dir, so the user must be fixed and not made up at each start.
                self.assertEqual((setting(unit, "User"), setting(unit, "Group")), (["sluice"], ["sluice"]))
                self.assertEqual(setting(unit, "DynamicUser"), [])
                self.assertEqual((setting(unit, "StateDirectory"), setting(unit, "LogsDirectory")),
                                 (["sluice"], ["sluice"]))
                # Units start with the host, after its network, and again after a failure.
                self.assertEqual((setting(unit, "WantedBy"), setting(unit, "After"), setting(unit, "Restart")),
                                 (["multi-user.target"], ["network-online.target"], ["on-failure"]))
                # 2: wrong flags or files; 5: another scheduler has taken the cluster over.
                final = "2 5" if unit.name == "sluice-scheduler.service" else "2"
                self.assertEqual(setting(unit, "RestartPreventExitStatus"), [final])
                self.assertEqual(setting(unit, "SuccessExitStatus"), ["130 143"])
                # A daemon ends itself 20 s after a signal; systemd must wait longer.
                self.assertGreater(int(setting(unit, "TimeoutStopSec")[0]), 20)

    @unittest.skipIf(ANALYZE is None, "there is no systemd-analyze")
    def test_systemd_accepts_them(self):
        for unit in UNITS:
            # `verify` demands that ExecStart exists, so use the built programs, and that Documentation is well formed.
            name = unit.name.replace("@", "@0")
            text = unit.read_text().replace("/usr/bin/sluice", str(BIN) + "/sluice")
            (self.tmp / name).write_text(text)
            done = subprocess.run([ANALYZE, "verify", "--man=no", str(self.tmp / name)], capture_output=True, text=True)
            mine = [line for line in done.stderr.splitlines() if "sluice" in line]
            self.assertEqual((done.returncode, mine), (0, []), done.stderr)

    @unittest.skipIf(ANALYZE is None, "there is no systemd-analyze")
    def test_units_are_confined(self):
        self.assertEqual([unit.name for unit in UNITS], sorted(EXPOSURE))
        for unit in UNITS:
            with self.subTest(unit.name):
                done = subprocess.run([ANALYZE, "security", "--no-pager", "--offline=true", str(unit)],
                                      capture_output=True, text=True)
                exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)[1])
                self.assertLessEqual(exposure, EXPOSURE[unit.name], done.stdout)
                # The folders that a unit may write are those where jobs may write.
                self.assertEqual(setting(unit, "ReadWritePaths"), [])
                self.assertEqual(setting(unit, "Environment"), ["SLUICE_OUTPUT_ROOT=/var/lib/sluice"])

    def run_in_sandbox(self, units):
        """Runs a job on daemons that each run under the limits of a unit: {program: unit}. Returns submit's result."""
        scheduler = "127.0.0.1:%d" % free_port()
        (self.tmp / "out").mkdir()
        self.write_csv("out/train.csv", [(i % 2, i, "abc"[i % 3]) for i in range(40)])
        job = self.small_job(train="out/train.csv", evaluation="out/train.csv")
        daemons = []
        for program, unit in units.items():
            member = ["--rank=0", "--scheduler=localhost:" + scheduler.split(":")[1]]
            flags = ["--bind=" + scheduler, "--server_num=1", "--worker_num=1"] if "scheduler" in program else member
            daemons.append(self.start(
                sys.executable, "-B", ROOT / "tests" / "system" / "unit_sandbox.py", unit, BIN / program, *flags,
                "--log_dir=%s" % (self.tmp / "log"), log=program + ".out",
                env={**os.environ, "SLUICE_OUTPUT_ROOT": str(self.tmp / "out")}))
        wait_until(lambda: self.members(scheduler), "both members")
        done = self.run_program("sluice", "submit", "--job=%s" % job, "--scheduler=" + scheduler,
                                "--output_dir=%s" % (self.tmp / "out" / "job"))
        self.run_program("sluice", "down", "--scheduler=" + scheduler)
        self.assertEqual([self.exit_code(daemon) for daemon in daemons], [0, 0, 0])
        return done

    @unittest.skipIf(NO_SANDBOX, NO_SANDBOX)
    @unittest.skipIf(OLD_KERNEL, "the kernel cannot forbid a process to make code")
    def test_a_job_runs_within_the_limits_of_the_units(self):
        done = self.run_in_sandbox({shlex.split(setting(unit, "ExecStart")[0])[0].split("/")[-1]: unit
                                    for unit in UNITS})
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipIf(NO_SANDBOX, NO_SANDBOX)
    @unittest.skipIf(OLD_KERNEL, "the kernel cannot forbid a process to make code")
    def test_workers_cannot_compute_when_they_may_not_make_code(self):
        # Why sluice-worker@.service does without MemoryDenyWriteExecute.
        units = {unit.name.split(".")[0].rstrip("@"): unit for unit in UNITS}
        self.assertEqual(setting(units["sluice-worker"], "MemoryDenyWriteExecute"), [])
        strict = self.tmp / "strict.service"
        strict.write_text(units["sluice-worker"].read_text() + "MemoryDenyWriteExecute=yes\n")
        done = self.run_in_sandbox({**units, "sluice-worker": strict})
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("oneDNN", done.stdout)

    @unittest.skipIf(ANALYZE is None, "there is no systemd-analyze")
    def test_systemd_rejects_a_wrong_unit(self):
        (self.tmp / "broken.service").write_text("[Service]\nExecStart=/nowhere/sluice\nRestart=perhaps\n")
        done = subprocess.run([ANALYZE, "verify", "--man=no", str(self.tmp / "broken.service")], capture_output=True,
                              text=True)
        self.assertIn("broken.service", done.stderr)

    def test_the_daemons_run_with_the_flags_of_the_units(self):
        scheduler = "127.0.0.1:%d" % free_port()
        cluster = self.tmp / "cluster.textproto"
        cluster.write_text('version: 1\nscheduler: "%s"\npservers: "127.0.0.1:%d"\nworker_num: 1\n' % (
            scheduler, free_port()))
        started = []
        for unit in UNITS:
            line, = setting(unit, "ExecStart")
            program, *flags = shlex.split(line.replace("%i", "0"))
            self.assertEqual(os.path.dirname(program), "/usr/bin")
            folders = {"/etc/sluice/cluster.textproto": str(cluster), "/var/log/sluice": str(self.tmp / "log")}
            for flag in flags:
                self.assertTrue("=/" not in flag or flag.split("=")[1] in folders, flag)
            for path, real in folders.items():
                flags = [flag.replace(path, real) for flag in flags]
            started.append(self.start(os.path.basename(program), *flags))
        status = wait_until(lambda: self.members(scheduler), "both members")
        self.assertIn("pserver", status)
        self.sluice("down", self.tmp / "log")
        self.assertEqual([self.exit_code(process) for process in started], [0, 0, 0])

    def members(self, scheduler):
        done = self.run_program("sluice", "status", "--scheduler=%s" % scheduler)
        return done.stdout if done.stdout.count(" alive ") == 2 else ""

    def test_readme_and_the_cluster_file_name_the_same_commands(self):
        by_hand = commands_by_hand()
        said = {"host A": [], "host B": [], "either host": []}
        where = None
        for line in (ROOT / "configs" / "two_hosts_cluster.textproto").read_text().splitlines():
            match = re.match(r"#   (?:(host [AB]|any):)? *(sluice.*)", line)
            if match:
                where = match.group(1) or where
                said["either host" if where == "any" else where].append(match.group(2).split())
        self.assertEqual(said["host A"], by_hand["host A"])
        self.assertEqual(said["host B"], by_hand["host B"])
        self.assertEqual(said["either host"], by_hand["either host"][:1])

    def test_readme_names_only_units_folders_and_files_that_exist(self):
        for name in re.findall(r"systemctl \w+(?: --now)? ([^`|,:\n]*)", README):
            for unit in name.split():
                stem = re.sub(r"@.*", "@", unit)
                self.assertTrue(unit == "daemon-reload" or (ROOT / "deploy" / (stem + ".service")).exists(), unit)
        for path in re.findall(r"(?:configs|deploy)/[\w.*-]+", README):
            self.assertTrue(list(ROOT.glob(path)), path)
        text = "".join(unit.read_text() for unit in UNITS)
        for path in ("/etc/sluice/cluster.textproto", "/etc/sluice/sluice.env", "/var/log/sluice", "/var/lib/sluice"):
            self.assertIn(path, text)
            self.assertIn(path, README)
        for variable in re.findall(r"`(SLUICE_\w+)`", README):
            self.assertIn(variable, (ROOT / "common" / "daemon" / "identity.h").read_text())


if __name__ == "__main__":
    if ANALYZE is None:
        print("skipped in part: there is no systemd-analyze", file=sys.stderr)
    unittest.main()
