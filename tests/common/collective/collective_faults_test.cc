// What the ranks see when one of them dies, stops or leaves, with ranks as processes.
#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/collective/make_collective.h"
#include "gtest/gtest.h"
#include "tests/common/collective/rank_threads.h"

namespace sluice {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int CountDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// By the names that Sluice and its libraries could give: other tests have files of browsers and
// clocks there.
int CountShmFiles() {
  int count = 0;
  DIR* const folder = opendir("/dev/shm");
  for (const dirent* file; folder != nullptr && (file = readdir(folder)) != nullptr;) {
    for (const char* const name : {"sluice", "gloo", "nccl"})
      count += strstr(file->d_name, name) != nullptr;
  }
  if (folder != nullptr) closedir(folder);
  return count;
}

// What a rank's process reports.
struct Report {
  int code = -1;
  int rank_at_fault = -1;
  char message[400] = "";
};

// Ranks as processes, whose cards this process hands around.
class RankProcesses {
 public:
  using Work = std::function<absl::Status(uint32_t rank, Collective& collective)>;

  RankProcesses(const std::string& engine, uint32_t ranks, const CollectiveOptions& options,
                const std::vector<std::string>& hosts, const Work& work) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
      const pid_t pid = fork();
      if (pid == 0) {
        for (const int fd : sockets_) close(fd);
        close(ends[0]);
        RunRank(ends[1], engine, rank, ranks, OptionsOfRank(engine, options, rank, hosts), work);
        _exit(0);
      }
      close(ends[1]);
      pids_.push_back(pid);
      sockets_.push_back(ends[0]);
    }
    std::vector<std::string> cards;
    for (uint32_t rank = 0; rank < ranks; ++rank) cards.push_back(Read(sockets_[rank]));
    for (uint32_t rank = 0; rank < ranks; ++rank)
      for (const std::string& card : cards) Write(sockets_[rank], card);
    // Each says when it has joined.
    for (uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(Read(sockets_[rank]), "joined");
  }

  ~RankProcesses() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
    for (const int fd : sockets_) close(fd);
  }

  void Signal(uint32_t rank, int signal) { kill(pids_[rank], signal); }

  Report Result(uint32_t rank) {
    Report report;
    const std::string bytes = Read(sockets_[rank]);
    if (bytes.size() == sizeof report) memcpy(&report, bytes.data(), sizeof report);
    return report;
  }

 private:
  static void Write(int fd, const std::string& bytes) {
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::string Read(int fd) {
    std::string bytes(64 << 10, '\0');
    const ssize_t size = recv(fd, bytes.data(), bytes.size(), 0);
    bytes.resize(size < 0 ? 0 : size);
    return bytes;
  }

  static void RunRank(int fd, const std::string& engine, uint32_t rank, uint32_t ranks,
                      const CollectiveOptions& options, const Work& work) {
    auto made = MakeCollective(engine, options);
    auto card = (*made)->Listen(1, rank, ranks);
    Write(fd, card.ok() ? *card : std::string(card.status().message()));
    std::vector<std::string> cards;
    for (uint32_t r = 0; r < ranks; ++r) cards.push_back(Read(fd));
    const absl::Status joined = (*made)->Join(1, cards, rank);
    Write(fd, joined.ok() ? "joined" : std::string(joined.message()));
    const absl::Status status = work(rank, **made);
    Report report;
    report.code = static_cast<int>(status.code());
    if (const auto at_fault = RankAtFault(status)) report.rank_at_fault = *at_fault;
    snprintf(report.message, sizeof report.message, "%s", std::string(status.message()).c_str());
    Write(fd, std::string(reinterpret_cast<const char*>(&report), sizeof report));
  }

  std::vector<pid_t> pids_;
  std::vector<int> sockets_;
};

struct Case {
  std::string engine;
  uint32_t ranks;
  size_t n;
  uint32_t comm_num;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.engine << " ranks " << c.ranks << " communicators " << c.comm_num;
}

class CollectiveFaultsTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<std::string> Hosts() {
    std::vector<std::string> hosts;
    for (uint32_t r = 0; GetParam().engine == "two_level" && r < GetParam().ranks; ++r)
      hosts.push_back(r < 2 ? "a" : "b");
    return hosts;
  }
  // Whether an error of a rank may name `named` when `lost` is lost: itself or, where ranks reach
  // another host through the leader of their own, a leader.
  static bool MayName(uint32_t named, uint32_t lost) {
    return named == lost || (GetParam().engine == "two_level" && named == (lost < 2 ? 0 : 2));
  }
  static CollectiveOptions Options() {
    CollectiveOptions options;
    options.comm_num = GetParam().comm_num;
    return options;
  }
  // Reduces until there is an error, on all communicators at a time.
  static absl::Status ReduceForever(uint32_t, Collective& collective) {
    std::vector<std::vector<float>> values(GetParam().comm_num,
                                           std::vector<float>(GetParam().n, 1.0f));
    for (uint64_t step = 0;; ++step) {
      Collective::Ticket last = 0;
      for (std::vector<float>& array : values)
        last = collective.WeightedMean(step, absl::MakeSpan(array), 1);
      const absl::Status status = collective.Wait(last);
      if (!status.ok()) return status;
    }
  }
};

TEST_P(CollectiveFaultsTest, AKilledRankIsNamedAndNoOtherWithinTheTimeout) {
  // All ranks name the killed one over shm; otherwise one does at least.
  const bool gloo = GetParam().engine != "shm";
  for (uint32_t killed = 0; killed < GetParam().ranks; ++killed) {
    RankProcesses group(GetParam().engine, GetParam().ranks, Options(), Hosts(), ReduceForever);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // in the middle of something
    group.Signal(killed, SIGKILL);
    uint32_t named = 0;
    for (uint32_t r = 0; r < GetParam().ranks; ++r) {
      if (r == killed) continue;
      const Report report = group.Result(r);
      EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kUnavailable)) << report.message;
      if (report.rank_at_fault >= 0) {
        EXPECT_TRUE(MayName(report.rank_at_fault, killed)) << killed << ": " << report.message;
      }
      if (report.rank_at_fault == static_cast<int>(killed)) ++named;
    }
    EXPECT_GE(named, gloo ? 1 : GetParam().ranks - 1) << "rank " << killed;
  }
}

TEST_P(CollectiveFaultsTest, AStoppedRankIsNamedSoonAfterTheTimeout) {
  // All ranks name it over shm. Otherwise a rank that was a step or a turn ahead may notice first,
  // and then names one that waits itself; but whoever waits for the stopped rank names that.
  const bool shm = GetParam().engine == "shm";
  CollectiveOptions options = Options();
  options.timeout = absl::Seconds(2);
  const uint32_t stopped = GetParam().ranks - 1;
  RankProcesses group(GetParam().engine, GetParam().ranks, options, Hosts(), ReduceForever);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  group.Signal(stopped, SIGSTOP);
  const double start = Now();
  uint32_t named = 0;
  for (uint32_t r = 0; r < stopped; ++r) {
    const Report report = group.Result(r);
    EXPECT_EQ(report.code, static_cast<int>(absl::StatusCode::kDeadlineExceeded)) << report.message;
    EXPECT_GE(report.rank_at_fault, 0) << report.message;
    EXPECT_NE(report.rank_at_fault, static_cast<int>(r)) << report.message;
    if (report.rank_at_fault == static_cast<int>(stopped)) ++named;
  }
  EXPECT_GE(named, shm ? stopped : 1);
  EXPECT_GT(Now() - start, 1.6);
  EXPECT_LT(Now() - start, 60);
  // It goes on, and learns that the others have given up.
  group.Signal(stopped, SIGCONT);
  const Report late = group.Result(stopped);
  EXPECT_TRUE(late.code == static_cast<int>(absl::StatusCode::kDeadlineExceeded) ||
              late.code == static_cast<int>(absl::StatusCode::kUnavailable))
      << late.message;
}

TEST_P(CollectiveFaultsTest, ARankThatNeverJoinsIsNamed) {
  CollectiveOptions options = Options();
  options.timeout = absl::Seconds(1);
  RankThreads group(GetParam().engine, 3, options, Hosts());
  const std::vector<std::string> cards = group.Listen(1);
  const double start = Now();
  const std::vector<absl::Status> results = group.Run(
      [&](uint32_t r, Collective& c) { return r == 2 ? absl::OkStatus() : c.Join(1, cards, r); });
  EXPECT_LT(Now() - start, 60);
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(results[r]) || absl::IsUnavailable(results[r]))
        << results[r];
    EXPECT_EQ(RankAtFault(results[r]), 2u) << results[r];
    EXPECT_FALSE(group.rank(r).Barrier().ok());
  }
}

TEST_P(CollectiveFaultsTest, ARankThatIsLateByLessThanTheTimeoutIsWaitedForEveryTime) {
  CollectiveOptions options = Options();
  options.timeout = absl::Seconds(5);
  RankThreads group(GetParam().engine, 3, options, Hosts());
  group.Join(1);
  // Longer than the timeout all together.
  group.ExpectOk([](uint32_t r, Collective& c) {
    std::vector<float> values(GetParam().n, 1.0f);
    for (uint64_t step = 0; step < 3; ++step) {
      if (r == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1800));
      const absl::Status status = c.Wait(c.WeightedMean(step, absl::MakeSpan(values), 1));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectiveFaultsTest, ARankThatIsLateByMoreThanTheTimeoutIsNamed) {
  CollectiveOptions options = Options();
  options.timeout = absl::Milliseconds(1500);
  options.timeout_options = "the_option_s";
  RankThreads group(GetParam().engine, 3, options, Hosts());
  group.Join(1);
  std::atomic<int> waiting{2};
  const std::vector<absl::Status> results = group.Run([&](uint32_t r, Collective& c) {
    while (r == 2 && waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::vector<float> values(GetParam().n, 1.0f);
    const absl::Status status = c.Wait(c.WeightedMean(7, absl::MakeSpan(values), 1));
    if (r != 2) --waiting;
    return status;
  });
  for (uint32_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(results[r])) << results[r];
    EXPECT_EQ(RankAtFault(results[r]), 2u) << results[r];
    // Not the longer waits of two_level, for which there is no option.
    EXPECT_NE(results[r].message().find("1.5s (the_option_s"), std::string::npos) << results[r];
  }
  // The late rank finds what the others have brought, and notices at last in its next operation.
  EXPECT_FALSE(group.rank(2).Barrier().ok());
}

TEST_P(CollectiveFaultsTest, NothingIsLeftBehind) {
  // The process keeps some descriptors of its first group until it ends; they are not a leak.
  RankThreads(GetParam().engine, GetParam().ranks, Options(), Hosts()).Join(1);
  const int files = CountShmFiles();
  const int before = CountDescriptors();
  {
    RankThreads group(GetParam().engine, GetParam().ranks, Options(), Hosts());
    group.Join(1);
    group.Join(2);
    group.ExpectOk([](uint32_t, Collective& c) { return c.Barrier(); });
    EXPECT_GT(CountDescriptors(), before);
    group.rank(0).Cancel();
    EXPECT_EQ(CountShmFiles(), files);
  }
  EXPECT_EQ(CountDescriptors(), before);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  std::vector<std::string> engines = {"shm", "gloo", "two_level"};
  // A CUDA device that this process has used cannot be used by its children; a simulated one can.
  if (getenv("SIMULATED_CUDA") != nullptr) engines.push_back("nccl");
  for (const std::string& engine : engines) {
    if (engine != "nccl" && !CanMake(engine, 3)) continue;
    for (const size_t n : {100, 1 << 20}) cases.push_back({engine, 3, n, 1});
    cases.push_back({engine, 3, 100000, 3});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Engines, CollectiveFaultsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return absl::StrCat(info.param.engine, "_", info.param.n, "_",
                                               info.param.comm_num);
                         });

// Where this process has mapped the shared memory of its groups.
std::vector<uint8_t*> SharedMemories() {
  std::vector<uint8_t*> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:sluice-collective") != std::string::npos)
      found.push_back(reinterpret_cast<uint8_t*>(std::stoull(line, nullptr, 16)));
  }
  return found;
}

TEST(ShmCollectiveTest, GarbageWrittenByAPeerNeitherCrashesNorHangs) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    CollectiveOptions options;
    options.timeout = absl::Milliseconds(200);
    RankThreads group("shm", 2, options);
    group.Join();
    ASSERT_FALSE(SharedMemories().empty());
    uint8_t* const board = SharedMemories()[0];
    std::atomic<bool> done{false};
    std::thread scribbler([&] {
      std::mt19937_64 random(seed);
      // Positions, headers and the words for waiting; small numbers look most like true ones.
      while (!done) {
        const uint64_t word = random() % 2 == 0 ? random() % 8 : random();
        std::memcpy(board + random() % 100 * 8, &word, sizeof word);
        std::this_thread::yield();
      }
    });
    const double start = Now();
    group.Run([](uint32_t r, Collective& c) {
      std::vector<float> values(200000, 1.0f);
      absl::Status status;
      for (int i = 0; status.ok() && i < 20; ++i) {
        status =
            i % 3 == 0 ? c.AllReduce(absl::MakeSpan(values), Collective::Op::kSum)
            : i % 3 == 1
                ? c.Wait(c.WeightedMean(i, absl::MakeSpan(values).subspan(0, 100), 1))
                : c.Broadcast(absl::MakeSpan(reinterpret_cast<uint8_t*>(&values[0]), 500000), 1);
      }
      return status;
    });
    EXPECT_LT(Now() - start, 60) << "seed " << seed;
    done = true;
    scribbler.join();
  }
}

}  // namespace
}  // namespace sluice
