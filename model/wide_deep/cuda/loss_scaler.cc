#include "model/wide_deep/cuda/loss_scaler.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

std::string LossScaler::Save() const {
  // The scale is a power of two of at least 1, so it is a whole number.
  return absl::StrCat("loss_scale ", static_cast<uint64_t>(scale_), " ", good_, " ", overflows_,
                      " ", skipped_);
}

absl::Status LossScaler::Restore(const std::string& saved) {
  const std::vector<std::string> words = absl::StrSplit(saved, ' ');
  uint64_t scale = 0, skipped = 0;
  uint32_t good = 0, overflows = 0;
  const bool read = words.size() == 5 && words[0] == "loss_scale" &&
                    absl::SimpleAtoi(words[1], &scale) && absl::SimpleAtoi(words[2], &good) &&
                    absl::SimpleAtoi(words[3], &overflows) && absl::SimpleAtoi(words[4], &skipped);
  // From a file: an impossible scale would train with wrong gradients, without any error.
  if (!read || scale < kLowest || scale > kHighest || (scale & (scale - 1)) != 0 ||
      good >= kGoodSteps || overflows >= kOverflows) {
    return absl::InvalidArgumentError(
        "the checkpoint's state of the network is not a loss scale of fp16; resume with the "
        "compute_dtype of the job that made it");
  }
  scale_ = static_cast<double>(scale);
  good_ = good;
  overflows_ = overflows;
  skipped_ = skipped;
  hopeless_ = false;
  return absl::OkStatus();
}

}  // namespace sluice
