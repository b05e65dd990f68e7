#include "common/meta_store/etcd_meta_store.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/meta_store/meta_store.h"

namespace sluice {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::RangeRequest;
using etcdserverpb::RangeResponse;
using etcdserverpb::RequestOp;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

// The numbers of commits are kept for this many terms. A commit that waits for etcd must not lose
// its number while others acquire terms.
constexpr uint64_t kKeptTerms = 16;
// Writes in each of the transactions that a large one is made of. etcd allows 128 operations in a
// list, less those of the list around it: 16 such transactions and a number.
constexpr size_t kWritesInList = 64;
static_assert((MetaStore::kMaxCommitWrites + kWritesInList - 1) / kWritesInList + 1 +
                      kWritesInList <=
                  128,
              "etcd would refuse the largest commit");
// Attempts of AcquireTerm when another scheduler acquires each term first.
constexpr int kTermAttempts = 50;
// Attempts of a scan when etcd compacts the revision that the scan reads.
constexpr int kScanAttempts = 5;

// The first key after all keys that begin with `prefix`.
// REQUIRES: a byte of the prefix is not 0xff.
std::string PrefixEnd(std::string prefix) {
  while (static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  ++prefix.back();
  return prefix;
}

void CompareValue(TxnRequest* txn, const std::string& key, uint64_t value) {
  Compare* compare = txn->add_compare();
  compare->set_key(key);
  if (value == 0) {
    compare->set_target(Compare::VERSION);
    compare->set_version(0);
  } else {
    compare->set_target(Compare::VALUE);
    compare->set_value(absl::StrCat(value));
  }
}

// The key is as `found` says.
void CompareRevision(TxnRequest* txn, const std::string& key, const RangeResponse& found) {
  Compare* unchanged = txn->add_compare();
  unchanged->set_key(key);
  unchanged->set_target(Compare::MOD);
  unchanged->set_mod_revision(found.kvs().empty() ? 0 : found.kvs(0).mod_revision());
}

void Put(RequestOp* op, const std::string& key, const std::string& value, int64_t lease = 0) {
  op->mutable_request_put()->set_key(key);
  op->mutable_request_put()->set_value(value);
  op->mutable_request_put()->set_lease(lease);
}

}  // namespace

EtcdMetaStore::EtcdMetaStore(Options options)
    : options_(std::move(options)),
      term_key_(absl::StrCat(options_.prefix, "/@term")),
      leader_key_(absl::StrCat(options_.prefix, "/@leader")),
      data_prefix_(absl::StrCat(options_.prefix, "/@data/")),
      client_(options_.client) {}

EtcdMetaStore::~EtcdMetaStore() = default;

bool EtcdMetaStore::IsValidPrefix(absl::string_view prefix) {
  if (prefix.size() > kMaxPrefixBytes) return false;
  for (const absl::string_view word : absl::StrSplit(prefix, '/')) {
    if (word.empty() || !std::all_of(word.begin(), word.end(), [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                 c == '-';
        })) {
      return false;
    }
  }
  return true;
}

std::string EtcdMetaStore::CommitKey(uint64_t term) const {
  return absl::StrCat(options_.prefix, "/@commits/", absl::StrFormat("%020d", term));
}

absl::StatusOr<uint64_t> EtcdMetaStore::ParseNumber(const RangeResponse& response,
                                                    const std::string& key) const {
  if (response.kvs().empty()) return 0;
  uint64_t number;
  const std::string& text = response.kvs(0).value();
  // The largest number would have no successor.
  if (response.kvs(0).key() == key && absl::SimpleAtoi(text, &number) && number > 0 &&
      number < std::numeric_limits<uint64_t>::max()) {
    return number;
  }
  return absl::DataLossError(
      absl::StrCat("the value of ", key,
                   " in etcd is not a number of a term or a commit. Another program has "
                   "changed it: restore it, or choose another prefix"));
}

absl::StatusOr<uint64_t> EtcdMetaStore::AcquireTerm() { return Acquire(/*only_when_free=*/false); }

absl::StatusOr<uint64_t> EtcdMetaStore::AcquireFreeTerm() {
  return Acquire(/*only_when_free=*/true);
}

absl::StatusOr<uint64_t> EtcdMetaStore::Acquire(bool only_when_free) {
  MutexLock lock(&mutex_);
  lease_ = nullptr;
  for (int attempt = 0; attempt < kTermAttempts; ++attempt) {
    TxnRequest txn;
    if (only_when_free) {
      RangeRequest range;
      range.set_key(leader_key_);
      SLUICE_ASSIGN_OR_RETURN(const RangeResponse found, client_.Range(range));
      const bool named = !found.kvs().empty() && !found.kvs(0).value().empty();
      // With our own lease: an attempt without an answer was applied.
      const bool ours = named && lease_ != nullptr && found.kvs(0).lease() == lease_->id();
      if (named && !ours) {
        return absl::FailedPreconditionError(
            absl::StrCat(PrintableLine(found.kvs(0).value()), " leads"));
      }
      CompareRevision(&txn, leader_key_, found);
    }
    if (lease_ == nullptr && !options_.name.empty()) {
      SLUICE_ASSIGN_OR_RETURN(lease_, EtcdLease::Grant(options_.client, options_.lease));
    }
    RangeRequest range;
    range.set_key(term_key_);
    SLUICE_ASSIGN_OR_RETURN(const RangeResponse found, client_.Range(range));
    SLUICE_ASSIGN_OR_RETURN(const uint64_t stored, ParseNumber(found, term_key_));
    const uint64_t term = stored + 1;

    CompareRevision(&txn, term_key_, found);
    Put(txn.add_success(), term_key_, absl::StrCat(term));
    if (lease_ != nullptr) {
      Put(txn.add_success(), leader_key_, options_.name, lease_->id());
    } else {
      txn.add_success()->mutable_request_delete_range()->set_key(leader_key_);
    }
    auto* old_numbers = txn.add_success()->mutable_request_delete_range();
    old_numbers->set_key(CommitKey(0));
    old_numbers->set_range_end(CommitKey(term - std::min(term, kKeptTerms) + 1));
    bool repeated = false;
    SLUICE_ASSIGN_OR_RETURN(const TxnResponse response, client_.Txn(txn, &repeated));
    // When an attempt without an answer was the one that was applied, its term stays unused.
    if (!response.succeeded()) continue;
    acquired_ = term;
    given_ = applied_ = 0;
    revisions_.clear();
    if (lease_ != nullptr) {
      lease_->Keep([this, term](int64_t id) { return WriteLeader(term, options_.name, id); });
    }
    return term;
  }
  return absl::UnavailableError(
      absl::StrCat("others have acquired the terms of ", term_key_, " in etcd ", kTermAttempts,
                   " times in a row: too many schedulers use this prefix"));
}

absl::Status EtcdMetaStore::WriteLeader(uint64_t term, const std::string& name, int64_t lease) {
  TxnRequest txn;
  CompareValue(&txn, term_key_, term);
  Put(txn.add_success(), leader_key_, name, lease);
  bool repeated = false;
  SLUICE_ASSIGN_OR_RETURN(const TxnResponse response,
                          client_.Txn(txn, &repeated, options_.commit_patience));
  if (response.succeeded()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("term ", term, " is over"));
}

absl::StatusOr<Leadership::Leader> EtcdMetaStore::Find() {
  RangeRequest range;
  range.set_key(leader_key_);
  SLUICE_ASSIGN_OR_RETURN(const RangeResponse found,
                          client_.Range(range, options_.commit_patience));
  Leader leader;
  if (!found.kvs().empty()) leader.name = found.kvs(0).value();
  leader.ended = !found.kvs().empty() && leader.name.empty();
  return leader;
}

absl::Status EtcdMetaStore::EndCluster(uint64_t term) {
  MutexLock lock(&mutex_);
  // From now on nothing writes the name again. Without lease the key outlives this object.
  if (lease_ != nullptr) lease_->Stop();
  return WriteLeader(term, "", 0);
}

absl::StatusOr<EtcdMetaStore::Stored> EtcdMetaStore::ParseRefusal(const TxnResponse& response,
                                                                  uint64_t term) const {
  if (response.responses_size() != 2) {
    return absl::InternalError(absl::StrCat("etcd answered 2 reads of a transaction with ",
                                            response.responses_size(), " results"));
  }
  Stored stored;
  SLUICE_ASSIGN_OR_RETURN(stored.term,
                          ParseNumber(response.responses(0).response_range(), term_key_));
  SLUICE_ASSIGN_OR_RETURN(stored.number,
                          ParseNumber(response.responses(1).response_range(), CommitKey(term)));
  return stored;
}

absl::StatusOr<bool> EtcdMetaStore::IsApplied(uint64_t term, uint64_t number) {
  RangeRequest range;
  range.set_key(CommitKey(term));
  SLUICE_ASSIGN_OR_RETURN(const RangeResponse found, client_.Range(range));
  SLUICE_ASSIGN_OR_RETURN(const uint64_t stored, ParseNumber(found, range.key()));
  return stored == number;
}

TxnRequest EtcdMetaStore::CommitTxn(uint64_t term, uint64_t number,
                                    absl::Span<const Write> writes) const {
  TxnRequest txn;
  // etcd refuses a transaction that changes a key twice.
  std::map<absl::string_view, const Write*> last;
  for (const Write& write : writes) last[write.key] = &write;
  size_t listed = 0;
  TxnRequest* list = nullptr;
  for (const auto& [key, write] : last) {
    if (listed++ % kWritesInList == 0) list = txn.add_success()->mutable_request_txn();
    RequestOp* op = list->add_success();
    const std::string etcd_key = absl::StrCat(data_prefix_, key);
    if (write->value.has_value()) {
      Put(op, etcd_key, *write->value);
    } else {
      op->mutable_request_delete_range()->set_key(etcd_key);
    }
  }
  Put(txn.add_success(), CommitKey(term), absl::StrCat(number));
  // The answer that ParseRefusal reads.
  txn.add_failure()->mutable_request_range()->set_key(term_key_);
  txn.add_failure()->mutable_request_range()->set_key(CommitKey(term));
  return txn;
}

absl::Status EtcdMetaStore::CheckRefusal(uint64_t term, uint64_t number, const Stored& stored,
                                         bool repeated) const {
  if (stored.term != term) {
    if (repeated && stored.number == 0 && stored.term >= term + kKeptTerms) {
      return absl::UnavailableError(absl::StrCat(
          "term ", term, " ended long ago: etcd holds term ", stored.term,
          " and has forgotten whether the last commit of term ", term, " was applied"));
    }
    return TermMismatch(term, stored.term);
  }
  if (stored.number > applied_ && stored.number < number) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the value of ", CommitKey(term), " in etcd is ", stored.number,
                   "; it must be between ", applied_ + 1, " and ", number,
                   ". Another program has changed it: restore it, or choose another prefix"));
}

absl::Status EtcdMetaStore::Confirm(uint64_t term) {
  TxnRequest txn;
  CompareValue(&txn, term_key_, term);
  // etcd answers a transaction that only reads without a revision, and also when it takes no
  // writes. With a read in it the answer is linearizable: a former leader cannot give it.
  txn.add_success()->mutable_request_range()->set_key(term_key_);
  txn.add_failure()->mutable_request_range()->set_key(term_key_);
  txn.add_failure()->mutable_request_range()->set_key(CommitKey(term));
  bool repeated = false;
  SLUICE_ASSIGN_OR_RETURN(const TxnResponse response,
                          client_.Txn(txn, &repeated, options_.commit_patience));
  if (response.succeeded()) {
    NoteRevision(response.header().revision());
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const Stored stored, ParseRefusal(response, term));
  if (stored.term != term) return TermMismatch(term, stored.term);
  return absl::DataLossError(absl::StrCat("the value of ", term_key_, " in etcd is not written as ",
                                          "Sluice does. Another program has changed it"));
}

void EtcdMetaStore::NoteRevision(int64_t revision) {
  if (!options_.compact) return;
  const absl::Time now = options_.client.clock->Now();
  if (revisions_.empty() || now - revisions_.back().first >= options_.keep_history / 10)
    revisions_.push_back({now, revision});
  int64_t old = 0;
  for (; !revisions_.empty() && now - revisions_.front().first >= options_.keep_history;
       revisions_.pop_front()) {
    old = revisions_.front().second;
  }
  if (old == 0) return;
  const absl::Status done = client_.Compact(old);
  // The next one drops as much. Somebody else may also have compacted.
  if (done.ok() || absl::IsUnavailable(done) || absl::IsOutOfRange(done)) return;
  if (!std::exchange(compaction_refused_, true) && options_.log)
    options_.log(absl::StrCat("--etcd_compact: ", done.message()));
}

absl::Status EtcdMetaStore::Commit(uint64_t term, absl::Span<const Write> writes) {
  MutexLock lock(&mutex_);
  SLUICE_RETURN_IF_ERROR(CheckCommit(term, acquired_, writes));
  if (writes.empty()) return Confirm(term);
  const uint64_t number = ++given_;
  TxnRequest txn = CommitTxn(term, number, writes);
  for (bool repeated = false;;) {
    txn.clear_compare();
    CompareValue(&txn, term_key_, term);
    CompareValue(&txn, CommitKey(term), applied_);
    const absl::StatusOr<TxnResponse> response =
        client_.Txn(txn, &repeated, options_.commit_patience);
    if (absl::IsResourceExhausted(response.status())) {
      // etcd also gives this answer when it has applied the transaction that reached the quota.
      SLUICE_ASSIGN_OR_RETURN(const bool applied, IsApplied(term, number));
      if (!applied) return response.status();
    } else {
      SLUICE_RETURN_IF_ERROR(response.status());
      if (response->succeeded()) {
        NoteRevision(response->header().revision());
      } else {
        SLUICE_ASSIGN_OR_RETURN(const Stored stored, ParseRefusal(*response, term));
        // Otherwise an attempt whose answer was lost has been applied.
        if (stored.number != number) {
          SLUICE_RETURN_IF_ERROR(CheckRefusal(term, number, stored, repeated));
          // An earlier commit with an open outcome has been applied. Ours comes after it.
          applied_ = stored.number;
          continue;
        }
      }
    }
    applied_ = number;
    return absl::OkStatus();
  }
}

absl::StatusOr<std::vector<MetaStore::Entry>> EtcdMetaStore::Scan(const std::string& prefix) {
  const std::string first = absl::StrCat(data_prefix_, prefix);
  for (int attempt = 0;;) {
    std::vector<Entry> entries;
    RangeRequest range;
    range.set_key(first);
    range.set_range_end(PrefixEnd(first));
    range.set_limit(options_.scan_page);
    while (true) {
      const absl::StatusOr<RangeResponse> page = client_.Range(range);
      if (absl::IsOutOfRange(page.status()) && ++attempt < kScanAttempts) break;
      SLUICE_RETURN_IF_ERROR(page.status());
      for (const auto& kv : page->kvs()) {
        if (!absl::StartsWith(kv.key(), first)) {
          return absl::InternalError(absl::StrCat("etcd answered a read of ", first,
                                                  " with a key that is not in the range"));
        }
        // Pages that repeat themselves would never end.
        if (kv.key() < range.key()) {
          return absl::InternalError(absl::StrCat("etcd answered a read of ", first,
                                                  " with the key ", PrintableLine(kv.key()),
                                                  " again, or out of order"));
        }
        range.set_key(kv.key() + '\0');
        entries.push_back({kv.key().substr(data_prefix_.size()), kv.value()});
      }
      if (!page->more() || page->kvs().empty()) return entries;
      // All pages are read at the revision of the first one. Later responses hold newer revisions.
      if (range.revision() == 0) range.set_revision(page->header().revision());
    }
  }
}

}  // namespace sluice
