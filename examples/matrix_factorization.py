"""Matrix factorization in NumPy over tables of `sluice.Client`: ratings of items by users, no framework.

The ratings are made up: products of hidden tastes of 8 values, with noise of standard deviation 0.1.
"""

import argparse

import numpy as np
import numpy.typing as npt

import sluice

USERS, ITEMS, TASTES, BATCH = 2000, 1000, 8, 512
RATE, STDDEV = 0.5, 0.3
JOB = f'name: "ratings" optimizers {{ all {{ adagrad {{}} learning_rate: {RATE} }} }} train {{ seed: 1 }}'

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_draw = np.random.default_rng(1)
_user_tastes = _draw.normal(size=(USERS, TASTES)) / TASTES**0.25
_item_tastes = _draw.normal(size=(ITEMS, TASTES)) / TASTES**0.25


def ratings(*seed: int, n: int = BATCH) -> tuple[Ids, Ids, Floats]:
    """Users, items and ratings, all ``[n]``. The same seed gives the same ones."""
    draw = np.random.default_rng(seed)
    user, item = draw.integers(USERS, size=n), draw.integers(ITEMS, size=n)
    rating = (_user_tastes[user] * _item_tastes[item]).sum(axis=1) + draw.normal(scale=0.1, size=n)
    return user, item, rating.astype(np.float32)


def gradients(user: Floats, item: Floats, rating: Floats) -> tuple[Floats, Floats, float]:
    """Of the mean squared error, by the rows of users and of items, ``[n, dim]``; and the error itself."""
    error = (user * item).sum(axis=1) - rating
    scale = (2 / len(error) * error)[:, None]
    return scale * item, scale * user, float(np.mean(error * error))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--steps", type=int, default=1000, help="of each worker")
    options = flags.parse_args()
    table = sluice.SparseTable(TASTES, initializer={"normal": {"stddev": STDDEV}})
    with sluice.Client({"user": table, "item": table}, sluice.Job(JOB), steps=options.steps) as client:

        def step(number: int) -> None:
            # What a step trains on follows from its number, so that nothing is trained twice when a process is lost.
            user, item, rating = ratings(client.rank, number)
            users, items = client.pull(user=user, item=item).values()
            of_user, of_item, loss = gradients(users, items, rating)
            client.push(user=of_user, item=of_item)
            client.commit(loss)
            if client.rank == 0 and number == options.steps - 1:
                print(f"the error of the last step is {loss**0.5:.3f}")

        client.run(step)


if __name__ == "__main__":
    main()
