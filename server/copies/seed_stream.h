// Sends and takes the images of shards that become copies, in the messages of proto/replica.proto,
// and decides when an image may be read.
//
// Thread safety: SeedTurn is safe from any thread. A sender or receiver belongs to one thread at a
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/saved_model/shard_image.h"
#include "common/wire/frame.h"
#include "server/copies/shard_image_reader.h"
#include "server/shards/shard.h"

namespace sluice {

// Images may be so far ahead of what their receiver has confirmed.
inline constexpr uint64_t kSeedAheadBytes = 8 << 20;

// Gives checkpoints and saves precedence over images for a follower. A sparse shard can have only
// one cut at a time, and an interrupted image starts over. An image that was interrupted often
// insists, and is finished first: otherwise frequent checkpoints would keep the copies incomplete
// forever.
class SeedTurn {
 public:
  // While a granted Claim lives, no image is being read. The constructor waits for an image under
  // way, which takes about one piece. A `patient` claim also waits for an image that insists; one
  // that is not patient is not granted then.
  class Claim {
   public:
    explicit Claim(SeedTurn* turn, bool patient = true) : turn_(turn) {
      MutexLock lock(&turn_->mutex_);
      ++turn_->claims_;
      while (turn_->seeding_ && (patient || !turn_->insists_)) turn_->changed_.Wait(&turn_->mutex_);
      granted_ = !turn_->seeding_;
    }
    ~Claim() {
      MutexLock lock(&turn_->mutex_);
      --turn_->claims_;
      turn_->changed_.NotifyAll();
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    bool granted() const { return granted_; }

   private:
    SeedTurn* const turn_;
    bool granted_ = false;
  };

  // Begins an image. False while there are claims. Claims do not interrupt one that insists.
  bool TryBegin(bool insists = false) {
    MutexLock lock(&mutex_);
    if (claims_ > 0) return false;
    seeding_ = true;
    insists_ = insists;
    return true;
  }
  // True when the image under way must be given up.
  bool wanted() {
    MutexLock lock(&mutex_);
    return claims_ > 0 && !insists_;
  }
  bool ClaimedForTest() {
    MutexLock lock(&mutex_);
    return claims_ > 0;
  }
  // Call when the cut of the image is destroyed.
  void End() {
    MutexLock lock(&mutex_);
    seeding_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int claims_ ABSL_GUARDED_BY(mutex_) = 0;
  bool seeding_ ABSL_GUARDED_BY(mutex_) = false, insists_ ABSL_GUARDED_BY(mutex_) = false;
};

// The messages of one shard's image.
class SeedSender {
 public:
  // `seed` and `held` belong to the cut (Shard::BeginSeed).
  SeedSender(std::unique_ptr<ShardCut> cut, ShardSeed seed, HeldSum held)
      : cut_(std::move(cut)), seed_(std::move(seed)), held_(std::move(held)) {}

  // Sets *message to the next one, and adds the bytes of its piece to *bytes. False at the end.
  absl::StatusOr<bool> Next(Message* message, uint64_t* bytes);

 private:
  std::unique_ptr<ShardCut> cut_;  // null when it was read
  ShardSeed seed_;
  HeldSum held_;
  bool begun_ = false;
};

// Makes shards from the messages of their images.
class SeedReceiver {
 public:
  // Returns a new shard for the image that begins; null when the shard does not belong here.
  using NewShard = std::function<Shard*(uint32_t table, uint32_t shard)>;
  explicit SeedReceiver(NewShard new_shard) : new_shard_(std::move(new_shard)) {}

  // True for messages of an image.
  static bool IsSeed(const ReplicaHeader& header) {
    return header.has_seed() || header.has_piece();
  }
  // Takes one of them. INVALID_ARGUMENT: it does not fit what came before, such as a second image
  // of a shard, or the job. Throws NoRoom and bad_alloc.
  absl::Status Take(const ReplicaHeader& header, PayloadReader* payload);
  // Images that are complete, and bytes of all pieces.
  uint64_t shards() const { return whole_.size(); }
  uint64_t bytes() const { return bytes_; }
  // True when every image that has begun is complete.
  bool between() const { return reader_ == nullptr; }

 private:
  absl::Status Begin(const ShardSeed& seed, PayloadReader* payload);

  const NewShard new_shard_;
  Shard* shard_ = nullptr;
  std::unique_ptr<ShardImageReader> reader_;  // null between images
  ShardSeed seed_;
  HeldSum held_;
  std::set<std::pair<uint32_t, uint32_t>> whole_;  // table and shard
  uint64_t bytes_ = 0;
};

}  // namespace sluice
