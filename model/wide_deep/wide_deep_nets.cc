// Chooses the backend of a wide_deep network.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "model/model.h"
#include "model/net/dense_embedding_net.h"
#include "model/wide_deep/cpu/wide_deep_net.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "model/wide_deep/wide_deep_spec.h"

namespace sluice {
namespace {

// INVALID_ARGUMENT for what only the CPU computes.
absl::Status CheckForCuda(const WideDeepSpec& spec) {
  for (const WideDeepShape::Slot& slot : spec.shape().slots) {
    if (!slot.weighted) continue;
    return absl::InvalidArgumentError(
        "a feature has values with weights (weight_delimiter, LIBFFM or one-hot LIBSVM), which are "
        "not supported on CUDA devices; compute on the CPU (--device=cpu), or remove "
        "weight_delimiter");
  }
  const std::vector<int>& tables = spec.sparse_tables();
  if (tables.size() <= 1) return absl::OkStatus();
  const auto name = [&spec](std::string* to, int table) {
    absl::StrAppend(to, "\"", spec.tables()[table].name(), "\"");
  };
  return absl::InvalidArgumentError(absl::StrCat(
      "the features are in ", tables.size(), " sparse tables (", absl::StrJoin(tables, ", ", name),
      "), and networks on CUDA devices read a single one; compute on the CPU (--device=cpu), or "
      "give all features the same embedding_dim, key and table"));
}

absl::StatusOr<std::unique_ptr<DenseNet>> CreateNetOfRows(const WideDeepSpec& spec,
                                                          const NetOptions& options) {
  WideDeepShape shape = spec.shape();
  if (options.device.kind == ComputeDevice::kCuda) {
    SLUICE_RETURN_IF_ERROR(CheckForCuda(spec));
    return CreateCudaNet(shape, options);
  }
  switch (options.precision) {
    case MatmulPrecision::kJob:
      break;
    case MatmulPrecision::kF32:
      shape.bf16 = false;
      break;
    case MatmulPrecision::kBf16:
      shape.bf16 = true;
      break;
    case MatmulPrecision::kTf32:
    case MatmulPrecision::kFp16:
      return absl::InvalidArgumentError(
          absl::StrCat("matmul precision ", NameOf(options.precision),
                       " needs a CUDA device; on the CPU use f32 or bf16"));
  }
  return WideDeepNet::Create(std::move(shape), options.threads, options.max_batch,
                             options.pass_examples);
}

}  // namespace

// The list of models only calls this with a spec that WideDeepSpec::Create made: the cast is safe.
absl::StatusOr<std::unique_ptr<DenseNet>> CreateWideDeepNet(const ModelSpec& spec,
                                                            const NetOptions& options) {
  const auto& wide_deep = static_cast<const WideDeepSpec&>(spec);
  const WideDeepShape& shape = wide_deep.shape();
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<DenseNet> net, CreateNetOfRows(wide_deep, options));
  std::vector<DenseEmbeddingNet::Table> tables;
  const RowRange &deep = wide_deep.deep_rows(), &wide = wide_deep.wide_rows();
  // Their rows are those of a single table of the network.
  if (!deep.empty())
    tables.push_back({deep.begin, deep.size(), shape.embedding_dims[0], shape.embedding_begin(0)});
  if (!wide.empty()) tables.push_back({wide.begin, wide.size(), 1, 0});
  if (tables.empty()) return net;
  return std::make_unique<DenseEmbeddingNet>(std::move(net), std::move(tables), shape.row_dim(0),
                                             options.threads);
}

}  // namespace sluice
