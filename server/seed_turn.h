// Gives checkpoints and saves precedence over images for a follower. A sparse shard can have only
// one cut at a time, and an interrupted image starts over. An image that was interrupted often
// insists, and is finished first: otherwise frequent checkpoints would keep the copies incomplete
// forever.
//
// Thread safety: safe from any thread.
#pragma once

#include "common/base/mutex.h"

namespace sluice {

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

}  // namespace sluice
