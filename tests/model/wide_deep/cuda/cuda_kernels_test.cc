// Compares every kernel on a device with the same functions on the host. Both run the same step on
// the same input, and every array that a kernel writes is compared.
#include <cmath>
#include <cstring>

#include "model/wide_deep/cuda/cuda_ops.h"
#include "tests/model/net/cuda/gpu_for_test.h"
#include "tests/model/wide_deep/cuda/host_net.h"
#include "tests/model/wide_deep/net_fixture.h"

namespace sluice::cuda {
namespace {

// The blocks of one step on the device.
class DeviceStep {
 public:
  explicit DeviceStep(const WideDeepShape& shape)
      : memory_("cuda:0", size_t{4} << 30),
        constants_(&memory_, "a"),
        input_(&memory_, "b"),
        work_(&memory_, "c"),
        output_(&memory_, "d") {
    EXPECT_TRUE(OpenCudaDevice(0).ok());
    EXPECT_TRUE(compute_.Create().ok());
    auto ops = CudaOps::Create(&compute_, &memory_);
    EXPECT_TRUE(ops.ok()) << ops.status();
    ops_ = *std::move(ops);
  }

  // Runs the index and train phases, and downloads the input with the index, the work and the
  // output.
  void Run(const WideDeepShape& shape, Element element, const StepShape& step,
           const std::vector<char>& constants, std::vector<char>* input, std::vector<char>* work,
           std::vector<char>* output) {
    Up(&constants_, constants), Up(&input_, *input), Up(&work_, *work), Up(&output_, *output);
    // cudaMemcpy may return before the copy has ended, and our stream does not wait for its stream.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const StepProgram program(shape, ViewOf(shape, constants_.data()), element, false);
    const StepMemory memory = {input_.data(), work_.data(), output_.data()};
    program.Index(step, memory.input, ops_.get());
    for (size_t part = 0; part < program.train_parts(); ++part)
      program.Train(part, step, memory, ops_.get());
    const absl::Status status = ops_->TakeStatus();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(cudaStreamSynchronize(compute_.get()), cudaSuccess);
    Down(input_, input), Down(work_, work), Down(output_, output);
  }

 private:
  void Up(DeviceBlock* block, const std::vector<char>& from) {
    EXPECT_TRUE(block->Reserve(from.size()).ok());
    EXPECT_EQ(cudaMemcpy(block->data(), from.data(), from.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  void Down(const DeviceBlock& block, std::vector<char>* to) {
    EXPECT_EQ(cudaMemcpy(to->data(), block.data(), to->size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
  }

  DeviceMemory memory_;
  DeviceBlock constants_, input_, work_, output_;
  Stream compute_;
  std::unique_ptr<CudaOps> ops_;
};

template <typename T>
std::vector<float> Values(const std::vector<char>& block, size_t at, size_t n) {
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, block.data() + at + i * sizeof(T), sizeof value);
    values.push_back(ToFloat(value));
  }
  return values;
}

void ExpectEqualBytes(const std::vector<char>& got, const std::vector<char>& expected, size_t at,
                      size_t bytes, const char* what) {
  EXPECT_EQ(std::memcmp(got.data() + at, expected.data() + at, bytes), 0) << what;
}

void ExpectEveryArrayAgrees(const WideDeepShape& shape, Element element, size_t n,
                            size_t num_rows) {
  SCOPED_TRACE(testing::Message() << n << " examples, " << num_rows << " rows, element "
                                  << static_cast<int>(element));
  NetCase c(shape, num_rows);
  const TestStep test_step = c.Step(n);
  const NetInput net_input = c.Input(test_step);
  const NetPlan plan(shape);
  const StepShape step = Pad(n, test_step.batch.keys.size(), num_rows);
  const InputLayout in(plan, step);
  const WorkLayout layout(plan, step, element);
  const OutputLayout out(plan, step);
  std::vector<char> constants(ConstantLayout(shape).total), input(in.total), work(layout.total),
      output(out.total);
  FillConstants(shape, constants.data());
  const StepHeader header = MakeHeader(net_input, nullptr, Dropout(shape.dropout, 5, 2),
                                       SumOfWeights(test_step.batch), 1);
  FillBatch(plan, in, net_input, 1, input.data());
  FillDense(plan, in, net_input, 1, input.data());
  FillValues(plan, in, net_input, header, 1, input.data());
  std::vector<char> device_input = input, device_work = work, device_output = output;
  HostOps host;
  const StepProgram program(shape, ViewOf(shape, constants.data()), element, false);
  const StepMemory memory = {input.data(), work.data(), output.data()};
  program.Index(step, memory.input, &host);
  for (size_t part = 0; part < program.train_parts(); ++part)
    program.Train(part, step, memory, &host);
  DeviceStep(shape).Run(shape, element, step, constants, &device_input, &device_work,
                        &device_output);

  const size_t keys = test_step.batch.keys.size(), side = SortPasses(step.rows) % 2;
  ExpectEqualBytes(device_input, input, in.sort_rows[side], keys * 4, "sorted rows");
  ExpectEqualBytes(device_input, input, in.sort_cells[side], keys * 4, "sorted cells");
  ExpectEqualBytes(device_input, input, in.row_begin, (num_rows + 1) * 4, "first keys of rows");
  // The last bit of a 16-bit value may be rounded differently.
  const double tol = element == Element::kF32 ? 2e-6 : element == Element::kFp16 ? 2e-3 : 1e-2;
  const auto compare = [&](size_t at, size_t count, Element of, const char* what) {
    WithType(of, [&](auto type) {
      using T = decltype(type);
      ExpectClose(Values<T>(device_work, at, count), Values<T>(work, at, count), tol, what);
    });
  };
  for (size_t level = 0; level <= plan.hidden && plan.hidden > 0; ++level) {
    compare(layout.h[level], step.batch * plan.ld(level), element, "h");
    if (level > 0) compare(layout.dz[level], step.batch * plan.ld(level), element, "dz");
  }
  compare(layout.d_logits, n, Element::kF32, "d_logits");
  const auto results = [&](size_t at, size_t count, const char* what) {
    ExpectClose(Values<float>(device_output, at, count), Values<float>(output, at, count), tol,
                what);
  };
  for (size_t t = 0; t < plan.elements.size(); ++t)
    results(out.dense[t], plan.elements[t], "dense");
  results(out.rows, num_rows * plan.row_dim, "row gradients");
  results(out.logits, n, "logits");
}

TEST(CudaKernelsTest, EveryArrayOfAStepMatchesTheHost) {
  SLUICE_NEEDS_GPU();
  WideDeepShape dropout = WideShape({33, 20, 7}, 5);
  dropout.dropout = 0.4f;
  for (const Element element : {Element::kF32, Element::kBf16, Element::kFp16}) {
    for (const size_t n : {1, 31, 32, 33, 255, 257, 2049}) {
      ExpectEveryArrayAgrees(SmallShape(), element, n, 11);
      ExpectEveryArrayAgrees(dropout, element, n, 500);
    }
  }
  ExpectEveryArrayAgrees(WideShape({65, 31}, 33), Element::kF32, 1000, 100000);
}

}  // namespace
}  // namespace sluice::cuda
