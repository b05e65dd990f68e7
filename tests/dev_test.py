"""./dev, with stand-ins for the tools that it calls."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
STAND_INS = {
    "dpkg-query": "echo 'install ok installed'",
    # Keeps what it was told in its cache, as CMake does.
    "cmake": 'echo "cmake $*" >>"$LOG"\n'
             'for word in "$@"; do case $word in -DSLUICE_PYTHON=*)\n'
             '  echo "SLUICE_PYTHON:BOOL=${word#*=}" >build/release/CMakeCache.txt; touch build/release/build.ninja;; esac; done',
    # Of every version; `-m venv FOLDER` makes another one.
    "python3": 'case "$*" in *version_info*) echo 3.12;;\n'
               '  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";; esac',
}


class WheelTest(unittest.TestCase):
    def wheel(self, had_python, pack):
        """The exit code, and what CMake was told, of `./dev wheel` with this script as make.sh."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "tree/build/release").mkdir(parents=True)
            (folder / "tree/deploy/wheel").mkdir(parents=True)
            (folder / "bin").mkdir()
            shutil.copy(ROOT / "dev", folder / "tree/dev")
            (folder / "tree/build/release/CMakeCache.txt").write_text("SLUICE_PYTHON:BOOL=%s\n" % had_python)
            (folder / "tree/build/release/build.ninja").touch()
            scripts = {folder / "bin" / tool: text for tool, text in STAND_INS.items()}
            scripts[folder / "tree/deploy/wheel/make.sh"] = pack
            for path, text in scripts.items():
                path.write_text("#!/bin/bash\n%s\n" % text)
                path.chmod(0o755)
            path = "%s:%s" % (folder / "bin", os.environ["PATH"])
            ended = subprocess.run([folder / "tree/dev", "wheel"], cwd=folder / "tree", stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=30,
                                   env={**os.environ, "PATH": path, "LOG": str(folder / "log")})
            return ended.returncode, (folder / "log").read_text().splitlines()

    def test_the_build_has_its_python_back_also_after_an_error(self):
        for pack, code in (('mkdir -p "$3"; touch "$3/a.whl"', 0), ("exit 7", 7)):
            for had_python, last in (("OFF", "-DSLUICE_PYTHON=OFF"), ("ON", "sluice_python")):
                with self.subTest(code=code, had_python=had_python):
                    ended, told = self.wheel(had_python, pack)
                    self.assertEqual(ended, code, told)
                    self.assertIn(last, told[-1])
                    configured = [line for line in told if "-DSLUICE_PYTHON=" in line]
                    self.assertIn("-DPython_EXECUTABLE=", configured[0])
                    self.assertNotIn("-DPython_EXECUTABLE=", configured[-1])


class ArrowTest(unittest.TestCase):
    def test_pyarrow_is_installed_once_and_a_build_that_was_there_looks_for_it(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path in ("tree/build/release", "tree/build/python-env/bin", "tree/python", "bin"):
                (folder / path).mkdir(parents=True)
            shutil.copy(ROOT / "dev", folder / "tree/dev")
            shutil.copy(ROOT / "python/requirements-arrow.txt", folder / "tree/python")
            cache = folder / "tree/build/release/CMakeCache.txt"
            cache.write_text("SLUICE_ARROW_BUILT:INTERNAL=FALSE\n")
            (folder / "tree/build/release/build.ninja").touch()
            scripts = {folder / "bin" / tool: text for tool, text in STAND_INS.items()}
            scripts[folder / "tree/build/python-env/bin/pip"] = 'echo "pip $*" >>"$LOG"'
            for path, text in scripts.items():
                path.write_text("#!/bin/bash\n%s\n" % text)
                path.chmod(0o755)
            environment = {**os.environ, "PATH": "%s:%s" % (folder / "bin", os.environ["PATH"]), "LOG": str(folder / "log")}

            def arrow():
                """What pip and CMake were told."""
                (folder / "log").write_text("")
                ended = subprocess.run([folder / "tree/dev", "arrow"], cwd=folder / "tree", stdin=subprocess.DEVNULL,
                                       capture_output=True, text=True, timeout=30, env=environment)
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                return (folder / "log").read_text().splitlines()

            pip, configured, built = arrow()
            self.assertIn("--no-deps -r python/requirements-arrow.txt", pip)
            self.assertIn("-DSLUICE_WITH_ARROW=AUTO", configured)
            self.assertIn("sluice_arrow_plugin", built)
            cache.write_text("SLUICE_ARROW_BUILT:INTERNAL=TRUE\n")
            self.assertEqual(arrow(), [built])


if __name__ == "__main__":
    unittest.main()
