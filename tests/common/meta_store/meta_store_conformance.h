// Tests that every engine of MetaStore must pass. A test program includes this and names its
// engines with INSTANTIATE_TEST_SUITE_P(..., MetaStoreConformance, ...).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

inline bool operator==(const MetaStore::Entry& a, const MetaStore::Entry& b) {
  return a.key == b.key && a.value == b.value;
}
inline void PrintTo(const MetaStore::Entry& entry, std::ostream* os) {
  *os << ::testing::PrintToString(entry.key) << ": "
      << ::testing::PrintToString(entry.value.substr(0, 40)) << " (" << entry.value.size()
      << " bytes)";
}

// A store that is empty at first and outlives the objects that open it.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual absl::StatusOr<std::unique_ptr<MetaStore>> Open() = 0;
  // Whether several objects may have it open at the same time.
  virtual bool has_concurrent_clients() const = 0;
};
// Returns null, and says why on the terminal, where the engine cannot run.
using MakeStoreUnderTest = std::function<std::unique_ptr<StoreUnderTest>()>;

class MetaStoreConformance : public ::testing::TestWithParam<MakeStoreUnderTest> {
 protected:
  using Write = MetaStore::Write;
  using Entry = MetaStore::Entry;
  using Entries = std::map<std::string, std::string>;

  void SetUp() override {
    under_test_ = GetParam()();
    if (under_test_ == nullptr) GTEST_SKIP() << "this engine cannot run here";
    Reopen();
  }

  std::unique_ptr<MetaStore> Open() {
    auto store = under_test_->Open();
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void Reopen() {
    store_.reset();
    store_ = Open();
    ASSERT_NE(store_, nullptr);
  }
  uint64_t Acquire() { return Acquire(store_.get()); }
  static uint64_t Acquire(MetaStore* store) {
    const auto term = store->AcquireTerm();
    EXPECT_TRUE(term.ok()) << term.status();
    return term.value_or(0);
  }
  static Entries All(MetaStore* store, const std::string& prefix = "") {
    const auto found = store->Scan(prefix);
    EXPECT_TRUE(found.ok()) << found.status();
    Entries entries;
    for (const Entry& entry : found.value_or(std::vector<Entry>())) {
      EXPECT_TRUE(entries.empty() || entry.key > entries.rbegin()->first) << entry.key;
      entries[entry.key] = entry.value;
    }
    return entries;
  }
  Entries All(const std::string& prefix = "") { return All(store_.get(), prefix); }

  std::unique_ptr<StoreUnderTest> under_test_;
  std::unique_ptr<MetaStore> store_;
};

TEST_P(MetaStoreConformance, TermsRiseOverRestarts) {
  uint64_t last = 0;
  for (int start = 0; start < 3; ++start) {
    for (int i = 0; i < 3; ++i) {
      const uint64_t term = Acquire();
      EXPECT_GT(term, last);
      last = term;
    }
    Reopen();
  }
}

TEST_P(MetaStoreConformance, CommitNeedsATermOfItsOwn) {
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(0, {{"a", "1"}})));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(1, {{"a", "1"}})));
  const uint64_t term = Acquire();
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(0, {{"a", "1"}})));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(term + 1, {{"a", "1"}})));
  EXPECT_EQ(All(), Entries());
  Reopen();
  // The term belongs to the object before.
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(term, {{"a", "1"}})));
  EXPECT_EQ(All(), Entries());
}

TEST_P(MetaStoreConformance, OlderTermIsAborted) {
  const uint64_t old_term = Acquire();
  ASSERT_TRUE(store_->Commit(old_term, {{"a", "1"}}).ok());
  const uint64_t term = Acquire();
  EXPECT_TRUE(absl::IsAborted(store_->Commit(old_term, {{"a", "2"}, {"b", "2"}})));
  EXPECT_TRUE(absl::IsAborted(store_->Commit(old_term, {})));
  EXPECT_EQ(All(), (Entries{{"a", "1"}}));
  EXPECT_TRUE(store_->Commit(term, {{"a", "3"}}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "3"}}));
}

TEST_P(MetaStoreConformance, AnotherClientsTermEndsOurs) {
  if (!under_test_->has_concurrent_clients()) GTEST_SKIP() << "one object at a time";
  const std::unique_ptr<MetaStore> other = Open();
  const uint64_t ours = Acquire();
  ASSERT_TRUE(store_->Commit(ours, {{"a", "ours"}}).ok());
  const uint64_t theirs = Acquire(other.get());
  EXPECT_GT(theirs, ours);
  EXPECT_EQ(All(other.get()), (Entries{{"a", "ours"}}));
  EXPECT_TRUE(absl::IsAborted(store_->Commit(ours, {{"a", "late"}})));
  EXPECT_TRUE(absl::IsAborted(store_->Commit(ours, {})));
  EXPECT_TRUE(other->Commit(theirs, {{"b", "theirs"}}).ok());
  EXPECT_TRUE(absl::IsAborted(store_->Commit(ours, {{"b", "late"}})));
  // Scans need no term.
  EXPECT_EQ(All(), (Entries{{"a", "ours"}, {"b", "theirs"}}));
  const uint64_t again = Acquire();
  EXPECT_TRUE(absl::IsAborted(other->Commit(theirs, {{"b", "late"}})));
  EXPECT_TRUE(store_->Commit(again, {{"b", std::nullopt}}).ok());
  EXPECT_EQ(All(other.get()), (Entries{{"a", "ours"}}));
}

TEST_P(MetaStoreConformance, PutsReplacesAndDeletes) {
  const uint64_t term = Acquire();
  ASSERT_TRUE(store_->Commit(term, {{"a", "1"}, {"b", "2"}, {"c", ""}}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "1"}, {"b", "2"}, {"c", ""}}));
  ASSERT_TRUE(
      store_->Commit(term, {{"a", "3"}, {"b", std::nullopt}, {"missing", std::nullopt}}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "3"}, {"c", ""}}));
  ASSERT_TRUE(store_->Commit(term, {}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "3"}, {"c", ""}}));
  Reopen();
  EXPECT_EQ(All(), (Entries{{"a", "3"}, {"c", ""}}));
}

TEST_P(MetaStoreConformance, LastOfSeveralWritesToAKeyCounts) {
  const uint64_t term = Acquire();
  ASSERT_TRUE(store_->Commit(term, {{"a", "1"}, {"b", "1"}, {"a", "2"}, {"b", std::nullopt}}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "2"}}));
  ASSERT_TRUE(store_->Commit(term, {{"a", std::nullopt}, {"a", "3"}}).ok());
  EXPECT_EQ(All(), (Entries{{"a", "3"}}));
}

TEST_P(MetaStoreConformance, KeysAndValuesAreAnyBytes) {
  std::string all_bytes;
  for (int c = 0; c < 256; ++c) all_bytes += static_cast<char>(c);
  const std::string nul(1, '\0'), ff = "\xff", ff2 = "\xff\xff";
  const Entries entries = {{nul, all_bytes}, {nul + nul, nul},
                           {"@term", "1"},   {"a/", "2"},
                           {"a/b", "3"},     {"a0", "4"},
                           {ff, "5"},        {ff2, "6"},
                           {ff2 + nul, "7"}, {all_bytes, "8"},
                           {"/", "9"},       {"\x7f", "10"},
                           {"\x80", "11"},   {"a/" + ff2, ff2 + nul}};
  std::vector<Write> writes;
  for (const auto& [key, value] : entries) writes.push_back({key, value});
  ASSERT_TRUE(store_->Commit(Acquire(), writes).ok());
  EXPECT_EQ(All(), entries);
  // Every prefix of every key.
  for (const auto& [key, value] : entries) {
    for (size_t n = 0; n <= std::min<size_t>(key.size(), 4); ++n) {
      const std::string prefix = key.substr(0, n);
      Entries expected;
      for (const auto& entry : entries) {
        if (absl::StartsWith(entry.first, prefix)) expected.insert(entry);
      }
      EXPECT_EQ(All(prefix), expected) << ::testing::PrintToString(prefix);
    }
  }
  EXPECT_EQ(All("nothing"), Entries());
}

TEST_P(MetaStoreConformance, RefusesWhatExceedsItsLimits) {
  const uint64_t term = Acquire();
  const std::string longest_key(MetaStore::kMaxKeyBytes, 'k');
  std::vector<Write> too_many(MetaStore::kMaxCommitWrites + 1, Write{"k", "v"});
  const std::vector<std::vector<Write>> refused = {
      {{"good", "1"}, {"", "1"}},
      {{"good", "1"}, {"", std::nullopt}},
      {{"good", "1"}, {longest_key + "k", "1"}},
      {{"good", "1"}, {"k", std::string(MetaStore::kMaxCommitBytes, 'v')}},
      too_many,
  };
  for (size_t i = 0; i < refused.size(); ++i)
    EXPECT_TRUE(absl::IsInvalidArgument(store_->Commit(term, refused[i]))) << i;
  EXPECT_EQ(All(), Entries());
}

TEST_P(MetaStoreConformance, TakesWhatIsWithinItsLimits) {
  const uint64_t term = Acquire();
  const std::string longest_key(MetaStore::kMaxKeyBytes, 'k');
  const std::string longest_value(MetaStore::kMaxCommitBytes - longest_key.size(), 'v');
  ASSERT_TRUE(store_->Commit(term, {{longest_key, longest_value}}).ok());
  EXPECT_EQ(All(), (Entries{{longest_key, longest_value}}));
  ASSERT_TRUE(store_->Commit(term, {{longest_key, std::nullopt}}).ok());

  // As many writes as allowed, of as many bytes as allowed; then as many deletions.
  std::vector<Write> writes, deletes;
  Entries expected;
  for (size_t i = 0; i < MetaStore::kMaxCommitWrites; ++i) {
    const std::string key = absl::StrFormat("%0512d", i);
    const std::string value(MetaStore::kMaxCommitBytes / MetaStore::kMaxCommitWrites - key.size(),
                            static_cast<char>('a' + i % 26));
    writes.push_back({key, value});
    deletes.push_back({key, std::nullopt});
    expected[key] = value;
  }
  const absl::Status committed = store_->Commit(term, writes);
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_EQ(All(), expected);
  ASSERT_TRUE(store_->Commit(term, deletes).ok());
  EXPECT_EQ(All(), Entries());
}

TEST_P(MetaStoreConformance, ScansManyEntriesInOrder) {
  const uint64_t term = Acquire();
  Entries expected;
  for (int batch = 0; batch < 5; ++batch) {
    std::vector<Write> writes;
    for (int i = 0; i < 200; ++i) {
      writes.push_back({absl::StrCat("job/", i * 7919 % 1000, "/", batch), absl::StrCat(i)});
      expected[writes.back().key] = *writes.back().value;
    }
    ASSERT_TRUE(store_->Commit(term, writes).ok());
  }
  ASSERT_TRUE(store_->Commit(term, {{"job", "before"}, {"job0", "after"}}).ok());
  EXPECT_EQ(All("job/"), expected);
}

TEST_P(MetaStoreConformance, ScansSeeWholeCommits) {
  const uint64_t term = Acquire();
  // More entries than a page of a scan.
  constexpr int kKeys = 150;
  const auto commit = [&](int value) {
    std::vector<Write> writes;
    for (int i = 0; i < kKeys; ++i) writes.push_back({absl::StrCat(i), absl::StrCat(value)});
    return store_->Commit(term, writes);
  };
  ASSERT_TRUE(commit(0).ok());
  std::atomic<bool> over{false};
  std::thread scanner([&] {
    while (!over) {
      const Entries entries = All();
      ASSERT_EQ(entries.size(), kKeys);
      for (const auto& [key, value] : entries) ASSERT_EQ(value, entries.begin()->second) << key;
    }
  });
  for (int value = 1; value <= 40; ++value) EXPECT_TRUE(commit(value).ok());
  over = true;
  scanner.join();
}

TEST_P(MetaStoreConformance, ThreadsMayCommitAtTheSameTime) {
  const uint64_t term = Acquire();
  constexpr int kThreads = 4, kCommits = 25;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCommits; ++i) {
        const absl::Status status = store_->Commit(
            term, {{absl::StrCat(t, "/", i), absl::StrCat(i)}, {absl::StrCat(t), absl::StrCat(i)}});
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Entries expected;
  for (int t = 0; t < kThreads; ++t) {
    expected[absl::StrCat(t)] = absl::StrCat(kCommits - 1);
    for (int i = 0; i < kCommits; ++i) expected[absl::StrCat(t, "/", i)] = absl::StrCat(i);
  }
  EXPECT_EQ(All(), expected);
}

TEST_P(MetaStoreConformance, RandomOperationsMatchAMap) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const auto random_key = [&] {
      return std::string(1 + below(2), static_cast<char>('a' + below(4)));
    };
    Entries expected = All();
    uint64_t term = Acquire(), old_term = 0;
    for (int step = 0; step < 120; ++step) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      std::vector<Write> writes(below(6));
      for (Write& write : writes) {
        write.key = random_key();
        if (below(3) > 0) write.value = std::string(below(300), static_cast<char>('A' + below(26)));
      }
      switch (below(8)) {
        case 0:
          old_term = std::exchange(term, Acquire());
          break;
        case 1:
          Reopen();
          old_term = 0;
          term = Acquire();
          break;
        case 2:
          if (old_term > 0) {
            ASSERT_TRUE(absl::IsAborted(store_->Commit(old_term, writes)));
          }
          break;
        case 3:
          writes.push_back({"", "x"});
          ASSERT_TRUE(absl::IsInvalidArgument(store_->Commit(term, writes)));
          break;
        default:
          ASSERT_TRUE(store_->Commit(term, writes).ok());
          for (const Write& write : writes) {
            if (write.value.has_value()) {
              expected[write.key] = *write.value;
            } else {
              expected.erase(write.key);
            }
          }
      }
      const std::string prefix = below(2) == 0 ? "" : random_key();
      Entries found;
      for (const auto& entry : expected) {
        if (absl::StartsWith(entry.first, prefix)) found.insert(entry);
      }
      ASSERT_EQ(All(prefix), found);
    }
  }
}

}  // namespace sluice
