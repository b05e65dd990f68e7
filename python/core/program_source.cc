#include "python/core/program_source.h"

#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

SourceRequest RequestOf(const JobContext& context, SourceRequest::Kind kind) {
  SourceRequest request;
  request.kind = kind;
  request.rank = context.rank;
  request.world_size = context.worker_num();
  request.job = std::make_shared<const JobConfig>(context.config());
  return request;
}

}  // namespace

ProgramSource::ProgramSource(const JobContext& context,
                             std::shared_ptr<const GivenFeatures> features,
                             SourceExchange* exchange, SourceRequest request,
                             const std::atomic<bool>* stopped)
    : context_(context),
      features_(std::move(features)),
      exchange_(*exchange),
      stopped_(stopped),
      request_(std::move(request)) {}

ProgramSource::~ProgramSource() {
  if (request_.number > 0) exchange_.Close(request_.number);
}

absl::StatusOr<BatchSource::Fill> ProgramSource::Next() {
  if (request_.number == 0) request_.number = exchange_.Open(request_);
  StageTimer timer(context_.stats, Stage::kRead);
  SLUICE_ASSIGN_OR_RETURN(SourceExchange::Batch given, exchange_.Next(request_.number, [this] {
    return *context_.cancelled || (stopped_ != nullptr && *stopped_);
  }));
  if (given == nullptr) return Fill();
  return Fill([features = features_, given = std::move(given)](PreparedBatch* prepared) {
    prepared->last_of_task = false;
    return features->Fill(*given, &prepared->batch);
  });
}

absl::StatusOr<uint64_t> ProgramData::CountBatches(const JobContext& context) {
  const uint64_t number = exchange_.Open(RequestOf(context, SourceRequest::kCount));
  return exchange_.Count(number, [&] { return context.cancelled->load(); });
}

absl::StatusOr<std::unique_ptr<BatchSource>> ProgramData::Open(const JobContext& context,
                                                               SourceRequest request,
                                                               const std::atomic<bool>* stopped) {
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<const GivenFeatures> features,
                          GivenFeatures::Create(context.config()));
  return std::unique_ptr<BatchSource>(std::make_unique<ProgramSource>(
      context, std::move(features), &exchange_, std::move(request), stopped));
}

absl::StatusOr<std::unique_ptr<BatchSource>> ProgramData::Train(const JobContext& context,
                                                                uint32_t epoch, uint64_t first,
                                                                const std::atomic<bool>* stopped) {
  SourceRequest request = RequestOf(context, SourceRequest::kTrain);
  request.epoch = epoch;
  request.start = first;
  return Open(context, std::move(request), stopped);
}

absl::StatusOr<std::unique_ptr<BatchSource>> ProgramData::Evaluate(const JobContext& context) {
  return Open(context, RequestOf(context, SourceRequest::kEvaluate), nullptr);
}

}  // namespace sluice
