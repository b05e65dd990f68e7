"""The flags that every peer's program takes."""
import argparse


def parser(description):
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--arrays", required=True, help="arrays.npz of criteo_arrays.py; its folder holds slots-R")
    flags.add_argument("--batch", type=int, default=2048, help="examples a worker and step")
    flags.add_argument("--steps", type=int, default=100, help="measured steps, of all workers together")
    flags.add_argument("--warm_up", type=int, default=10, help="steps before them")
    flags.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    flags.add_argument("--rows", type=int, default=1_000_001, help="rows of the embedding table")
    flags.add_argument("--seed", type=int, default=1)
    return flags


def parse(description):
    return parser(description).parse_args()
