#include "model/net/mlp.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

// Plans kept for odd numbers of rows.
constexpr size_t kMaxPlans = 512;

// sum(a[i] * b[i]) with 16 partial sums: a fixed order that the compiler can vectorize.
float Dot(const float* a, const float* b, size_t n) {
  float partial[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) partial[j] += a[i + j] * b[i + j];
  }
  for (size_t j = 0; i < n; ++i, ++j) partial[j] += a[i] * b[i];
  float sum = 0;
  for (float p : partial) sum += p;
  return sum;
}

// h = ReLU(z + bias), keeping NaN.
void BiasRelu(const float* bias, float* z, size_t n) {
  for (size_t j = 0; j < n; ++j) {
    const float v = z[j] + bias[j];
    z[j] = v < 0 ? 0.0f : v;
  }
}

// Back through dropout and ReLU: a unit that is not positive was dropped or cut off.
void MaskGradient(const float* h, float scale, float* gradient, size_t n) {
  for (size_t j = 0; j < n; ++j) gradient[j] = h[j] > 0 ? gradient[j] * scale : 0.0f;
}

}  // namespace

Mlp::Mlp(std::vector<size_t> widths, bool input_gradient, int threads)
    : widths_(std::move(widths)), input_gradient_(input_gradient), threads_(threads), whole_(1) {
  const size_t output = widths_.size() - 2;  // its layer
  size_t widest = 0;
  for (size_t l = 0; l < output; ++l) {
    widest = std::max(widest, widths_[l + 1]);
    for (size_t i = 0; i < widths_[l]; i += kTile) {
      jobs_.push_back({Job::kWeights, l, i, std::min(i + kTile, widths_[l])});
    }
    for (size_t i = 0; i < widths_[l + 1]; i += kTile) {
      jobs_.push_back({Job::kBias, l, i, std::min(i + kTile, widths_[l + 1])});
    }
  }
  for (size_t i = 0; i < widths_[output]; i += kTile) {
    jobs_.push_back({Job::kOutput, output, i, std::min(i + kTile, widths_[output])});
  }
  product_.assign(threads, std::vector<float>(kTile * widest));
  sum_.assign(threads, std::vector<double>(kTile * widest));
  activations_.resize(widths_.size() - 1);
  gradients_.resize(widths_.size() - 1);
}

absl::StatusOr<std::unique_ptr<Mlp>> Mlp::Create(std::vector<size_t> widths, bool input_gradient,
                                                 int threads) {
  std::unique_ptr<Mlp> mlp(new Mlp(std::move(widths), input_gradient, threads));
  SLUICE_RETURN_IF_ERROR(mlp->CreatePlans());
  return mlp;
}

absl::Status Mlp::CreatePlans() {
  for (size_t l = 0; l + 2 < widths_.size(); ++l) {
    const int64_t in = widths_[l], out = widths_[l + 1];
    Matmul::Shape forward;  // [kTile, in] x [in, out]
    forward.m = kTile, forward.k = in, forward.n = out, forward.lda = in;
    SLUICE_ASSIGN_OR_RETURN(auto matmul, Matmul::Create(forward, threads_));
    forward_.push_back(std::move(matmul));
    Matmul::Shape backward;  // [kTile, out] x [in, out]^T
    backward.m = kTile, backward.k = out, backward.n = in, backward.lda = out,
    backward.b_transposed = true;
    SLUICE_ASSIGN_OR_RETURN(matmul, Matmul::Create(backward, threads_));
    backward_.push_back(std::move(matmul));
  }
  return absl::OkStatus();
}

void Mlp::Reserve(size_t n) {
  const size_t rows = (n + kTile - 1) / kTile * kTile;
  if (rows <= capacity_) return;
  capacity_ = rows;
  for (size_t l = 0; l < activations_.size(); ++l) {
    activations_[l].assign(rows * widths_[l], 0.0f);
    gradients_[l].assign(rows * widths_[l], 0.0f);
  }
}

void Mlp::ForwardTile(int lane, size_t tile, size_t n, const Dropout& dropout, const uint64_t* ids,
                      float* out) {
  const size_t row = tile * kTile;
  std::fill(input(row + n), input(row + kTile), 0.0f);
  for (size_t l = 0; l < forward_.size(); ++l) {
    const size_t units = widths_[l + 1];
    float* h = activations_[l + 1].data() + row * units;  // [kTile, units]
    forward_[l]->Run(lane, activations_[l].data() + row * widths_[l], dense_[2 * l], h);
    for (size_t i = 0; i < kTile; ++i) {
      BiasRelu(dense_[2 * l + 1], h + i * units, units);
      if (i < n && dropout.active()) dropout.Apply(ids[i], l, h + i * units, units);
    }
  }
  const size_t last = forward_.size(), units = widths_[last];
  for (size_t i = 0; i < n; ++i) {
    out[i] = Dot(activations_[last].data() + (row + i) * units, dense_[2 * last], units) +
             dense_[2 * last + 1][0];
  }
}

void Mlp::BackwardTile(int lane, size_t tile, size_t n, const Dropout& dropout,
                       const float* output_gradient) {
  const size_t row = tile * kTile, last = forward_.size();
  const float scale = dropout.active() ? dropout.scale() : 1.0f;
  for (size_t i = 0; i < kTile; ++i) {
    // Rows of padding get zero: they add nothing to any weight.
    const float g = i < n ? output_gradient[i] : 0.0f;
    float* to = gradients_[last].data() + (row + i) * widths_[last];
    for (size_t j = 0; j < widths_[last]; ++j) to[j] = g * dense_[2 * last][j];
  }
  for (size_t l = last; l > 0; --l) {
    float* z = gradients_[l].data() + row * widths_[l];  // [kTile, widths_[l]]
    MaskGradient(activations_[l].data() + row * widths_[l], scale, z, kTile * widths_[l]);
    if (l == 1 && !input_gradient_) return;
    backward_[l - 1]->Run(lane, z, dense_[2 * (l - 1)],
                          gradients_[l - 1].data() + row * widths_[l - 1]);
  }
}

absl::StatusOr<Matmul*> Mlp::Plan(const Matmul::Shape& shape) {
  auto it = plans_.find(shape);
  if (it == plans_.end()) {
    SLUICE_ASSIGN_OR_RETURN(auto matmul, Matmul::Create(shape, threads_));
    it = plans_.emplace(shape, std::move(matmul)).first;
  }
  return it->second.get();
}

absl::Status Mlp::PlanWeightGradients(const std::vector<RowPiece>& pieces) {
  if (plans_.size() > kMaxPlans) plans_.clear();
  step_plans_.clear();
  for (size_t l = 0; l + 2 < widths_.size(); ++l) {
    for (bool last_block : {false, true}) {
      for (const RowPiece& piece : pieces) {
        Matmul::Shape shape;  // [rows, block of in]^T x [rows, out]
        shape.m = last_block ? (widths_[l] - 1) % kTile + 1 : std::min(widths_[l], kTile);
        shape.k = piece.end - piece.begin;
        shape.n = widths_[l + 1];
        shape.a_transposed = true;
        shape.lda = widths_[l];
        SLUICE_ASSIGN_OR_RETURN(Matmul * plan, Plan(shape));
        step_plans_.push_back(plan);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Mlp::WeightGradients(size_t rows, const std::vector<RowPiece>& pieces, double scale,
                                  const float* output_gradient, float* const* out) {
  // Padding adds zeros; without it every short batch would need plans of its own.
  whole_[0] = {0, (rows + kTile - 1) / kTile * kTile};
  const std::vector<RowPiece>& used = pieces.empty() ? whole_ : pieces;
  SLUICE_RETURN_IF_ERROR(PlanWeightGradients(used));
  ParallelFor(threads_, jobs_.size(), [&](int lane, size_t i) {
    const Job& job = jobs_[i];
    float* weight = out[2 * job.layer];
    float* bias = out[2 * job.layer + 1];
    switch (job.kind) {
      case Job::kWeights:
        return WeightJob(lane, job, used, scale, weight);
      case Job::kBias:
        return BiasJob(job, rows, scale, bias);
      case Job::kOutput:
        return OutputJob(job, rows, scale, output_gradient, weight, bias);
    }
  });
  return absl::OkStatus();
}

void Mlp::WeightJob(int lane, const Job& job, const std::vector<RowPiece>& pieces, double scale,
                    float* out) {
  const size_t in = widths_[job.layer], units = widths_[job.layer + 1];
  const size_t n = (job.end - job.begin) * units;
  const bool last_block = job.end == in;
  Matmul* const* plans = step_plans_.data() + (2 * job.layer + last_block) * pieces.size();
  float* product = product_[lane].data();  // [block, units]
  double* sum = sum_[lane].data();
  out += job.begin * units;
  for (size_t p = 0; p < pieces.size(); ++p) {
    const float* a = activations_[job.layer].data() + pieces[p].begin * in + job.begin;
    const float* b = gradients_[job.layer + 1].data() + pieces[p].begin * units;
    plans[p]->Run(lane, a, b, product);
    if (p == 0) {
      std::copy(product, product + n, sum);
    } else {
      for (size_t i = 0; i < n; ++i) sum[i] += product[i];
    }
  }
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sum[i] * scale);
}

void Mlp::BiasJob(const Job& job, size_t rows, double scale, float* out) const {
  const size_t units = widths_[job.layer + 1];
  double sum[kTile] = {};
  for (size_t i = 0; i < rows; ++i) {
    const float* g = gradients_[job.layer + 1].data() + i * units;
    for (size_t j = job.begin; j < job.end; ++j) sum[j - job.begin] += g[j];
  }
  for (size_t j = job.begin; j < job.end; ++j)
    out[j] = static_cast<float>(sum[j - job.begin] * scale);
}

void Mlp::OutputJob(const Job& job, size_t rows, double scale, const float* output_gradient,
                    float* weight, float* bias) const {
  const size_t units = widths_[job.layer];
  double sum[kTile] = {}, bias_sum = 0;
  for (size_t i = 0; i < rows; ++i) {
    const float* h = activations_[job.layer].data() + i * units;
    const double g = output_gradient[i];
    for (size_t j = job.begin; j < job.end; ++j) sum[j - job.begin] += h[j] * g;
    bias_sum += g;
  }
  for (size_t j = job.begin; j < job.end; ++j)
    weight[j] = static_cast<float>(sum[j - job.begin] * scale);
  if (job.begin == 0) bias[0] = static_cast<float>(bias_sum * scale);
}

}  // namespace sluice
