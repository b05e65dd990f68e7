"""The Debian package is complete, and works from its own paths. deploy/README.md says how it was installed by hand."""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from sluice_testing import BIN, ROOT, SluiceTest

PROGRAMS = ("sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker")
MISSING = [tool for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "file") if shutil.which(tool) is None]
WHY_NOT = "SKIPPED, NOT PASSED: there is no %s here" % ", ".join(MISSING) if MISSING else None
VERSION = "0.0.1"


def field(package, name):
    return subprocess.run(["dpkg-deb", "-f", package, name], check=True, capture_output=True, text=True).stdout.strip()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class PackageTest(SluiceTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([ROOT / "deploy/package/make.sh", BIN.parent, cls.folder, VERSION], check=True)
        cls.package = cls.folder / ("sluice_%s_amd64.deb" % VERSION)
        cls.root = cls.folder / "root"
        subprocess.run(["dpkg-deb", "-x", cls.package, cls.root], check=True)

    def sluice(self, *args, **variables):
        return subprocess.run([self.root / "usr/bin/sluice", *args], capture_output=True, text=True, cwd=self.tmp,
                              env={"PATH": "/usr/bin:/bin", **variables})

    def test_control_fields_name_the_libraries_and_what_makes_the_users(self):
        self.assertEqual((field(self.package, "Package"), field(self.package, "Version")), ("sluice", VERSION))
        depends = field(self.package, "Depends")
        for name in ("libc6", "libgrpc++1.51", "libprotobuf32", "libsnappy1v5", "systemd | systemd-standalone-sysusers"):
            self.assertRegex(depends, r"(^|, )%s\b" % re.escape(name))
        # Parquet is a package of its own.
        self.assertNotIn("arrow", depends)

    def test_files_belong_to_root_and_lie_where_debian_has_them(self):
        listed = subprocess.run(["dpkg-deb", "-c", self.package], check=True, capture_output=True, text=True).stdout
        files = {}
        for line in listed.splitlines():
            mode, owner, _, _, _, path = line.split(None, 5)
            self.assertEqual(owner, "root/root", line)
            self.assertRegex(mode, r"^(d|-)rw.r-.r-.$", line)
            files[path[1:]] = mode
        self.assertEqual([path for path in files if not path.startswith("/usr/") and path != "/"], [])
        for program in PROGRAMS:
            self.assertEqual(files["/usr/bin/" + program], "-rwxr-xr-x")
        self.assertEqual([path for path in files if "arrow" in path], [])
        # Daemons rotate their own logs.
        self.assertEqual([path for path in files if "logrotate" in path], [])
        for unit in (ROOT / "deploy").glob("*.service"):
            self.assertIn("/usr/lib/systemd/system/" + unit.name, files)
            program = re.search(r"(?m)^ExecStart=(\S+) ", unit.read_text())[1]
            self.assertIn(program, files, unit.name)
            document = re.search(r"(?m)^Documentation=file://(\S+)$", unit.read_text())[1]
            self.assertIn(document, files, unit.name)

    def test_the_scripts_make_and_remove_what_the_package_has(self):
        control = self.folder / "control"
        subprocess.run(["dpkg-deb", "-e", self.package, control], check=True)
        for name in ("postinst", "prerm", "postrm"):
            subprocess.run(["sh", "-n", control / name], check=True)
            self.assertEqual((control / name).stat().st_mode & 0o777, 0o755)
        users = set(re.findall(r"(?m)^u (\S+) ", (self.root / "usr/lib/sysusers.d/sluice.conf").read_text()))
        removed = re.search(r"for user in (.*); do", (control / "postrm").read_text())[1].split()
        self.assertEqual(users, set(removed))

    def test_the_demo_trains_from_the_paths_of_the_package(self):
        demo = self.sluice("demo", "--epochs=1")
        self.assertEqual(demo.returncode, 0, demo.stdout + demo.stderr)
        self.assertGreater(float(re.search(r"final: AUC (\S+)", demo.stdout)[1]), 0.88)
        self.assertTrue((self.tmp / "sluice-demo/output/result.json").exists())
        # Its variables are those of launch: they work, and misspelt ones are refused.
        refused = self.sluice("demo", SLUICE_EPOCS="1")
        self.assertEqual((refused.returncode, "SLUICE_EPOCHS" in refused.stderr), (2, True), refused.stderr)

    def test_each_command_and_daemon_has_a_man_page_with_its_flags(self):
        pages = {path.name: gzip.decompress(path.read_bytes()).decode()
                 for path in (self.root / "usr/share/man").rglob("*.gz")}
        commands = re.findall(r"(?m)^  ([a-z]+)  ", self.sluice("--help").stdout)
        self.assertIn("launch", commands)
        expected = {"sluice.1.gz"} | {"sluice-%s.1.gz" % name for name in commands} | {
            "%s.8.gz" % name for name in PROGRAMS[1:]}
        self.assertEqual(set(pages), expected)
        for name in commands:
            page = pages["sluice-%s.1.gz" % name]
            flags = re.findall(r"(?m)^  --(\w+)", self.sluice(name, "--help").stdout)
            described = re.findall(r"(?m)^\.B \\-\\-(\w+)", page)
            self.assertEqual(described, flags, name)
            self.assertRegex(page, r"(?m)^\.SH NAME\nsluice\\-%s \\- \w" % name)
        if shutil.which("man"):
            for path in (self.root / "usr/share/man").rglob("*.gz"):
                shown = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True,
                                       env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
                self.assertEqual((shown.returncode, shown.stderr), (0, ""), path.name)

    def complete(self, *words):
        """What bash offers for the last one of the words, which are separated as by COMP_WORDBREAKS."""
        script = self.root / "usr/share/bash-completion/completions/sluice"
        ask = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sluice; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", ask, script, *words], check=True, capture_output=True, text=True, cwd=self.tmp)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_commands_flags_and_values(self):
        (self.tmp / "job.textproto").touch()
        (self.tmp / "jobs").mkdir()
        self.assertEqual(self.complete("sluice", "la"), ["launch"])
        self.assertEqual(self.complete("sluice", "launch", "--server_"), ["--server_num=", "--server_threads="])
        self.assertEqual(self.complete("sluice", "status", "--wat"), ["--watch"])
        self.assertEqual(self.complete("sluice", "launch", "--progress", "=", "pl"), ["plain"])
        for words in (["--progress", "="], ["--progress", ""]):
            self.assertEqual(self.complete("sluice", "launch", *words), ["auto", "live", "plain"])
        self.assertEqual(sorted(self.complete("sluice", "launch", "--job", "=", "jo")), ["job.textproto", "jobs"])
        self.assertEqual(self.complete("sluice", "launch", "--log_dir", "=", "jo"), ["jobs"])
        self.assertEqual(self.complete("sluice", "ckpt", "v"), ["verify"])
        # A switch takes no value from the next word.
        self.assertEqual(self.complete("sluice", "launch", "--overwrite", "--resu"), ["--resume"])

    @unittest.skipIf(shutil.which("zsh") is None, "there is no zsh here")
    def test_zsh_reads_its_script(self):
        script = self.root / "usr/share/zsh/vendor-completions/_sluice"
        ask = "autoload -U compinit; compinit -D -u; source $1; print ${_comps[sluice]}"
        done = subprocess.run(["zsh", "-f", "-c", ask, "zsh", script], capture_output=True, text=True, cwd=self.tmp)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, "_sluice", ""))


if __name__ == "__main__":
    if WHY_NOT:
        print(WHY_NOT, file=sys.stderr)
    unittest.main()
