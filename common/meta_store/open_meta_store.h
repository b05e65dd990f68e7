// Opens the store that a text names: the choice of the engine.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/meta_store/meta_store.h"
#include "common/security/grpc_credentials.h"

namespace sluice {

// `spec` is one of
//   rocksdb:DIR                            a folder of this host; made when missing
//   etcd:HOST:PORT[,HOST:PORT...]/PREFIX   etcd's endpoints, and a prefix of this cluster's own
//
// `leader`: the name of the opener among the schedulers that share the store, and how long it leads
// without a sign of life. Stores that are not shared ignore it. `env` and `clock` outlive the
// store.
//
// INVALID_ARGUMENT: no such spec, or see EtcdAccess. Otherwise the errors of
// RocksdbMetaStore::Open. The etcd engine does not connect here, but in its first call.
struct LeaderName {
  std::string name;  // "": it does not say that it leads
  absl::Duration lease = absl::Seconds(10);
};
// How etcd is reached. The store holds the key of all passes and the records of all jobs, so
// OpenMetaStore refuses other endpoints than loopback without TLS, unless `allow_plain`.
struct EtcdAccess {
  ServiceCredentials credentials;
  bool allow_plain = false;
  bool compact = false;                         // EtcdMetaStore::Options::compact
  std::function<void(const std::string&)> log;  // as there
};
absl::StatusOr<std::unique_ptr<MetaStore>> OpenMetaStore(const std::string& spec, Env* env,
                                                         Clock* clock,
                                                         const LeaderName& leader = {},
                                                         const EtcdAccess& etcd = {});

// True when schedulers on several hosts can use the store that `spec` names.
bool IsSharedMetaStore(const std::string& spec);

}  // namespace sluice
