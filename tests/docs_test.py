"""The tests, files, members of classes, links and ./dev commands that the documents name exist.

Tests are named in backticks: `Suite.Name` of C++, `file_test.test_name` or `file_test.Class` of Python. `.Name` is of the
suite or file before it; a suite or file may stand alone. Fuzzers are named after the word "fuzzer" or "fuzzers".
"""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")),
             *sorted(ROOT.glob("*/README.md")), *sorted(ROOT.glob("common/*/README.md"))]
FOLDERS = "bench|cli|client|cmake|common|configs|deploy|docs|model|proto|scheduler|server|tests|worker"
CODE = ("bench", "cli", "client", "common", "model", "proto", "python", "scheduler", "server", "tests", "worker")

# What looks like a path and is none: what readers replace, names in certificates, rows of the benchmarks.
NO_FILES = r"NAME|my_model|^tests/x/y_test|^worker/\d|^model/load/"


def cpp_tests():
    """{suite: names} of the C++ tests."""
    suites = {}
    for file in sorted(ROOT.glob("tests/**/*.cc")) + sorted(ROOT.glob("tests/**/*.h")):
        text = file.read_text()
        for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text):
            suites.setdefault(suite, set()).add(name)
    return suites


def python_tests():
    """{file without .py: names of its classes and tests}."""
    return {file.stem: set(re.findall(r"^(?:class| +def) (\w+)", file.read_text(), re.M))
            for file in ROOT.glob("tests/**/*_test.py")}


def paragraphs(text):
    """(line number, text) of each paragraph and table row: a name continues the one before it in these bounds only."""
    number, lines = 1, []
    for i, line in enumerate(text.splitlines() + [""], 1):
        if lines and (not line.strip() or line.lstrip().startswith(("|", "- ", "#"))):
            yield number, "\n".join(lines)
            lines = []
        if line.strip():
            number = number if lines else i
            lines.append(line)


def anchors(text):
    """The names by which links lead to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class DocsTest(unittest.TestCase):
    longMessage = False

    def each(self, pattern, check):
        """Calls check(document, match) for each match in each document; a failure names the place."""
        found = 0
        for document in DOCUMENTS:
            text = document.read_text()
            for match in re.finditer(pattern, text):
                found += 1
                with self.subTest("%s:%d" % (document.relative_to(ROOT), text.count("\n", 0, match.start()) + 1)):
                    check(document, match)
        self.assertGreater(found, 0, "no document has a match: the pattern is wrong")

    def test_tests_exist(self):
        suites, files = cpp_tests(), python_tests()
        programs = {file.stem for file in ROOT.glob("tests/**/*_test.*")}
        found = 0
        for document in DOCUMENTS:
            for number, text in paragraphs(document.read_text()):
                owner = None  # of the names that begin with a dot
                for before, own in re.findall(r"`(?=[\w.])(\w+(?:Test|_test))?(\.(?:[A-Z]|test_)\w+|\.cc|\.py)?`", text):
                    owner = before or owner
                    own = "" if own in (".cc", ".py") else own[1:]
                    name = "%s%s" % (before, own and "." + own)
                    found += 1
                    with self.subTest("%s:%d: `%s`" % (document.relative_to(ROOT), number, name)):
                        known = suites.get(owner, set()) | files.get(owner, set())
                        self.assertTrue(known or owner in programs, "there is no suite or test file %s" % owner)
                        self.assertTrue(not own or own in known, "%s has no test %s" % (owner, own))
        self.assertGreater(found, 100, "the pattern is wrong")

    def test_members_exist(self):
        # A name that is in the code of a unit which defines the class counts as a member.
        units, owners = {}, {}
        for file in (file for top in CODE for file in ROOT.glob(top + "/**/*")):
            if file.suffix in (".h", ".cc", ".cu", ".proto"):
                code = re.sub(r"//.*", "", file.read_text())
                units[file.with_suffix("")] = units.get(file.with_suffix(""), "") + code
        for code in units.values():
            for name in set(re.findall(r"\b(?:class|struct|enum|message) (?:class )?(?:ABSL_\w+ |\w+::)?(\w+)\b(?!;)", code)):
                owners[name] = owners.get(name, "") + code

        def check(_, match):
            self.assertIn(match[1], owners, "there is no class %s" % match[1])
            self.assertTrue(re.search(r"\b%s\b" % match[2], owners[match[1]]), "there is no %s" % match[0])
        self.each(r"(?<![\w:])([A-Z]\w+)::(\w+)", check)

    def test_fuzzers_exist(self):
        known = set(re.findall(r"^sluice_fuzzer\((\w+) ", (ROOT / "tests/fuzz/CMakeLists.txt").read_text(), re.M))

        def check(_, match):
            for name in re.findall(r"`(\w+)`", match[0]):
                self.assertIn(name, known, "tests/fuzz has no fuzzer %s" % name)
        self.each(r"\bfuzzers?\s+`\w+`(?:(?:,|\sand|, and)\s+`\w+`)*", check)

    def test_links_lead_somewhere(self):
        def check(document, match):
            target = document.parent / match[1] if match[1] else document
            self.assertTrue(target.exists(), "the link leads to %s, which does not exist" % match[1])
            if match[2]:
                self.assertIn(match[2], anchors(target.read_text()), "%s has no heading #%s" % (target.name, match[2]))
        self.each(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", check)

    def test_files_exist(self):
        def check(document, match):
            found = any(list(folder.glob(match[0] + end)) for folder in (ROOT, document.parent) for end in ("", ".*"))
            self.assertTrue(found or re.search(NO_FILES, match[0]), "there is no %s" % match[0])
        self.each(r"(?<![\w./*~<>-])(?:%s)/[\w./*-]*[\w*]" % FOLDERS, check)

    def test_commands_of_dev_exist(self):
        script = (ROOT / "dev").read_text()

        def check(_, match):
            self.assertRegex(script, r"(?m)^  %s\)" % match[1], "./dev has no command %s" % match[1])
        self.each(r"(?<![\w/])\./dev ([a-z]+)", check)

    def test_the_listed_metrics_are_those_of_the_daemons(self):
        # tests/system/admin_test.py compares the list with what running daemons serve.
        folders = ("common/admin", "scheduler/service", "server/service", "worker/service")
        code = "".join(file.read_text() for folder in folders for file in sorted((ROOT / folder).glob("*.cc")))
        listed = re.findall(r"(?m)^\| `(sluice_[\w<>]+)` \|", (ROOT / "docs" / "metrics.md").read_text())
        self.assertEqual(len(listed), len(set(listed)))
        for name in listed:
            # Names that several daemons have are put together from the role and the rest.
            rest = re.sub(r"^sluice_(<role>|[a-z]+)_|_total$", "", name)
            literals = ('"%s"' % name, '"%s"' % rest, '"_%s"' % rest)
            self.assertTrue(any(literal in code for literal in literals), name + " is listed, and no daemon has it")
        for name in re.findall(r'"(sluice_(?:scheduler|pserver|worker|build)_\w+)"', code):
            self.assertIn(name, listed, name + " is not in docs/metrics.md")


if __name__ == "__main__":
    unittest.main()
