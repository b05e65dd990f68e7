#include "model/model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "model/net/net_in_passes.h"

namespace sluice {
namespace {

using CreateNetFunction = decltype(ModelEntry::create_net);

TableSizes SizesOf(const ModelSpec& spec) {
  TableSizes sizes;
  for (const int table : spec.dense_tables()) {
    size_t elements = 1;
    for (const uint64_t n : spec.tables()[table].shape()) elements *= n;
    sizes.dense.push_back(elements);
  }
  for (const int table : spec.sparse_tables()) {
    size_t dim = 0;
    for (const ColumnGroup& columns : spec.tables()[table].columns()) dim += columns.dim();
    sizes.row_dims.push_back(dim);
  }
  if (sizes.row_dims.empty()) return sizes;
  for (const FeatureSchema::Slot& slot : spec.schema()->slots())
    sizes.slot_tables.push_back(slot.table);
  return sizes;
}

// Joins the spec of a listed model with the function that makes its networks.
class ListedModel : public Model {
 public:
  ListedModel(std::unique_ptr<ModelSpec> spec, CreateNetFunction create_net)
      : spec_(std::move(spec)), create_net_(create_net) {}

  const std::shared_ptr<const FeatureSchema>& schema() const override { return spec_->schema(); }
  const std::vector<TableConfig>& tables() const override { return spec_->tables(); }
  const std::vector<int>& sparse_tables() const override { return spec_->sparse_tables(); }
  const std::vector<int>& dense_tables() const override { return spec_->dense_tables(); }
  std::map<std::string, std::vector<std::string>> ordered_inputs() const override {
    return spec_->ordered_inputs();
  }
  std::optional<std::map<std::string, InputTable>> input_tables() const override {
    return spec_->input_tables();
  }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const override {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<DenseNet> net, create_net_(*spec_, options));
    // A network that cuts its steps itself can keep sums in the order that sync promises.
    if (options.pass_examples == 0 || net->computes_in_passes()) return net;
    return std::make_unique<NetInPasses>(std::move(net), SizesOf(*spec_), options);
  }

 private:
  const std::unique_ptr<ModelSpec> spec_;
  const CreateNetFunction create_net_;
};

MatmulPrecision PrecisionOf(TrainConfig::ComputeType type) {
  switch (type) {
    case TrainConfig::BF16:
      return MatmulPrecision::kBf16;
    case TrainConfig::TF32:
      return MatmulPrecision::kTf32;
    case TrainConfig::FP16:
      return MatmulPrecision::kFp16;
    default:
      return MatmulPrecision::kF32;
  }
}

// The largest number of examples that a worker computes at a time in training. In sync mode lanes
// may not divide evenly, so some ranks have one lane, and its share of the batch, more than others.
size_t LargestTrainBatch(const JobConfig& job) {
  if (MergedBatches(job) > 1) return job.train().batch_size();  // a pass
  const uint64_t batch = job.train().batch_size(), ranks = std::max(job.worker_num(), 1u);
  const uint64_t lanes = job.data().shuffle_lanes();
  if (ModeOf(job.strategy()) != Mode::kSync || lanes == 0 ||
      job.data().assignment() != DataConfig::GLOBAL) {
    return batch;
  }
  // Rounded up twice: too much memory is harmless, and too little would fail the job in the middle.
  const uint64_t most_lanes = (lanes + ranks - 1) / ranks;
  return (batch * ranks * most_lanes + lanes - 1) / lanes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const JobConfig& job,
                                                     const ModelList& models) {
  SLUICE_ASSIGN_OR_RETURN(const ModelEntry* const entry, models.Find(job.model()));
  if (entry->create_net == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program has no networks for the model ", entry->name,
                     entry->name == "program"
                         ? ", which the user's program computes; run the job with sluice launch "
                           "--program=FILE.py"
                         : "; pass a list with networks, such as BuiltInModels()"));
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ModelSpec> spec, entry->create_spec(job));
  return std::make_unique<ListedModel>(std::move(spec), entry->create_net);
}

absl::StatusOr<NetOptions> NetOptionsOf(const JobConfig& job, const ComputeDevice& device,
                                        int threads) {
  SLUICE_RETURN_IF_ERROR(CheckComputeType(job, device.kind == ComputeDevice::kCpu));
  NetOptions options;
  options.device = device;
  options.threads = threads;
  options.max_batch = std::max<size_t>(LargestTrainBatch(job), job.eval().batch_size());
  if (MergedBatches(job) > 1) options.pass_examples = job.train().batch_size();
  if (job.train().has_device_memory_fraction())
    options.device_memory_fraction = job.train().device_memory_fraction();
  // Evaluation always computes in float32, so compute_dtype is ignored.
  if (!job.evaluate_only()) options.precision = PrecisionOf(job.train().compute_dtype());
  return options;
}

}  // namespace sluice
