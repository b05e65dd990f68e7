"""What open dashboards cost the scheduler: CPU with many open pages beside none, and bytes of a page.

    python3 bench/dashboard_cost.py [--jobs=200] [--pages=20]

Starts a cluster with one worker, so that one job runs and the others wait in the queue. A page is a thread that asks for what
the page of a browser asks for, as often, with compression. Pages and none are measured in turns. Threads for pages are in
this process: only the scheduler's processor time counts. Only the standard library is needed here.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import turns

EVERY_S = 2  # EVERY_MS in scheduler/page/dashboard.js
PAGE = ("/", "/page/dashboard.css", "/page/dashboard.js", "/page/chart.js", "/page/icon.svg")


def answer(admin, path, encoding="gzip"):
    request = urllib.request.Request("http://%s%s" % (admin, path), headers={"Accept-Encoding": encoding})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return len(reply.read())


def polls(job):
    return ("/api/v1/jobs", "/api/v1/jobs/%s" % job, "/api/v1/jobs/%s/curves?points=400" % job)


def cpu_seconds(pid):
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percent_of_a_core(pid, admin, job, pages, seconds):
    over = threading.Event()
    failures = []

    def page(at):
        # They are not in step.
        over.wait(EVERY_S * at / max(pages, 1))
        while not over.is_set():
            try:
                for path in polls(job):
                    answer(admin, path)
            except OSError as error:
                failures.append(error)
            over.wait(EVERY_S)

    threads = [threading.Thread(target=page, args=(at,)) for at in range(pages)]
    for thread in threads:
        thread.start()
    over.wait(EVERY_S)  # until all have begun
    begun, before = time.monotonic(), cpu_seconds(pid)
    over.wait(seconds)
    percent = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - begun)
    over.set()
    for thread in threads:
        thread.join()
    if failures:
        sys.exit("a page got no answer: %s" % failures[0])
    return percent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--bin", type=pathlib.Path, default=turns.ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sluice-dashboard-") as folder:
        log = pathlib.Path(folder) / "log"

        def sluice(command, *flags):
            done = subprocess.run([options.bin / "sluice", command, "--log_dir=%s" % log, *flags], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit("sluice %s ended with %d:\n%s" % (command, done.returncode, done.stdout + done.stderr))
            return done.stdout

        sluice("up", "--server_num=1", "--worker_num=1", "--threads=1")
        try:
            jobs = [sluice("submit", "--detach", "--job=%s" % turns.ADULT, "--worker_num=1", "--epochs=100000",
                           "--output_dir=%s/%d" % (folder, i)).split()[-1] for i in range(options.jobs)]
            _, _, _, pid, admin = re.search(r"(?m)^scheduler .*$", (log / "endpoints.log").read_text())[0].split()[:5]
            values = turns.take({
                "open": lambda: percent_of_a_core(int(pid), admin, jobs[0], options.pages, options.seconds),
                "none": lambda: percent_of_a_core(int(pid), admin, jobs[0], 0, options.seconds)}, options.repetitions)
            rows = turns.Rows()
            rows.print_header("value", "limit")
            rows.print_row(rows.add("dashboard/cpu/pages%d/jobs%d" % (options.pages, options.jobs), "%", values["open"], values["none"],
                                    "without a page, in the same turns"))
            for name, paths in (("page", PAGE), ("poll", polls(jobs[0]))):
                sizes = {encoding: sum(answer(admin, path, encoding) for path in paths) for encoding in ("gzip", "identity")}
                rows.print_row(rows.add("dashboard/%s/jobs%d" % (name, options.jobs), "KB", [sizes["gzip"] / 1000],
                                        [sizes["identity"] / 1000], "without compression"))
            rows.write(options.json)
        finally:
            sluice("down", "--now")


if __name__ == "__main__":
    main()
