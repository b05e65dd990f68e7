"""The bill of materials names what the programs load and link, is well formed, and is the same in every run."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

from sluice_testing import BIN, ROOT, SluiceTest

sys.path.insert(1, str(ROOT / "deploy"))
import sbom  # noqa: E402

BUILD = BIN.parent
MISSING = [tool for tool in ("ninja", "ldd", "readelf", "dpkg-query") if shutil.which(tool) is None]
WHY_NOT = "no %s here" % ", ".join(MISSING) if MISSING else None
TIME = {"SOURCE_DATE_EPOCH": "1700000000"}


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SbomTest(SluiceTest):
    @classmethod
    def setUpClass(cls):
        cls.text = cls.write()
        cls.bill = json.loads(cls.text)
        cls.packages = {package["SPDXID"]: package for package in cls.bill["packages"]}
        cls.files = {os.path.basename(file["fileName"]): file for file in cls.bill["files"]}

    @staticmethod
    def write(**variables):
        output = BUILD / ("sbom_test.%d.json" % os.getpid())
        try:
            subprocess.run([sys.executable, "-B", ROOT / "deploy" / "sbom.py", BUILD, output], check=True,
                           env={**os.environ, **TIME, **variables})
            return output.read_text()
        finally:
            output.unlink(missing_ok=True)

    def linked(self, program, how):
        """{library: package} of what a program is linked with."""
        return {name: self.packages[one["relatedSpdxElement"]] for one in self.bill["relationships"]
                if one["spdxElementId"] == self.files[program]["SPDXID"] and one["relationshipType"] == how
                for name in one["comment"].split()}

    def test_every_needed_library_belongs_to_a_package(self):
        for program in sbom.PROGRAMS:
            with self.subTest(program):
                dynamic = subprocess.run(["readelf", "-d", BIN / program], check=True, capture_output=True, text=True,
                                         env={**os.environ, "LC_ALL": "C"}).stdout
                needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
                linked = self.linked(program, "DYNAMIC_LINK")
                self.assertIn("libc.so.6", needed)
                self.assertEqual(needed - set(linked), set())
                for name in needed:
                    architecture = re.search(r"arch=(\w+)", self.purl(linked[name]))[1]
                    installed = subprocess.run(
                        ["dpkg-query", "--show", "--showformat=${Version}", linked[name]["name"] + ":" + architecture],
                        check=True, capture_output=True, text=True).stdout
                    self.assertEqual(linked[name]["versionInfo"], installed)

    def test_libraries_of_libraries_are_named(self):
        # Only gRPC needs the resolver c-ares.
        self.assertEqual(self.linked("sluice-pserver", "DYNAMIC_LINK")["libcares.so.2"]["name"], "libc-ares2")

    def test_what_is_linked_statically_is_named(self):
        for program in sbom.PROGRAMS:
            with self.subTest(program):
                linked = self.linked(program, "STATIC_LINK")
                self.assertEqual("chart.min.js" in linked, program == "sluice-scheduler")
                self.assertEqual(linked["Scrt1.o"]["name"], "libc6-dev")
                self.assertEqual([name for name in linked if name.startswith("libsluice")], [])
        with_cuda = (BUILD / "model" / "net" / "cuda" / "libsluice_cuda_kernels.a").exists()
        self.assertEqual("libcudart_static.a" in self.linked("sluice-worker", "STATIC_LINK"), with_cuda)

    def purl(self, package):
        reference, = package["externalRefs"]
        self.assertEqual((reference["referenceCategory"], reference["referenceType"]), ("PACKAGE-MANAGER", "purl"))
        return reference["referenceLocator"]

    def test_packages_of_debian_are_identified(self):
        package = self.linked("sluice", "DYNAMIC_LINK")["libz.so.1"]
        self.assertEqual((package["name"], package["licenseDeclared"]), ("zlib1g", "Zlib"))
        self.assertRegex(self.purl(package), r"^pkg:deb/\w+/zlib1g@1%3A1\.[\w.%~-]+\?arch=\w+&distro=\w+-\d+$")

    def test_checksums_are_those_of_the_programs(self):
        self.assertEqual(set(self.files), set(sbom.PROGRAMS))
        for name, file in self.files.items():
            sums = {one["algorithm"]: one["checksumValue"] for one in file["checksums"]}
            self.assertEqual(sums["SHA256"], hashlib.sha256((BIN / name).read_bytes()).hexdigest())
            self.assertEqual(sums["SHA1"], hashlib.sha1((BIN / name).read_bytes()).hexdigest())

    def test_required_fields_exist_and_ids_resolve(self):
        bill = self.bill
        self.assertEqual((bill["spdxVersion"], bill["dataLicense"], bill["SPDXID"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        self.assertEqual(bill["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        self.assertRegex(bill["creationInfo"]["creators"][0], "^Tool: ")
        self.assertRegex(bill["documentNamespace"], r"^https://\S+-[0-9a-f]{64}$")
        for package in bill["packages"]:
            for field in ("SPDXID", "name", "downloadLocation", "filesAnalyzed", "licenseConcluded", "licenseDeclared",
                          "copyrightText"):
                self.assertIn(field, package)
            self.assertEqual(package["filesAnalyzed"], "packageVerificationCode" in package)
        for file in bill["files"]:
            for field in ("SPDXID", "fileName", "checksums"):
                self.assertIn(field, file)
        elements = [bill] + bill["packages"] + bill["files"]
        ids = [element["SPDXID"] for element in elements]
        self.assertEqual(len(ids), len(set(ids)))
        for one in ids:
            self.assertRegex(one, r"^SPDXRef-[A-Za-z0-9.-]+$")
        kinds = set()
        for relationship in bill["relationships"]:
            self.assertIn(relationship["spdxElementId"], ids)
            self.assertIn(relationship["relatedSpdxElement"], ids)
            kinds.add(relationship["relationshipType"])
        self.assertEqual(kinds, {"DESCRIBES", "CONTAINS", "DYNAMIC_LINK", "STATIC_LINK"})

    def test_two_runs_give_the_same_bytes(self):
        self.assertEqual(self.write(), self.text)
        later = json.loads(self.write(SOURCE_DATE_EPOCH="1700000001"))
        self.assertNotEqual(later["documentNamespace"], self.bill["documentNamespace"])

    def test_files_without_a_package_are_named_with_their_checksum(self):
        library = self.tmp / "libown_static.a"
        library.write_bytes(b"!<arch>\n")
        self.assertEqual(sbom.owners_of([str(library)]), {str(library): None})
        package = sbom.package_of_file(str(library))
        self.assertEqual((package["name"], package["versionInfo"]), ("libown_static.a", "NOASSERTION"))
        self.assertEqual(package["checksums"][0]["checksumValue"], hashlib.sha256(b"!<arch>\n").hexdigest())

    def test_only_files_outside_of_the_build_are_taken_from_a_trace(self):
        inside = self.tmp / "build" / "own.a"
        outside = self.tmp / "lib" / "other.a"
        for path in (inside, outside):
            path.parent.mkdir()
            path.touch()
        trace = "own.a(a.o)\n%s(b.o)\n%s\n../lib/none.a\n/lib/x86_64-linux-gnu/libc.so.6\n" % (outside, outside)
        self.assertEqual(sbom.files_of_trace(trace, str(inside.parent)), [str(outside.resolve())])


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped:", WHY_NOT)
    unittest.main()
