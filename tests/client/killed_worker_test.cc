// Workers that are killed in the middle of what they send through shared memory: the pservers hold
// the first n pushes of each, among them all that were acknowledged, and serve the others.
//
// A failure prints its seed; SLUICE_SEED=N repeats it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/client/all_networks.h"
#include "tests/client/plain_counts.h"
#include "tests/client/pushed_items.h"

namespace sluice {
namespace {

// A pushing_worker.
class Victim {
 public:
  Victim(const JobSpec& job, uint32_t rank, uint64_t life) {
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "pushing_worker";
    const std::string rank_text = absl::StrCat(rank), life_text = absl::StrCat(life);
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl(program.c_str(), program.c_str(), rank_text.c_str(), life_text.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    said_ = out[0];
    const std::string bytes = job.SerializeAsString();
    EXPECT_EQ(write(in[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(in[1]);
  }
  ~Victim() {
    Kill();
    close(said_);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // The next letter; 0 at the end of what a victim has said.
  char Read() {
    char letter = 0;
    return read(said_, &letter, 1) == 1 ? letter : 0;
  }

 private:
  pid_t pid_ = -1;
  int said_ = -1;
};

class KilledWorkerTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kVictim = 0, kOther = 1;  // ranks

  // Takes what the victim says. False: it says no more.
  bool Hear(Victim* victim, uint64_t life) {
    const char letter = victim->Read();
    if (letter == 'S') counts_.Start(kVictim, PushedItems(life, pushes_++));
    if (letter == 'A') {
      counts_.Acknowledge(kVictim, kInFlight);
      ++acknowledgements_;
    }
    return letter != 0;
  }
  JobSpec JobForOthers() {
    JobSpec job = cluster_.job();
    for (std::string& address : *job.mutable_route()->mutable_pservers())
      address = cluster_.network()->AddressOf(address);
    return job;
  }
  // Checks what this life has left on the pserver, as the next life of the rank reads it.
  void CheckLife(uint64_t life) {
    const auto client = cluster_.Client(kVictim, nullptr, life + 1);
    std::vector<uint32_t> items;
    for (uint32_t item = 0; item < kItems; ++item) items.push_back(item);
    const auto values = ValuesOf(*client, items, -1);
    const absl::Status status = client->WaitPull(client->StartPull(values->Pull()));
    ASSERT_TRUE(status.ok()) << status;
    std::vector<uint64_t> found;
    for (const uint32_t item : items) {
      const std::vector<float> counts = CountsAt(*values, item, kVictim);
      ASSERT_EQ(std::count(counts.begin(), counts.end(), counts[0]),
                static_cast<int64_t>(counts.size()));
      found.push_back(static_cast<uint64_t>(std::llround(counts[0])));
    }
    EXPECT_EQ(counts_.EndLife(kVictim, found, ShardsOfItems(*client)), "");
  }
  void PushAsTheOther(ParameterClient* other) {
    ASSERT_TRUE(other->StartPush(CountingPush(*other, kOther, {1, kDenseItem}, -1)).ok());
    const absl::Status status = other->WaitPushes(0);
    ASSERT_TRUE(status.ok()) << status;
  }

  TestCluster cluster_{CountingJob(TestMode::kAsync, 2, 2), NewShmNetwork()};
  PlainCounts counts_{kItems};
  uint64_t pushes_ = 0;  // of the victim's life
  int acknowledgements_ = 0;
};

TEST_F(KilledWorkerTest, TheFirstPushesOfAKilledWorkerAreAppliedOnce) {
  const char* const replay = std::getenv("SLUICE_SEED");
  const uint64_t seed =
      replay != nullptr ? std::strtoull(replay, nullptr, 10) : std::random_device()();
  SCOPED_TRACE(testing::Message() << "SLUICE_SEED=" << seed);
  std::mt19937_64 random(seed);
  const JobSpec job = JobForOthers();
  const auto other = cluster_.Client(kOther);
  for (uint64_t life = 1; life < 24; life += 2) {
    SCOPED_TRACE(testing::Message() << "life " << life);
    pushes_ = 0;
    acknowledgements_ = 0;
    Victim victim(job, kVictim, life);
    for (int wanted = 3 + static_cast<int>(random() % 30); acknowledgements_ < wanted;)
      ASSERT_TRUE(Hear(&victim, life)) << "the worker has ended by itself";
    // In every second life, pservers that do not read: the rings are full of a part of a message.
    Gate* const stalled = random() % 2 == 0 ? cluster_.gate(random() % 2) : nullptr;
    if (stalled != nullptr) {
      stalled->Shut();
      stalled->AwaitMessage();
    }
    victim.Kill();
    while (Hear(&victim, life)) {
    }
    if (stalled != nullptr) stalled->Open();
    ASSERT_NO_FATAL_FAILURE(CheckLife(life));
    ASSERT_NO_FATAL_FAILURE(PushAsTheOther(other.get()));
  }
}

}  // namespace
}  // namespace sluice
