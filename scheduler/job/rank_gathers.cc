#include "scheduler/job/rank_gathers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// "call 2 at the end of epoch 3"
std::string NameOf(const GatherRequest& request) {
  return absl::StrCat("call ", request.number() + 1,
                      request.epochs_done() == 0
                          ? std::string(" before the first batch")
                          : absl::StrCat(" at the end of epoch ", request.epochs_done()));
}

constexpr char kSameCalls[] = "all ranks make the same calls in the same order";

}  // namespace

RankGathers::Call* RankGathers::FindCall(const GatherRequest& request) {
  return const_cast<Call*>(static_cast<const RankGathers*>(this)->FindCall(request));
}

const RankGathers::Call* RankGathers::FindCall(const GatherRequest& request) const {
  const auto border = borders_.find(request.epochs_done());
  if (border == borders_.end()) return nullptr;
  const auto call = border->second.calls.find(request.number());
  return call == border->second.calls.end() ? nullptr : &call->second;
}

absl::StatusOr<bool> RankGathers::Take(const GatherRequest& request, uint32_t worker_num) {
  const uint32_t rank = request.rank();
  if (request.number() >= kMaxCalls) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(request), " of rank ", rank,
                                                   ": a border has at most ", kMaxCalls, " calls"));
  }
  // Nobody comes back to the borders between the first one and this one.
  if (request.epochs_done() > 0 && borders_.count(request.epochs_done()) == 0)
    borders_.erase(borders_.upper_bound(0), borders_.end());
  Border& border = borders_[request.epochs_done()];
  const auto [found, began] = border.calls.try_emplace(request.number());
  Call& call = found->second;
  if (began) {
    call.first = rank;
    call.what = request.what();
    call.given.resize(worker_num);
  }
  if (!call.failure.ok()) return call.failure;
  if (call.what != request.what()) {
    absl::Status differs = absl::InvalidArgumentError(
        absl::StrCat(NameOf(request), ": rank ", rank, " is at ", request.what(), " and rank ",
                     call.first, " at ", call.what, "; ", kSameCalls));
    if (call.complete.empty()) call.failure = differs;
    return differs;
  }
  if (!call.complete.empty() || call.given[rank].has_value()) return false;
  const size_t bytes = request.data().size();
  if (call.bytes + bytes > kMaxCallBytes || border.bytes + bytes > kMaxBorderBytes) {
    const bool of_call = call.bytes + bytes > kMaxCallBytes;
    return call.failure = absl::InvalidArgumentError(
               absl::StrCat(request.what(), ", ", NameOf(request), ": the ranks give more than ",
                            of_call ? kMaxCallBytes : kMaxBorderBytes, " bytes to ",
                            of_call ? "the call" : "the calls of this border",
                            "; larger values belong into files, parameters or buffers"));
  }
  call.bytes += bytes;
  border.bytes += bytes;
  call.given[rank] = request.data();
  for (const auto& given : call.given) {
    if (!given.has_value()) return false;
  }
  for (auto& given : call.given) call.complete.push_back(*std::move(given));
  call.given = {};
  return true;
}

absl::StatusOr<const std::vector<std::string>*> RankGathers::Find(
    const GatherRequest& request) const {
  const Call* const call = FindCall(request);
  if (call == nullptr) return nullptr;
  if (!call->failure.ok()) return call->failure;
  return call->complete.empty() ? nullptr : &call->complete;
}

GatherRecord RankGathers::RecordOf(const GatherRequest& request) const {
  const Call& call = *FindCall(request);
  GatherRecord record;
  record.set_job_id(request.job_id());
  record.set_epochs_done(request.epochs_done());
  record.set_number(request.number());
  record.set_what(call.what);
  record.mutable_data()->Assign(call.complete.begin(), call.complete.end());
  return record;
}

void RankGathers::Restore(const GatherRecord& record) {
  // A store may be damaged. Without ranks the call would never be complete.
  if (record.data().empty()) return;
  Border& border = borders_[record.epochs_done()];
  Call& call = border.calls[record.number()];
  call.what = record.what();
  call.complete.assign(record.data().begin(), record.data().end());
  for (const std::string& data : call.complete) call.bytes += data.size();
  border.bytes += call.bytes;
}

std::vector<uint32_t> RankGathers::Missing(const GatherRequest& request) const {
  std::vector<uint32_t> missing;
  const Call* const call = FindCall(request);
  for (uint32_t rank = 0; call != nullptr && rank < call->given.size(); ++rank) {
    if (!call->given[rank].has_value()) missing.push_back(rank);
  }
  return missing;
}

absl::Status RankGathers::LeftBy(uint32_t rank, const GatherRequest& request) {
  absl::Status left =
      absl::FailedPreconditionError(absl::StrCat(request.what(), ", ", NameOf(request), ": rank ",
                                                 rank, " has gone on without it; ", kSameCalls));
  if (Call* const call = FindCall(request); call != nullptr) call->failure = left;
  return left;
}

void RankGathers::EndAttempt() {
  borders_.erase(borders_.upper_bound(0), borders_.end());
  const auto first = borders_.find(0);
  if (first == borders_.end()) return;
  Border& border = first->second;
  for (auto it = border.calls.begin(); it != border.calls.end();) {
    const bool complete = !it->second.complete.empty();
    if (!complete) border.bytes -= it->second.bytes;
    it = complete ? std::next(it) : border.calls.erase(it);
  }
}

}  // namespace sluice
