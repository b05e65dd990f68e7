"""Checks the bundle for machines without our packages: its size, libraries, bill of materials and script. Needs no GPU."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from sluice_testing import BIN, ROOT, TIME_SCALE, SluiceTest

BUILD = BIN.parent
MAX_BYTES = 55 << 20
MAX_ARROW_BYTES = 24 << 20  # an optional part
PROGRAMS = {"sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker", "sluice-bench"}
# Libraries that the host provides: the C library and its loader.
OF_HOST = re.compile(r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so")
MISSING = [tool for tool in ("cmake", "dpkg-query", "ldd", "ninja", "objdump", "strip", "tar") if shutil.which(tool) is None]
WHY_NOT = ("no %s here" % ", ".join(MISSING) if MISSING else
           "a sanitized build cannot be bundled" if TIME_SCALE > 1 else
           "sluice-bench is not built" if not (BIN / "sluice-bench").exists() else None)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class BundleTest(SluiceTest):
    @classmethod
    def setUpClass(cls):
        made = tempfile.TemporaryDirectory(prefix="sluice_bundle_")
        cls.addClassCleanup(made.cleanup)
        cls.folder = pathlib.Path(made.name) / "bundle"
        done = subprocess.run([ROOT / "deploy" / "bundle" / "make.sh", BUILD, cls.folder], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout

    def script(self, *args, **variables):
        """Runs run.sh in an otherwise empty environment."""
        return subprocess.run([self.folder / "run.sh", *args], text=True, cwd=self.tmp, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={"PATH": "/usr/bin:/bin", **variables})

    def test_the_bundle_is_complete_and_small(self):
        archive = self.folder.parent / "bundle.tar.gz"
        size = archive.stat().st_size
        print("bundle: %.1f MiB" % (size / 2**20), file=sys.stderr)
        has_arrow = any((self.folder / "lib").glob("libarrow.so*"))
        self.assertLess(size, MAX_BYTES + (MAX_ARROW_BYTES if has_arrow else 0))
        names = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True, check=True).stdout.split()
        for name in ["run.sh", "configs/criteo_wide_deep.textproto", "data/adult/adult.data.gz"] + [
                "bin/" + program for program in PROGRAMS]:
            self.assertIn("bundle/" + name, names)
        self.assertIn("bundle/tests/cuda_net_test", names)
        self.assertEqual([n for n in names if re.search(r"/lib(cuda|cublas|cudart|nv)|/libc\.so|/ld-linux", n)], [])

        # No library may come from a folder that exists only on machines with our packages.
        programs = [p for folder in ("bin", "tests", "lib") for p in (self.folder / folder).rglob("*")
                    if p.is_file() and not p.is_symlink()]
        self.assertGreater(len(programs), 40)
        path = "%s/lib:%s/lib/gcc" % (self.folder, self.folder)
        for program in programs:
            said = subprocess.run(["ldd", program], capture_output=True, text=True,
                                  env={**os.environ, "LD_LIBRARY_PATH": path}).stdout
            for line in said.splitlines():
                words = line.split()
                if not words or OF_HOST.search(words[0]) or words == ["statically", "linked"]:
                    continue
                self.assertEqual(words[1], "=>", line)
                self.assertTrue(words[2].startswith(str(self.folder)), "%s: %s" % (program.name, line))

        # The programs are stripped.
        for program in PROGRAMS:
            sections = subprocess.run(["objdump", "-h", self.folder / "bin" / program], capture_output=True,
                                      text=True).stdout
            self.assertNotIn(".symtab", sections)

    def test_the_bill_of_materials_is_that_of_the_bundled_programs(self):
        path, = self.folder.glob("sluice-*.spdx.json")
        bill = json.loads(path.read_text())
        sums = {file["fileName"]: one["checksumValue"] for file in bill["files"] for one in file["checksums"]
                if one["algorithm"] == "SHA256"}
        self.assertEqual(sums, {"./bin/" + name: hashlib.sha256((self.folder / "bin" / name).read_bytes()).hexdigest()
                                for name in PROGRAMS})
        # Every bundled library belongs to a package in it. The versions in the names of a library's file and links differ.
        listed = {name.split(".so")[0] for one in bill["relationships"] for name in one.get("comment", "").split()}
        bundled = {file.name.split(".so")[0] for file in (self.folder / "lib").rglob("*.so*")}
        self.assertIn("libcares", bundled)
        self.assertEqual(bundled - listed - {"sluice-arrow"}, set())  # that one is ours

    def test_the_script_runs_the_programs(self):
        helped = self.script()
        self.assertEqual(helped.returncode, 0)
        for word in ("test", "bench", "demo"):
            self.assertRegex(helped.stdout, r"(?m)^run\.sh %s" % word)
        self.assertIn("version", self.script("sluice", "--version").stdout)
        self.assertEqual(self.script("no_such_program").returncode, 127)

        tested = self.script("test")
        self.assertIn(tested.returncode, (0, 3), tested.stdout)
        if tested.returncode == 3:  # the tests print the reason
            self.assertIn("needs a GPU: ", tested.stdout)
        bench = self.script("bench", "--quick")
        self.assertEqual(bench.returncode, 0, bench.stdout)
        self.assertIn("train_step/gpu/", bench.stdout)

    def test_the_demo_trains(self):
        demo = self.script("demo", "--device=cpu", "--worker_num=1", DEMO_EXAMPLES="4000")
        self.assertEqual(demo.returncode, 0, demo.stdout)
        self.assertRegex(demo.stdout, r"criteo-1: done, mode async, 1 epoch, .* 4,000 examples")
        self.assertTrue((self.tmp / "sluice-demo" / "output" / "result.json").exists())


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: %s" % WHY_NOT, file=sys.stderr)
    unittest.main()
