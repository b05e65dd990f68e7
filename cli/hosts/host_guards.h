// The guards on the hosts of a launch (host_guard.h), as the launcher talks with them: it connects,
// asks, and takes what they tell by themselves. A host that ends its connection or is silent for
// too long is gone, and stays so.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/hosts/guard_message.h"
#include "cli/hosts/host_link.h"
#include "cli/hosts/host_list.h"
#include "common/base/clock.h"

namespace sluice::cli {

// The command of sh that runs a guard on a host: it prints the version of the programs there first.
// `folder`: of the programs, if they are there; else those of PATH.
std::string GuardCommand(const std::string& folder);

class HostGuards {
 public:
  using Fields = std::vector<std::string>;

  // A host, with the answers of its guard.
  struct Host {
    HostSpec spec;
    std::string version;   // of the programs there
    std::string folder;    // the guard's own
    std::string programs;  // the folder of the programs
    std::string process_space;
    uint32_t cores = 1;
    uint64_t free_bytes = 0;
    absl::Duration clock_ahead;
    absl::Time heard;  // its last line
    std::string gone;  // why it is lost; empty: it is not
  };
  // Called from Listen.
  struct Events {
    std::function<void(const std::string& id, const std::string& line)> log;
    std::function<void(const std::string& id, const std::string& line)> out;
    std::function<void(const std::string& id, uint32_t pid, int wait_status)> ended;
    std::function<void(size_t host)> lost;  // its `gone` says why
  };
  struct Options {
    Clock* clock = nullptr;      // required; outlives the guards
    HostLinks* links = nullptr;  // the same
    std::vector<HostSpec> hosts;
    std::string guard_command;  // GuardCommand
    std::string version;        // guards of another one are asked nothing
    Events events;
  };
  // After its last word, the guard of a host that is gone has ended its daemons within this time.
  static constexpr absl::Duration kHasEnded = absl::Seconds(kGuardPatienceS + kGuardGraceS + 1);

  explicit HostGuards(Options options) : options_(std::move(options)) {}

  // Connects to all hosts. One that cannot be reached is gone. CANCELLED: StopIsPending.
  absl::Status Connect();
  size_t size() const { return hosts_.size(); }
  const Host& at(size_t host) const { return hosts_[host].facts; }
  bool IsGone(size_t host) const { return !hosts_[host].facts.gone.empty(); }
  // Whether its guard can be asked: it is there, and of this version.
  bool Answers(size_t host) const { return !IsGone(host) && at(host).version == options_.version; }

  // Sends a request without waiting. Returns its tag.
  uint64_t Send(size_t host, const std::string& verb, Fields fields);
  // Waits for the answer. UNAVAILABLE: the host is gone. CANCELLED: StopIsPending.
  // FAILED_PRECONDITION: the guard has refused.
  absl::StatusOr<Fields> Await(size_t host, uint64_t tag);
  absl::StatusOr<Fields> Ask(size_t host, const std::string& verb, Fields fields) {
    return Await(host, Send(host, verb, std::move(fields)));
  }
  // Takes what the guards have sent, and looks for hosts that are gone.
  void Listen();
  // Waits up to this time until `done`, and listens meanwhile.
  void ListenUntil(absl::Duration time, const std::function<bool()>& done);
  // Tells all guards to end their daemons and themselves, and waits until they have.
  void End();

 private:
  struct Connection {
    Host facts;
    std::unique_ptr<HostLink> link;  // null: it is gone
    bool greeted = false;            // it has said hello, or is of another version
  };
  // A request that waits for its answer.
  struct Question {
    size_t host;
    std::optional<GuardMessage> answer;
  };
  void Take(size_t host, const GuardMessage& message);
  void Lose(size_t host, const std::string& why);

  const Options options_;
  std::vector<Connection> hosts_;
  std::map<uint64_t, Question> questions_;  // by tag
  uint64_t last_tag_ = 0;
};

}  // namespace sluice::cli
