#!/usr/bin/env python3
"""Runs many rounds of the counting oracle and of same bits, and prints one table.

    tests/chaos/run.py --rounds=200                      200 rounds of counting, 40 with replicas, 20 of same bits
    tests/chaos/run.py --rounds=1 --seed=17 --only=counting --modes=async --broken=streams     repeats one round
"""
import argparse
import dataclasses
import random
import signal
import sys
import unittest

from counting_oracle import EVERYTHING, LAUNCHER, MEMBERS, MODES, NOTHING, PSERVER, ROLES, STREAMS, Case, Figures
from same_bits import BitsCase, SameBitsTest
from socket_cutter import why_no_cuts

BROKEN = (NOTHING, STREAMS, LAUNCHER, MEMBERS, EVERYTHING)
# Who dies in rounds with replicas, one after another.
REPLICAS_VICTIMS = {STREAMS: (), MEMBERS: (PSERVER,), EVERYTHING: ROLES}
COLUMNS = [field.name for field in dataclasses.fields(Figures)]


class Round(SameBitsTest):
    def __init__(self, case):
        super().__init__("run_case")
        self.case, self.figures = case, Figures()

    def run_case(self):
        self.figures = self.count(self.case) if isinstance(self.case, Case) else self.same_bits(self.case)


def kinds(arguments):
    """The kinds of rounds: (what, mode, broken)."""
    wanted = [("counting", mode, broken) for broken in arguments.broken for mode in arguments.modes]
    wanted += [("replicas", mode, broken) for broken in arguments.broken if broken in REPLICAS_VICTIMS
               for mode in arguments.modes if mode != "sync"]
    wanted += [("bits", "sync", broken) for broken in arguments.broken if broken in (LAUNCHER, MEMBERS)]
    return [kind for kind in wanted if arguments.only in (None, kind[0])]


def cases(arguments):
    """Yields (kind, case): `rounds` of counting, a fifth of that with replicas and a tenth of same bits, the kinds in
    turn."""
    all_kinds = kinds(arguments)
    for what, part in (("counting", 1), ("replicas", 5), ("bits", 10)):
        rounds = -(-arguments.rounds // part)
        mine = [kind for kind in all_kinds if kind[0] == what]
        for i in range(rounds if mine else 0):
            kind = mine[i % len(mine)]
            seed = arguments.seed + i
            if what == "bits":
                yield kind, BitsCase(seed, kind[2], arguments.kills, tls=arguments.tls, transport=arguments.transport)
            elif what == "replicas":
                yield kind, Case(seed, *kind[1:], arguments.kills, victims=REPLICAS_VICTIMS[kind[2]], replicas=True,
                                 tls=arguments.tls, transport=arguments.transport)
            else:
                yield kind, Case(seed, *kind[1:], arguments.kills, tls=arguments.tls, transport=arguments.transport)


def print_table(rows):
    """rows: {kind: [(figures, failed)]}."""
    print("\n%-9s %-6s %-11s %6s %6s  %s" % ("what", "mode", "broken", "rounds", "failed",
                                             "  ".join("%8s" % column for column in COLUMNS)))
    for kind, done in rows.items():
        sums = ("%8.10g" % round(sum(getattr(figures, column) for figures, _ in done), 1) for column in COLUMNS)
        print("%-9s %-6s %-11s %6d %6d  %s" % (*kind, len(done), sum(failed for _, failed in done), "  ".join(sums)))


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the first round")
    parser.add_argument("--kills", type=int, default=3, help="in a round that kills")
    parser.add_argument("--only", choices=("counting", "replicas", "bits"))
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--broken", type=lambda text: text.split(","), default=list(BROKEN), help=",".join(BROKEN))
    parser.add_argument("--tls", action="store_true", help="with mutual TLS; certificates are replaced meanwhile unless a launcher makes them")
    parser.add_argument("--transport", choices=("auto", "grpc", "shm"), default="grpc", help="between workers and pservers")
    arguments = parser.parse_args(words)
    for given, known in ((arguments.modes, MODES), (arguments.broken, BROKEN)):
        if set(given) - set(known):
            parser.error("%s: choose from %s" % (",".join(given), ",".join(known)))
    if arguments.transport != "grpc" and why_no_cuts():
        parser.error("--transport=%s: %s" % (arguments.transport, why_no_cuts()))
    print("seed %d, %d rounds" % (arguments.seed, arguments.rounds), flush=True)
    stopped = []

    def stop(number, _):
        stopped.append(number)
        sys.exit("stopped by signal %d" % number)  # ends the round, which then ends its processes
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    rows = {}
    for kind, case in cases(arguments):
        one, result = Round(case), unittest.TestResult()
        one.run(result)
        if stopped:
            break
        failures = [text for _, text in result.failures + result.errors]
        rows.setdefault(kind, []).append((one.figures, bool(failures)))
        figures = dataclasses.asdict(one.figures)
        print("%s %s %s, seed %d: %s" % (*kind, case.seed, ", ".join(
            "%s %.10g" % (name, round(value, 1)) for name, value in figures.items() if value)), flush=True)
        if failures:
            print("FAILED; repeat with: tests/chaos/run.py --rounds=1 --seed=%d --kills=%d --only=%s --modes=%s --broken=%s --transport=%s%s" % (
                case.seed, case.kills, *kind, case.transport, " --tls" * arguments.tls))
            print("\n".join(failures), flush=True)
    print_table(rows)
    return 1 if stopped or not rows or any(failed for done in rows.values() for _, failed in done) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
