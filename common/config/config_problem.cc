#include "common/config/config_problem.h"

#include <cmath>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kPayload[] = "sluice/field";

}  // namespace

void AddIfOutOfRange(const std::string& path, uint64_t value, uint64_t low, uint64_t high,
                     std::vector<ConfigProblem>* problems) {
  if (value >= low && value <= high) return;
  problems->push_back({path, absl::StrCat(value, " is out of range; give ", low, " to ", high)});
}

void AddInitializerProblems(const std::string& path, const Initializer& initializer,
                            std::vector<ConfigProblem>* problems) {
  if (initializer.has_constant() && !std::isfinite(initializer.constant())) {
    problems->push_back({path + ".constant", "is not a finite number; give one"});
  }
  const Initializer::Uniform& uniform = initializer.uniform();
  if (initializer.has_uniform() && !(std::isfinite(uniform.min()) && std::isfinite(uniform.max()) &&
                                     uniform.min() <= uniform.max())) {
    problems->push_back({path + ".uniform", absl::StrCat(uniform.min(), " to ", uniform.max(),
                                                         " is not an interval; give finite min <= "
                                                         "max")});
  }
  const Initializer::Normal& normal = initializer.normal();
  if (initializer.has_normal() &&
      !(std::isfinite(normal.mean()) && std::isfinite(normal.stddev()) && normal.stddev() >= 0)) {
    problems->push_back(
        {path + ".normal", absl::StrCat("stddev ", normal.stddev(),
                                        " is impossible; give a finite mean and a finite stddev "
                                        ">= 0")});
  }
  const auto check_fan_in = [&](bool has, const char* kind, const Initializer::FanIn& fan) {
    if (!has || fan.fan_in() > 0) return;
    problems->push_back({absl::StrCat(path, ".", kind),
                         absl::StrCat("fan_in is 0; give the number of inputs, e.g. ", kind,
                                      " { fan_in: 64 }")});
  };
  check_fan_in(initializer.has_he_uniform(), "he_uniform", initializer.he_uniform());
  check_fan_in(initializer.has_lecun_uniform(), "lecun_uniform", initializer.lecun_uniform());
}

absl::Status AtField(const std::string& path, absl::Status status) {
  // The first path comes from the innermost call and is the most exact one, so it is kept.
  if (!status.ok() && !status.GetPayload(kPayload).has_value())
    status.SetPayload(kPayload, absl::Cord(path));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  const auto path = status.GetPayload(kPayload);
  return path.has_value() ? std::string(*path) : "";
}

}  // namespace sluice
