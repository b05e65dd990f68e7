"""./dev bench --peers: Sluice and its peers train the standard model on the same data, in one table.

Makes an environment from PyPI for each peer (build/peers/NAME, kept), one data set with `sluice data gen`, then measures
in turns: Sluice with the floor of the matrix products, each peer, and again. Only the standard library is needed here.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# A row of sluice-bench that trains as a peer does; `row` has the batch for %d.
Ours = collections.namedtuple("Ours", "name row")
ASYNC = Ours("sluice/async", "train/async/batch%d/sgd/f32")
COLLECTIVE = Ours("sluice/collective_dense", "train/collective/batch%d/sgd/f32/dense1000")
PYTORCH = ("torch==2.5.1", "numpy")

Peer = collections.namedtuple("Peer", "name environment packages program flags threads ours", defaults=(ASYNC,))
PEERS = (
    Peer("tensorflow/async", "tensorflow", ("tensorflow-cpu==2.21.0",), "tensorflow_model.py", (), 1),
    Peer("pytorch/one_process", "pytorch", PYTORCH, "pytorch_model.py", (), 2),
    Peer("pytorch/ddp_dense", "pytorch", PYTORCH, "pytorch_ddp.py", ("--rows=26000",), 1, COLLECTIVE),
    Peer("paddle/async", "paddle", ("paddlepaddle==2.6.2", "setuptools", "decorator==5.1.1", "protobuf==4.25.3",
                                    "numpy==1.26.4"), "paddle_model.py", (), 1),
)


def parse():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--filter", default="", help="only the rows whose name matches, e.g. 'batch2048' or 'tensorflow'")
    flags.add_argument("--json", help="also write the rows to this file")
    flags.add_argument("--quick", action="store_true", help="few examples, once: shows that everything runs, not how fast")
    flags.add_argument("--repetitions", type=int, default=5)
    flags.add_argument("--bin", default=str(ROOT / "build/release/bin"), help="folder of the programs")
    flags.add_argument("--work", default=str(ROOT / "build/peers"), help="folder of environments and data")
    return flags.parse_args()


def run(command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s" % (" ".join(map(str, command)), done.returncode,
                                             (done.stdout + done.stderr)[-3000:]))
    return done.stdout


def environment(work, peer):
    """The python of the peer's environment, made when its packages are not there yet."""
    folder = work / peer.environment
    packages = folder / "packages"
    wanted = "\n".join(peer.packages)
    if not packages.exists() or packages.read_text() != wanted:
        print("installing %s" % ", ".join(peer.packages), flush=True)
        venv.create(folder, with_pip=True, clear=True)
        run([folder / "bin/pip", "install", "-q", *peer.packages])
        packages.write_text(wanted)
    return folder / "bin/python"


def data(options, python):
    """(TSV file, arrays.npz); made once."""
    examples = 20_000 if options.quick else 400_000
    folder = pathlib.Path(options.work) / ("data-%d" % examples)
    tsv = folder / "train.tsv"
    if not tsv.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making = folder / "making.tsv"
        print(run([pathlib.Path(options.bin) / "sluice", "data", "gen", "--examples=%d" % examples,
                   "--overwrite", "--output=%s" % making]).strip(), flush=True)
        making.rename(tsv)
    run([python, HERE / "criteo_arrays.py", tsv, folder])
    return tsv, folder / "arrays.npz"


def measure_sluice(options, ours, batch, tsv):
    """(thousand examples a second, floor of the matrix products in the same unit)."""
    out = pathlib.Path(options.work) / "sluice.json"
    quick = ["--quick"] if options.quick else []
    run([pathlib.Path(options.bin) / "sluice-bench", "--filter=^%s$" % (ours.row % batch), "--json=%s" % out,
         "--repetitions=1", "--train_data=%s" % tsv, *quick])
    row = json.loads(out.read_text())[0]
    return row["value"], row["limit"]


def measure_peer(peer, python, batch, arrays, quick):
    steps = 4 if quick else max(200 * 2048 // batch, 20)
    env = dict(os.environ, OMP_NUM_THREADS=str(peer.threads), PYTHONDONTWRITEBYTECODE="1")
    printed = run([python, HERE / peer.program, "--arrays", arrays, "--batch", batch, "--steps", steps, *peer.flags], env=env)
    result = json.loads([line for line in printed.splitlines() if line.startswith("{")][-1])
    return result["examples_per_second"] / 1e3


def row(name, values, floors):
    value, floor = statistics.median(values), statistics.median(floors)
    return {"name": name, "value": value, "unit": "k/s", "limit": floor, "limit_name": "gemm_floor", "ratio": value / floor,
            "repetitions": len(values), "min": min(values), "max": max(values)}


def main():
    options = parse()
    work = pathlib.Path(options.work)
    batches = (2048,) if options.quick else (512, 2048, 8192)
    wanted = re.compile(options.filter)
    pairs = [(batch, peer) for batch in batches for peer in PEERS if wanted.search("%s/batch%d" % (peer.name, batch))]
    if not pairs:
        sys.exit("no row matches --filter=%s; rows are %s, each /batch512, 2048 and 8192" % (
            options.filter, ", ".join(p.name for p in PEERS)))
    pythons = {peer: environment(work, peer) for _, peer in pairs}
    tsv, arrays = data(options, next(iter(pythons.values())))
    print("%-44s %10s %10s %7s %14s" % ("thousand examples/s", "median", "floor", "ratio", "sluice / it"))
    rows = []
    for batch in sorted({batch for batch, _ in pairs}):
        peers = [p for b, p in pairs if b == batch]
        ours, floors, theirs = collections.defaultdict(list), [], collections.defaultdict(list)
        for _ in range(1 if options.quick else options.repetitions):
            for mine in dict.fromkeys(peer.ours for peer in peers):
                value, floor = measure_sluice(options, mine, batch, tsv)
                ours[mine].append(value)
                floors.append(floor)
            for peer in peers:
                theirs[peer].append(measure_peer(peer, pythons[peer], batch, arrays, options.quick))
        for beside, name, values in [(mine, mine.name, values) for mine, values in ours.items()] + [
                (peer.ours, peer.name, values) for peer, values in theirs.items()]:
            rows.append(row("peers/%s/batch%d/sgd/f32" % (name, batch), values, floors))
            last = rows[-1]
            print("%-44s %10.1f %10.1f %7.2f %14.2f" % (last["name"], last["value"], last["limit"], last["ratio"],
                                                       statistics.median(ours[beside]) / last["value"]), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


main()
