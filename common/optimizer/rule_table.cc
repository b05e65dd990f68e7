// The list of rules.h as a table: names, defaults, checks and creation of UpdateRule.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/optimizer/learning_rate.h"
#include "common/optimizer/rules.h"
#include "common/optimizer/update_rule.h"

namespace sluice {
namespace {

// Checks options and keeps the first error. Messages begin with the field: common/config puts the
// path of the optimizer before it.
class OptionChecks {
 public:
  explicit OptionChecks(std::string prefix) : prefix_(std::move(prefix)) {}

  // The value must be finite and low <= value.
  void AtLeast(const char* field, float value, float low) {
    if (std::isfinite(value) && value >= low) return;
    Refuse(field, absl::StrCat("must be finite and at least ", low, "; it is ", value));
  }
  // 0 <= value < 1. NaN fails both comparisons.
  void Fraction(const char* field, float value) {
    if (value >= 0 && value < 1) return;
    Refuse(field, absl::StrCat("must be at least 0 and below 1; it is ", value));
  }
  // The value must be finite and 0 < value. The message says `why`.
  void AboveZero(const char* field, float value, const char* why) {
    if (std::isfinite(value) && value > 0) return;
    Refuse(field, absl::StrCat("must be finite and above 0 (", why, "); it is ", value));
  }
  void Refuse(const char* field, const std::string& what) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(prefix_, field, " ", what)));
  }

  const absl::Status& status() const { return status_; }

 private:
  const std::string prefix_;
  absl::Status status_;
};

// One function for each rule, chosen by the type of its step.
#define SLUICE_RULE(Class, field)                              \
  void SetStep(const rules::Class::Step& from, RuleStep* to) { \
    to->rule = RuleStep::k##Class;                             \
    to->field = from;                                          \
  }
SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE

template <typename Rule>
class RuleOf final : public UpdateRule {
 public:
  static_assert(Rule::kState <= kMaxState, "more state than callers have room for");
  static_assert(!Rule::kStepDependsOnCount || sizeof(typename Rule::Step) >= 2 * sizeof(float),
                "a step that depends on the count begins with two floats");

  RuleOf(const OptimizerConfig& config, Rule rule)
      : UpdateRule(config, {Rule::kState,
                            {rule.InitialState(0), rule.InitialState(1)},
                            Rule::kStepDependsOnCount}),
        rule_(std::move(rule)) {}

  RuleStep StepAt(float rate, uint64_t count) const override {
    RuleStep step;
    if (rate < Rule::kLeastRate) return step;
    SetStep(rule_.StepAt(rate, count), &step);
    return step;
  }

 private:
  const Rule rule_;
};

using RuleOr = absl::StatusOr<std::unique_ptr<const UpdateRule>>;

template <typename Rule, typename Options>
RuleOr CreateRule(const char* name, const OptimizerConfig& config, const Options& options) {
  OptionChecks checks(absl::StrCat(name, "."));
  Rule::Check(options, &checks);
  SLUICE_RETURN_IF_ERROR(checks.status());
  return std::make_unique<const RuleOf<Rule>>(config, Rule(options, config.weight_decay()));
}

struct RuleEntry {
  const char* name;
  OptimizerConfig::RuleCase rule;
  float default_rate;
  void (*fill_defaults)(OptimizerConfig* config);
  // `config` has its defaults, and valid values in the fields that all rules share.
  RuleOr (*create)(const OptimizerConfig& config);
};

#define SLUICE_RULE(Class, field)                                                          \
  {#field, OptimizerConfig::k##Class, rules::Class::kDefaultRate,                          \
   [](OptimizerConfig* config) { rules::Class::FillDefaults(config->mutable_##field()); }, \
   [](const OptimizerConfig& config) {                                                     \
     return CreateRule<rules::Class>(#field, config, config.field());                      \
   }},
constexpr RuleEntry kRuleEntries[] = {SLUICE_RULES(SLUICE_RULE)};
#undef SLUICE_RULE

// Null when the config has no rule.
const RuleEntry* FindRule(const OptimizerConfig& config) {
  for (const RuleEntry& entry : kRuleEntries) {
    if (entry.rule == config.rule_case()) return &entry;
  }
  return nullptr;
}

absl::Status CheckCommonOptions(const OptimizerConfig& config) {
  OptionChecks checks("");
  checks.AtLeast("learning_rate", config.learning_rate(), 0);
  checks.AtLeast("weight_decay", config.weight_decay(), 0);
  checks.AtLeast("clip_value", config.clip_value(), 0);
  checks.AtLeast("clip_row_norm", config.clip_row_norm(), 0);
  SLUICE_RETURN_IF_ERROR(checks.status());
  return ValidateSchedule(config.schedule());
}

}  // namespace

const std::vector<std::string>& RuleNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>;
    for (const RuleEntry& entry : kRuleEntries) all->push_back(entry.name);
    return all;
  }();
  return *names;
}

std::string RuleName(const OptimizerConfig& config) {
  const RuleEntry* const entry = FindRule(config);
  return entry != nullptr ? entry->name : "none";
}

OptimizerConfig WithDefaults(const OptimizerConfig& config) {
  OptimizerConfig filled = config;
  // First the rule: the default rate depends on it.
  if (filled.rule_case() == OptimizerConfig::RULE_NOT_SET) filled.mutable_adam();
  if (const RuleEntry* const entry = FindRule(filled)) {
    if (!filled.has_learning_rate()) filled.set_learning_rate(entry->default_rate);
    entry->fill_defaults(&filled);
  }
  if (filled.has_schedule()) FillScheduleDefaults(filled.mutable_schedule());
  return filled;
}

absl::StatusOr<std::unique_ptr<const UpdateRule>> UpdateRule::Create(const OptimizerConfig& given) {
  // Checked before the defaults, which would make it Adam: a rule that got lost on its way here
  // must not train with another one.
  if (given.rule_case() == OptimizerConfig::RULE_NOT_SET) {
    return absl::InvalidArgumentError(
        absl::StrCat("the optimizer names no rule: set one of ", absl::StrJoin(RuleNames(), ", ")));
  }
  const OptimizerConfig config = WithDefaults(given);
  SLUICE_RETURN_IF_ERROR(CheckCommonOptions(config));
  const RuleEntry* const entry = FindRule(config);
  // A field of the oneof that rules.h does not list. update_rule_test compares the two.
  if (entry == nullptr) {
    return absl::InternalError(
        absl::StrCat("there is no update rule ", static_cast<int>(config.rule_case())));
  }
  return entry->create(config);
}

}  // namespace sluice
