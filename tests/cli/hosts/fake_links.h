// Hosts with guards in memory, for tests of what talks with them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/hosts/guard_message.h"
#include "cli/hosts/host_link.h"
#include "common/base/clock.h"
#include "common/base/env.h"

namespace sluice::cli {

// A host with a guard that does as it is told, in memory.
struct FakeHost {
  std::string version = "1";
  std::string package =
      "1";              // the version of the package sluice that Python imports there; empty: none
  std::string refuses;  // ssh ends with these words
  bool silent = false;
  bool shares = true;                        // sees this host's files
  std::map<std::string, std::string> files;  // sizes by path; others cannot be read
  int scheduler_exit = -1;                   // the scheduler ends with this code at once
  std::vector<std::vector<std::string>> started, ran;
  std::vector<GuardMessage> says;  // by itself, next
  bool ended = false;
};

class FakeLink final : public HostLink {
 public:
  FakeLink(FakeHost* host, Clock* clock) : host_(host) {
    if (!host_->refuses.empty()) return;
    out_ = {"Welcome!", "2 updates wait", "", absl::StrCat("sluice version ", host_->version)};
    Say({0,
         "hello",
         {host_->version, absl::StrCat(absl::ToUnixMicros(clock->WallNow())), "/guard", "/bin", "8",
          "space", "1000000000"}});
  }
  void Send(absl::string_view bytes) override {
    for (const std::string& line : cutter_.Take(bytes)) {
      const auto request = ParseGuardMessage(line);
      ASSERT_TRUE(request.ok()) << line;
      Answer(*request);
    }
  }
  void EndInput() override {}
  std::vector<std::string> Lines() override {
    if (host_->silent) return {};
    for (const GuardMessage& message : host_->says) Say(message);
    host_->says.clear();
    std::vector<std::string> lines;
    lines.swap(out_);
    if (lines.empty() && !host_->ended && host_->refuses.empty()) lines = {"0 beat"};
    return lines;
  }
  std::optional<LinkEnd> Ended() override {
    if (!host_->refuses.empty()) return LinkEnd{255 << 8, host_->refuses};
    if (host_->ended) return LinkEnd{0, ""};
    return std::nullopt;
  }

 private:
  void Say(const GuardMessage& message) {
    std::string line = Encode(message);
    line.pop_back();
    out_.push_back(line);
  }
  void Answer(const GuardMessage& request) {
    const std::vector<std::string>& fields = request.fields;
    if (request.verb == "end") {
      host_->ended = true;
    } else if (request.verb == "start") {
      host_->started.push_back(fields);
      Say({request.tag, "ok", {absl::StrCat(100 + host_->started.size()), "7100"}});
      if (host_->scheduler_exit >= 0 && fields[5] == "sluice-scheduler") {
        Say({0, "log", {fields[0], "the disk is gone"}});
        Say({0, "ended", {fields[0], "101", absl::StrCat(host_->scheduler_exit << 8)}});
      }
    } else if (request.verb == "run") {
      host_->ran.push_back(fields);
      Say({request.tag, "ok", {absl::StrCat(500 + host_->ran.size()), "0"}});
    } else if (request.verb == "python") {
      if (host_->package.empty()) return Say({request.tag, "error", {"No module named 'sluice'"}});
      Say({request.tag, "ok", {host_->package}});
    } else if (request.verb == "port") {
      Say({request.tag, "ok", {"7200"}});
    } else if (request.verb == "size") {
      const auto file = host_->files.find(fields[0]);
      if (file == host_->files.end()) return Say({request.tag, "error", {"no such file"}});
      Say({request.tag, "ok", {file->second}});
    } else if (request.verb == "read") {
      const auto content = Env::Real()->ReadFile(fields[0]);
      if (host_->shares && content.ok()) return Say({request.tag, "ok", {*content}});
      Say({request.tag, "error", {"no such file"}});
    } else {
      Say({request.tag, "ok", {""}});
    }
  }

  FakeHost* const host_;
  LineCutter cutter_;
  std::vector<std::string> out_;
};

class FakeLinks final : public HostLinks {
 public:
  explicit FakeLinks(Clock* clock) : clock_(clock) {}
  absl::StatusOr<std::unique_ptr<HostLink>> Open(const HostSpec& host, const std::string&,
                                                 const std::string&) override {
    return std::make_unique<FakeLink>(&hosts[host.name], clock_);
  }
  std::map<std::string, FakeHost> hosts;

 private:
  Clock* const clock_;
};

}  // namespace sluice::cli
