// A wide_deep job over numbers and categories, and the spec of its model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice {

inline constexpr char kFeatures[] = R"(
  name: "job"
  data { format: CSV csv { columns: ["label", "age", "hours", "job", "tags"] } label { column: "label" } }
  features { name: "age" numeric {} }
  features { name: "hours" numeric {} in_wide: false }
  features { name: "job" categorical {} }
  features { name: "tags" categorical { multi_value_delimiter: "|" pooling: MEAN } in_wide: false }
)";
inline constexpr char kModel[] = "model { wide_deep { hidden_units: [16, 4] embedding_dim: 8 } }";

inline JobConfig Job(const std::string& text) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

// The spec of a job with kFeatures and `more`.
inline std::unique_ptr<ModelSpec> Create(const std::string& more) {
  auto model = ModelSpec::Create(Job(std::string(kFeatures) + more), BuiltInSpecs());
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

inline std::string Error(const std::string& text) {
  const absl::Status status = ModelSpec::Create(Job(text), BuiltInSpecs()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

inline std::vector<std::string> Names(const ModelSpec& model) {
  std::vector<std::string> names;
  for (const TableConfig& table : model.tables()) names.push_back(table.name());
  return names;
}

inline const TableConfig& Table(const ModelSpec& model, const std::string& name) {
  for (const TableConfig& table : model.tables()) {
    if (table.name() == name) return table;
  }
  ADD_FAILURE() << "no table " << name;
  return model.tables()[0];
}

}  // namespace sluice
