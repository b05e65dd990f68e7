#include "cli/hosts/host_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

bool HasOnly(absl::string_view text, absl::string_view more) {
  return std::all_of(text.begin(), text.end(), [more](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(more, c);
  });
}

// Parses one entry. INVALID_ARGUMENT is the reason alone.
absl::StatusOr<HostSpec> ParseHost(absl::string_view entry) {
  HostSpec host;
  absl::string_view rest = entry;
  if (const size_t at = rest.rfind('@'); at != absl::string_view::npos) {
    host.user = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    // ssh would take a word that begins with a dash for a flag.
    if (host.user.empty() || host.user[0] == '-' || !HasOnly(host.user, "._-+\\@"))
      return absl::InvalidArgumentError("has no user name before the @");
  }
  absl::string_view count;
  bool counted = false;
  if (absl::StartsWith(rest, "[")) {
    const size_t end = rest.find(']');
    if (end == absl::string_view::npos)
      return absl::InvalidArgumentError("has no ] after the IPv6 address");
    host.name = std::string(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    if (!HasOnly(host.name, ":.%") || !absl::StrContains(host.name, ':'))
      return absl::InvalidArgumentError("has no IPv6 address in its brackets");
    if (!rest.empty() && rest[0] != ':')
      return absl::InvalidArgumentError("has more than :WORKERS after the brackets");
    counted = !rest.empty();
    count = counted ? rest.substr(1) : "";
  } else {
    const size_t colon = rest.find(':');
    host.name = std::string(rest.substr(0, colon));
    counted = colon != absl::string_view::npos;
    count = counted ? rest.substr(colon + 1) : "";
    if (counted && absl::StrContains(count, ':')) {
      return absl::InvalidArgumentError(absl::StrCat("looks like an IPv6 address; write it as [",
                                                     rest, "] or [ADDRESS]:WORKERS"));
    }
    if (host.name.empty() || host.name[0] == '-' || !HasOnly(host.name, "._-"))
      return absl::InvalidArgumentError("is no host name or address");
  }
  if (counted && (!absl::SimpleAtoi(count, &host.workers) || host.workers > kMostWorkersOfHost)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no number of workers after the colon; give 0 to ", kMostWorkersOfHost,
                     " (the port of ssh is set in ~/.ssh/config)"));
  }
  return host;
}

absl::Status AddHost(absl::string_view entry, const std::string& origin,
                     std::vector<HostSpec>* hosts) {
  absl::StatusOr<HostSpec> host = ParseHost(entry);
  if (!host.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": '", Printable(std::string(entry)),
                                                   "' ", host.status().message(),
                                                   "; an entry is [USER@]HOST[:WORKERS]"));
  }
  for (const HostSpec& other : *hosts) {
    if (other.name != host->name) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        origin, ": the host ", host->name, " is there twice; give it once, with all its workers"));
  }
  hosts->push_back(*std::move(host));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HostSpec>> Checked(std::vector<HostSpec> hosts,
                                              const std::string& origin) {
  if (hosts.empty())
    return absl::InvalidArgumentError(absl::StrCat(origin, " names no host; give e.g. a:4,b:4"));
  if (hosts.size() > kMostHosts) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, " names ", hosts.size(), " hosts; give at most ", kMostHosts));
  }
  if (WorkersOf(hosts) == 0)
    return absl::InvalidArgumentError(absl::StrCat(origin, " gives no host a worker"));
  return hosts;
}

}  // namespace

absl::StatusOr<std::vector<HostSpec>> ParseHostList(absl::string_view text,
                                                    const std::string& origin) {
  std::vector<HostSpec> hosts;
  for (const absl::string_view entry : absl::StrSplit(text, ',')) {
    SLUICE_RETURN_IF_ERROR(AddHost(absl::StripAsciiWhitespace(entry), origin, &hosts));
  }
  return Checked(std::move(hosts), origin);
}

absl::StatusOr<std::vector<HostSpec>> ParseHostFile(absl::string_view text,
                                                    const std::string& origin) {
  std::vector<HostSpec> hosts;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    std::string entry = words[0];
    if (words.size() == 2 && absl::StartsWith(words[1], "slots=")) {
      absl::StrAppend(&entry, ":", words[1].substr(6));
    } else if (words.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(origin, ": cannot read the line '",
                                                     Printable(std::string(line)),
                                                     "'; give HOST:WORKERS or HOST slots=WORKERS"));
    }
    SLUICE_RETURN_IF_ERROR(AddHost(entry, origin, &hosts));
  }
  return Checked(std::move(hosts), origin);
}

uint32_t WorkersOf(const std::vector<HostSpec>& hosts) {
  uint32_t sum = 0;
  for (const HostSpec& host : hosts) sum += host.workers;
  return sum;
}

absl::StatusOr<PortRange> ParsePorts(const std::string& text, uint32_t needed) {
  PortRange ports;
  const std::vector<std::string> ends = absl::StrSplit(text, '-');
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &ports.from) ||
      !absl::SimpleAtoi(ends[1], &ports.to) || ports.from < 1 || ports.to > 65535 ||
      ports.from > ports.to) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ports=", Printable(text), " is no range of ports; give FROM-TO, e.g. 7100-7199"));
  }
  if (ports.to - ports.from + 1 < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ports=", text, " has ", ports.to - ports.from + 1,
                     " ports, and one host may need ", needed, "; give a longer range"));
  }
  return ports;
}

uint32_t Placement::WorkersOn(size_t host) const {
  return static_cast<uint32_t>(std::count(workers.begin(), workers.end(), host));
}

Placement PlaceDaemons(const std::vector<HostSpec>& hosts, uint32_t server_num, size_t scheduler) {
  Placement placement;
  placement.scheduler = scheduler;
  for (uint32_t i = 0; i < server_num; ++i) placement.pservers.push_back(i % hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    placement.workers.insert(placement.workers.end(), hosts[i].workers, i);
  }
  return placement;
}

int HostForLost(const std::vector<int>& daemons) {
  int best = -1;
  for (size_t i = 0; i < daemons.size(); ++i) {
    if (daemons[i] < 0) continue;
    if (best < 0 || daemons[i] < daemons[static_cast<size_t>(best)]) best = static_cast<int>(i);
  }
  return best;
}

}  // namespace sluice::cli
