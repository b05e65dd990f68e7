"""The extension module shares a process with Python, torch and what the user loads: it brings little, and nothing in their way."""
import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
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

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_symbols_of_other_packages_do_not_reach_it(self):
        """As TensorFlow does, another library gives all of its symbols to the process. Here each of them aborts."""
        undefined = {line.split()[-1].partition("@")[0] for line in run("nm", "--dynamic", "--undefined-only").splitlines()}
        names = sorted(name for name in undefined if re.match(r"_ZNK?(6google8protobuf|4grpc)", name))
        self.assertGreater(len(names), 50)
        package = pathlib.Path(MODULE).parents[1]
        with tempfile.TemporaryDirectory() as folder:
            source, library = pathlib.Path(folder) / "other.c", pathlib.Path(folder) / "other.so"
            source.write_text("#include <stdlib.h>\n" + "".join("void %s(void) { abort(); }\n" % name for name in names))
            subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
            done = subprocess.run([sys.executable, "-B", "-c", """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import sluice
assert "epochs: 7" in sluice.Job("train { epochs: 3 }").set("train.epochs", 7).text
""", library], env=dict(os.environ, PYTHONPATH=str(package)), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_its_stub_has_its_names(self):
        sys.path.insert(0, str(pathlib.Path(MODULE).parents[1]))
        self.addCleanup(sys.path.pop, 0)
        from sluice import _core

        def public(names):
            return {name for name in names if not name.startswith("_")}

        self.maxDiff = None
        stub = ast.parse(pathlib.Path(MODULE).with_name("_core.pyi").read_text())
        self.assertEqual(
            {node.name: public(one.name for one in node.body if isinstance(one, ast.FunctionDef))
             for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))},
            {name: public(vars(vars(_core)[name])) if isinstance(vars(_core)[name], type) else set() for name in public(vars(_core))})

    def test_the_day_of_a_daily_program_may_come_with_the_launch(self):
        sys.path.insert(0, str(pathlib.Path(MODULE).parents[1]))
        self.addCleanup(sys.path.pop, 0)
        from sluice import _core

        job = 'features { name: "user" key: RAW categorical {} } tables { name: "user" expire { %s: 30 } }'
        program = '{"collections": [{"name": "user", "dim": 4, "features": ["user"]}]}'
        for option, is_taken in (("after_days", True), ("after_steps", True), ("nothing", False)):
            with self.subTest(option), tempfile.TemporaryDirectory() as folder:
                if not is_taken:
                    with self.assertRaisesRegex(ValueError, option):
                        _core.declare(job % option, "", program, True, False, True)
                    continue
                declared, _ = _core.declare(job % option, "", program, True, False, True)
                _core.offer(folder, declared, [])
                offered = pathlib.Path(folder, "job.textproto").read_text()
                self.assertNotIn("1970", offered)

    def test_a_job_with_a_table_beside_batches_may_name_columns(self):
        sys.path.insert(0, str(pathlib.Path(MODULE).parents[1]))
        self.addCleanup(sys.path.pop, 0)
        from sluice import _core

        def declare(more, batches, table):
            job = 'features { name: "user" categorical { %s } } data { label { column: "y" } }' % more
            return _core.declare(job, "", '{"collections": [{"name": "user", "dim": 4, "features": ["user"]}]}', True, True,
                                 batches, table)

        self.assertIn('column: "y"', declare("", True, True)[0])
        declare('vocabulary: "a"', False, True)
        with self.assertRaisesRegex(ValueError, "data.label: is about columns"):
            declare("", True, False)
        with self.assertRaisesRegex(ValueError, "'user' has a vocabulary.*eval_source="):
            declare('vocabulary: "a"', True, True)


if __name__ == "__main__":
    unittest.main()
