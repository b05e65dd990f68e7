#include "common/config/device_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr int kMaxOrdinal = 1023;

// Returns false unless `text` is a number from 0 to kMaxOrdinal.
bool ParseOrdinal(absl::string_view text, int* ordinal) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, ordinal) && *ordinal <= kMaxOrdinal;
}

}  // namespace

absl::StatusOr<DeviceRequest> ParseDeviceRequest(absl::string_view text) {
  DeviceRequest request;
  if (text == "cpu") return request;
  request.kind = DeviceRequest::kAuto;
  if (text == "auto") return request;
  request.kind = DeviceRequest::kNextCuda;
  if (text == "cuda") return request;
  request.kind = DeviceRequest::kCuda;
  absl::string_view ordinal = text;
  if (absl::ConsumePrefix(&ordinal, "cuda:") && ParseOrdinal(ordinal, &request.ordinal)) {
    return request;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is not a device; give cpu, cuda (the next free one), cuda:N or auto"));
}

absl::StatusOr<std::vector<int>> ParseDeviceList(absl::string_view text) {
  std::vector<int> list;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int ordinal = 0;
    if (!ParseOrdinal(part, &ordinal)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part,
          "' is not a device number; number the devices that CUDA_VISIBLE_DEVICES shows, "
          "e.g. 0,1 (CUDA_DEVICE_ORDER=PCI_BUS_ID gives them the order of nvidia-smi)"));
    }
    // Two workers on one GPU would share its memory without knowing it.
    if (std::count(list.begin(), list.end(), ordinal) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", ordinal,
                       " is given twice; list each device once, since it serves one worker"));
    }
    list.push_back(ordinal);
  }
  return list;
}

}  // namespace sluice
