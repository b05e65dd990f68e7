"""The comparison of counts finds each kind of error, and accepts only what the reported losses explain."""
import dataclasses
import unittest

from counts import TOTALS, CountedData, Recovery, compare, hash_bytes, key_of

EPOCHS = 3
# A worker was lost, and 16 examples of it were trained again; or a pserver, and with it two frames of the tables "count" and
# "total/0"; or both.
REPLAYED = Recovery(losses=1, examples_replayed=16)
LOST = Recovery(losses=1, updates_lost=4)
EXACT = dataclasses.replace(LOST, exact=True)
BOTH = Recovery(losses=2, examples_replayed=16, updates_lost=4, exact=True)


class CountsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.data = CountedData(1)
        cls.expected = {key: float(count) for key, count in cls.data.expected(EPOCHS).items()}

    def setUp(self):
        self.values = dict(self.expected)

    def problems(self, mode="async", recovery=Recovery()):
        return compare(self.data, self.values, EPOCHS, mode, recovery).problems

    def change(self, rows, by, totals=range(TOTALS)):
        """As if the frames of `rows` had been applied `by` times too often to the table "count" and to these totals."""
        for _, x, name, group in rows:
            self.values["count", key_of("id", name)] += by
            self.values["count", key_of("group", group)] += by
            for i in totals:
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
            for recovery in (Recovery(), REPLAYED, LOST, BOTH):
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

    def test_lost_updates_explain_missing_counts(self):
        self.change(self.data.rows[:16], -1, totals=[0])  # two frames of eight examples on two shards
        for recovery in (LOST, EXACT, BOTH):
            self.assertEqual(self.problems("async", recovery), [])
            self.assertEqual(self.problems("geo", recovery), [])
            self.assertNotEqual(self.problems("sync", recovery), [])
        for updates in (3, 5):
            self.assertNotEqual(self.problems("async", dataclasses.replace(EXACT, updates_lost=updates)), [], updates)
        self.assertNotEqual(self.problems("async", dataclasses.replace(LOST, updates_lost=3)), [])
        self.assertEqual(self.problems("async", dataclasses.replace(LOST, updates_lost=5)), [], "frames may be smaller")

    def test_lost_updates_of_groups_must_be_explained_too(self):
        for _, _, _, group in self.data.rows[:40]:
            self.values["count", key_of("group", group)] -= 1
        self.assertNotEqual(self.problems("async", LOST), [])

    def test_a_lost_update_does_not_excuse_an_example_that_is_counted_twice(self):
        self.change(self.data.rows[:1], 1)
        for recovery in (LOST, EXACT):
            self.assertNotEqual(self.problems("async", recovery), [])


if __name__ == "__main__":
    unittest.main()
