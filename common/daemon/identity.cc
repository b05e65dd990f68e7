#include "common/daemon/identity.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/random_id.h"
#include "common/base/rooted_env.h"
#include "common/base/status_macros.h"
#include "common/base/url_roots.h"
#include "common/config/address.h"
#include "common/config/environment.h"
#include "common/config/job_config.h"
#include "common/daemon/process_info.h"

namespace sluice {
namespace {

// The advice in errors about addresses off loopback.
constexpr char kHowToAllow[] =
    "; give --tls_cert, --tls_key and --tls_ca (`sluice certs` makes them), or, on a network that "
    "you trust, give --insecure (SLUICE_INSECURE=true, or security { insecure: true } in the "
    "cluster file)";

struct Setting {
  std::string value;
  std::string origin;  // "--bind", "SLUICE_BIND", "pservers[0] of FILE"
};

// The flag's value, else the variable's, else an empty setting.
Setting FlagOrVariable(const std::string& flag_value, const std::string& flag,
                       const std::string& variable) {
  if (!flag_value.empty()) return {flag_value, flag};
  const char* value = std::getenv(variable.c_str());
  if (value != nullptr && *value != '\0') return {value, variable};
  return {};
}

// Replaces the value by that of the flag or of the variable, if one of them is given.
void Override(const std::string& flag_value, const std::string& flag, const std::string& variable,
              std::string* value) {
  const Setting setting = FlagOrVariable(flag_value, flag, variable);
  if (!setting.value.empty()) *value = setting.value;
}

// The beginning of the names of a daemon's log files.
const char* FileStem(Role role) {
  return role == ROLE_SCHEDULER ? "scheduler" : role == ROLE_PSERVER ? "server" : "worker";
}

// The same for a list; the flag's or variable's is comma-separated.
void OverrideList(const std::string& flag_value, const std::string& flag,
                  const std::string& variable,
                  google::protobuf::RepeatedPtrField<std::string>* list) {
  const Setting setting = FlagOrVariable(flag_value, flag, variable);
  if (setting.value.empty()) return;
  list->Clear();
  for (const absl::string_view entry : absl::StrSplit(setting.value, ','))
    list->Add(std::string(entry));
}

absl::Status CheckRole(Role role) {
  // Images and units set the variable. One that starts the wrong program must not join in another
  // role.
  const char* wanted = std::getenv("SLUICE_ROLE");
  if (wanted == nullptr || *wanted == '\0' || std::string(wanted) == RoleName(role)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("SLUICE_ROLE: '", wanted, "' does not match this program, the ", RoleName(role),
                   "; start the matching program, or unset the variable"));
}

// True when the flag is given, else what the variable says.
absl::StatusOr<bool> Switch(bool flag, const std::string& variable) {
  if (flag) return true;
  const Setting setting = FlagOrVariable("", "", variable);
  bool value = false;
  if (!setting.value.empty() && !absl::SimpleAtob(setting.value, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(variable, ": '", setting.value, "' is not a bool; give true or false"));
  }
  return value;
}

// Finds out whether a socket of this host can have the address of `host`.
bool IsThisHost(const std::string& host) {
  if (host == HostName()) return true;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  bool ours = false;
  for (const addrinfo* at = found; at != nullptr && !ours; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    // Binding asks the kernel, and needs no list of interfaces.
    ours = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;  // at any free port
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return ours;
}

// Resolves one identity. The order matters: the rank is checked against the cluster, and the
// addresses and the device in the cluster file depend on the rank.
class Resolver {
 public:
  Resolver(Role role, const IdentityFlags& flags) : role_(role), flags_(flags) {}

  absl::StatusOr<Identity> Run() {
    SLUICE_RETURN_IF_ERROR(CheckEnvironment(absl::StrCat("sluice-", RoleName(role_))));
    SLUICE_RETURN_IF_ERROR(CheckRole(role_));
    // Before any address is looked at: it decides which are allowed.
    SLUICE_ASSIGN_OR_RETURN(insecure_, Switch(flags_.insecure, "SLUICE_INSECURE"));
    if (role_ == ROLE_SCHEDULER) {
      SLUICE_ASSIGN_OR_RETURN(id_.standby, Switch(flags_.standby, "SLUICE_STANDBY"));
      id_.etcd_compact = flags_.etcd_compact;
      TlsFiles etcd;
      Override(flags_.etcd.ca, "--etcd_ca", "SLUICE_ETCD_CA", &etcd.ca);
      Override(flags_.etcd.cert, "--etcd_cert", "SLUICE_ETCD_CERT", &etcd.cert);
      Override(flags_.etcd.key, "--etcd_key", "SLUICE_ETCD_KEY", &etcd.key);
      SLUICE_ASSIGN_OR_RETURN(id_.etcd_credentials, ServiceCredentials::Create(etcd, "etcd_"));
    }
    id_.role = role_;
    SLUICE_RETURN_IF_ERROR(Cluster());
    SLUICE_RETURN_IF_ERROR(Rank());
    SLUICE_RETURN_IF_ERROR(CheckCertificate());
    SLUICE_RETURN_IF_ERROR(Scheduler());
    if (role_ != ROLE_WORKER) SLUICE_RETURN_IF_ERROR(Bind());
    if (role_ == ROLE_WORKER) SLUICE_RETURN_IF_ERROR(Device());
    if (role_ != ROLE_SCHEDULER) SLUICE_RETURN_IF_ERROR(Transport());
    const Setting admin = FlagOrVariable(flags_.admin_bind, "--admin_bind", "SLUICE_ADMIN_BIND");
    id_.admin_bind = admin.value.empty() ? "127.0.0.1:0" : admin.value;
    SLUICE_RETURN_IF_ERROR(CheckBind({id_.admin_bind, admin.origin}).status());
    id_.log_dir = FlagOrVariable(flags_.log_dir, "--log_dir", "SLUICE_LOG_DIR").value;
    if (id_.log_dir.empty()) id_.log_dir = "log";
    return std::move(id_);
  }

 private:
  absl::Status Cluster() {
    file_ = FlagOrVariable(flags_.cluster_file, "--cluster", "SLUICE_CLUSTER").value;
    if (!file_.empty()) {
      auto cluster = ReadClusterConfig(file_);
      // INVALID_ARGUMENT even for a missing file: starting again would not help (ExitCodeOf).
      if (!cluster.ok()) return absl::InvalidArgumentError(cluster.status().message());
      id_.cluster = *std::move(cluster);
      id_.cluster_file = file_;
    }
    SecurityConfig* const security = id_.cluster.mutable_security();
    if (insecure_) security->set_insecure(true);
    insecure_ = security->insecure();
    Override(flags_.tls.cert, "--tls_cert", "SLUICE_TLS_CERT", security->mutable_tls_cert());
    Override(flags_.tls.key, "--tls_key", "SLUICE_TLS_KEY", security->mutable_tls_key());
    Override(flags_.tls.ca, "--tls_ca", "SLUICE_TLS_CA", security->mutable_tls_ca());
    OverrideList(flags_.data_root, "--data_root", "SLUICE_DATA_ROOT",
                 security->mutable_data_root());
    OverrideList(flags_.output_root, "--output_root", "SLUICE_OUTPUT_ROOT",
                 security->mutable_output_root());
    id_.tls = {security->tls_cert(), security->tls_key(), security->tls_ca()};
    // Reads the files now: a wrong certificate ends the process at its start, and not a job at its
    // first call.
    SLUICE_ASSIGN_OR_RETURN(id_.credentials, GrpcCredentials::Create(id_.tls));
    SLUICE_ASSIGN_OR_RETURN(const bool any_local_user,
                            Switch(flags_.any_local_user, "SLUICE_ANY_LOCAL_USER"));
    if (any_local_user) security->set_any_local_user(true);
    if (security->any_local_user()) id_.credentials.ServeAnyLocalUser();
    id_.cluster = WithDefaults(std::move(id_.cluster));
    const absl::Status status = ValidateClusterConfig(id_.cluster);
    if (status.ok()) return status;
    // The status holds one problem per line; each line gets the file's name.
    const std::string each = absl::StrCat("\n", file_, ": ");
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ": ", absl::StrReplaceAll(status.message(), {{"\n", each}})));
  }

  absl::Status CheckCertificate() const {
    const PeerRole role = role_ == ROLE_SCHEDULER ? PeerRole::kScheduler
                          : role_ == ROLE_PSERVER ? PeerRole::kPserver
                                                  : PeerRole::kWorker;
    const absl::Status fits = CheckPeer(id_.credentials.self(), role, id_.rank);
    return fits.ok() ? fits : Prefixed("--tls_cert", fits);
  }

  // The rank whose host in the file is this one. Without such a host it is 0 if there is only one
  // slot. Nothing when the host occurs more than once, or the rank stays unknown.
  std::optional<uint32_t> RankByHostName() const {
    const std::string host = HostName();
    std::vector<std::string> hosts(id_.cluster.worker_hosts().begin(),
                                   id_.cluster.worker_hosts().end());
    uint32_t slots = id_.cluster.worker_num();
    if (role_ == ROLE_PSERVER) {
      hosts.clear();
      for (const std::string& address : id_.cluster.pservers())
        hosts.push_back(ParseAddress(address)->host);
      slots = hosts.size();
    }
    std::optional<uint32_t> rank;
    for (uint32_t i = 0; i < hosts.size(); ++i) {
      if (hosts[i] != host) continue;
      // Two slots on this host: guessing would start the same rank twice.
      if (rank.has_value()) return std::nullopt;
      rank = i;
    }
    if (!rank.has_value() && slots == 1) rank = 0;
    return rank;
  }

  absl::Status Rank() {
    if (role_ == ROLE_SCHEDULER) return absl::OkStatus();  // one leads, whichever it is
    const Setting setting =
        FlagOrVariable(flags_.rank >= 0 ? absl::StrCat(flags_.rank) : "", "--rank", "SLUICE_RANK");
    if (!setting.value.empty()) {
      if (!absl::SimpleAtoi(setting.value, &id_.rank)) {
        return absl::InvalidArgumentError(
            absl::StrCat(setting.origin, ": '", setting.value, "' is not a rank; give 0, 1, ..."));
      }
    } else {
      const auto rank = RankByHostName();
      if (!rank.has_value()) {
        const std::string why = file_.empty() ? ""
                                              : absl::StrCat(": ", file_, " does not name host ",
                                                             HostName(), " exactly once");
        return absl::InvalidArgumentError(absl::StrCat("the rank of this ", RoleName(role_),
                                                       " is not known", why,
                                                       "; give --rank=N or SLUICE_RANK"));
      }
      id_.rank = *rank;
    }
    const uint32_t slots =
        role_ == ROLE_PSERVER ? id_.cluster.pservers_size() : id_.cluster.worker_num();
    // Without a cluster file the number of ranks is unknown, so any rank is possible.
    if (id_.rank < slots || file_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        setting.origin, ": rank ", id_.rank, " does not exist: the cluster has ", slots, " ",
        RoleName(role_), slots == 1 ? "" : "s", "; give a smaller rank, or add one to ", file_));
  }

  absl::Status Scheduler() {
    Setting setting = FlagOrVariable(flags_.scheduler, "--scheduler", "SLUICE_SCHEDULER");
    if (setting.value.empty())
      setting = {id_.cluster.scheduler(), absl::StrCat("scheduler of ", file_)};
    if (setting.value.empty()) {
      if (role_ == ROLE_SCHEDULER) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "the scheduler's address is not known; give --scheduler=HOST:PORT, SLUICE_SCHEDULER, or "
          "a --cluster file");
    }
    const auto addresses = ParseAddressList(setting.value);
    if (!addresses.ok()) return Prefixed(setting.origin, addresses.status());
    if (addresses->front().port == 0 && role_ != ROLE_SCHEDULER) {
      return absl::InvalidArgumentError(
          absl::StrCat(setting.origin, ": '", setting.value,
                       "' has no port; give the port that the scheduler listens on"));
    }
    if (role_ != ROLE_SCHEDULER) SLUICE_RETURN_IF_ERROR(CheckOutgoing(setting, *addresses));
    schedulers_ = *addresses;
    schedulers_origin_ = setting.origin;
    id_.scheduler = setting.value;
    id_.cluster.set_scheduler(setting.value);
    return absl::OkStatus();
  }

  // Someone on the way could act as the scheduler, and its orders name files and programs' options.
  absl::Status CheckOutgoing(const Setting& setting, const std::vector<Address>& addresses) const {
    if (insecure_ || id_.credentials.tls() || AllLoopback(addresses)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        setting.origin, ": '", setting.value,
        "' is not a loopback address, and this process has no TLS with which to recognize the "
        "scheduler",
        kHowToAllow));
  }

  absl::StatusOr<Address> CheckBind(const Setting& setting) const {
    const auto address = ParseAddress(setting.value);
    if (!address.ok()) return Prefixed(setting.origin, address.status());
    if (!insecure_ && !id_.credentials.tls() && !IsLoopback(address->host)) {
      return absl::InvalidArgumentError(absl::StrCat(
          setting.origin, ": '", setting.value,
          "' is not a loopback address, and connections to it have no TLS", kHowToAllow));
    }
    return address;
  }

  // The address that the file gives for this process; "" when it gives none. `bind`: the address
  // that its flag or variable gives; "" when they give none.
  absl::StatusOr<std::string> AddressOfFile(const std::string& bind) const {
    if (role_ == ROLE_PSERVER)
      return id_.rank < id_.cluster.pservers_size() ? id_.cluster.pservers(id_.rank) : "";
    if (schedulers_.size() < 2) return id_.cluster.scheduler();
    const auto listens_at = ParseAddress(bind);
    std::vector<std::string> here;
    for (const Address& address : schedulers_) {
      const std::string text = ToText(address);
      if (listens_at.ok() && ToText(*listens_at) == text) return text;
      // Several schedulers of one host differ in their ports.
      if (listens_at.ok() && listens_at->port != address.port) continue;
      if (IsThisHost(address.host)) here.push_back(text);
    }
    if (here.size() == 1) return here[0];
    if (!bind.empty()) return "";
    return absl::InvalidArgumentError(
        absl::StrCat(schedulers_origin_, ": '", id_.cluster.scheduler(), "' names this host (",
                     HostName(), ") ", here.empty() ? "not at all" : "more than once",
                     "; give --bind=HOST:PORT (SLUICE_BIND) with one of these addresses"));
  }

  absl::Status Bind() {
    Setting bind = FlagOrVariable(flags_.bind, "--bind", "SLUICE_BIND");
    SLUICE_ASSIGN_OR_RETURN(const std::string own, AddressOfFile(bind.value));
    if (bind.value.empty()) bind = {own, absl::StrCat("address in ", file_)};
    if (bind.value.empty()) bind = {"127.0.0.1:0", "default"};
    SLUICE_RETURN_IF_ERROR(CheckBind(bind).status());
    id_.bind = bind.value;

    Setting advertise = FlagOrVariable(flags_.advertise, "--advertise", "SLUICE_ADVERTISE");
    if (advertise.value.empty()) advertise = {own, absl::StrCat("address in ", file_)};
    if (advertise.value.empty()) advertise = bind;
    const auto advertised = ParseAddress(advertise.value);
    if (!advertised.ok()) return Prefixed(advertise.origin, advertised.status());
    if (advertised->host == "0.0.0.0" || advertised->host == "::") {
      return absl::InvalidArgumentError(
          absl::StrCat(advertise.origin, ": '", advertise.value,
                       "' means all interfaces, so nobody can connect "
                       "to it; give --advertise=HOST:PORT (SLUICE_ADVERTISE)"));
    }
    // With port 0 the real port is known only once it is bound.
    id_.advertise = advertised->port == 0 ? "" : advertise.value;
    return absl::OkStatus();
  }

  absl::Status Device() {
    Setting device = FlagOrVariable(flags_.device, "--device", "SLUICE_DEVICE");
    const char* says = "=";
    if (device.value.empty() && id_.rank < id_.cluster.worker_devices_size()) {
      device = {id_.cluster.worker_devices(id_.rank),
                absl::StrCat("worker_devices[", id_.rank, "] of ", file_)};
      says = " is ";
    }
    if (device.value.empty()) return absl::OkStatus();
    const auto request = ParseDeviceRequest(device.value);
    if (!request.ok()) return Prefixed(device.origin, request.status());
    id_.device = *request;
    id_.device.origin = absl::StrCat(device.origin, says, device.value);
    return absl::OkStatus();
  }

  absl::Status Transport() {
    Setting setting = FlagOrVariable(flags_.transport, "--transport", "SLUICE_TRANSPORT");
    if (setting.value.empty())
      setting = {id_.cluster.transport(), absl::StrCat("transport of ", file_)};
    if (setting.value.empty()) return absl::OkStatus();
    const auto choice = ParseTransportChoice(setting.value);
    if (!choice.ok()) return Prefixed(setting.origin, choice.status());
    id_.transport = *choice;
    return absl::OkStatus();
  }

  static absl::Status Prefixed(const std::string& origin, const absl::Status& status) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", status.message()));
  }

  const Role role_;
  const IdentityFlags& flags_;
  std::string file_;
  bool insecure_ = false;
  std::vector<Address> schedulers_;  // none: their addresses are not known
  std::string schedulers_origin_;
  Identity id_;
};

}  // namespace

absl::StatusOr<Identity> ResolveIdentity(Role role, const IdentityFlags& flags) {
  return Resolver(role, flags).Run();
}

absl::StatusOr<std::unique_ptr<Env>> ConfinedEnv(const Identity& identity, Env* base) {
  const SecurityConfig& security = identity.cluster.security();
  if (security.data_root().empty() && security.output_root().empty()) return nullptr;
  RootedEnv::Roots roots;
  roots.data.assign(security.data_root().begin(), security.data_root().end());
  roots.output.assign(security.output_root().begin(), security.output_root().end());
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<RootedEnv> env, RootedEnv::Create(base, roots));
  ConfineRedirects(env->url_roots());
  return env;
}

std::string WebDataProblem(const Identity& identity) {
  const SecurityConfig& security = identity.cluster.security();
  if (!security.data_root().empty() || !security.output_root().empty()) return "";
  // A worker need not listen; then jobs reach it through the scheduler.
  for (const std::string& addresses : {identity.bind, identity.scheduler}) {
    const auto at = ParseAddressList(addresses);
    // One that cannot be read may be any.
    if (addresses.empty() || (at.ok() && AllLoopback(*at))) continue;
    return absl::StrCat("this worker belongs to a cluster that others may reach (", addresses,
                        "), and reads no data from web servers unless data roots say which; give "
                        "--output_root=FOLDER and --data_root=https://HOST/...");
  }
  return "";
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  // Supervisors start a process again on 1 and leave it alone on 2 (deploy/).
  const bool the_same_again = absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
                              absl::IsAborted(status) || absl::IsAlreadyExists(status) ||
                              absl::IsPermissionDenied(status);
  return the_same_again ? 2 : 1;
}

RegisterRequest RegistrationOf(const Identity& identity, const std::string& admin_address) {
  RegisterRequest self;
  self.set_protocol(1);
  self.set_role(identity.role);
  self.set_rank(identity.rank);
  self.set_address(identity.advertise);
  self.set_host(HostName());
  self.set_pid(getpid());
  self.set_life(RandomId());
  self.set_process_space(ProcessSpace());
  self.set_admin_address(admin_address);
  self.set_log_file(absl::StrCat(identity.log_dir, "/", LogFileName(identity.role, identity.rank)));
  return self;
}

std::string LogFileName(Role role, uint32_t rank) {
  return absl::StrCat(FileStem(role), "log.", rank);
}

std::string AuditFileName(Role role, uint32_t rank) {
  return absl::StrCat(FileStem(role), "audit.", rank);
}

}  // namespace sluice
