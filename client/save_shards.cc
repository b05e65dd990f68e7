#include "client/save_shards.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/table/placement.h"

namespace sluice {
namespace {

// Writing a model may take longer than a pull.
constexpr absl::Duration kSaveTimeout = absl::Minutes(10);

absl::StatusOr<SaveShardsReply> SaveAt(Transport* transport, const PserverAddress& to,
                                       const SaveShardsRequest& request) {
  auto answer =
      transport->Call(to, "/sluice.Pserver/SaveShards", request.SerializeAsString(), kSaveTimeout);
  if (!answer.ok()) {
    return absl::Status(answer.status().code(),
                        absl::StrCat("pserver at ", to.address, " cannot save its shards in ",
                                     request.directory(), ": ", answer.status().message()));
  }
  SaveShardsReply reply;
  if (!reply.ParseFromString(*answer)) {
    return absl::InternalError(
        absl::StrCat("pserver at ", to.address, " answered SaveShards with malformed bytes"));
  }
  return reply;
}

}  // namespace

absl::StatusOr<std::vector<SavedFile>> SaveShardsOnce(Transport* transport, const Route& route,
                                                      SaveShardsRequest request) {
  request.set_generation(route.generation());
  std::vector<uint32_t> owners;
  for (const TableRoute& table : route.tables()) {
    owners.insert(owners.end(), table.owner().begin(), table.owner().end());
  }
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  std::vector<absl::StatusOr<SaveShardsReply>> replies(owners.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < owners.size(); ++i) {
    threads.emplace_back(
        [&, i] { replies[i] = SaveAt(transport, PserverAt(route, owners[i]), request); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<SavedFile> files;
  for (const auto& reply : replies) {
    SLUICE_RETURN_IF_ERROR(reply.status());
    files.insert(files.end(), reply->files().begin(), reply->files().end());
  }
  std::sort(files.begin(), files.end(),
            [](const SavedFile& a, const SavedFile& b) { return a.name() < b.name(); });
  return files;
}

}  // namespace sluice
