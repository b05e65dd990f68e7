#include "common/collective/two_level_engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_card.h"
#include "common/collective/reduce_loops.h"

namespace sluice {
namespace {

absl::Span<uint8_t> AsBytes(absl::Span<float> values) {
  return absl::MakeSpan(reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float));
}

absl::Status BroadcastOver(CollectiveEngine& engine, absl::Span<uint8_t> bytes, uint32_t root) {
  return engine.Broadcast(BroadcastHeader(bytes.size(), root), bytes);
}

}  // namespace

TwoLevelEngine::TwoLevelEngine(const CollectiveOptions& options,
                               std::unique_ptr<CollectiveEngine> inside,
                               absl::StatusOr<std::unique_ptr<CollectiveEngine>> between,
                               const char* name_before_join)
    : options_(options),
      inside_(std::move(inside)),
      between_(std::move(between)),
      name_before_join_(name_before_join),
      name_(name_before_join) {}

TwoLevelEngine::~TwoLevelEngine() { Leave(); }

absl::StatusOr<std::string> TwoLevelEngine::Listen(uint64_t generation, uint32_t self,
                                                   uint32_t ranks) {
  // Relaxed: only shown to people.
  name_.store(name_before_join_, std::memory_order_relaxed);
  rank_ = self;
  CollectiveCard card =
      NewCard("two_level", generation, self, ranks,
              options_.host_for_test.empty() ? HostOfThisProcess() : options_.host_for_test);
  SLUICE_ASSIGN_OR_RETURN(*card.mutable_inside(), inside_->Listen(generation, self, ranks));
  if (between_.ok()) {
    SLUICE_ASSIGN_OR_RETURN(*card.mutable_between(), (*between_)->Listen(generation, self, ranks));
  } else {
    card.set_no_between(std::string(between_.status().message()));
  }
  return card.SerializeAsString();
}

absl::Status TwoLevelEngine::Join(uint64_t generation, const std::vector<std::string>& peers,
                                  const std::vector<uint32_t>& members) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CollectiveCard> cards,
                          ParseCards("two_level", generation, peers, members));
  self_ = PlaceIn(members, rank_);
  ranks_ = static_cast<uint32_t>(members.size());
  names_ = members;
  hosts_.clear();
  std::vector<std::string> inside(peers.size()), between(peers.size());
  std::map<std::string, uint32_t> known;
  for (uint32_t i = 0; i < cards.size(); ++i) {
    const auto [at, is_new] = known.emplace(cards[i].host(), hosts_.size());
    if (is_new) hosts_.emplace_back();
    // Hosts in the order of their first ranks, so that all ranks number them alike.
    hosts_[at->second].push_back(i);
    inside[members[i]] = cards[i].inside();
    between[members[i]] = cards[i].between();
  }
  host_ = known[cards[self_].host()];
  if (hosts_.size() > 1) {
    for (const CollectiveCard& card : cards) {
      // Known from the cards alone, so that every rank gives the same error and none waits.
      if (card.between().empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("the ranks run on ", hosts_.size(), " hosts, and rank ", card.rank(),
                         " cannot reach the others: ", card.no_between()));
      }
    }
  }
  std::vector<uint32_t> near, leaders;
  for (const uint32_t i : neighbours()) near.push_back(members[i]);
  for (const std::vector<uint32_t>& host : hosts_) leaders.push_back(members[host[0]]);
  const bool one_each = hosts_.size() == members.size();
  only_ = nullptr;
  if (hosts_.size() == 1) {
    only_ = inside_.get();
  } else if (one_each) {
    only_ = between_->get();
  }
  // An engine that is not used stops listening: an open listener would let strangers hold
  // descriptors. Only leaders talk between the hosts.
  if (only_ == inside_.get() || !leads()) {
    if (between_.ok()) (*between_)->Leave();
  }
  if (only_ != inside_.get() && one_each) inside_->Leave();
  if (!one_each || only_ == inside_.get())
    SLUICE_RETURN_IF_ERROR(inside_->Join(generation, inside, near));
  if (only_ != inside_.get() && leads()) {
    if (absl::Status joined = (*between_)->Join(generation, between, leaders); !joined.ok()) {
      // The other ranks of this host have joined inside, and would wait for this leader until the
      // timeout.
      inside_->Abandon(joined);
      return joined;
    }
  }
  name_.store(only_ == nullptr ? "two_level" : only_->name(), std::memory_order_relaxed);
  if (only_ != nullptr) return absl::OkStatus();
  // All ranks return once the leaders have joined.
  timeout_ = options_.timeout;
  const absl::Status all = Spread().Barrier(BarrierHeader());
  if (!all.ok()) Abandon(all);
  return all;
}

void TwoLevelEngine::Leave() {
  if (between_.ok()) (*between_)->Leave();
  inside_->Leave();
}

void TwoLevelEngine::SetTimeout(absl::Duration timeout) {
  timeout_ = timeout;
  if (only_ != nullptr) only_->SetTimeout(timeout);
}

CollectiveEngine& TwoLevelEngine::Gather() {
  // Later stages may take longer. Ranks that wait for a leader must not give up before the leader
  // has found out which rank of another host is missing.
  inside_->SetTimeout(timeout_);
  return *inside_;
}

CollectiveEngine& TwoLevelEngine::Between() {
  // After Gather, whose timeout may have passed on another host just before.
  (*between_)->SetTimeout(1.25 * timeout_);
  return **between_;
}

CollectiveEngine& TwoLevelEngine::Spread() {
  inside_->SetTimeout(1.5 * timeout_);
  return *inside_;
}

void TwoLevelEngine::Abandon(const absl::Status& why) {
  if (only_ != nullptr) return only_->Abandon(why);
  inside_->Abandon(why);
  if (between_.ok() && leads()) (*between_)->Abandon(why);
}

void TwoLevelEngine::Cancel() {
  inside_->Cancel();
  if (between_.ok()) (*between_)->Cancel();
}

std::string TwoLevelEngine::WaitingFor() const {
  const std::string between = between_.ok() ? (*between_)->WaitingFor() : "";
  return between.empty() ? inside_->WaitingFor() : between;
}

absl::Status TwoLevelEngine::FromLeader(absl::Span<uint8_t> bytes) {
  if (neighbours().size() == 1) return absl::OkStatus();
  return BroadcastOver(Spread(), bytes, 0);
}

absl::Status TwoLevelEngine::GatherHeaders(const OperationHeader& header) {
  // Each host's headers have as much room as those of the largest one.
  size_t most = 0;
  for (const std::vector<uint32_t>& host : hosts_) most = std::max(most, host.size());
  GatheredHeaders gathered(hosts_.size() * most);
  const auto own = std::find(neighbours().begin(), neighbours().end(), self_);
  gathered.Put(host_ * most + (own - neighbours().begin()), header);
  if (neighbours().size() > 1) {
    const absl::Span<float> near = gathered.Places(host_ * most, neighbours().size());
    SLUICE_RETURN_IF_ERROR(Gather().AllGather(AllGatherHeader(near.size()), near));
  }
  const absl::Span<float> all = gathered.all();
  if (leads()) SLUICE_RETURN_IF_ERROR(Between().AllGather(AllGatherHeader(all.size()), all));
  SLUICE_RETURN_IF_ERROR(FromLeader(AsBytes(all)));
  headers_.resize(ranks_);
  for (size_t host = 0; host < hosts_.size(); ++host) {
    for (size_t i = 0; i < hosts_[host].size(); ++i)
      headers_[hosts_[host][i]] = gathered.At(host * most + i);
  }
  headers_[self_] = header;
  return absl::OkStatus();
}

absl::Status TwoLevelEngine::Run(const OperationHeader& header,
                                 absl::FunctionRef<absl::Status()> move) {
  absl::Status status = GatherHeaders(header);
  if (status.ok()) status = CheckAgreement(headers_);
  if (status.ok()) status = move();
  if (!status.ok()) Abandon(status);
  return status;
}

absl::Status TwoLevelEngine::Reduce(const OperationHeader& header, absl::Span<float> values) {
  if (only_ != nullptr) return only_->Reduce(header, values);
  const bool weighted = header.kind == OperationHeader::kWeightedMean;
  const ReduceLoops& loops = BestReduceLoops();
  return Run(header, [&]() -> absl::Status {
    if (header.in_bf16()) return MeanInBf16(header, values);
    auto op = weighted ? Collective::Op::kSum : static_cast<Collective::Op>(header.op);
    float divisor = 1;
    if (weighted) {
      divisor = TotalWeight(headers_);
      if (header.weight == 0) {
        // Not multiplied: NaN x 0 would be NaN, and values with weight 0 are not read.
        std::fill(values.begin(), values.end(), 0.0f);
      } else {
        loops.multiply(static_cast<float>(header.weight), values.data(), values.size());
      }
    } else if (op == Collective::Op::kAverage) {
      op = Collective::Op::kSum;
      divisor = static_cast<float>(ranks_);
    }
    const OperationHeader sum = ReductionHeader(OperationHeader::kAllReduce, values.size(), op);
    if (neighbours().size() > 1) SLUICE_RETURN_IF_ERROR(Gather().Reduce(sum, values));
    if (leads()) {
      SLUICE_RETURN_IF_ERROR(Between().Reduce(sum, values));
      // By the leader alone, once: all its ranks get its bits.
      if (divisor != 0 && divisor != 1) loops.divide(divisor, values.data(), values.size());
    }
    return FromLeader(AsBytes(values));
  });
}

absl::Status TwoLevelEngine::MeanInBf16(const OperationHeader& header, absl::Span<float> values) {
  // The mean of each host, then of the hosts, whose weights are those of their ranks together.
  double of_host = 0;
  // In double and in the order of the ranks, as TotalWeight.
  for (const uint32_t member : neighbours()) of_host += headers_[member].weight;
  const auto mean_over = [&](CollectiveEngine& engine, double weight) {
    return engine.Reduce(WeightedMeanHeader(OperationHeader::kNoStep, values.size(), weight,
                                            Collective::Wire::kBf16),
                         values);
  };
  if (neighbours().size() > 1) SLUICE_RETURN_IF_ERROR(mean_over(Gather(), header.weight));
  if (leads()) SLUICE_RETURN_IF_ERROR(mean_over(Between(), of_host));
  if (neighbours().size() == 1) return absl::OkStatus();
  // The mean has the precision of bfloat16, so that half of the bytes bring all of it.
  halves_.resize(std::max(halves_.size(), values.size()));
  const ReduceLoops& loops = BestReduceLoops();
  if (leads()) loops.round(values.data(), halves_.data(), values.size());
  SLUICE_RETURN_IF_ERROR(
      FromLeader(absl::MakeSpan(reinterpret_cast<uint8_t*>(halves_.data()), values.size() * 2)));
  loops.widen(halves_.data(), values.data(), values.size());
  return absl::OkStatus();
}

absl::Status TwoLevelEngine::AllGather(const OperationHeader& header, absl::Span<float> values) {
  if (only_ != nullptr) return only_->AllGather(header, values);
  const auto part = [&](uint32_t member) {
    const ArrayPart range = PartOf(values.size(), ranks_, member);
    return AsBytes(values.subspan(range.begin, range.size()));
  };
  return Run(header, [&]() -> absl::Status {
    if (neighbours().size() > 1) {
      for (uint32_t i = 0; i < neighbours().size(); ++i)
        SLUICE_RETURN_IF_ERROR(BroadcastOver(Gather(), part(neighbours()[i]), i));
    }
    for (uint32_t host = 0; leads() && host < hosts_.size(); ++host) {
      for (const uint32_t member : hosts_[host])
        SLUICE_RETURN_IF_ERROR(BroadcastOver(Between(), part(member), host));
    }
    return FromLeader(AsBytes(values));
  });
}

absl::Status TwoLevelEngine::Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) {
  if (only_ != nullptr) return only_->Broadcast(header, bytes);
  return Run(header, [&]() -> absl::Status {
    uint32_t from = 0;
    for (uint32_t host = 0; host < hosts_.size(); ++host) {
      const auto at = std::find(hosts_[host].begin(), hosts_[host].end(), header.root);
      if (at == hosts_[host].end()) continue;
      from = host;
      if (host == host_ && neighbours().size() > 1) {
        const auto number = static_cast<uint32_t>(at - hosts_[host].begin());
        SLUICE_RETURN_IF_ERROR(BroadcastOver(Gather(), bytes, number));
      }
    }
    if (leads()) SLUICE_RETURN_IF_ERROR(BroadcastOver(Between(), bytes, from));
    return from == host_ ? absl::OkStatus() : FromLeader(bytes);
  });
}

absl::Status TwoLevelEngine::Barrier(const OperationHeader& header) {
  if (only_ != nullptr) return only_->Barrier(header);
  // Every rank has the headers of all only when all have come.
  return Run(header, [] { return absl::OkStatus(); });
}

}  // namespace sluice
