// sluice certs: makes a certificate authority and the certificates of a cluster.
#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/daemon/process_info.h"
#include "common/security/cert_authority.h"

namespace sluice::cli {
namespace {

// The CA outlives many renewals, so that they need no new CA, which all processes would have to
// trust first.
constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
constexpr absl::Duration kRoleCertificateLife = absl::Hours(24 * 365);
// The clocks of the hosts may differ by so much.
constexpr absl::Duration kClockSkew = absl::Hours(1);

struct CertsOrder {
  std::string folder;
  std::vector<std::string> hosts;  // of --hosts
};

// The certificate of one role, to be made or renewed.
struct Signing {
  PeerRole role = PeerRole::kWorker;
  std::vector<std::string> hosts;
  bool renews = false;
};

bool IsLabel(absl::string_view label) {
  const auto fits = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
  return !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(), fits);
}

bool IsHost(const std::string& text) {
  unsigned char address[sizeof(in6_addr)];
  if (inet_pton(AF_INET, text.c_str(), address) == 1) return true;
  if (inet_pton(AF_INET6, text.c_str(), address) == 1) return true;
  // Digits and dots alone are an address with a mistake.
  if (text.find_first_not_of("0123456789.") == std::string::npos) return false;
  const std::vector<absl::string_view> labels = absl::StrSplit(text, '.');
  return text.size() <= 253 && std::all_of(labels.begin(), labels.end(), IsLabel);
}

void AddHosts(const std::vector<std::string>& more, std::vector<std::string>* hosts) {
  for (const std::string& host : more) {
    if (std::find(hosts->begin(), hosts->end(), host) == hosts->end()) hosts->push_back(host);
  }
}

// The hosts of a certificate when none are given.
std::vector<std::string> OwnHosts() {
  std::vector<std::string> hosts = {"localhost", "127.0.0.1", "::1"};
  if (const std::string own = HostName(); IsHost(own)) AddHosts({own}, &hosts);
  return hosts;
}

absl::StatusOr<std::vector<std::string>> ReadHosts(const ParsedCommand& command) {
  if (!command.Given("hosts")) return std::vector<std::string>();
  const std::vector<std::string> hosts = absl::StrSplit(command.Text("hosts"), ',');
  for (const std::string& host : hosts) {
    if (IsHost(host)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--hosts=", Printable(command.Text("hosts")), ": '", Printable(host),
        "' is neither a host name nor an IP address; give names and addresses without ports, "
        "separated by commas, e.g. --hosts=node1.example.com,10.0.0.1"));
  }
  return hosts;
}

// Only a CA's folder can hold earlier certificates of this command, which may be replaced.
absl::Status CheckCertsFolder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, " is not a folder; give a folder, which may be new"));
  }
  Env* const env = Env::Real();
  const TlsFiles ca = FilesOf(folder, "ca");
  if (env->Exists(ca.cert) || env->Exists(ca.key)) return absl::OkStatus();
  for (const PeerRole role : kPeerRoles) {
    const TlsFiles files = FilesOf(folder, PeerRoleName(role));
    for (const std::string& file : {files.cert, files.key}) {
      if (!env->Exists(file)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(file,
                       " exists, and no CA of the folder has signed it; remove the file or "
                       "give another folder"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CertsOrder> ReadOrder(const ParsedCommand& command) {
  if (command.words.empty() || command.words[0].empty()) {
    return absl::InvalidArgumentError(
        "no folder is given; run sluice certs DIR, e.g. sluice certs certs");
  }
  CertsOrder order;
  order.folder = command.words[0];
  while (order.folder.size() > 1 && absl::EndsWith(order.folder, "/")) order.folder.pop_back();
  SLUICE_ASSIGN_OR_RETURN(order.hosts, ReadHosts(command));
  SLUICE_RETURN_IF_ERROR(CheckCertsFolder(order.folder));
  return order;
}

// The names of FilesOf, to be printed: the folder may be any text.
TlsFiles PrintableFilesOf(const std::string& folder, const std::string& stem) {
  const TlsFiles files = FilesOf(folder, stem);
  return {PrintableLine(files.cert), PrintableLine(files.key), PrintableLine(files.ca)};
}

std::string DateOf(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone());
}

// Makes the CA, unless the folder has one. Returns when it ends.
absl::StatusOr<absl::Time> MakeOrKeepAuthority(const std::string& folder, absl::Time now) {
  const TlsFiles files = FilesOf(folder, "ca");
  const bool kept = Env::Real()->Exists(files.cert);
  SLUICE_RETURN_IF_ERROR(MakeAuthority({folder, now - kClockSkew, now + kAuthorityLife}));
  SLUICE_ASSIGN_OR_RETURN(const absl::Time end, EndOfAuthority(folder));
  if (end <= now) {
    return absl::InvalidArgumentError(absl::StrCat("the CA ", files.cert, " ended on ", DateOf(end),
                                                   "; give another folder for a new CA"));
  }
  const TlsFiles names = PrintableFilesOf(folder, "ca");
  std::cout << (kept ? "kept" : "made") << " the certificate authority " << names.cert
            << " and its key " << names.key << ", valid until " << DateOf(end) << "\n";
  return end;
}

// A certificate that is renewed keeps its hosts. One that cannot be renewed is an error before any
// other is, so that the folder stays as it was.
absl::StatusOr<std::vector<Signing>> ListSignings(const CertsOrder& order) {
  std::vector<Signing> signings;
  for (const PeerRole role : kPeerRoles) {
    SLUICE_ASSIGN_OR_RETURN(const auto earlier, HostsOfCertificate(order.folder, role));
    Signing signing = {role, earlier.has_value() ? *earlier : OwnHosts(), earlier.has_value()};
    AddHosts(order.hosts, &signing.hosts);
    signings.push_back(std::move(signing));
  }
  return signings;
}

absl::Status MakeCertificates(const CertsOrder& order, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const absl::Time authority_end, MakeOrKeepAuthority(order.folder, now));
  // Peers refuse every certificate of a CA that has ended.
  const absl::Time end = std::min(now + kRoleCertificateLife, authority_end);
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Signing> signings, ListSignings(order));
  bool renewed = false;
  for (const Signing& one : signings) {
    SLUICE_RETURN_IF_ERROR(
        MakeCertificate({order.folder, now - kClockSkew, end}, one.role, one.hosts));
    // Printed one by one: the command may fail or be killed between two of them.
    const TlsFiles files = PrintableFilesOf(order.folder, PeerRoleName(one.role));
    std::cout << (one.renews ? "renewed " : "made ") << files.cert
              << (one.renews ? " for " : " and ") << files.key << ", valid until " << DateOf(end)
              << ", on the hosts " << PrintableLine(absl::StrJoin(one.hosts, ", ")) << "\n";
    renewed |= one.renews;
  }
  if (renewed)
    std::cout << "Renewed certificates are for the same keys: copy only the .pem files.\n";
  return absl::OkStatus();
}

void WarnOfOthers(const std::string& folder) {
  std::vector<std::string> others;
  for (const std::string& file : OtherCertificates(folder)) others.push_back(PrintableLine(file));
  if (others.empty()) return;
  std::cout << "Warning: not renewed, because they are not the certificates of the roles: "
            << absl::StrJoin(others, ", ") << "\n";
}

int Certs(const ParsedCommand& command) {
  const absl::StatusOr<CertsOrder> order = ReadOrder(command);
  if (!order.ok()) return ReportError(order.status());
  const absl::Status made = MakeCertificates(*order, Clock::Real()->WallNow());
  if (made.ok()) WarnOfOthers(order->folder);
  std::cout << std::flush;
  if (!made.ok()) return ReportError(made);
  const TlsFiles files = PrintableFilesOf(order->folder, PeerRoleName(PeerRole::kWorker));
  std::cout
      << "Give each process the three files of its role, for example a worker:\n  --tls_cert="
      << files.cert << " --tls_key=" << files.key << " --tls_ca=" << files.ca
      << "\nAlso give daemons --output_root=DIR, so that jobs write only below it.\nWarning: keep "
      << PrintableFilesOf(order->folder, "ca").key
      << " away from the hosts of the cluster. Whoever has it can make certificates of any "
         "role.\n"
      << std::flush;
  return kDone;
}

}  // namespace

Command CertsCommand() {
  CommandSpec spec;
  spec.name = "certs";
  spec.summary =
      "Makes a certificate authority (CA) and the certificates of a cluster, or renews them.";
  spec.words = "DIR";
  spec.max_words = 1;
  spec.flags = {
      {"hosts", FlagKind::kText, "HOST,...", "",
       "host names and IP addresses for new certificates, besides localhost, 127.0.0.1, ::1 and "
       "this host's name; renewed certificates keep their hosts and get these, too"},
  };
  spec.examples =
      "  sluice certs certs        # or renew the certificates of the folder\n"
      "  sluice certs certs --hosts=node1.example.com,10.0.0.1\n";
  return {spec, &Certs};
}

}  // namespace sluice::cli
