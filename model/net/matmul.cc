#include "model/net/matmul.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "model/net/layer_loops.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

using dnnl::memory;

dnnl::engine& CpuEngine() {
  // Never destroyed: threads may still multiply while the process ends.
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::desc Matrix(int64_t rows, int64_t columns, bool transposed, int64_t stride,
                    memory::data_type type) {
  const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return memory::desc({rows, columns}, type, strides);
}

// Each lane needs its own scratchpad: oneDNN's belongs to the thread that made the primitive.
dnnl::primitive_attr OwnScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// Operands on their way from bf16 to f32. They belong to the thread, because there may be hundreds
// of plans (WeightGradients) but a thread multiplies once at a time. They only grow.
struct WideOperands {
  std::vector<float> a, b;
  std::vector<uint16_t> rounded;
};

WideOperands& Wide(size_t a, size_t b) {
  static thread_local WideOperands wide;
  if (wide.a.size() < a) wide.a.resize(a);
  if (wide.b.size() < b) wide.b.resize(b);
  return wide;
}

// bf16 is the upper half of an f32.
void Widen(const uint16_t* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{from[i]} << 16;
    std::memcpy(&to[i], &bits, sizeof bits);
  }
}

}  // namespace

bool Matmul::HasBf16Products() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & needed) == needed;
}

Matmul::Matmul(const Shape& shape) : shape_(shape), widen_(shape.bf16 && !HasBf16Products()) {}

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(const Shape& shape, int lanes) {
  std::unique_ptr<Matmul> matmul(new Matmul(shape));
  SLUICE_RETURN_IF_ERROR(matmul->MakePlan(lanes));
  return matmul;
}

absl::Status Matmul::MakePlan(int lanes) {
  const Shape& s = shape_;
  // oneDNN plans a primitive for the number of threads that OpenMP would use at that moment.
  const OneThreadGuard one_thread;
  try {
    const auto f32 = memory::data_type::f32;
    const auto type = s.bf16 && !widen_ ? memory::data_type::bf16 : f32;
    // Widened operands are packed without gaps between rows.
    const int64_t lda = !widen_ ? s.lda : s.a_transposed ? s.m : s.k;
    const memory::desc a = Matrix(s.m, s.k, s.a_transposed, lda, type);
    const memory::desc b = s.b_packed
                               ? memory::desc({s.k, s.n}, type, memory::format_tag::any)
                               : Matrix(s.k, s.n, s.b_transposed, s.b_transposed ? s.k : s.n, type);
    const memory::desc c = Matrix(s.m, s.n, false, s.n, f32);
    dnnl::primitive_attr attributes = OwnScratchpad();
    if (s.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    const dnnl::matmul::primitive_desc plan({a, b, c}, attributes, CpuEngine());
    primitive_ = dnnl::matmul(plan);
    dnnl::reorder::primitive_desc pack;
    const memory::desc plain = Matrix(s.k, s.n, s.b_transposed, s.b_transposed ? s.k : s.n, f32);
    if (s.b_packed) {
      pack = dnnl::reorder::primitive_desc(CpuEngine(), plain, CpuEngine(), plan.weights_desc(),
                                           OwnScratchpad());
      pack_ = dnnl::reorder(pack);
      packed_bytes_ = plan.weights_desc().get_size();
    }
    // A lane has its own handles, because setting the address of an operand changes them.
    for (int i = 0; i < lanes; ++i) {
      Lane lane;
      lane.stream = dnnl::stream(CpuEngine());
      lane.a = memory(a, CpuEngine(), nullptr);
      lane.b = memory(plan.weights_desc(), CpuEngine(), nullptr);
      lane.c = memory(c, CpuEngine(), nullptr);
      // These are handles: setting the data pointer of lane.a also sets it for this entry.
      lane.args = {{DNNL_ARG_SRC, lane.a},
                   {DNNL_ARG_WEIGHTS, lane.b},
                   {DNNL_ARG_DST, lane.c},
                   {DNNL_ARG_SCRATCHPAD, memory(plan.scratchpad_desc(), CpuEngine())}};
      if (s.b_packed) {
        lane.plain = memory(plain, CpuEngine(), nullptr);
        lane.pack_args = {{DNNL_ARG_FROM, lane.plain},
                          {DNNL_ARG_TO, lane.b},
                          {DNNL_ARG_SCRATCHPAD, memory(pack.scratchpad_desc(), CpuEngine())}};
      }
      lanes_.push_back(std::move(lane));
    }
    return absl::OkStatus();
  } catch (const dnnl::error& e) {
    return absl::InternalError(
        absl::StrFormat("oneDNN cannot multiply [%d, %d] by [%d, %d] in %s: %s", s.m, s.k, s.k, s.n,
                        s.bf16 ? "bf16" : "f32", e.what()));
  }
}

void Matmul::Pack(int lane, const float* b, void* packed) {
  Lane& l = lanes_[lane];
  if (widen_) {
    // Rounded here as oneDNN's reorder to bf16 does it.
    const size_t n = shape_.k * shape_.n;
    WideOperands& wide = Wide(0, n);
    if (wide.rounded.size() < n) wide.rounded.resize(n);
    BestLayerLoops().to_bf16(b, wide.rounded.data(), n);
    Widen(wide.rounded.data(), n, wide.b.data());
    b = wide.b.data();
  }
  l.plain.set_data_handle(const_cast<float*>(b));
  l.b.set_data_handle(packed);
  pack_.execute(l.stream, l.pack_args);
  l.stream.wait();
}

void Matmul::Run(int lane, const void* a, const void* b, float* c) {
  Lane& l = lanes_[lane];
  if (widen_) {
    const int64_t rows = shape_.a_transposed ? shape_.k : shape_.m;
    const int64_t columns = shape_.a_transposed ? shape_.m : shape_.k;
    const size_t size_b = shape_.b_packed ? 0 : shape_.k * shape_.n;  // Pack widened a packed B
    WideOperands& wide = Wide(rows * columns, size_b);
    for (int64_t i = 0; i < rows; ++i) {
      Widen(static_cast<const uint16_t*>(a) + i * shape_.lda, columns, wide.a.data() + i * columns);
    }
    a = wide.a.data();
    if (!shape_.b_packed) {
      Widen(static_cast<const uint16_t*>(b), size_b, wide.b.data());
      b = wide.b.data();
    }
  }
  l.a.set_data_handle(const_cast<void*>(a));
  l.b.set_data_handle(const_cast<void*>(b));
  l.c.set_data_handle(c);
  primitive_.execute(l.stream, l.args);
  l.stream.wait();
}

}  // namespace sluice
