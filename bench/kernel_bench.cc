// kernel/RULE/f32: update rules on memory larger than the caches, one thread, in blocks of 1 MiB as
// in a pserver.
//
// The limit is what one thread moves in place: a[i] += s * b[i] reads two arrays and writes one.
#include <google/protobuf/text_format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/optimizer/update_rule.h"

namespace sluice::bench {
namespace {

constexpr size_t kBlock = (1 << 20) / sizeof(float);

class Kernel {
 public:
  Kernel(std::shared_ptr<const UpdateRule> rule, size_t elements)
      : rule_(std::move(rule)), n_(elements), weights_(elements, 0.5f), gradient_(elements) {
    for (size_t i = 0; i < n_; ++i) gradient_[i] = static_cast<float>(i % 1024) * 1e-4f - 0.05f;
    for (int s = 0; s < rule_->state_floats(); ++s) state_.emplace_back(elements);
    ForEachBlock([this](size_t at, float* const* state) { rule_->InitState(state, kBlock); });
  }

  Sample Measure() {
    Sample sample;
    double start = Now();
    for (size_t i = 0; i < n_; ++i) weights_[i] += 1e-6f * gradient_[i];
    sample.limit = 3.0 * n_ * sizeof(float) / (Now() - start) / 1e9;
    ++count_;
    start = Now();
    ForEachBlock([this](size_t at, float* const* state) {
      rule_->Apply(&weights_[at], state, &gradient_[at], kBlock, kBlock, 1e-3f, count_);
    });
    // Weights and state are read and written, the gradient is read.
    const double arrays = 3.0 + 2.0 * rule_->state_floats();
    sample.value = arrays * n_ * sizeof(float) / (Now() - start) / 1e9;
    return sample;
  }

 private:
  template <typename F>
  void ForEachBlock(F f) {
    float* state[UpdateRule::kMaxState] = {};
    for (size_t at = 0; at < n_; at += kBlock) {
      for (size_t s = 0; s < state_.size(); ++s) state[s] = &state_[s][at];
      f(at, state);
    }
  }

  const std::shared_ptr<const UpdateRule> rule_;
  const size_t n_;
  std::vector<float> weights_, gradient_;
  std::vector<std::vector<float>> state_;
  uint64_t count_ = 0;
};

Benchmark KernelBenchmark(const std::string& rule_name) {
  Benchmark benchmark;
  benchmark.name = absl::StrCat("kernel/", rule_name, "/f32");
  benchmark.unit = "GB/s";
  benchmark.limit_name = "in-place triad, one thread";
  benchmark.prepare =
      [rule_name](const Settings& settings) -> absl::StatusOr<std::function<Sample()>> {
    OptimizerConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(rule_name + " {}", &config))
      return absl::InternalError(absl::StrCat("OptimizerConfig has no rule ", rule_name));
    auto rule = UpdateRule::Create(config);
    if (!rule.ok()) return rule.status();
    const size_t blocks = settings.quick ? 2 : 64;
    auto kernel = std::make_shared<Kernel>(std::shared_ptr<const UpdateRule>(*std::move(rule)),
                                           blocks * kBlock);
    return std::function<Sample()>([kernel] { return kernel->Measure(); });
  };
  return benchmark;
}

}  // namespace

void AddKernelBenchmarks(std::vector<Benchmark>* to) {
  for (const std::string& rule : RuleNames()) to->push_back(KernelBenchmark(rule));
}

}  // namespace sluice::bench
