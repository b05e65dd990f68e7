"""Sluice and its peers train the standard model on the same data, in turns, next to the floor of the matrix products."""
import collections
import json
import os
import pathlib
import re
import statistics
import tempfile

import environments
import turns

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = (512, 2048, 8192)

# A job of Sluice: a row of sluice-bench (%d: the batch, %s: the optimizer), or sluice_program.py.
Ours = collections.namedtuple("Ours", "name row optimizers", defaults=(("sgd", "adam"),))
ASYNC = Ours("sluice/async", "train/async/batch%d/%s/f32")
COLLECTIVE = Ours("sluice/collective_dense", "train/collective/batch%d/%s/f32/dense1000", ("sgd",))
PROGRAM = Ours("sluice/program", None)
OURS = (ASYNC, COLLECTIVE, PROGRAM)

# `ours`: the jobs that are measured beside it. `optimizers`: those that both sides have.
Peer = collections.namedtuple("Peer", "name environment program flags threads ours optimizers", defaults=((ASYNC,), ("sgd",)))
PEERS = (
    Peer("tensorflow/async", environments.TENSORFLOW, "tensorflow_model.py", (), 1),
    Peer("pytorch/one_process", environments.PYTORCH, "pytorch_model.py", (), 2, (ASYNC, PROGRAM), ("sgd", "adam")),
    Peer("pytorch/ddp_dense", environments.PYTORCH, "pytorch_ddp.py", ("--rows=26000",), 1, (COLLECTIVE,)),
    Peer("pytorch/bound", environments.PYTORCH, "pytorch_bound.py", (), 1, (PROGRAM,), ("sgd", "adam")),
    Peer("torchrec/two_ranks", environments.TORCHREC, "torchrec_model.py", (), 1, (ASYNC, PROGRAM)),
    Peer("paddle/async", environments.PADDLE, "paddle_model.py", (), 1),
)
# The rows that say how fast PyTorch programs are.
PROGRAMS = "^(sluice/program|pytorch/(one_process|bound)|torchrec)/"
STEP_GOAL_MS = 1.0  # of a step of a program outside of its own code and torch, at batch 2048

# What one run of the program has shown. `step_ms`: the median step of worker 0, without its own code and torch.
ProgramRun = collections.namedtuple("ProgramRun", "rate step_ms")


def _name(peer, batch):
    return "%s/batch%d" % (peer.name, batch)


def names():
    return [_name(one, batch) for batch in BATCHES for one in PEERS + OURS]


def _data(options, python):
    """(TSV file, arrays.npz); made once."""
    examples = 20_000 if options.quick else 400_000
    folder = options.work / ("data-%d" % examples)
    tsv = folder / "train.tsv"
    if not tsv.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making = folder / "making.tsv"
        print(turns.run([options.bin / "sluice", "data", "gen", "--examples=%d" % examples, "--overwrite",
                         "--output=%s" % making]).strip(), flush=True)
        making.rename(tsv)
    turns.run([python, HERE / "criteo_arrays.py", tsv, folder])
    return tsv, folder / "arrays.npz"


def _measure_sluice(options, ours, batch, tsv):
    """(thousand examples a second, floor of the matrix products in the same unit)."""
    row, = turns.sluice_bench(options, ours.row % (batch, options.optimizer), "--train_data=%s" % tsv)
    return row["value"], row["limit"]


def _measure_program(options, batch, tsv):
    """A ProgramRun with one pserver and two workers of one thread; the rate, in thousands, is that of the last epoch."""
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryDirectory() as folder:
        printed = turns.run([
            options.bin / "sluice", "launch", "--program=%s" % (HERE / "sluice_program.py"),
            "--python=%s" % environments.python(options.work, environments.PYTORCH), "--server_num=1", "--worker_num=2",
            "--output_dir=%s/out" % folder, "--log_dir=%s/log" % folder, "--trace=%s/trace.json" % folder, "--", "--tsv=%s" % tsv,
            "--batch=%d" % batch, "--optimizer=%s" % options.optimizer], env=env)
        epoch = json.loads((pathlib.Path(folder) / "out" / "result.json").read_text())["epochs_log"][-1]
        own_us = turns.last_json_line(printed)["own_us"]
        compute_us = _compute_spans(json.loads((pathlib.Path(folder) / "trace.json").read_text())["traceEvents"])
    step_us = statistics.median(all_of - own for all_of, own in zip(compute_us[-len(own_us):], own_us))
    return ProgramRun(epoch["examples"] / epoch["seconds"] / 1e3, step_us / 1e3)


def _compute_spans(events):
    """Microseconds that each step of worker 0 has computed, in their order: TrainStep, in which the program runs."""
    worker, = (event["pid"] for event in events
               if event["name"] == "process_name" and event["args"]["name"].startswith("worker 0 "))
    spans = [event for event in events if event["name"] == "compute" and event["pid"] == worker]
    return [event["dur"] for event in sorted(spans, key=lambda event: event["ts"])]


def _measure_ours(options, ours, batch, tsv):
    """(thousand examples a second, floor or None, milliseconds of a step or None)."""
    if ours.row:
        return *_measure_sluice(options, ours, batch, tsv), None
    run = _measure_program(options, batch, tsv)
    return run.rate, None, run.step_ms


def _measure_peer(options, peer, python, batch, arrays):
    steps = 4 if options.quick else max(200 * 2048 // batch, 20)
    env = dict(os.environ, OMP_NUM_THREADS=str(peer.threads), PYTHONDONTWRITEBYTECODE="1")
    printed = turns.run([python, HERE / peer.program, "--arrays", arrays, "--batch", batch, "--steps", steps,
                         "--optimizer", options.optimizer, *peer.flags], env=env)
    return turns.last_json_line(printed)["examples_per_second"] / 1e3


def _measure_batch(options, batch, own, peers, pythons, tsv, arrays, rows):
    of_sluice = list(dict.fromkeys([*own, *(ours for peer in peers for ours in peer.ours)]))
    if not any(ours.row for ours in of_sluice):
        of_sluice.append(ASYNC)  # rows of sluice-bench measure the floor
    measures = {ours: lambda ours=ours: _measure_ours(options, ours, batch, tsv) for ours in of_sluice}
    measures.update({peer: lambda peer=peer: _measure_peer(options, peer, pythons[peer], batch, arrays) for peer in peers})
    measured = turns.take(measures, options.repetitions)
    ours = {mine: [value for value, _, _ in measured[mine]] for mine in of_sluice}
    floors = [floor for mine in of_sluice for _, floor, _ in measured[mine] if floor is not None]
    for besides, name, values in [((), mine.name, values) for mine, values in ours.items()] + [
            (peer.ours, peer.name, measured[peer]) for peer in peers]:
        row = rows.add("peers/%s/batch%d/%s/f32" % (name, batch, options.optimizer), "k/s", values, floors, "gemm_floor")
        print("%-44s %10.1f %10.1f %7.2f  %s" % (row["name"], row["value"], row["limit"], row["ratio"], ", ".join(
            "%s: %.2f" % (mine.name, statistics.median(ours[mine]) / row["value"]) for mine in besides)), flush=True)
    for mine in of_sluice:
        steps = [step for _, _, step in measured[mine] if step is not None]
        if not steps:
            continue
        row = rows.add("peers/%s/step/batch%d/%s" % (mine.name, batch, options.optimizer), "ms", steps, [STEP_GOAL_MS],
                       "the goal at batch 2048")
        print("%-44s %7.2f ms %7.2f ms %7.2f  outside of the program's code and torch" % (
            row["name"], row["value"], row["limit"], row["ratio"]), flush=True)


def measure(options, rows):
    """Adds the rows that match the filter."""
    batches = (2048,) if options.quick else BATCHES

    def matching(all_of):
        return [(batch, one) for batch in batches for one in all_of
                if re.search(options.filter, _name(one, batch)) and options.optimizer in one.optimizers]

    own, wanted = matching(OURS), matching(PEERS)
    if not own and not wanted:
        return
    pythons = {peer: environments.python(options.work, peer.environment) for _, peer in wanted}
    tsv, arrays = _data(options, environments.python(options.work, environments.PYTORCH))
    print("%-44s %10s %10s %7s  %s" % ("thousand examples/s", "median", "floor", "ratio", "a job of Sluice / it"))
    for batch in batches:
        of_batch = [[one for of, one in found if of == batch] for found in (own, wanted)]
        if any(of_batch):
            _measure_batch(options, batch, *of_batch, pythons, tsv, arrays, rows)
