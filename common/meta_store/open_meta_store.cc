#include "common/meta_store/open_meta_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/meta_store/etcd_meta_store.h"
#include "common/meta_store/rocksdb_meta_store.h"

namespace sluice {
namespace {

// Less than members wait for the answer to a call (SchedulerClient), also with an endpoint or two
// that do not answer.
constexpr absl::Duration kCommitPatience = absl::Seconds(3);

absl::Status BadSpec(const std::string& spec, absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat("state store '", spec, "': ", problem,
                   "; give rocksdb:DIR, or etcd:HOST:PORT[,HOST:PORT...]/PREFIX"));
}

absl::StatusOr<std::unique_ptr<MetaStore>> OpenEtcd(const std::string& spec, absl::string_view text,
                                                    Clock* clock, const LeaderName& leader,
                                                    const EtcdAccess& access) {
  const size_t slash = text.find('/');
  if (slash == absl::string_view::npos) {
    return BadSpec(spec, "a prefix for this cluster's keys is missing");
  }
  EtcdMetaStore::Options options;
  options.client.clock = clock;
  options.client.credentials = access.credentials;
  options.commit_patience = kCommitPatience;
  options.compact = access.compact;
  options.log = access.log;
  options.name = leader.name;
  options.lease = leader.lease;
  options.prefix = std::string(text.substr(slash + 1));
  // An empty or odd prefix could make two clusters share keys.
  if (!EtcdMetaStore::IsValidPrefix(options.prefix)) {
    return BadSpec(spec, absl::StrCat("the prefix '", options.prefix,
                                      "' is not made of words of "
                                      "letters, digits, '.', '_' and '-' joined by '/', at most ",
                                      EtcdMetaStore::kMaxPrefixBytes, " bytes in all"));
  }
  for (const absl::string_view endpoint : absl::StrSplit(text.substr(0, slash), ',')) {
    const absl::StatusOr<Address> address = ParseAddress(std::string(endpoint));
    if (!address.ok()) return BadSpec(spec, address.status().message());
    if (address->port == 0) return BadSpec(spec, absl::StrCat("'", endpoint, "' has port 0"));
    if (!access.credentials.tls() && !access.allow_plain && !IsLoopback(address->host)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state store '", spec, "': '", endpoint,
          "' is not a loopback address, and without TLS others can read and change the key and the "
          "jobs that are kept there; give --etcd_ca, and --etcd_cert and --etcd_key if etcd wants "
          "a certificate (SLUICE_ETCD_CA, ...), or, on a network that you trust, --insecure"));
    }
    options.client.endpoints.push_back(ToText(*address));
  }
  return std::make_unique<EtcdMetaStore>(std::move(options));
}

}  // namespace

bool IsSharedMetaStore(const std::string& spec) { return absl::StartsWith(spec, "etcd:"); }

absl::StatusOr<std::unique_ptr<MetaStore>> OpenMetaStore(const std::string& spec, Env* env,
                                                         Clock* clock, const LeaderName& leader,
                                                         const EtcdAccess& etcd) {
  absl::string_view text = spec;
  if (absl::ConsumePrefix(&text, "etcd:")) return OpenEtcd(spec, text, clock, leader, etcd);
  if (!absl::ConsumePrefix(&text, "rocksdb:")) return BadSpec(spec, "it names no known engine");
  if (text.empty()) return BadSpec(spec, "the folder is missing");
  return RocksdbMetaStore::Open(env, std::string(text));
}

}  // namespace sluice
