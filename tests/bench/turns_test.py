"""Benchmarks in Python measure in turns, and their rows have the fields of sluice-bench."""
import json
import os
import pathlib
import select
import sys
import tempfile
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import turns  # noqa: E402


class TurnsTest(unittest.TestCase):
    def setUp(self):
        self.order = []

    def measures(self, names):
        def measure(name):
            self.order.append(name)
            return len(self.order)
        return {name: lambda name=name: measure(name) for name in names}

    def test_every_second_turn_is_in_reverse_order(self):
        values = turns.take(self.measures("abc"), 3)
        self.assertEqual("".join(self.order), "abccbaabc")
        self.assertEqual(values, {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]})

    def test_turns_end_when_the_time_is_over_but_one_is_whole(self):
        self.assertEqual(turns.take(self.measures("ab"), 9, lambda: len(self.order) < 4), {"a": [1, 4], "b": [2, 3]})
        self.order.clear()
        self.assertEqual(turns.take(self.measures("ab"), 9, lambda: False), {"a": [1], "b": [2]})

    def test_rows_have_medians_and_the_range(self):
        rows = turns.Rows()
        rows.add("some/row", "k/s", [5.0, 1.0, 3.0], [10.0, 2.0], "the other")
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "rows.json"
            rows.write(out)
            self.assertEqual(json.loads(out.read_text()), [
                {"name": "some/row", "value": 3.0, "unit": "k/s", "limit": 6.0, "limit_name": "the other", "ratio": 0.5,
                 "repetitions": 3, "min": 1.0, "max": 5.0}])
        rows.write(None)

    def test_a_program_that_fails_or_hangs_ends_the_run(self):
        self.assertEqual(turns.run([sys.executable, "-c", "print(7)"]), "7\n")
        for code, timeout in (("raise SystemExit(3)", None), ("import time; time.sleep(60)", 0.2)):
            with self.assertRaises(SystemExit) as raised:
                turns.run([sys.executable, "-c", code], timeout=timeout)
            self.assertIsInstance(raised.exception.code, str)

    def test_what_a_program_has_started_ends_when_the_program_hangs(self):
        starts = "import os, subprocess, time; subprocess.Popen(['sleep', '60'], pass_fds=[%d]); time.sleep(60)"
        read, write = os.pipe()
        with self.assertRaises(SystemExit):
            turns.run([sys.executable, "-c", starts % write], timeout=2, pass_fds=[write])
        os.close(write)
        # Nobody holds the other end any more.
        self.assertEqual(select.select([read], [], [], 20)[0], [read])
        self.assertEqual(os.read(read, 1), b"")
        os.close(read)


if __name__ == "__main__":
    unittest.main()
