#include "common/meta_store/rocksdb_meta_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "common/base/mutex.h"
#include "tests/common/meta_store/committed_entries.h"
#include "tests/common/meta_store/meta_store_conformance.h"

// The sizes of this program's files at their last sync, by inode: what a power failure leaves.
struct SyncedSizes {
  sluice::Mutex mutex;
  std::map<ino_t, off_t> sizes ABSL_GUARDED_BY(mutex);
};
static std::atomic<bool> g_syncs_fail{false};
static SyncedSizes& Synced() {
  static auto* const synced = new SyncedSizes;
  return *synced;
}

// RocksDB's library calls these instead of the C library's.
static int SyncAndRecord(long call, int fd) {
  if (g_syncs_fail) {
    errno = EIO;
    return -1;
  }
  struct stat info;
  const bool known = ::fstat(fd, &info) == 0;
  const int rc = static_cast<int>(::syscall(call, fd));
  if (rc == 0 && known) {
    sluice::MutexLock lock(&Synced().mutex);
    Synced().sizes[info.st_ino] = info.st_size;
  }
  return rc;
}
// Visible, because the calls come from a shared library.
extern "C" __attribute__((visibility("default"))) int fsync(int fd) {
  return SyncAndRecord(SYS_fsync, fd);
}
extern "C" __attribute__((visibility("default"))) int fdatasync(int fd) {
  return SyncAndRecord(SYS_fdatasync, fd);
}

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Entries = std::map<std::string, std::string>;

std::string NewFolder() {
  std::string pattern = ::testing::TempDir() + "/rocksdb_meta_store_test.XXXXXX";
  return ::mkdtemp(pattern.data());
}

std::unique_ptr<RocksdbMetaStore> Open(const std::string& dir) {
  auto store = RocksdbMetaStore::Open(Env::Real(), dir);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

Entries All(MetaStore* store) {
  const auto found = store->Scan("");
  EXPECT_TRUE(found.ok()) << found.status();
  Entries entries;
  for (const MetaStore::Entry& entry : found.value_or(std::vector<MetaStore::Entry>()))
    entries[entry.key] = entry.value;
  return entries;
}

class RocksdbStoreUnderTest : public StoreUnderTest {
 public:
  ~RocksdbStoreUnderTest() override { fs::remove_all(dir_); }
  absl::StatusOr<std::unique_ptr<MetaStore>> Open() override {
    return RocksdbMetaStore::Open(Env::Real(), dir_ + "/a/b");
  }
  bool has_concurrent_clients() const override { return false; }

 private:
  const std::string dir_ = NewFolder();
};

INSTANTIATE_TEST_SUITE_P(Rocksdb, MetaStoreConformance, ::testing::Values(MakeStoreUnderTest([] {
                           return std::make_unique<RocksdbStoreUnderTest>();
                         })));

class RocksdbMetaStoreTest : public ::testing::Test {
 protected:
  ~RocksdbMetaStoreTest() override { fs::remove_all(root_); }

  // The only file in `dir` whose name begins and ends so.
  static std::string FileIn(const std::string& dir, const std::string& begin,
                            const std::string& end) {
    std::string found;
    for (const auto& file : fs::directory_iterator(dir)) {
      const std::string name = file.path().filename();
      if (!absl::StartsWith(name, begin) || !absl::EndsWith(name, end)) continue;
      EXPECT_EQ(found, "") << name;
      found = file.path();
    }
    EXPECT_NE(found, "") << begin << "*" << end;
    return found;
  }

  const std::string root_ = NewFolder(), dir_ = root_ + "/state";
};

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// meta_store_committer as a child process.
class Committer {
 public:
  explicit Committer(const std::string& dir) {
    int out[2];
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::execl(SLUICE_COMMITTER, SLUICE_COMMITTER, dir.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(out[1]);
    out_ = ::fdopen(out[0], "r");
  }
  ~Committer() {
    Kill();
    std::fclose(out_);
  }
  pid_t pid() const { return pid_; }
  // The number of the next commit that has returned; 0 when the process has ended.
  uint32_t Next() {
    uint32_t i = 0;
    return std::fscanf(out_, "%u\n", &i) == 1 ? i : 0;
  }
  void Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
};

TEST_F(RocksdbMetaStoreTest, CommitsSurviveKill) {
  std::mt19937 random(17);
  uint32_t last = 0;
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Committer committer(dir_);
    const uint32_t kill_after = 1 + random() % 150;
    for (uint32_t n = 0; n < kill_after; ++n) {
      const uint32_t i = committer.Next();
      ASSERT_EQ(i, last + 1);
      last = i;
    }
    committer.Kill();
    while (const uint32_t i = committer.Next()) last = i;

    const auto store = Open(dir_);
    ASSERT_NE(store, nullptr);
    const Entries entries = All(store.get());
    // The commit that was interrupted may be there, too, and then as a whole.
    if (entries != EntriesAfter(last)) {
      ++last;
      ASSERT_EQ(entries, EntriesAfter(last));
    }
    EXPECT_EQ(*store->AcquireTerm(), 2u * round + 2);
  }
}

TEST_F(RocksdbMetaStoreTest, FolderInUseIsRefusedNamingItsHolder) {
  Committer committer(dir_);
  ASSERT_GT(committer.Next(), 0u);
  const absl::Status refused = RocksdbMetaStore::Open(Env::Real(), dir_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(dir_));
  // A sandbox may hide the locks of other processes.
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AnyOf(HasSubstr(absl::StrCat("pid ", committer.pid())),
                               HasSubstr("another process")));
  // The other process does not notice.
  ASSERT_GT(committer.Next(), 0u);
  committer.Kill();

  const auto store = Open(dir_);
  ASSERT_NE(store, nullptr);
  const uint64_t term = *store->AcquireTerm();
  EXPECT_TRUE(absl::IsAlreadyExists(RocksdbMetaStore::Open(Env::Real(), dir_).status()));
  EXPECT_TRUE(store->Commit(term, {{"a", "1"}}).ok());
}

TEST_F(RocksdbMetaStoreTest, OnlyItsOwnerMayEnterTheFolder) {
  const std::string dir = dir_ + "/of_one_user";
  for (const bool is_new : {true, false}) {
    ASSERT_NE(Open(dir), nullptr);
    struct stat info;
    ASSERT_EQ(::stat(dir.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << (is_new ? "a new store" : "one of an earlier version");
    ASSERT_EQ(::chmod(dir.c_str(), 0755), 0);
  }
}

// Copies the files of a store as a power failure would leave them: each up to its last sync.
void CopySynced(const std::string& from, const std::string& to) {
  fs::create_directory(to);
  MutexLock lock(&Synced().mutex);
  for (const auto& file : fs::directory_iterator(from)) {
    struct stat info;
    ASSERT_EQ(::stat(file.path().c_str(), &info), 0);
    const auto synced = Synced().sizes.find(info.st_ino);
    const size_t size = synced == Synced().sizes.end() ? 0 : synced->second;
    WriteFile(to + "/" + file.path().filename().string(), ReadFile(file.path()).substr(0, size));
  }
}

TEST_F(RocksdbMetaStoreTest, CommitsSurviveAPowerFailure) {
  auto store = Open(dir_);
  ASSERT_NE(store, nullptr);
  uint64_t term = *store->AcquireTerm();
  // Between two starts RocksDB gets less than its write buffer takes, so that no job in the
  // background changes files while they are copied.
  for (uint32_t i = 1; i <= 180; ++i) {
    ASSERT_TRUE(store->Commit(term, CommitOf(i)).ok());
    if (i % 20 != 0) continue;
    SCOPED_TRACE(i);
    const std::string copy = root_ + "/copy";
    CopySynced(dir_, copy);
    {
      const auto after = Open(copy);
      ASSERT_NE(after, nullptr);
      ASSERT_EQ(All(after.get()), EntriesAfter(i));
      ASSERT_EQ(*after->AcquireTerm(), term + 1);
    }
    fs::remove_all(copy);
    if (i % 60 == 0) {
      store.reset();
      store = Open(dir_);
      ASSERT_NE(store, nullptr);
      term = *store->AcquireTerm();
    }
  }
}

TEST_F(RocksdbMetaStoreTest, RecordCutOffByACrashIsDropped) {
  const std::string copy = root_ + "/copy";
  {
    const auto store = Open(dir_);
    ASSERT_NE(store, nullptr);
    const uint64_t term = *store->AcquireTerm();
    for (int i = 1; i <= 3; ++i)
      ASSERT_TRUE(store->Commit(term, {{"a", absl::StrCat(i)}, {"b", absl::StrCat(i)}}).ok());
    fs::copy(dir_, copy);
  }
  const std::string log = FileIn(copy, "", ".log"), bytes = ReadFile(log);
  ASSERT_GT(bytes.size(), 30u);
  const std::string damaged = root_ + "/damaged";
  int last = 3;
  for (size_t size = bytes.size(); size > bytes.size() - 30; --size) {
    SCOPED_TRACE(size);
    fs::copy(copy, damaged);
    WriteFile(damaged + "/" + fs::path(log).filename().string(), bytes.substr(0, size));
    const auto store = Open(damaged);
    ASSERT_NE(store, nullptr);
    const Entries entries = All(store.get());
    if (!entries.empty() && entries.at("a") != absl::StrCat(last)) --last;
    EXPECT_EQ(entries, (Entries{{"a", absl::StrCat(last)}, {"b", absl::StrCat(last)}}));
    fs::remove_all(damaged);
  }
  EXPECT_LT(last, 3);
}

TEST_F(RocksdbMetaStoreTest, DamagedFolderIsDataLossAndIsLeftAlone) {
  // A folder with a table and a log that holds the newest commits.
  const std::string intact = root_ + "/intact", damaged = root_ + "/damaged";
  for (const uint32_t first : {1, 4}) {
    const auto store = Open(dir_);
    ASSERT_NE(store, nullptr);
    const uint64_t term = *store->AcquireTerm();
    for (uint32_t i = first; i < first + 3; ++i) ASSERT_TRUE(store->Commit(term, CommitOf(i)).ok());
    // As a crash leaves it.
    if (first == 4) fs::copy(dir_, intact);
  }
  const auto flip = [](const std::string& path) {
    std::string bytes = ReadFile(path);
    bytes[bytes.size() / 2] ^= 0x10;
    WriteFile(path, bytes);
  };
  const auto remove = [](const std::string& path) { fs::remove(path); };
  const auto empty = [](const std::string& path) { fs::resize_file(path, 0); };
  struct Case {
    const char* begin;
    const char* end;
    std::function<void(const std::string&)> damage;
  };
  const std::vector<Case> cases = {
      {"CURRENT", "", flip},  {"CURRENT", "", remove},  {"CURRENT", "", empty},
      {"MANIFEST", "", flip}, {"MANIFEST", "", remove}, {"MANIFEST", "", empty},
      {"", ".sst", flip},     {"", ".sst", remove},     {"", ".sst", empty},
      {"", ".log", flip},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    fs::copy(intact, damaged);
    const std::string path = FileIn(damaged, cases[i].begin, cases[i].end);
    cases[i].damage(path);
    const absl::Status status = RocksdbMetaStore::Open(Env::Real(), damaged).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(damaged));
    // Once the file is restored, everything is there.
    fs::copy(fs::path(intact) / fs::path(path).filename(), path,
             fs::copy_options::overwrite_existing);
    const auto store = Open(damaged);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(All(store.get()), EntriesAfter(6));
    fs::remove_all(damaged);
  }
}

TEST_F(RocksdbMetaStoreTest, TablesWithoutCurrentAreDataLoss) {
  Open(dir_)->AcquireTerm().IgnoreError();
  Open(dir_);
  const std::string table = FileIn(dir_, "", ".sst");
  fs::remove(dir_ + "/CURRENT");
  fs::remove(FileIn(dir_, "", ".log"));
  const absl::Status status = RocksdbMetaStore::Open(Env::Real(), dir_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir_));
  EXPECT_TRUE(fs::exists(table));
}

TEST_F(RocksdbMetaStoreTest, StartInterruptedBeforeTheFirstCommitIsNoDamage) {
  Open(dir_);
  for (const auto& file : fs::directory_iterator(dir_)) {
    const std::string name = file.path().filename();
    if (!absl::StartsWith(name, "MANIFEST")) fs::remove(file.path());
  }
  EXPECT_NE(Open(dir_), nullptr);
}

TEST_F(RocksdbMetaStoreTest, FolderThatCannotBeMadeIsRefused) {
  WriteFile(root_ + "/file", "text");
  const absl::Status status = RocksdbMetaStore::Open(Env::Real(), root_ + "/file/state").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(root_ + "/file"));
}

TEST_F(RocksdbMetaStoreTest, StaysSmall) {
  for (int start = 0; start < 12; ++start) {
    const auto store = Open(dir_);
    ASSERT_NE(store, nullptr);
    const uint64_t term = *store->AcquireTerm();
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(store->Commit(term, {{absl::StrCat(i), std::string(200'000, 'v')}}).ok());
    int threads = 0;
    for (const auto& task : fs::directory_iterator("/proc/self/task")) {
      if (absl::StartsWith(ReadFile(task.path() / "comm"), "rocksdb:")) ++threads;
    }
    EXPECT_LE(threads, 2);
  }
  size_t files = 0, bytes = 0;
  for (const auto& file : fs::directory_iterator(dir_)) {
    ++files;
    bytes += file.file_size();
  }
  EXPECT_LE(files, 16u);
  EXPECT_LE(bytes, 12u << 20);
}

// Commits of two equal values under changing conditions: each commit is there as a whole or not at
// all, and those that returned OK are there.
class ModelUnderErrors {
 public:
  explicit ModelUnderErrors(const std::string& dir) : dir_(dir), store_(Open(dir)) {
    EXPECT_TRUE(AcquireTerm().ok());
  }
  absl::Status Commit(size_t value_bytes) {
    const std::string value = absl::StrCat(++newest_, std::string(value_bytes, 'v'));
    const absl::Status status = store_->Commit(term_, {{"a", value}, {"b", value}});
    if (status.ok()) {
      possible_ = {value};
    } else {
      possible_.push_back(value);
    }
    return status;
  }
  // Reads with the same object and, after that, with a new one.
  void Check() {
    CheckOnce();
    store_.reset();
    store_ = Open(dir_);
    ASSERT_NE(store_, nullptr);
    CheckOnce();
    EXPECT_TRUE(AcquireTerm().ok());
  }
  absl::Status AcquireTerm() {
    const auto term = store_->AcquireTerm();
    if (!term.ok()) return term.status();
    EXPECT_GT(*term, term_);
    term_ = *term;
    return absl::OkStatus();
  }

 private:
  void CheckOnce() {
    const Entries entries = All(store_.get());
    if (entries.empty() && possible_.front().empty()) return;
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries.at("a"), entries.at("b"));
    EXPECT_THAT(possible_, ::testing::Contains(entries.at("a")));
    // A value that was seen once stays.
    possible_ = {entries.at("a")};
  }

  const std::string dir_;
  std::unique_ptr<RocksdbMetaStore> store_;
  uint64_t term_ = 0;
  uint64_t newest_ = 0;
  std::vector<std::string> possible_ = {""};  // "": no entries
};

TEST_F(RocksdbMetaStoreTest, WorksAgainAfterFailedWrites) {
  // Files cannot grow beyond the limit: the write fails with EFBIG, in the middle of a record.
  ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ModelUnderErrors model(dir_);
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    for (int i = 0; i < round; ++i) ASSERT_TRUE(model.Commit(1000).ok());
    struct rlimit limit = before;
    limit.rlim_cur = 10'000 + 3'000 * round;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const absl::Status first = model.Commit(30'000), second = model.Commit(30'000);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(absl::IsUnavailable(first)) << first;
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    // The next call is a commit, or a scan.
    if (round % 2 == 0) {
      EXPECT_TRUE(model.Commit(1000).ok());
    }
    model.Check();
    EXPECT_TRUE(model.Commit(1000).ok());
    model.Check();
  }
}

TEST_F(RocksdbMetaStoreTest, OpenOutcomeIsSettledByTheNextCommit) {
  // The bytes of a commit reach the file, but not its sync: the commit fails, and may be there.
  for (const bool empty_commit : {true, false}) {
    SCOPED_TRACE(empty_commit);
    auto store = Open(dir_);
    ASSERT_NE(store, nullptr);
    uint64_t term = *store->AcquireTerm();
    ASSERT_TRUE(store->Commit(term, {{"a", "1"}, {"b", "1"}}).ok());
    g_syncs_fail = true;
    const absl::Status first = store->Commit(term, {{"a", "2"}}),
                       second = store->Commit(term, {{"a", "3"}}),
                       acquired = store->AcquireTerm().status();
    g_syncs_fail = false;
    EXPECT_TRUE(absl::IsUnavailable(first)) << first;
    EXPECT_TRUE(absl::IsUnavailable(second)) << second;
    EXPECT_TRUE(absl::IsUnavailable(acquired)) << acquired;
    if (empty_commit) {
      EXPECT_TRUE(store->Commit(term, {}).ok());
    } else {
      EXPECT_TRUE(store->Commit(term, {{"b", "4"}}).ok());
    }
    const Entries settled = All(store.get());
    EXPECT_THAT(settled.at("a"), ::testing::AnyOf("1", "2"));
    EXPECT_EQ(settled.at("b"), empty_commit ? "1" : "4");
    store.reset();
    store = Open(dir_);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(All(store.get()), settled);
    EXPECT_GT(*store->AcquireTerm(), term);
  }
}

// A file system of its own, of `bytes`, or the reason why there is none.
class SmallDisk {
 public:
  SmallDisk(const std::string& dir, size_t bytes) : dir_(dir) {
    fs::create_directories(dir);
    if (::mount("tmpfs", dir.c_str(), "tmpfs", 0, absl::StrCat("size=", bytes).c_str()) != 0)
      problem_ = absl::StrCat("cannot mount a tmpfs: ", std::strerror(errno));
  }
  ~SmallDisk() {
    if (problem_.empty()) ::umount2(dir_.c_str(), MNT_DETACH);
  }
  const std::string& problem() const { return problem_; }
  void Fill() {
    const int fd = ::open(Ballast().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    const std::string page(4096, 'x');
    while (::write(fd, page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
    ::close(fd);
  }
  void Free() { fs::remove(Ballast()); }

 private:
  std::string Ballast() const { return dir_ + "/ballast"; }
  const std::string dir_;
  std::string problem_;
};

TEST_F(RocksdbMetaStoreTest, WorksAgainAfterTheDiskWasFull) {
  SmallDisk disk(root_ + "/disk", 8 << 20);
  if (!disk.problem().empty()) GTEST_SKIP() << disk.problem();
  ModelUnderErrors model(root_ + "/disk/state");
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    for (int i = 0; i < 3 * round; ++i) ASSERT_TRUE(model.Commit(20'000).ok());
    // Larger than RocksDB's write buffer: the background job that empties it meets the full disk.
    if (round % 3 == 1) {
      ASSERT_TRUE(model.Commit(500'000).ok());
    }
    // A background job may free some space once more, and small writes fit into the last page.
    int failed_commits = 0, failed_terms = 0;
    for (int i = 0; i < 100 && (failed_commits < 3 || failed_terms < 1); ++i) {
      disk.Fill();
      const absl::Status committed = model.Commit(20'000), acquired = model.AcquireTerm();
      for (const auto& [status, failed] :
           {std::pair(committed, &failed_commits), std::pair(acquired, &failed_terms)}) {
        if (status.ok()) continue;
        ++*failed;
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(root_ + "/disk/state"));
      }
    }
    EXPECT_GE(failed_commits, 3);
    EXPECT_GE(failed_terms, 1);
    disk.Free();
    if (round % 2 == 0) {
      EXPECT_TRUE(model.Commit(20'000).ok());
    }
    model.Check();
    EXPECT_TRUE(model.Commit(20'000).ok());
    model.Check();
  }
}

TEST_F(RocksdbMetaStoreTest, FullDiskRefusesANewStore) {
  SmallDisk disk(root_ + "/disk", 1 << 20);
  if (!disk.problem().empty()) GTEST_SKIP() << disk.problem();
  disk.Fill();
  const absl::Status status = RocksdbMetaStore::Open(Env::Real(), root_ + "/disk/state").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  disk.Free();
  const auto store = Open(root_ + "/disk/state");
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->AcquireTerm(), 1u);
}

}  // namespace
}  // namespace sluice
