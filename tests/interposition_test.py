"""The four programs define no function of the C library in front of the library's own.

Such a definition would serve every library of the process, would silently be left out where Python loads the code, and would
meet calls that it does not know.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ.get("SLUICE_BIN_DIR", "build/release/bin"))
PROGRAMS = [BIN / name for name in ("sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker")]
# Types of nm's symbols: functions, with weak ones and those that are chosen at run time. Not variables: a program that reads one
# of the library's, such as environ or stderr, has the one copy that everybody uses. The linker makes it, and replaces nothing.
FUNCTIONS = frozenset("TtWi")


def functions(path, *flags):
    """The names of the functions that the file defines for others, without versions."""
    lines = subprocess.run(["nm", "--defined-only", "--extern-only", "--portability", *flags, str(path)], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    symbols = [line.split() for line in lines if len(line.split()) > 1]
    return {name.partition("@")[0] for name, kind, *_ in symbols if kind in FUNCTIONS}


def c_library(program):
    """Where the loader finds the C library of a program."""
    lines = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line.split()[2] for line in lines if line.split()[0] == "libc.so.6")


def replaced(program):
    """The functions of the C library that the program replaces, by itself or for its libraries."""
    return (functions(program) | functions(program, "--dynamic")) & functions(c_library(program), "--dynamic")


class InterpositionTest(unittest.TestCase):
    def test_no_function_of_the_c_library_is_defined(self):
        for program in PROGRAMS:
            with self.subTest(program=program.name):
                self.assertEqual(replaced(program), set())

    def test_a_replaced_function_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program"
            for weak in ("", "__attribute__((weak)) "):
                source = weak + "int shutdown(int, int) { return 0; }\nint main() { return shutdown(0, 0); }\n"
                subprocess.run([os.environ.get("CXX", "c++"), "-x", "c++", "-", "-o", str(program)], check=True,
                               text=True, input='extern "C" {\n%s}\n' % source)
                self.assertEqual(replaced(program), {"shutdown"})

    def test_the_symbol_tables_are_read(self):
        for program in PROGRAMS:
            self.assertIn("_start", functions(program))  # main is hidden
            self.assertLess({"accept", "accept4", "close", "connect", "getsockopt", "listen", "malloc"},
                            functions(c_library(program), "--dynamic"))


if __name__ == "__main__":
    unittest.main()
