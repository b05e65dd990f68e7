#include "model/eval/eval_accumulator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/net/log_loss.h"

namespace sluice {
namespace {

constexpr uint32_t kBins = WeightBins::kBins;
constexpr double kWeightUnit = 0x1p-20, kErrorUnit = 0x1p-32;
constexpr double kMaxWeight = 0x1p30, kMaxError = 0x1p20;

uint64_t ToFixed(double value, double unit) {
  return static_cast<uint64_t>(std::llround(value / unit));
}

void SetWide(absl::uint128 value, EvalSums::Wide* wide) {
  wide->set_high(absl::Uint128High64(value));
  wide->set_low(absl::Uint128Low64(value));
}

absl::uint128 GetWide(const EvalSums::Wide& wide) {
  return absl::MakeUint128(wide.high(), wide.low());
}

using Deltas = google::protobuf::RepeatedField<uint32_t>;
using Weights = google::protobuf::RepeatedField<uint64_t>;

void WriteBins(const WeightBins& bins, uint64_t WeightBins::Weights::*label, Deltas* deltas,
               Weights* weights) {
  uint32_t last = 0;
  bins.ForEach([&](uint32_t bin, const WeightBins::Weights& both) {
    if (both.*label == 0) return;
    // Distances between bins are small numbers, which take fewer bytes in the message.
    deltas->Add(bin - last);
    weights->Add(both.*label);
    last = bin;
  });
}

absl::Status CheckBins(const char* name, const Deltas& deltas, const Weights& weights) {
  if (deltas.size() != weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation sums: ", deltas.size(), " ", name, " bins with ", weights.size(),
                     " weights; the sender is corrupt or has another version"));
  }
  uint64_t bin = 0;
  for (int i = 0; i < deltas.size(); ++i) {
    // In 64 bits: the sum of deltas from a peer cannot wrap around below the bound.
    bin += deltas[i];
    if ((i > 0 && deltas[i] == 0) || bin >= kBins) {
      return absl::InvalidArgumentError(absl::StrCat(
          "evaluation sums: ", name, " bin ", bin, " at index ", i, " is repeated or not below ",
          kBins, "; the sender is corrupt or has another version"));
    }
  }
  return absl::OkStatus();
}

void AddBins(const Deltas& deltas, const Weights& weights, uint64_t WeightBins::Weights::*label,
             WeightBins* bins) {
  uint32_t bin = 0;
  for (int i = 0; i < deltas.size(); ++i) bins->At(bin += deltas[i]).*label += weights[i];
}

// The standard error of an AUC that was computed from this many examples of each class.
double StandardError(double auc, double positives, double negatives) {
  const double q1 = auc / (2 - auc), q2 = 2 * auc * auc / (1 + auc);
  const double variance =
      auc * (1 - auc) + (positives - 1) * (q1 - auc * auc) + (negatives - 1) * (q2 - auc * auc);
  return std::sqrt(std::max(variance, 0.0) / (positives * negatives));
}

bool HasNoWeight(const WeightBins::Weights& weights) {
  return weights.positive == 0 && weights.negative == 0;
}

}  // namespace

WeightBins::Weights& WeightBins::At(uint32_t bin) {
  if (!all_.empty()) return all_[bin];
  Weights& weights = few_[bin];
  if (few_.size() <= kFew) return weights;
  // More bins are likely to follow, and in a map each takes three times the memory.
  all_.resize(kBins);
  for (const auto& [at, kept] : few_) all_[at] = kept;
  few_ = {};
  return all_[bin];
}

void WeightBins::ForEach(absl::FunctionRef<void(uint32_t, const Weights&)> visit) const {
  for (uint32_t bin = 0; bin < all_.size(); ++bin) {
    if (!HasNoWeight(all_[bin])) visit(bin, all_[bin]);
  }
  // A map has no order, and the sums of two ranks must have the same bytes.
  std::vector<std::pair<uint32_t, Weights>> sorted(few_.begin(), few_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [bin, weights] : sorted) {
    if (!HasNoWeight(weights)) visit(bin, weights);
  }
}

void EvalAccumulator::Add(float logit, float label, float weight) {
  ++examples_;
  // A NaN has no place among the sums. It is counted, and then no metric is defined.
  if (std::isnan(logit)) {
    ++not_finite_;
    return;
  }
  if (!(weight > 0)) return;
  const uint64_t w = ToFixed(std::min<double>(weight, kMaxWeight), kWeightUnit);
  const double p = Sigmoid(logit), error = std::abs(p - label);
  const bool is_positive = label >= 0.5f;
  // The probability of a large logit rounds to 1, which belongs to the last bin.
  const uint32_t bin = std::min<uint32_t>(static_cast<uint32_t>(p * kBins), kBins - 1);
  WeightBins::Weights& both = bins_.At(bin);
  (is_positive ? both.positive : both.negative) += w;
  weight_ += w;
  if ((logit >= 0) == is_positive) correct_ += w;
  const auto times_weight = [w](double value) {
    return absl::uint128(w) * ToFixed(value, kErrorUnit);
  };
  log_loss_ += times_weight(std::min(LogLoss(logit, label), kMaxError));
  absolute_error_ += times_weight(error);
  squared_error_ += times_weight(error * error);
  probability_ += times_weight(p);
}

absl::Status EvalAccumulator::Merge(const EvalSums& sums) {
  // Check everything first, so that bad sums from a peer add nothing.
  SLUICE_RETURN_IF_ERROR(CheckBins("positive", sums.positive_bin_delta(), sums.positive_weight()));
  SLUICE_RETURN_IF_ERROR(CheckBins("negative", sums.negative_bin_delta(), sums.negative_weight()));
  AddBins(sums.positive_bin_delta(), sums.positive_weight(), &WeightBins::Weights::positive,
          &bins_);
  AddBins(sums.negative_bin_delta(), sums.negative_weight(), &WeightBins::Weights::negative,
          &bins_);
  examples_ += sums.examples();
  bad_lines_ += sums.bad_lines();
  not_finite_ += sums.not_finite();
  log_loss_ += GetWide(sums.log_loss());
  absolute_error_ += GetWide(sums.absolute_error());
  squared_error_ += GetWide(sums.squared_error());
  weight_ += GetWide(sums.weight());
  correct_ += GetWide(sums.correct());
  probability_ += GetWide(sums.probability());
  return absl::OkStatus();
}

EvalSums EvalAccumulator::ToProto() const {
  EvalSums sums;
  sums.set_examples(examples_);
  sums.set_bad_lines(bad_lines_);
  sums.set_not_finite(not_finite_);
  WriteBins(bins_, &WeightBins::Weights::positive, sums.mutable_positive_bin_delta(),
            sums.mutable_positive_weight());
  WriteBins(bins_, &WeightBins::Weights::negative, sums.mutable_negative_bin_delta(),
            sums.mutable_negative_weight());
  SetWide(log_loss_, sums.mutable_log_loss());
  SetWide(absolute_error_, sums.mutable_absolute_error());
  SetWide(squared_error_, sums.mutable_squared_error());
  SetWide(weight_, sums.mutable_weight());
  SetWide(correct_, sums.mutable_correct());
  SetWide(probability_, sums.mutable_probability());
  return sums;
}

// Counts the pairs (positive, negative) that are in the right order; a tie counts half. Pairs
// within a bin count as ties because their order is unknown. Half of them is the error bound.
void EvalAccumulator::Auc(EvalMetrics* metrics) const {
  absl::uint128 positives = 0, negatives = 0, below = 0, tied = 0;  // below, tied: weight x weight
  bins_.ForEach([&](uint32_t, const WeightBins::Weights& both) {
    below += both.positive * negatives;
    tied += absl::uint128(both.positive) * both.negative;
    positives += both.positive;
    negatives += both.negative;
  });
  if (positives == 0 || negatives == 0) {
    metrics->set_auc_undefined(absl::StrCat("no example has label ", positives == 0 ? 1 : 0));
    metrics->set_auc_error_bound(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const double positive = static_cast<double>(positives), negative = static_cast<double>(negatives);
  const double pairs = positive * negative;
  metrics->set_auc((static_cast<double>(below) + static_cast<double>(tied) / 2) / pairs);
  metrics->set_auc_error_bound(static_cast<double>(tied) / 2 / pairs);
  // The formula needs numbers of examples: each class counts in proportion to its weight.
  const double examples = static_cast<double>(examples_) / (positive + negative);
  metrics->set_auc_standard_error(
      StandardError(metrics->auc(), positive * examples, negative * examples));
}

const char* EvalAccumulator::WhyNone() const {
  if (examples_ == 0) return "no example was evaluated";
  if (not_finite_ > 0) return "the model scored an example as NaN";
  return weight_ == 0 ? "no example has a weight above 0" : "";
}

EvalMetrics EvalAccumulator::Metrics() const {
  EvalMetrics metrics;
  metrics.set_examples(examples_);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (const std::string why = WhyNone(); !why.empty()) {
    metrics.set_auc_undefined(why);
    metrics.set_auc_error_bound(nan), metrics.set_log_loss(nan), metrics.set_accuracy(nan);
    metrics.set_mae(nan), metrics.set_rmse(nan), metrics.set_calibration(nan);
    metrics.set_positive_rate(nan);
    return metrics;
  }
  Auc(&metrics);
  const double weight = static_cast<double>(weight_) * kWeightUnit;
  const auto mean = [weight](absl::uint128 sum) {
    return static_cast<double>(sum) * kWeightUnit * kErrorUnit / weight;
  };
  metrics.set_log_loss(mean(log_loss_));
  metrics.set_accuracy(static_cast<double>(correct_) / static_cast<double>(weight_));
  metrics.set_mae(mean(absolute_error_));
  metrics.set_rmse(std::sqrt(mean(squared_error_)));
  double labels = 0;  // mean label
  bins_.ForEach([&](uint32_t, const WeightBins::Weights& both) {
    labels += static_cast<double>(both.positive);
  });
  labels = labels * kWeightUnit / weight;
  metrics.set_positive_rate(labels);
  metrics.set_calibration(labels > 0 ? mean(probability_) / labels : nan);
  return metrics;
}

}  // namespace sluice
