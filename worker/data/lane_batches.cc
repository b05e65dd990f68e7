#include "worker/data/lane_batches.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/status_macros.h"
#include "common/config/mode.h"

namespace sluice {
namespace {

LaneOptions OptionsOf(const JobContext& context, uint32_t epoch) {
  const DataConfig& data = context.config().data();
  LaneOptions options;
  options.seed = EpochSeed(context, epoch);
  options.shuffle = data.shuffle();
  options.lanes = data.shuffle_lanes();
  options.window = data.shuffle_window();
  options.global_batch = StepExamples(context.config());
  if (!context.reads_own_files()) {
    const uint64_t whole = context.spec->global_batch();
    options.global_batch = whole > 0 ? whole : options.global_batch * context.worker_num();
  }
  return options;
}

// Gradient sums are cut at multiples of this many positions of the global batch, so that any number
// of workers up to 16 adds the same partial sums. Below 16 positions a cut costs more than it is
// worth.
size_t ChunkOf(uint64_t global_batch) { return std::max<uint64_t>(16, global_batch / 16); }

}  // namespace

LaneBatches::LaneBatches(const JobContext& context, const PieceTable& table, uint32_t epoch,
                         uint64_t steps, uint64_t first_step)
    : context_(context),
      drop_last_(context.config().data().drop_last()),
      steps_(steps),
      options_(OptionsOf(context, epoch)),
      plan_(PlanLanes(table.pieces, options_, context.reads_own_files() ? 0 : context.rank,
                      context.reads_own_files() ? 1 : context.worker_num())),
      reader_(context, table),
      step_(first_step),
      enters_(first_step > 0) {
  for (const LaneSequence& sequence : plan_.lanes)
    lanes_.emplace_back(sequence, options_, table.pieces, &reader_);
  if (first_step == 0) return;
  for (Lane& lane : lanes_) lane.SkipTo(LinesAfter(lane, first_step - 1));
}

// Compressed files are read from front to back. The pieces that these windows share with earlier
// windows come first. Then come the windows in the order in which their pieces were dealt, which is
// the order of the whole epoch.
absl::Status LaneBatches::EnterWindows() {
  enters_ = false;
  std::vector<std::pair<uint32_t, Lane*>> split;  // by piece
  std::vector<std::pair<uint64_t, Lane*>> order;  // by the step that needs the window
  for (Lane& lane : lanes_) {
    if (const LanePart* part = lane.split_part()) split.emplace_back(part->piece, &lane);
    order.emplace_back(lane.next_window() / lane.share(), &lane);
  }
  std::sort(split.begin(), split.end());
  for (const auto& [piece, lane] : split) SLUICE_RETURN_IF_ERROR(lane->ReadSplitPart());
  std::sort(order.begin(), order.end());
  for (const auto& [step, lane] : order) SLUICE_RETURN_IF_ERROR(lane->ReadAhead());
  return absl::OkStatus();
}

uint64_t LaneBatches::LinesAfter(const Lane& lane, uint64_t step) const {
  const uint64_t batches = drop_last_ ? std::min(step + 1, plan_.full_steps) : step + 1;
  return std::min(batches * lane.share(), lane.lines());
}

absl::StatusOr<BatchSource::Fill> LaneBatches::Next() {
  if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
  StageTimer timer(context_.stats, Stage::kRead);
  if (step_ == steps_) {
    SLUICE_RETURN_IF_ERROR(DropRest());
    return Fill();
  }
  if (enters_) SLUICE_RETURN_IF_ERROR(EnterWindows());
  std::vector<LaneSlice> slices;
  slices.reserve(lanes_.size());
  for (Lane& lane : lanes_) SLUICE_RETURN_IF_ERROR(lane.Take(LinesAfter(lane, step_), &slices));
  const bool full = step_ < plan_.full_steps;
  ++step_;
  return Fill([this, slices = std::move(slices), full](PreparedBatch* prepared) -> absl::Status {
    StageTimer timer(context_.stats, Stage::kRead);
    const FeatureSchema& schema = *context_.model->schema();
    Batch* const batch = &prepared->batch;
    batch->Reset(schema.numerics().size(), schema.slots().size());
    for (const LaneSlice& slice : slices) {
      for (uint64_t i = slice.begin; i < slice.end; ++i)
        SLUICE_RETURN_IF_ERROR(slice.window->AppendTo(i, batch));
    }
    // Where the rank's examples lie in the global batch, at whose chunks sums are cut. The last
    // batch of an epoch is shorter, and its shares begin elsewhere.
    batch->first_position = full ? plan_.first_position : plan_.last_first_position;
    batch->chunk = ChunkOf(options_.global_batch);
    prepared->last_of_task = false;
    return absl::OkStatus();
  });
}

absl::Status LaneBatches::DropRest() {
  std::vector<LaneSlice> rest;
  // Reads what is left, since only reading tells examples from malformed lines.
  for (Lane& lane : lanes_) SLUICE_RETURN_IF_ERROR(lane.Take(lane.lines(), &rest));
  for (const LaneSlice& slice : rest) {
    for (uint64_t i = slice.begin; i < slice.end; ++i) dropped_ += slice.window->Has(i) ? 1 : 0;
  }
  return absl::OkStatus();
}

}  // namespace sluice
