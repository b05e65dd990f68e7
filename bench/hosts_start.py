"""Seconds from the command to the first step on two hosts: `sluice launch --hosts` beside plain ssh.

    python3 bench/hosts_start.py [--repetitions=4]

The hosts are namespaces with ssh servers of their own (tests/system/ssh_hosts.py; needs root). Plain ssh is a script that starts
the same daemons from a cluster file, without checks, certificates or guards, and then submits. The job is the shipped Adult
job in sync. Only the standard library is needed here.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

import turns

sys.path.insert(0, str(turns.ROOT / "tests" / "system"))
import ssh_hosts  # noqa: E402
from sluice_testing import BIN  # noqa: E402

FLAGS = ("--a_sync=false", "--epochs=1", "--set=train.log_every=1", "--progress=plain")


class Hosts(ssh_hosts.SshHostsTest):
    def runTest(self):
        """The hosts are a fixture of tests."""


def first_step(command):
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    printed, found = [], None
    for line in process.stdout:
        printed.append(line)
        if found is None and re.search(r"step \d+ loss", line):
            found = time.monotonic() - begin
    process.wait()
    if found is None or process.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (" ".join(map(str, command)), process.returncode, "".join(printed)))
    return found


class Starts:
    def __init__(self, hosts):
        self._hosts, self._count = hosts, 0

    def _folder(self):
        self._count += 1
        return self._hosts.tmp / ("start%d" % self._count)

    def launch(self, *flags):
        folder = self._folder()
        return first_step(self._hosts.on("a", BIN / "sluice", "launch", "--job=%s" % turns.ADULT, "--hosts=a:1,b:1",
                                         "--output_dir=%s" % folder, "--log_dir=%s.log" % folder, *FLAGS, *flags))

    def plain_ssh(self):
        folder = self._folder()
        port = 7500 + 10 * self._count
        config = pathlib.Path("%s.textproto" % folder)
        config.write_text('version: 1 scheduler: "a:%d" pservers: "a:%d" pservers: "b:%d" worker_num: 2 security { insecure: true }'
                          % (port, port + 1, port + 2))
        scheduler = "--scheduler=a:%d --insecure" % port

        def daemon(host, role, *more):
            return "ssh -o BatchMode=yes %s '%s/sluice-%s --cluster=%s --log_dir=%s.%s %s </dev/null >/dev/null 2>&1 &' &" % (
                host, BIN, role, config, folder, host, " ".join(more))

        script = [daemon("a", "scheduler")]
        for rank, host in enumerate("ab"):
            script += [daemon(host, "pserver", "--rank=%d" % rank), daemon(host, "worker", "--rank=%d" % rank, "--threads=1")]
        script += ["wait", "while ! %s/sluice status %s >/dev/null 2>&1; do sleep 0.05; done" % (BIN, scheduler),
                   "%s/sluice submit --job=%s %s --worker_num=2 --output_dir=%s %s" % (
                       BIN, turns.ADULT, scheduler, folder, " ".join(FLAGS)),
                   "%s/sluice down %s" % (BIN, scheduler)]
        return first_step(self._hosts.on("a", "sh", "-c", "\n".join(script)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write the rows to this file")
    parser.add_argument("--repetitions", type=int, default=4)
    options = parser.parse_args()
    hosts = Hosts()
    hosts.setUp()
    try:
        hosts.add_hosts("ab")
        starts = Starts(hosts)
        values = turns.take({"launch": starts.launch, "launch without TLS": lambda: starts.launch("--notls"),
                             "plain ssh": starts.plain_ssh}, options.repetitions)
        rows = turns.Rows()
        rows.print_header("value", "limit")
        for name, key in (("tls", "launch"), ("insecure", "launch without TLS")):
            rows.print_row(rows.add("hosts/start/%s" % name, "s", values[key], values["plain ssh"], "plain ssh, in the same turns"))
        rows.write(options.json)
    finally:
        hosts.tearDown()


if __name__ == "__main__":
    main()
