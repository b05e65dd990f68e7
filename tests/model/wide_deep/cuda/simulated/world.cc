#include "tests/model/wide_deep/cuda/simulated/world.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace sluice::cuda::simulated {

struct World::Options {
  int devices = 1;
  Pace pace = Pace::kLate;
  uint64_t seed = 1;
  size_t memory_mb = 4096;
  uint32_t host = 0;
  uint64_t breaks = UINT64_MAX;
  bool works = true;

  static Options FromEnvironment() {
    Options options;
    const char* const text = std::getenv("SIMULATED_CUDA");
    for (const absl::string_view part : absl::StrSplit(text == nullptr ? "" : text, ',')) {
      if (part.empty()) continue;
      const std::pair<std::string, std::string> option =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      if (options.Set(option.first, option.second)) continue;
      std::fprintf(stderr, "SIMULATED_CUDA: bad option \"%s\"; see world.h\n",
                   std::string(part).c_str());
      std::abort();
    }
    return options;
  }

  bool Set(const std::string& name, const std::string& value) {
    static const auto* paces = new std::map<std::string, Pace>{
        {"at_once", Pace::kAtOnce}, {"late", Pace::kLate}, {"any_order", Pace::kAnyOrder}};
    if (name == "devices") return absl::SimpleAtoi(value, &devices);
    if (name == "seed") return absl::SimpleAtoi(value, &seed);
    if (name == "breaks") return absl::SimpleAtoi(value, &breaks);
    if (name == "host") return absl::SimpleAtoi(value, &host);
    if (name == "memory_mb") return absl::SimpleAtoi(value, &memory_mb);
    if (name == "work") return works = value != "off", value == "off" || value == "on";
    const auto found = paces->find(value);
    if (name != "pace" || found == paces->end()) return false;
    pace = found->second;
    return true;
  }
};

World::World(const Options& options)
    : devices_(options.devices),
      host_(options.host),
      works_(options.works),
      memory_(options.memory_mb << 20, /*guarded=*/options.works),
      streams_(
          options.pace, options.seed, [this] { memory_.Open(); }, [this] { memory_.Close(); }),
      breaks_(options.breaks) {}

World& World::Get() {
  static auto* world = new World(Options::FromEnvironment());
  return *world;
}

}  // namespace sluice::cuda::simulated
