"""./dev bench --year compares a table whose rows expire with one that keeps every row."""
import argparse
import json
import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests" / "system"))
sys.path.insert(1, str(ROOT / "bench"))
from sluice_testing import BIN, SluiceTest  # noqa: E402

import table_year  # noqa: E402
import turns  # noqa: E402


class TableYearTest(SluiceTest):
    def test_eight_days_in_sync_keep_fewer_rows_and_the_auc(self):
        done = self.run_program(sys.executable, "-B", ROOT / "bench" / "table_year.py", "--bin=%s" % BIN, "--quick",
                                "--filter=year/sync", "--json=%s" % (self.tmp / "rows.json"), timeout=500)
        self.assertEqual(done.returncode, 0, done.stdout)
        rows = {row["name"]: row["value"] for row in json.loads((self.tmp / "rows.json").read_text())}
        self.assertGreater(rows["year/sync/rows"], 1.3, done.stdout)
        # 6,000 examples tell an AUC to about 0.007, and the two sides score the same ones.
        self.assertLess(rows["year/sync/auc"], 0.02, done.stdout)

    def test_a_run_with_too_few_kills_is_not_within_its_bounds(self):
        options = argparse.Namespace(days=60, kills=True)
        keeps = types.SimpleNamespace(auc=0.75, rows=[300] * 60, bytes=[300] * 60, kills=0)

        def missed(*kills):
            runs = [(keeps, types.SimpleNamespace(auc=0.75, rows=[50] * 60, bytes=[50] * 60, kills=count)) for count in kills]
            return table_year.report(options, "sync", runs, turns.Rows())
        self.assertEqual(missed(30, 30), [])
        self.assertEqual(missed(30, 29), ["sync/kills"])
        options.kills = False
        self.assertEqual(missed(0, 0), [])

    def test_values_come_and_go(self):
        days, seen = table_year.Days(1, 500), []
        for _ in range(20):
            days.write(self.tmp / "day.csv", 3000)
            lines = (self.tmp / "day.csv").read_text().splitlines()[1:]
            seen.append({line.split(",")[1] for line in lines})
            self.assertTrue(0.1 < sum(line[0] == "1" for line in lines) / len(lines) < 0.5)
            days.next_day()
        before = set().union(*seen[:-1])
        new = len(seen[-1] - before) / 3000
        self.assertTrue(0.02 < new < 0.04, new)
        # What was new ten days ago is mostly gone.
        old = seen[9] - set().union(*seen[:9])
        self.assertLess(len(old & seen[-1]) / len(old), 0.1)


if __name__ == "__main__":
    unittest.main()
