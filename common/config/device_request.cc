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

// False: no number from 0 to kMaxOrdinal.
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
      "'", text, "' is no device; give cpu, cuda (the next free one), cuda:N or auto"));
}

absl::StatusOr<std::vector<int>> ParseDeviceList(absl::string_view text) {
  std::vector<int> list;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int ordinal = 0;
    if (!ParseOrdinal(part, &ordinal)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", part,
          "' is no device number; give numbers among the devices that CUDA_VISIBLE_DEVICES shows, "
          "e.g. 0,1 (with CUDA_DEVICE_ORDER=PCI_BUS_ID in the order of nvidia-smi)"));
    }
    if (std::count(list.begin(), list.end(), ordinal) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", ordinal, " is given twice; a device has one worker"));
    }
    list.push_back(ordinal);
  }
  return list;
}

}  // namespace sluice
