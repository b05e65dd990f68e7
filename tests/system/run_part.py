"""run_part.py PART PARTS FILE: runs every PARTS-th test of a file, from test PART (0, 1, ...) on.

So ctest runs the tests of a long file side by side, and each of them is in exactly one part.
"""
import pathlib
import sys
import unittest


def all_tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test


def main(part, parts, file):
    path = pathlib.Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    tests = list(all_tests(unittest.defaultTestLoader.loadTestsFromName(path.stem)))[int(part)::int(parts)]
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(tests))
    return 0 if tests and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
