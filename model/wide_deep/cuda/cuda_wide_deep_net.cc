#include "model/wide_deep/cuda/cuda_wide_deep_net.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/net/cuda/cuda_table_device.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "model/wide_deep/cuda/device_geo_optimizer.h"
#include "model/wide_deep/cuda/device_resident_rows.h"
#include "model/wide_deep/cuda/one_table.h"
#include "model/wide_deep/shape/net_input.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<DenseNet>> CreateCudaNet(const WideDeepShape& shape,
                                                        const NetOptions& options) {
  return cuda::CudaWideDeepNet::Create(shape, options);
}

namespace cuda {
namespace {

// Before the first batch, memory is reserved for one unique row in this many keys.
constexpr size_t kRowsOfKeys = 4;

Element ElementOf(MatmulPrecision precision) {
  switch (precision) {
    case MatmulPrecision::kBf16:
      return Element::kBf16;
    case MatmulPrecision::kFp16:
      return Element::kFp16;
    default:
      return Element::kF32;
  }
}

absl::Status CheckOptions(const NetOptions& options) {
  const double fraction = options.device_memory_fraction;
  if (fraction > 0 && fraction <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("device_memory_fraction is ", fraction,
                                                 "; give a number above 0 and at most 1"));
}

}  // namespace

CudaWideDeepNet::CudaWideDeepNet(const WideDeepShape& shape, const NetOptions& options,
                                 MatmulPrecision precision, CudaDeviceInfo device)
    : shape_(shape),
      options_(options),
      precision_(precision),
      device_(std::move(device)),
      device_memory_(NameOf(options.device),
                     static_cast<size_t>(device_.total_bytes * options.device_memory_fraction)),
      constants_(&device_memory_, "the network's tables"),
      work_(&device_memory_, "activations and their gradients"),
      output_(&device_memory_, "gradients"),
      host_memory_(std::make_shared<PinnedMemory>(device_.ordinal)) {}

absl::StatusOr<std::unique_ptr<DenseNet>> CudaWideDeepNet::Create(const WideDeepShape& shape,
                                                                  const NetOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckShape(shape));
  SLUICE_RETURN_IF_ERROR(CheckOptions(options));
  SLUICE_ASSIGN_OR_RETURN(CudaDeviceInfo device, OpenCudaDevice(options.device.ordinal));
  MatmulPrecision precision = options.precision;
  if (precision == MatmulPrecision::kJob)
    precision = shape.bf16 ? MatmulPrecision::kBf16 : MatmulPrecision::kF32;
  std::unique_ptr<CudaWideDeepNet> net(
      new CudaWideDeepNet(shape, options, precision, std::move(device)));
  SLUICE_RETURN_IF_ERROR(net->Prepare());
  return net;
}

CudaWideDeepNet::~CudaWideDeepNet() {
  (void)cudaSetDevice(device_.ordinal);
  // A step that failed half way may have left copies that still use the blocks.
  for (const Stream* stream : {&up_, &compute_, &down_}) {
    if (stream->get() != nullptr) (void)cudaStreamSynchronize(stream->get());
  }
}

absl::Status CudaWideDeepNet::Prepare() {
  // Three streams, so that copies in both directions run beside the kernels.
  for (Stream* stream : {&compute_, &up_, &down_}) SLUICE_RETURN_IF_ERROR(stream->Create());
  SLUICE_RETURN_IF_ERROR(train_span_.Create());
  for (size_t i = 0; i < shape_.hidden.size() + 1; ++i) {
    // One for each hidden layer's weights, and one for the rest of the step.
    arrivals_.push_back(std::make_unique<Arrival>());
    SLUICE_RETURN_IF_ERROR(arrivals_.back()->computed.Create(/*timing=*/false));
    SLUICE_RETURN_IF_ERROR(arrivals_.back()->down.Create(/*timing=*/false));
  }
  SLUICE_ASSIGN_OR_RETURN(ops_, CudaOps::Create(&compute_, &device_memory_));
  std::vector<char> constants(ConstantLayout(shape_).total);
  FillConstants(shape_, constants.data());
  if (!constants.empty()) {
    SLUICE_RETURN_IF_ERROR(constants_.Reserve(constants.size()));
    SLUICE_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(constants_.data(), constants.data(), constants.size(), cudaMemcpyHostToDevice));
    // cudaMemcpy may return before the copy has ended, and our streams do not wait for its stream.
    SLUICE_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  }
  program_ =
      std::make_unique<StepProgram>(shape_, ViewOf(shape_, constants_.data()),
                                    ElementOf(precision_), precision_ == MatmulPrecision::kTf32);
  SLUICE_ASSIGN_OR_RETURN(
      input_device_, CudaInputDevice::Create(&up_, &compute_, program_.get(), host_memory_.get(),
                                             &device_memory_));
  inputs_ =
      std::make_unique<StepInputs>(shape_, program_->plan(), options_.threads, input_device_.get());
  PublishScale();
  const size_t keys = RowDimOf(shape_) > 0 ? options_.max_batch * shape_.slots.size() : 0;
  const StepShape largest = Pad(options_.max_batch, keys, keys / kRowsOfKeys);
  SLUICE_RETURN_IF_ERROR(inputs_->Reserve(largest));
  // Now and not in the first step, so that a worker without room says so before training begins.
  return Reserve(largest);
}

absl::Status CudaWideDeepNet::Reserve(const StepShape& shape) {
  const NetPlan& plan = program_->plan();
  const size_t work = WorkLayout(plan, shape, program_->element()).total;
  const size_t out = OutputLayout(plan, shape).total;
  if (work <= reserved_[0] && out <= reserved_[1]) return absl::OkStatus();
  // Graphs hold addresses of the blocks that are about to be replaced.
  graphs_.Clear();
  reserved_ = {0, 0};
  // An update may still read the gradients of the step before, which are about to be freed.
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(compute_.get()));
  // Batches ahead are only a gain in speed: their block is freed before a step is refused.
  const absl::Status status = ReserveBlocks(work, out);
  if (!absl::IsResourceExhausted(status) || !inputs_->GiveBack()) return status;
  return ReserveBlocks(work, out);
}

absl::Status CudaWideDeepNet::ReserveBlocks(size_t work, size_t output) {
  SLUICE_RETURN_IF_ERROR(work_.Reserve(work));
  SLUICE_RETURN_IF_ERROR(output_.Reserve(output));
  SLUICE_RETURN_IF_ERROR(pinned_output_.Reserve(output));
  reserved_ = {work_.capacity(), output_.capacity()};
  return absl::OkStatus();
}

absl::Status CudaWideDeepNet::RunPhase(size_t phase, const StepShape& shape, const char* dense) {
  const StepMemory blocks = memory(dense);
  return graphs_.Run({phase, shape, blocks.input, dense}, compute_, [&] {
    if (phase == kForward) {
      program_->Forward(shape, blocks, ops_.get());
    } else {
      program_->Train(phase - kTrain, shape, blocks, ops_.get());
    }
    return ops_->TakeStatus();
  });
}

absl::Status CudaWideDeepNet::Download(size_t i, size_t begin, size_t end) {
  SLUICE_RETURN_IF_ERROR(arrivals_[i]->computed.Record(compute_));
  SLUICE_RETURN_IF_ERROR(arrivals_[i]->computed.HoldBack(down_));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(pinned_output_.data() + begin, output_.data() + begin,
                                              end - begin, cudaMemcpyDeviceToHost, down_.get()));
  return arrivals_[i]->down.Record(down_);
}

absl::Status CudaWideDeepNet::RunTraining(const StepShape& shape, const OutputLayout& out,
                                          const char* dense, bool geo, float* rows,
                                          size_t num_rows) {
  const NetPlan& plan = program_->plan();
  const size_t last = program_->train_parts() - 1;
  for (size_t part = 0; part < last; ++part) {
    SLUICE_RETURN_IF_ERROR(RunPhase(kTrain + part, shape, dense));
    // In Geo the gradients stay on the device, where the optimizer reads them.
    if (geo) continue;
    // A gradient is copied as soon as it is final, while later parts compute.
    const int tensor = program_->FinalAfter(part);
    SLUICE_RETURN_IF_ERROR(Download(part, out.dense[tensor],
                                    out.dense[tensor] + plan.elements[tensor] * sizeof(float)));
  }
  SLUICE_RETURN_IF_ERROR(RunPhase(kTrain + last, shape, dense));
  if (geo) return Download(last, out.result, out.result + sizeof(StepResult));
  // The result, all other dense tensors and the rows are adjacent: one copy.
  if (rows == nullptr)
    return Download(last, out.result, out.rows + shape.rows * plan.row_dim * sizeof(float));
  SLUICE_RETURN_IF_ERROR(Download(last, out.result, out.small_end));
  return CudaStatus(
      cudaMemcpyAsync(rows, output_.data() + out.rows, num_rows * plan.row_dim * sizeof(float),
                      cudaMemcpyDeviceToHost, down_.get()),
      "cudaMemcpyAsync");
}

absl::Status CudaWideDeepNet::Synchronize(bool training) {
  // First the kernels, then the copies that follow them.
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(compute_.get()));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(down_.get()));
  double busy = busy_seconds_.load(std::memory_order_relaxed);
  SLUICE_ASSIGN_OR_RETURN(const double step, train_span_.Seconds());
  busy += step;
  if (training && !inputs_->ahead()) {
    SLUICE_ASSIGN_OR_RETURN(const double index, input_device_->IndexSeconds(inputs_->block()));
    busy += index;
  }
  busy_seconds_.store(busy, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status CudaWideDeepNet::TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                        NetGradients* gradients) {
  const absl::Status status = Train(input, seed, epoch, gradients);
  if (!status.ok()) AwaitStreams();
  return status;
}

absl::Status CudaWideDeepNet::Forward(const NetInput& input, float* logits) {
  const absl::Status status = ForwardPass(input, logits);
  if (!status.ok()) AwaitStreams();
  return status;
}

void CudaWideDeepNet::AwaitStreams() {
  for (const Stream* stream : {&up_, &compute_, &down_}) (void)cudaStreamSynchronize(stream->get());
  // A failed launch leaves its error behind, and the next step would report it as its own.
  (void)cudaGetLastError();
}

absl::Status CudaWideDeepNet::Train(const NetInput& input, uint64_t seed, uint32_t epoch,
                                    NetGradients* gradients) {
  const NetPlan& plan = program_->plan();
  const size_t num_rows = RowsOf(input).n;
  const Dropout dropout(shape_.dropout, seed, epoch);
  SLUICE_RETURN_IF_ERROR(
      CheckTrainStep(shape_, plan.elements, input, dropout.active(), *gradients));
  SLUICE_RETURN_IF_ERROR(CheckSize(*input.batch, num_rows));
  gradients->loss_sum = gradients->weight_sum = 0;
  gradients->skipped = false;
  left_.present = false;
  SLUICE_ASSIGN_OR_RETURN(const OnDevice values, ValuesOnDevice(input));
  // The current device belongs to the thread, and any thread may call.
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_.ordinal));
  if (input.batch->n == 0) return ZeroGradients(input, gradients);
  const bool geo = input.geo != nullptr;
  const StepShape shape = ShapeOf(*input.batch, num_rows);
  SLUICE_RETURN_IF_ERROR(Reserve(shape));
  SLUICE_RETURN_IF_ERROR(inputs_->Begin(input, /*training=*/true));
  steps_ahead_.store(inputs_->steps_ahead(), std::memory_order_relaxed);
  no_room_ahead_.store(inputs_->alone(), std::memory_order_relaxed);
  const double weight_sum = SumOfWeights(*input.batch);
  const double scale = precision_ == MatmulPrecision::kFp16 ? scaler_.scale() : 1.0;
  SLUICE_RETURN_IF_ERROR(
      inputs_->AddValues(input, MakeHeader(input, values.rows, dropout, weight_sum, scale)));
  const OutputLayout out(plan, shape);
  SLUICE_RETURN_IF_ERROR(train_span_.begin.Record(compute_));
  // Gradients of fp16 must be unscaled on the host, so they cannot go to the caller directly.
  const size_t row_bytes = num_rows * plan.row_dim * sizeof(float);
  const bool straight = !geo && precision_ != MatmulPrecision::kFp16 && row_bytes > 0 &&
                        host_memory_->Holds(RowsOf(*gradients), row_bytes);
  SLUICE_RETURN_IF_ERROR(RunTraining(shape, out, values.dense, geo,
                                     straight ? RowsOf(*gradients) : nullptr, num_rows));
  SLUICE_RETURN_IF_ERROR(train_span_.end.Record(compute_));
  inputs_->BringNext();  // before any wait, so that it runs in parallel with this step
  // With fp16 no gradient is final before the result says that nothing overflowed.
  gradients->weight_sum = weight_sum;
  const bool early = precision_ != MatmulPrecision::kFp16 && !geo;
  if (early) SLUICE_RETURN_IF_ERROR(TakeEarly(out, gradients));
  SLUICE_RETURN_IF_ERROR(Synchronize(/*training=*/true));

  StepResult result;
  std::memcpy(&result, pinned_output_.data() + out.result, sizeof result);
  SLUICE_RETURN_IF_ERROR(CheckOverflow(result, gradients));
  if (gradients->skipped) {
    gradients->weight_sum = 0;
    return absl::OkStatus();
  }
  gradients->loss_sum = result.loss_sum;
  if (geo) {
    LeaveGradients(out, num_rows, scale);
    return absl::OkStatus();
  }
  ReadGradients(plan, out, pinned_output_.data(), straight ? 0 : num_rows,
                static_cast<float>(1.0 / scale), /*early=*/!early, options_.threads, gradients);
  return absl::OkStatus();
}

absl::Status CudaWideDeepNet::ZeroGradients(const NetInput& input, NetGradients* gradients) {
  const NetPlan& plan = program_->plan();
  // Also without examples: the next batch was announced, and may have some.
  inputs_->BringNext();
  if (input.geo == nullptr) {
    SetToZero(shape_, plan.elements, input, gradients);
    return absl::OkStatus();
  }
  const size_t num_rows = RowsOf(input).n;
  const StepShape shape = Pad(0, 0, num_rows);
  SLUICE_RETURN_IF_ERROR(Reserve(shape));
  const OutputLayout out(plan, shape);
  ops_->Zero(output_.data(), out.logits);
  LeaveGradients(out, num_rows, 1);
  return ops_->TakeStatus();
}

void CudaWideDeepNet::LeaveGradients(const OutputLayout& out, size_t num_rows, double scale) {
  left_.present = true;
  left_.rows = reinterpret_cast<const float*>(output_.data() + out.rows);
  left_.num_rows = num_rows;
  left_.dense.clear();
  for (const size_t at : out.dense)
    left_.dense.push_back(reinterpret_cast<const float*>(output_.data() + at));
  left_.factor = static_cast<float>(1.0 / scale);
}

absl::Status CudaWideDeepNet::TakeEarly(const OutputLayout& out, NetGradients* gradients) {
  for (size_t part = 0; part + 1 < program_->train_parts(); ++part) {
    SLUICE_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(arrivals_[part]->down.get()));
    const int tensor = program_->FinalAfter(part);
    // Early gradients leave for the pservers while the rest of the step computes.
    ReadTensor(program_->plan(), out, pinned_output_.data(), tensor, options_.threads, gradients);
    if (gradients->ready) gradients->ready(tensor);
  }
  return absl::OkStatus();
}

void CudaWideDeepNet::PublishScale() {
  if (precision_ != MatmulPrecision::kFp16) return;
  skipped_.store(scaler_.skipped(), std::memory_order_relaxed);
  loss_scale_.store(scaler_.scale(), std::memory_order_relaxed);
}

absl::StatusOr<std::string> CudaWideDeepNet::SaveState() const {
  return precision_ == MatmulPrecision::kFp16 ? scaler_.Save() : "";
}

absl::Status CudaWideDeepNet::RestoreState(const std::string& state) {
  if (precision_ != MatmulPrecision::kFp16) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(scaler_.Restore(state));
  PublishScale();
  return absl::OkStatus();
}

absl::Status CudaWideDeepNet::CheckOverflow(const StepResult& result, NetGradients* gradients) {
  if (precision_ != MatmulPrecision::kFp16) return absl::OkStatus();
  gradients->skipped = result.overflow != 0;
  // Before the check: too many overflows at the lowest scale end the job.
  scaler_.Update(gradients->skipped);
  PublishScale();
  if (!scaler_.hopeless()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("fp16: steps overflow at loss scale ", scaler_.scale(),
                   ": weights or activations exceed the range of fp16 (65504), or are not finite; "
                   "use bf16, or a smaller learning rate"));
}

absl::Status CudaWideDeepNet::ForwardPass(const NetInput& input, float* logits) {
  const NetPlan& plan = program_->plan();
  const size_t num_rows = RowsOf(input).n;
  SLUICE_RETURN_IF_ERROR(CheckInput(shape_, plan.elements, input));
  SLUICE_RETURN_IF_ERROR(CheckSize(*input.batch, num_rows));
  if (input.batch->n == 0) return absl::OkStatus();
  left_.present = false;
  SLUICE_ASSIGN_OR_RETURN(const OnDevice values, ValuesOnDevice(input));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_.ordinal));
  const StepShape shape = ShapeOf(*input.batch, num_rows);
  SLUICE_RETURN_IF_ERROR(Reserve(shape));
  SLUICE_RETURN_IF_ERROR(inputs_->Begin(input, /*training=*/false));
  SLUICE_RETURN_IF_ERROR(
      inputs_->AddValues(input, MakeHeader(input, values.rows, Dropout(), 0, 1)));
  const OutputLayout out(plan, shape);
  SLUICE_RETURN_IF_ERROR(train_span_.begin.Record(compute_));
  SLUICE_RETURN_IF_ERROR(RunPhase(kForward, shape, values.dense));
  SLUICE_RETURN_IF_ERROR(train_span_.end.Record(compute_));
  SLUICE_RETURN_IF_ERROR(Download(0, out.logits, out.logits + input.batch->n * sizeof(float)));
  SLUICE_RETURN_IF_ERROR(Synchronize(/*training=*/false));
  std::memcpy(logits, pinned_output_.data() + out.logits, input.batch->n * sizeof(float));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TableDevice>> CudaWideDeepNet::MakeTableDevice(const char* advice) {
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_.ordinal));
  CudaTableDevice::Options options;
  options.ordinal = device_.ordinal;
  options.up = &up_;
  options.compute = &compute_;
  options.memory = &device_memory_;
  options.busy_seconds = &busy_seconds_;
  options.advice = advice;
  // Batches ahead are only a gain in speed, so they give way to parameters too.
  options.make_room = [this] { return inputs_->GiveBack(); };
  return CudaTableDevice::Create(options);
}

absl::StatusOr<std::unique_ptr<ResidentRows>> CudaWideDeepNet::MakeResidentRows(size_t,
                                                                                size_t capacity) {
  if (RowDimOf(shape_) == 0) {
    return absl::InvalidArgumentError(
        "the network has no sparse table, so there are no rows to keep; remove hot_row_cache");
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TableDevice> device,
                          MakeTableDevice("strategy.a_sync_configs.hot_row_cache.rows"));
  return DeviceResidentRows::Create(std::move(device), capacity, RowDimOf(shape_));
}

absl::StatusOr<std::unique_ptr<GeoOptimizer>> CudaWideDeepNet::MakeGeoOptimizer(
    const std::vector<const TableLayout*>& dense, const std::vector<const TableLayout*>& sparse,
    double clip_global_norm) {
  if (sparse.size() > shape_.tables()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Geo: ", sparse.size(), " sparse tables, but the network has ", shape_.tables()));
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TableDevice> device,
                          MakeTableDevice("strategy.a_sync_configs.geo_cache_rows"));
  return DeviceGeoOptimizer::Create(program_->plan(), dense, OnlyTable(sparse), clip_global_norm,
                                    std::move(device), &left_);
}

DeviceStats CudaWideDeepNet::device_stats() const {
  DeviceStats stats;
  stats.busy_seconds = busy_seconds_.load(std::memory_order_relaxed);
  stats.bytes_in_use = device_memory_.used();
  stats.bytes_limit = device_memory_.limit();
  stats.steps_ahead = steps_ahead_.load(std::memory_order_relaxed);
  stats.no_room_ahead = no_room_ahead_.load(std::memory_order_relaxed);
  stats.skipped_steps = skipped_.load(std::memory_order_relaxed);
  stats.loss_scale = loss_scale_.load(std::memory_order_relaxed);
  return stats;
}

std::string CudaWideDeepNet::Describe() const {
  return absl::StrFormat("%s; products in %s; at most %.1f GiB of it", device_.ToString(),
                         NameOf(precision_), device_memory_.limit() / 0x1p30);
}

}  // namespace cuda
}  // namespace sluice
