#include "scheduler/job/export_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr uint32_t kMostFailures = 2;
// Exports in a row that outlast their interval before a warning says so: a base takes longer than
// the deltas.
constexpr uint32_t kMostLate = 3;
constexpr absl::string_view kAllRows =
    "; nothing is lost: a base has all rows that the tables have";

// Whether a part that was made with `since` has all rows from `wanted` on, and names what has gone.
bool Covers(const google::protobuf::RepeatedField<uint64_t>& since,
            const std::vector<uint64_t>& wanted) {
  return std::equal(since.begin(), since.end(), wanted.begin(), wanted.end(),
                    std::less_equal<uint64_t>());
}

CheckpointConfig RulesOf(const ExportConfig& config) {
  CheckpointConfig rules;
  rules.set_every_s(config.every_s());
  rules.set_every_steps(config.every_steps());
  return rules;
}

}  // namespace

ExportPlan::ExportPlan(ExportConfig config, std::string root, uint64_t first_step, absl::Time now)
    : config_(std::move(config)),
      root_(std::move(root)),
      pace_(RulesOf(config_), first_step, now),
      newest_cut_at_(now) {
  status_.set_new_base("the first export of this run of the job");
}

void ExportPlan::EndChain(const std::string& why) {
  if (since_.empty()) return;  // the next one is a base already
  since_.clear();
  status_.set_new_base(why);
  warning_ = absl::StrCat("the next export is a new base: ", why);
}

absl::Status ExportPlan::Fill(const std::vector<HostedCut>& parts, uint64_t instance, uint64_t to,
                              ExportFacts* facts) {
  facts->set_instance(instance);
  facts->set_to(to);
  size_t bases = 0, made = 0;
  bool covers = true;
  steps_.clear();
  std::string no_delta;
  for (size_t i = 0; i < parts.size(); ++i) {
    const HostedCut& part = parts[i];
    if (part.checkpoint() == 0) continue;  // a pserver without shards
    ++made;
    bases += part.since().empty();
    covers = covers && Covers(part.since(), since_);
    const auto tables = static_cast<size_t>(part.schedule_step_size());
    if (steps_.size() < tables) steps_.resize(tables, UINT64_MAX);
    for (size_t t = 0; t < tables; ++t)
      steps_[t] = std::min<uint64_t>(steps_[t], part.schedule_step(static_cast<int>(t)));
    facts->set_rows(facts->rows() + part.rows());
    facts->set_gone(facts->gone() + part.gone());
    if (!part.error().empty()) {
      no_delta = absl::StrCat("pserver ", i, ": ", part.error());
    }
  }
  const auto least = std::min_element(steps_.begin(), steps_.end());
  if (least != steps_.end() && *least != UINT64_MAX) facts->set_schedule_step(*least);
  if (bases == made) {  // whole, even if a delta would have done
    if (no_delta.empty()) return absl::OkStatus();
    status_.set_new_base(no_delta);
    warning_ = absl::StrCat("the export is a new base: ", no_delta, kAllRows);
    return absl::OkStatus();
  }
  if (!no_delta.empty()) {
    EndChain(absl::StrCat(no_delta, kAllRows));
    return absl::UnavailableError(absl::StrCat(no_delta, "; a new base follows"));
  }
  // A part of a base does not name what has gone.
  if (!covers) {
    return absl::UnavailableError(
        "some pservers had not heard yet whether it is a base or a delta; it is tried again");
  }
  facts->set_from(at_);
  return absl::OkStatus();
}

void ExportPlan::Completed(const Manifest& manifest, const std::string& dir, absl::Time begun_at,
                           absl::Time now) {
  const ExportFacts& facts = manifest.export_();
  const bool base = facts.from() == 0;
  at_ = facts.to();
  since_ = std::exchange(steps_, {});
  // A table that has trained nothing: the next one is a base, too.
  if (std::find(since_.begin(), since_.end(), 0u) != since_.end()) since_.clear();
  failed_ = 0;
  newest_cut_at_ = begun_at;
  uint64_t bytes = 0;
  for (const SavedFile& file : manifest.files()) bytes += file.bytes();
  status_.set_dir(dir);
  status_.set_step(manifest.global_step());
  status_.set_base(base);
  status_.set_rows(facts.rows());
  status_.set_gone(facts.gone());
  status_.set_bytes(bytes);
  status_.set_seconds(absl::ToDoubleSeconds(now - begun_at));
  status_.set_made(status_.made() + 1);
  status_.set_bases(status_.bases() + base);
  status_.clear_last_error();
  pace_.BeginInterval(now);
  if (base) {
    base_rows_ = facts.rows();
    gone_ = deltas_ = 0;
  } else {
    gone_ += facts.gone();
    ++deltas_;
  }
  if (gone_ > base_rows_) {
    EndChain(absl::StrCat("the deltas name ", gone_, " keys of rows that have expired, or were ",
                          "evicted or deleted, and the base has ", base_rows_, " rows; nothing is ",
                          "lost, a new base is smaller than this chain"));
  } else if (deltas_ >= kMostDeltas) {
    since_.clear();  // nobody needs to be warned of it
    status_.set_new_base(absl::StrCat("the chain has ", deltas_, " deltas"));
  }
  NoteLate(manifest.global_step(), now - begun_at);
}

void ExportPlan::NoteLate(uint64_t step, absl::Duration took) {
  // Seconds are counted from the end of an export.
  if (config_.every_steps() == 0) return;
  const uint64_t steps = pace_.step() - std::min(step, pace_.step());
  late_ = steps >= config_.every_steps() ? late_ + 1 : 0;
  // Another warning goes first; the next late export is told of.
  if (late_ < kMostLate || said_late_ || !warning_.empty()) return;
  said_late_ = true;
  // The advice leaves half of the time between two exports.
  warning_ = absl::StrFormat(
      "export { every_steps: %d } asks for exports more often than they can be written: each of "
      "the last %d took at least as many steps, and the newest %.1f s. One is made at a time, and "
      "what falls due meanwhile is left out; set every_steps: %d or more, or give export.dir a "
      "faster place",
      config_.every_steps(), kMostLate, absl::ToDoubleSeconds(took), 2 * steps);
}

void ExportPlan::Failed(const std::string& error, uint64_t step, bool counts) {
  if (!counts) return;
  status_.set_failed(status_.failed() + 1);
  const std::string said = absl::StrCat("the export of step ", step, " failed: ", error);
  if (status_.last_error().empty()) warning_ = absl::StrCat(said, "; the job continues");
  status_.set_last_error(said);
  if (++failed_ >= kMostFailures)
    EndChain(absl::StrCat(failed_, " exports in a row have failed, the last one because: ", error));
}

ExportStatus ExportPlan::status(absl::Time now) const {
  ExportStatus status = status_;
  status.set_age_s(std::max(0.0, absl::ToDoubleSeconds(now - newest_cut_at_)));
  return status;
}

std::string ExportPlan::TakeWarning() { return std::exchange(warning_, ""); }

}  // namespace sluice
