"""The four programs of an optimized build are hardened as cmake/hardening.cmake says."""
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import unittest

BIN = pathlib.Path(os.environ.get("SLUICE_BIN_DIR", "build/release/bin"))
PROGRAMS = [BIN / name for name in ("sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker")]
WHY_NOT = os.environ.get("SLUICE_NOT_HARDENED", "")  # from cmake/hardening.cmake
X86 = platform.machine() in ("x86_64", "i686")
ENDBR64 = b"\xf3\x0f\x1e\xfa"
BRANCH_TRACKING = re.compile(r"x86 feature:.*\bIBT\b.*\bSHSTK\b")
ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = BIN.resolve().parent
COMMANDS = BUILD / "compile_commands.json"
# Options of every object of a program, by what would undo them later on the command line.
OPTIONS = {"-fstack-protector-strong": r"-f(no-)?stack-protector.*",
           "-fstack-clash-protection": r"-f(no-)?stack-clash-protection",
           "-D_FORTIFY_SOURCE=2": r"-[UD]_FORTIFY_SOURCE.*",
           "-fPIC": r"-f(no-)?(pie|PIE|pic|PIC)", "-fvisibility=hidden": r"-fvisibility=.*"}
if X86:
    OPTIONS["-fcf-protection=full"] = r"-fcf-protection.*"


def readelf(path, *flags):
    return subprocess.run(["readelf", "--wide", *flags, str(path)], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def segments(path):
    """[(type, flags such as "R E", virtual address, file offset, file size)] of the program headers."""
    found = re.findall(r"^  (\w+) +(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ ([R ][W ][E ])",
                       readelf(path, "--segments"), re.M)
    return [(kind, flags, int(address, 16), int(offset, 16), int(size, 16))
            for kind, offset, address, size, flags in found]


def product_commands():
    """[(source, object, arguments)] of the C and C++ files of the programs, generated ones included."""
    found = []
    for entry in json.loads(COMMANDS.read_text()):
        source = pathlib.Path(entry["file"])
        base = BUILD if BUILD in source.parents else ROOT
        if base not in source.parents or "site-packages" in source.parts:
            continue  # nanobind's
        folder = source.relative_to(base).parts[0]
        if folder in ("tests", "bench", "CMakeFiles") or source.suffix not in (".c", ".cc", ".cpp"):
            continue
        arguments = shlex.split(entry["command"])
        found.append((source, pathlib.Path(entry["directory"]) / arguments[arguments.index("-o") + 1], arguments))
    return found


def last_matching(arguments, pattern):
    """The option that counts, since a later one replaces it."""
    return next((argument for argument in reversed(arguments) if re.fullmatch(pattern, argument)), None)


def has_branch_tracking(path):
    return bool(BRANCH_TRACKING.search(readelf(path, "--notes")))


@unittest.skipIf(WHY_NOT, WHY_NOT)
class HardeningTest(unittest.TestCase):
    def test_programs_are_position_independent(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                self.assertRegex(readelf(path, "--file-header"), r"Type: +DYN ")
                self.assertRegex(readelf(path, "--dynamic"), r"FLAGS_1.*\bPIE\b")

    def test_all_symbols_are_bound_at_start_and_read_only_then(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                self.assertIn("GNU_RELRO", [segment[0] for segment in segments(path)])
                dynamic = readelf(path, "--dynamic")
                self.assertRegex(dynamic, r"FLAGS_1.*\bNOW\b")
                self.assertRegex(dynamic, r"BIND_NOW")

    def test_no_memory_is_writable_and_executable(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                found = segments(path)
                self.assertEqual([segment[1].strip() for segment in found if segment[0] == "GNU_STACK"], ["RW"])
                self.assertEqual([segment for segment in found if "W" in segment[1] and "E" in segment[1]], [])
                self.assertTrue([segment for segment in found if segment[0] == "LOAD" and "E" in segment[1]])

    def test_stacks_are_protected_and_calls_of_the_c_library_fortified(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                symbols = re.findall(r" UND (\w+)", readelf(path, "--dyn-syms"))
                self.assertIn("__stack_chk_fail", symbols)
                # Each program formats text into arrays and does one more thing that the C library can check.
                fortified = {symbol for symbol in symbols if re.fullmatch(r"__\w+_chk", symbol)}
                self.assertIn("__snprintf_chk", fortified)
                self.assertGreaterEqual(len(fortified), 2, fortified)

    def test_code_is_not_changed_when_it_is_loaded(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                self.assertNotRegex(readelf(path, "--dynamic"), r"TEXTREL")

    @unittest.skipUnless(COMMANDS.exists(), "the folder of the build is not there")
    def test_every_source_is_compiled_with_the_options(self):
        commands = product_commands()
        self.assertGreater(len(commands), 50)
        self.assertTrue([source for source, _, _ in commands if source.name in ("scheduler.pb.cc", "control_plane_messages.cc")])
        for source, _, arguments in commands:
            for option, pattern in OPTIONS.items():
                with self.subTest(source.name, option=option):
                    self.assertEqual(last_matching(arguments, pattern), option)
            with self.subTest(source.name):
                self.assertRegex(last_matching(arguments, r"-O.*") or "", r"-O[123sg]")

    @unittest.skipUnless(X86 and COMMANDS.exists(), "only x86 has the property, and only objects that are there show it")
    def test_every_object_has_landing_pads(self):
        # A linked program shows it only where the start files do, so look at the objects.
        objects = [str(path) for _, path, _ in product_commands() if path.exists()]
        if not objects:
            self.skipTest("the objects are not there")
        # One part of the output for each file.
        parts = re.split(r"^File: ", readelf(objects[0], "--notes", *objects[1:]), flags=re.M)[1:]
        self.assertEqual(len(parts), len(objects))
        self.assertEqual([part.split("\n")[0] for part in parts if not BRANCH_TRACKING.search(part)], [])

    def test_libraries_are_found_only_where_the_system_has_them(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                self.assertNotRegex(readelf(path, "--dynamic"), r"\((RPATH|RUNPATH)\)")

    @unittest.skipUnless(X86, "only x86 has landing pads of this form")
    def test_functions_begin_with_a_landing_pad(self):
        for path in PROGRAMS:
            with self.subTest(path.name):
                address, = re.findall(r"^ *\d+: (\w+) +\d+ FUNC +(?:GLOBAL|LOCAL) +\w+ +\d+ main$",
                                      readelf(path, "--symbols"), re.M)
                address = int(address, 16)
                offset, = [offset + address - start for kind, _, start, offset, size in segments(path)
                           if kind == "LOAD" and start <= address < start + size]
                with path.open("rb") as program:
                    program.seek(offset)
                    self.assertEqual(program.read(len(ENDBR64)), ENDBR64)

    @unittest.skipUnless(X86, "only x86 has the property")
    def test_programs_ask_for_branch_tracking_where_the_start_files_do(self):
        # The linker marks a program only if all objects in it are marked; Debian 12's start files are not.
        start = subprocess.run(["c++", "-print-file-name=Scrt1.o"], check=True, capture_output=True,
                               text=True).stdout.strip()
        for path in PROGRAMS:
            with self.subTest(path.name):
                self.assertEqual(has_branch_tracking(path), has_branch_tracking(start))


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped:", WHY_NOT)
    unittest.main()
