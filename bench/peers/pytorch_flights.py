"""configs/flights_wide_deep.textproto's model in one PyTorch process: seconds of one epoch and test AUC, as one JSON line.

Reads train.csv and test.csv as the configuration says how to make them, into arrays in memory; only the epoch is timed.
"""
import argparse
import csv
import datetime
import json
import pathlib
import time
import zlib

import numpy as np
import torch

ROWS = 4_000_003  # of each table: a value's id is its hash modulo this
SLOTS = 10


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="the folder of train.csv and test.csv")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def read(path):
    """numeric [N, 2], ids [N, SLOTS], label [N]; kept beside the file for the next time."""
    kept = path.with_suffix(".npz")
    if kept.exists() and kept.stat().st_mtime >= path.stat().st_mtime:
        arrays = np.load(kept)
        return tuple(torch.from_numpy(arrays[name]) for name in ("numeric", "ids", "label"))
    numeric, ids, label, days = [], [], [], {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            date, clock = row["date"].split(" ")
            if date not in days:
                day = datetime.date.fromisoformat(date)
                days[date] = (day.timetuple().tm_yday, day.weekday())
            (year_day, week_day), (hour, minute) = days[date], map(int, clock.split(":"))
            origin, destination = row["origin"], row["destination"]
            values = (year_day, week_day, hour, origin, destination, (origin, destination), (origin, year_day),
                      (destination, year_day), (origin, year_day, hour), (destination, year_day, hour))
            ids.append([zlib.crc32(repr((slot, value)).encode()) % ROWS for slot, value in enumerate(values)])
            numeric.append(((np.log1p(float(row["distance"])) - 6.303) / 0.7908, (hour * 60 + minute) / 1440))
            label.append(float(row["delay"]) >= 15)
    arrays = {"numeric": np.array(numeric, np.float32), "ids": np.array(ids, np.int64), "label": np.array(label, np.float32)}
    np.savez(kept, **arrays)
    return tuple(torch.from_numpy(arrays[name]) for name in ("numeric", "ids", "label"))


class WideDeep(torch.nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embedding = torch.nn.Embedding(ROWS, dim, sparse=True)
        torch.nn.init.uniform_(self.embedding.weight, -0.01, 0.01)
        self.wide = torch.nn.Embedding(ROWS, 1, sparse=True)
        torch.nn.init.zeros_(self.wide.weight)
        self.numeric = torch.nn.Linear(2, 1)
        self.deep = torch.nn.Sequential(torch.nn.Linear(SLOTS * dim + 2, 100), torch.nn.ReLU(), torch.nn.Linear(100, 50),
                                        torch.nn.ReLU(), torch.nn.Linear(50, 1))

    def forward(self, numeric, ids):  # [B, 2], [B, SLOTS] -> [B]
        deep = self.deep(torch.cat((torch.flatten(self.embedding(ids), 1), numeric), dim=1))
        return torch.squeeze(deep + self.wide(ids).sum(1) + self.numeric(numeric), 1)


def auc(score, label):
    order = np.argsort(score, kind="stable")
    _, first, count = np.unique(score[order], return_index=True, return_counts=True)
    rank = np.repeat(first + (count + 1) / 2, count)  # ties share the mean of their ranks
    positive = label[order] > 0.5
    n = positive.sum()
    return (rank[positive].sum() - n * (n + 1) / 2) / (n * (len(label) - n))


def main():
    options = flags()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    folder = pathlib.Path(options.data)
    numeric, ids, label = read(folder / "train.csv")
    model = WideDeep()
    sparse = list(model.embedding.parameters()) + list(model.wide.parameters())
    dense = list(model.numeric.parameters()) + list(model.deep.parameters())
    updates = [torch.optim.SparseAdam(sparse, lr=1e-3), torch.optim.Adam(dense, lr=1e-3)]
    log_loss = torch.nn.BCEWithLogitsLoss()
    order = torch.randperm(len(label))
    start = time.perf_counter()
    for begin in range(0, len(label), options.batch):
        part = order[begin:begin + options.batch]
        loss = log_loss(model(numeric[part], ids[part]), label[part])
        for update in updates:
            update.zero_grad()
        loss.backward()
        for update in updates:
            update.step()
    seconds = time.perf_counter() - start
    numeric, ids, label = read(folder / "test.csv")
    with torch.no_grad():
        score = torch.cat([model(numeric[b:b + 65536], ids[b:b + 65536]) for b in range(0, len(label), 65536)])
    print(json.dumps({"version": torch.__version__, "seconds": seconds, "examples": len(order),
                      "auc": auc(score.numpy(), label.numpy())}))


main()
