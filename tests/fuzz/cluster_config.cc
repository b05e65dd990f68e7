// Reads a cluster's configuration.
//
// Checks: what is accepted is accepted again after printing it, with equal fields.
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  ClusterConfig cluster;
  FieldLocations locations;
  const absl::Status parsed = ParseTextproto(text, "cluster.textproto", &cluster, &locations);
  if (!parsed.ok()) {
    FUZZ_CHECK(parsed.code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  cluster = WithDefaults(std::move(cluster));
  const absl::Status valid = ValidateClusterConfig(cluster);
  FUZZ_CHECK(valid.ok() || valid.code() == absl::StatusCode::kInvalidArgument);
  ClusterConfig again;
  FUZZ_CHECK(ParseTextproto(ToTextproto(cluster), "printed", &again, nullptr).ok());
  FUZZ_CHECK(WithDefaults(again).SerializeAsString() == cluster.SerializeAsString());
  FUZZ_CHECK(ValidateClusterConfig(again).code() == valid.code());
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return sluice::MutateText<sluice::ClusterConfig>(data, size, max_size, seed);
}
