#include "common/collective/make_collective.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/collective/gloo_engine.h"
#include "common/collective/nccl_engine.h"
#include "common/collective/queued_collective.h"
#include "common/collective/shm_engine.h"
#include "common/collective/two_level_engine.h"

namespace sluice {
namespace {

constexpr uint32_t kMaxCommunicators = 8;

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeEngine(const std::string& engine,
                                                             const CollectiveOptions& options) {
  if (options.timeout < absl::Milliseconds(1) || options.timeout > kMaxCollectiveTimeout) {
    return absl::InvalidArgumentError(absl::StrCat("the timeout of a collective group is ",
                                                   absl::FormatDuration(options.timeout),
                                                   ", not 1ms to 24h"));
  }
  if (engine == "shm") return std::make_unique<ShmEngine>(options);
  if (engine == "gloo") return MakeGlooEngine(options);
  if (engine == "two_level") {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveEngine> gloo, MakeGlooEngine(options));
    return std::make_unique<TwoLevelEngine>(options, std::make_unique<ShmEngine>(options),
                                            std::move(gloo), "two_level");
  }
  if (engine == "auto") {
    return std::make_unique<TwoLevelEngine>(options, std::make_unique<ShmEngine>(options),
                                            MakeGlooEngine(options), "auto");
  }
  if (engine == "nccl") {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<CollectiveEngine> control, MakeEngine("auto", options));
    return MakeNcclEngine(options, std::move(control));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no collective engine \"", engine,
                   "\"; there are auto, shm, gloo, two_level and nccl"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeCollective(const std::string& engine,
                                                           const CollectiveOptions& options) {
  if (options.comm_num < 1 || options.comm_num > kMaxCommunicators) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.comm_num, " communicators are not possible; give 1 to ", kMaxCommunicators));
  }
  std::vector<std::unique_ptr<CollectiveEngine>> engines;
  for (uint32_t i = 0; i < options.comm_num; ++i) {
    SLUICE_ASSIGN_OR_RETURN(engines.emplace_back(), MakeEngine(engine, options));
  }
  return std::make_unique<QueuedCollective>(std::move(engines));
}

}  // namespace sluice
