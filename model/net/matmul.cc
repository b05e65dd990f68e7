#include "model/net/matmul.h"

#include "absl/strings/str_format.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

using dnnl::memory;

dnnl::engine& CpuEngine() {
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::desc Matrix(int64_t rows, int64_t columns, bool transposed, int64_t stride) {
  const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return memory::desc({rows, columns}, memory::data_type::f32, strides);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(const Shape& s, int lanes) {
  // A primitive is planned for the number of threads that OpenMP would use when it is made.
  const OneThreadGuard one_thread;
  try {
    const memory::desc a = Matrix(s.m, s.k, s.a_transposed, s.lda);
    const memory::desc b = Matrix(s.k, s.n, s.b_transposed, s.b_transposed ? s.k : s.n);
    const memory::desc c = Matrix(s.m, s.n, false, s.n);
    dnnl::primitive_attr attributes;
    // oneDNN's own scratchpad belongs to the thread that made the primitive.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc plan({a, b, c}, attributes, CpuEngine());
    std::unique_ptr<Matmul> matmul(new Matmul);
    matmul->primitive_ = dnnl::matmul(plan);
    for (int i = 0; i < lanes; ++i) {
      Lane lane;
      lane.stream = dnnl::stream(CpuEngine());
      lane.a = memory(a, CpuEngine(), nullptr);
      lane.b = memory(b, CpuEngine(), nullptr);
      lane.c = memory(c, CpuEngine(), nullptr);
      // These are handles: setting the data of lane.a also sets it for the entry.
      lane.args = {{DNNL_ARG_SRC, lane.a},
                   {DNNL_ARG_WEIGHTS, lane.b},
                   {DNNL_ARG_DST, lane.c},
                   {DNNL_ARG_SCRATCHPAD, memory(plan.scratchpad_desc(), CpuEngine())}};
      matmul->lanes_.push_back(std::move(lane));
    }
    return matmul;
  } catch (const dnnl::error& e) {
    return absl::InternalError(absl::StrFormat(
        "oneDNN cannot multiply [%d, %d] by [%d, %d] in f32: %s", s.m, s.k, s.k, s.n, e.what()));
  }
}

void Matmul::Run(int lane, const float* a, const float* b, float* c) {
  Lane& l = lanes_[lane];
  l.a.set_data_handle(const_cast<float*>(a));
  l.b.set_data_handle(const_cast<float*>(b));
  l.c.set_data_handle(c);
  primitive_.execute(l.stream, l.args);
  l.stream.wait();
}

}  // namespace sluice
