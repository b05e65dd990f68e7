// Debian's etcd in processes of its own: members on free loopback ports, with data in a new folder.
//
// Thread safety: one thread, which must outlive the cluster: the processes end with it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/meta_store/etcd_client.h"
#include "tests/common/base/free_port.h"

namespace sluice {

class EtcdCluster {
 public:
  static constexpr char kProgram[] = "/usr/bin/etcd";
  static bool IsInstalled() { return ::access(kProgram, X_OK) == 0; }

  explicit EtcdCluster(int members, std::vector<std::string> more_flags = {})
      : more_flags_(std::move(more_flags)) {
    std::string pattern = ::testing::TempDir() + "/etcd_cluster.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    for (int i = 0; i < members; ++i) members_.push_back({FreePort(), FreePort(), 0});
    for (int i = 0; i < members; ++i) Start(i);
  }
  ~EtcdCluster() {
    for (int i = 0; i < static_cast<int>(members_.size()); ++i) Kill(i);
    std::filesystem::remove_all(dir_);
  }

  std::string endpoint(int i) const { return absl::StrCat("127.0.0.1:", members_[i].client_port); }
  std::vector<std::string> endpoints() const {
    std::vector<std::string> all;
    for (size_t i = 0; i < members_.size(); ++i) all.push_back(endpoint(i));
    return all;
  }

  void Start(int i) {
    Member& member = members_[i];
    const auto url = [](int port) { return absl::StrCat("http://127.0.0.1:", port); };
    std::vector<std::string> cluster;
    for (size_t k = 0; k < members_.size(); ++k)
      cluster.push_back(absl::StrCat("m", k, "=", url(members_[k].peer_port)));
    std::vector<std::string> words = {
        kProgram,
        absl::StrCat("--name=m", i),
        absl::StrCat("--data-dir=", dir_, "/m", i),
        absl::StrCat("--listen-client-urls=", url(member.client_port)),
        absl::StrCat("--advertise-client-urls=", url(member.client_port)),
        absl::StrCat("--listen-peer-urls=", url(member.peer_port)),
        absl::StrCat("--initial-advertise-peer-urls=", url(member.peer_port)),
        absl::StrCat("--initial-cluster=", absl::StrJoin(cluster, ",")),
        "--logger=zap",
        "--log-level=error"};
    words.insert(words.end(), more_flags_.begin(), more_flags_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = LogFile(i);
    // Only calls that are safe in the child of a program with threads.
    member.pid = ::fork();
    if (member.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(fd, STDOUT_FILENO);
      ::dup2(fd, STDERR_FILENO);
      ::execv(kProgram, argv.data());
      ::_exit(127);
    }
  }
  void Kill(int i) {
    Member& member = members_[i];
    if (member.pid == 0) return;
    ::kill(member.pid, SIGKILL);
    ::waitpid(member.pid, nullptr, 0);
    member.pid = 0;
  }
  // Returns when all threads of member i have stopped, which takes a moment on a busy machine.
  void Pause(int i) {
    ::kill(members_[i].pid, SIGSTOP);
    ::waitpid(members_[i].pid, nullptr, WUNTRACED);
  }
  void Continue(int i) { ::kill(members_[i].pid, SIGCONT); }

  // Waits until member i serves linearizable reads.
  void WaitReady(int i) {
    EtcdClient::Options options;
    options.clock = Clock::Real();
    options.endpoints = {endpoint(i)};
    options.patience = absl::Seconds(60);
    EtcdClient client(options);
    etcdserverpb::RangeRequest range;
    range.set_key("ready");
    const auto ready = client.Range(range);
    std::ifstream log(LogFile(i));
    ASSERT_TRUE(ready.ok()) << ready.status() << "\n"
                            << std::string(std::istreambuf_iterator<char>(log), {});
  }

 private:
  struct Member {
    int client_port, peer_port;
    pid_t pid;  // 0: does not run
  };

  std::string LogFile(int i) const { return absl::StrCat(dir_, "/log", i); }

  const std::vector<std::string> more_flags_;
  std::string dir_;
  std::vector<Member> members_;
};

}  // namespace sluice
