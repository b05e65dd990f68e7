"""A bounded number of rounds of the counting oracle and of same bits. run.py runs as many as wanted."""
import os
import unittest

import counting_oracle
from counting_oracle import EVERYTHING, LAUNCHER, MEMBERS, MODES, NOTHING, PSERVER, ROLES, SCHEDULER, STREAMS, WORKER, Case
from counts import CountedData
from same_bits import BitsCase, SameBitsTest
from socket_cutter import why_no_cuts

SEED = int(os.environ.get("CHAOS_SEED", "1"))


class ChaosTest(SameBitsTest):
    def test_undisturbed_counts_are_exact_in_all_modes(self):
        for mode in MODES:
            for seed in (SEED, SEED + 1):
                self.count(Case(seed, mode, NOTHING))

    def test_an_example_that_was_not_expected_is_found(self):
        class OneMore(CountedData):
            def expected(self, epochs):
                counts = super().expected(epochs)
                counts[self.ids[7]] += 1
                return counts
        real, counting_oracle.CountedData = counting_oracle.CountedData, OneMore
        self.addCleanup(setattr, counting_oracle, "CountedData", real)
        with self.assertRaisesRegex(AssertionError, "%d.*-1" % CountedData(SEED).ids[7][1]):
            self.count(Case(SEED, "async", NOTHING))

    def test_counts_are_exact_when_streams_break(self):
        for mode in MODES:
            self.count(Case(SEED, mode, STREAMS))

    def test_counts_of_sync_are_exact_when_the_launcher_dies_and_the_job_is_resumed(self):
        self.count(Case(SEED, "sync", LAUNCHER, kills=2))

    def test_adult_has_the_same_bits_when_the_launcher_dies_and_the_job_is_resumed(self):
        self.same_bits(BitsCase(SEED, LAUNCHER))

    def test_async_and_geo_counts_are_explained_when_the_launcher_dies_and_the_job_is_resumed(self):
        for mode in ("async", "geo"):
            self.count(Case(SEED, mode, LAUNCHER, kills=2))

    def test_counts_are_explained_when_workers_die(self):
        for mode in MODES:
            self.count(Case(SEED, mode, MEMBERS, kills=2, victims=(WORKER,)))

    def test_counts_of_sync_are_exact_when_pservers_die(self):
        self.count(Case(SEED, "sync", MEMBERS, kills=2, victims=(PSERVER,)))

    def test_updates_lost_says_exactly_what_is_missing_when_pservers_die(self):
        for mode, k_steps in (("async", 0), ("geo", 1)):
            found = [self.count(Case(seed, mode, MEMBERS, kills=3, victims=(PSERVER,), k_steps=k_steps))
                     for seed in (SEED + 2, SEED + 3)]
            self.assertGreater(sum(figures.lost for figures in found), 0, "nothing was lost that could be counted")

    @unittest.skipIf(why_no_cuts(), why_no_cuts())
    def test_counts_are_exact_when_streams_through_shared_memory_break(self):
        self.count(Case(SEED, "sync", STREAMS, transport="shm"))

    def test_counts_are_explained_through_shared_memory_when_members_die(self):
        for mode, victims in (("sync", (WORKER, PSERVER)), ("async", (WORKER,)), ("geo", (WORKER,))):
            self.count(Case(SEED + 4, mode, MEMBERS, kills=2, victims=victims, transport="shm"))

    def test_counts_are_exact_when_the_scheduler_dies(self):
        for mode in MODES:
            self.count(Case(SEED, mode, MEMBERS, kills=2, victims=(SCHEDULER,)))

    def test_counts_are_explained_when_members_die_and_streams_break(self):
        # What the loss of a pserver costs async and Geo is only estimated.
        for mode, victims in (("sync", (WORKER, PSERVER)), ("async", (WORKER,)), ("geo", (WORKER,))):
            self.count(Case(SEED + 1, mode, EVERYTHING, kills=2, victims=victims))

    def test_replicas_lose_nothing_when_any_member_dies_and_streams_break(self):
        for mode in ("async", "geo"):
            self.count(Case(SEED, mode, EVERYTHING, kills=2, replicas=True))

    def test_replaced_certificates_stop_nothing_while_members_die_and_streams_break(self):
        for mode, victims in (("sync", ROLES), ("async", (WORKER, SCHEDULER))):
            self.count(Case(SEED + 2, mode, EVERYTHING, kills=2, victims=victims, tls=True))

    def test_adult_has_the_same_bits_when_members_die(self):
        self.same_bits(BitsCase(SEED, MEMBERS))


if __name__ == "__main__":
    unittest.main()
