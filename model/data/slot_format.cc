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

  absl::StatusOr<FileParser> ParserOf(const std::string&, bool need_label) const override {
    return Bind(schema_->columns(), need_label);
  }
  absl::StatusOr<FileParser> ParserOfStream(const std::vector<std::string>& columns,
                                            LineReader*) const override {
    return Bind(columns, /*need_label=*/false);
  }

 private:
  absl::StatusOr<FileParser> Bind(const std::vector<std::string>& columns, bool need_label) const {
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int> bound,
                            BindColumns(columns, NamedColumns(config_), need_label, "data.slots",
                                        schema_->columns().size()));
    FileParser file;
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
      BindColumns(schema->columns(), NamedColumns(config), true, "data.slots").status());
  return MakeLineSource(std::make_unique<SlotFormat<Parser>>(config, std::move(schema), env));
}

}  // namespace

FormatReader ReadMultiSlot() { return {&MakeSlotSource<MultiSlotParser>, nullptr}; }
FormatReader ReadSlotValue() { return {&MakeSlotSource<SlotValueParser>, nullptr}; }

}  // namespace sluice
