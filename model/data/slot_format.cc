// MULTI_SLOT and SLOT_VALUE: Paddle's texts, whose slots the job declares.
#include "common/base/status_macros.h"
#include "common/config/csv_options.h"
#include "common/config/data_columns.h"
#include "model/data/file_columns.h"
#include "model/data/format_reader.h"
#include "model/data/line_format.h"
#include "model/data/multi_slot_parser.h"
#include "model/data/slot_value_parser.h"

namespace sluice {
namespace {

template <typename Parser>
class SlotFormat final : public LineFormat {
 public:
  SlotFormat(const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env)
      : LineFormat(config, std::move(schema), env) {}

 protected:
  absl::StatusOr<FileParser> BindFile(const std::string& path, bool need_label) const override {
    return Bind(schema_->columns(), path, need_label);
  }
  absl::StatusOr<FileParser> BindStream(const std::vector<std::string>& columns,
                                        LineReader* reader) const override {
    return Bind(columns, reader->text().path(), /*need_label=*/false);
  }

 private:
  absl::StatusOr<FileParser> Bind(const std::vector<std::string>& columns, const std::string& path,
                                  bool need_label) const {
    FileParser file;
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int> bound,
                            this->BindWithFolders(columns, NamedColumns(config_), path, need_label,
                                                  "data.slots", &file.has));
    file.make = [this, bound] {
      return std::make_unique<Parser>(config_.slots(), bound, missing_);
    };
    return file;
  }
};

template <typename Parser>
absl::StatusOr<std::unique_ptr<DataSource>> MakeSlotSource(
    const DataConfig& config, std::shared_ptr<const FeatureSchema> schema, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckNoCsvOptions(config));
  SLUICE_RETURN_IF_ERROR(
      BindColumns(schema->columns(), NamedOrFolderColumns(config), true, "data.slots").status());
  return MakeLineSource(std::make_unique<SlotFormat<Parser>>(config, std::move(schema), env));
}

}  // namespace

FormatReader ReadMultiSlot() { return {&MakeSlotSource<MultiSlotParser>, nullptr}; }
FormatReader ReadSlotValue() { return {&MakeSlotSource<SlotValueParser>, nullptr}; }

}  // namespace sluice
