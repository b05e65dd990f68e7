#include "bench/gemm_floor.h"

#include <algorithm>
#include <vector>

#include "bench/suite.h"
#include "dnnl.hpp"
#include "model/net/matmul.h"
#include "model/net/parallel.h"

namespace sluice::bench {
namespace {

using dnnl::memory;

constexpr int64_t kWidths[] = {273, 400, 400,
                               400};  // 26 embeddings of 10 and 13 numbers, hidden layers

}  // namespace

struct GemmFloor::Products {
  struct Product {
    dnnl::matmul op;
    memory a, b, c;
  };

  Products(size_t batch_size, Type type, int thread_num)
      : batch(batch_size), threads(thread_num), engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    const OmpThreads planned_for(threads);
    // Without bf16 products a job multiplies f32, so these are its floor.
    const bool half = type == Type::kBf16 && Matmul::HasBf16Products();
    const auto given = half ? memory::data_type::bf16 : memory::data_type::f32;
    const int64_t n = static_cast<int64_t>(batch);
    for (int l = 0; l < 3; ++l) {
      const int64_t in = kWidths[l], out = kWidths[l + 1];
      Add(n, in, out, false, false, given, given);                  // [B, in] x [in, out]
      Add(in, n, out, true, false, given, memory::data_type::f32);  // [in, B] x [B, out]
      Add(n, out, in, false, true, given, given);                   // [B, out] x [out, in]
    }
  }

  void Add(int64_t m, int64_t k, int64_t n, bool a_transposed, bool b_transposed,
           memory::data_type given, memory::data_type result) {
    using tag = memory::format_tag;
    const memory::desc a({m, k}, given, a_transposed ? tag::ba : tag::ab);
    const memory::desc b({k, n}, given, b_transposed ? tag::ba : tag::ab);
    const memory::desc c({m, n}, result, tag::ab);
    list.push_back({dnnl::matmul({{a, b, c}, engine}), memory(a, engine), memory(b, engine),
                    memory(c, engine)});
    for (const memory& m : {list.back().a, list.back().b}) {
      std::fill_n(static_cast<char*>(m.get_data_handle()), m.get_desc().get_size(), char{0});
    }
  }

  double Once() {
    const double start = threads == 1 ? ThreadNow() : Now();
    for (Product& p : list) {
      p.op.execute(stream, {{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}});
    }
    stream.wait();
    return (threads == 1 ? ThreadNow() : Now()) - start;
  }

  const size_t batch;
  const int threads;
  dnnl::engine engine;
  dnnl::stream stream;
  std::vector<Product> list;
};

GemmFloor::GemmFloor(size_t batch, Type type, int threads)
    : products_(std::make_unique<Products>(batch, type, threads)) {}

GemmFloor::~GemmFloor() = default;

double GemmFloor::Measure(double seconds) {
  const OmpThreads use(products_->threads);
  products_->Once();
  double best = 0;
  for (int pass = 0; pass < 3; ++pass) {
    int calls = 0;
    double spent = 0;
    while (calls == 0 || spent < seconds / 3) {
      spent += products_->Once();
      ++calls;
    }
    best = std::max(best, static_cast<double>(calls) * products_->batch / spent);
  }
  return best;
}

}  // namespace sluice::bench
