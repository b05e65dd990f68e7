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
SYSUSERS = shutil.which("systemd-sysusers")
TMPFILES = SYSUSERS and shutil.which("systemd-tmpfiles")
# The largest exposure by `systemd-analyze security`, from 0 to 10. 8.6 is a unit that only drops its privileges. What
# remains is the network, and for workers the code that oneDNN makes.
EXPOSURE = {"sluice-pserver@.service": 1.5, "sluice-scheduler.service": 1.5, "sluice-worker@.service": 1.6}
NO_SANDBOX = ("there is no systemd-analyze" if ANALYZE is None else
              "there is no libseccomp" if ctypes.util.find_library("seccomp") is None else
              "sanitizers need more system calls" if TIME_SCALE > 1 else None)
# Of a group that no account has; the numbers after it are users.
GROUP = 61000
# PR_SET_MDWE, which stands for MemoryDenyWriteExecute here.
OLD_KERNEL = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2]) < (6, 3)


def role_of(unit):
    return re.fullmatch(r"sluice-(\w+)@?\.service", unit.name)[1]


def setting(unit, name):
    return re.findall(r"^%s=(.*)$" % name, unit.read_text(), re.M)


class DeployTest(SluiceTest):
    def test_each_daemon_has_its_unit(self):
        self.assertEqual([unit.name for unit in UNITS],
                         ["sluice-pserver@.service", "sluice-scheduler.service", "sluice-worker@.service"])
        for unit in UNITS:
            with self.subTest(unit.name):
                role = role_of(unit)
                # All hosts write into one output_dir, so the user must be fixed and not made up at each start.
                self.assertEqual(setting(unit, "DynamicUser"), [])
                # No role can read the key, state or log of another one; all can write for jobs.
                self.assertEqual((setting(unit, "User"), setting(unit, "Group"), setting(unit, "UMask")),
                                 (["sluice-" + role], ["sluice"], ["0002"]))
                self.assertEqual((setting(unit, "LogsDirectory"), setting(unit, "LogsDirectoryMode")),
                                 (["sluice/" + role], ["0700"]))
                self.assertEqual(setting(unit, "StateDirectory"), [])
                self.assertEqual(setting(unit, "EnvironmentFile"),
                                 ["-/etc/sluice/sluice.env", "-/etc/sluice/%s.env" % role])
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
                self.assertEqual(setting(unit, "ReadWritePaths"), ["/var/lib/sluice"])
                self.assertEqual(setting(unit, "Environment"), ["SLUICE_OUTPUT_ROOT=/var/lib/sluice"])

    def test_units_limit_their_memory(self):
        # gRPC 1.51 lets callers use memory without end; the host must outlive that.
        for unit in UNITS:
            limit, = setting(unit, "MemoryMax")
            self.assertLessEqual(int(re.fullmatch(r"(\d+)%", limit)[1]), 90, unit.name)

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
            role = role_of(unit)
            folders = {"/etc/sluice/cluster.textproto": str(cluster),
                       "/var/log/sluice/" + role: str(self.tmp / "log" / role)}
            for flag in flags:
                self.assertTrue("=/" not in flag or flag.split("=")[1] in folders, flag)
            for path, real in folders.items():
                flags = [flag.replace(path, real) for flag in flags]
            started.append(self.start(os.path.basename(program), *flags))
        status = wait_until(lambda: self.members(scheduler), "both members")
        self.assertIn("pserver", status)
        self.sluice("down", self.tmp / "log" / "scheduler")
        self.assertEqual([self.exit_code(process) for process in started], [0, 0, 0])

    @unittest.skipIf(TMPFILES is None, "there is no systemd-sysusers or systemd-tmpfiles")
    @unittest.skipIf(os.geteuid() != 0, "only root can give files to other users")
    def test_each_role_gets_a_user_and_private_folders(self):
        (self.tmp / "etc").mkdir()
        for program, file in ((SYSUSERS, "sysusers.conf"), (TMPFILES, "tmpfiles.conf")):
            command = [program, "--root=%s" % self.tmp, str(ROOT / "deploy" / file)]
            if program == TMPFILES:
                command.insert(1, "--create")
            subprocess.run(command, check=True, capture_output=True, text=True)
        group, = re.findall(r"^sluice:x:(\d+):", (self.tmp / "etc/group").read_text(), re.M)
        users = dict(re.findall(r"^(\S+):x:(\d+):%s:" % group, (self.tmp / "etc/passwd").read_text(), re.M))
        self.assertEqual(sorted(users), sorted(setting(unit, "User")[0] for unit in UNITS))
        self.assertEqual(len(set(users.values())), len(UNITS))
        for unit in UNITS:
            keys = (self.tmp / "etc/sluice" / role_of(unit)).stat()
            self.assertEqual((keys.st_mode & 0o7777, keys.st_uid), (0o700, int(users[setting(unit, "User")[0]])))
            self.assertEqual(setting(unit, "WorkingDirectory"), ["/var/lib/sluice"])
        jobs = (self.tmp / "var/lib/sluice").stat()
        self.assertEqual((jobs.st_mode & 0o7777, jobs.st_uid, jobs.st_gid), (0o2775, 0, int(group)))

    @unittest.skipIf(os.geteuid() != 0, "only root can start processes of other users")
    def test_roles_with_their_own_users_make_checkpoints_and_a_model_together(self):
        self.tmp.chmod(0o755)
        out = self.tmp / "out"
        out.mkdir()
        os.chown(out, 0, GROUP)
        out.chmod(0o2775)
        self.write_csv("out/train.csv", [(i % 2, i, "abc"[i % 3]) for i in range(40)])
        job = self.small_job(train="out/train.csv", evaluation="out/train.csv", extra="checkpoint { every_steps: 2 }")
        scheduler = "127.0.0.1:%d" % free_port()
        flags = {"scheduler": ["--bind=" + scheduler, "--server_num=1", "--worker_num=1"]}
        daemons = {}
        for user, unit in enumerate(UNITS, start=GROUP + 1):
            role = role_of(unit)
            log = self.tmp / ("log." + role)
            log.mkdir(mode=int(setting(unit, "LogsDirectoryMode")[0], 8))
            os.chown(log, user, GROUP)
            # Without TLS, daemons on loopback serve and call only their own user and root.
            daemons[role] = user, self.start(
                "sluice-" + role, *flags.get(role, ["--rank=0", "--scheduler=" + scheduler]), "--any_local_user",
                "--log_dir=%s" % log, log=role + ".out", user=user, group=GROUP, extra_groups=[],
                umask=int(setting(unit, "UMask")[0], 8), env={**os.environ, "SLUICE_OUTPUT_ROOT": str(out)})
        wait_until(lambda: self.members(scheduler), "both members")
        done = self.run_program("sluice", "submit", "--job=%s" % job, "--scheduler=" + scheduler, "--any_local_user",
                                "--output_dir=%s" % (out / "job"))
        self.run_program("sluice", "down", "--scheduler=" + scheduler, "--any_local_user")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([self.exit_code(daemon) for _, daemon in daemons.values()], [0, 0, 0])
        owners = {path.stat().st_uid for path in (out / "job").rglob("*")}
        self.assertEqual(owners, {user for user, _ in daemons.values()}, "each role has written files")
        # A process of the worker's user finds the state and log of the scheduler closed.
        reads = subprocess.run(["ls", str(self.tmp / "log.scheduler")], capture_output=True, text=True, check=False,
                               user=daemons["worker"][0], group=GROUP, extra_groups=[])
        self.assertNotEqual(reads.returncode, 0, reads.stdout)

    def members(self, scheduler):
        done = self.run_program("sluice", "status", "--scheduler=%s" % scheduler, "--any_local_user")
        return done.stdout if done.stdout.count(" alive ") == 3 else ""  # and the scheduler

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
