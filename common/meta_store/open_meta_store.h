// Opens the store that a text names: the choice of the engine.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/meta_store/meta_store.h"

namespace sluice {

// `spec` is one of
//   rocksdb:DIR                            a folder of this host; made when missing
//   etcd:HOST:PORT[,HOST:PORT...]/PREFIX   etcd's endpoints, and a prefix of this cluster's own
//
// INVALID_ARGUMENT: no such spec. Otherwise the errors of RocksdbMetaStore::Open. The etcd engine
// does not connect here, but in its first call.
absl::StatusOr<std::unique_ptr<MetaStore>> OpenMetaStore(const std::string& spec);

// True when schedulers on several hosts can use the store that `spec` names.
bool IsSharedMetaStore(const std::string& spec);

}  // namespace sluice
