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
// Weights in bins of 64 and of 128 bits, and loss and errors.
constexpr double kCoarseUnit = 0x1p-20, kWeightUnit = 0x1p-60, kErrorUnit = 0x1p-32;
constexpr int kFiner = 40;  // bits by which kWeightUnit is finer than kCoarseUnit
constexpr double kMaxWeight = 0x1p40, kMaxError = 0x1p20;
constexpr uint64_t kMaxCoarse = uint64_t{1} << 62;  // of all weights together, in kCoarseUnit

uint64_t ToFixed(double value, double unit) {
  return static_cast<uint64_t>(std::llround(value / unit));
}

bool IsCoarse(absl::uint128 weight) { return (absl::Uint128Low64(weight) << (64 - kFiner)) == 0; }

// The sum divided by 2^kFiner, without the upper 64 bits.
absl::uint128 Coarser(const WideSum& sum) {
  return (absl::MakeUint128(sum.high, sum.low) >> kFiner) +
         (absl::uint128(sum.highest) << (128 - kFiner));
}

void SetWide(const WideSum& value, bool fine, EvalSums::Wide* wide) {
  if (!fine) {
    const absl::uint128 coarse = Coarser(value);
    wide->set_high(absl::Uint128High64(coarse));
    wide->set_low(absl::Uint128Low64(coarse));
    return;
  }
  wide->set_highest(value.highest);
  wide->set_high(value.high);
  wide->set_low(value.low);
}

WideSum GetWide(const EvalSums::Wide& wide, bool fine) {
  if (fine) return {wide.low(), wide.high(), wide.highest()};
  WideSum sum;
  sum.AddProduct(absl::MakeUint128(wide.high(), wide.low()), uint64_t{1} << kFiner);
  return sum;
}

using Deltas = google::protobuf::RepeatedField<uint32_t>;
using Weights = google::protobuf::RepeatedField<uint64_t>;

uint64_t LowWord(uint64_t weight) { return weight; }
uint64_t LowWord(absl::uint128 weight) { return absl::Uint128Low64(weight); }
uint64_t HighWord(uint64_t) { return 0; }
uint64_t HighWord(absl::uint128 weight) { return absl::Uint128High64(weight); }

// `high` is null for sums of 64 bits.
template <typename Sum>
void WriteBins(const BinSums<Sum>& bins, Sum BinSums<Sum>::Weights::*label, Deltas* deltas,
               Weights* weights, Weights* high) {
  uint32_t last = 0;
  bins.ForEach([&](uint32_t bin, const typename BinSums<Sum>::Weights& both) {
    if (both.*label == 0) return;
    // Distances between bins are small numbers, which take fewer bytes in the message.
    deltas->Add(bin - last);
    weights->Add(LowWord(both.*label));
    if (high != nullptr) high->Add(HighWord(both.*label));
    last = bin;
  });
}

absl::Status CheckBins(const char* name, const Deltas& deltas, const Weights& weights,
                       const Weights& high, bool fine) {
  if (deltas.size() != weights.size() || high.size() != (fine ? weights.size() : 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "evaluation sums: ", deltas.size(), " ", name, " bins with ", weights.size(), " and ",
        high.size(), " words of weights; the sender is corrupt or has another version"));
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

// The standard error of an AUC that was computed from this many examples of each class.
double StandardError(double auc, double positives, double negatives) {
  const double q1 = auc / (2 - auc), q2 = 2 * auc * auc / (1 + auc);
  const double variance =
      auc * (1 - auc) + (positives - 1) * (q1 - auc * auc) + (negatives - 1) * (q2 - auc * auc);
  return std::sqrt(std::max(variance, 0.0) / (positives * negatives));
}

template <typename Weights>
bool HasNoWeight(const Weights& weights) {
  return weights.positive == 0 && weights.negative == 0;
}

// Counts the pairs (positive, negative) that are in the right order; a tie counts half. Pairs
// within a bin count as ties because their order is unknown. `Product` holds weight x weight.
template <typename Product, typename Sum>
struct Pairs {
  explicit Pairs(const BinSums<Sum>& bins) {
    Product positives_so_far = 0, negatives_so_far = 0, below = 0, tied = 0;
    bins.ForEach([&](uint32_t, const typename BinSums<Sum>::Weights& both) {
      below += Product(both.positive) * negatives_so_far;
      tied += Product(both.positive) * Product(both.negative);
      positives_so_far += Product(both.positive);
      negatives_so_far += Product(both.negative);
      labels += static_cast<double>(both.positive);
    });
    in_order = static_cast<double>(below);
    ties = static_cast<double>(tied);
    positives = static_cast<double>(positives_so_far);
    negatives = static_cast<double>(negatives_so_far);
  }
  double in_order = 0, ties = 0, positives = 0, negatives = 0;
  double labels = 0;  // as positives, but summed in double
};

}  // namespace

template <typename Sum>
typename BinSums<Sum>::Weights& BinSums<Sum>::At(uint32_t bin) {
  if (!all_.empty()) return all_[bin];
  Weights& weights = few_[bin];
  if (few_.size() <= kFew) return weights;
  // More bins are likely to follow, and in a map each takes three times the memory.
  all_.resize(kBins);
  for (const auto& [at, kept] : few_) all_[at] = kept;
  few_ = {};
  return all_[bin];
}

template <typename Sum>
void BinSums<Sum>::ForEach(absl::FunctionRef<void(uint32_t, const Weights&)> visit) const {
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

template class BinSums<uint64_t>;
template class BinSums<absl::uint128>;

void WideSum::Add(const WideSum& other) {
  const absl::uint128 first = absl::uint128(low) + other.low;
  const absl::uint128 second = absl::uint128(high) + other.high + absl::Uint128High64(first);
  low = absl::Uint128Low64(first);
  high = absl::Uint128Low64(second);
  highest += other.highest + absl::Uint128High64(second);
}

void WideSum::AddProduct(absl::uint128 a, uint64_t b) {
  const absl::uint128 lower = absl::uint128(absl::Uint128Low64(a)) * b;
  Add({absl::Uint128Low64(lower), absl::Uint128High64(lower), 0});
  // Most weights are below 16, and have one word.
  if (absl::Uint128High64(a) == 0) return;
  const absl::uint128 upper = absl::uint128(absl::Uint128High64(a)) * b;
  Add({0, absl::Uint128Low64(upper), absl::Uint128High64(upper)});
}

double WideSum::ToDouble() const {
  // Rounded once, where it fits.
  if (IsCoarse(low) && (highest >> kFiner) == 0)
    return std::ldexp(static_cast<double>(Coarser(*this)), kFiner);
  return std::ldexp(static_cast<double>(highest), 128) +
         static_cast<double>(absl::MakeUint128(high, low));
}

void EvalAccumulator::Refine() {
  if (fine_ != nullptr) return;
  fine_ = std::make_unique<FineBins>();
  bins_.ForEach([&](uint32_t bin, const WeightBins::Weights& both) {
    FineBins::Weights& fine = fine_->At(bin);
    fine.positive = absl::uint128(both.positive) << kFiner;
    fine.negative = absl::uint128(both.negative) << kFiner;
  });
  bins_ = {};
}

// REQUIRES: weight_ contains the weight.
void EvalAccumulator::AddToBin(uint32_t bin, bool positive, absl::uint128 weight) {
  if (!IsCoarse(weight) || Coarser(weight_) >= kMaxCoarse || weight_.highest > 0) Refine();
  if (fine_ != nullptr) {
    FineBins::Weights& both = fine_->At(bin);
    (positive ? both.positive : both.negative) += weight;
    return;
  }
  WeightBins::Weights& both = bins_.At(bin);
  (positive ? both.positive : both.negative) += absl::Uint128Low64(weight >> kFiner);
}

void EvalAccumulator::Add(float logit, float label, float weight) {
  ++examples_;
  // A NaN has no place among the sums. It is counted, and then no metric is defined.
  if (std::isnan(logit)) {
    ++not_finite_;
    return;
  }
  if (!(weight > 0)) return;
  // A float has 24 bits, so only weights below 2^-36 are rounded.
  const auto w = static_cast<absl::uint128>(
      std::nearbyint(std::min<double>(weight, kMaxWeight) / kWeightUnit));
  const double p = Sigmoid(logit), error = std::abs(p - label);
  const bool is_positive = label >= 0.5f;
  weight_.AddProduct(w, 1);
  // The probability of a large logit rounds to 1, which belongs to the last bin.
  AddToBin(std::min<uint32_t>(static_cast<uint32_t>(p * kBins), kBins - 1), is_positive, w);
  if ((logit >= 0) == is_positive) correct_.AddProduct(w, 1);
  log_loss_.AddProduct(w, ToFixed(std::min(LogLoss(logit, label), kMaxError), kErrorUnit));
  absolute_error_.AddProduct(w, ToFixed(error, kErrorUnit));
  squared_error_.AddProduct(w, ToFixed(error * error, kErrorUnit));
  probability_.AddProduct(w, ToFixed(p, kErrorUnit));
}

absl::Status EvalAccumulator::Merge(const EvalSums& sums) {
  const bool fine = sums.fine();
  // Check everything first, so that bad sums from a peer add nothing.
  SLUICE_RETURN_IF_ERROR(CheckBins("positive", sums.positive_bin_delta(), sums.positive_weight(),
                                   sums.positive_weight_high(), fine));
  SLUICE_RETURN_IF_ERROR(CheckBins("negative", sums.negative_bin_delta(), sums.negative_weight(),
                                   sums.negative_weight_high(), fine));
  weight_.Add(GetWide(sums.weight(), fine));
  if (fine) Refine();
  const auto add = [&](bool positive, const Deltas& deltas, const Weights& low,
                       const Weights& high) {
    uint32_t bin = 0;
    for (int i = 0; i < deltas.size(); ++i) {
      bin += deltas[i];
      AddToBin(bin, positive,
               fine ? absl::MakeUint128(high[i], low[i]) : absl::uint128(low[i]) << kFiner);
    }
  };
  add(true, sums.positive_bin_delta(), sums.positive_weight(), sums.positive_weight_high());
  add(false, sums.negative_bin_delta(), sums.negative_weight(), sums.negative_weight_high());
  examples_ += sums.examples();
  bad_lines_ += sums.bad_lines();
  not_finite_ += sums.not_finite();
  log_loss_.Add(GetWide(sums.log_loss(), fine));
  absolute_error_.Add(GetWide(sums.absolute_error(), fine));
  squared_error_.Add(GetWide(sums.squared_error(), fine));
  correct_.Add(GetWide(sums.correct(), fine));
  probability_.Add(GetWide(sums.probability(), fine));
  return absl::OkStatus();
}

EvalSums EvalAccumulator::ToProto() const {
  EvalSums sums;
  const bool fine = fine_ != nullptr;
  sums.set_examples(examples_);
  sums.set_bad_lines(bad_lines_);
  sums.set_not_finite(not_finite_);
  sums.set_fine(fine);
  const auto write = [&](const auto& bins, auto positive, auto negative) {
    WriteBins(bins, positive, sums.mutable_positive_bin_delta(), sums.mutable_positive_weight(),
              fine ? sums.mutable_positive_weight_high() : nullptr);
    WriteBins(bins, negative, sums.mutable_negative_bin_delta(), sums.mutable_negative_weight(),
              fine ? sums.mutable_negative_weight_high() : nullptr);
  };
  if (fine) {
    write(*fine_, &FineBins::Weights::positive, &FineBins::Weights::negative);
  } else {
    write(bins_, &WeightBins::Weights::positive, &WeightBins::Weights::negative);
  }
  SetWide(log_loss_, fine, sums.mutable_log_loss());
  SetWide(absolute_error_, fine, sums.mutable_absolute_error());
  SetWide(squared_error_, fine, sums.mutable_squared_error());
  SetWide(weight_, fine, sums.mutable_weight());
  SetWide(correct_, fine, sums.mutable_correct());
  SetWide(probability_, fine, sums.mutable_probability());
  return sums;
}

// Half of the ties is the error bound.
void EvalAccumulator::Auc(EvalMetrics* metrics) const {
  const auto set = [&](const auto& pairs, double unit) {
    metrics->set_positive_rate(pairs.labels * unit / (weight_.ToDouble() * kWeightUnit));
    if (pairs.positives == 0 || pairs.negatives == 0) {
      metrics->set_auc_undefined(
          absl::StrCat("no example has label ", pairs.positives == 0 ? 1 : 0));
      metrics->set_auc_error_bound(std::numeric_limits<double>::quiet_NaN());
      return;
    }
    const double all = pairs.positives * pairs.negatives;
    metrics->set_auc((pairs.in_order + pairs.ties / 2) / all);
    metrics->set_auc_error_bound(pairs.ties / 2 / all);
    // The formula needs numbers of examples: each class counts in proportion to its weight.
    const double examples = static_cast<double>(examples_) / (pairs.positives + pairs.negatives);
    metrics->set_auc_standard_error(
        StandardError(metrics->auc(), pairs.positives * examples, pairs.negatives * examples));
  };
  if (fine_ != nullptr) {
    // Products of such weights fit no integer. Doubles hold them, to 2^-33 of the sum at worst.
    set(Pairs<double, absl::uint128>(*fine_), kWeightUnit);
  } else {
    set(Pairs<absl::uint128, uint64_t>(bins_), kCoarseUnit);
  }
}

const char* EvalAccumulator::WhyNone() const {
  if (examples_ == 0) return "no example was evaluated";
  if (not_finite_ > 0) return "the model scored an example as NaN";
  return weight_.ToDouble() == 0 ? "no example has a weight above 0" : "";
}

std::vector<CalibrationBin> EvalAccumulator::Calibration() const {
  if (*WhyNone() != '\0') return {};
  std::vector<CalibrationBin> groups;
  const auto group = [&](const auto& bins, double unit) {
    const double all = weight_.ToDouble() * kWeightUnit;
    double before = 0;  // weight of the groups that are complete
    double weight = 0, positive = 0, probability = 0;
    int next = 1;  // share of the weight, in 1/kCalibrationBins, at which the open group ends
    const auto reaches = [&](double sum) { return sum >= all * next / kCalibrationBins; };
    const auto close = [&] {
      CalibrationBin& closed = groups.emplace_back();
      closed.set_weight(weight);
      closed.set_probability(probability / weight);
      closed.set_positive_rate(positive / weight);
      before += weight;
      weight = positive = probability = 0;
      // One probability may have the weight of several groups. It must not leave tiny ones behind.
      while (next <= kCalibrationBins && reaches(before)) ++next;
    };
    bins.ForEach([&](uint32_t bin, const auto& both) {
      const double p = static_cast<double>(both.positive) * unit;
      const double w = p + static_cast<double>(both.negative) * unit;
      weight += w;
      positive += p;
      probability += w * (bin + 0.5) / kBins;
      // By the sums and not by each group's own weight, so that the last one is no remainder.
      if (reaches(before + weight)) close();
    });
    if (weight > 0) close();
  };
  if (fine_ != nullptr) {
    group(*fine_, kWeightUnit);
  } else {
    group(bins_, kCoarseUnit);
  }
  return groups;
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
  const double weight = weight_.ToDouble() * kWeightUnit;
  const auto mean = [weight](const WideSum& sum) {
    return sum.ToDouble() * kWeightUnit * kErrorUnit / weight;
  };
  metrics.set_log_loss(mean(log_loss_));
  metrics.set_accuracy(correct_.ToDouble() / weight_.ToDouble());
  metrics.set_mae(mean(absolute_error_));
  metrics.set_rmse(std::sqrt(mean(squared_error_)));
  const double labels = metrics.positive_rate();  // the mean label
  metrics.set_calibration(labels > 0 ? mean(probability_) / labels : nan);
  return metrics;
}

}  // namespace sluice
