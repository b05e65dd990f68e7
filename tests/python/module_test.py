"""The extension module shares a process with Python, torch and what the user loads: it brings little, and nothing in their way."""
import os
import re
import subprocess
import unittest

MODULE = os.environ["SLUICE_PYTHON_MODULE"]


def run(*command):
    return subprocess.run([*command, MODULE], check=True, capture_output=True, text=True).stdout


def needed(dynamic_section):
    """The libraries that the loader brings in with a file, without versions."""
    return {re.sub(r"\.so.*", "", name) for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section)}


class ModuleTest(unittest.TestCase):
    def test_it_exports_its_init_function_alone(self):
        names = {line.split()[-1].partition("@")[0] for line in run("nm", "--dynamic", "--defined-only").splitlines()}
        self.assertEqual(names, {"PyInit__core"})

    def test_it_does_not_read_environ(self):
        # Debian's Python has a copy of its own. The module, which is loaded with RTLD_DEEPBIND, would see the C library's: null.
        names = {line.split()[-1].partition("@")[0] for line in run("nm", "--dynamic", "--undefined-only").splitlines()}
        self.assertIn("getenv", names)  # the list is read
        self.assertEqual(names & {"environ", "_environ", "__environ"}, set())

    def test_it_needs_no_logging_no_flags_no_networks_no_python_and_no_torch(self):
        libraries = needed(run("readelf", "--dynamic", "--wide"))
        self.assertIn("libgrpc++", libraries)  # the section is read
        for unwanted in ("glog", "gflags", "dnnl", "python", "torch", "c10", "rocksdb", "unwind"):
            self.assertEqual({name for name in libraries if unwanted in name}, set())
        # Nor behind one of the others. Each is loaded into the user's process.
        loaded = run("ldd")
        self.assertNotRegex(loaded, r"glog|gflags|not found")


if __name__ == "__main__":
    unittest.main()
