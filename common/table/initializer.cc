#include "common/table/initializer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"

namespace sluice {
namespace {

constexpr double kTwoPi = 6.28318530717958647692;

void FillUniform(double min, double max, uint64_t stream, uint64_t first, size_t n, float* out) {
  const double width = max - min;
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(min + width * HashToUnit(CombineHash(stream, first + i)));
  }
}

// Box and Muller's method. Each position draws its own pair of uniform numbers and uses only the
// cosine, so that a value never depends on its neighbour.
void FillNormal(double mean, double stddev, uint64_t stream, uint64_t first, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t h = CombineHash(stream, first + i);
    const double u =
        static_cast<double>((h >> 11) + 1) * 0x1p-53;  // (0, 1]: the logarithm is finite
    const double angle = kTwoPi * (static_cast<double>(CombineHash(h, 1) >> 11) * 0x1p-53);
    out[i] = static_cast<float>(mean + stddev * std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
}

void FillSymmetric(double bound, uint64_t stream, uint64_t first, size_t n, float* out) {
  FillUniform(-bound, bound, stream, first, n, out);
}

absl::Status Refuse(absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("initializer.", message));
}

}  // namespace

absl::Status ValidateInitializer(const Initializer& initializer) {
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      if (!std::isfinite(initializer.constant())) {
        return Refuse(absl::StrCat("constant must be finite; it is ", initializer.constant()));
      }
      break;
    case Initializer::kUniform: {
      const auto& u = initializer.uniform();
      if (!std::isfinite(u.min()) || !std::isfinite(u.max()) || u.min() > u.max()) {
        return Refuse(absl::StrCat("uniform needs finite min <= max; min is ", u.min(), ", max is ",
                                   u.max()));
      }
      break;
    }
    case Initializer::kNormal: {
      const auto& normal = initializer.normal();
      if (!std::isfinite(normal.mean()) || !std::isfinite(normal.stddev()) || normal.stddev() < 0) {
        return Refuse(absl::StrCat("normal needs a finite mean and stddev >= 0; mean is ",
                                   normal.mean(), ", stddev is ", normal.stddev()));
      }
      break;
    }
    case Initializer::kHeUniform:
      if (initializer.he_uniform().fan_in() == 0)
        return Refuse("he_uniform.fan_in must be at least 1");
      break;
    case Initializer::kLecunUniform:
      if (initializer.lecun_uniform().fan_in() == 0)
        return Refuse("lecun_uniform.fan_in must be at least 1");
      break;
    case Initializer::KIND_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void FillInitial(const Initializer& initializer, uint64_t stream, uint64_t first, size_t n,
                 float* out) {
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      std::fill_n(out, n, initializer.constant());
      return;
    case Initializer::kUniform:
      FillUniform(initializer.uniform().min(), initializer.uniform().max(), stream, first, n, out);
      return;
    case Initializer::kNormal:
      FillNormal(initializer.normal().mean(), initializer.normal().stddev(), stream, first, n, out);
      return;
    case Initializer::kHeUniform:
      FillSymmetric(std::sqrt(6.0 / initializer.he_uniform().fan_in()), stream, first, n, out);
      return;
    case Initializer::kLecunUniform:
      FillSymmetric(std::sqrt(1.0 / initializer.lecun_uniform().fan_in()), stream, first, n, out);
      return;
    case Initializer::KIND_NOT_SET:
      std::fill_n(out, n, 0.0f);
      return;
  }
}

}  // namespace sluice
