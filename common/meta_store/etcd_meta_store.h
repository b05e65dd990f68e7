// A MetaStore in an etcd cluster (3.4 or later), for schedulers on several hosts.
//
// Lost answers:
// etcd may apply a transaction whose answer never arrives, even long after the call has given up.
// So every transaction of a term has a number. It applies only directly after the last number that
// this object knows of, and stores its own. A commit without an answer is sent again under its
// number, and reads in the store whether an earlier attempt was applied. After the next commit, the
// attempts of earlier ones can no longer apply.
//
// Only while etcd stays silent for `commit_patience` does Commit return UNAVAILABLE, with an open
// outcome.
//
// Format: etcd keys, all values of our own in decimal digits
//   PREFIX/@term            the newest term
//   PREFIX/@commits/TERM    the number of the last commit under TERM (20 digits); the newest few
//                           terms only
//   PREFIX/@data/KEY        the value of KEY
//   PREFIX/@leader          the name of the scheduler with the newest term, until its lease ends;
//                           empty when that one has ended the cluster
// A prefix has no '@', so no cluster's keys lie among another's, whatever their prefixes are.
//
// etcd keeps old revisions until somebody compacts them: this object while it has the newest term,
// if Options::compact says so, or etcd itself with --auto-compaction-retention.
//
// Thread safety: safe from any thread. A scan does not wait for commits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/meta_store/etcd_client.h"
#include "common/meta_store/etcd_lease.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

class EtcdMetaStore : public MetaStore, public Leadership {
 public:
  static constexpr size_t kMaxPrefixBytes = 128;

  struct Options {
    EtcdClient::Options client;
    std::string prefix;  // of this cluster's keys: IsValidPrefix
    // Bounds client.patience in a commit, for which decisions wait.
    absl::Duration commit_patience = absl::InfiniteDuration();
    // The name under which this object leads while it has the newest term, as long as its lease of
    // this length lives. "": it does not say so, and nobody leads.
    std::string name;
    absl::Duration lease = absl::Seconds(10);
    // Drops the values that were replaced more than `keep_history` ago. Only for an etcd that serves
    // Sluice alone: compaction concerns all keys.
    bool compact = false;
    absl::Duration keep_history = absl::Minutes(10);
    std::function<void(const std::string&)> log;  // of a compaction that etcd refuses; may be null
    int64_t scan_page = 64;  // entries that one call of a scan reads; see kMaxReceivedBytes
  };
  // Does not connect: the first call does.
  explicit EtcdMetaStore(Options options);
  // Gives up its lead.
  ~EtcdMetaStore() override;

  // Words of letters, digits, '.', '_' and '-', joined by '/'; at most kMaxPrefixBytes.
  static bool IsValidPrefix(absl::string_view prefix);

  // UNAVAILABLE also when others acquire terms all the time.
  absl::StatusOr<uint64_t> AcquireTerm() override;
  absl::Status Commit(uint64_t term, absl::Span<const Write> writes) override;
  absl::StatusOr<std::vector<Entry>> Scan(const std::string& prefix) override;

  Leadership* leadership() override { return this; }
  absl::StatusOr<Leader> Find() override;
  absl::StatusOr<uint64_t> AcquireFreeTerm() override;
  absl::Status EndCluster(uint64_t term) override;

 private:
  // The findings of a refused transaction.
  struct Stored {
    uint64_t term = 0;    // 0: none
    uint64_t number = 0;  // of the last commit under the own term; 0: none
  };
  std::string CommitKey(uint64_t term) const;
  absl::StatusOr<uint64_t> Acquire(bool only_when_free);
  // Writes @leader if the newest term is `term`. ABORTED when it is not.
  absl::Status WriteLeader(uint64_t term, const std::string& name, int64_t lease);
  absl::StatusOr<uint64_t> ParseNumber(const etcdserverpb::RangeResponse& response,
                                       const std::string& key) const;
  absl::StatusOr<Stored> ParseRefusal(const etcdserverpb::TxnResponse& response,
                                      uint64_t term) const;
  etcdserverpb::TxnRequest CommitTxn(uint64_t term, uint64_t number,
                                     absl::Span<const Write> writes) const;
  // Reads whether `term` is the newest one.
  absl::Status Confirm(uint64_t term) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Call with the revision of each answer that has confirmed the newest term.
  void NoteRevision(int64_t revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns why etcd has refused a commit that it has not applied. OK when an earlier commit with
  // an open outcome has been applied since.
  absl::Status CheckRefusal(uint64_t term, uint64_t number, const Stored& stored,
                            bool repeated) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<bool> IsApplied(uint64_t term, uint64_t number);

  const Options options_;
  const std::string term_key_, leader_key_, data_prefix_;
  EtcdClient client_;
  // Held during calls: commits and terms of one object must reach etcd one after another.
  Mutex mutex_;
  uint64_t acquired_ ABSL_GUARDED_BY(mutex_) = 0;  // newest own term; 0: none
  // Numbers of commits under that term: the newest one given, and the last one known to be applied.
  // The outcome of commits between them is open.
  uint64_t given_ ABSL_GUARDED_BY(mutex_) = 0, applied_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<EtcdLease> lease_ ABSL_GUARDED_BY(mutex_);  // of @leader; null: it says nothing
  // Revisions at which this object had the newest term, and when; oldest first.
  std::deque<std::pair<absl::Time, int64_t>> revisions_ ABSL_GUARDED_BY(mutex_);
  bool compaction_refused_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice
