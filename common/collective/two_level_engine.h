// Reduces inside each host over one engine, then between the hosts over another.
//
// The ranks of one host (by their cards) form a group inside; the lowest rank of each host, its
// leader, also joins a group between the hosts, which has the order of the leaders. With a single
// host, or with a single rank on each, there is only one level: every operation goes straight to
// its engine.
//
// With two levels, an operation begins by gathering the headers of all ranks, so that all see
// whether they agree. Sums are made in the order of the ranks inside each host, then in the order
// of the hosts: two runs give the same bits, but other bits than one group of all ranks. In
// bfloat16, the mean of each host is rounded before the hosts' means are weighted.
//
// Thread safety: as CollectiveEngine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/collective/collective_engine.h"
#include "common/collective/operation_header.h"

namespace sluice {

class TwoLevelEngine : public CollectiveEngine {
 public:
  // `between` may be an error, which a group of several hosts gets. `name_before_join` is static.
  TwoLevelEngine(const CollectiveOptions& options, std::unique_ptr<CollectiveEngine> inside,
                 absl::StatusOr<std::unique_ptr<CollectiveEngine>> between,
                 const char* name_before_join);
  ~TwoLevelEngine() override;

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override;
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>& members) override;
  void Leave() override;
  void SetTimeout(absl::Duration timeout) override;
  // With two levels, a reduce-scatter moves as many bytes as an all-reduce.
  absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) override;
  absl::Status Barrier(const OperationHeader& header) override;
  void Abandon(const absl::Status& why) override;
  void Cancel() override;
  std::string WaitingFor() const override;
  const char* name() const override { return name_.load(std::memory_order_relaxed); }

 private:
  // Runs an operation with two levels: gathers headers, and calls `move` if all ranks agree. An
  // error ends both groups.
  absl::Status Run(const OperationHeader& header, absl::FunctionRef<absl::Status()> move);
  // The engines for a stage of an operation. A stage waits longer than the one before, whose waits
  // it includes: the rank that waits for the silent one itself notices first, and names it.
  CollectiveEngine& Gather();   // inside, to the leader
  CollectiveEngine& Between();  // the leaders
  CollectiveEngine& Spread();   // inside, from the leader
  // Fills headers_ with those of all ranks, in every rank.
  absl::Status GatherHeaders(const OperationHeader& header);
  absl::Status MeanInBf16(const OperationHeader& header, absl::Span<float> values);
  // This host's values, or those of all hosts, are in every leader: gives them to all its ranks.
  absl::Status FromLeader(absl::Span<uint8_t> bytes);

  const std::vector<uint32_t>& neighbours() const { return hosts_[host_]; }
  bool leads() const { return neighbours()[0] == self_; }

  const CollectiveOptions options_;
  const std::unique_ptr<CollectiveEngine> inside_;
  const absl::StatusOr<std::unique_ptr<CollectiveEngine>> between_;
  const char* const name_before_join_;
  std::atomic<const char*> name_;
  absl::Duration timeout_;
  uint32_t self_ = 0, ranks_ = 0;             // places among the members
  std::vector<uint32_t> names_;               // of the members
  std::vector<std::vector<uint32_t>> hosts_;  // the members on each, the leader first
  uint32_t host_ = 0;                         // this rank's, in hosts_
  CollectiveEngine* only_ = nullptr;          // with one level: its engine
  std::vector<OperationHeader> headers_;      // of the present operation
  std::vector<uint16_t> halves_;              // the mean in bfloat16
  uint32_t rank_ = 0;                         // in the whole group
};

}  // namespace sluice
