// Sets a field of a job by its path, as --set does: the input is PATH=VALUE.
//
// Checks: a refused value leaves the job unchanged, and an accepted one can be printed and read.
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr char kJob[] =
    "name: 'job' worker_num: 2 data { train_files: 'a' csv { columns: ['x', 'y'] } } "
    "features { name: 'x' numeric { boundaries: 1 boundaries: 2 } } model { wide_deep { "
    "hidden_units: 4 } } tables { name: 'e' columns { name: 'c' dim: 2 } }";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  static const JobConfig* const start = [] {
    auto* const job = new JobConfig;
    FUZZ_CHECK(ParseTextproto(kJob, "job", job, nullptr).ok());
    return job;
  }();
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return 0;
  const ConfigOverride one{text.substr(0, equals), text.substr(equals + 1), "--set"};
  JobConfig job = *start;
  const absl::Status applied = ApplyOverride(one, &job);
  if (!applied.ok()) {
    FUZZ_CHECK(applied.code() == absl::StatusCode::kInvalidArgument);
    FUZZ_CHECK(job.SerializeAsString() == start->SerializeAsString());
    return 0;
  }
  JobConfig printed;
  FUZZ_CHECK(ParseTextproto(ToTextproto(job), "printed", &printed, nullptr).ok());
  FUZZ_CHECK(ToTextproto(printed) == ToTextproto(job));
  ApplyOverrides({one, one}, &job).IgnoreError();
  return 0;
}
