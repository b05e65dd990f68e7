#include "common/wire/train_position.h"

#include <utility>

namespace sluice {
namespace {

template <typename Message>
void Fill(const TrainPosition& position, Message* message) {
  if (position.task_id == 0 && position.steps == 0) return;  // sync: keep the header short
  message->set_task_id(position.task_id);
  message->set_task_end(position.task_end);
  message->set_epoch(position.epoch);
  TrainTotals* const totals = message->mutable_totals();
  totals->set_examples(position.examples);
  totals->set_steps(position.steps);
  totals->set_loss_sum(position.loss_sum);
  totals->set_weight_sum(position.weight_sum);
}

template <typename Message>
TrainPosition Read(const Message& message) {
  const TrainTotals& totals = message.totals();
  return {message.task_id(), message.task_end(), message.epoch(),    totals.examples(),
          totals.steps(),    totals.loss_sum(),  totals.weight_sum()};
}

}  // namespace

void SetPosition(const TrainPosition& position, Push* push) { Fill(position, push); }
TrainPosition PositionOf(const Push& push) { return Read(push); }
void SetPosition(const TrainPosition& position, RankPosition* rank) { Fill(position, rank); }
TrainPosition PositionOf(const RankPosition& rank) { return Read(rank); }

bool IsBehind(const RankPosition& a, const RankPosition& b) {
  return std::make_pair(a.incarnation(), a.sequence()) <
         std::make_pair(b.incarnation(), b.sequence());
}

void KeepLeast(const RankPosition& at, RankPosition* least) {
  const bool fuller = at.totals().weight_sum() > least->totals().weight_sum();
  if (IsBehind(at, *least) || (fuller && !IsBehind(*least, at))) *least = at;
}

}  // namespace sluice
