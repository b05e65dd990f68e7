// States of the source of a program, such as the state_dict of a loader, at positions in its epoch.
// A source that goes on from one of them reads less again than from the beginning of the epoch.
//
// The program keeps a state now and then, as it reads ahead. A checkpoint takes the newest one that
// is not behind its cut, as a file of the rank (source_state_file.h).
//
// Memory: kKept states of at most kMaxBytes.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "common/base/mutex.h"

namespace sluice {

struct SourceState {
  uint32_t epoch = 0;
  uint64_t batches = 0;  // of the epoch, which the source has given before
  std::string bytes;     // for the program
};

class SourceStates {
 public:
  // As many as keep one in front of the steps that are under way, since states are many batches
  // apart (SourceReader in python/sluice/torch/_source.py).
  static constexpr size_t kKept = 4;
  static constexpr size_t kMaxBytes = 16 << 20;

  // Takes the place of those at this or a later position, which belong to an earlier reading. False:
  // it is larger than kMaxBytes.
  bool Keep(SourceState state) {
    if (state.bytes.size() > kMaxBytes) return false;
    MutexLock lock(&mutex_);
    while (!states_.empty() && !(PlaceOf(states_.back()) < PlaceOf(state))) states_.pop_back();
    states_.push_back(std::move(state));
    if (states_.size() > kKept) states_.pop_front();
    return true;
  }
  // The newest state in the epoch from which a source can give its batch number `batches` (from 0).
  std::optional<SourceState> Before(uint32_t epoch, uint64_t batches) const {
    MutexLock lock(&mutex_);
    for (auto state = states_.rbegin(); state != states_.rend(); ++state)
      if (state->epoch == epoch && state->batches <= batches) return *state;
    return std::nullopt;
  }

 private:
  static std::pair<uint32_t, uint64_t> PlaceOf(const SourceState& state) {
    return {state.epoch, state.batches};
  }

  mutable Mutex mutex_;
  std::deque<SourceState> states_ ABSL_GUARDED_BY(mutex_);  // by place, ascending
};

}  // namespace sluice
