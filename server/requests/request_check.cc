#include "server/requests/request_check.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_validation.h"
#include "common/config/mode.h"
#include "common/daemon/control_plane.h"

namespace sluice {
namespace {

// A sum of larger weights could overflow a double.
constexpr double kMaxWeight = 1e200;
// No message holds this many bytes; sums of parts below this limit do not overflow.
constexpr uint64_t kMaxPartsBytes = uint64_t{1} << 62;
// Room in a message in addition to the values of its one part.
constexpr uint64_t kHeaderRoom = 4096;

absl::Status CheckParts(const TableLayouts& layouts, const Parts& parts, bool push,
                        uint64_t* bytes) {
  const int n = parts.table_size();
  if (parts.shard_size() != n || parts.rows_size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("the lists of parts differ in length: ", n,
                                                   " tables, ", parts.shard_size(), " shards, ",
                                                   parts.rows_size(), " rows"));
  }
  // The second part for a shard would have the same sequence, be taken for a repeat, and be lost.
  absl::flat_hash_set<uint64_t> seen;
  for (int i = 0; i < n; ++i) {
    const uint32_t table = parts.table(i), shard = parts.shard(i);
    if (table >= layouts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("part ", i, " is for table ", table, "; the job has ", layouts.size()));
    }
    const TableLayout& layout = *layouts[table];
    if (shard >= layout.num_shards()) {
      return absl::InvalidArgumentError(absl::StrCat("part ", i, " is for shard ", shard,
                                                     " of table '", layout.name(), "', which has ",
                                                     layout.num_shards()));
    }
    if (!seen.insert(static_cast<uint64_t>(table) << 32 | shard).second) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " of table '", layout.name(),
                                                     "' is named twice in one message"));
    }
    const uint64_t rows = parts.rows(i);
    if (layout.sparse()) {
      const uint64_t row_bytes = static_cast<uint64_t>(layout.dim()) * layout.wire_bytes();
      *bytes += rows * (8 + (push ? row_bytes : 0));
    } else if (push) {
      *bytes += rows * layout.wire_bytes();
    }
    if (*bytes > kMaxPartsBytes) {
      return absl::InvalidArgumentError(absl::StrCat("part ", i, " of table '", layout.name(),
                                                     "' names ", rows,
                                                     " rows, which exceeds the limit"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

RequestCheck::RequestCheck(std::string job_id, TableLayouts layouts, Mode mode,
                           uint64_t max_message_bytes)
    : job_id_(std::move(job_id)),
      layouts_(std::move(layouts)),
      mode_(mode),
      max_message_bytes_(max_message_bytes) {}

absl::Status RequestCheck::Check(const FrameHeader& header, size_t payload_bytes) const {
  SLUICE_RETURN_IF_ERROR(CheckMessage(header, payload_bytes));
  SLUICE_RETURN_IF_ERROR(CheckMode(header));
  return header.has_pull() ? CheckAnswer(header.pull()) : absl::OkStatus();
}

absl::Status RequestCheck::CheckMessage(const FrameHeader& header, size_t payload_bytes) const {
  if (header.has_hello()) {
    return absl::InvalidArgumentError(
        "hello must be the first request of a stream and may be sent only once");
  }
  if (!header.last() && (header.has_commit() || header.has_pull() || header.has_end_epoch())) {
    return absl::InvalidArgumentError(
        "commit, pull and end_epoch belong in the last message of a request");
  }
  uint64_t bytes = 0;
  if (header.has_push()) {
    const Push& push = header.push();
    if (push.sequence() == 0) {
      return absl::InvalidArgumentError("a push has no sequence; sequences start at 1");
    }
    // Written so that NaN is refused too.
    if (!(push.weight() >= 0 && push.weight() <= kMaxWeight)) {
      return absl::InvalidArgumentError(absl::StrCat("push ", push.sequence(), " has weight ",
                                                     push.weight(), "; it must be between 0 and ",
                                                     kMaxWeight));
    }
    SLUICE_RETURN_IF_ERROR(CheckParts(layouts_, push.parts(), true, &bytes));
  }
  // The ledger keeps this state, and reports carry it, so a peer could fill both.
  for (const TrainTotals* totals : {&header.push().totals(), &header.commit().totals()}) {
    if (totals->net_state().size() > kMaxNetStateBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "request ", header.request_id(), " has a net_state of ", totals->net_state().size(),
          " bytes; at most ", kMaxNetStateBytes, " are allowed"));
    }
  }
  if (header.end_epoch().epoch() >= kMaxEpochs) {
    return absl::InvalidArgumentError(absl::StrCat("request ", header.request_id(), " ends epoch ",
                                                   header.end_epoch().epoch(),
                                                   "; a job has at most ", kMaxEpochs, " epochs"));
  }
  if (header.has_pull())
    SLUICE_RETURN_IF_ERROR(CheckParts(layouts_, header.pull().parts(), false, &bytes));
  // From here on parts are taken from the payload without another look at its size.
  if (bytes != payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("request ", header.request_id(),
                                                   " has a payload of ", payload_bytes,
                                                   " bytes; its parts need ", bytes));
  }
  return absl::OkStatus();
}

absl::Status RequestCheck::CheckAnswer(const Pull& pull) const {
  const Parts& parts = pull.parts();
  uint64_t sparse = 0;
  for (int i = 0; i < parts.table_size(); ++i) {
    const TableLayout& layout = *layouts_[parts.table(i)];
    if (!layout.sparse()) continue;
    const uint64_t bytes = uint64_t{parts.rows(i)} * layout.dim() * layout.wire_bytes();
    sparse += bytes;
    if (bytes + kHeaderRoom <= max_message_bytes_ && sparse <= kMaxPullBytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("pull of ", parts.rows(i), " rows of table '", layout.name(), "' shard ",
                     parts.shard(i), " asks for ", bytes, " bytes, and the pull for ", sparse,
                     " so far; one part may have at most ", max_message_bytes_,
                     " (limits.max_message_mib), all of a pull ", kMaxPullBytes,
                     "; use smaller batches, more shards, or raise the limit"));
  }
  return absl::OkStatus();
}

absl::Status RequestCheck::CheckMode(const FrameHeader& header) const {
  const bool geo = mode_ == Mode::kGeo, sync = mode_ == Mode::kSync;
  if (header.has_push() && header.push().delta() != geo) {
    return absl::InvalidArgumentError(absl::StrCat("push ", header.push().sequence(), " brings ",
                                                   geo ? "gradients" : "deltas", " to job ",
                                                   job_id_, ", which runs in ", ModeName(mode_),
                                                   " mode; send ", geo ? "deltas" : "gradients"));
  }
  if (header.push().more() && mode_ != Mode::kAsync) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", header.push().sequence(), " to job ", job_id_,
                     " is split (more), which only async jobs accept; the job runs in ",
                     ModeName(mode_), " mode"));
  }
  if (!sync && (header.has_commit() || header.pull().applied_sequence() != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("commit and applied_sequence are for sync jobs; job ", job_id_, " runs in ",
                     ModeName(mode_), " mode"));
  }
  return absl::OkStatus();
}

}  // namespace sluice
