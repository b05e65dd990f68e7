#include "common/config/transport_choice.h"

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<TransportChoice> ParseTransportChoice(absl::string_view text) {
  if (text == "auto") return TransportChoice::kAuto;
  if (text == "grpc") return TransportChoice::kGrpc;
  if (text == "shm") return TransportChoice::kShm;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a transport; give auto, grpc or shm"));
}

}  // namespace sluice
