// Keeps the copies of one job's shards on this pserver's follower equal to the shards, and holds
// acknowledgements until the follower has what they acknowledge.
//
//   1. A shard applies a change and adds it to the log, in one critical section (ChangeLog).
//   2. Pump sends what is in the log.
//   3. Acknowledge sends an answer at once, or keeps it until the follower has confirmed.
//
// A thread connects to the follower, sends the images of the shards while training continues, then
// declares the copies complete. When the stream breaks, or the follower is silent for `patience` or
// too many bytes behind, it gives the copies up, waits until the scheduler has (AckGate), and
// begins again as soon as a route names a follower.
//
// Thread safety: safe from any thread. Nothing is sent under its lock, and no shard is locked under
// it. Lock order: JobTables::report_mutex_ (HoldBackNews calls Kept), then mutex_, then the lock of
// the log or of the job's ledger.
//
// Memory: at most max_behind_bytes of changes, kSeedAheadBytes of images, and kKeptPerRank answers
// for each rank. An answer pins its values: copies of rows, and dense blocks that shards have lent,
// which makes the next update copy them. Async workers therefore pull apart from their pushes;
// Geo's answers hold the values of one exchange of each rank.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/retry.h"
#include "common/transport/transport.h"
#include "proto/scheduler.pb.h"
#include "server/checkpoints/cut_writer.h"
#include "server/copies/seed_stream.h"
#include "server/requests/ack_gate.h"
#include "server/requests/job_view.h"
#include "server/requests/parked_pulls.h"
#include "server/requests/reply_writer.h"
#include "server/shards/change_log.h"

namespace sluice {

class Replicator {
 public:
  // The most answers that wait at one time, by rank of the job: as many as the frames that a worker
  // may have in flight (ParameterClient::Limits).
  static constexpr size_t kKeptPerRank = 256;

  struct Options {
    std::string job_id;
    uint64_t instance = 0;
    std::string pass;  // of this pserver (JobPasses)
    uint32_t worker_num = 1;
    // These outlive the replicator. Without a transport no follower is ever reached.
    Transport* transport = nullptr;
    Clock* clock = nullptr;
    CutWriter* writer = nullptr;  // for the budget of pre-images
    SeedTurn* turn = nullptr;
    std::function<uint64_t()> available_memory;
    std::function<void()> await_checkpoint;  // waits for a checkpoint that is being written
    std::function<bool()> may_seed;          // false: shards await ranks
    std::function<void()> on_change;         // the report has news; may be null
    absl::Duration patience = absl::Seconds(5);
    uint64_t max_behind_bytes = uint64_t{256} << 20;
  };
  // `shards`: all shards here.
  Replicator(Options options, std::vector<std::shared_ptr<Shard>> shards);
  ~Replicator() { Close(); }

  // A route is in force in which this pserver is number `self` (-1: none).
  void TakeSpec(const JobSpec& spec, int64_t self);
  // Call when the shards no longer await ranks, so that images may be sent.
  void SeedSoon();

  // Sends the changes that are in the log.
  void Pump();
  // Finishes an answer that acknowledges changes, as soon as it may leave.
  void Acknowledge(uint64_t stream, std::unique_ptr<ReplyWriter> reply, const ReplyStamp& stamp);
  // Drops the answers to a stream that has closed.
  void ForgetStream(uint64_t stream);

  using Mark = AckGate::Mark;
  // The changes made so far, for an answer.
  Mark ChangesNow();
  // The changes made so far, for Kept.
  Mark MarkNow();
  // True when the changes before the mark cannot be lost with this process. on_change is called
  // when the answer may have become true.
  bool Kept(const Mark& mark);

  void FillReport(HostedJob* report);
  // Ends the thread. Answers that are kept are refused with NOT_FOUND.
  void Close();

 private:
  // A stream to the follower.
  struct Session {
    explicit Session(uint64_t max_bytes) : log(std::make_shared<ChangeLog>(max_bytes)) {}
    uint64_t number = 0;
    std::shared_ptr<ChangeLog> log;
    std::unique_ptr<Stream> stream;
    uint64_t assignment = 0;
    Mutex send_mutex;
    CondVar pumped;
    bool pumping ABSL_GUARDED_BY(send_mutex) = false;
    bool more ABSL_GUARDED_BY(send_mutex) = false;
    bool over ABSL_GUARDED_BY(send_mutex) = false;  // the stream is no longer used
  };
  struct Answer {
    AckGate::Mark changes;
    uint64_t stream = 0;
    std::unique_ptr<ReplyWriter> reply;
    ReplyStamp stamp;
  };

  void Run();
  // Connects and sends all images. Not OK: the stream cannot be used.
  absl::Status Seed(const std::shared_ptr<Session>& session);
  absl::Status SeedShard(Session* session, Shard* shard);
  // Sends the messages of an image. False: it was given up for a checkpoint.
  absl::StatusOr<bool> SendImage(Session* session, SeedSender* sender);
  // OK while the session can be used.
  absl::Status Check(const Session& session);
  // Waits until the follower has answered, and images of `sent` bytes are at most `ahead` ahead.
  absl::Status AwaitImages(const Session& session, uint64_t sent, uint64_t ahead);
  // True when the follower has been silent for too long. While this process was stopped, it could
  // not hear the follower, so that time does not count.
  bool IsSilent(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for the end of a session whose copies are complete; says why.
  absl::Status Watch(const Session& session);
  void EndSession(const std::shared_ptr<Session>& session, const absl::Status& why);
  static void PumpSession(Session* session);

  void OnMessage(uint64_t number, Message message);
  void OnClosed(uint64_t number, const absl::Status& status);
  // Removes and returns the answers that may leave now.
  std::vector<Answer> TakeReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Finish(std::vector<Answer> answers);
  // Refuses an answer that waits when the job is closed.
  absl::Status Closed() const;
  uint64_t EndOfLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed() const {
    if (options_.on_change) options_.on_change();
  }

  const Options options_;
  const std::vector<std::shared_ptr<Shard>> shards_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  AckGate gate_ ABSL_GUARDED_BY(mutex_);
  int64_t self_ ABSL_GUARDED_BY(mutex_) = -1;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t assignments_ ABSL_GUARDED_BY(mutex_) = 0;          // ended by routes without a follower
  PserverAddress follower_ ABSL_GUARDED_BY(mutex_);           // without an address: none
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);  // or null
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);               // why the present stream is over
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;             // by the follower, on this stream
  uint64_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;          // of images, by the follower
  uint64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0, all_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time heard_ ABSL_GUARDED_BY(mutex_);   // when the follower confirmed something, or had all
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);  // when the thread last asked IsSilent
  bool marked_ ABSL_GUARDED_BY(mutex_) = false;  // a mark waits to be kept
  std::string error_ ABSL_GUARDED_BY(mutex_);
  std::deque<Answer> kept_ ABSL_GUARDED_BY(mutex_);  // by position
  std::thread thread_;
};

}  // namespace sluice
