#include "model/features/sparse_table_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "model/features/dense_rows.h"

namespace sluice {
namespace {

constexpr size_t kLongestName = 64;
constexpr char kDefaultName[] = "embedding";

bool IsTableName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName && absl::ascii_isalnum(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
         });
}

uint64_t HashBucketsOf(const Feature& feature) {
  return feature.has_cross() ? feature.cross().hash_buckets()
                             : feature.categorical().hash_buckets();
}

bool HasSparseRows(const Feature& feature, const FeatureUse& use) {
  const bool used = (InWide(feature) && use.keys.wide) || (InDeep(feature) && use.keys.deep);
  return used && HasKeys(feature) && !IsDense(feature);
}

uint32_t WidthOf(const Feature& feature, const FeatureUse& use) {
  if (!use.keys.deep) return 0;
  return feature.has_embedding_dim() ? feature.embedding_dim() : use.embedding_dim;
}

class Planner {
 public:
  Planner(const JobConfig& job, const FeatureUse& use) : job_(job), use_(use) {}

  absl::StatusOr<SparseTablePlan> Run() {
    plan_.table_of.assign(job_.features_size(), 0);
    for (int i = 0; i < job_.features_size(); ++i) {
      if (!HasSparseRows(job_.features(i), use_)) continue;
      SLUICE_RETURN_IF_ERROR(CheckEmbedding(i));
      SLUICE_RETURN_IF_ERROR(CheckTable(i));
      AddToTable(i);
    }
    if (plan_.tables.size() > kMaxSparseTables) {
      return Refuse(first_of_.back(), "table",
                    absl::StrCat("would have sparse table ", plan_.tables.size(), " of at most ",
                                 kMaxSparseTables,
                                 "; let features share tables, with the same `table`, or for RAW "
                                 "the same `embedding`"));
    }
    SLUICE_RETURN_IF_ERROR(NameTables());
    return std::move(plan_);
  }

 private:
  // Width, key rule, `table`; RAW: the name of the embedding.
  using Group = std::tuple<uint32_t, int, std::string, std::string>;

  absl::Status Refuse(int i, const char* field, const std::string& why) const {
    return AtField(absl::StrCat("features[", i, "].", field),
                   absl::InvalidArgumentError(
                       absl::StrCat("feature \"", job_.features(i).name(), "\" ", why)));
  }

  // "shares the WHAT "x" with "a", but its FIELD is 8 and that of "a" 16; make them equal, or FIX".
  template <typename Value>
  absl::Status Agree(int i, int first, const std::string& shared, const char* field,
                     const Value& own, const Value& other, const char* fix) const {
    if (own == other) return absl::OkStatus();
    const std::string& name = job_.features(first).name();
    return Refuse(i, field,
                  absl::StrCat("shares ", shared, " with \"", name, "\", but its ", field, " is ",
                               Text(own), " and that of \"", name, "\" is ", Text(other),
                               "; make them equal, or ", fix));
  }
  static std::string Text(uint64_t value) { return absl::StrCat(value); }
  static std::string Text(Feature::KeyRule key) { return Feature::KeyRule_Name(key); }
  static std::string Text(const std::string& name) { return absl::StrCat("\"", name, "\""); }

  // Whether the feature fits the first one that has its embedding.
  absl::Status CheckEmbedding(int i) {
    const Feature& own = job_.features(i);
    const int first = first_of_embedding_.emplace(EmbeddingNameOf(own), i).first->second;
    if (first == i) return absl::OkStatus();
    const Feature& other = job_.features(first);
    const std::string shared = absl::StrCat("the embedding \"", EmbeddingNameOf(own), "\"");
    const char* const fix = "give one of them another `embedding`";
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "embedding_dim", uint64_t{WidthOf(own, use_)},
                                 uint64_t{WidthOf(other, use_)}, fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "key", own.key(), other.key(), fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "table", own.table(), other.table(), fix));
    if (own.has_cross() != other.has_cross()) {
      return Refuse(
          i, "embedding",
          absl::StrCat("shares ", shared, " with \"", other.name(),
                       "\", but only one of them is a cross, so they would have no row in "
                       "common; ",
                       fix));
    }
    return Agree(i, first, shared,
                 own.has_cross() ? "cross.hash_buckets" : "categorical.hash_buckets",
                 HashBucketsOf(own), HashBucketsOf(other), fix);
  }

  // Whether the feature fits the first one that names its `table`.
  absl::Status CheckTable(int i) {
    const Feature& own = job_.features(i);
    if (own.table().empty()) return absl::OkStatus();
    const int first = first_of_table_.emplace(own.table(), i).first->second;
    const Feature& other = job_.features(first);
    const std::string shared = absl::StrCat("the table \"", own.table(), "\"");
    const char* const fix = "give one of them another `table`";
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "embedding_dim", uint64_t{WidthOf(own, use_)},
                                 uint64_t{WidthOf(other, use_)}, fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "key", own.key(), other.key(), fix));
    if (own.key() != Feature::RAW) return absl::OkStatus();
    // Their values would be the same keys, and so the same rows, without a word about it.
    return Agree(i, first, shared, "embedding", EmbeddingNameOf(own), EmbeddingNameOf(other), fix);
  }

  void AddToTable(int i) {
    const Feature& feature = job_.features(i);
    const bool raw = feature.key() == Feature::RAW;
    const uint32_t width = WidthOf(feature, use_);
    const Group group(width, feature.key(), feature.table(), raw ? EmbeddingNameOf(feature) : "");
    const auto [at, added] = tables_.emplace(group, static_cast<uint32_t>(plan_.tables.size()));
    if (added) {
      SparseTablePlan::Table table;
      table.width = width;
      table.key = feature.key();
      plan_.tables.push_back(std::move(table));
      first_of_.push_back(i);
    }
    plan_.table_of[i] = at->second;
    plan_.tables[at->second].features.push_back(feature.name());
    if (added) {
      common_.push_back(raw ? EmbeddingNameOf(feature) : feature.embedding());
    } else if (!raw && common_[at->second] != feature.embedding()) {
      common_[at->second].clear();
    }
  }

  absl::Status NameTables() {
    const auto has_name = [this](size_t t) {
      return !job_.features(first_of_[t]).table().empty() || !common_[t].empty();
    };
    size_t unnamed = 0;
    for (size_t t = 0; t < plan_.tables.size(); ++t) unnamed += has_name(t) ? 0 : 1;
    absl::flat_hash_map<std::string, int> taken;  // by name: the table's first feature
    for (size_t t = 0; t < plan_.tables.size(); ++t) {
      SparseTablePlan::Table& table = plan_.tables[t];
      const Feature& first = job_.features(first_of_[t]);
      table.name = !first.table().empty() ? first.table()
                   : !common_[t].empty()  ? common_[t]
                   : unnamed > 1          ? absl::StrCat(kDefaultName, "_", table.width)
                                          : kDefaultName;
      const char* const field = !first.table().empty()       ? "table"
                                : !first.embedding().empty() ? "embedding"
                                                             : "name";
      if (!IsTableName(table.name)) {
        return Refuse(
            first_of_[t], field,
            absl::StrCat("has rows in a sparse table \"", table.name,
                         "\", which is no name of a table; give it a `table` of 1 to ",
                         kLongestName, " of A-Z a-z 0-9 _ . -, beginning with a letter or digit"));
      }
      const auto [other, fresh] = taken.emplace(table.name, first_of_[t]);
      if (fresh) continue;
      return Refuse(first_of_[t], field,
                    absl::StrCat("has rows in a sparse table \"", table.name, "\", and so has \"",
                                 job_.features(other->second).name(),
                                 "\", in another table; give one of them another `table`"));
    }
    return absl::OkStatus();
  }

  const JobConfig& job_;
  const FeatureUse& use_;
  SparseTablePlan plan_;
  std::map<Group, uint32_t> tables_;
  std::vector<int> first_of_;        // by table: its first feature
  std::vector<std::string> common_;  // by table: the embedding that all features name, or ""
  absl::flat_hash_map<std::string, int> first_of_embedding_, first_of_table_;
};

}  // namespace

const std::string& EmbeddingNameOf(const Feature& feature) {
  return feature.embedding().empty() ? feature.name() : feature.embedding();
}

absl::StatusOr<SparseTablePlan> PlanSparseTables(const JobConfig& job, const FeatureUse& use) {
  return Planner(job, use).Run();
}

}  // namespace sluice
