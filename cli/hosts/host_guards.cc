#include "cli/hosts/host_guards.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/local_cluster.h"
#include "cli/jobs/resume_hint.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kLookAtGuards = absl::Milliseconds(10);
// A host must answer within this time; ssh gives up earlier.
constexpr absl::Duration kConnectWithin = absl::Seconds(30);
constexpr absl::Duration kHostPatience = absl::Seconds(kGuardPatienceS);
constexpr char kVersionLine[] = "sluice version ";

}  // namespace

std::string GuardCommand(const std::string& folder) {
  const std::string file = ShellWord(absl::StrCat(folder, "/sluice"));
  // A login script may print a line without its end.
  return absl::StrCat("echo; s=", file,
                      "; [ -x \"$s\" ] || s=sluice; \"$s\" --version && exec \"$s\" host-guard");
}

absl::Status HostGuards::Connect() {
  for (const HostSpec& spec : options_.hosts) {
    Connection host;
    host.facts.spec = spec;
    SLUICE_ASSIGN_OR_RETURN(
        host.link, options_.links->Open(spec, options_.guard_command, Encode({0, "beat", {}})));
    host.facts.heard = options_.clock->Now();
    hosts_.push_back(std::move(host));
  }
  const absl::Time deadline = options_.clock->Now() + kConnectWithin;
  const auto waits = [](const Connection& host) {
    return !host.greeted && host.facts.gone.empty();
  };
  while (std::any_of(hosts_.begin(), hosts_.end(), waits)) {
    if (StopIsPending()) return absl::CancelledError("interrupted");
    Listen();
    if (options_.clock->Now() < deadline) {
      options_.clock->Sleep(kLookAtGuards);
      continue;
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (waits(hosts_[i]))
        Lose(i, absl::StrCat("did not answer within ", absl::FormatDuration(kConnectWithin)));
    }
  }
  return absl::OkStatus();
}

uint64_t HostGuards::Send(size_t host, const std::string& verb, Fields fields) {
  const uint64_t tag = ++last_tag_;
  questions_[tag].host = host;
  if (hosts_[host].link != nullptr) hosts_[host].link->Send(Encode({tag, verb, std::move(fields)}));
  return tag;
}

absl::StatusOr<HostGuards::Fields> HostGuards::Await(size_t host, uint64_t tag) {
  for (;;) {
    Listen();
    std::optional<GuardMessage>& arrived = questions_.at(tag).answer;
    if (arrived.has_value()) {
      GuardMessage answer = *std::move(arrived);
      questions_.erase(tag);
      if (answer.verb == "ok") return std::move(answer.fields);
      return absl::FailedPreconditionError(answer.fields.empty() ? "refused" : answer.fields[0]);
    }
    if (IsGone(host)) {
      questions_.erase(tag);
      return absl::UnavailableError(at(host).gone);
    }
    if (StopIsPending()) return absl::CancelledError("interrupted");
    options_.clock->Sleep(kLookAtGuards);
  }
}

void HostGuards::Listen() {
  const absl::Time now = options_.clock->Now();
  for (size_t i = 0; i < hosts_.size(); ++i) {
    Connection& host = hosts_[i];
    if (!host.facts.gone.empty() || host.link == nullptr) continue;
    const std::vector<std::string> lines = host.link->Lines();
    if (!lines.empty()) host.facts.heard = now;
    for (const std::string& line : lines) {
      if (!host.greeted && absl::StartsWith(line, kVersionLine)) {
        host.facts.version = std::string(
            absl::StripAsciiWhitespace(absl::string_view(line).substr(sizeof(kVersionLine) - 1)));
        // Another version may have no guard, or one that speaks otherwise.
        if (host.facts.version != options_.version) host.greeted = true;
        continue;
      }
      // A login script may print something that looks like a message. It runs before the guard.
      if (host.facts.version.empty()) continue;
      const auto message = ParseGuardMessage(line);
      if (message.ok()) Take(i, *message);
    }
    if (host.greeted && host.facts.version != options_.version) continue;
    if (const std::optional<LinkEnd> end = host.link->Ended()) {
      Lose(i, ExplainLinkEnd(host.facts.spec, *end));
    } else if (host.greeted && now - host.facts.heard >= kHostPatience) {
      Lose(i, absl::StrCat("has been silent for ", kGuardPatienceS, " s"));
    }
  }
}

void HostGuards::Take(size_t host, const GuardMessage& message) {
  if (message.tag != 0) {
    // A host answers only what it was asked.
    const auto question = questions_.find(message.tag);
    const bool answers = message.verb == "ok" || message.verb == "error";
    if (question != questions_.end() && question->second.host == host && answers)
      question->second.answer = message;
    return;
  }
  Host& from = hosts_[host].facts;
  const Fields& fields = message.fields;
  int64_t wall_us = 0;
  uint32_t pid = 0;
  int status = 0;
  if (message.verb == "hello" && fields.size() >= 7 && absl::SimpleAtoi(fields[1], &wall_us) &&
      absl::SimpleAtoi(fields[4], &from.cores) && absl::SimpleAtoi(fields[6], &from.free_bytes)) {
    from.clock_ahead = absl::FromUnixMicros(wall_us) - options_.clock->WallNow();
    from.folder = fields[2];
    from.programs = fields[3];
    from.process_space = fields[5];
    hosts_[host].greeted = true;
  } else if (message.verb == "log" && fields.size() == 2) {
    options_.events.log(fields[0], fields[1]);
  } else if (message.verb == "out" && fields.size() == 2) {
    options_.events.out(fields[0], fields[1]);
  } else if (message.verb == "ended" && fields.size() == 3 && absl::SimpleAtoi(fields[1], &pid) &&
             absl::SimpleAtoi(fields[2], &status)) {
    options_.events.ended(fields[0], pid, status);
  }
}

void HostGuards::Lose(size_t host, const std::string& why) {
  hosts_[host].facts.gone = why;
  hosts_[host].link = nullptr;
  options_.events.lost(host);
}

void HostGuards::ListenUntil(absl::Duration time, const std::function<bool()>& done) {
  const absl::Time deadline = options_.clock->Now() + time;
  while (!done() && options_.clock->Now() < deadline) {
    options_.clock->Sleep(kLookAtGuards);
    Listen();
  }
}

void HostGuards::End() {
  for (Connection& host : hosts_) {
    if (host.link == nullptr) continue;
    host.link->Send(Encode({0, "end", {}}));
    host.link->EndInput();
    // A guard that never spoke has nothing to end.
    if (!host.greeted || host.facts.version != options_.version) host.link = nullptr;
  }
  ListenUntil(absl::Seconds(2 * kGuardGraceS + 2), [this] {
    return std::none_of(hosts_.begin(), hosts_.end(),
                        [](const Connection& host) { return host.link != nullptr; });
  });
  for (Connection& host : hosts_) host.link = nullptr;
}

}  // namespace sluice::cli
