#include "tests/model/wide_deep/cuda/simulated/streams.h"

#include <algorithm>
#include <utility>

namespace sluice::cuda::simulated {

void Streams::Put(Stream* stream, std::function<void()> run) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(run));
    return;
  }
  Append(stream, std::move(run), {});
  Advance();
}

void Streams::Record(Event* event, Stream* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  event->last = Append(stream, [] {}, {});
  Advance();
}

void Streams::HoldBack(Stream* stream, const Event& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (event.last != nullptr) Append(stream, [] {}, {event.last});
  Advance();
}

void Streams::Finish(const std::shared_ptr<Work>& work) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (work == nullptr || work->done) return;
  open_();
  RunWithWhatIsBefore(work);
  close_();
}

void Streams::FinishAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.empty()) return;
  open_();
  // In the order of the calls, every piece of work comes after the work that it waits for.
  for (size_t i = 0; i < pending_.size(); ++i) Run(pending_[i].get());
  close_();
  pending_.clear();
}

bool Streams::Ask(const std::shared_ptr<Work>& work) {
  if (pace_ == Pace::kLate) Finish(work);
  std::lock_guard<std::mutex> lock(mutex_);
  if (work == nullptr) return true;
  if (!work->done) Advance();
  return work->done;
}

bool Streams::busy() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const std::shared_ptr<Work>& work) { return !work->done; });
}

std::shared_ptr<Work> Streams::Append(Stream* stream, std::function<void()> run,
                                      std::vector<std::shared_ptr<Work>> after) {
  auto work = std::make_shared<Work>();
  work->run = std::move(run);
  work->after = std::move(after);
  if (stream->last != nullptr) work->after.push_back(stream->last);
  stream->last = work;
  pending_.push_back(work);
  return work;
}

void Streams::Advance() {
  if (pace_ == Pace::kLate || pending_.empty()) return;
  open_();
  if (pace_ == Pace::kAtOnce) {
    for (const std::shared_ptr<Work>& work : pending_) Run(work.get());
    pending_.clear();
  } else {
    for (uint64_t n = random_() % 4; n > 0; --n) {
      const std::shared_ptr<Work> work = AnyReady();
      if (work != nullptr) Run(work.get());
    }
  }
  close_();
}

std::shared_ptr<Work> Streams::AnyReady() {
  std::vector<std::shared_ptr<Work>> ready, left;
  for (const std::shared_ptr<Work>& work : pending_) {
    if (work->done) continue;
    left.push_back(work);
    if (std::all_of(work->after.begin(), work->after.end(),
                    [](const std::shared_ptr<Work>& before) { return before->done; })) {
      ready.push_back(work);
    }
  }
  pending_ = std::move(left);
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

void Streams::RunWithWhatIsBefore(const std::shared_ptr<Work>& work) {
  // Searches depth first without recursion, because streams may be long.
  std::vector<std::shared_ptr<Work>> path = {work};
  while (!path.empty()) {
    const std::shared_ptr<Work> top = path.back();
    const auto before =
        std::find_if(top->after.begin(), top->after.end(),
                     [](const std::shared_ptr<Work>& other) { return !other->done; });
    if (before != top->after.end()) {
      path.push_back(*before);
      continue;
    }
    Run(top.get());
    path.pop_back();
  }
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(),
                                [](const std::shared_ptr<Work>& other) { return other->done; }),
                 pending_.end());
}

void Streams::Run(Work* work) {
  if (work->done) return;
  work->run();
  work->run = nullptr;
  work->after.clear();
  work->ended = ++now_;
  work->done = true;
}

}  // namespace sluice::cuda::simulated
