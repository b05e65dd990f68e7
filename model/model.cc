#include "model/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using CreateNetFunction = decltype(ModelEntry::create_net);

// Joins the spec of a listed model with the function that makes its networks.
class ListedModel : public Model {
 public:
  ListedModel(std::unique_ptr<ModelSpec> spec, CreateNetFunction create_net)
      : spec_(std::move(spec)), create_net_(create_net) {}

  const std::shared_ptr<const FeatureSchema>& schema() const override { return spec_->schema(); }
  const std::vector<TableConfig>& tables() const override { return spec_->tables(); }
  int sparse_table() const override { return spec_->sparse_table(); }
  const std::vector<int>& dense_tables() const override { return spec_->dense_tables(); }
  absl::StatusOr<std::unique_ptr<DenseNet>> CreateNet(const NetOptions& options) const override {
    return create_net_(*spec_, options);
  }

 private:
  const std::unique_ptr<ModelSpec> spec_;
  const CreateNetFunction create_net_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const JobConfig& job,
                                                     const ModelList& models) {
  SLUICE_ASSIGN_OR_RETURN(const ModelEntry* const entry, models.Find(job.model()));
  if (entry->create_net == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program has no networks for the model ", entry->name,
                     "; pass a list with networks, such as BuiltInModels()"));
  }
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ModelSpec> spec, entry->create_spec(job));
  return std::make_unique<ListedModel>(std::move(spec), entry->create_net);
}

}  // namespace sluice
