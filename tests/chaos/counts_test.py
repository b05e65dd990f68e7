"""The comparison of counts finds each kind of error, and accepts only what the reported losses explain."""
import dataclasses
import unittest

from counts import TOTALS, CountedData, Recovery, compare, hash_bytes, key_of

EPOCHS = 3
# A worker was lost, and 16 examples of it were trained again; or a pserver, and with it 2 frames; or the job went back by
# two frames and trained them again.
REPLAYED = Recovery(losses=1, examples_replayed=16)
LOST = Recovery(losses=1, updates_lost=2)
ROLLED_BACK = Recovery(losses=1, examples_replayed=16, updates_lost=2)


class CountsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = CountedData(1)
        cls.expected = {key: float(count) for key, count in cls.data.expected(EPOCHS).items()}

    def setUp(self):
        self.values = dict(self.expected)

    def problems(self, mode="async", recovery=Recovery()):
        return compare(self.data, self.values, EPOCHS, mode, recovery).problems

    def change(self, rows, by, pserver=None):
        """As if the frames of `rows` had been applied `by` times too often; the totals only on one of two pservers."""
        for _, x, name, group in rows:
            self.values["count", key_of("id", name)] += by
            self.values["count", key_of("group", group)] += by
            for i in range(TOTALS):
                if pserver is None or i % 2 == pserver:
                    self.values["total/%d" % i, 0] += by
                    self.values["total/%d" % i, 1] += by * x

    def test_keys_are_those_of_the_programs(self):
        # The frozen values of tests/common/base/hash_test.cc.
        for text, seed, key in (("", 0, 0xffc4465b6d658d32), ("a", 0, 0x76ac96b606cf05a6), ("1234567", 1, 0xb39b2a0719df824e),
                                ("12345678", 0, 0x6c1ccaf68f3a761f)):
            self.assertEqual(hash_bytes(text.encode(), seed), key)
        self.assertEqual(len({key_of("id", "e%d" % i) for i in range(5000)}), 5000)
        self.assertNotEqual(key_of("id", "e1"), key_of("group", "e1"))

    def test_the_expected_counts_have_no_problem_in_any_mode(self):
        for mode in ("sync", "async", "geo"):
            for recovery in (Recovery(), REPLAYED, ROLLED_BACK):
                self.assertEqual(self.problems(mode, recovery), [])

    def test_without_a_loss_a_single_wrong_count_is_found(self):
        for key in (("count", key_of("id", "e7")), ("count", key_of("group", "g0")), ("total/2", 1)):
            for by in (1, -1):
                self.values[key] += by
                for mode in ("sync", "async", "geo"):
                    self.assertNotEqual(self.problems(mode), [], key)
                self.values[key] -= by

    def test_keys_that_are_missing_or_unknown_are_found(self):
        del self.values["count", key_of("id", "e7")]
        self.assertNotEqual(self.problems(), [])
        self.values = dict(self.expected)
        self.values["count", 12345] = 0.0
        self.assertNotEqual(self.problems(), [])
        self.assertNotEqual(self.problems(recovery=LOST), [])

    def test_values_that_are_no_counts_are_found(self):
        for value in (2.5, float("nan"), float("inf")):
            self.values["count", key_of("id", "e7")] = value
            self.assertNotEqual(self.problems(recovery=REPLAYED), [], value)

    def test_replayed_examples_may_be_counted_again_in_async_and_geo_only(self):
        self.change(self.data.rows[:16], 1)
        self.assertEqual(self.problems("async", REPLAYED), [])
        self.assertEqual(self.problems("geo", REPLAYED), [])
        self.assertNotEqual(self.problems("sync", REPLAYED), [])

    def test_more_than_the_replayed_examples_or_one_of_them_twice_is_found(self):
        self.change(self.data.rows[:17], 1)
        self.assertNotEqual(self.problems("async", REPLAYED), [])
        self.values = dict(self.expected)
        self.change(self.data.rows[:1], 2)
        self.assertNotEqual(self.problems("async", REPLAYED), [])
        self.assertEqual(self.problems("async", dataclasses.replace(REPLAYED, losses=2)), [])

    def test_replayed_examples_may_not_be_missing(self):
        self.change(self.data.rows[:1], -1)
        self.assertNotEqual(self.problems("async", REPLAYED), [])

    def test_lost_frames_explain_missing_counts_exactly(self):
        self.change(self.data.rows[:16], -1, pserver=0)  # two frames of eight examples to one of two pservers
        self.assertEqual(self.problems("async", LOST), [])
        self.assertEqual(self.problems("geo", LOST), [])
        self.assertNotEqual(self.problems("sync", LOST), [])
        for frames in (1, 3):
            self.assertNotEqual(self.problems("async", dataclasses.replace(LOST, updates_lost=frames)), [], frames)

    def test_a_job_that_went_back_neither_loses_nor_repeats_an_example(self):
        for by in (1, -1):
            self.values = dict(self.expected)
            self.change(self.data.rows[:1], by)
            for mode in ("sync", "async", "geo"):
                self.assertNotEqual(self.problems(mode, ROLLED_BACK), [], (mode, by))


if __name__ == "__main__":
    unittest.main()
