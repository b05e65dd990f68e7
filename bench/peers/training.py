"""Sluice and its peers train the standard model on the same data, in turns, next to the floor of the matrix products."""
import collections
import os
import pathlib
import re
import statistics

import environments
import turns

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = (512, 2048, 8192)

# A row of sluice-bench that trains as a peer does; `row` has the batch for %d.
Ours = collections.namedtuple("Ours", "name row")
ASYNC = Ours("sluice/async", "train/async/batch%d/sgd/f32")
COLLECTIVE = Ours("sluice/collective_dense", "train/collective/batch%d/sgd/f32/dense1000")

Peer = collections.namedtuple("Peer", "name environment program flags threads ours", defaults=(ASYNC,))
PEERS = (
    Peer("tensorflow/async", environments.TENSORFLOW, "tensorflow_model.py", (), 1),
    Peer("pytorch/one_process", environments.PYTORCH, "pytorch_model.py", (), 2),
    Peer("pytorch/ddp_dense", environments.PYTORCH, "pytorch_ddp.py", ("--rows=26000",), 1, COLLECTIVE),
    Peer("paddle/async", environments.PADDLE, "paddle_model.py", (), 1),
)


def _name(peer, batch):
    return "%s/batch%d" % (peer.name, batch)


def names():
    return [_name(peer, batch) for batch in BATCHES for peer in PEERS]


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
    row, = turns.sluice_bench(options, ours.row % batch, "--train_data=%s" % tsv)
    return row["value"], row["limit"]


def _measure_peer(options, peer, python, batch, arrays):
    steps = 4 if options.quick else max(200 * 2048 // batch, 20)
    env = dict(os.environ, OMP_NUM_THREADS=str(peer.threads), PYTHONDONTWRITEBYTECODE="1")
    printed = turns.run([python, HERE / peer.program, "--arrays", arrays, "--batch", batch, "--steps", steps, *peer.flags],
                        env=env)
    return turns.last_json_line(printed)["examples_per_second"] / 1e3


def _measure_batch(options, batch, peers, pythons, tsv, arrays, rows):
    measures = {ours: lambda ours=ours: _measure_sluice(options, ours, batch, tsv) for ours in (p.ours for p in peers)}
    measures.update({peer: lambda peer=peer: _measure_peer(options, peer, pythons[peer], batch, arrays) for peer in peers})
    measured = turns.take(measures, options.repetitions)
    ours = {mine: [value for value, _ in measured[mine]] for mine in measures if isinstance(mine, Ours)}
    floors = [floor for mine in ours for _, floor in measured[mine]]
    for beside, name, values in [(mine, mine.name, values) for mine, values in ours.items()] + [
            (peer.ours, peer.name, measured[peer]) for peer in peers]:
        row = rows.add("peers/%s/batch%d/sgd/f32" % (name, batch), "k/s", values, floors, "gemm_floor")
        print("%-44s %10.1f %10.1f %7.2f %14.2f" % (row["name"], row["value"], row["limit"], row["ratio"],
                                                   statistics.median(ours[beside]) / row["value"]), flush=True)


def measure(options, rows):
    """Adds the rows that match the filter."""
    batches = (2048,) if options.quick else BATCHES
    wanted = [(batch, peer) for batch in batches for peer in PEERS if re.search(options.filter, _name(peer, batch))]
    if not wanted:
        return
    pythons = {peer: environments.python(options.work, peer.environment) for _, peer in wanted}
    tsv, arrays = _data(options, next(iter(pythons.values())))
    print("%-44s %10s %10s %7s %14s" % ("thousand examples/s", "median", "floor", "ratio", "sluice / it"))
    for batch in dict.fromkeys(batch for batch, _ in wanted):
        _measure_batch(options, batch, [peer for of, peer in wanted if of == batch], pythons, tsv, arrays, rows)
