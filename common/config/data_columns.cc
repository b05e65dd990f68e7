#include "common/config/data_columns.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/closest_name.h"
#include "common/config/data_format.h"

namespace sluice {
namespace {

// NamedColumns as a set. Its size does not grow with the slots' dims: they are not validated yet,
// and a huge one must not exhaust the memory.
class ColumnSet {
 public:
  explicit ColumnSet(const DataConfig& data) {
    if (!FormatOf(data).slots) {
      examples_ = NamedColumns(data);
      for (const std::string& name : examples_) dims_[name] = 0;
      return;
    }
    for (const Slot& slot : data.slots()) {
      dims_[slot.name()] = slot.dim();
      examples_.push_back(slot.dim() > 1 ? slot.name() + ".0" : slot.name());
    }
  }
  // The first column of each slot, or every column of other formats.
  const std::vector<std::string>& examples() const { return examples_; }

  uint32_t DimOf(const std::string& slot) const {
    const auto found = dims_.find(slot);
    return found == dims_.end() ? 0 : found->second;
  }

  bool Has(const std::string& name) const {
    const auto whole = dims_.find(name);
    if (whole != dims_.end() && whole->second <= 1) return true;
    const size_t dot = name.rfind('.');
    const auto slot = dims_.find(name.substr(0, dot));
    if (dot == std::string::npos || slot == dims_.end() || slot->second <= 1) return false;
    const std::string number = name.substr(dot + 1);
    uint32_t i = 0;
    // One spelling for each column: "x.01" would be another name for x.1.
    return absl::SimpleAtoi(number, &i) && i < slot->second && number == absl::StrCat(i);
  }

 private:
  std::map<std::string, uint32_t> dims_;  // by column or slot; above 1 the columns are NAME.i
  std::vector<std::string> examples_;
};

}  // namespace

std::vector<std::string> NamedColumns(const DataConfig& data) {
  return FormatOf(data).named_columns(data);
}

std::vector<std::string> FolderColumns(const DataConfig& data) {
  std::vector<std::string> names;
  for (const auto* const patterns : {&data.train_files(), &data.eval_files()}) {
    for (const std::string& pattern : *patterns) {
      const std::vector<std::string> folders = absl::StrSplit(pattern, '/');
      bool varies = false;  // a folder before, or this one, has a wildcard
      for (size_t i = 0; i + 1 < folders.size(); ++i) {
        varies = varies || folders[i].find_first_of("*?[{") != std::string::npos;
        const std::string name = folders[i].substr(0, folders[i].find('='));
        if (!varies || name.empty() || name.size() == folders[i].size() ||
            name.find_first_of("*?[{\\%") != std::string::npos ||
            std::find(names.begin(), names.end(), name) != names.end())
          continue;
        names.push_back(name);
      }
    }
  }
  return names;
}

std::vector<ConfigProblem> FindColumnProblems(const JobConfig& job) {
  std::vector<ConfigProblem> problems;
  const DataConfig& data = job.data();
  const ColumnSet columns(data);
  const std::vector<std::string> folders = FolderColumns(data);
  const auto check = [&](const std::string& path, const std::string& name) {
    // Without a list, as with a header line or LIBSVM, only the data knows the columns.
    if (name.empty() || columns.examples().empty() || columns.Has(name) ||
        std::find(folders.begin(), folders.end(), name) != folders.end())
      return;
    const uint32_t dim = columns.DimOf(name);
    const std::string why = dim > 1 ? absl::StrCat("is a slot of ", dim, " values, the columns ",
                                                   name, ".0 to ", name, ".", dim - 1)
                                    : absl::StrCat("is not ", FormatOf(data).place_of_columns,
                                                   DidYouMean(name, columns.examples()));
    problems.push_back({path, absl::StrCat("'", name, "' ", why, "; name one of them")});
  };
  // A label that has its place needs no name.
  if (!FormatOf(data).label_first) check("data.label.column", data.label().column());
  check("data.weight_column", data.weight_column());
  for (int i = 0; i < job.features_size(); ++i) {
    const Feature& f = job.features(i);
    const std::string path = absl::StrCat("features[", i, "].");
    if (f.has_numeric()) check(path + "numeric.column", f.numeric().column());
    if (f.has_categorical()) check(path + "categorical.column", f.categorical().column());
  }
  return problems;
}

}  // namespace sluice
