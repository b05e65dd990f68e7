#include "server/service/replica_handler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/security/refusal_reason.h"
#include "server/copies/seed_stream.h"
#include "server/tables/job_tables.h"

namespace sluice {

void ReplicaHandler::OnClosed() {
  closed_ = true;
  const std::shared_ptr<JobTables> job = job_.lock();
  // Copies that a successor reads stay when its stream breaks: it connects again.
  if (job != nullptr && held_.copy != nullptr && !reads_) job->copies()->EndOfStream(held_);
  job_.reset();
  sender_.reset();
  shards_.clear();
  held_ = JobCopies::Held();
}

void ReplicaHandler::OnMessage(Message message) {
  if (closed_) return;
  absl::Status status;
  try {
    status = Take(std::move(message));
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory for a message of copies at this pserver");
  }
  if (status.ok()) return;
  Tell(status);
  ReplicaHeader header;
  header.set_code(static_cast<int32_t>(status.code()));
  header.set_message(Printable(status.message()));
  Send(header);
  OnClosed();
  stream_->Close();
}

void ReplicaHandler::Tell(const absl::Status& refusal) {
  if (on_refused_ == nullptr) return;
  // An image that does not match its checksums is DATA_LOSS.
  const bool malformed = absl::IsDataLoss(refusal), room = absl::IsResourceExhausted(refusal);
  absl::Status why = refusal;
  if (malformed) why = Because(RefusalReason::kInvalid, std::move(why));
  if (room) why = Because(RefusalReason::kRoom, std::move(why));
  on_refused_({why, job_id_, instance_, "pserver", pserver_});
}

absl::Status ReplicaHandler::Take(Message message) {
  SLUICE_ASSIGN_OR_RETURN(DecodedReplica decoded, DecodeReplica(std::move(message)));
  if (held_.copy == nullptr) {
    if (!decoded.header.has_hello()) {
      return absl::InvalidArgumentError("the first message of a stream must be a hello");
    }
    return TakeHello(decoded.header.hello());
  }
  const std::shared_ptr<JobTables> job = job_.lock();
  if (job == nullptr) return absl::NotFoundError("the job is not open on this pserver any more");
  return reads_ ? TakeConfirmation(decoded.header, job->copies())
                : TakeChanges(std::move(decoded), job->copies());
}

absl::Status ReplicaHandler::TakeHello(const ReplicaHello& hello) {
  if (hello.protocol() != kDataProtocol) {
    return absl::InvalidArgumentError(
        absl::StrCat("protocol ", hello.protocol(), " of copies; this pserver speaks ",
                     kDataProtocol, "; use the same version of sluice on all hosts"));
  }
  SLUICE_RETURN_IF_ERROR(CheckJobIdOfHello(hello.job_id()));
  // Before the checks below, so that the audit log can say who was refused.
  job_id_ = hello.job_id();
  instance_ = hello.instance();
  pserver_ = hello.pserver();
  const std::shared_ptr<JobTables> job = find_job_(hello.job_id());
  if (job == nullptr || job->instance() != hello.instance()) {
    return Because(RefusalReason::kJob,
                   absl::NotFoundError(absl::StrCat("this instance of job ", hello.job_id(),
                                                    " is not open on this pserver")));
  }
  SLUICE_RETURN_IF_ERROR(job->passes().CheckPserver(hello.pserver(), hello.pass()));
  reads_ = hello.read();
  generation_ = hello.generation();
  SLUICE_ASSIGN_OR_RETURN(held_, reads_ ? job->copies()->Seal(hello) : job->copies()->Begin(hello));
  job_ = job;
  if (!reads_) {
    Send(ReplicaHeader());  // so that the primary knows that somebody follows
    return absl::OkStatus();
  }
  shards_ = held_.copy->shards();
  return SendMore();
}

absl::Status ReplicaHandler::TakeChanges(DecodedReplica message, JobCopies* copies) {
  const ReplicaHeader& header = message.header;
  const absl::Status applied = held_.copy->Apply(header, std::move(message.payload));
  if (!applied.ok()) {
    // An error may leave the copies between two changes, so they are dropped. Sealed ones have
    // taken nothing, and a successor may be reading them.
    if (!absl::IsAborted(applied)) copies->Drop(held_);
    return applied;
  }
  if (header.complete()) {
    SLUICE_RETURN_IF_ERROR(held_.copy->CheckWhole());
    SLUICE_RETURN_IF_ERROR(copies->Complete(held_));
  }
  ReplicaHeader confirmation;
  confirmation.set_confirmed(held_.copy->position());
  confirmation.set_seed_bytes(held_.copy->seed_bytes());
  Send(confirmation);
  return absl::OkStatus();
}

absl::Status ReplicaHandler::TakeConfirmation(const ReplicaHeader& header, JobCopies* copies) {
  // Never more than was sent, whatever the peer says.
  taken_bytes_ = std::min(header.seed_bytes(), sent_bytes_);
  if (!header.drop()) {
    SLUICE_RETURN_IF_ERROR(copies->CheckReader(held_, generation_));
    return SendMore();
  }
  SLUICE_RETURN_IF_ERROR(copies->DropRead(held_, generation_));
  ReplicaHeader dropped;
  dropped.set_drop(true);
  Send(dropped);
  return absl::OkStatus();
}

absl::Status ReplicaHandler::SendMore() {
  // Bounds what is under way, and so the memory that a slow successor takes here.
  while (!all_sent_ && sent_bytes_ < taken_bytes_ + kSeedAheadBytes) {
    if (sender_ == nullptr && next_ == shards_.size()) {
      ReplicaHeader complete;
      complete.set_complete(true);
      Send(complete);
      all_sent_ = true;
      return absl::OkStatus();
    }
    if (sender_ == nullptr) {
      ShardSeed seed;
      HeldSum held;
      // No log and no budget: sealed copies do not change while they are read.
      std::unique_ptr<ShardCut> cut = shards_[next_]->BeginSeed(nullptr, nullptr, &seed, &held);
      sender_ = std::make_unique<SeedSender>(std::move(cut), std::move(seed), std::move(held));
    }
    Message message;
    SLUICE_ASSIGN_OR_RETURN(const bool more, sender_->Next(&message, &sent_bytes_));
    if (more) {
      stream_->Send(std::move(message));
    } else {
      sender_.reset();
      ++next_;
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
