#include "common/collective/gloo_engine.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/collective/gloo_peers.h"
#include "common/collective/gloo_reduction.h"
#include "common/collective/rank_reduction.h"

namespace sluice {
namespace {

class GlooEngine : public CollectiveEngine {
 public:
  explicit GlooEngine(const CollectiveOptions& options) : peers_(options) {}

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override {
    SLUICE_ASSIGN_OR_RETURN(const CollectiveCard card, peers_.Listen(generation, self, ranks));
    return card.SerializeAsString();
  }

  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    const std::vector<uint32_t>& members) override {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<CollectiveCard> cards,
                            ParseCards("gloo", generation, peers, members));
    const SigpipeBlock block;
    SLUICE_RETURN_IF_ERROR(peers_.Join(cards, members));
    self_ = peers_.self();
    ranks_ = peers_.ranks();
    return absl::OkStatus();
  }

  void Leave() override { peers_.Leave(); }
  void SetTimeout(absl::Duration timeout) override {
    MutexLock turn(&turn_);
    peers_.set_timeout(timeout);
  }

  absl::Status Reduce(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status AllGather(const OperationHeader& header, absl::Span<float> values) override;
  absl::Status Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) override;

  absl::Status Barrier(const OperationHeader& header) override {
    const SigpipeBlock block;
    MutexLock turn(&turn_);
    return Exchange(header, nullptr, 0);
  }

  void Abandon(const absl::Status& why) override {
    peers_.Interrupt(why);
    MutexLock turn(&turn_);
    (void)peers_.Abandon(why);
  }
  void Cancel() override { peers_.Cancel(); }
  std::string WaitingFor() const override { return peers_.WaitingFor(); }
  const char* name() const override { return "gloo"; }

 private:
  // Exchanges headers, and up to kMaxInlineBytes of values, with all ranks; fills headers_ and
  // messages_. The ranks agree when it returns OK.
  absl::Status Exchange(const OperationHeader& header, const void* values, size_t bytes);
  absl::Status ReduceInline(const OperationHeader& header, absl::Span<float> values);
  // Sends this rank's part of an array of n elements, and awaits the others' parts, whose receives
  // are posted.
  absl::Status ExchangeParts(GlooPeers::Region* array, size_t n);

  // Held by the operation that runs, however long it waits: Abandon interrupts it, and takes its
  // turn when it has ended.
  Mutex turn_;
  GlooPeers peers_;
  uint32_t self_ = 0, ranks_ = 0;
  // By rank; belongs to the operation under way.
  std::vector<OperationHeader> headers_;
  std::vector<const GlooPeers::Message*> messages_;
  GlooReduction::Scratch scratch_;
};

absl::Status GlooEngine::Exchange(const OperationHeader& header, const void* values, size_t bytes) {
  SLUICE_RETURN_IF_ERROR(peers_.Begin(header));
  headers_.assign(ranks_, header);
  messages_.assign(ranks_, nullptr);
  SLUICE_RETURN_IF_ERROR(peers_.AwaitAcknowledgements());
  SLUICE_RETURN_IF_ERROR(peers_.ForOthers(
      [&](uint32_t rank) { return peers_.SendMessage(rank, header, values, bytes); }));
  SLUICE_RETURN_IF_ERROR(peers_.ForOthers([&](uint32_t rank) -> absl::Status {
    SLUICE_ASSIGN_OR_RETURN(messages_[rank], peers_.ReceiveMessage(rank));
    headers_[rank] = messages_[rank]->header;
    return absl::OkStatus();
  }));
  // Every rank compares the same headers, and so comes to the same result.
  const absl::Status agreed = CheckAgreement(headers_);
  return agreed.ok() ? agreed : peers_.Abandon(agreed);
}

absl::Status GlooEngine::Reduce(const OperationHeader& header, absl::Span<float> values) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  if (values.size() * header.wire_bytes() <= OperationHeader::kMaxInlineBytes)
    return ReduceInline(header, values);
  SLUICE_RETURN_IF_ERROR(Exchange(header, nullptr, 0));
  return GlooReduction(&peers_, headers_, values, &scratch_).Run();
}

absl::Status GlooEngine::ReduceInline(const OperationHeader& header, absl::Span<float> values) {
  const bool brings = header.kind != OperationHeader::kWeightedMean || header.weight != 0;
  const size_t bytes = values.size() * header.wire_bytes();
  std::vector<uint8_t>& brought = scratch_.brought;
  brought.resize(std::max(brought.size(), bytes));
  RankReduction::Bring(header, values.data(), brought.data(), values.size());
  SLUICE_RETURN_IF_ERROR(Exchange(header, brought.data(), brings ? bytes : 0));
  std::vector<const void*> inputs(ranks_);
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    inputs[rank] = values.data();
    // A rank that brings nothing has weight 0, and its message's values are not read.
    if (rank != self_) inputs[rank] = messages_[rank]->values;
  }
  RankReduction(headers_, self_).Reduce(inputs, values.data(), nullptr, values.size());
  return absl::OkStatus();
}

absl::Status GlooEngine::AllGather(const OperationHeader& header, absl::Span<float> values) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  const size_t n = values.size();
  const ArrayPart own = PartOf(n, ranks_, self_);
  if (PartOf(n, ranks_, 0).size() * sizeof(float) <= OperationHeader::kMaxInlineBytes) {
    SLUICE_RETURN_IF_ERROR(Exchange(header, values.data() + own.begin, own.size() * sizeof(float)));
    return peers_.ForOthers([&](uint32_t rank) {
      const ArrayPart part = PartOf(n, ranks_, rank);
      if (part.size() > 0) {
        std::memcpy(values.data() + part.begin, messages_[rank]->values,
                    part.size() * sizeof(float));
      }
      return absl::OkStatus();
    });
  }
  SLUICE_RETURN_IF_ERROR(Exchange(header, nullptr, 0));
  // Receives are posted before anything is sent: values that arrive unexpectedly would have no
  // place.
  const auto array = peers_.MakeRegion(values.data(), n * sizeof(float));
  // Empty parts need no calls.
  SLUICE_RETURN_IF_ERROR(peers_.ForOthers([&](uint32_t rank) {
    const ArrayPart part = PartOf(n, ranks_, rank);
    if (part.size() == 0) return absl::OkStatus();
    return peers_.Receive(array.get(), rank, GlooPeers::kResult, part.begin * sizeof(float),
                          part.size() * sizeof(float));
  }));
  SLUICE_RETURN_IF_ERROR(ExchangeParts(array.get(), n));
  // The array belongs to the caller again when this returns. The others may still send from theirs.
  return peers_.Acknowledge();
}

absl::Status GlooEngine::ExchangeParts(GlooPeers::Region* array, size_t n) {
  // In turns, as in GlooReduction.
  const ArrayPart own = PartOf(n, ranks_, self_);
  for (uint32_t distance = 1; distance < ranks_; ++distance) {
    const uint32_t to = (self_ + distance) % ranks_, from = (self_ + ranks_ - distance) % ranks_;
    if (own.size() > 0) {
      SLUICE_RETURN_IF_ERROR(peers_.Send(array, to, GlooPeers::kResult, own.begin * sizeof(float),
                                         own.size() * sizeof(float)));
    }
    if (PartOf(n, ranks_, from).size() > 0)
      SLUICE_RETURN_IF_ERROR(peers_.AwaitReceived(array, from));
  }
  return peers_.ForOthers([&](uint32_t rank) {
    return own.size() > 0 ? peers_.AwaitSent(array, rank) : absl::OkStatus();
  });
}

absl::Status GlooEngine::Broadcast(const OperationHeader& header, absl::Span<uint8_t> bytes) {
  const SigpipeBlock block;
  MutexLock turn(&turn_);
  const uint32_t root = header.root;
  const bool travels_inline = bytes.size() <= OperationHeader::kMaxInlineBytes;
  SLUICE_RETURN_IF_ERROR(
      Exchange(header, bytes.data(), travels_inline && root == self_ ? bytes.size() : 0));
  if (travels_inline) {
    if (root != self_ && !bytes.empty())
      std::memcpy(bytes.data(), messages_[root]->values, bytes.size());
    return absl::OkStatus();
  }
  const auto region = peers_.MakeRegion(bytes.data(), bytes.size());
  if (root == self_) {
    SLUICE_RETURN_IF_ERROR(peers_.ForOthers([&](uint32_t rank) {
      return peers_.Send(region.get(), rank, GlooPeers::kResult, 0, bytes.size());
    }));
    SLUICE_RETURN_IF_ERROR(
        peers_.ForOthers([&](uint32_t rank) { return peers_.AwaitSent(region.get(), rank); }));
  } else {
    SLUICE_RETURN_IF_ERROR(peers_.Receive(region.get(), root, GlooPeers::kResult, 0, bytes.size()));
    SLUICE_RETURN_IF_ERROR(peers_.AwaitReceived(region.get(), root));
  }
  return peers_.Acknowledge();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeGlooEngine(const CollectiveOptions& options) {
  if (options.bind_address.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the engine gloo needs an address of this host at which the others reach it",
                     options.why_no_address.empty() ? "" : ": ", options.why_no_address));
  }
  return std::make_unique<GlooEngine>(options);
}

}  // namespace sluice
