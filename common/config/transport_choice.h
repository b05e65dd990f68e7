// How workers and pservers of one cluster reach each other: the value of --transport,
// SLUICE_TRANSPORT or `transport` of the cluster file.
//
// Thread safety: plain data.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

enum class TransportChoice {
  kAuto,  // shared memory where both run on one host, gRPC elsewhere
  kGrpc,
  kShm,  // shared memory, and an error where it cannot be used
};

// Parses "auto", "grpc" or "shm". INVALID_ARGUMENT lists these choices.
absl::StatusOr<TransportChoice> ParseTransportChoice(absl::string_view text);

}  // namespace sluice
