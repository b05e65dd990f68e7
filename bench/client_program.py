"""The program of python_client.py: times steps of sluice.Client, and writes a file of figures."""
import argparse
import itertools
import json
import pathlib
import time

import numpy as np

import sluice

DIM, BATCHES, FILL = 16, 32, 64 << 10


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("figures", type=pathlib.Path)
    flags.add_argument("--rows", type=int, default=10_000_000)
    flags.add_argument("--batch", type=int, default=16 << 10)
    flags.add_argument("--steps", type=int, default=90, help="of each kind")
    flags.add_argument("--ahead", type=int, default=0, help="steps that are prefetched")
    options = flags.parse_args()
    draw = np.random.default_rng(1)
    batches = [draw.choice(options.rows, size=options.batch, replace=False, shuffle=False) for _ in range(BATCHES)]
    gradients = np.full((FILL, DIM), 1e-3, np.float32)
    rule = sluice.Optimizer("adagrad", learning_rate=1e-3)
    job = sluice.Job('name: "client" checkpoint { keep: 0 save_final_model: false } train { pipeline_depth: %d }'
                     % (options.ahead + 1))
    with sluice.Client({"row": sluice.SparseTable(DIM, rule, {"constant": 0.5})}, job) as client:
        def step(ids, push, ahead=None):
            client.pull(row=ids)
            if ahead is not None:
                client.prefetch(row=ahead)
            if push:
                client.push(row=gradients[:len(ids)])
            client.commit(0)

        for first in range(0, options.rows, FILL):
            step(np.arange(first, min(first + FILL, options.rows)), push=True)
        figures = {}
        for what, push in (("pull", False), ("pull_push", True)):
            steps = [batches[number % BATCHES] for number in range(options.steps)]
            client.wait()
            began = time.perf_counter()
            for ids in steps[:options.ahead]:
                client.prefetch(row=ids)
            for ids, ahead in itertools.zip_longest(steps, steps[options.ahead:] if options.ahead else []):
                step(ids, push, ahead)
            client.wait()
            figures[what] = options.steps * options.batch / (time.perf_counter() - began) / 1e6
    options.figures.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
