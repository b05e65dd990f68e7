#include "worker/data_plane.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

size_t MaxMessageBytes(const Identity& identity) {
  return size_t{identity.cluster.limits().max_message_mib()} << 20;
}

GrpcTransport::Options GrpcOptions(const Identity& identity) {
  GrpcTransport::Options options;
  options.max_message_bytes = MaxMessageBytes(identity);
  options.credentials = identity.credentials;
  return options;
}

}  // namespace

DataPlane::DataPlane(const Identity& identity, std::function<void(const std::string&)> log)
    : grpc_(GrpcOptions(identity)) {
  if (identity.transport == TransportChoice::kGrpc) return;
  ShmTransport::Options options;
  options.control = &grpc_;
  if (identity.transport == TransportChoice::kAuto) options.fallback = &grpc_;
  options.max_message_bytes = MaxMessageBytes(identity);
  options.on_choice = [log = std::move(log)](const std::string& address,
                                             const absl::Status& why_not) {
    log(why_not.ok() ? absl::StrCat("pserver ", address, ": through shared memory")
                     : absl::StrCat("pserver ", address,
                                    ": over gRPC, not through shared memory: ", why_not.message()));
  };
  shm_ = std::make_unique<ShmTransport>(std::move(options));
}

Transport* DataPlane::transport() {
  return shm_ != nullptr ? static_cast<Transport*>(shm_.get()) : &grpc_;
}

}  // namespace sluice
