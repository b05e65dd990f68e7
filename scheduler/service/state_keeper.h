// Commits the scheduler's records to its state store, in groups and in order.
//
// Add returns at once. A thread commits everything that has been added since its last commit, and
// then calls `done` of each addition. So what follows from a decision happens after the decision is
// kept, and no decision waits for a disk or for the network.
//
// A store that cannot be written does not hold up anything: the additions are done with its error,
// and their writes are kept and tried again, every `retry` and with each new addition, until the
// store takes them.
//
// The term: a commit confirms that no newer scheduler has the store. An addition that asks for it,
// or that comes more than `check` after the last confirmation, completes only after a new
// confirmation, even if it writes nothing. An idle keeper asks every `check`. ABORTED ends the
// keeper: `on_superseded` is called once, and every addition from then on is done with ABORTED. The
// same happens when the store confirms nothing for `cut_off`: then nobody knows whether there is a
// newer scheduler. A store that only refuses to write, because it is full, still confirms the term.
//
// Invariants: at each success the store holds, for each key, the newest value added before. Long
// values are cut into parts (record_parts.h). A value of more than kMaxRecordBytes is replaced by
// the deletion of its key.
//
// Memory: the newest value of each key that the store has not taken, and the keys of parts.
//
// Thread safety: safe. Callbacks run on the keeper's thread, one at a time, in the order of Add
// (callbacks of AddAnswer may be earlier); they may call Add.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

class StateKeeper {
 public:
  struct Options {
    MetaStore* store = nullptr;  // outlives the keeper
    uint64_t term = 0;           // acquired from it
    // What the store held when the term was acquired: the parts of records, and those without one.
    std::map<std::string, std::vector<std::string>> parts;
    std::vector<std::string> left_over;
    Clock* clock = nullptr;      // outlives the keeper; measures `check` and `cut_off`
    std::function<void(const std::string&)> log;
    // ABORTED: a newer scheduler has the store. UNAVAILABLE: the store failed for `cut_off`. May be
    // null.
    std::function<void(const absl::Status&)> on_superseded;
    // The store refuses writes from now on (the error), or takes them again (OK). May be null.
    std::function<void(const absl::Status&)> on_trouble;
    std::chrono::milliseconds retry{1000}, check{3000};
    // 0: the store belongs to this process alone, so nobody can take over while it fails.
    std::chrono::milliseconds cut_off{0};
  };
  using Done = std::function<void(const absl::Status&)>;

  explicit StateKeeper(Options options);
  // Tries once more to write what has been added, if it was started.
  ~StateKeeper();
  // Starts the thread, and so the commits and callbacks. Call once, when the callbacks may run.
  void Start();

  // `done` may be null. An addition without writes is done after the earlier ones, with their
  // outcome. With `confirm` the term is confirmed after the addition. INVALID_ARGUMENT: one of the
  // values is too large.
  void Add(std::vector<MetaStore::Write> writes, Done done, bool confirm = false);
  // As Add without writes. But while the store cannot be written, `done` is called at once, with
  // the store's error, on this thread.
  void AddAnswer(Done done, bool confirm = false);
  // Adds, and waits until it is done, with the term confirmed. Must not be called from a callback.
  absl::Status Commit(std::vector<MetaStore::Write> writes);
  // OK when the store holds everything whose addition is done; else why it does not.
  absl::Status trouble();

 private:
  struct Addition {
    std::vector<MetaStore::Write> writes;
    Done done;
    bool confirm = false;
    absl::Status refused;  // not OK: a value is too large
  };
  void Run();
  // Moves the writes to unwritten_.
  void Take(Addition* addition);
  // The same for one value of any length.
  void TakeValue(const std::string& key, std::optional<std::string> value);
  // Commits `writes` in pieces that a store takes, and removes what it has taken.
  absl::Status WritePieces(std::map<std::string, std::optional<std::string>>* writes);
  // Writes unwritten_, or confirms the term when there is nothing to write. Uses no lock.
  absl::Status WriteAll();
  // Says what the outcome of WriteAll means for the additions.
  absl::Status Judge(absl::Status outcome);
  // Whether the store confirms the term although it has not taken the writes.
  absl::Status ConfirmUnwritten(const absl::Status& outcome) const;
  void Note(const absl::Status& outcome);

  const Options options_;
  // Only the thread uses these.
  std::map<std::string, std::optional<std::string>> unwritten_;
  // Parts that no record needs once unwritten_ is written, to be deleted then.
  std::map<std::string, std::optional<std::string>> obsolete_;
  std::map<std::string, std::vector<std::string>> parts_;  // by record: the keys of its parts
  uint64_t cut_records_ = 0;
  absl::Time confirmed_at_;
  bool was_cut_off_ = false;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Addition> additions_ ABSL_GUARDED_BY(mutex_);
  absl::Status trouble_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice
