#include "model/wide_deep/cuda/step_program.h"

#include "model/wide_deep/cuda/sort_kernels.h"

namespace sluice::cuda {

struct StepProgram::Step {
  Step(const NetPlan& plan, const StepShape& given, const StepMemory& memory, Element element)
      : shape(given),
        in(plan, given),
        out(plan, given),
        work(plan, given, element),
        input(memory.input),
        scratch(memory.work),
        output(memory.output),
        tensors(memory.dense != nullptr ? memory.dense : memory.input),
        batch(ViewOf(in, memory.input)) {}

  const float* dense(int tensor) const {
    return tensor < 0 ? nullptr : reinterpret_cast<const float*>(tensors + in.dense[tensor]);
  }
  float* gradient(int tensor) const {
    return tensor < 0 ? nullptr : reinterpret_cast<float*>(output + out.dense[tensor]);
  }
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(scratch + offset);
  }
  const uint32_t* index(size_t offset) const {
    return reinterpret_cast<const uint32_t*>(input + offset);
  }
  StepResult* result() const { return reinterpret_cast<StepResult*>(output + out.result); }
  uint32_t* overflow() const { return &result()->overflow; }

  const StepShape shape;
  const InputLayout in;
  const OutputLayout out;
  const WorkLayout work;
  const char* const input;
  char* const scratch;
  char* const output;
  const char* const tensors;
  const BatchView batch;
};

StepProgram::StepProgram(const WideDeepShape& shape, const NetView& net, Element element, bool tf32)
    : plan_(shape),
      net_(net),
      element_(element),
      tf32_(tf32),
      dropout_scale_(shape.dropout > 0 ? Dropout(shape.dropout, 0, 0).scale() : 1.0f) {}

void StepProgram::Index(const StepShape& shape, char* input, StepOps* ops) const {
  if (!has_index(shape)) return;
  const InputLayout in(plan_, shape);
  BatchView batch = ViewOf(in, input);
  // Index may run before the step's header is uploaded, so it reads the sizes that come with the
  // batch.
  batch.header = reinterpret_cast<const StepHeader*>(input + in.sizes);
  const auto at = [input](size_t offset) { return reinterpret_cast<uint32_t*>(input + offset); };
  // Passes read one side and write the other one.
  uint32_t* rows[] = {at(in.sort_rows[0]), at(in.sort_rows[1])};
  uint32_t* cells[] = {at(in.sort_cells[0]), at(in.sort_cells[1])};
  const uint32_t passes = SortPasses(shape.rows);
  if (shape.keys > 0) {
    ops->ExpandCells(batch, net_.num_slots, shape.batch, cells[0]);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      SortArgs args;
      args.header = batch.header;
      args.pass = pass;
      args.keys = shape.keys;
      args.rows = pass == 0 ? batch.row_index : rows[pass % 2];
      args.cells = cells[pass % 2];
      args.counts = at(in.sort_counts);
      args.out_rows = rows[(pass + 1) % 2];
      args.out_cells = cells[(pass + 1) % 2];
      ops->SortPass(args);
    }
  }
  ops->FindRows(batch.header, rows[passes % 2], shape.rows, at(in.row_begin));
}

void StepProgram::Train(size_t part, const StepShape& shape, const StepMemory& memory,
                        StepOps* ops) const {
  const Step step(plan_, shape, memory, element_);
  if (part == 0) {
    // Kernels only ever set the overflow flag.
    ops->Zero(step.result(), sizeof(StepResult));
    ForwardLayers(step, element_, /*training=*/true, ops);
    Logits(step, element_, /*training=*/true, ops);
  } else {
    BackwardProduct(step, plan_.hidden - part, ops);
  }
  if (part < plan_.hidden) return BackwardLayer(step, plan_.hidden - part, ops);
  WideSums(step, ops);
  RowGradients(step, ops);
}

void StepProgram::Forward(const StepShape& shape, const StepMemory& memory, StepOps* ops) const {
  const Step step(plan_, shape, memory, element_);
  ForwardLayers(step, Element::kF32, /*training=*/false, ops);
  Logits(step, Element::kF32, /*training=*/false, ops);
}

const void* StepProgram::Weights(const Step& step, size_t layer, Element element) const {
  if (element == Element::kF32) return step.dense(2 * layer);  // [in][out]
  return step.at<void>(step.work.weights[layer]);              // [in][ld of out]
}

uint32_t StepProgram::WeightLd(size_t layer, Element element) const {
  return element == Element::kF32 ? plan_.widths[layer + 1] : plan_.ld(layer + 1);
}

void StepProgram::ForwardLayers(const Step& step, Element element, bool training,
                                StepOps* ops) const {
  if (plan_.hidden == 0) return;
  const uint32_t rows = step.shape.batch;
  for (size_t l = 0; l < plan_.hidden && element != Element::kF32; ++l) {
    ops->ConvertWeights(element, step.dense(2 * l), plan_.widths[l], plan_.widths[l + 1],
                        plan_.ld(l + 1), step.at<void>(step.work.weights[l]), step.overflow());
  }
  // h(0): [B][inputs]
  ops->Gather(element, net_, step.batch, rows, plan_.ld(0), step.at<void>(step.work.h[0]),
              step.overflow());
  for (size_t l = 0; l < plan_.hidden; ++l) {
    // z [B][out] = h(l) [B][in] x W [in][out]
    // In f32 the activation overwrites its product. Halves need a place of their own for it.
    float* z = step.at<float>(element == Element::kF32 ? step.work.h[l + 1] : step.work.product);
    Gemm gemm;
    // cuBLAS is column-major and the matrices are row-major, so it computes the transposed product:
    // weights first.
    gemm.m = plan_.widths[l + 1], gemm.n = rows, gemm.k = plan_.widths[l];
    gemm.a = Weights(step, l, element), gemm.lda = WeightLd(l, element);
    gemm.b = step.at<void>(step.work.h[l]), gemm.ldb = plan_.ld(l);
    gemm.c = z, gemm.ldc = plan_.ld(l + 1);
    gemm.element = element, gemm.exact = !training || !tf32_;
    ops->Multiply(gemm);
    BiasReluArgs args;
    args.header = step.batch.header;
    args.example_id = step.batch.example_id;
    args.layer = l;
    args.training = training;
    args.bias = step.dense(2 * l + 1);
    args.units = plan_.widths[l + 1];
    args.rows = rows;
    args.z = z, args.ld_z = plan_.ld(l + 1);
    args.h = step.at<void>(step.work.h[l + 1]), args.ld_h = plan_.ld(l + 1);
    args.overflow = step.overflow();
    ops->BiasRelu(element, args);
  }
}

void StepProgram::Logits(const Step& step, Element element, bool training, StepOps* ops) const {
  const size_t last = plan_.hidden;
  LogitArgs args = {};
  if (last > 0) {
    args.h = step.at<void>(step.work.h[last]);
    args.output = step.dense(2 * last);
    args.output_bias = step.dense(2 * last + 1);
    args.units = plan_.widths[last];
    args.ld = plan_.ld(last);
  }
  args.wide = step.dense(plan_.wide_weight);
  args.wide_bias = step.dense(plan_.wide_bias);
  args.rows = step.shape.batch;
  args.logits = reinterpret_cast<float*>(step.output + step.out.logits);
  args.losses = training ? step.at<double>(step.work.losses) : nullptr;
  args.d_logits = step.at<float>(step.work.d_logits);
  ops->Logits(element, net_, step.batch, args);
}

void StepProgram::BackwardLayer(const Step& step, size_t level, StepOps* ops) const {
  const size_t layer = level - 1, last = plan_.hidden;
  // dz(level): [B][units]
  BackwardArgs args = {};
  args.header = step.batch.header;
  args.h = step.at<void>(step.work.h[level]);
  args.dz = step.at<void>(step.work.dz[level]);
  args.units = plan_.widths[level], args.ld = plan_.ld(level), args.rows = step.shape.batch;
  args.dropout_scale = dropout_scale_;
  args.partials = step.at<double>(step.work.partials);
  args.sums = {step.gradient(2 * layer + 1), nullptr, args.units};
  args.overflow = step.overflow();
  if (level == last) {
    args.output = step.dense(2 * last);
    args.d_logits = step.at<float>(step.work.d_logits);
    args.sums.second = step.gradient(2 * last);
    ops->OutputBackwardSums(element_, args);
  } else {
    args.product =
        step.at<float>(element_ == Element::kF32 ? step.work.dz[level] : step.work.product);
    ops->HiddenBackwardSums(element_, args);
  }
  // dW [in][out] = h(layer)^T [in][B] x dz [B][out]
  Gemm gemm;
  gemm.element = element_, gemm.exact = !tf32_;
  gemm.b_transposed = true;
  gemm.m = plan_.widths[level], gemm.n = plan_.widths[layer], gemm.k = step.shape.batch;
  gemm.a = args.dz, gemm.lda = plan_.ld(level);
  gemm.b = step.at<void>(step.work.h[layer]), gemm.ldb = plan_.ld(layer);
  gemm.c = step.gradient(2 * layer), gemm.ldc = plan_.widths[level];
  ops->Multiply(gemm);
}

void StepProgram::BackwardProduct(const Step& step, size_t level, StepOps* ops) const {
  if (level == 0 && plan_.embeddings == 0) return;
  // [B][in] = dz [B][out] x W^T [out][in]. At level 0 only the embeddings need a gradient.
  Gemm gemm;
  gemm.element = element_, gemm.exact = !tf32_;
  gemm.a_transposed = true;
  gemm.m = level == 0 ? plan_.embeddings : plan_.widths[level], gemm.n = step.shape.batch;
  gemm.k = plan_.widths[level + 1];
  gemm.a = Weights(step, level, element_), gemm.lda = WeightLd(level, element_);
  gemm.b = step.at<void>(step.work.dz[level + 1]), gemm.ldb = plan_.ld(level + 1);
  // As in the forward pass; at level 0 nothing is rounded afterwards.
  const bool in_place = level == 0 || element_ == Element::kF32;
  gemm.c = step.at<float>(in_place ? step.work.dz[level] : step.work.product);
  gemm.ldc = level == 0 ? NetPlan::Ld(plan_.embeddings) : plan_.ld(level);
  ops->Multiply(gemm);
}

void StepProgram::WideSums(const Step& step, StepOps* ops) const {
  WideArgs args;
  args.header = step.batch.header;
  args.backward.d_logits = step.at<float>(step.work.d_logits);
  args.backward.losses = step.at<double>(step.work.losses);
  args.backward.numeric = step.batch.numeric;
  args.backward.wide_numeric = net_.wide_numeric;
  args.backward.num_numeric = net_.num_numeric;
  args.backward.num_wide_numeric = net_.num_wide_numeric;
  args.rows = step.shape.batch;
  args.partials = step.at<double>(step.work.partials);
  args.sums.weight = step.gradient(plan_.wide_weight);
  args.sums.bias = step.gradient(plan_.wide_bias);
  args.sums.output_bias =
      step.gradient(plan_.hidden > 0 ? static_cast<int>(2 * plan_.hidden + 1) : -1);
  args.sums.loss = &step.result()->loss_sum;
  args.sums.num_wide_numeric = net_.num_wide_numeric;
  ops->WideSums(args);
}

void StepProgram::RowGradients(const Step& step, StepOps* ops) const {
  if (!has_index(step.shape)) return;
  // Where the last pass has written.
  const uint32_t side = SortPasses(step.shape.rows) % 2;
  RowGradientView view;
  view.sorted_rows = step.index(step.in.sort_rows[side]);
  view.sorted_cells = step.index(step.in.sort_cells[side]);
  view.row_begin = step.index(step.in.row_begin);
  view.d_logits = step.at<float>(step.work.d_logits);
  view.d_input = plan_.hidden > 0 ? step.at<float>(step.work.dz[0]) : nullptr;
  view.ld = NetPlan::Ld(plan_.embeddings);
  view.heads = step.at<float>(step.work.heads);
  view.tails = step.at<float>(step.work.tails);
  view.gradient = reinterpret_cast<float*>(step.output + step.out.rows);
  ops->RowGradients(net_, step.batch, view, step.shape.keys, step.shape.rows);
}

}  // namespace sluice::cuda
