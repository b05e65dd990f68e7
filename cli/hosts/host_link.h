// The seam to other hosts: a command of sh that runs there, with pipes to it.
//
// Thread safety: one thread uses a HostLink. A thread of its own moves its bytes, so that beats go
// out while that thread waits for something else.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/hosts/host_list.h"

namespace sluice::cli {

// How a command on a host has ended.
struct LinkEnd {
  int wait_status = 0;
  std::string errors;  // the end of its standard error
};

class HostLink {
 public:
  virtual ~HostLink() = default;
  // Sends bytes to the command's standard input, later and in order.
  virtual void Send(absl::string_view bytes) = 0;
  // Ends the command's standard input once all has been sent.
  virtual void EndInput() = 0;
  // Returns the lines that have come since the last call.
  virtual std::vector<std::string> Lines() = 0;
  // Nothing: it runs, or Lines has something left.
  virtual std::optional<LinkEnd> Ended() = 0;
};

// Starts commands on hosts. INTERNAL: nothing could be started here.
class HostLinks {
 public:
  virtual ~HostLinks() = default;
  // `beat` is sent every second while the link lives, unless it is empty.
  virtual absl::StatusOr<std::unique_ptr<HostLink>> Open(const HostSpec& host,
                                                         const std::string& command,
                                                         const std::string& beat) = 0;
};

// Through the program `ssh`, which never asks for anything; on this host without it.
//
// Invariants: the programs that it starts end with this process.
class SshLinks final : public HostLinks {
 public:
  absl::StatusOr<std::unique_ptr<HostLink>> Open(const HostSpec& host, const std::string& command,
                                                 const std::string& beat) override;
};

// The command line of ssh for a command of sh on a host.
std::vector<std::string> SshCommandLine(const HostSpec& host, const std::string& command);

// Says why a command has ended that `ssh` should have run on a host: that the host is down, that it
// has refused the key, that the programs or their libraries are missing there, and so on, with the
// fix. `end`: how ssh ended.
std::string ExplainLinkEnd(const HostSpec& host, const LinkEnd& end);

}  // namespace sluice::cli
