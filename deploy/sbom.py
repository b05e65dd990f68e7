#!/usr/bin/env python3
"""sbom.py BUILD_DIR OUTPUT [FOLDER]: writes the software bill of materials of programs, as SPDX 2.3 JSON.

The programs are the four of the build, or those that were installed from it into FOLDER/bin.

What is in it:
- the programs, with SHA-256 of their files, in FOLDER/bin or the build;
- the shared libraries that the loader finds for each, directly needed or not (DYNAMIC_LINK);
- the files of the system that are linked into each: start files, members of static libraries and the script library of
  the scheduler's page (STATIC_LINK). The linker names them when the build's own link command runs again with --trace;
- the packages that own these libraries and files, from dpkg. A file that no package owns, such as one of a CUDA
  toolkit that was installed by hand, gets a package of its own name. A relationship names the files in its comment;
- pyarrow, where FOLDER/lib has its libraries for Parquet, which programs open at run time (OPTIONAL_DEPENDENCY_OF).

What is not in it: header-only code, which no link names, and libraries that a program opens by name at run time
(cuBLAS and the CUDA driver).

The same build on the same packages gives the same bytes: the document's name space holds a hash of its contents, and
its time is SOURCE_DATE_EPOCH, or the time of the commit.
"""
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker")
NO_ASSERTION = "NOASSERTION"
# Debian's short names of licenses (DEP 5) whose SPDX names differ, and those that are the same.
LICENSES = {
    "Apache-2": "Apache-2.0", "Apache-2.0": "Apache-2.0", "BSD-2-clause": "BSD-2-Clause",
    "BSD-3-clause": "BSD-3-Clause", "Expat": "MIT", "MIT": "MIT", "ISC": "ISC", "MPL-2.0": "MPL-2.0",
    "Zlib": "Zlib", "zlib": "Zlib",
    "GPL-2": "GPL-2.0-only", "GPL-2+": "GPL-2.0-or-later", "GPL-3": "GPL-3.0-only", "GPL-3+": "GPL-3.0-or-later",
    "LGPL-2": "LGPL-2.0-only", "LGPL-2+": "LGPL-2.0-or-later", "LGPL-2.1": "LGPL-2.1-only",
    "LGPL-2.1+": "LGPL-2.1-or-later", "LGPL-3": "LGPL-3.0-only", "LGPL-3+": "LGPL-3.0-or-later",
}


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"},
                          **options).stdout


def hash_of(algorithm, path):
    return hashlib.new(algorithm, pathlib.Path(path).read_bytes()).hexdigest()


def shared_libraries(program):
    """{name: file} of all shared libraries that the loader finds for a program."""
    text = run("ldd", str(program))
    missing = re.findall(r"(\S+) => not found", text)
    if missing:
        raise SystemExit("sbom: %s does not find %s; build where its libraries are" % (program, ", ".join(missing)))
    paths = re.findall(r"(?:=> |^\s*)(/\S+) \(0x", text, re.M)
    return {os.path.basename(path): os.path.realpath(path) for path in paths}


def static_files(build, program):
    """{name: file} of the files of the system that are linked into a program."""
    commands = run("ninja", "-C", str(build), "-t", "commands", "bin/%s" % program).splitlines()
    command = next(line for line in reversed(commands) if " -o bin/%s " % program in line)
    with tempfile.TemporaryDirectory(prefix="sluice_sbom_") as folder:
        traced = "-Wl,--trace -o %s " % shlex.quote(folder + "/program")
        trace = run("sh", "-c", command.replace(" -o bin/%s " % program, " %s" % traced, 1), cwd=build)
    files = {os.path.basename(path): path for path in files_of_trace(trace, build)}
    if program == "sluice-scheduler":  # its page is in the program, with Debian's Chart.js
        chart = re.search(r"^SLUICE_CHART_JS:[A-Z]+=(.+)$", (pathlib.Path(build) / "CMakeCache.txt").read_text(), re.MULTILINE)
        files[os.path.basename(chart[1])] = os.path.realpath(chart[1])
    return files


def files_of_trace(trace, build):
    """The object files and static libraries outside of the build that a linker's --trace names."""
    files = set()
    for line in trace.splitlines():
        path = re.sub(r"\([^()]*\)$", "", line.strip())  # LIBRARY(MEMBER)
        path = os.path.realpath(os.path.join(build, path))
        inside = os.path.commonpath([path, os.path.realpath(build)]) == os.path.realpath(build)
        if path.endswith((".a", ".o")) and not inside and os.path.isfile(path):
            files.add(path)
    return sorted(files)


def owners_of(paths):
    """{file: the dpkg package that owns it, or None}."""
    # Packages name files as they were before /lib became a link to /usr/lib.
    spellings = {}
    for path in paths:
        spellings[path] = path
        spellings[path[len("/usr"):] if path.startswith("/usr/") else "/usr" + path] = path
    owners = dict.fromkeys(paths)
    done = subprocess.run(["dpkg-query", "--search", *spellings], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        packages, name = line.rsplit(": ", 1)
        if name in spellings and not packages.startswith("diversion"):
            owners[spellings[name]] = packages.split(", ")[0]
    return owners


def license_of(package):
    """What the package's copyright file says of `Files: *`, as an SPDX name. Other files of it may differ."""
    path = pathlib.Path("/usr/share/doc") / package.split(":")[0] / "copyright"
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return NO_ASSERTION
    if "copyright-format/1.0" not in text.split("\n\n")[0]:
        return NO_ASSERTION
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", paragraph, re.M))
        if fields.get("Files", "").strip() == "*":
            return LICENSES.get(fields.get("License", "").strip()) or NO_ASSERTION
    return NO_ASSERTION


def checksums_of(packages):
    """{(name, version, architecture): SHA-256 of the package's file}, as far as apt's lists have these versions."""
    done = subprocess.run(["apt-cache", "show", *["%s:%s=%s" % (name, architecture, version)
                                                  for name, version, architecture in packages]],
                          capture_output=True, text=True)
    checksums = {}
    for paragraph in done.stdout.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.M))
        checksums[fields.get("Package"), fields.get("Version"), fields.get("Architecture")] = fields.get("SHA256")
    return checksums


def system_name():
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', pathlib.Path("/etc/os-release").read_text(), re.M))
    return fields.get("ID", "linux"), fields.get("VERSION_ID", "")


def spdx_id(kind, name):
    return "SPDXRef-%s-%s" % (kind, re.sub(r"[^A-Za-z0-9.-]", lambda match: "-%x-" % ord(match[0]), name))


def packages_of_dpkg(owners):
    """{owner: package} of the packages that dpkg knows by these names."""
    fields = ("binary:Package", "Package", "Version", "Architecture", "source:Package", "source:Version", "Maintainer",
              "Homepage")
    lines = run("dpkg-query", "--show", "--showformat=%s\\n" % "\\t".join("${%s}" % field for field in fields),
                *sorted(owners)).splitlines()
    found = [dict(zip(fields, line.split("\t"))) for line in lines]
    checksums = checksums_of([(one["Package"], one["Version"], one["Architecture"]) for one in found])
    # libfoo:amd64 is named libfoo when the system has only one architecture of it.
    packages = {}
    for one in found:
        names = {one["binary:Package"], one["Package"], "%s:%s" % (one["Package"], one["Architecture"])}
        for owner in names & set(owners):
            packages[owner] = package_of_dpkg(one, checksums)
    return packages


def package_of_dpkg(fields, checksums):
    name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
    maintainer = fields["Maintainer"]
    system, release = system_name()
    quote = functools.partial(urllib.parse.quote, safe="")
    kind = "Organization" if re.search(r"Team|Maintainers|Developers|Group|Project", maintainer) else "Person"
    who = re.fullmatch(r"(.*) <(.*)>", maintainer)
    package = {
        "SPDXID": spdx_id("Package", "%s-%s" % (name, architecture)),
        "name": name,
        "versionInfo": version,
        "supplier": "%s: %s" % (kind, "%s (%s)" % who.groups() if who else maintainer),
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": license_of(name),
        "copyrightText": NO_ASSERTION,
        "sourceInfo": "built from the source package %s %s" % (fields["source:Package"], fields["source:Version"]),
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": "pkg:deb/%s/%s@%s?arch=%s&distro=%s" % (
                quote(system), quote(name), quote(version), quote(architecture), quote("%s-%s" % (system, release))),
        }],
    }
    if fields["Homepage"]:
        package["homepage"] = fields["Homepage"]
    checksum = checksums.get((name, version, architecture))
    if checksum:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": checksum}]
    return package


def package_of_file(path):
    """The package of a file that no package owns."""
    return {
        "SPDXID": spdx_id("Package", path),
        "name": os.path.basename(path),
        "versionInfo": NO_ASSERTION,
        "supplier": NO_ASSERTION,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
        "sourceInfo": "no package of this system owns %s" % path,
        "checksums": [{"algorithm": "SHA256", "checksumValue": hash_of("sha256", path)}],
    }


def package_of_arrow():
    """The wheel whose libraries sluice-arrow.so links."""
    version = re.search(r"^pyarrow==(.*)$", (ROOT / "python/requirements-arrow.txt").read_text(), re.M)[1]
    return {
        "SPDXID": spdx_id("Package", "pyarrow"),
        "name": "pyarrow",
        "versionInfo": version,
        "supplier": "Organization: Apache Software Foundation",
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": "Apache-2.0",
        "copyrightText": NO_ASSERTION,
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": "pkg:pypi/pyarrow@%s" % version}],
    }


def package_of_programs(version, files):
    """`files`: the entries of the programs."""
    sums = sorted(sum["checksumValue"] for file in files for sum in file["checksums"] if sum["algorithm"] == "SHA1")
    return {
        "SPDXID": "SPDXRef-Package-sluice",
        "name": "sluice",
        "versionInfo": version,
        "supplier": NO_ASSERTION,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": True,
        "packageVerificationCode": {
            "packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()},
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": "Apache-2.0",
        "copyrightText": NO_ASSERTION,
    }


def program_entry(folder, program):
    """`folder`: of the program's bin/."""
    path = folder / "bin" / program
    return {
        "SPDXID": spdx_id("File", program),
        "fileName": "./bin/" + program,
        "fileTypes": ["BINARY"],
        "checksums": [{"algorithm": algorithm.upper(), "checksumValue": hash_of(algorithm, path)}
                      for algorithm in ("sha1", "sha256")],
        "licenseConcluded": NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
    }


def project_version(build):
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", cache, re.M)[1]


def time_of_build():
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        done = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
        seconds = done.stdout.strip() or "0"
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def bill(build, installed=None):
    """`installed`: a folder with programs of the build, which may be stripped; without it, the build's own."""
    build = pathlib.Path(build)
    folder = pathlib.Path(installed) if installed else build
    names = sorted(path.name for path in (folder / "bin").iterdir()) if installed else PROGRAMS
    version = project_version(build)
    programs = {program: program_entry(folder, program) for program in names}
    own = package_of_programs(version, programs.values())
    linked = []  # (program, how, name of a file, its path)
    for program in names:
        for how, files in (("DYNAMIC_LINK", shared_libraries(build / "bin" / program)),
                           ("STATIC_LINK", static_files(build, program))):
            linked += [(program, how, name, path) for name, path in files.items()]
    owners = owners_of({path for _, _, _, path in linked})
    packages = packages_of_dpkg({owner for owner in owners.values() if owner})
    by_path = {path: packages[owner] if owner else package_of_file(path) for path, owner in owners.items()}
    relationships = {("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"]): set()}
    for entry in programs.values():
        relationships[own["SPDXID"], "CONTAINS", entry["SPDXID"]] = set()
    for program, how, name, path in linked:
        key = programs[program]["SPDXID"], how, by_path[path]["SPDXID"]
        relationships.setdefault(key, set()).add(name)
    others = {one["SPDXID"]: one for one in by_path.values()}
    arrow = {path.name for path in folder.glob("lib/*.so*") if re.match("lib(arrow|parquet)\\.", path.name)} if installed else set()
    if arrow:
        package = package_of_arrow()
        others[package["SPDXID"]] = package
        relationships[package["SPDXID"], "OPTIONAL_DEPENDENCY_OF", own["SPDXID"]] = arrow
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "sluice-%s" % version,
        "creationInfo": {"created": time_of_build(), "creators": ["Tool: sluice-sbom"]},
        "packages": sorted([own, *others.values()], key=lambda one: one["SPDXID"]),
        "files": sorted(programs.values(), key=lambda one: one["SPDXID"]),
        "relationships": [
            {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other,
             **({"comment": " ".join(sorted(names))} if names else {})}
            for (one, how, other), names in sorted(relationships.items())],
    }
    contents = json.dumps(document, sort_keys=True).encode()
    document["documentNamespace"] = "https://spdx.org/spdxdocs/sluice-%s-%s" % (
        version, hashlib.sha256(contents).hexdigest())
    return document


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    text = json.dumps(bill(sys.argv[1], *sys.argv[3:]), indent=1, sort_keys=True) + "\n"
    output = pathlib.Path(sys.argv[2])
    unfinished = output.with_name(output.name + ".unfinished")
    unfinished.write_text(text)
    unfinished.replace(output)


if __name__ == "__main__":
    main()
