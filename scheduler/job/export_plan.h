// Decides when an export of a job is due, and what it is: a base, or a delta that follows the
// export before it.
//
// The pservers are told from which schedule step on a delta has rows of a table
// (CutOrder.export_since), and each part says what it was made with. So an order that is overtaken
// by a cut does no harm: rows too many are harmless in a delta, and parts that do not fit together
// are refused (Fill).
//
// The next export is a base when there was none in this run of the job, when the chain was ended
// (EndChain), when the deltas name more keys as gone than the base has rows, and after kMostDeltas
// deltas: the folder keeps whole chains, and whoever begins at a base applies all that follow. A
// pserver that has forgotten rows which have gone makes a part of a base by itself, and says why.
// If the others do the same, the export is a base; else it is given up, and a base follows.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/job/checkpoint_pace.h"

namespace sluice {

class ExportPlan {
 public:
  static constexpr uint32_t kMostDeltas = 256;

  // `root`: the folder of the chain. `config` needs a rule.
  ExportPlan(ExportConfig config, std::string root, uint64_t first_step, absl::Time now);

  CheckpointPace& pace() { return pace_; }
  const CheckpointPace& pace() const { return pace_; }
  uint64_t every_steps() const { return config_.every_steps(); }
  const std::string& root() const { return root_; }
  // True when a multiple of every_steps passed while something else was written, or the interval is
  // over.
  bool DueNow(absl::Time now) const { return pace_.DueByTime(now) || pace_.DueBySteps(); }

  // An earlier scheduler may have made exports, of which this one knows nothing.
  void FollowsScheduler() { status_.set_new_base("the scheduler was restarted"); }

  // CutOrder.export_since for the next export; empty: it is a base.
  const std::vector<uint64_t>& since() const { return since_; }
  // The next export is a base, because of `why`.
  void EndChain(const std::string& why);
  // Sets the facts of the export of cut `to`, whose parts are `parts`, by pserver. UNAVAILABLE: the
  // parts do not fit together, because some pservers had not heard yet what the export is to be, or
  // could make no delta; the next try finds them ready.
  absl::Status Fill(const std::vector<HostedCut>& parts, uint64_t instance, uint64_t to,
                    ExportFacts* facts);
  // The export that Fill was called for last is in force.
  void Completed(const Manifest& manifest, const std::string& dir, absl::Time begun_at,
                 absl::Time now);
  // The export was given up. Two deltas in a row that a pserver or the commit made fail (`counts`)
  // end the chain: a base needs nothing of what came before.
  void Failed(const std::string& error, uint64_t step, bool counts);

  // Without `doing`.
  ExportStatus status(absl::Time now) const;
  // Returns, once, the warning about the first failure after a success, about a chain that ends, or
  // about exports that take longer than every_steps.
  std::string TakeWarning();

 private:
  // The export of the cut after `step`, which is complete, took so long.
  void NoteLate(uint64_t step, absl::Duration took);

  const ExportConfig config_;
  const std::string root_;
  CheckpointPace pace_;
  std::vector<uint64_t> since_;
  std::vector<uint64_t> steps_;  // of the export of Fill: by table, the least schedule step
  uint64_t at_ = 0;              // the cut of the newest export
  uint64_t base_rows_ = 0;       // of the base of the chain
  uint64_t gone_ = 0;            // keys that the deltas of the chain name
  uint32_t deltas_ = 0;          // of the chain
  uint32_t failed_ = 0;          // in a row
  uint32_t late_ = 0;            // exports in a row that took every_steps or more
  bool said_late_ = false;
  absl::Time newest_cut_at_;  // until there is one: the beginning
  ExportStatus status_;
  std::string warning_;
};

}  // namespace sluice
