// sluice certs: makes a certificate authority and the certificates of a cluster.
#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/watch_job.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/closest_name.h"
#include "common/daemon/process_info.h"
#include "common/security/cert_authority.h"
#include "common/security/issued_certificates.h"

namespace sluice::cli {
namespace {

constexpr long kMostDays = 3650;
constexpr absl::Duration kDay = absl::Hours(24);
// The clocks of the hosts may differ by so much.
constexpr absl::Duration kClockSkew = absl::Hours(1);

struct Owner {
  PeerRole role;
  std::string name;

  std::string stem() const {
    return absl::StrCat(PeerRoleName(role), name.empty() ? "" : "-", name);
  }
};

// Everything that the command is to make.
struct Plan {
  std::string folder;
  long days = 0;
  std::vector<std::string> hosts;  // of --hosts
  std::vector<Owner> owners;
};

// One certificate to sign.
struct Signing {
  std::string stem;
  CertificateRequest request;
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

// "worker/0": the owner's role and name.
absl::StatusOr<Owner> ParseOwner(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--names: '", Printable(text), "' ", why));
  };
  if (parts.size() != 2 || parts[1].empty())
    return refuse(
        "does not have the form ROLE/NAME; give e.g. --names=worker/0,worker/1,pserver/0");
  std::vector<std::string> roles;
  for (const PeerRole role : kPeerRoles) {
    roles.push_back(PeerRoleName(role));
    if (parts[0] != roles.back()) continue;
    uint32_t rank = 0;
    const bool ranked = role == PeerRole::kWorker || role == PeerRole::kPserver;
    // One spelling for each rank: two would be two certificates.
    if (ranked && (!absl::SimpleAtoi(parts[1], &rank) || absl::StrCat(rank) != parts[1])) {
      return refuse(absl::StrCat("gives no rank; the name of a ", parts[0],
                                 " is its rank, e.g. --names=", parts[0], "/0"));
    }
    const absl::Status fits = CheckCertificateRequest({role, parts[1], {}});
    if (!fits.ok()) return refuse(absl::StrCat("is refused: ", fits.message()));
    return Owner{role, parts[1]};
  }
  return refuse(absl::StrCat("does not name a role", DidYouMeanOrAll(Printable(parts[0]), roles)));
}

absl::StatusOr<std::vector<Owner>> ReadOwners(const ParsedCommand& command) {
  std::vector<Owner> owners;
  for (const PeerRole role : kPeerRoles) owners.push_back({role, ""});
  if (!command.Given("names")) return owners;
  const std::vector<std::string> given = absl::StrSplit(command.Text("names"), ',');
  for (const std::string& text : given) {
    SLUICE_ASSIGN_OR_RETURN(const Owner owner, ParseOwner(text));
    const auto same = [&](const Owner& other) { return other.stem() == owner.stem(); };
    if (std::none_of(owners.begin(), owners.end(), same)) owners.push_back(owner);
  }
  return owners;
}

// Only a CA's folder can hold earlier certificates of this command, which may be replaced.
absl::Status CheckFolder(const Plan& plan) {
  std::error_code error;
  if (std::filesystem::exists(plan.folder, error) &&
      !std::filesystem::is_directory(plan.folder, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan.folder, " is not a folder; give a folder, which may be new"));
  }
  Env* const env = Env::Real();
  const TlsFiles ca = FilesOf(plan.folder, "ca");
  if (env->Exists(ca.cert) || env->Exists(ca.key)) return absl::OkStatus();
  for (const Owner& owner : plan.owners) {
    const TlsFiles files = FilesOf(plan.folder, owner.stem());
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

absl::StatusOr<Plan> MakePlan(const ParsedCommand& command) {
  if (command.words.empty() || command.words[0].empty()) {
    return absl::InvalidArgumentError(
        "no folder is given; run sluice certs DIR, e.g. sluice certs certs");
  }
  Plan plan;
  plan.folder = command.words[0];
  while (plan.folder.size() > 1 && absl::EndsWith(plan.folder, "/")) plan.folder.pop_back();
  plan.days = command.Number("days");
  if (plan.days < 1 || plan.days > kMostDays) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days=", command.Text("days"), " is out of range; give 1 to ", kMostDays));
  }
  SLUICE_ASSIGN_OR_RETURN(plan.hosts, ReadHosts(command));
  SLUICE_ASSIGN_OR_RETURN(plan.owners, ReadOwners(command));
  SLUICE_RETURN_IF_ERROR(CheckFolder(plan));
  return plan;
}

std::string DateOf(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone());
}

// Makes the CA, unless the folder has one. It is valid for as long as possible, so that
// certificates can be renewed without a new CA.
absl::Status MakeOrKeepAuthority(const Plan& plan, absl::Time now) {
  const TlsFiles files = FilesOf(plan.folder, "ca");
  const bool kept = Env::Real()->Exists(files.cert);
  SLUICE_RETURN_IF_ERROR(MakeAuthority({plan.folder, now - kClockSkew, now + kMostDays * kDay}));
  SLUICE_ASSIGN_OR_RETURN(const absl::Time end, EndOfAuthority(plan.folder));
  const int64_t days_left = (end + absl::Seconds(1) - now) / kDay;
  if (plan.days > days_left) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--days=", plan.days, ": the certificates would be valid for longer than the CA ",
        files.cert, ", which ends on ", DateOf(end), "; give ",
        days_left > 0 ? absl::StrCat("--days=", days_left, " or ") : "", "another folder"));
  }
  std::cout << (kept ? "kept" : "made") << " the certificate authority " << files.cert
            << " and its key " << files.key << ", valid until " << DateOf(end) << "\n";
  return absl::OkStatus();
}

const IssuedCertificate* Find(const std::vector<IssuedCertificate>& all, const std::string& stem) {
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const IssuedCertificate& one) { return one.stem == stem; });
  return found == all.end() ? nullptr : &*found;
}

// Renews every certificate of the folder that can be renewed, with its names and hosts. New ones
// get the hosts of their role's certificate, since they are for processes like those.
std::vector<Signing> ListSignings(const Plan& plan,
                                  const std::vector<IssuedCertificate>& existing) {
  std::vector<Signing> signings;
  for (const IssuedCertificate& one : existing) {
    if (one.obstacle.empty()) signings.push_back({one.stem, one.request, true});
  }
  for (const Owner& owner : plan.owners) {
    if (Find(existing, owner.stem()) != nullptr) continue;
    Signing made = {owner.stem(), {owner.role, owner.name, OwnHosts()}, false};
    if (const auto* const role = Find(existing, PeerRoleName(owner.role)); role != nullptr)
      AddHosts(role->request.hosts, &made.request.hosts);
    signings.push_back(std::move(made));
  }
  for (Signing& one : signings) AddHosts(plan.hosts, &one.request.hosts);
  return signings;
}

// INVALID_ARGUMENT: a certificate that --names asks for is in the folder and cannot be renewed.
// Then nothing is made.
absl::Status CheckNamed(const Plan& plan, const std::vector<IssuedCertificate>& existing) {
  for (const Owner& owner : plan.owners) {
    const IssuedCertificate* const found = Find(existing, owner.stem());
    if (owner.name.empty() || found == nullptr || found->obstacle.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--names: ", FilesOf(plan.folder, owner.stem()).cert, " ", found->obstacle,
                     "; move it away to have a new one made"));
  }
  return absl::OkStatus();
}

void PrintMade(const Plan& plan, absl::Span<const Signing> signings, absl::Time end) {
  const auto renewed = static_cast<size_t>(std::count_if(
      signings.begin(), signings.end(), [](const Signing& one) { return one.renews; }));
  std::vector<std::string> counts;
  if (renewed > 0) counts.push_back(absl::StrCat("renewed ", Counted(renewed, "certificate")));
  if (signings.size() > renewed)
    counts.push_back(absl::StrCat("made ", Counted(signings.size() - renewed, "certificate")));
  if (!counts.empty())
    std::cout << absl::StrJoin(counts, " and ") << ", valid until " << DateOf(end) << ":\n";
  for (const Signing& one : signings) {
    const TlsFiles files = FilesOf(plan.folder, one.stem);
    std::cout << "  " << PeerIdentity{true, one.request.role, one.request.name}.ToString() << ": "
              << Printable(files.cert) << (one.renews ? " for " : " and ") << Printable(files.key)
              << ", on the hosts " << absl::StrJoin(one.request.hosts, ", ") << "\n";
  }
  if (renewed > 0)
    std::cout << "Renewed certificates are for the same keys: copy only the .pem files.\n";
}

// Names the certificates that are not renewed. FAILED_PRECONDITION, with what to do: there are
// some.
absl::Status ReportLeft(const Plan& plan, const std::vector<IssuedCertificate>& existing,
                        absl::Time now) {
  std::vector<std::string> left;
  for (const IssuedCertificate& one : existing) {
    if (one.obstacle.empty()) continue;
    left.push_back(Printable(FilesOf(plan.folder, one.stem).cert));
    std::cout << "Warning: " << left.back() << " is not renewed, because it " << one.obstacle;
    if (one.end.has_value())
      std::cout << "; it " << (*one.end < now ? "ended" : "ends") << " on " << DateOf(*one.end);
    std::cout << "\n";
  }
  if (left.empty()) return absl::OkStatus();
  const TlsFiles ca = FilesOf(plan.folder, "ca");
  return absl::FailedPreconditionError(absl::StrCat(
      Counted(left.size(), "certificate"), " could not be renewed: ", absl::StrJoin(left, ", "),
      ". To renew certificates of an earlier CA, put its ", ca.cert, " and ", ca.key,
      " back. Otherwise move each certificate and its .key file away and run the command again: it "
      "makes new ones for the roles, and for what --names asks for"));
}

std::vector<std::string> FilesOfAll(const Plan& plan, absl::Span<const Signing> signings) {
  std::vector<std::string> files;
  for (const Signing& one : signings)
    files.push_back(Printable(FilesOf(plan.folder, one.stem).cert));
  return files;
}

// One that fails ends the command: the reason, such as a full disk, would meet the others too.
absl::Status MakeCertificates(const Plan& plan, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const auto existing, FindIssuedCertificates(plan.folder));
  SLUICE_RETURN_IF_ERROR(CheckNamed(plan, existing));
  const absl::Time end = now + plan.days * kDay;
  const std::vector<Signing> signings = ListSignings(plan, existing);
  size_t made = 0;
  absl::Status status;
  for (; made < signings.size(); ++made) {
    const Signing& one = signings[made];
    status = MakeCertificate({plan.folder, now - kClockSkew, end}, one.request, one.stem);
    if (!status.ok()) break;
  }
  const auto all = absl::MakeConstSpan(signings);
  PrintMade(plan, all.first(made), end);
  const absl::Status left = ReportLeft(plan, existing, now);
  if (status.ok()) return left;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "\nNot made or renewed: ",
                                   absl::StrJoin(FilesOfAll(plan, all.subspan(made)), ", "),
                                   "; fix this and run the command again",
                                   left.ok() ? "" : absl::StrCat("\n", left.message())));
}

int Certs(const ParsedCommand& command) {
  const absl::StatusOr<Plan> plan = MakePlan(command);
  if (!plan.ok()) return ReportError(plan.status());
  const absl::Time now = Clock::Real()->WallNow();
  absl::Status made = MakeOrKeepAuthority(*plan, now);
  if (made.ok()) made = MakeCertificates(*plan, now);
  std::cout << std::flush;
  if (!made.ok()) return ReportError(made);
  const TlsFiles files = FilesOf(plan->folder, PeerRoleName(PeerRole::kWorker));
  std::cout
      << "Give each process the three files of its role, for example a worker:\n  --tls_cert="
      << files.cert << " --tls_key=" << files.key << " --tls_ca=" << files.ca
      << "\nAlso give daemons --output_root=DIR, so that jobs write only below it.\nWarning: keep "
      << FilesOf(plan->folder, "ca").key
      << " away from the hosts of the cluster. Whoever has it can make certificates of any "
         "role.\n"
      << std::flush;
  return kDone;
}

}  // namespace

Command CertsCommand() {
  CommandSpec spec;
  spec.name = "certs";
  spec.summary = "Makes a certificate authority (CA) and the certificates of a cluster, for TLS.";
  spec.words = "DIR";
  spec.max_words = 1;
  spec.flags = {
      {"hosts", FlagKind::kText, "HOST,...", "",
       "host names and IP addresses for new certificates, besides localhost, 127.0.0.1, ::1, this "
       "host's name and those of the role's certificate; renewed certificates keep their hosts and "
       "get these, too"},
      {"days", FlagKind::kNumber, "N", "365",
       absl::StrCat("a new CA is valid for ", kMostDays,
                    " days, its certificates for N days, at most ", kMostDays)},
      {"names", FlagKind::kText, "ROLE/NAME,...", "",
       "also make a certificate for each of these, e.g. worker/0; the certificate of a role alone "
       "is for any rank"},
  };
  spec.examples =
      "  sluice certs certs        # or renew all certificates of the folder's CA\n"
      "  sluice certs certs --hosts=node1.example.com,10.0.0.1 --days=90\n"
      "  sluice certs certs --names=worker/0,worker/1,pserver/0,operator/alice\n";
  return {spec, &Certs};
}

}  // namespace sluice::cli
