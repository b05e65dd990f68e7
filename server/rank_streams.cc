#include "server/rank_streams.h"

#include <utility>

namespace sluice {

std::shared_ptr<Stream> RankStreams::Open(const Rank& rank, uint64_t number,
                                          std::shared_ptr<Stream> stream) {
  MutexLock lock(&mutex_);
  auto& streams = open_[rank];
  streams[number] = std::move(stream);
  if (streams.size() <= kMaxPerRank) return nullptr;
  std::shared_ptr<Stream> oldest = std::move(streams.begin()->second);
  streams.erase(streams.begin());
  return oldest;
}

void RankStreams::Ended(const Rank& rank, uint64_t number) {
  MutexLock lock(&mutex_);
  const auto it = open_.find(rank);
  if (it == open_.end()) return;
  it->second.erase(number);
  if (it->second.empty()) open_.erase(it);
}

}  // namespace sluice
