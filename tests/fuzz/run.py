#!/usr/bin/env python3
"""Runs fuzzers one after another and prints one table. ./dev fuzz builds them and calls this.

    tests/fuzz/run.py --seconds=60                       all fuzzers of build/fuzz
    tests/fuzz/run.py --seconds=600 pserver_session      one of them
    tests/fuzz/run.py --minimize wire_frame              writes the inputs that matter to the corpus of the tree

Inputs that reached new code stay in build/fuzz/corpus, from which the next run continues.
"""
import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests/fuzz/corpus"
INPUT_SECONDS = 5
MEMORY_MIB = 2048
# An input of the tree's corpus stays small, so that its test and the repository do.
MOST_SEED_BYTES = 4096
MOST_SEEDS = 40
# Containers that cross to Debian's libraries, which have no sanitizer, would give false reports.
REPLAY_OPTIONS = "detect_container_overflow=0"
ENVIRONMENT = {
    **os.environ,
    "OMP_WAIT_POLICY": "passive",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # Recording deep stacks of allocations would cost a tenth of the time. Replays show them whole.
    "ASAN_OPTIONS": f"{REPLAY_OPTIONS}:malloc_context_size=4",
}
if os.access("/dev/shm", os.W_OK):
    ENVIRONMENT["TMPDIR"] = "/dev/shm"  # for example_cache, which would wait for the disk
DICTIONARIES = {"job_config": "config", "cluster_config": "config", "config_override": "config", "manifest": "manifest",
                "http_request": "http", "wire_frame": "frame"}
COLUMNS = ("fuzzer", "seconds", "executions", "coverage", "features", "corpus", "result")
WIDTHS = (18, 8, 11, 9, 9, 7, 8)


class Fuzzer:
    def __init__(self, build, name):
        self.name = name
        self.program = build / "fuzz" / f"fuzz_{name}"
        self.corpus = build / "corpus" / name
        self.crashes = build / "crashes"
        self.log = build / "logs" / f"{name}.log"
        self.seeds = SEEDS / name
        for folder in (self.corpus, self.crashes, self.log.parent, self.seeds):
            folder.mkdir(parents=True, exist_ok=True)

    def flags(self):
        flags = [f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MIB}", f"-malloc_limit_mb={MEMORY_MIB}",
                 f"-artifact_prefix={self.crashes}/{self.name}-", "-print_final_stats=1"]
        if self.name in DICTIONARIES:
            flags.append(f"-dict={ROOT}/tests/fuzz/{DICTIONARIES[self.name]}.dict")
        return flags

    def run(self, seconds):
        """Returns the row of the table, and whether it went well."""
        begun, executions, well = time.monotonic(), 0, False
        end = begun + seconds
        while not well:
            left = max(1, round(end - time.monotonic()))
            command = [self.program, self.corpus, self.seeds, f"-max_total_time={left}", *self.flags()]
            with self.log.open("wb") as log:
                code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=ENVIRONMENT, check=False).returncode
            text = self.log.read_text(errors="replace")
            count = re.findall(r"stat::number_of_executed_units: (\d+)", text) or re.findall(r"^#(\d+)\t", text, re.M)
            executions += int(count[-1]) if count else 0
            well = code == 0
            if not well and not self.was_only_waiting(text):
                break
            well = well or time.monotonic() >= end
        figures = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text)
        well = well and executions > 0 and bool(figures)
        row = (self.name, f"{time.monotonic() - begun:.0f}", executions, *(figures[-1] if figures else "???"),
               "ok" if well else "FAILED")
        return row, well

    def was_only_waiting(self, text):
        """Whether the input that took too long needs little processor time, so that the machine was busy. Removes it."""
        artifact = re.search(r"Test unit written to (\S+-timeout-\S+)", text)
        if artifact is None:
            return False
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([self.program, "-timeout=120", artifact[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env=ENVIRONMENT, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= INPUT_SECONDS:
            return False
        pathlib.Path(artifact[1]).unlink()
        return True

    def explain(self):
        """Says what failed, where the input is, and how to run it again."""
        text = self.log.read_text(errors="replace")
        print(f"\n{self.name} failed; the end of {self.log}:\n")
        print("\n".join(text.splitlines()[-40:]))
        for artifact in re.findall(r"Test unit written to (\S+)", text):
            print(f"\ninput:  {artifact}\nreplay: ASAN_OPTIONS={REPLAY_OPTIONS} {self.program} "
                  f"-timeout={INPUT_SECONDS} -rss_limit_mb={MEMORY_MIB} {artifact}")
            print(f"When it is fixed, keep the input as {self.seeds.relative_to(ROOT)}/WHAT_WAS_WRONG.")

    def minimize(self):
        """Adds the smallest inputs of the working corpus that reach code which the tree's corpus does not."""
        merged = self.corpus.parent / f"{self.name}.merged"
        shutil.rmtree(merged, ignore_errors=True)
        shutil.copytree(self.seeds, merged)
        known = {file.name for file in merged.iterdir()}
        # Without counters, an input that only repeats known code more often is not new.
        subprocess.run([self.program, "-merge=1", merged, self.corpus, *self.flags(), "-use_counters=0", "-timeout=60"],
                       env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        inputs = sorted((file for file in merged.iterdir() if file.name not in known and file.stat().st_size <= MOST_SEED_BYTES),
                        key=lambda file: file.stat().st_size)
        # Of all sizes: large ones reach the deepest states.
        step = max(1, len(inputs) // MOST_SEEDS)
        for file in inputs[::-1][::step][:MOST_SEEDS]:
            (self.seeds / f"found_{file.name[:12]}").write_bytes(file.read_bytes())
        shutil.rmtree(merged)


def print_row(row):
    cells = [str(cell).ljust(width) if i in (0, 6) else str(cell).rjust(width) for i, (cell, width) in enumerate(zip(row, WIDTHS))]
    print("  ".join(cells).rstrip(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each fuzzer")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("--minimize", action="store_true")
    arguments = parser.parse_args()
    sources = sorted(file.stem for file in (ROOT / "tests/fuzz").glob("*.cc"))
    known = [name for name in sources if (arguments.build / "fuzz" / f"fuzz_{name}").exists()]
    names = arguments.names or known
    for name in names:
        if name not in known:
            print(f"there is no fuzzer {name}; there are: {', '.join(known)}")
            return 2
    if not names:
        print(f"there are no fuzzers in {arguments.build}/fuzz; build the target sluice_fuzzers")
        return 2
    fuzzers = [Fuzzer(arguments.build, name) for name in names]
    if arguments.minimize:
        for fuzzer in fuzzers:
            fuzzer.minimize()
        return 0
    failed = []
    print_row(COLUMNS)
    for fuzzer in fuzzers:
        row, well = fuzzer.run(arguments.seconds)
        print_row(row)
        if not well:
            failed.append(fuzzer)
    for fuzzer in failed:
        fuzzer.explain()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
