// Reads a job's configuration, makes it effective, and derives the tables of its model.
//
// Checks: what is accepted stays the same when it is printed, read and made effective again.
#include "common/config/job_config.h"

#include "common/config/textproto_file.h"
#include "common/table/table_layout.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_mutator.h"

namespace sluice {
namespace {

void Expect(bool ok, const absl::Status& status) {
  FUZZ_CHECK(ok || status.code() == absl::StatusCode::kInvalidArgument);
}

void CheckModel(const JobConfig& job) {
  const auto model = ModelSpec::Create(job, BuiltInSpecs());
  Expect(model.ok(), model.status());
  if (!model.ok()) return;
  google::protobuf::RepeatedPtrField<TableConfig> tables((*model)->tables().begin(),
                                                         (*model)->tables().end());
  ResolveShards(/*pservers=*/2, &tables);
  const auto layouts = CreateTableLayouts(tables, job.train().seed());
  Expect(layouts.ok(), layouts.status());
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  JobConfig job;
  FieldLocations locations;
  const absl::Status parsed = ParseTextproto(text, "job.textproto", &job, &locations);
  Expect(parsed.ok(), parsed);
  if (!parsed.ok()) return 0;
  for (const char* const path : {"features[1].name", "train.batch_size", "tables[0].columns[1]"})
    FUZZ_CHECK(LineOfField(locations, job, path) >= 0);
  const absl::StatusOr<JobConfig> effective = EffectiveJobConfig(job, "/base", BuiltInSpecs());
  Expect(effective.ok(), effective.status());
  if (!effective.ok()) return 0;
  const std::string printed = ToTextproto(*effective);
  JobConfig again;
  FUZZ_CHECK(ParseTextproto(printed, "printed", &again, nullptr).ok());
  const absl::StatusOr<JobConfig> same = EffectiveJobConfig(again, "/base", BuiltInSpecs());
  FUZZ_CHECK(same.ok());
  FUZZ_CHECK(ToTextproto(*same) == printed);
  CheckModel(*effective);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return sluice::MutateText<sluice::JobConfig>(data, size, max_size, seed);
}
