"""The job over the Adult data that deepfm.py, dcn_v2.py and two_tower.py train: all of it but the model."""

import argparse
import pathlib

import sluice

NUMBERS = ["age", "education_num", "hours_per_week"]
CATEGORIES = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country"]

JOB = """
name: "adult"
data {
  format: CSV
  train_files: "adult.data.gz"
  eval_files: "adult.test.gz"
  csv {
    columns: ["age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship",
              "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "label"]
    missing: "?"
    comment_prefix: "|"
  }
  label { column: "label" positive: [">50K", ">50K."] negative: ["<=50K", "<=50K."] }
}
features { name: "age" numeric { z_score { mean: 38.58 stddev: 13.64 } } }
features { name: "education_num" numeric { z_score { mean: 10.08 stddev: 2.573 } } }
features { name: "hours_per_week" numeric { z_score { mean: 40.44 stddev: 12.35 } } }
features { name: "workclass" categorical { missing_is_value: true } }
features { name: "education" categorical {} }
features { name: "marital_status" categorical {} }
features { name: "occupation" categorical { missing_is_value: true } }
features { name: "relationship" categorical {} }
features { name: "race" categorical {} }
features { name: "sex" categorical {} }
features { name: "native_country" categorical { missing_is_value: true } }
optimizers { all { adam {} learning_rate: 0.002 } }
train { batch_size: 128 epochs: %d }
eval { every_epochs: 1 }
"""


def job() -> sluice.Job:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=3)
    folder = pathlib.Path(__file__).resolve().parents[1] / "data" / "adult"
    return sluice.Job(JOB % arguments.parse_args().epochs, base_dir=str(folder))
