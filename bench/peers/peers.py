"""./dev bench --peers: Sluice next to what a user would pick instead, measured in turns, in one table.

Makes environments from PyPI for the peers (environments.py) and one data set with `sluice data gen`, then measures jobs
(training.py), all-reduce (allreduce.py) and tables in Parquet (tables.py). Only the standard library is needed here.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))
import turns  # noqa: E402

import allreduce  # noqa: E402
import tables  # noqa: E402
import training  # noqa: E402


def parse():
    flags = turns.flags(__doc__, repetitions=5)
    flags.add_argument("--quick", action="store_true", help="few examples, once: shows that everything runs, not how fast")
    flags.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd", help="adam: only peers that have it")
    flags.add_argument("--programs", action="store_true",
                       help="exactly the rows that say how fast PyTorch programs are, with SGD and with Adam")
    flags.add_argument("--work", type=pathlib.Path, default=turns.ROOT / "build/peers", help="folder of environments and data")
    options = flags.parse_args()
    if options.programs and (options.filter or options.optimizer != "sgd"):
        sys.exit("--programs says which rows and optimizers: remove --filter and --optimizer")
    if options.programs:
        options.filter = training.PROGRAMS
    if options.quick:
        options.repetitions = 1
    return options


def main():
    options = parse()
    known = training.names() + allreduce.names() + tables.names()
    if not any(re.search(options.filter, name) for name in known):
        sys.exit("no row matches --filter=%s; rows are\n  %s" % (options.filter, "\n  ".join(known)))
    rows = turns.Rows()
    training.measure(options, rows)
    if options.optimizer == "sgd":
        allreduce.measure(options, rows)
        tables.measure(options, rows)
    if options.programs:
        options.optimizer = "adam"
        training.measure(options, rows)
    rows.write(options.json)


main()
