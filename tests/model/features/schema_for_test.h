// Schemas from text, and examples from named cells.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/features/feature_schema.h"

namespace sluice {

inline JobConfig JobForTest(const std::string& text) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

// A CSV job with label column "y" and these features.
inline JobConfig FeaturesForTest(const std::string& features) {
  return JobForTest("data { format: CSV label { column: 'y' } } " + features);
}

inline std::shared_ptr<const FeatureSchema> SchemaForTest(const JobConfig& job,
                                                          const FeatureUse& use = FeatureUse()) {
  auto schema = FeatureSchema::Create(job, use);
  EXPECT_TRUE(schema.ok()) << schema.status();
  return schema.ok() ? *schema : nullptr;
}

// The use of a model that multiplies values by their weights.
inline FeatureUse WithKeyWeights() {
  FeatureUse use;
  use.key_weights = true;
  return use;
}

inline std::string CreateError(const JobConfig& job, const FeatureUse& use = FeatureUse()) {
  const auto schema = FeatureSchema::Create(job, use);
  EXPECT_EQ(schema.status().code(), absl::StatusCode::kInvalidArgument) << schema.status();
  return std::string(schema.status().message());
}

// Columns that are not among the cells are missing.
inline absl::Status AppendForTest(const FeatureSchema& schema,
                                  const std::map<std::string, std::string>& cells, Batch* batch,
                                  bool need_label = true) {
  std::vector<std::string_view> values(schema.columns().size(), "");
  const std::unique_ptr<bool[]> missing(new bool[values.size()]);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto it = cells.find(schema.columns()[i]);
    missing[i] = it == cells.end();
    if (!missing[i]) values[i] = it->second;
  }
  return schema.AppendExample(values.data(), missing.get(), need_label, batch);
}

inline Batch EmptyBatch(const FeatureSchema& schema) {
  Batch batch;
  batch.Reset(schema.numerics().size(), schema.slots().size());
  return batch;
}

// One example of label 1 that must be accepted.
inline Batch ExampleForTest(const FeatureSchema& schema, std::map<std::string, std::string> cells) {
  Batch batch = EmptyBatch(schema);
  cells.emplace("y", "1");
  const absl::Status status = AppendForTest(schema, cells, &batch);
  EXPECT_TRUE(status.ok()) << status;
  return batch;
}

inline std::vector<uint64_t> KeysOf(const Batch& batch, size_t example, size_t slot) {
  const uint32_t* at = batch.key_offsets.data() + example * batch.num_slots + slot;
  return {batch.keys.begin() + at[0], batch.keys.begin() + at[1]};
}

}  // namespace sluice
