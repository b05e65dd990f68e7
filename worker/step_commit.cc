#include "worker/step_commit.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kNumberBytes = 8;

void PutNumber(uint64_t number, uint8_t* bytes) {
  for (size_t i = 0; i < kNumberBytes; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
}

uint64_t NumberAt(const uint8_t* bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return number;
}

}  // namespace

std::unique_ptr<StepCommit> StepCommit::Create(const JobContext& context) {
  const TableLayouts& tables = context.client->tables();
  const bool on_pservers = std::any_of(tables.begin(), tables.end(),
                                       [](const auto& table) { return table->num_shards() > 0; });
  Collective* const collective = context.dense->collective();
  if (on_pservers || collective == nullptr) return std::make_unique<PserverCommit>(context);
  return std::make_unique<CollectiveCommit>(collective);
}

void PserverCommit::StartPull(PullRequest first) {
  ticket_ = context_.client->StartPull(std::move(first));
}

absl::Status PserverCommit::Push(uint64_t step, PushRequest push) {
  return context_.client->PushStep(step, std::move(push));
}

void PserverCommit::Start(uint64_t step, PullRequest next, uint64_t checkpoint) {
  TrainTotals totals = context_.stats->Totals();
  totals.set_net_state(context_.net->SaveState());
  ticket_ = context_.client->StartCommit(step, std::move(next), checkpoint, std::move(totals));
}

void CollectiveCommit::Start(uint64_t step, PullRequest, uint64_t checkpoint) {
  started_ = Commit{step, checkpoint};
}

absl::Status CollectiveCommit::Wait() {
  if (!started_) return absl::OkStatus();  // the first step of an epoch follows no commit
  const Commit own = *std::exchange(started_, std::nullopt);
  std::array<uint8_t, 2 * kNumberBytes> bytes;
  PutNumber(own.step, bytes.data());
  PutNumber(own.checkpoint, bytes.data() + kNumberBytes);
  SLUICE_RETURN_IF_ERROR(collective_->Broadcast(absl::MakeSpan(bytes), /*root=*/0));
  if (const uint64_t step = NumberAt(bytes.data()); step != own.step) {
    return absl::InternalError(
        absl::StrCat("rank 0 commits step ", step, ", but this rank commits step ", own.step));
  }
  seen_ = NumberAt(bytes.data() + kNumberBytes);
  return absl::OkStatus();
}

}  // namespace sluice
