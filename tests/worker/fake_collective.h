#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/collective/collective.h"

namespace sluice {

// A group of this rank and one other, which brings the gradient `other` with weight `other_weight`
// to every bucket.
class FakeCollective : public Collective {
 public:
  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override {
    listened = {generation, self, ranks};
    return std::string("card of 1");
  }
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    uint32_t self) override {
    joined = peers;
    return absl::OkStatus();
  }
  void Leave() override {}
  using Collective::WeightedMean;
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight, Wire wire) override {
    steps.push_back(step);
    wires.push_back(wire);
    sizes.push_back(values.size());
    weights.push_back(weight);
    const double total = weight + other_weight;
    for (size_t i = 0; i < values.size(); ++i) {
      const double theirs = i + 1 == values.size() ? 1.0 : other;
      const double mine = weight == 0 ? 0 : weight * values[i];
      values[i] = total == 0 ? 0 : static_cast<float>((mine + other_weight * theirs) / total);
    }
    return steps.size();
  }
  absl::Status Wait(Ticket ticket) override {
    waited.push_back(ticket);
    return wait_status;
  }
  absl::Status AllReduce(absl::Span<float>, Op) override { return Unused(); }
  absl::Status ReduceScatter(absl::Span<float>, Op) override { return Unused(); }
  // The other rank brings what this one brings.
  absl::Status AllGather(absl::Span<float> values) override {
    const size_t n = values.size() / 2, own = listened[1] * n;
    std::copy_n(values.begin() + own, n, values.begin() + (n - own));
    return absl::OkStatus();
  }
  absl::Status Broadcast(absl::Span<uint8_t>, uint32_t) override { return absl::OkStatus(); }
  absl::Status Barrier() override { return Unused(); }
  void Cancel() override { cancelled = true; }
  std::string WaitingFor() const override { return "rank 0"; }
  const char* name() const override { return "fake"; }

  static absl::Status Unused() { return absl::UnimplementedError("the tables do not use it"); }
  double other = 0, other_weight = 0;
  absl::Status wait_status;
  std::vector<uint64_t> listened, steps;
  std::vector<std::string> joined;
  std::vector<size_t> sizes;
  std::vector<double> weights;
  std::vector<Wire> wires;
  std::vector<Ticket> waited;
  bool cancelled = false;
};

}  // namespace sluice
