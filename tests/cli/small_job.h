// A small valid job file for tests of commands that read one.
#pragma once

namespace sluice::cli {

inline constexpr char kSmallJob[] = R"(
name: "good"
data { format: CSV train_files: "t.csv" csv { header: true } label { column: "y" } }
features { name: "age" numeric {} }
features { name: "job" categorical {} }
model { wide_deep { hidden_units: 8 embedding_dim: 4 } }
)";

}  // namespace sluice::cli
