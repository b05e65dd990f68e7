"""Jobs that say for single dense tables that the workers keep them (tables { update_at: COLLECTIVE })."""
import shutil
import unittest

from numbers_job import BATCH, COLLECTIVE, NumbersJobTest
from sluice_testing import optimizers

EXAMPLES = 8292
# Only the last step's weights, 50 for each of two workers, are no powers of 2.
STEPS = EXAMPLES // BATCH + 1
DENSE = ["deep/%d/%s" % (layer, kind) for layer in range(3) for kind in ("weight", "bias")] + ["wide/weight", "wide/bias"]
# Flags of their own for some rules; the others train with those of the list.
OPTIMIZERS = {
    "momentum": ("--set=optimizers.all={momentum { nesterov: true } learning_rate: 0.05 schedule { noam { warmup: 8 model_dim: 4 } }}",),
    "adam": ("--set=optimizers.all={adam {} learning_rate: 0.01 schedule { cosine { steps: 40 } warmup_steps: 6 }}",
             "--set=model.wide_deep.dropout=0.2"),
    "adagrad": ("--set=optimizers.all={adagrad {} learning_rate: 0.02 clip_value: 0.01}",),
    "ftrl": ("--set=optimizers.all={ftrl { l1: 0.0001 } learning_rate: 0.05}",),
    "sgd": ("--set=optimizers.all={sgd {} learning_rate: 0.1}", "--set=optimizers.clip_global_norm=0.1"),
}


def tables(at):
    """The flag that sets update_at: {table: value}."""
    return "--set=tables=[%s]" % ", ".join("{name: '%s' update_at: %s}" % entry for entry in at.items())


# Neighbours in the network are on different sides.
MIXED = tables({name: "COLLECTIVE" for name in DENSE[1::2] + DENSE[:1]})
EACH = tables({name: "COLLECTIVE" for name in DENSE})


class MixedDenseTest(NumbersJobTest):
    examples = EXAMPLES
    job = "keys"

    # ------------------------------------------------------------------------------ values

    def test_models_are_those_of_dense_tables_on_pservers(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                pserver = self.train("p%d" % workers, workers=workers)
                self.assertGreater(pserver["eval"]["auc"], 0.7)  # it learns
                mixed = self.train("m%d" % workers, MIXED, workers=workers)
                self.assert_models_close("p%d" % workers, "m%d" % workers, tables=9)
                self.assertEqual(mixed["global_step"], STEPS)
                self.assertAlmostEqual(mixed["eval"]["auc"], pserver["eval"]["auc"], places=5)

    def test_every_optimizer_dropout_and_clipping(self):
        plain = {rule: ("--set=optimizers.all={%s}" % text,) for rule, text in optimizers().items()}
        for name, flags in {**plain, **OPTIMIZERS}.items():
            with self.subTest(name):
                self.train(name + ".p", *flags)
                self.train(name + ".m", MIXED, *flags)
                self.assert_models_close(name + ".p", name + ".m", tables=9)

    def test_two_runs_are_equal_to_the_bit_on_any_number_of_pservers(self):
        first = self.train("first", MIXED)
        again = self.train("again", MIXED, "--set=strategy.sync_configs.comm_num=2", servers=1)
        self.assertEqual(first["model_digest"], again["model_digest"])
        self.assertEqual(first["eval"], again["eval"])

    def test_naming_each_dense_table_is_the_option_for_all(self):
        option = self.train("option", COLLECTIVE)
        named = self.train("named", EACH)
        self.assertEqual(option["model_digest"], named["model_digest"])
        # A table's own word wins over the option.
        mixed = self.train("mixed", MIXED)
        others = tables({name: "PSERVER" for name in DENSE if "'%s'" % name not in MIXED})
        self.assertEqual(self.train("others", COLLECTIVE, others)["model_digest"], mixed["model_digest"])
        self.assertNotEqual(mixed["model_digest"], named["model_digest"])

    # ------------------------------------------------------------------------------ models and checkpoints

    def test_a_resumed_job_ends_with_the_bits_of_one_that_never_stopped(self):
        whole = self.train("whole", MIXED, epochs=3)
        self.train("resumed", MIXED, "--set=checkpoint.every_epochs=1", epochs=2)
        self.verify_newest_checkpoint("resumed")
        result = self.resume("resumed", MIXED, servers=1, epochs=3)
        self.assertEqual(result["model_digest"], whole["model_digest"])
        self.train("next", MIXED, "--set=initial_checkpoint=%s" % (self.tmp / "resumed"))

    def test_tables_move_between_pservers_and_workers_to_the_bit(self):
        # A mean over one worker whose weight is a power of 2 has no rounding, so all places give the same bits.
        places = {"pserver": (), "mixed": (MIXED,), "collective": (COLLECTIVE,)}
        full = "--set=data.drop_last=true"
        whole = self.train("whole", full, workers=1, epochs=2)
        for first, flags in places.items():
            self.train(first, full, *flags, "--set=checkpoint.every_epochs=1", workers=1, epochs=1)
            for then, other in places.items():
                if then == first:
                    continue
                with self.subTest("%s, then %s" % (first, then)):
                    name = "%s.%s" % (first, then)
                    shutil.copytree(self.tmp / first, self.tmp / name)
                    result = self.resume(name, full, *other, workers=1, epochs=2)
                    self.assertEqual(result["model_digest"], whole["model_digest"])

    def test_a_job_that_only_evaluates_finds_all_values(self):
        trained = self.train("trained", MIXED)
        for name, flags in {"mixed": (MIXED,), "option": (COLLECTIVE,), "pserver": ()}.items():
            with self.subTest(name):
                result = self.train(name, *flags, "--set=evaluate_only=true",
                                    "--set=initial_model=%s" % (self.tmp / "trained" / "model"))
                self.assertEqual(result["eval"], trained["eval"])

    # ------------------------------------------------------------------------------ losses

    def test_lost_members_are_replaced_and_the_job_ends_with_the_same_bits(self):
        flags = (MIXED, "--set=checkpoint.every_steps=20")
        expected = self.train("undisturbed", *flags, epochs=40)
        for role, rank in (("worker", 0), ("worker", 1), ("pserver", 1)):
            name = "%s%d" % (role, rank)
            with self.subTest(name):
                result = self.train_and_kill(name, role, rank, (30, 6 * STEPS), *flags, epochs=40)
                self.assertEqual(result["model_digest"], expected["model_digest"])

    # ------------------------------------------------------------------------------ without pservers, refusals

    def test_without_pservers_every_table_must_be_on_the_workers(self):
        option = self.train("option", COLLECTIVE, job=self.numbers)
        named = self.train("named", EACH, job=self.numbers, servers=0)
        self.assertEqual(option["model_digest"], named["model_digest"])
        _, out = self.launch(*self.flags(tables({"deep/0/weight": "COLLECTIVE"}), servers=0), job=self.numbers, name="some",
                             expect=2)
        self.assertIn("deep/0/bias", out)
        self.assertNotIn("deep/0/weight", out)
        _, out = self.launch(*self.flags(COLLECTIVE, tables({"deep/1/bias": "PSERVER"}), servers=0), job=self.numbers, name="one",
                             expect=2)
        self.assertIn("deep/1/bias", out)

    def test_what_cannot_be_is_refused_with_the_field(self):
        table = tables({"deep/0/weight": "COLLECTIVE"})
        for flags in (("--a_sync=true",), ("--a_sync=true", "--k_steps=10")):
            _, out = self.launch(table, *flags, job=self.job_file, name="refused", expect=2)
            self.assertIn("tables[0].update_at", out)
        _, out = self.launch(*self.flags(tables({"embedding": "COLLECTIVE"})), job=self.job_file, name="refused", expect=2)
        self.assertIn("sparse", out)
        _, out = self.launch(*self.flags(COLLECTIVE, tables({name: "PSERVER" for name in DENSE})), job=self.job_file, name="refused",
                             expect=2)
        self.assertIn("strategy.sync_configs.dense", out)


if __name__ == "__main__":
    unittest.main()
