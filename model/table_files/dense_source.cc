#include "model/table_files/dense_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/table/not_finite.h"
#include "model/table_files/table_columns.h"

namespace sluice {
namespace {

absl::Status CheckShape(const ArrayReader& array, const TableLayout& table) {
  const auto& wanted = table.config().shape();
  const std::vector<uint64_t>& shape = array.header().shape;
  if (!array.is_float()) {
    return absl::InvalidArgumentError(
        absl::StrCat(array.place(), " has the type ", array.header().descr, "; it must be floats"));
  }
  if (std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(array.place(), " has the shape ",
                                                 absl::StrJoin(shape, " x "), ", and table '",
                                                 table.name(), "' ", absl::StrJoin(wanted, " x "),
                                                 "; give the values of the "
                                                 "same layer"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseSource>> DenseSource::Open(const std::string& file,
                                                               const TableLayout& table,
                                                               uint32_t state_floats, Env* env) {
  const auto add_path = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(file, " ", status.message()));
  };
  auto opened = env->NewReader(file);
  if (!opened.ok()) return add_path(opened.status());
  const std::shared_ptr<FileReader> bytes = *std::move(opened);
  auto source = std::make_unique<DenseSource>();
  std::vector<std::string> names = {kWeightsColumn};
  if (state_floats > 0) {
    for (const std::string& name : StateNames(table.columns()[0].optimizer))
      names.push_back(absl::StrCat("state_", name));
  }
  if (absl::EndsWith(file, ".npy") && names.size() == 1) {
    SLUICE_ASSIGN_OR_RETURN(ArrayReader array,
                            ArrayReader::Open(file, std::make_unique<FileStream>(
                                                        bytes, 0, bytes->info().identity.size)));
    SLUICE_RETURN_IF_ERROR(CheckShape(array, table));
    source->arrays_.push_back(std::move(array));
    return source;
  }
  if (!absl::EndsWith(file, ".npz")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table '", table.name(), "' is dense, and ", file, " cannot hold ",
        absl::StrJoin(names, ", "), "; give an .npz", names.size() == 1 ? " or .npy" : ""));
  }
  auto zip = ZipReader::Open(bytes);
  if (!zip.ok()) return add_path(zip.status());
  source->zip_ = *std::move(zip);
  for (const ZipReader::Member& member : source->zip_->members()) {
    const std::string name(absl::StripSuffix(member.name, ".npy"));
    if (std::find(names.begin(), names.end(), name) == names.end()) source->unused_.push_back(name);
  }
  for (const std::string& name : names) {
    const auto& members = source->zip_->members();
    const auto member = std::find_if(
        members.begin(), members.end(),
        [&](const ZipReader::Member& one) { return one.name == absl::StrCat(name, ".npy"); });
    if (member == members.end()) {
      return absl::InvalidArgumentError(absl::StrCat(file, " has no array '", name, "'; it has ",
                                                     absl::StrJoin(source->unused_, ", ")));
    }
    auto stream = source->zip_->Read(*member);
    if (!stream.ok()) return add_path(stream.status());
    SLUICE_ASSIGN_OR_RETURN(
        ArrayReader array,
        ArrayReader::Open(absl::StrCat(file, ": array '", name, "'"), *std::move(stream)));
    SLUICE_RETURN_IF_ERROR(CheckShape(array, table));
    source->arrays_.push_back(std::move(array));
  }
  return source;
}

absl::StatusOr<std::vector<std::shared_ptr<const float>>> DenseSource::Next(uint64_t n) {
  std::vector<std::shared_ptr<const float>> arrays;
  for (ArrayReader& array : arrays_) {
    auto values = std::make_shared<std::vector<float>>(n);
    SLUICE_RETURN_IF_ERROR(array.ReadFloats(1, n, n, values->data()));
    const auto* const floats = reinterpret_cast<const UnalignedFloat*>(values->data());
    const size_t bad = FirstNotFinite(floats, n);
    if (bad < n) {
      return absl::InvalidArgumentError(absl::StrCat(array.place(), ": element ", done_ + bad,
                                                     " is ", (*values)[bad],
                                                     ", which no table may have"));
    }
    arrays.push_back(std::shared_ptr<const float>(values, values->data()));
  }
  done_ += n;
  return arrays;
}

absl::Status DenseSource::CheckEnd() {
  for (ArrayReader& array : arrays_) SLUICE_RETURN_IF_ERROR(array.CheckEnd());
  return absl::OkStatus();
}

}  // namespace sluice
