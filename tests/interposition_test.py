"""The four programs define no function of the C library in front of the library's own.

Such a definition would serve every library of the process, would silently be left out where Python loads the code, and would
meet calls that it does not know.
"""
import os
import pathlib
import subprocess
import unittest

BIN = pathlib.Path(os.environ.get("SLUICE_BIN_DIR", "build/release/bin"))
PROGRAMS = [BIN / name for name in ("sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker")]
SYSTEM_CALLS = {"accept", "accept4", "close", "connect", "getsockopt", "listen"}


def defined(path, *flags):
    """The names of the functions and variables that the file defines, without versions."""
    lines = subprocess.run(["nm", "--defined-only", "--portability", *flags, str(path)], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {line.split()[0].partition("@")[0] for line in lines if line.split()[1:]}


class InterpositionTest(unittest.TestCase):
    def test_no_function_of_the_c_library_is_defined(self):
        for program in PROGRAMS:
            for table in ((), ("--dynamic",)):
                with self.subTest(program=program.name, table=table):
                    self.assertFalse(SYSTEM_CALLS & defined(program, *table))

    def test_the_symbol_tables_are_read(self):
        for program in PROGRAMS:
            self.assertIn("main", defined(program))


if __name__ == "__main__":
    unittest.main()
