#include "model/wide_deep/cuda/device_geo_optimizer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/learning_rate.h"
#include "model/wide_deep/cuda/device_resident_rows.h"
#include "model/wide_deep/cuda/one_table.h"

namespace sluice::cuda {
namespace {

float RateOf(const TableLayout::Column& column, uint64_t schedule_step) {
  const OptimizerConfig& optimizer = column.optimizer;
  return LearningRateAt(optimizer.schedule(), optimizer.learning_rate(), schedule_step);
}

// Whether each row needs values of its own in RuleStep::of_count.
bool DependsOnCount(const TableLayout::Column& column) {
  return column.rule->step_depends_on_count();
}

// Writes RuleStep::of_count for rows with these update counts; to: [n][2].
void FillOfCount(const UpdateRule& rule, float rate, const uint64_t* counts, size_t n, float* to) {
  const auto fill = [&](uint64_t count, float* pair) {
    const RuleStep step = rule.StepAt(rate, count);
    pair[0] = step.of_count[0], pair[1] = step.of_count[1];
  };
  // Many rows usually share few counts, so each count is computed once.
  std::vector<float> by_count;
  const uint64_t most = n > 0 ? *std::max_element(counts, counts + n) : 0;
  if (most < n) {
    by_count.resize(2 * (most + 1));
    for (uint64_t count = 1; count <= most; ++count) fill(count, &by_count[2 * count]);
  }
  for (size_t i = 0; i < n; ++i) {
    if (by_count.empty()) {
      fill(counts[i], to + 2 * i);
    } else {
      std::copy_n(&by_count[2 * counts[i]], 2, to + 2 * i);
    }
  }
}

template <typename T>
T* In(char* block, size_t at) {
  return reinterpret_cast<T*>(block + at);
}
template <typename T>
const T* In(const char* block, size_t at) {
  return reinterpret_cast<const T*>(block + at);
}

void InitRule(const TableLayout::Column& column, size_t n, float* state) {
  float* arrays[UpdateRule::kMaxState];
  for (int i = 0; i < column.rule->state_floats(); ++i) arrays[i] = state + i * n;
  column.rule->InitState(arrays, n);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GeoOptimizer>> DeviceGeoOptimizer::Create(
    const NetPlan& plan, const std::vector<const TableLayout*>& dense, const TableLayout* sparse,
    double clip_global_norm, std::unique_ptr<TableDevice> device, DeviceGradients* gradients) {
  std::unique_ptr<DeviceGeoOptimizer> values(
      new DeviceGeoOptimizer(sparse, clip_global_norm, std::move(device), gradients));
  SLUICE_RETURN_IF_ERROR(values->Prepare(plan, dense));
  return values;
}

absl::Status DeviceGeoOptimizer::Prepare(const NetPlan& plan,
                                         const std::vector<const TableLayout*>& dense) {
  // Kernels have no bounds to check, so shapes are compared once, here.
  bool fits = dense.size() == plan.elements.size() &&
              plan.row_dim == (sparse_ == nullptr ? 0 : sparse_->dim());
  for (size_t i = 0; fits && i < dense.size(); ++i) fits = dense[i]->elements() == plan.elements[i];
  if (!fits) return absl::InvalidArgumentError("Geo: the tables' shapes differ from the network's");
  // The tensors lie as in a step's input, so a step reads them where they are.
  const InputLayout layout(plan, {});
  dense_bytes_ = layout.sizes;  // the tensors come first, and `sizes` follows the last one
  Places state;
  for (size_t i = 0; i < dense.size(); ++i) {
    Group group;
    group.column = &dense[i]->columns()[0];
    group.dim = dense[i]->elements(), group.clip_row = dense[i]->row_elements();
    group.at = layout.dense[i];
    group.state_at = state.Take(group.dim * group.column->rule->state_floats(), sizeof(float));
    dense_.push_back(group);
  }
  if (sparse_ != nullptr) {
    dim_ = sparse_->dim(), state_dim_ = sparse_->state_floats();
    for (const TableLayout::Column& column : sparse_->columns()) {
      Group group;
      group.column = &column;
      group.dim = group.clip_row = column.dim;
      columns_.push_back(group);
    }
  }
  dense_local_ = device_->NewBlock("Geo's dense parameters");
  dense_base_ = device_->NewBlock("Geo's bases of dense parameters");
  dense_state_ = device_->NewBlock("Geo's optimizer state of dense parameters");
  row_local_ = device_->NewBlock("Geo's local rows");
  row_base_ = device_->NewBlock("Geo's bases of rows");
  row_state_ = device_->NewBlock("Geo's optimizer state of rows");
  row_initial_ = device_->NewBlock("the state of a fresh row");
  sent_ = device_->NewBlock("the deltas of an exchange");
  work_ = device_->NewBlock("the norms of an update");
  SLUICE_RETURN_IF_ERROR(dense_local_->Reserve(dense_bytes_, false));
  SLUICE_RETURN_IF_ERROR(dense_base_->Reserve(dense_bytes_, false));
  SLUICE_RETURN_IF_ERROR(dense_state_->Reserve(state.end(), false));
  SLUICE_RETURN_IF_ERROR(row_initial_->Reserve(state_dim_ * sizeof(float), false));
  return InitState();
}

absl::Status DeviceGeoOptimizer::InitState() {
  Places places;
  size_t dense_floats = 0;
  for (const Group& group : dense_) {
    const size_t floats = group.dim * group.column->rule->state_floats();
    dense_floats = group.state_at / sizeof(float) + floats;
  }
  const size_t dense_at = places.Take(dense_floats, sizeof(float));
  const size_t row_at = places.Take(state_dim_, sizeof(float));
  // The gaps between places are uploaded too.
  const auto fill = [&](char* to) {
    std::fill_n(to, places.end(), char{0});
    for (const Group& group : dense_)
      InitRule(*group.column, group.dim, In<float>(to, dense_at + group.state_at));
    for (const Group& group : columns_)
      InitRule(*group.column, group.dim, In<float>(to, row_at) + group.column->state_begin);
  };
  return device_->Run(places.end(), fill, [&](const char* up, TableOps* ops) {
    FillArgs args;
    args.n = 1;
    args.values = In<float>(up, dense_at), args.dim = dense_floats;
    args.local = In<float>(dense_state_->data(), 0);
    if (args.items() > 0) ops->Fill(args);
    args.values = In<float>(up, row_at), args.dim = state_dim_;
    args.local = In<float>(row_initial_->data(), 0);
    if (args.items() > 0) ops->Fill(args);
  });
}

void DeviceGeoOptimizer::PackDense(const std::vector<const float*>& values, char* to) const {
  for (size_t i = 0; i < dense_.size(); ++i)
    std::memcpy(to + dense_[i].at, values[i], dense_[i].dim * sizeof(float));
}

void DeviceGeoOptimizer::UnpackDense(const char* from, const std::vector<float*>& values) const {
  for (size_t i = 0; i < dense_.size(); ++i)
    std::memcpy(values[i], from + dense_[i].at, dense_[i].dim * sizeof(float));
}

absl::Status DeviceGeoOptimizer::SetDense(const std::vector<const float*>& values) {
  return device_->Run(
      dense_bytes_, [&](char* to) { PackDense(values, to); },
      [&](const char* up, TableOps* ops) {
        FillArgs args;
        args.values = In<float>(up, 0);
        args.n = 1, args.dim = dense_bytes_ / sizeof(float);
        args.local = In<float>(dense_local_->data(), 0);
        args.base = In<float>(dense_base_->data(), 0);
        if (args.items() > 0) ops->Fill(args);
      });
}

size_t DeviceGeoOptimizer::RoomFor(size_t slots) const {
  const size_t slot_bytes = (2 * dim_ + state_dim_) * sizeof(float);
  const size_t held = row_local_->capacity() + row_base_->capacity() + row_state_->capacity();
  // The other half is left for the memory of steps and exchanges.
  // Grows by half, so that rows are seldom copied, but no further than the memory allows.
  const size_t fit = (held + device_->BytesLeft() / 2) / slot_bytes;
  return std::max(slots, std::min(slots_ + slots_ / 2, fit));
}

absl::Status DeviceGeoOptimizer::ReserveSlots(size_t slots) {
  SLUICE_RETURN_IF_ERROR(lost_);
  if (slots <= slots_) return absl::OkStatus();
  const size_t room = RoomFor(slots);
  absl::Status status = row_local_->Reserve(room * dim_ * sizeof(float), /*keep=*/true);
  if (status.ok()) status = row_base_->Reserve(room * dim_ * sizeof(float), /*keep=*/true);
  if (status.ok()) status = row_state_->Reserve(room * state_dim_ * sizeof(float), /*keep=*/true);
  if (status.ok()) {
    slots_ = room;
  } else if (absl::IsDataLoss(status)) {
    // The old block is gone and the new one is not filled. All later calls must fail: the values
    // are lost.
    slots_ = 0;
    lost_ = status;
  } else if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Geo: ", slots, " local rows do not fit on the device; lower ",
                     "strategy.a_sync_configs.geo_cache_rows or k_steps (", status.message(), ")"));
  }
  return status;
}

absl::Status DeviceGeoOptimizer::FillRows(size_t, GeoSlots rows, const uint8_t* fresh,
                                          const float* values) {
  const uint32_t* const slots = rows.slots;
  const size_t n = rows.n;
  if (n == 0) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(ReserveSlots(size_t{*std::max_element(slots, slots + n)} + 1));
  Places places;
  const size_t slots_at = places.Take(n, sizeof(uint32_t));
  const size_t fresh_at = places.Take(n, sizeof(uint32_t));
  const size_t values_at = places.Take(n * dim_, sizeof(float));
  const auto fill = [&](char* to) {
    std::memcpy(to + slots_at, slots, n * sizeof(uint32_t));
    std::copy_n(fresh, n, In<uint32_t>(to, fresh_at));
    std::memcpy(to + values_at, values, n * dim_ * sizeof(float));
  };
  return device_->Run(places.end(), fill, [&](const char* up, TableOps* ops) {
    FillArgs args;
    args.slots = In<uint32_t>(up, slots_at), args.fresh = In<uint32_t>(up, fresh_at);
    args.values = In<float>(up, values_at), args.initial = In<float>(row_initial_->data(), 0);
    args.n = n, args.dim = dim_, args.state_dim = state_dim_;
    args.local = In<float>(row_local_->data(), 0), args.base = In<float>(row_base_->data(), 0);
    args.state = In<float>(row_state_->data(), 0);
    ops->Fill(args);
  });
}

absl::Status DeviceGeoOptimizer::ReserveWork(size_t rows) {
  uint64_t tiles = SquaresArgs{nullptr, rows * dim_}.tiles(), clipped = 0;
  for (const Group& group : dense_) {
    tiles += SquaresArgs{nullptr, group.dim}.tiles();
    clipped = std::max(clipped, group.clip_rows(1));
  }
  for (const Group& group : columns_) clipped = std::max(clipped, group.clip_rows(rows));
  Places places;
  places.Take(1, sizeof(float));
  partials_at_ = places.Take(tiles, sizeof(double));
  scales_at_ = places.Take(clipped, sizeof(float));
  return work_->Reserve(places.end(), /*keep=*/false);
}

void DeviceGeoOptimizer::ClipGlobalNorm(TableOps* ops) {
  NormArgs norm;
  double* const partials = In<double>(work_->data(), partials_at_);
  const auto add = [&](const float* values, uint64_t n) {
    SquaresArgs args;
    args.values = values, args.n = n;
    args.factor = gradients_.factor;
    args.partials = partials + norm.n;
    if (n > 0) ops->Squares(args);
    norm.n += args.tiles();
  };
  // In a fixed order, on which the bits of the sum depend.
  add(gradients_.rows, gradients_.num_rows * dim_);
  for (size_t i = 0; i < dense_.size(); ++i) add(gradients_.dense[i], dense_[i].dim);
  norm.partials = partials;
  norm.limit = clip_global_norm_;
  norm.global = In<float>(work_->data(), 0);
  ops->Norm(norm);
}

// All groups write their rows' scales to the same memory. Kernels run in order, so one group has
// used its scales before the next group overwrites them.
void DeviceGeoOptimizer::UpdateGroup(const Group& group, UpdateArgs args, TableOps* ops) {
  args.dim = group.dim;
  args.factor = gradients_.factor;
  if (clip_global_norm_ > 0) args.global = In<float>(work_->data(), 0);
  args.clip_value = group.column->rule->clip_value();
  if (args.step.rule == RuleStep::kNothing || args.items() == 0) return;
  if (group.clips_rows()) {
    args.clip_row_norm = group.column->rule->clip_row_norm();
    args.clip_row = group.clip_row;
    args.scales = In<float>(work_->data(), scales_at_);
    ops->Scales(args);
  }
  ops->Update(args);
}

void DeviceGeoOptimizer::UpdateRows(const GeoUpdate& update, const uint32_t* slots,
                                    const std::vector<const float*>& of_count, TableOps* ops) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const TableLayout::Column& column = *columns_[c].column;
    UpdateArgs args;
    // With a count of 1, since rows differ in theirs. Rules that depend on the count take their
    // factors by row from `of_count`.
    args.step = column.rule->StepAt(RateOf(column, update.schedule_step), 1);
    args.slots = slots;
    args.gradient = gradients_.rows;
    args.n = OnlyTable(update.rows).n;
    args.stride = dim_, args.begin = column.begin;
    args.state_stride = state_dim_, args.state_begin = column.state_begin;
    args.of_count = of_count[c];
    args.local = In<float>(row_local_->data(), 0), args.state = In<float>(row_state_->data(), 0);
    UpdateGroup(columns_[c], args, ops);
  }
}

void DeviceGeoOptimizer::UpdateDense(const GeoUpdate& update, TableOps* ops) {
  for (size_t i = 0; i < dense_.size(); ++i) {
    const TableLayout::Column& column = *dense_[i].column;
    UpdateArgs args;
    args.step = column.rule->StepAt(RateOf(column, update.schedule_step), update.dense_count);
    args.gradient = gradients_.dense[i];
    args.n = 1;
    args.stride = args.state_stride = dense_[i].dim;
    args.local = In<float>(dense_local_->data(), dense_[i].at);
    if (column.rule->state_floats() > 0)
      args.state = In<float>(dense_state_->data(), dense_[i].state_at);
    UpdateGroup(dense_[i], args, ops);
  }
}

absl::Status DeviceGeoOptimizer::Update(const GeoUpdate& update) {
  const GeoUpdate::Rows rows = OnlyTable(update.rows);
  if (!gradients_.present || gradients_.num_rows != rows.n) {
    return absl::FailedPreconditionError(
        absl::StrCat("Geo: an update of ", rows.n, " rows, but the last step left gradients of ",
                     gradients_.present ? gradients_.num_rows : 0));
  }
  // The gradients are used once. A second update with them would be a bug of the caller.
  gradients_.present = false;
  SLUICE_RETURN_IF_ERROR(CheckSlots(rows.slots, rows.n, slots_));
  SLUICE_RETURN_IF_ERROR(ReserveWork(rows.n));
  Places places;
  const size_t slots_at = places.Take(rows.n, sizeof(uint32_t));
  std::vector<size_t> of_count_at;
  for (const Group& group : columns_)
    of_count_at.push_back(
        places.Take(DependsOnCount(*group.column) ? 2 * rows.n : 0, sizeof(float)));
  const auto fill = [&](char* to) {
    if (rows.n > 0) std::memcpy(to + slots_at, rows.slots, rows.n * sizeof(uint32_t));
    for (size_t c = 0; c < columns_.size(); ++c) {
      const TableLayout::Column& column = *columns_[c].column;
      if (!DependsOnCount(column)) continue;
      FillOfCount(*column.rule, RateOf(column, update.schedule_step), rows.counts, rows.n,
                  In<float>(to, of_count_at[c]));
    }
  };
  return device_->Run(places.end(), fill, [&](const char* up, TableOps* ops) {
    std::vector<const float*> of_count;
    for (size_t c = 0; c < columns_.size(); ++c)
      of_count.push_back(DependsOnCount(*columns_[c].column) ? In<float>(up, of_count_at[c])
                                                             : nullptr);
    if (clip_global_norm_ > 0) ClipGlobalNorm(ops);
    UpdateRows(update, In<uint32_t>(up, slots_at), of_count, ops);
    UpdateDense(update, ops);
  });
}

absl::Status DeviceGeoOptimizer::TakeDelta(const std::vector<GeoSlots>& rows,
                                           const GeoExchange& delta) {
  const uint32_t* const slots = OnlyTable(rows).slots;
  const size_t n = OnlyTable(rows).n;
  SLUICE_RETURN_IF_ERROR(CheckSlots(slots, n, slots_));
  // Dense tensors, then rows: one download. The deltas also stay here, where Merge subtracts what
  // was sent.
  const size_t bytes = dense_bytes_ + n * dim_ * sizeof(float);
  SLUICE_RETURN_IF_ERROR(sent_->Reserve(bytes, /*keep=*/false));
  sent_rows_ = n;
  const auto fill = [&](char* to) {
    if (n > 0) std::memcpy(to, slots, n * sizeof(uint32_t));
  };
  SLUICE_RETURN_IF_ERROR(
      device_->Run(n * sizeof(uint32_t), fill, [&](const char* up, TableOps* ops) {
        DeltaArgs args;
        args.n = 1, args.dim = dense_bytes_ / sizeof(float);
        args.local = In<float>(dense_local_->data(), 0);
        args.base = In<float>(dense_base_->data(), 0);
        args.delta = In<float>(sent_->data(), 0);
        if (args.items() > 0) ops->Delta(args);
        args.slots = In<uint32_t>(up, 0);
        args.n = n, args.dim = dim_;
        args.local = In<float>(row_local_->data(), 0);
        args.base = In<float>(row_base_->data(), 0);
        args.delta = In<float>(sent_->data(), dense_bytes_);
        if (args.items() > 0) ops->Delta(args);
      }));
  if (bytes == 0) return absl::OkStatus();
  return device_->Download(sent_->data(), bytes, [&](const char* from) {
    UnpackDense(from, delta.dense);
    if (n > 0) std::memcpy(delta.rows[0], from + dense_bytes_, n * dim_ * sizeof(float));
  });
}

absl::Status DeviceGeoOptimizer::Merge(const std::vector<GeoSlots>& rows, const GeoExchange&,
                                       const GeoExchange& server) {
  const uint32_t* const slots = OnlyTable(rows).slots;
  const size_t n = OnlyTable(rows).n;
  // The deltas of the exchange have stayed on the device, so the rows must be the same ones.
  if (n != sent_rows_) {
    return absl::InternalError(
        absl::StrCat("Geo: a merge of ", n, " rows after deltas of ", sent_rows_, " rows"));
  }
  SLUICE_RETURN_IF_ERROR(CheckSlots(slots, n, slots_));
  Places places;
  const size_t dense_at = places.Take(dense_bytes_, 1);
  const size_t slots_at = places.Take(n, sizeof(uint32_t));
  const size_t rows_at = places.Take(n * dim_, sizeof(float));
  const auto fill = [&](char* to) {
    PackDense({server.dense.begin(), server.dense.end()}, to + dense_at);
    if (n == 0) return;
    std::memcpy(to + slots_at, slots, n * sizeof(uint32_t));
    std::memcpy(to + rows_at, server.rows[0], n * dim_ * sizeof(float));
  };
  return device_->Run(places.end(), fill, [&](const char* up, TableOps* ops) {
    MergeArgs args;
    args.n = 1, args.dim = dense_bytes_ / sizeof(float);
    args.sent = In<float>(sent_->data(), 0), args.server = In<float>(up, dense_at);
    args.local = In<float>(dense_local_->data(), 0), args.base = In<float>(dense_base_->data(), 0);
    if (args.items() > 0) ops->Merge(args);
    args.slots = In<uint32_t>(up, slots_at);
    args.n = n, args.dim = dim_;
    args.sent = In<float>(sent_->data(), dense_bytes_), args.server = In<float>(up, rows_at);
    args.local = In<float>(row_local_->data(), 0), args.base = In<float>(row_base_->data(), 0);
    if (args.items() > 0) ops->Merge(args);
  });
}

absl::Status DeviceGeoOptimizer::Download(const float* from, size_t n, float* to) {
  if (n == 0) return absl::OkStatus();
  return device_->Download(reinterpret_cast<const char*>(from), n * sizeof(float),
                           [&](const char* got) { std::memcpy(to, got, n * sizeof(float)); });
}

absl::Status DeviceGeoOptimizer::Upload(const float* from, size_t n, float* to) {
  if (n == 0) return absl::OkStatus();
  return device_->Run(
      n * sizeof(float), [&](char* up) { std::memcpy(up, from, n * sizeof(float)); },
      [&](const char* up, TableOps* ops) {
        FillArgs args;
        args.values = In<float>(up, 0);
        args.n = 1, args.dim = n;
        args.local = to;
        ops->Fill(args);
      });
}

absl::Status DeviceGeoOptimizer::ReadRowState(size_t, uint32_t first, size_t n, float* state) {
  SLUICE_RETURN_IF_ERROR(lost_);
  return Download(In<float>(row_state_->data(), 0) + first * state_dim_, n * state_dim_, state);
}

absl::Status DeviceGeoOptimizer::WriteRowState(size_t, uint32_t first, size_t n,
                                               const float* state) {
  SLUICE_RETURN_IF_ERROR(ReserveSlots(first + n));
  return Upload(state, n * state_dim_, In<float>(row_state_->data(), 0) + first * state_dim_);
}

absl::Status DeviceGeoOptimizer::ReadDenseState(size_t table, size_t first, size_t n,
                                                float* state) {
  const float* const from = In<float>(dense_state_->data(), dense_[table].state_at);
  return Download(from + first, n, state);
}

absl::Status DeviceGeoOptimizer::WriteDenseState(size_t table, size_t first, size_t n,
                                                 const float* state) {
  return Upload(state, n, In<float>(dense_state_->data(), dense_[table].state_at) + first);
}

}  // namespace sluice::cuda
