// StepOps on the host: loops as in the .cu files, block by block and thread by thread, around the
// same functions. Products are as cuBLAS defines them, computed in double. Operands are read and
// written in the order of the grid; the phases of a block run one after another, as __syncthreads
// separates them.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "model/wide_deep/cuda/layer_kernels.h"
#include "model/wide_deep/cuda/row_kernels.h"
#include "model/wide_deep/cuda/sort_kernels.h"
#include "model/wide_deep/cuda/step_layout.h"
#include "model/wide_deep/cuda/step_ops.h"

namespace sluice::cuda {

class HostOps : public StepOps {
 public:
  void Zero(void* to, size_t bytes) override { std::memset(to, 0, bytes); }

  void Multiply(const Gemm& gemm) override {
    WithType(gemm.element, [&](auto type) {
      using T = decltype(type);
      const T *a = static_cast<const T*>(gemm.a), *b = static_cast<const T*>(gemm.b);
      const auto at_a = [&](size_t i, size_t l) {
        return ToFloat(gemm.a_transposed ? a[i * gemm.lda + l] : a[l * gemm.lda + i]);
      };
      const auto at_b = [&](size_t l, size_t j) {
        return ToFloat(gemm.b_transposed ? b[l * gemm.ldb + j] : b[j * gemm.ldb + l]);
      };
      // Loops over [k][m], which makes neighbouring sums together, each in the order of k.
      std::vector<double> op_a(static_cast<size_t>(gemm.k) * gemm.m), sums(gemm.m);
      for (size_t l = 0; l < gemm.k; ++l)
        for (size_t i = 0; i < gemm.m; ++i) op_a[l * gemm.m + i] = at_a(i, l);
      for (size_t j = 0; j < gemm.n; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (size_t l = 0; l < gemm.k; ++l) {
          const double b_of_l = at_b(l, j);
          const double* const a_of_l = op_a.data() + l * gemm.m;
          for (size_t i = 0; i < gemm.m; ++i) sums[i] += a_of_l[i] * b_of_l;
        }
        std::copy(sums.begin(), sums.end(), gemm.c + j * gemm.ldc);
      }
    });
  }

  void ExpandCells(const BatchView& batch, uint32_t num_slots, uint32_t, uint32_t* cells) override {
    for (uint32_t cell = 0; cell < batch.header->n * num_slots; ++cell)
      ExpandCell(batch.key_offsets, cell, cells);
  }

  void SortPass(const SortArgs& args) override {
    const uint32_t tiles = SortTiles(args.keys), keys = args.header->keys;
    std::vector<uint16_t> counters(kSortDigits * kSortStride);
    const auto count = [&](uint32_t tile) {
      std::fill(counters.begin(), counters.end(), uint16_t{0});
      for (uint32_t t = 0; t < kSortThreads; ++t)
        CountKeys(args.rows, keys, args.pass, tile, t, counters.data());
    };
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      count(tile);
      for (uint32_t d = 0; d < kSortDigits; ++d)
        args.counts[d * tiles + tile] = ScanDigit(d, counters.data());
    }
    ScanCounts(args.counts, kSortDigits * tiles);
    std::vector<uint32_t> first(kSortDigits);
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      count(tile);
      for (uint32_t d = 0; d < kSortDigits; ++d) {
        ScanDigit(d, counters.data());
        first[d] = args.counts[d * tiles + tile];
      }
      for (uint32_t t = 0; t < kSortThreads; ++t) {
        PlaceKeys(args.rows, args.cells, keys, args.pass, tile, t, first.data(), counters.data(),
                  args.out_rows, args.out_cells);
      }
    }
  }

  void FindRows(const StepHeader* header, const uint32_t* sorted_rows, uint32_t,
                uint32_t* row_begin) override {
    for (uint32_t row = 0; row <= header->rows; ++row)
      row_begin[row] = FirstOfRow(sorted_rows, header->keys, row);
  }

  void ConvertWeights(Element element, const float* weights, uint32_t in, uint32_t out, uint32_t ld,
                      void* to, uint32_t* overflow) override {
    WithType(element, [&](auto type) {
      for (uint32_t i = 0; i < in; ++i) {
        for (uint32_t c = 0; c < ld; ++c)
          ConvertWeight(weights, out, i, c, ld, static_cast<decltype(type)*>(to), overflow);
      }
    });
  }

  void Gather(Element element, const NetView& net, const BatchView& batch, uint32_t rows,
              uint32_t ld, void* to, uint32_t* overflow) override {
    WithType(element, [&](auto type) {
      for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t c = 0; c < ld; ++c)
          GatherElement(net, batch, i, c, ld, static_cast<decltype(type)*>(to), overflow);
      }
    });
  }

  void BiasRelu(Element element, const BiasReluArgs& args) override {
    WithType(element, [&](auto type) {
      for (uint32_t i = 0; i < args.rows; ++i) {
        for (uint32_t pair = 0; pair < args.ld_h / 2; ++pair) {
          BiasReluPair(*args.header, args.example_id, args.layer, args.training, args.bias,
                       args.units, i, pair, args.z, args.ld_z, static_cast<decltype(type)*>(args.h),
                       args.ld_h, args.overflow);
        }
      }
    });
  }

  void Logits(Element element, const NetView& net, const BatchView& batch,
              const LogitArgs& args) override {
    WithType(element, [&](auto type) {
      using T = decltype(type);
      const LogitInput<T> in = {static_cast<const T*>(args.h),
                                args.output,
                                args.output_bias,
                                args.wide,
                                args.wide_bias,
                                args.units,
                                args.ld};
      for (uint32_t i = 0; i < batch.header->n; ++i) {
        double lanes[kWarp], next[kWarp];
        for (uint32_t lane = 0; lane < kWarp; ++lane)
          lanes[lane] = LogitLane(net, batch, in, i, lane);
        for (uint32_t other = kWarp / 2; other > 0; other /= 2) {
          for (uint32_t lane = 0; lane < kWarp; ++lane)
            next[lane] = lanes[lane] + lanes[lane ^ other];
          std::copy(next, next + kWarp, lanes);
        }
        args.logits[i] = FinishLogit(in, lanes[0]);
        if (args.losses == nullptr) continue;
        LossOfLogit(args.logits[i], batch.label[i], batch.weight[i], batch.header->gradient_factor,
                    &args.losses[i], &args.d_logits[i]);
      }
    });
  }

  void OutputBackwardSums(Element element, const BackwardArgs& args) override {
    WithType(element, [&](auto type) {
      using T = decltype(type);
      const OutputBackward<T> op = {static_cast<const T*>(args.h),
                                    args.output,
                                    args.d_logits,
                                    static_cast<T*>(args.dz),
                                    args.ld,
                                    args.dropout_scale,
                                    args.overflow};
      SumColumns(op, args.header, args.rows, args.units, args.ld, args.partials, args.sums);
    });
  }

  void HiddenBackwardSums(Element element, const BackwardArgs& args) override {
    WithType(element, [&](auto type) {
      using T = decltype(type);
      const HiddenBackward<T> op = {static_cast<const T*>(args.h),
                                    args.product,
                                    static_cast<T*>(args.dz),
                                    args.ld,
                                    args.dropout_scale,
                                    args.overflow};
      SumColumns(op, args.header, args.rows, args.units, args.ld, args.partials, args.sums);
    });
  }

  void WideSums(const WideArgs& args) override {
    const uint32_t columns = args.backward.num_wide_numeric + 2;
    SumColumns(args.backward, args.header, args.rows, columns, columns, args.partials, args.sums);
  }

  void RowGradients(const NetView& net, const BatchView& batch, const RowGradientView& view,
                    uint32_t, uint32_t) override {
    for (uint32_t chunk = 0; chunk < Chunks(batch.header->keys); ++chunk) {
      for (uint32_t j = 0; j < net.row_dim; ++j) SumChunk(net, batch, view, chunk, j);
    }
    for (uint32_t row = 0; row < batch.header->rows; ++row) {
      for (uint32_t j = 0; j < net.row_dim; ++j) FinishRow(net, batch, view, row, j);
    }
  }

 private:
  static void ScanCounts(uint32_t* counts, uint32_t count) {
    constexpr uint32_t kThreads = 1024;
    std::vector<uint32_t> sums(kThreads);
    for (uint32_t t = 0; t < kThreads; ++t) {
      sums[t] = SumStretch(counts, StretchBegin(count, kThreads, t),
                           StretchBegin(count, kThreads, t + 1));
    }
    for (uint32_t distance = 1; distance < kThreads; distance *= 2) {
      const std::vector<uint32_t> before = sums;
      for (uint32_t t = distance; t < kThreads; ++t) sums[t] += before[t - distance];
    }
    for (uint32_t t = 0; t < kThreads; ++t) {
      ScanStretch(counts, StretchBegin(count, kThreads, t), StretchBegin(count, kThreads, t + 1),
                  t > 0 ? sums[t - 1] : 0);
    }
  }

  template <typename Op, typename Targets>
  static void SumColumns(const Op& op, const StepHeader* header, uint32_t rows, uint32_t columns,
                         uint32_t ld, double* partials, const Targets& targets) {
    const uint32_t slices = Slices(rows), width = Op::kSums * columns;
    for (uint32_t slice = 0; slice < slices; ++slice) {
      for (uint32_t j = 0; j < ld; ++j) {
        double lanes[kSliceLanes][Op::kSums];
        for (uint32_t lane = 0; lane < kSliceLanes; ++lane)
          SliceLane(op, header->n, rows, columns, slice, lane, j, lanes[lane]);
        if (j >= columns) continue;
        for (uint32_t s = 0; s < Op::kSums; ++s) {
          double sum = 0;
          for (const auto& lane : lanes) sum += lane[s];
          partials[static_cast<size_t>(slice) * width + s * columns + j] = sum;
        }
      }
    }
    for (uint32_t j = 0; j < width; ++j)
      WriteSum(targets, j, FinishSum(partials, slices, width, j));
  }
};

}  // namespace sluice::cuda
