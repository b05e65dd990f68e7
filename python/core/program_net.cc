#include "python/core/program_net.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {

absl::Status ProgramNet::Check(const NetInput& input) const {
  const Batch& batch = *input.batch;
  if (batch.num_numeric == shape_.num_numeric() && batch.num_slots == shape_.slots.size() &&
      input.rows.size() == shape_.tables.size() && input.dense.size() == shape_.parameters.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the step has ", batch.num_numeric, " numbers, ", batch.num_slots, " slots, ",
      input.rows.size(), " sparse and ", input.dense.size(), " dense tables; the program declares ",
      shape_.num_numeric(), ", ", shape_.slots.size(), ", ", shape_.tables.size(), " and ",
      shape_.parameters.size()));
}

absl::Status ProgramNet::TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                   NetGradients* gradients) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  gradients_.Begin(input, gradients);
  rows_.Fill(*input.batch, input.row_index);
  ProgramTurn turn;
  turn.gradients = &gradients_;
  turn.input = &input;
  turn.rows = &rows_;
  turn.seed = seed;
  turn.epoch = epoch;
  std::optional<std::string> before = std::exchange(saved_, std::nullopt);
  if (!begun_ && restored_.has_value()) before = kStateMark + *restored_;
  Begin(&turn);
  const absl::Status made = exchange_.Run(turn, cancelled_);
  if (absl::IsOutOfRange(made)) {
    gradients->ends_training = true;
    saved_ = before;
    return CheckNotMade(epoch, input.step);
  }
  before_ = std::move(before);
  if (made.ok() && !gradients->skipped) gradients_.Finish();
  if (made.ok() && newest_ != nullptr) *newest_ = {epoch, input.step + 1};
  return made;
}

absl::Status ProgramNet::CheckNotMade(uint32_t epoch, uint64_t step) const {
  if (newest_ == nullptr || newest_->epoch < epoch ||
      (newest_->epoch == epoch && newest_->steps <= step)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a pserver was lost, and the job went back to step ", step + 1, " of epoch ", epoch + 1,
      ", but this program has left its loop after step ", newest_->steps, " of epoch ",
      newest_->epoch + 1, " and cannot make these steps again; --resume continues the job"));
}

void ProgramNet::Begin(ProgramTurn* turn) {
  // An evaluation may have told the program of the state already.
  turn->begins = !begun_ && !told_;
  if (turn->begins && restored_.has_value()) turn->restored = &*restored_;
  begun_ = true;
}

absl::Status ProgramNet::Forward(const NetInput& input, float* logits) {
  SLUICE_RETURN_IF_ERROR(Check(input));
  rows_.Fill(*input.batch, input.row_index);
  ProgramTurn turn;
  turn.logits = logits;
  std::vector<MetricSum> sums;
  turn.sums = &sums;
  turn.input = &input;
  turn.rows = &rows_;
  // A worker that takes over a rank may begin with an evaluation.
  if (!begun_ && !told_ && restored_.has_value()) {
    turn.begins = told_ = true;
    turn.restored = &*restored_;
  }
  SLUICE_RETURN_IF_ERROR(exchange_.Run(turn, cancelled_));
  for (MetricSum& one : sums) {
    const auto known = std::find_if(sums_.begin(), sums_.end(),
                                    [&](const MetricSum& sum) { return sum.name == one.name; });
    if (known == sums_.end()) {
      sums_.push_back(std::move(one));
    } else {
      known->sum += one.sum;
      known->weight += one.weight;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProgramNet::SaveState() const {
  // Before the first step the program may be in an evaluation, or not in its loop yet.
  if (!begun_) return restored_.has_value() ? kStateMark + *restored_ : std::string();
  if (saved_.has_value()) return *saved_;
  if (!exchange_.keeps_state()) return std::string();
  std::string state;
  ProgramTurn turn;
  turn.state = &state;
  SLUICE_RETURN_IF_ERROR(exchange_.Run(turn, cancelled_));
  if (state.size() > kMaxStateBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the state of the program has ", state.size(),
                                                   " bytes; at most ", kMaxStateBytes,
                                                   " are allowed"));
  }
  saved_ = kStateMark + state;
  return *saved_;
}

absl::Status ProgramNet::RestoreState(const std::string& state) {
  if (state.empty() || state[0] != kStateMark)
    return absl::InvalidArgumentError("the state of the network is not one of a program");
  restored_ = state.substr(1);
  return absl::OkStatus();
}

void ProgramNet::DropStep() {
  // Nothing if nobody has asked for the state before the step, as when it has none.
  if (before_.has_value()) saved_ = before_;
}

absl::Status ProgramNet::EndEpoch(uint32_t epoch, const std::function<absl::Status()>& meanwhile) {
  SLUICE_ASSIGN_OR_RETURN(saved_, SaveState());
  ProgramTurn turn;
  turn.epoch = epoch;
  Begin(&turn);
  return exchange_.Run(turn, cancelled_, meanwhile);
}

void ProgramNet::Cancel() {
  // The flag first: Run looks at it when it is woken.
  cancelled_ = true;
  exchange_.Wake();
}

}  // namespace sluice
