#include "common/meta_store/etcd_meta_store.h"

#include <iostream>

#include "common/base/clock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/meta_store/etcd_cluster.h"
#include "tests/common/meta_store/etcd_proxy.h"
#include "tests/common/meta_store/meta_store_conformance.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using Entries = std::map<std::string, std::string>;

// One etcd for all tests that do not stop it; null where it is not installed.
EtcdCluster* SharedEtcd() {
  static std::unique_ptr<EtcdCluster> etcd;
  static bool asked = false;
  if (std::exchange(asked, true)) return etcd.get();
  if (!EtcdCluster::IsInstalled()) {
    std::cout << "skipped: there is no " << EtcdCluster::kProgram
              << "; apt-get install etcd-server\n";
    return nullptr;
  }
  etcd = std::make_unique<EtcdCluster>(1);
  etcd->WaitReady(0);
  return etcd.get();
}

std::string NewPrefix() {
  static int n = 0;
  return absl::StrCat("test/", ++n);
}

EtcdMetaStore::Options Options(std::vector<std::string> endpoints, const std::string& prefix) {
  EtcdMetaStore::Options options;
  options.client.clock = Clock::Real();
  options.client.endpoints = std::move(endpoints);
  // Far more than a busy machine needs.
  options.client.call_timeout = absl::Seconds(20);
  options.client.patience = absl::Seconds(60);
  options.prefix = prefix;
  return options;
}

Entries All(MetaStore* store) {
  const auto found = store->Scan("");
  EXPECT_TRUE(found.ok()) << found.status();
  Entries entries;
  for (const MetaStore::Entry& entry : found.value_or(std::vector<MetaStore::Entry>()))
    entries[entry.key] = entry.value;
  return entries;
}

class EtcdStoreUnderTest : public StoreUnderTest {
 public:
  explicit EtcdStoreUnderTest(int64_t scan_page) : scan_page_(scan_page) {}
  absl::StatusOr<std::unique_ptr<MetaStore>> Open() override {
    EtcdMetaStore::Options options = Options(SharedEtcd()->endpoints(), prefix_);
    options.scan_page = scan_page_;
    return std::make_unique<EtcdMetaStore>(options);
  }
  bool has_concurrent_clients() const override { return true; }

 private:
  const int64_t scan_page_;
  const std::string prefix_ = NewPrefix();
};

MakeStoreUnderTest EtcdWithPagesOf(int64_t scan_page) {
  return [scan_page]() -> std::unique_ptr<StoreUnderTest> {
    if (SharedEtcd() == nullptr) return nullptr;
    return std::make_unique<EtcdStoreUnderTest>(scan_page);
  };
}
INSTANTIATE_TEST_SUITE_P(Etcd, MetaStoreConformance,
                         ::testing::Values(EtcdWithPagesOf(EtcdMetaStore::Options().scan_page),
                                           EtcdWithPagesOf(3)));

// A store behind a proxy, and another one with the same prefix that asks etcd directly.
class EtcdMetaStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (SharedEtcd() == nullptr) GTEST_SKIP() << "etcd is not installed";
    proxy_ = std::make_unique<EtcdProxy>(SharedEtcd()->endpoint(0));
    store_ = std::make_unique<EtcdMetaStore>(Options({proxy_->endpoint()}, prefix_));
    // Tries once.
    EtcdMetaStore::Options impatient = Options({proxy_->endpoint()}, prefix_);
    impatient.client.patience = absl::ZeroDuration();
    impatient_ = std::make_unique<EtcdMetaStore>(impatient);
    direct_ = std::make_unique<EtcdMetaStore>(Options(SharedEtcd()->endpoints(), prefix_));
    EtcdClient::Options client;
    client.clock = Clock::Real();
    client.endpoints = SharedEtcd()->endpoints();
    raw_ = std::make_unique<EtcdClient>(client);
  }

  // Keys below the prefix, as etcd has them.
  std::vector<std::string> RawKeys(const std::string& below) {
    etcdserverpb::RangeRequest range;
    range.set_key(prefix_ + below);
    range.set_range_end(prefix_ + below + "\xff");
    std::vector<std::string> keys;
    const auto response = raw_->Range(range);
    EXPECT_TRUE(response.ok()) << response.status();
    for (const auto& kv : response->kvs()) keys.push_back(kv.key());
    return keys;
  }
  void RawPut(const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest txn;
    auto* put = txn.add_success()->mutable_request_put();
    put->set_key(prefix_ + key);
    put->set_value(value);
    ASSERT_TRUE(raw_->Txn(txn, nullptr).ok());
  }
  void RawDelete(const std::string& key) {
    etcdserverpb::TxnRequest txn;
    txn.add_success()->mutable_request_delete_range()->set_key(prefix_ + key);
    ASSERT_TRUE(raw_->Txn(txn, nullptr).ok());
  }

  const std::string prefix_ = NewPrefix();
  std::unique_ptr<EtcdProxy> proxy_;
  std::unique_ptr<EtcdMetaStore> store_, impatient_, direct_;
  std::unique_ptr<EtcdClient> raw_;
};

TEST_F(EtcdMetaStoreTest, CommitWhoseAnswerIsLostIsAppliedOnceAndSucceeds) {
  const uint64_t term = *store_->AcquireTerm();
  proxy_->OnTxn(
      [](int attempt) { return attempt < 3 ? EtcdProxy::kLoseAnswer : EtcdProxy::kPass; });
  EXPECT_TRUE(store_->Commit(term, {{"a", "1"}}).ok());
  EXPECT_EQ(proxy_->attempts(), 4);
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "1"}}));
  // The next ones follow without a repetition.
  proxy_->OnTxn(nullptr);
  EXPECT_TRUE(store_->Commit(term, {{"a", "2"}}).ok());
  EXPECT_TRUE(store_->Commit(term, {{"a", "3"}}).ok());
  EXPECT_EQ(proxy_->attempts(), 2);
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "3"}}));
}

TEST_F(EtcdMetaStoreTest, CommitThatReachesTheQuotaSucceeds) {
  const uint64_t term = *store_->AcquireTerm();
  proxy_->OnTxn([](int) { return EtcdProxy::kAnswerFull; });
  EXPECT_TRUE(store_->Commit(term, {{"a", "1"}}).ok());
  proxy_->OnTxn(nullptr);
  EXPECT_TRUE(store_->Commit(term, {{"b", "1"}}).ok());
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "1"}, {"b", "1"}}));
}

TEST_F(EtcdMetaStoreTest, LateAttemptCannotUndoALaterCommit) {
  const uint64_t term = *store_->AcquireTerm();
  proxy_->OnTxn(
      [](int attempt) { return attempt < 2 ? EtcdProxy::kHoldRequest : EtcdProxy::kPass; });
  EXPECT_TRUE(store_->Commit(term, {{"a", "first"}}).ok());
  EXPECT_TRUE(store_->Commit(term, {{"a", "second"}}).ok());
  EXPECT_EQ(proxy_->DeliverHeld(), 0);
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "second"}}));
}

TEST_F(EtcdMetaStoreTest, OpenOutcomeIsSettledByTheNextCommit) {
  for (const bool arrives_before : {true, false}) {
    SCOPED_TRACE(arrives_before);
    const uint64_t term = *impatient_->AcquireTerm();
    ASSERT_TRUE(impatient_->Commit(term, {{"a", "0"}, {"b", "0"}}).ok());
    // Three commits without an answer. The second may arrive late.
    proxy_->OnTxn([](int attempt) {
      return attempt == 1 ? EtcdProxy::kHoldRequest : EtcdProxy::kLoseRequest;
    });
    for (const char* value : {"1", "2", "3"})
      EXPECT_TRUE(absl::IsUnavailable(impatient_->Commit(term, {{"a", value}})));
    EXPECT_EQ(proxy_->attempts(), 3);
    proxy_->OnTxn(nullptr);
    if (arrives_before) {
      EXPECT_EQ(proxy_->DeliverHeld(), 1);
      EXPECT_EQ(All(direct_.get()), (Entries{{"a", "2"}, {"b", "0"}}));
    }
    EXPECT_TRUE(impatient_->Commit(term, {{"b", "4"}}).ok());
    EXPECT_EQ(proxy_->DeliverHeld(), 0);
    EXPECT_EQ(All(direct_.get()), (Entries{{"a", arrives_before ? "2" : "0"}, {"b", "4"}}));
  }
}

TEST_F(EtcdMetaStoreTest, LostAnswerIsFoundUnderANewerTerm) {
  const uint64_t term = *store_->AcquireTerm();
  ASSERT_TRUE(store_->Commit(term, {{"a", "1"}}).ok());
  // etcd applies the commit; before the answer could be asked for again, there is a new term, and
  // with it a commit.
  proxy_->OnTxn([&](int attempt) {
    if (attempt == 0) return EtcdProxy::kLoseAnswer;
    if (attempt == 1) {
      EXPECT_TRUE(direct_->Commit(*direct_->AcquireTerm(), {{"b", "theirs"}}).ok());
    }
    return EtcdProxy::kPass;
  });
  EXPECT_TRUE(store_->Commit(term, {{"a", "2"}}).ok());
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "2"}, {"b", "theirs"}}));
  EXPECT_TRUE(absl::IsAborted(store_->Commit(term, {{"a", "3"}})));
}

TEST_F(EtcdMetaStoreTest, AbortedCommitIsNeverApplied) {
  const uint64_t term = *store_->AcquireTerm();
  ASSERT_TRUE(store_->Commit(term, {{"a", "1"}}).ok());
  proxy_->OnTxn([&](int attempt) {
    if (attempt == 0) return EtcdProxy::kHoldRequest;
    EXPECT_TRUE(direct_->AcquireTerm().ok());
    return EtcdProxy::kPass;
  });
  EXPECT_TRUE(absl::IsAborted(store_->Commit(term, {{"a", "2"}})));
  EXPECT_EQ(proxy_->DeliverHeld(), 0);
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "1"}}));
}

TEST_F(EtcdMetaStoreTest, OutcomeIsOpenWhenTheTermIsLongOver) {
  const uint64_t term = *store_->AcquireTerm();
  proxy_->OnTxn([&](int attempt) {
    if (attempt == 0) return EtcdProxy::kLoseAnswer;
    if (attempt == 1) {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(direct_->AcquireTerm().ok());
    }
    return EtcdProxy::kPass;
  });
  EXPECT_TRUE(absl::IsUnavailable(store_->Commit(term, {{"a", "1"}})));
  EXPECT_TRUE(absl::IsAborted(store_->Commit(term, {{"a", "1"}})));
}

TEST_F(EtcdMetaStoreTest, TermWhoseAnswerIsLostStaysUnused) {
  const uint64_t before = *direct_->AcquireTerm();
  proxy_->OnTxn(
      [](int attempt) { return attempt < 1 ? EtcdProxy::kLoseAnswer : EtcdProxy::kPass; });
  const auto term = store_->AcquireTerm();
  ASSERT_TRUE(term.ok()) << term.status();
  EXPECT_EQ(*term, before + 2);
  EXPECT_TRUE(store_->Commit(*term, {{"a", "1"}}).ok());
  EXPECT_TRUE(absl::IsAborted(direct_->Commit(before, {{"a", "2"}})));
}

TEST_F(EtcdMetaStoreTest, CommitNumbersOfOldTermsAreRemoved) {
  for (int i = 0; i < 40; ++i) {
    const uint64_t term = *direct_->AcquireTerm();
    ASSERT_TRUE(direct_->Commit(term, {{"a", absl::StrCat(i)}}).ok());
  }
  EXPECT_EQ(RawKeys("/@commits/").size(), 16u);
  EXPECT_EQ(RawKeys("/").size(), 16u + 2u);
}

TEST_F(EtcdMetaStoreTest, PrefixesDoNotSeeEachOther) {
  EtcdMetaStore inner(Options(SharedEtcd()->endpoints(), prefix_ + "/data"));
  EtcdMetaStore longer(Options(SharedEtcd()->endpoints(), prefix_ + "0x"));
  int n = 0;
  std::vector<std::pair<EtcdMetaStore*, uint64_t>> stores;
  for (EtcdMetaStore* store : {direct_.get(), &inner, &longer}) {
    stores.emplace_back(store, *store->AcquireTerm());
    EXPECT_EQ(stores.back().second, 1u);
    ASSERT_TRUE(store->Commit(1, {{"term", absl::StrCat(n++)}, {"@term", "9"}}).ok());
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(All(stores[i].first), (Entries{{"term", absl::StrCat(i)}, {"@term", "9"}}));
    EXPECT_TRUE(stores[i].first->Commit(1, {}).ok());
  }
}

TEST_F(EtcdMetaStoreTest, ScanBeginsAgainAfterACompaction) {
  EtcdMetaStore::Options options = Options({proxy_->endpoint()}, prefix_);
  options.scan_page = 2;
  EtcdMetaStore store(options);
  const uint64_t term = *store.AcquireTerm();
  Entries expected;
  for (const char* key : {"a", "b", "c", "d", "e"}) {
    expected[key] = "1";
    ASSERT_TRUE(store.Commit(term, {{key, "1"}}).ok());
  }
  const grpc::Status compacted(grpc::StatusCode::OUT_OF_RANGE,
                               "etcdserver: mvcc: required revision has been compacted");
  std::atomic<int> reads{0};
  proxy_->OnRange([&](const etcdserverpb::RangeRequest& range) {
    // The second page.
    return ++reads == 2 && range.revision() > 0 ? compacted : grpc::Status::OK;
  });
  EXPECT_EQ(All(&store), expected);
  EXPECT_EQ(reads, 2 + 3);
  proxy_->OnRange([&](const etcdserverpb::RangeRequest& range) {
    return range.revision() > 0 ? compacted : grpc::Status::OK;
  });
  EXPECT_TRUE(absl::IsOutOfRange(store.Scan("").status()));
}

// An etcd whose reads are answered with these keys, page after page, and which has always more.
class EndlessEtcd : public etcdserverpb::KV::Service {
 public:
  explicit EndlessEtcd(std::vector<std::vector<std::string>> pages) : pages_(std::move(pages)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~EndlessEtcd() override { server_->Shutdown(); }
  std::string endpoint() const { return absl::StrCat("127.0.0.1:", port_); }
  size_t reads() const { return reads_; }

  grpc::Status Range(grpc::ServerContext*, const etcdserverpb::RangeRequest*,
                     etcdserverpb::RangeResponse* response) override {
    for (const std::string& key : pages_[reads_++ % pages_.size()])
      response->add_kvs()->set_key("p/@data/" + key);
    response->mutable_header()->set_revision(1);
    response->set_more(true);
    return grpc::Status::OK;
  }

 private:
  const std::vector<std::vector<std::string>> pages_;
  std::atomic<size_t> reads_{0};
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

TEST(EtcdScanTest, KeysThatDoNotAscendAreAnErrorThatNamesThem) {
  struct Case {
    std::vector<std::vector<std::string>> pages;
    std::string named;
    size_t reads;
  };
  const std::vector<Case> cases = {{{{"a", "b"}}, "a", 2},
                                   {{{"a"}, {"b"}}, "a", 3},
                                   {{{"b", "a"}}, "a", 1},
                                   {{{"b", "b"}}, "b", 1},
                                   {{{"a", "c"}, {"b"}}, "b", 2}};
  for (const Case& one : cases) {
    EndlessEtcd etcd(one.pages);
    EtcdMetaStore store(Options({etcd.endpoint()}, "p"));
    const auto scanned = store.Scan("");
    EXPECT_TRUE(absl::IsInternal(scanned.status())) << scanned.status();
    EXPECT_THAT(std::string(scanned.status().message()), HasSubstr("p/@data/" + one.named));
    EXPECT_EQ(etcd.reads(), one.reads);
  }
}

TEST_F(EtcdMetaStoreTest, ATermWithoutASuccessorIsDataLoss) {
  RawPut("/@term", "18446744073709551615");
  EXPECT_TRUE(absl::IsDataLoss(direct_->AcquireTerm().status()));
  RawPut("/@term", "18446744073709551614");
  EXPECT_EQ(*direct_->AcquireTerm(), std::numeric_limits<uint64_t>::max());
}

TEST_F(EtcdMetaStoreTest, ForeignChangesAreDataLoss) {
  const uint64_t term = *direct_->AcquireTerm();
  ASSERT_TRUE(direct_->Commit(term, {{"a", "1"}}).ok());
  const std::string number = "/@commits/0000000000000000000" + absl::StrCat(term);
  for (const char* value : {"", "x", "0", "-1", "99"}) {
    RawPut(number, value);
    const absl::Status status = direct_->Commit(term, {{"a", "2"}});
    EXPECT_TRUE(absl::IsDataLoss(status)) << value << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(prefix_ + number));
  }
  RawPut("/@term", "x");
  EXPECT_TRUE(absl::IsDataLoss(direct_->AcquireTerm().status()));
  EXPECT_TRUE(absl::IsDataLoss(direct_->Commit(term, {{"a", "2"}})));
  RawDelete("/@term");
  EXPECT_TRUE(absl::IsDataLoss(direct_->Commit(term, {{"a", "2"}})));
  EXPECT_EQ(All(direct_.get()), (Entries{{"a", "1"}}));
  // Another start works.
  const uint64_t next = *direct_->AcquireTerm();
  RawDelete(number);
  EXPECT_TRUE(direct_->Commit(next, {{"a", "2"}}).ok());
}

TEST_F(EtcdMetaStoreTest, DeadEndpointsAreSkipped) {
  EtcdMetaStore store(Options({"127.0.0.1:1", SharedEtcd()->endpoint(0)}, prefix_));
  const auto term = store.AcquireTerm();
  ASSERT_TRUE(term.ok()) << term.status();
  EXPECT_TRUE(store.Commit(*term, {{"a", "1"}}).ok());
  EXPECT_EQ(All(&store), (Entries{{"a", "1"}}));
}

class OwnEtcdTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdCluster::IsInstalled()) GTEST_SKIP() << "etcd is not installed";
  }
};

TEST_F(OwnEtcdTest, WorksAgainAfterARestart) {
  EtcdCluster etcd(1);
  ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(0));
  EtcdMetaStore store(Options(etcd.endpoints(), "a"));
  EtcdMetaStore::Options options = Options(etcd.endpoints(), "a");
  options.client.patience = absl::Milliseconds(200);
  EtcdMetaStore impatient(options);
  uint64_t term = *impatient.AcquireTerm();
  for (int start = 1; start <= 2; ++start) {
    const std::string before = absl::StrCat(start), after = absl::StrCat(start, "+");
    ASSERT_TRUE(impatient.Commit(term, {{"a", before}, {"b", std::nullopt}}).ok());
    etcd.Kill(0);
    EXPECT_TRUE(absl::IsUnavailable(impatient.Commit(term, {{"a", "no"}})));
    EXPECT_TRUE(absl::IsUnavailable(impatient.AcquireTerm().status()));
    EXPECT_TRUE(absl::IsUnavailable(impatient.Scan("").status()));
    etcd.Start(0);
    ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(0));
    EXPECT_EQ(All(&store), (Entries{{"a", before}}));
    // The term still holds. The connection may need a moment.
    absl::Status committed;
    do {
      committed = impatient.Commit(term, {{"b", after}});
    } while (absl::IsUnavailable(committed));
    EXPECT_TRUE(committed.ok()) << committed;
    EXPECT_EQ(All(&store), (Entries{{"a", before}, {"b", after}}));
    const auto next = impatient.AcquireTerm();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_GT(*next, term);
    term = *next;
  }
}

TEST_F(OwnEtcdTest, PausedEtcdIsUnavailableAndItsLateAttemptsChangeNothing) {
  EtcdCluster etcd(1);
  ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(0));
  EtcdMetaStore::Options options = Options(etcd.endpoints(), "a");
  options.client.call_timeout = absl::Milliseconds(200);
  options.client.patience = absl::Milliseconds(500);
  EtcdMetaStore store(options);
  absl::StatusOr<uint64_t> term = store.AcquireTerm();
  while (!term.ok()) term = store.AcquireTerm();
  absl::Status committed;
  do {
    committed = store.Commit(*term, {{"a", "before"}});
  } while (absl::IsUnavailable(committed));
  ASSERT_TRUE(committed.ok()) << committed;

  etcd.Pause(0);
  EXPECT_TRUE(absl::IsUnavailable(store.Commit(*term, {{"a", "during"}, {"b", "during"}})));
  EXPECT_TRUE(absl::IsUnavailable(store.Scan("").status()));
  // etcd has received the attempts, and handles them now.
  etcd.Continue(0);
  do {
    committed = store.Commit(*term, {{"a", "after"}});
  } while (absl::IsUnavailable(committed));
  ASSERT_TRUE(committed.ok()) << committed;
  EtcdMetaStore reader(Options(etcd.endpoints(), "a"));
  const Entries entries = All(&reader);
  EXPECT_EQ(entries.at("a"), "after");
  EXPECT_LE(entries.size(), 2u);
}

TEST_F(OwnEtcdTest, FullQuotaIsResourceExhausted) {
  EtcdCluster etcd(1, {absl::StrCat("--quota-backend-bytes=", 3 << 20)});
  ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(0));
  EtcdMetaStore store(Options(etcd.endpoints(), "a"));
  const uint64_t term = *store.AcquireTerm();
  std::string committed;
  absl::Status status;
  for (int i = 0; i < 100; ++i) {
    const std::string value = absl::StrCat(i, std::string(100'000, 'v'));
    status = store.Commit(term, {{"a", value}, {"b", value}});
    if (!status.ok()) break;
    committed = value;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("etcdctl alarm disarm"));
  // The term is confirmed all the same; another scheduler does not get one.
  EXPECT_TRUE(store.Commit(term, {}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(EtcdMetaStore(Options(etcd.endpoints(), "a")).AcquireTerm().status()));
  EXPECT_TRUE(absl::IsResourceExhausted(store.Commit(term, {{"a", "no"}})));
  EXPECT_EQ(All(&store), (Entries{{"a", committed}, {"b", committed}}));
}

int64_t Revision(EtcdClient* client) {
  etcdserverpb::RangeRequest range;
  range.set_key("any");
  return client->Range(range)->header().revision();
}

TEST_F(EtcdMetaStoreTest, ConfirmingTheTermWritesNothing) {
  EtcdMetaStore store(Options(SharedEtcd()->endpoints(), prefix_));
  const uint64_t term = *store.AcquireTerm();
  EtcdClient client(Options(SharedEtcd()->endpoints(), prefix_).client);
  const int64_t before = Revision(&client);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(store.Commit(term, {}).ok());
  EXPECT_EQ(Revision(&client), before);
}

TEST_F(OwnEtcdTest, CompactsItsRevisionsOfTenMinutesAgo) {
  EtcdCluster etcd(1);
  ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(0));
  FakeClock clock;
  EtcdClient client(Options(etcd.endpoints(), "a").client);
  const auto readable = [&](int64_t revision) {
    etcdserverpb::RangeRequest range;
    range.set_key("any");
    range.set_revision(revision);
    const absl::Status read = client.Range(range).status();
    EXPECT_TRUE(read.ok() || absl::IsOutOfRange(read)) << read;
    return read.ok();
  };
  for (const bool compact : {false, true}) {
    EtcdMetaStore::Options options = Options(etcd.endpoints(), "a");
    options.client.clock = &clock;
    options.compact = compact;
    EtcdMetaStore store(options);
    const uint64_t term = *store.AcquireTerm();
    ASSERT_TRUE(store.Commit(term, {{"a", "1"}}).ok());
    const int64_t first = Revision(&client);
    ASSERT_TRUE(store.Commit(term, {{"a", "2"}}).ok());
    clock.Advance(absl::Minutes(9));
    ASSERT_TRUE(store.Commit(term, {}).ok());
    const int64_t second = Revision(&client);
    EXPECT_TRUE(readable(first - 1));
    clock.Advance(absl::Minutes(2));
    ASSERT_TRUE(store.Commit(term, {{"a", "3"}}).ok());
    EXPECT_EQ(readable(first - 1), !compact);
    EXPECT_TRUE(readable(second));
    EXPECT_EQ(All(&store), (Entries{{"a", "3"}}));
  }
}

TEST_F(OwnEtcdTest, CommitsSurviveTheLossOfEachMemberInTurn) {
  EtcdCluster etcd(3);
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(i));
  EtcdMetaStore::Options options = Options(etcd.endpoints(), "a");
  options.client.call_timeout = absl::Seconds(3);
  EtcdMetaStore store(options);
  const auto term = store.AcquireTerm();
  ASSERT_TRUE(term.ok()) << term.status();
  Entries expected;
  int n = 0;
  const auto commit = [&](int commits) {
    for (int i = 0; i < commits; ++i) {
      const std::string value = absl::StrCat(++n), key = absl::StrCat(n % 7);
      const absl::Status status = store.Commit(*term, {{key, value}, {"last", value}});
      ASSERT_TRUE(status.ok()) << status;
      expected[key] = expected["last"] = value;
    }
  };
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(commit(20));
    etcd.Kill(i);
    ASSERT_NO_FATAL_FAILURE(commit(20));
    EXPECT_EQ(All(&store), expected);
    etcd.Start(i);
    ASSERT_NO_FATAL_FAILURE(etcd.WaitReady(i));
  }
  for (int i = 0; i < 3; ++i) {
    EtcdMetaStore reader(Options({etcd.endpoint(i)}, "a"));
    EXPECT_EQ(All(&reader), expected) << i;
  }
}

}  // namespace
}  // namespace sluice
