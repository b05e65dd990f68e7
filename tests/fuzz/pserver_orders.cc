// Gives a pserver what a scheduler may tell it: jobs of any specification to open, later routes,
// orders about checkpoints and requests to save. Files are in memory, and memory is limited.
//
// Checks: a job is open or reported with its error.
#include <memory>

#include "proto/scheduler.pb.h"
#include "server/service/pserver.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr int kMostReplies = 6;
constexpr uint64_t kMemory = uint64_t{64} << 20;

JobSpec Known(FuzzedDataProvider* input) {
  const int mode = input->ConsumeIntegralInRange(0, 2);
  JobSpec spec = MakeSpec(2, mode != 0, mode == 2 ? 5 : 0);
  spec.mutable_config()->mutable_checkpoint()->set_dir("/checkpoints");
  return spec;
}

// A poll's reply: any, or a known job with fields of any.
PollReply NextReply(FuzzedDataProvider* input) {
  PollReply reply;
  const bool known = input->ConsumeIntegralInRange(0, 3) != 0;
  if (known) *reply.add_host() = Known(input);
  PollReply any;
  if (any.ParseFromString(input->ConsumeRandomLengthString(600))) {
    if (known && any.host_size() > 0) {
      reply.mutable_host(0)->MergeFrom(any.host(0));
      *reply.mutable_cuts() = any.cuts();
    } else if (!known) {
      reply = any;
    } else {
      reply.MergeFrom(any);
    }
  }
  return reply;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  FakeClock clock;
  MemoryEnv env;
  JobResources resources = TestResources(&clock);
  resources.env = &env;
  resources.available_memory = [] { return kMemory; };
  resources.load_threads = 1;
  Pserver pserver(resources);
  for (int i = 0; i < kMostReplies && input.remaining_bytes() > 0; ++i) {
    const PollReply reply = NextReply(&input);
    pserver.Reconcile(kSelf, reply.host());
    pserver.WaitUntilOpenForTest();
    pserver.SetCutOrders(reply.cuts());
    for (const HostedJob& job : pserver.Report()) {
      const auto open = pserver.Find(job.job_id());
      FUZZ_CHECK(open != nullptr || !job.error().empty());
    }
    google::protobuf::RepeatedPtrField<HeldJob> holds;
    pserver.FillHolds(/*rank=*/0, &holds);
    SaveShardsRequest save;
    if (input.ConsumeBool() && save.ParseFromString(input.ConsumeRandomLengthString(60)))
      pserver.SaveShards(save).IgnoreError();
  }
  pserver.Stop();
  return 0;
}
