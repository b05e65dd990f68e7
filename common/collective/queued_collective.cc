#include "common/collective/queued_collective.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/collective/rank_card.h"

namespace sluice {
namespace {

// The engine that the cards of several communicators name.
constexpr char kSeveral[] = "several";

absl::Status NotJoined() {
  return absl::FailedPreconditionError("the collective group is not joined: call Listen and Join");
}

}  // namespace

QueuedCollective::Channel::Channel(std::unique_ptr<CollectiveEngine> its_engine)
    : engine(std::move(its_engine)), queue(NotJoined()) {}

QueuedCollective::QueuedCollective(std::vector<std::unique_ptr<CollectiveEngine>> engines) {
  for (std::unique_ptr<CollectiveEngine>& engine : engines)
    channels_.push_back(std::make_unique<Channel>(std::move(engine)));
}

QueuedCollective::~QueuedCollective() { Leave(); }

absl::StatusOr<std::string> QueuedCollective::Listen(uint64_t generation, uint32_t self,
                                                     uint32_t ranks) {
  Leave();
  if (self >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", self, " is not below the number of ranks, ", ranks));
  }
  if (generation <= generation_) {
    return absl::InvalidArgumentError(
        absl::StrCat("generation ", generation, " is not above the one before, ", generation_));
  }
  generation_ = generation;
  self_ = self;
  ranks_ = ranks;
  in_group_ = true;
  absl::StatusOr<std::string> card = MakeCard();
  if (!card.ok()) Leave();
  return card;
}

absl::StatusOr<std::string> QueuedCollective::MakeCard() {
  std::vector<std::string> cards;
  for (const auto& channel : channels_) {
    SLUICE_ASSIGN_OR_RETURN(cards.emplace_back(),
                            channel->engine->Listen(generation_, self_, ranks_));
  }
  std::string bytes = cards[0];
  if (cards.size() > 1) {
    CollectiveCard all = NewCard(kSeveral, generation_, self_, ranks_, "");
    for (std::string& card : cards) all.add_communicators(std::move(card));
    bytes = all.SerializeAsString();
  }
  if (bytes.size() > kMaxCardBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the card of ", cards.size(), " communicators in a group of ", ranks_,
                     " ranks has ", bytes.size(), " bytes, and the limit is ", kMaxCardBytes,
                     "; lower comm_num or worker_num"));
  }
  return bytes;
}

absl::Status QueuedCollective::Join(uint64_t generation, const std::vector<std::string>& peers,
                                    uint32_t self) {
  if (!in_group_ || generation != generation_ || self != self_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", self, " has not listened for generation ", generation));
  }
  if (peers.size() != ranks_) {
    return absl::InvalidArgumentError(
        absl::StrCat(peers.size(), " ranks are to join a group of ", ranks_));
  }
  // Engine after engine, in the same order on all ranks: two that waited in different engines would
  // wait for each other.
  const absl::Status joined = JoinEngines(peers);
  if (!joined.ok()) {
    // Some engines may have joined already.
    Leave();
    for (const auto& channel : channels_) channel->queue.Close(joined);
    return joined;
  }
  {
    MutexLock lock(&mutex_);
    first_error_ = absl::OkStatus();
  }
  // Tickets go on from group to group; these offsets turn them into numbers within the group.
  before_ = started_;
  for (const auto& channel : channels_) {
    channel->before = channel->newest;
    channel->queue.Open();
  }
  return absl::OkStatus();
}

absl::Status QueuedCollective::JoinEngines(const std::vector<std::string>& peers) {
  std::vector<uint32_t> everybody(ranks_);
  std::iota(everybody.begin(), everybody.end(), 0);
  if (channels_.size() == 1) return channels_[0]->engine->Join(generation_, peers, everybody);
  SLUICE_ASSIGN_OR_RETURN(std::vector<CollectiveCard> cards,
                          ParseCards(kSeveral, generation_, peers, everybody));
  for (const CollectiveCard& card : cards) {
    if (card.communicators_size() != static_cast<int>(channels_.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", card.rank(), " has ", card.communicators_size(), " communicators, and rank ",
          self_, " has ", channels_.size(), "; give all ranks the same comm_num"));
    }
  }
  for (size_t i = 0; i < channels_.size(); ++i) {
    std::vector<std::string> of_engine;
    for (CollectiveCard& card : cards)
      of_engine.push_back(std::move(*card.mutable_communicators(static_cast<int>(i))));
    SLUICE_RETURN_IF_ERROR(channels_[i]->engine->Join(generation_, of_engine, everybody));
  }
  return absl::OkStatus();
}

void QueuedCollective::Leave() {
  if (!in_group_) return;
  // An operation that waits for others ends now; without one, nothing is cut off.
  for (const auto& channel : channels_)
    channel->queue.Close(NotJoined(), [&channel] { channel->engine->Cancel(); });
  for (const auto& channel : channels_) channel->engine->Leave();
  in_group_ = false;
}

absl::Status QueuedCollective::RunOn(size_t number, Operation operation) {
  const absl::Status status = operation(*channels_[number]->engine);
  return status.ok() ? status : EndAll(number, status);
}

absl::Status QueuedCollective::RunAlone(Operation operation) {
  // Started operations go to several engines. One on the first engine that overtook them would run
  // in another order than on other ranks.
  SLUICE_RETURN_IF_ERROR(WaitForAll(started_));
  return channels_[0]->queue.Run([&] { return RunOn(0, operation); });
}

absl::Status QueuedCollective::EndAll(size_t number, const absl::Status& error) {
  {
    MutexLock lock(&mutex_);
    // Ending one engine makes the others fail as well. Only the first error says why.
    if (!first_error_.ok()) return first_error_;
    first_error_ = error;
  }
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (i == number) continue;
    channels_[i]->queue.Fail(error);
    channels_[i]->engine->Abandon(error);
  }
  return error;
}

Collective::Ticket QueuedCollective::WeightedMean(uint64_t step, absl::Span<float> values,
                                                  double weight, Wire wire) {
  // In turn, counted from the beginning of the group: every rank chooses the same engine.
  const size_t number = (started_++ - before_) % channels_.size();
  const OperationHeader header = WeightedMeanHeader(step, values.size(), weight, wire);
  channels_[number]->newest = channels_[number]->queue.Start([this, number, values, header] {
    return RunOn(number, [&](CollectiveEngine& engine) { return engine.Reduce(header, values); });
  });
  return started_;
}

absl::Status QueuedCollective::Wait(Ticket ticket) {
  if (ticket == 0 || ticket > started_) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no operation ", ticket, "; the newest is ", started_));
  }
  if (ticket <= before_) {
    return absl::FailedPreconditionError(
        absl::StrCat("operation ", ticket, " was started in an earlier group"));
  }
  const absl::Status status = WaitForAll(ticket);
  // An error ends later operations as well. When it returns, no array is in use.
  if (!status.ok()) (void)WaitForAll(started_);
  return status;
}

absl::Status QueuedCollective::WaitForAll(Ticket ticket) {
  absl::Status status;
  for (size_t i = 0; i < channels_.size(); ++i) {
    // How many of the group's operations up to this one belong to channel i.
    const uint64_t count = (ticket - before_ + channels_.size() - 1 - i) / channels_.size();
    if (count > 0) status.Update(channels_[i]->queue.Wait(channels_[i]->before + count));
  }
  return status;
}

absl::Status QueuedCollective::AllReduce(absl::Span<float> values, Op op) {
  const OperationHeader header = ReductionHeader(OperationHeader::kAllReduce, values.size(), op);
  return RunAlone([&](CollectiveEngine& engine) { return engine.Reduce(header, values); });
}

absl::Status QueuedCollective::ReduceScatter(absl::Span<float> values, Op op) {
  const OperationHeader header =
      ReductionHeader(OperationHeader::kReduceScatter, values.size(), op);
  return RunAlone([&](CollectiveEngine& engine) { return engine.Reduce(header, values); });
}

absl::Status QueuedCollective::AllGather(absl::Span<float> values) {
  const OperationHeader header = AllGatherHeader(values.size());
  return RunAlone([&](CollectiveEngine& engine) { return engine.AllGather(header, values); });
}

absl::Status QueuedCollective::Broadcast(absl::Span<uint8_t> bytes, uint32_t root) {
  const OperationHeader header = BroadcastHeader(bytes.size(), root);
  return RunAlone([&](CollectiveEngine& engine) { return engine.Broadcast(header, bytes); });
}

absl::Status QueuedCollective::Barrier() {
  return RunAlone([](CollectiveEngine& engine) { return engine.Barrier(BarrierHeader()); });
}

void QueuedCollective::Cancel() {
  for (const auto& channel : channels_) channel->engine->Cancel();
}

std::string QueuedCollective::WaitingFor() const {
  for (const auto& channel : channels_) {
    std::string waiting = channel->engine->WaitingFor();
    if (!waiting.empty()) return waiting;
  }
  return "";
}

}  // namespace sluice
