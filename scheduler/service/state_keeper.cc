#include "scheduler/service/state_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/meta_store/record_parts.h"

namespace sluice {

StateKeeper::StateKeeper(Options options)
    : options_(std::move(options)), parts_(options_.parts), confirmed_at_(options_.clock->Now()) {
  if (options_.left_over.empty()) return;
  std::vector<MetaStore::Write> deletions;
  for (const std::string& key : options_.left_over) deletions.push_back({key, std::nullopt});
  Add(std::move(deletions), nullptr);
}

StateKeeper::~StateKeeper() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void StateKeeper::Start() {
  thread_ = std::thread([this] { Run(); });
}

void StateKeeper::Add(std::vector<MetaStore::Write> writes, Done done, bool confirm) {
  MutexLock lock(&mutex_);
  additions_.push_back({std::move(writes), std::move(done), confirm, absl::OkStatus()});
  changed_.NotifyAll();
}

void StateKeeper::AddAnswer(Done done, bool confirm) {
  if (const absl::Status now = trouble(); !now.ok()) return done(now);
  Add({}, std::move(done), confirm);
}

absl::Status StateKeeper::Commit(std::vector<MetaStore::Write> writes) {
  absl::Status outcome;
  bool done = false;
  Mutex mutex;
  CondVar changed;
  const auto finish = [&](const absl::Status& status) {
    MutexLock lock(&mutex);
    outcome = status;
    done = true;
    changed.NotifyAll();
  };
  // With confirmation, so that OK means that no newer scheduler had the store at that moment.
  Add(std::move(writes), finish, /*confirm=*/true);
  MutexLock lock(&mutex);
  while (!done) changed.Wait(&mutex);
  return outcome;
}

absl::Status StateKeeper::trouble() {
  MutexLock lock(&mutex_);
  return trouble_;
}

void StateKeeper::Run() {
  for (;;) {
    std::deque<Addition> group;
    absl::Status outcome;
    bool last;
    {
      MutexLock lock(&mutex_);
      if (additions_.empty() && !stopping_) {
        // Without work the term is still confirmed now and then: a scheduler that was replaced
        // learns of it although nothing happens.
        changed_.WaitFor(&mutex_, trouble_.ok() ? options_.check : options_.retry);
      }
      group.swap(additions_);
      outcome = trouble_;
      // Additions that came before the stop are written first.
      last = stopping_ && group.empty();
    }
    const absl::Duration unconfirmed = options_.clock->Now() - confirmed_at_;
    bool due = group.empty() || unconfirmed >= absl::FromChrono(options_.check);
    // The whole group is written at once. A slow store thus makes groups larger, and not the queue
    // longer.
    for (Addition& one : group) {
      Take(&one);
      due = due || one.confirm;
    }
    if ((!unwritten_.empty() || !obsolete_.empty() || due) && !absl::IsAborted(outcome)) {
      outcome = Judge(WriteAll());
      Note(outcome);
    }
    for (const Addition& one : group) {
      // In the order of the additions: outputs rely on it.
      if (one.done) one.done(outcome.ok() ? one.refused : outcome);
    }
    if (last) return;
  }
}

void StateKeeper::Take(Addition* addition) {
  for (MetaStore::Write& write : addition->writes) {
    const size_t size = write.key.size() + (write.value ? write.value->size() : 0);
    if (size > kMaxRecordBytes) {
      addition->refused =
          absl::InvalidArgumentError(absl::StrCat("the record ", write.key, " has ", size,
                                                  " bytes; the limit is ", kMaxRecordBytes));
      // An outdated value would pass for the newest one.
      write.value.reset();
    }
    TakeValue(write.key, std::move(write.value));
  }
}

void StateKeeper::TakeValue(const std::string& key, std::optional<std::string> value) {
  // Only the newest value of a key counts. While the store is away, this bounds the memory by the
  // number of keys.
  if (const auto earlier = parts_.extract(key); !earlier.empty()) {
    for (const std::string& part : earlier.mapped()) {
      unwritten_.erase(part);
      // Also one that was not written: a commit with an open outcome may have it.
      obsolete_[part] = std::nullopt;
    }
  }
  if (!value.has_value()) {
    unwritten_[key] = std::nullopt;
    return;
  }
  CutRecord cut =
      CutIntoParts(*std::move(value), absl::StrCat(options_.term, "-", ++cut_records_));
  for (MetaStore::Write& part : cut.parts) {
    parts_[key].push_back(part.key);
    unwritten_[part.key] = std::move(part.value);
  }
  unwritten_[key] = std::move(cut.value);
}

absl::Status StateKeeper::WriteAll() {
  // An empty commit confirms the term.
  if (unwritten_.empty() && obsolete_.empty())
    return options_.store->Commit(options_.term, {});
  SLUICE_RETURN_IF_ERROR(WritePieces(&unwritten_));
  return WritePieces(&obsolete_);
}

absl::Status StateKeeper::WritePieces(std::map<std::string, std::optional<std::string>>* all) {
  while (!all->empty()) {
    std::vector<MetaStore::Write> writes;
    size_t bytes = 0;
    for (const auto& [key, value] : *all) {
      const size_t size = key.size() + (value ? value->size() : 0);
      if (!writes.empty() && (writes.size() == MetaStore::kMaxCommitWrites ||
                              bytes + size > MetaStore::kMaxCommitBytes)) {
        break;
      }
      bytes += size;
      writes.push_back({key, value});
    }
    // Each piece is atomic, their sequence is not: a reader may find the first pieces only. The
    // order of the keys makes that safe (job_records.cc); the keys of parts come before all others.
    SLUICE_RETURN_IF_ERROR(options_.store->Commit(options_.term, writes));
    for (const MetaStore::Write& write : writes) all->erase(write.key);
  }
  return absl::OkStatus();
}

absl::Status StateKeeper::Judge(absl::Status outcome) {
  if (!outcome.ok() && options_.cut_off.count() > 0 &&
      !(unwritten_.empty() && obsolete_.empty())) {
    const absl::Status confirmed = ConfirmUnwritten(outcome);
    if (confirmed.ok()) confirmed_at_ = options_.clock->Now();
    if (absl::IsAborted(confirmed)) outcome = confirmed;
  }
  const absl::Time now = options_.clock->Now();
  if (outcome.ok()) confirmed_at_ = now;
  if (outcome.ok() || absl::IsAborted(outcome) || options_.cut_off.count() == 0) return outcome;
  // A process that was stopped for a while learns from its next commit what has become of its term.
  const absl::Duration silent = now - confirmed_at_;
  if (silent < absl::FromChrono(options_.cut_off)) return outcome;
  // A scheduler that is cut off cannot know whether it was replaced. Two that decide at once would
  // do more harm than one that ends needlessly.
  was_cut_off_ = true;
  return absl::AbortedError(absl::StrCat(
      "the state store has not confirmed this scheduler's term for ", absl::ToInt64Seconds(silent),
      " s, so another one may have taken over: ", outcome.message()));
}

absl::Status StateKeeper::ConfirmUnwritten(const absl::Status& outcome) const {
  // A store that has lost or mixed up what it held says nothing about the term either.
  if (absl::IsAborted(outcome) || absl::IsDataLoss(outcome)) return outcome;
  return options_.store->Commit(options_.term, {});
}

void StateKeeper::Note(const absl::Status& outcome) {
  bool news;
  {
    MutexLock lock(&mutex_);
    news = trouble_.code() != outcome.code();
    trouble_ = outcome;
  }
  // One line per change, however often the store is tried.
  if (!news) return;
  if (outcome.ok()) {
    options_.log("the state store accepts writes again");
    if (options_.on_trouble) options_.on_trouble(outcome);
  } else if (absl::IsAborted(outcome)) {
    options_.log(was_cut_off_
                     ? std::string(outcome.message())
                     : absl::StrCat("a newer scheduler has taken over: ", outcome.message()));
    if (!options_.on_superseded) return;
    options_.on_superseded(was_cut_off_ ? absl::UnavailableError(outcome.message()) : outcome);
  } else {
    options_.log(absl::StrCat("cannot write the scheduler's state: ", outcome.message(),
                              "; jobs continue, but none can be submitted, and lost members are not replaced"));
    if (options_.on_trouble) options_.on_trouble(outcome);
  }
}

}  // namespace sluice
