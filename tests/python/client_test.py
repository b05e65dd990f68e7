"""sluice.Client over a stand-in core (fake_core.py): steps, what is refused, and a job that goes back. Needs NumPy."""
import io
import os
import pathlib
import signal
import sys
import tempfile
import unittest
from unittest import mock

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "python"), str(pathlib.Path(__file__).parent)]

try:
    import numpy as np
except ImportError:
    print("SKIPPED, NOT PASSED: client_test needs NumPy (./dev python)", file=sys.stderr)
    sys.exit(77)

import fake_core  # noqa: E402
import sluice  # noqa: E402
from fake_core import ClientCore as Core  # noqa: E402
from sluice import Client, RolledBack, SparseTable  # noqa: E402

TABLES = {"user": SparseTable(3), "item": SparseTable(2)}
RATE = 0.5


class ClientTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for patch in (mock.patch.dict(os.environ, {"SLUICE_PROGRAM_DIR": folder.name, "SLUICE_RANK": "0"}),
                      mock.patch("sys.stderr", io.StringIO())):
            patch.start()
            self.addCleanup(patch.stop)
        sluice._process.leave(again=True)
        self.core = Core()

    def client(self, tables=None, **arguments):
        return Client(tables or TABLES, core=self.core, **arguments)

    def steps(self):
        return [event for event in self.core.events if event[0] in ("step", "skip")]

    def test_equal_ids_share_a_row_and_their_gradients_add_up(self):
        users, items = np.array([7, -1, 7], np.int64), np.array([2, 3], np.int32)
        with self.client() as client:
            rows = client.pull(user=users, item=items)
            self.assertEqual(list(rows), ["user", "item"])
            self.assertEqual([(rows[name].shape, rows[name].dtype) for name in rows], [((3, 3), np.float32), ((2, 2), np.float32)])
            np.testing.assert_array_equal(rows["user"][0], rows["user"][2])
            client.push(user=np.arange(9, dtype=np.float32).reshape(3, 3))
            client.push(item=np.ones((2, 2), np.float32))
            client.push(item=np.ones((2, 2), np.float32))
            client.commit(0.25)
            self.assertEqual(client.step, 1)
            after = client.pull(item=items[:1], user=[7, -1])
            np.testing.assert_allclose(after["user"], rows["user"][:2] - RATE * np.array([[6, 8, 10], [3, 4, 5]]), rtol=1e-6)
            np.testing.assert_allclose(after["item"], rows["item"][:1] - RATE * 2, rtol=1e-6)
            client.commit()
        # The weight is the number of ids; a step without push is left out.
        self.assertEqual(self.steps(), [("step", 0.25 * 3, 3.0), ("skip",)])
        self.assertIn(("end", 0, True), self.core.events)
        self.assertEqual(self.core.events[-1], ("stop",))

    def test_ranks_of_another_launcher_are_told_how_to_run(self):
        del os.environ["SLUICE_PROGRAM_DIR"]
        with mock.patch.dict(os.environ, {"WORLD_SIZE": "4"}), \
                self.assertRaisesRegex(sluice.JobError, r"sluice launch --program=FILE\.py --worker_num=4"):
            self.client().__enter__()

    def test_tables_become_collections_and_raw_features(self):
        rule = sluice.Optimizer("adagrad", learning_rate=0.1)
        self.client({"user": SparseTable(4, optimizer=rule, initializer={"constant": 1}), "b": SparseTable(1)},
                    job=sluice.Job("train { seed: 3 }"))
        self.assertEqual(self.core.program["collections"], [
            {"name": "user", "dim": 4, "features": ["user"], "optimizer": {"adagrad": {}, "learning_rate": 0.1},
             "initializer": {"constant": 1}},
            {"name": "b", "dim": 1, "features": ["b"]}])
        self.assertEqual(self.core.job.split("\n"), ["train { seed: 3 }", 'features { name: "user" key: RAW categorical {} }',
                                                      'features { name: "b" key: RAW categorical {} }'])
        self.assertEqual(self.core.sources, (True, False, True))

    def test_ids_and_gradients_are_taken_without_a_copy(self):
        ids, gradient = np.arange(4), np.ones((4, 3), np.float32)
        with self.client() as client:
            given = []
            with mock.patch.object(self.core, "give_batch", lambda number, *batch: given.append(batch) or Core.give_batch(
                    self.core, number, *batch)):
                client.pull(user=memoryview(ids))
            self.assertTrue(np.shares_memory(given[0][5][0][0], ids))
            self.assertIs(client._gradient("user", gradient), gradient)
            # DLPack.
            dlpack = mock.Mock(spec=["__dlpack__", "__dlpack_device__"])
            dlpack.__dlpack__, dlpack.__dlpack_device__ = gradient.__dlpack__, gradient.__dlpack_device__
            self.assertTrue(np.shares_memory(client._gradient("user", dlpack), gradient))
            client.commit()

    def test_wrong_calls_say_what_is_wrong_and_the_step_goes_on(self):
        ids, good = np.arange(2), np.ones((2, 3), np.float32)
        bad = good.copy()
        bad[1, 2] = np.nan
        with self.client(steps=1) as client:
            for error, message, call in (
                    (RuntimeError, "push: there is no open step.*pull", lambda: client.push(user=good)),
                    (RuntimeError, "commit: there is no open step.*pull", client.commit),
                    (ValueError, "no table 'usr'; tables are user, item", lambda: client.pull(usr=ids)),
                    (ValueError, "needs ids: pull", client.pull),
                    (ValueError, "needs ids: prefetch", client.prefetch),
                    (ValueError, "no table 'usr'", lambda: client.prefetch(usr=ids)),
                    (TypeError, "ids of 'user' are float64.*int64", lambda: client.pull(user=np.ones(2))),
                    (TypeError, "ids of 'user' are uint64", lambda: client.pull(user=ids.astype(np.uint64))),
                    (TypeError, "ids of 'user' are bool", lambda: client.pull(user=ids > 0)),
                    (ValueError, r"ids of 'user' have the shape \(1, 2\)", lambda: client.pull(user=ids[None]))):
                with self.subTest(message), self.assertRaisesRegex(error, message):
                    call()
            client.pull(user=ids)
            for error, message, call in (
                    (RuntimeError, "step 0 is open.*commit", lambda: client.pull(user=ids)),
                    (ValueError, "no table 'usr'", lambda: client.push(usr=good)),
                    (ValueError, "needs gradients", client.push),
                    (ValueError, "'item' has no ids in this step.*user", lambda: client.push(item=good)),
                    (TypeError, "gradient of 'user' is float64.*float32", lambda: client.push(user=good.astype(float))),
                    (ValueError, r"'user' has the shape \(2, 2\).*\(2, 3\)", lambda: client.push(user=good[:, :2])),
                    (ValueError, "'user' is not finite in row 1, of step 0", lambda: client.push(user=bad)),
                    (FloatingPointError, "loss is nan in step 0", lambda: client.commit(float("nan"))),
                    (ValueError, "weight of a step is -1", lambda: client.commit(1, weight=-1))):
                with self.subTest(message), self.assertRaisesRegex(error, message):
                    call()
            client.push(user=good)
            client.commit(1)
            with self.assertRaisesRegex(RuntimeError, "commit: there is no open step"):
                client.commit(1)
            with self.assertRaisesRegex(RuntimeError, "all 1 steps are made"):
                client.pull(user=ids)
        self.assertEqual(self.steps(), [("step", 2.0, 2.0)])
        for call in (lambda: client.pull(user=ids), client.commit, client.wait, lambda: next(iter(client))):
            with self.assertRaisesRegex(RuntimeError, "left its job"):
                call()
        self.assertEqual((client.rank, client.world_size), (0, 1))
        with self.assertRaisesRegex(RuntimeError, "use `with sluice.Client"):
            self.client().pull(user=ids)

    def test_wrong_arguments_are_refused_by_name(self):
        for error, message, arguments in (
                (TypeError, "tables are a mapping", {"tables": ["user"]}),
                (ValueError, "named 'a b'", {"tables": {"a b": SparseTable(2)}}),
                (TypeError, "'user' is a int; give a sluice.SparseTable", {"tables": {"user": 3}}),
                (TypeError, "dim of the table 'user' is 3.0", {"tables": {"user": SparseTable(3.0)}}),
                (TypeError, "optimizer of 'user' is a str", {"tables": {"user": SparseTable(3, optimizer="sgd")}}),
                (TypeError, "job is a str", {"job": "train {}"}),
                (TypeError, "steps is 1.5", {"steps": 1.5}),
                (ValueError, "steps is 0", {"steps": 0})):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                self.client(**arguments)

    def test_errors_of_the_core_are_told_in_the_words_of_a_client(self):
        for said, expected in (
                ("the job names data files, but the program gives the data (source=)", r"the job of .* no data .* no eval"),
                ("/f/draft.textproto:2: data.drop_last: describes files, but the program gives the data (source=); remove it",
                 r"data\.drop_last: the job of .* no data .* no eval"),
                ("the program: collections[1].initializer: there is no field 'foo'",
                 "table 'item': initializer: there is no field 'foo'"),
                ("/f/draft.textproto:22: model.program.collections[0].dim: 0 is out of range",
                 "table 'user': dim: 0 is out of range"),
                ("the program: collections[1]: there is no field 'x'", "table 'item': there is no field 'x'"),
                ("the job: line 1", "the job: line 1")):
            for call in ("declare", "offer"):
                with self.subTest(said, call=call), mock.patch.object(self.core, call, mock.Mock(side_effect=ValueError(said))):
                    with self.assertRaisesRegex(ValueError, f"^{expected}"):
                        self.client().__enter__()

    def test_features_of_the_job_are_refused(self):
        with self.assertRaisesRegex(ValueError, "has no features"):
            self.client(job=sluice.Job("features {\n}\n" * 3))  # one more than there are tables

    def test_numbers_of_numpy_are_plain_ones(self):
        self.client({"user": SparseTable(4, initializer={"normal": {"stddev": np.float32(0.5), "mean": np.array(2)}})})
        self.assertEqual(self.core.program["collections"][0]["initializer"], {"normal": {"stddev": 0.5, "mean": 2}})
        with self.assertRaisesRegex(ValueError, "table 'user': initializer.constant is nan"):
            self.client({"user": SparseTable(4, initializer={"constant": np.float32("nan")})})
        with self.assertRaisesRegex(TypeError, "table 'user': initializer.constant is a set"):
            self.client({"user": SparseTable(4, initializer={"constant": {1}})})

    def make_step(self, client, step):
        rows = client.pull(user=np.array([step]))
        client.push(user=np.ones_like(rows["user"]))
        client.commit(0.5)

    def test_a_process_that_takes_over_begins_with_the_next_step(self):
        self.core = Core(start=5)
        made = []
        with self.client(steps=8) as client:
            self.assertEqual(client.step, 5)
            for step in client:
                made.append(step)
                self.make_step(client, step)
        self.assertEqual(made, [5, 6, 7])

    def test_a_process_that_takes_over_after_the_last_step_has_nothing_to_do(self):
        for steps in (8, None):
            sluice._process.leave(again=True)
            self.core = Core()
            self.core.coming, self.core.ended = [], True  # no request, but the end of the epoch
            with self.client(steps=steps) as client:
                self.assertEqual(list(client), [])
                if steps is not None:
                    self.assertEqual(client.step, steps)
            self.assertEqual(self.core.events, [("end", 0, True), ("stop",)])

    def test_run_makes_the_steps_again_to_which_the_job_goes_back(self):
        made = []

        def function(step):
            made.append(step)
            if made == [0, 1, 2, 3]:
                self.core.go_back(1)
            self.make_step(client, step)

        with self.client(steps=5) as client:
            client.run(function)
        self.assertEqual(made, [0, 1, 2, 3, 1, 2, 3, 4])
        self.assertEqual(len(self.steps()), 7)

    def test_a_job_that_goes_back_after_the_last_step_gets_it_again(self):
        made = []
        ends = []

        def end_batches(number):
            ends.append(number)
            if len(ends) == 1:
                self.core.go_back(2)
            else:
                self.core.ended = True

        with mock.patch.object(self.core, "end_batches", end_batches), self.client(steps=3) as client:
            for step in client:
                made.append(step)
                self.make_step(client, step)
        self.assertEqual(made, [0, 1, 2, 2])

    def test_a_request_for_the_same_step_is_answered_without_a_word(self):
        with self.client() as client:
            self.make_step(client, 0)
            self.core.go_back(1)
            self.make_step(client, 1)
        self.assertEqual(len(self.steps()), 2)

    def test_a_loop_of_ones_own_hears_that_the_job_went_back(self):
        with self.client() as client:
            self.make_step(client, 0)
            self.core.go_back(0)
            with self.assertRaisesRegex(RolledBack, "back to step 0") as raised:
                client.pull(user=[1])
            self.assertEqual((raised.exception.step, client.step), (0, 0))
        with self.assertRaisesRegex(RuntimeError, "cannot make these steps again"):
            sluice._process.leave(again=True)
            self.core = Core()
            with self.client() as client:
                self.make_step(client, 0)
                self.core.go_back(0)
        self.assertIn("cannot make these steps again", self.core.events[-2][1])

    def pull_prefetched(self, client, step):
        """A pull and a push of a step whose ids were prefetched. Returns the ids that the worker was given meanwhile."""
        given = []
        with mock.patch.object(self.core, "give_batch", lambda number, *batch: given.append(batch[5][0][0].tolist())
                               or Core.give_batch(self.core, number, *batch)):
            self.make_step(client, step)
        return given

    def test_a_prefetched_step_is_given_once_and_has_the_steps_before_it(self):
        with self.client(steps=3) as client:
            ids = np.array([7])
            first = client.pull(user=ids)["user"]
            client.prefetch(user=ids)
            ids[0] = 8
            client.prefetch(user=[9], item=[1, 1])
            with self.assertRaisesRegex(RuntimeError, "2 steps are prefetched already"):
                client.prefetch(user=[10])
            client.push(user=np.ones((1, 3), np.float32))
            client.commit(1)
            for wrong in ({"user": [8]}, {"user": [7, 7]}, {"item": [7]}, {"user": [7], "item": [7]}):
                with self.assertRaisesRegex(RuntimeError, "step 1 was prefetched with other ids"):
                    client.pull(**wrong)
            with mock.patch.object(self.core, "give_batch", side_effect=AssertionError("it was given before")):
                np.testing.assert_allclose(client.pull(user=[7])["user"], first - RATE, rtol=1e-6)
                client.commit()
                rows = client.pull(item=[1, 1], user=[9])
                self.assertEqual([(name, rows[name].shape) for name in rows], [("item", (2, 2)), ("user", (1, 3))])
                client.prefetch(user=[11])  # of step 3, which is none
                client.commit()
        self.assertEqual(self.steps(), [("step", 1.0, 1.0), ("skip",), ("skip",)])

    def test_prefetched_steps_are_given_again_to_another_attempt(self):
        with self.client() as client:
            client.prefetch(user=[0])
            client.prefetch(user=[1])
            self.core.go_back(0)
            self.assertEqual(self.pull_prefetched(client, 0), [[0], [1]])
            self.assertEqual(self.pull_prefetched(client, 1), [])
        self.assertEqual(len(self.steps()), 2)

    def test_prefetched_steps_are_forgotten_when_the_job_goes_back(self):
        for call in ("pull", "wait"):
            with self.subTest(call):
                sluice._process.leave(again=True)
                self.core = Core()
                with self.client() as client:
                    self.make_step(client, 0)
                    client.pull(user=[1])
                    client.prefetch(user=[2])
                    client.prefetch(user=[3])
                    client.push(user=np.ones((1, 3), np.float32))
                    client.commit(1)
                    self.core.go_back(1)
                    self.core.acknowledged = None
                    with self.assertRaises(RolledBack):
                        client.wait() if call == "wait" else client.pull(user=[2])
                    self.assertEqual(self.pull_prefetched(client, 1), [[1]])
                self.assertEqual(len(self.steps()), 3)

    def test_a_prefetched_step_that_is_never_pulled_trains_nothing(self):
        with self.client() as client:
            client.prefetch(user=[0])
        self.assertEqual(self.steps(), [("skip",)])
        self.assertIn("a prefetched step was left", sys.stderr.getvalue())

    def test_wait_asks_for_the_steps_of_the_attempt_or_of_the_job(self):
        for mode, expected in (("async", 2), ("sync", 7)):
            sluice._process.leave(again=True)
            self.core = Core(mode, start=5)
            with self.client(steps=8) as client:
                client.wait()  # nothing was committed
                for step in (5, 6):
                    self.make_step(client, step)
                self.core.acknowledged = True
                client.wait()
            self.assertEqual([event for event in self.core.events if event[0] == "acknowledged"], [("acknowledged", expected)])
        sluice._process.leave(again=True)
        self.core = Core("geo")
        with self.client() as client:
            self.make_step(client, 0)
            with self.assertRaisesRegex(RuntimeError, "not for Geo"):
                client.wait()

    def test_wait_ends_when_the_worker_asks_for_the_next_step(self):
        with self.client() as client:
            self.make_step(client, 0)
            self.core.go_back(1)
            self.core.acknowledged = None  # the attempt of the job is over
            client.wait()
            self.make_step(client, 1)
            self.core.go_back(0)
            self.core.acknowledged = None
            with self.assertRaises(RolledBack):
                client.wait()
        sluice._process.leave(again=True)
        self.core = Core()
        with self.assertRaisesRegex(sluice.JobError, "the pserver is lost"), self.client() as client:
            self.make_step(client, 0)
            self.core.acknowledged = None
            self.core.batches = [fake_core.JobEnded("the pserver is lost")]
            client.wait()

    def test_wait_has_nothing_to_wait_for_in_an_attempt_without_a_step(self):
        with self.client() as client:
            for step in range(2):
                self.make_step(client, step)
            self.core.go_back(1)
            with self.assertRaises(RolledBack):
                client.pull(user=[1])
            client.wait()
            self.make_step(client, 1)
            self.core.go_back(2)
            client.wait()  # ends with the request of the new attempt
            client.wait()
        self.assertEqual([event for event in self.core.events if event[0] == "acknowledged"], [("acknowledged", 1)])

    def test_a_job_of_several_epochs_is_refused_before_its_first_step(self):
        with self.assertRaisesRegex(ValueError, "train.epochs is 3: .*one epoch"):
            self.client(job=sluice.Job("train {\n  log_every: 5\n  epochs: 3\n}\n"))
        self.client(job=sluice.Job("train {\n  epochs: 1\n}\ncheckpoint {\n  epochs: 3\n}\n"))
        self.core.epochs_ = 2  # a flag of the launch
        self.core.coming.insert(0, ("count", 0, 0))
        with self.assertRaisesRegex(ValueError, "train.epochs is 2: .*--epochs"):
            with self.client() as client:
                self.make_step(client, 0)
        self.assertEqual(self.steps(), [])

    def test_a_push_with_a_bad_gradient_adds_none(self):
        good, bad = np.ones((2, 3), np.float32), np.full((2, 2), np.inf, np.float32)
        bad[1] = -np.inf
        with self.client() as client:
            before = client.pull(user=[1, 2], item=[3, 4])
            with self.assertRaisesRegex(ValueError, "'item' is not finite in row 0, of step 0"):
                client.push(user=good, item=bad)
            client.push(user=good, item=np.full((2, 2), 3e38, np.float32))  # whose sum is infinite
            client.commit(1)
            after = client.pull(user=[1, 2])
            np.testing.assert_allclose(after["user"], before["user"] - RATE, rtol=1e-6)
            client.commit()

    def test_sync_needs_the_number_of_steps(self):
        self.core.coming.insert(0, ("count", 0, 0))
        with self.client(steps=2) as client:
            self.make_step(client, 0)
        self.assertIn(("count", 1, 2), self.core.events)
        sluice._process.leave(again=True)
        self.core = Core("sync")
        self.core.coming.insert(0, ("count", 0, 0))
        with self.assertRaisesRegex(ValueError, "sync mode needs.*steps=N"):
            with self.client() as client:
                client.step
        self.assertEqual(self.core.events[-2][0], "fail")

    def test_steps_of_other_workers_are_left_out(self):
        self.core.batches = [([], [], [], 0)]
        with self.client(steps=1) as client:
            self.make_step(client, 0)
        self.assertEqual(self.steps(), [("skip",), ("step", 0.5, 1.0)])

    def test_a_pull_without_ids_is_a_step_of_weight_0(self):
        with self.client() as client:
            rows = client.pull(user=[], item=np.empty(0, np.int64))
            self.assertEqual([one.shape for one in rows.values()], [(0, 3), (0, 2)])
            client.push(user=rows["user"])
            client.commit(1)
        self.assertEqual(self.steps(), [("step", 0.0, 0.0)])

    def test_ends(self):
        with self.assertRaisesRegex(ZeroDivisionError, "in the loop"):
            with self.client() as client:
                client.pull(user=[1])
                raise ZeroDivisionError("in the loop")
        self.assertRegex(self.core.events[-2][1], r"(?s)Traceback.*client_test\.py.*ZeroDivisionError: in the loop")
        self.assertEqual(self.core.events[-1], ("stop",))
        for error, last in ((KeyboardInterrupt(), ("cancel",)), (sluice.JobError("elsewhere"), None)):
            sluice._process.leave(again=True)
            self.core = Core()
            with self.assertRaises(type(error)):
                with self.client():
                    raise error
            self.assertEqual(self.core.events, [*([last] if last else []), ("stop",)])
        self.assertEqual(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_a_job_that_fails_elsewhere_ends_a_pull(self):
        with self.assertRaisesRegex(sluice.JobError, "rank 1 has failed"):
            with self.client() as client:
                self.make_step(client, 0)
                self.core.batches = [fake_core.JobEnded("rank 1 has failed")]
                client.pull(user=[1])
        self.assertEqual(self.core.events[-1], ("stop",))
        self.assertNotIn("fail", [event[0] for event in self.core.events])

    def test_an_open_step_is_left_out(self):
        with self.client() as client:
            client.pull(user=[1])
        self.assertEqual(self.steps(), [("skip",)])
        self.assertIn("without client.commit()", sys.stderr.getvalue())
        sluice._process.leave(again=True)
        self.core = Core()
        with self.assertRaisesRegex(RuntimeError, "step 0 was not committed"):
            with self.client() as client:
                for _ in client:
                    client.pull(user=[1])

    def test_a_forked_child_is_no_worker(self):
        with self.client() as client:
            child = os.fork()
            if child == 0:
                try:
                    client.step
                except RuntimeError as error:
                    os._exit(0 if "forked" in str(error) else 1)
                os._exit(2)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.make_step(client, 0)


if __name__ == "__main__":
    unittest.main()
