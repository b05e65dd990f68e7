#include "server/copies/copy_reader.h"

#include <chrono>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/wire/frame.h"
#include "server/copies/seed_stream.h"
#include "server/shards/no_room.h"

namespace sluice {
namespace {
// How often the reader looks whether the job was dropped or the copies are void.
constexpr std::chrono::milliseconds kCopyReaderLook(50);
}  // namespace

// One stream. Its callbacks fill the shards.
struct CopyReader::Attempt {
  explicit Attempt(const CopyReader* reader)
      : reader(reader), seeds([reader](uint32_t table, uint32_t shard) -> Shard* {
          const ShardTable& shards = reader->view_.shards;
          if (table >= shards.size() || shard >= shards[table].size()) return nullptr;
          return shards[table][shard].get();
        }) {
    reader->view_.ForEachShard([this](Shard*) { ++wanted; });
  }

  void OnMessage(Message message) {
    absl::Status status;
    // An exception that escapes a thread of the transport would end the process.
    try {
      status = Take(std::move(message));
    } catch (const NoRoom& why) {
      status = absl::ResourceExhaustedError(why.what());
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("no memory for the copies of shards");
    }
    if (!status.ok()) OnClosed(status);
  }

  absl::Status Take(Message message) {
    absl::StatusOr<DecodedReplica> decoded = DecodeReplica(std::move(message));
    if (!decoded.ok()) return decoded.status();
    const ReplicaHeader& header = decoded->header;
    if (header.code() != 0) {
      return absl::Status(static_cast<absl::StatusCode>(header.code()),
                          Printable(header.message()));
    }
    if (header.drop()) {
      MutexLock lock(&mutex);
      // This answers a request to drop, which ReadOnce sends only when all copies are here.
      if (!complete) return absl::DataLossError("the follower has dropped incomplete copies");
      dropped = true;
      changed.NotifyAll();
      return absl::OkStatus();
    }
    if (header.complete()) {
      if (seeds.shards() != wanted || !seeds.between()) {
        return absl::DataLossError(
            absl::StrCat("the copies have ", seeds.shards(), " of ", wanted, " shards"));
      }
      MutexLock lock(&mutex);
      complete = true;
      changed.NotifyAll();
      return absl::OkStatus();
    }
    const uint64_t before = seeds.bytes();
    const absl::Status taken = seeds.Take(header, &decoded->payload);
    if (!taken.ok()) return taken;
    reader->options_.progress->Plan(seeds.bytes() - before);
    reader->options_.progress->Add(seeds.bytes() - before);
    // ReadOnce confirms these bytes: the follower is never more than kSeedAheadBytes ahead of that.
    MutexLock lock(&mutex);
    taken_bytes = seeds.bytes();
    changed.NotifyAll();
    return absl::OkStatus();
  }

  void OnClosed(const absl::Status& why) {
    MutexLock lock(&mutex);
    if (status.ok()) {
      status = why.ok() ? absl::UnavailableError("the follower has closed the stream") : why;
    }
    changed.NotifyAll();
  }

  const CopyReader* const reader;
  SeedReceiver seeds;  // used by the callbacks alone
  uint64_t wanted = 0;
  Mutex mutex;
  CondVar changed;
  uint64_t taken_bytes ABSL_GUARDED_BY(mutex) = 0;
  bool complete ABSL_GUARDED_BY(mutex) = false, dropped ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

absl::Status CopyReader::Read() {
  if (options_.transport == nullptr) {
    return absl::FailedPreconditionError("this pserver has no transport for copies");
  }
  Mutex mutex;
  CondVar never;
  while (true) {
    const absl::Status status = ReadOnce();
    if (status.ok()) return status;
    // The answer to `drop` was lost: nobody has the copies any more.
    if (has_all_ && absl::IsNotFound(status)) return absl::OkStatus();
    if (options_.progress->copies_are_void()) return absl::OkStatus();
    if (options_.progress->cancelled()) return absl::CancelledError("the job was dropped");
    if (absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status)) {
      return absl::Status(status.code(),
                          absl::StrCat("cannot read the copies of shards at ",
                                       options_.follower.address, ": ", status.message()));
    }
    // Other errors may be temporary, such as a follower that does not know of the takeover yet. The
    // scheduler decides when to give up: it withdraws the job or declares the copies void.
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, 2 * kCopyReaderLook);
  }
}

absl::Status CopyReader::ReadOnce() {
  Attempt attempt(this);
  StreamCallbacks callbacks;
  callbacks.on_message = [&attempt](Message message) { attempt.OnMessage(std::move(message)); };
  callbacks.on_closed = [&attempt](absl::Status status) { attempt.OnClosed(status); };
  // Destroyed before the attempt, which its callbacks use.
  const std::unique_ptr<Stream> stream =
      options_.transport->Connect(options_.follower, std::move(callbacks));
  ReplicaHeader header;
  ReplicaHello* const hello = header.mutable_hello();
  hello->set_protocol(kDataProtocol);
  hello->set_job_id(options_.job_id);
  hello->set_instance(options_.instance);
  hello->set_pass(options_.pass);
  hello->set_pserver(options_.pserver);
  hello->set_generation(options_.generation);
  hello->set_read(true);
  stream->Send(EncodeReplica(header, {}));
  uint64_t told = 0;
  bool asked_to_drop = false;
  while (true) {
    ReplicaHeader answer;
    {
      MutexLock lock(&attempt.mutex);
      if (attempt.dropped) return absl::OkStatus();
      if (!attempt.status.ok()) return attempt.status;
      // The follower has the only other copies, so they are dropped only when all have arrived.
      const bool drop = attempt.complete && !asked_to_drop;
      if (attempt.taken_bytes == told && !drop) {
        attempt.changed.WaitFor(&attempt.mutex, kCopyReaderLook);
        if (options_.progress->cancelled()) return absl::CancelledError("the job was dropped");
        if (options_.progress->copies_are_void()) return absl::OkStatus();
        continue;
      }
      told = attempt.taken_bytes;
      answer.set_seed_bytes(told);
      if (drop) {
        has_all_ = asked_to_drop = true;
        answer.set_drop(true);
      }
    }
    // Before the request leaves: once the follower may have dropped its copies, this load must not
    // be cancelled when the scheduler declares them void.
    if (asked_to_drop) options_.progress->HasAllCopies();
    stream->Send(EncodeReplica(answer, {}));
  }
}

}  // namespace sluice
