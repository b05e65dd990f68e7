// Lets checkpoints and saves go before the images for a follower: a sparse shard has one cut at a
// time, and an image that is given up only begins anew.
//
// Thread safety: safe from any thread.
#pragma once

#include "common/base/mutex.h"

namespace sluice {

class SeedTurn {
 public:
  // While it lives, no image is being read. Waits for one that is, for about one piece.
  class Claim {
   public:
    explicit Claim(SeedTurn* turn) : turn_(turn) {
      MutexLock lock(&turn_->mutex_);
      ++turn_->claims_;
      while (turn_->seeding_) turn_->changed_.Wait(&turn_->mutex_);
    }
    ~Claim() {
      MutexLock lock(&turn_->mutex_);
      --turn_->claims_;
      turn_->changed_.NotifyAll();
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    SeedTurn* const turn_;
  };

  // An image begins; false: not now.
  bool TryBegin() {
    MutexLock lock(&mutex_);
    if (claims_ > 0) return false;
    seeding_ = true;
    return true;
  }
  // The image under way must be given up.
  bool wanted() {
    MutexLock lock(&mutex_);
    return claims_ > 0;
  }
  // The cut of the image is destroyed.
  void End() {
    MutexLock lock(&mutex_);
    seeding_ = false;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int claims_ ABSL_GUARDED_BY(mutex_) = 0;
  bool seeding_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
