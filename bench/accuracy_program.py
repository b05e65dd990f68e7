"""The model of examples/NAME_wide_deep.py with a seed, as a program of `sluice launch --program`, for accuracy.py."""
import argparse
import importlib
import pathlib
import re
import sys

import torch
from torch import nn
from torch.nn import functional as F

import sluice
import sluice.torch

ROOT = pathlib.Path(__file__).resolve().parents[1]


def load_initial(model, folder):
    """Gives the module the dense values of a saved native model, whose weights are transposed."""
    dense = sluice.load_model(folder).dense
    layers = [module for module in model.deep if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for i, layer in enumerate(layers):
            layer.weight.copy_(torch.tensor(dense["deep/%d/weight" % i]).view(layer.weight.shape[::-1]).t())
            layer.bias.copy_(torch.tensor(dense["deep/%d/bias" % i]))
        model.linear.weight.copy_(torch.tensor(dense["wide/weight"]).view(1, -1))
        model.linear.bias.copy_(torch.tensor(dense["wide/bias"]))


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--name", choices=("adult", "flights"), required=True)
    flags.add_argument("--seed", type=int, default=1, help="of the order of the data and the initial rows")
    flags.add_argument("--initial", required=True, help="a native model with the initial values of all else")
    options = flags.parse_args()
    sys.path.insert(1, str(ROOT / "examples"))
    example = importlib.import_module("%s_wide_deep" % options.name)
    file = ROOT / "configs" / ("%s_wide_deep.textproto" % options.name)
    # The file's data and features, but not its model and the rules of the model's parts, which the example has.
    text = re.sub(r"^model \{.*?^\}\n|^  (embedding|wide) \{[^\n]*\n", "", file.read_text(), flags=re.M | re.S)
    job = sluice.Job(text, base_dir=str(file.parent)).set("train.seed", options.seed)
    model = example.WideDeep()
    load_initial(model, options.initial)
    with sluice.torch.worker(model, job, predict=model) as worker:
        for batch in worker:
            worker.backward(F.binary_cross_entropy_with_logits(model(batch), batch.label))


if __name__ == "__main__":
    main()
