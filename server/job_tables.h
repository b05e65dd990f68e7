// One job on this pserver: takes its requests through the steps that job_tables.cc lists.
//
// Requests may be answered later, by whoever makes them ready (the last commit of a step, a slow
// worker's push): the answer leaves through the request's ReplyWriter.
//
// Thread safety: safe from any thread. Shards and the ledger lock themselves; neither is locked
// under the other, and nothing is sent under any lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/daemon/trace_recorder.h"
#include "proto/scheduler.pb.h"
#include "server/job_ledger.h"
#include "server/job_opener.h"
#include "server/reply_writer.h"
#include "server/request_check.h"

namespace sluice {

class JobTables {
 public:
  // Opens the shards that the route gives to `address`, with initial values or those of the job's
  // initial model. `progress` may be null. Errors are those of OpenJob.
  static absl::StatusOr<std::shared_ptr<JobTables>> Open(const JobSpec& spec,
                                                         const std::string& address,
                                                         const JobResources& resources,
                                                         LoadProgress* progress = nullptr);

  // INVALID_ARGUMENT: no such rank. ABORTED: a later life of the rank has spoken. Fences earlier
  // ones.
  absl::Status Hello(const Caller& caller);

  // One message of a request. With the last one the answer is taken over: *reply is empty
  // afterwards. Otherwise, and on an error, it is left: the caller refuses the request with the
  // status.
  //   FAILED_PRECONDITION  another generation than the job's
  //   ABORTED              this incarnation is fenced
  //   INVALID_ARGUMENT     malformed, or not for the job's mode: nothing of the message was
  //   applied.
  //                        Or a commit or pull of a step that is not open.
  //   NOT_FOUND            the job was closed
  //   RESOURCE_EXHAUSTED   too many pulls wait, or memory ran out; a change that was cut short by
  //                        that fails the job
  // `scratch` belongs to the stream.
  absl::Status Handle(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                      std::unique_ptr<ReplyWriter>* reply);

  // The pulls of this stream that wait will never be read.
  void ForgetStream(uint64_t stream) { ledger_.ForgetStream(stream); }
  // FAILED_PRECONDITION when it moves shards to or from this pserver.
  absl::Status UpdateRoute(const Route& route);
  // Answers what waits with NOT_FOUND; requests are refused from now on.
  void Close();

  uint64_t instance() const { return instance_; }  // JobSpec.instance
  uint64_t generation() { return ledger_.view()->generation; }
  HostedJob Report();
  absl::StatusOr<std::vector<SavedFile>> SaveShards(const std::string& directory,
                                                    const std::string& save_id = "");
  TraceRecorder* trace() const { return trace_.get(); }  // null: the job asks for none

  // Null when the shard is not here.
  Shard* shard_for_test(uint32_t table, uint32_t shard) {
    return ledger_.view()->FindShard(table, shard);
  }
  size_t parked_for_test() { return ledger_.parked(); }

 private:
  JobTables(const JobSpec& spec, const std::string& address, const JobResources& resources,
            OpenedJob opened);

  absl::Status HandleSteps(const Caller& caller, DecodedFrame frame, PushPart* scratch,
                           std::unique_ptr<ReplyWriter>* reply);
  // Step 3: true when the frame counts.
  bool ApplyPush(const Caller& caller, const JobView& view, const FrameHeader& header,
                 PayloadReader* payload, PushPart* scratch, ReplyWriter* reply);
  // Step 6.
  void ChangeShards(const JobLedger::Request& request, const JobLedger::Outcome& wanted);
  // Step 7.
  void AnswerReady(std::vector<ParkedPull> ready);
  void Answer(const Caller& caller, const JobView& view, const Pull& pull, PayloadReader payload,
              const ReplyStamp& stamp, ReplyWriter* reply);

  const std::string job_id_;
  const uint64_t instance_;
  const std::string address_;
  Env* const env_;
  const TableLayouts layouts_;
  const RequestCheck check_;
  const std::unique_ptr<TraceRecorder> trace_;
  JobLedger ledger_;
};

}  // namespace sluice
