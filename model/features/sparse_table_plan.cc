#include "model/features/sparse_table_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "model/features/cell.h"
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

const char* KindOf(const Feature& feature) {
  return feature.has_cross() ? "a cross" : feature.has_numeric() ? "bucketed" : "categorical";
}

// By name: the collections that look the feature up, ascending. Empty for models without them.
using CollectionsByName = absl::flat_hash_map<std::string, std::vector<uint32_t>>;

CollectionsByName CollectionsByFeature(const FeatureUse& use) {
  CollectionsByName by_feature;
  for (uint32_t c = 0; c < use.collections.size(); ++c) {
    for (const std::string& feature : use.collections[c].features) by_feature[feature].push_back(c);
  }
  return by_feature;
}

// The same by embedding: the union over its features.
CollectionsByName CollectionsByEmbedding(const JobConfig& job, const CollectionsByName& own) {
  CollectionsByName by_embedding;
  for (const Feature& feature : job.features()) {
    const auto found = own.find(feature.name());
    if (found == own.end()) continue;
    std::vector<uint32_t>& set = by_embedding[EmbeddingNameOf(feature)];
    set.insert(set.end(), found->second.begin(), found->second.end());
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
  }
  return by_embedding;
}

class Planner {
 public:
  Planner(const JobConfig& job, const FeatureUse& use)
      : job_(job),
        use_(use),
        by_feature_(CollectionsByFeature(use)),
        by_embedding_(CollectionsByEmbedding(job, by_feature_)) {}

  absl::StatusOr<SparseTablePlan> Run() {
    plan_.table_of.assign(job_.features_size(), 0);
    FindWidths();
    for (int i = 0; i < job_.features_size(); ++i) {
      if (!HasSparseRows(i)) continue;
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
  // Width, key rule, `table`; RAW: the name of the embedding; the collections.
  using Group = std::tuple<uint32_t, int, std::string, std::string, std::vector<uint32_t>>;

  bool HasSparseRows(int i) const {
    const Feature& feature = job_.features(i);
    const bool used = use_.by_collections ? by_feature_.contains(feature.name())
                                          : (InWide(feature) && use_.keys.wide) ||
                                                (InDeep(feature) && use_.keys.deep);
    return used && HasKeys(feature) && !IsDense(feature);
  }

  // Of the feature's embedding; empty without collections.
  const std::vector<uint32_t>& CollectionsOf(int i) const {
    static const auto* const none = new std::vector<uint32_t>;
    const auto found = by_embedding_.find(EmbeddingNameOf(job_.features(i)));
    return found == by_embedding_.end() ? *none : found->second;
  }

  std::string NamesOf(const std::vector<uint32_t>& collections, const char* separator) const {
    return absl::StrJoin(collections, separator, [this](std::string* out, uint32_t c) {
      out->append(use_.collections[c].name);
    });
  }

  Group GroupOf(int i, uint32_t width) const {
    const Feature& feature = job_.features(i);
    return Group(width, feature.key(), feature.table(),
                 feature.key() == Feature::RAW ? EmbeddingNameOf(feature) : "", CollectionsOf(i));
  }

  // Sets the width of each feature. Features outside the deep part need none. Without one, such a
  // feature takes the first width of its embedding, or else that of the features with the same key
  // and `table`, so that its rows are in their table.
  void FindWidths() {
    widths_.assign(job_.features_size(), 0);
    if (use_.by_collections) return AddUpWidths();
    if (!use_.keys.deep) return;
    std::map<std::string, uint32_t> of_embedding;
    std::map<Group, uint32_t> of_group;
    for (int i = 0; i < job_.features_size(); ++i) {
      const Feature& feature = job_.features(i);
      if (!HasSparseRows(i)) continue;
      widths_[i] = feature.has_embedding_dim() ? feature.embedding_dim() : use_.embedding_dim;
      if (widths_[i] == 0) continue;
      of_embedding.emplace(EmbeddingNameOf(feature), widths_[i]);
      of_group.emplace(GroupOf(i, 0), widths_[i]);
    }
    for (int i = 0; i < job_.features_size(); ++i) {
      const Feature& feature = job_.features(i);
      if (!HasSparseRows(i) || InDeep(feature) || feature.has_embedding_dim() || widths_[i] > 0) {
        continue;
      }
      const auto same = of_embedding.find(EmbeddingNameOf(feature));
      const auto near = of_group.find(GroupOf(i, 0));
      widths_[i] = same != of_embedding.end() ? same->second
                   : near != of_group.end()   ? near->second
                                              : 0;
    }
  }

  void AddUpWidths() {
    for (int i = 0; i < job_.features_size(); ++i) {
      for (const uint32_t c : CollectionsOf(i)) widths_[i] += use_.collections[c].dim;
    }
  }

  absl::Status Refuse(int i, const std::string& field, const std::string& why) const {
    return AtField(absl::StrCat("features[", i, "].", field),
                   absl::InvalidArgumentError(
                       absl::StrCat("feature \"", job_.features(i).name(), "\" ", why)));
  }

  // "shares the WHAT "x" with "a", but its FIELD is 8 and that of "a" 16; make them equal, or FIX".
  template <typename Value>
  absl::Status Agree(int i, int first, const std::string& shared, const std::string& field,
                     const Value& own, const Value& other, const char* fix) const {
    if (own == other) return absl::OkStatus();
    const std::string& name = job_.features(first).name();
    return Refuse(i, field,
                  absl::StrCat("shares ", shared, " with \"", name, "\", but its ", field, " is ",
                               Text(own), " and that of \"", name, "\" is ", Text(other),
                               "; make them equal, or ", fix));
  }
  static std::string Text(uint64_t value) { return absl::StrCat(value); }
  static std::string Text(bool value) { return value ? "true" : "false"; }
  static std::string Text(DatePart part) { return DatePart_Name(part); }
  static std::string Text(Feature::KeyRule key) { return Feature::KeyRule_Name(key); }
  static std::string Text(const std::string& name) { return absl::StrCat("\"", name, "\""); }

  // Whether the feature fits the first one that has its embedding: the same value must be the same
  // row in both.
  absl::Status CheckEmbedding(int i) {
    const Feature& own = job_.features(i);
    const int first = first_of_embedding_.emplace(EmbeddingNameOf(own), i).first->second;
    if (first == i) return absl::OkStatus();
    const Feature& other = job_.features(first);
    const std::string shared = absl::StrCat("the embedding \"", EmbeddingNameOf(own), "\"");
    const char* const fix = "give one of them another `embedding`";
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "embedding_dim", uint64_t{widths_[i]},
                                 uint64_t{widths_[first]}, fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "key", own.key(), other.key(), fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "table", own.table(), other.table(), fix));
    if (own.kind_case() != other.kind_case()) {
      return Refuse(i, "embedding",
                    absl::StrCat("shares ", shared, " with \"", other.name(), "\", but is ",
                                 KindOf(own), ", and \"", other.name(), "\" is ", KindOf(other),
                                 ", so the same value would not be the same row; ", fix));
    }
    if (own.has_cross()) return CheckCross(i, first, shared, fix);
    return own.has_numeric() ? CheckBuckets(i, first, shared, fix)
                             : CheckCategories(i, first, shared, fix);
  }

  absl::Status CheckCross(int i, int first, const std::string& shared, const char* fix) {
    const CrossFeature &own = job_.features(i).cross(), &other = job_.features(first).cross();
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "cross.hash_buckets", own.hash_buckets(),
                                 other.hash_buckets(), fix));
    // The key of a cross is a hash of the keys of its parts.
    return Agree(i, first, shared, "cross.features", EmbeddingsOf(own), EmbeddingsOf(other), fix);
  }

  // "a x b": the embeddings of the parts of a cross.
  std::string EmbeddingsOf(const CrossFeature& cross) {
    if (by_name_.empty()) {
      for (int i = 0; i < job_.features_size(); ++i) by_name_.emplace(job_.features(i).name(), i);
    }
    std::vector<std::string> names;
    for (const std::string& part : cross.features()) {
      const auto at = by_name_.find(part);
      names.push_back(at == by_name_.end() ? part : EmbeddingNameOf(job_.features(at->second)));
    }
    return absl::StrJoin(names, " x ");
  }

  absl::Status CheckBuckets(int i, int first, const std::string& shared, const char* fix) const {
    const NumericFeature &own = job_.features(i).numeric(), &other = job_.features(first).numeric();
    const auto text = [](const NumericFeature& numeric, int at) {
      return at < numeric.boundaries_size() ? absl::StrCat(numeric.boundaries(at)) : "missing";
    };
    const int most = std::max(own.boundaries_size(), other.boundaries_size());
    for (int at = 0; at < most; ++at) {
      const std::string field = absl::StrCat("numeric.boundaries[", at, "]");
      if (at < std::min(own.boundaries_size(), other.boundaries_size()) &&
          own.boundaries(at) == other.boundaries(at)) {
        continue;
      }
      const std::string& name = job_.features(first).name();
      return Refuse(i, "numeric.boundaries",
                    absl::StrCat("shares ", shared, " with \"", name, "\", but its ", field, " is ",
                                 text(own, at), " and that of \"", name, "\" is ", text(other, at),
                                 "; make the boundaries equal, or ", fix));
    }
    return CheckDates(i, first, shared, "numeric", own, other, fix);
  }

  absl::Status CheckCategories(int i, int first, const std::string& shared, const char* fix) {
    const CategoricalFeature &own = job_.features(i).categorical(),
                             &other = job_.features(first).categorical();
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "categorical.hash_buckets", own.hash_buckets(),
                                 other.hash_buckets(), fix));
    SLUICE_RETURN_IF_ERROR(CheckVocabulary(i, first, shared, fix));
    SLUICE_RETURN_IF_ERROR(CheckDates(i, first, shared, "categorical", own, other, fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "categorical.separate_unknown",
                                 own.separate_unknown(), other.separate_unknown(), fix));
    return Agree(i, first, shared, "categorical.missing_is_value", own.missing_is_value(),
                 other.missing_is_value(), fix);
  }

  // A value is a row of its own in one of the features and unknown in the other, if only one has it
  // in its vocabulary. The order does not matter.
  absl::Status CheckVocabulary(int i, int first, const std::string& shared, const char* fix) {
    const auto words_of = [this](int feature) {
      const auto& list = job_.features(feature).categorical().vocabulary();
      return std::set<std::string>(list.begin(), list.end());
    };
    // Many features may share an embedding: each vocabulary is read once.
    if (words_.count(first) == 0) words_.emplace(first, words_of(first));
    const std::set<std::string> own = words_of(i), &other = words_.at(first);
    std::vector<std::string> differ;
    std::set_symmetric_difference(own.begin(), own.end(), other.begin(), other.end(),
                                  std::back_inserter(differ));
    if (differ.empty()) return absl::OkStatus();
    const int has = own.count(differ[0]) > 0 ? i : first;
    return Refuse(
        i, "categorical.vocabulary",
        absl::StrCat("shares ", shared, " with \"", job_.features(first).name(),
                     "\", but only the vocabulary of \"", job_.features(has).name(), "\" has ",
                     QuotedCell(differ[0]), "; make the vocabularies equal, or ", fix));
  }

  template <typename Config>
  absl::Status CheckDates(int i, int first, const std::string& shared, const char* kind,
                          const Config& own, const Config& other, const char* fix) const {
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, absl::StrCat(kind, ".date_part"),
                                 own.date_part(), other.date_part(), fix));
    return Agree(i, first, shared, absl::StrCat(kind, ".date_format"), own.date_format(),
                 other.date_format(), fix);
  }

  // Whether the feature fits the first one that names its `table`.
  absl::Status CheckTable(int i) {
    const Feature& own = job_.features(i);
    if (own.table().empty()) return absl::OkStatus();
    const int first = first_of_table_.emplace(own.table(), i).first->second;
    const Feature& other = job_.features(first);
    const std::string shared = absl::StrCat("the table \"", own.table(), "\"");
    const char* const fix = "give one of them another `table`";
    // First: it explains a different width.
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "set of collections",
                                 NamesOf(CollectionsOf(i), ", "),
                                 NamesOf(CollectionsOf(first), ", "), fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "embedding_dim", uint64_t{widths_[i]},
                                 uint64_t{widths_[first]}, fix));
    SLUICE_RETURN_IF_ERROR(Agree(i, first, shared, "key", own.key(), other.key(), fix));
    if (own.key() != Feature::RAW) return absl::OkStatus();
    // Their values would be the same keys, and so the same rows, without a word about it.
    return Agree(i, first, shared, "embedding", EmbeddingNameOf(own), EmbeddingNameOf(other), fix);
  }

  void AddToTable(int i) {
    const Feature& feature = job_.features(i);
    const bool raw = feature.key() == Feature::RAW;
    const auto [at, added] =
        tables_.emplace(GroupOf(i, widths_[i]), static_cast<uint32_t>(plan_.tables.size()));
    if (added) {
      SparseTablePlan::Table table;
      table.width = widths_[i];
      table.key = feature.key();
      table.collections = CollectionsOf(i);
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
    std::map<uint32_t, size_t> of_width;  // how many unnamed tables have it
    for (size_t t = 0; t < plan_.tables.size(); ++t) {
      if (has_name(t)) continue;
      ++unnamed;
      ++of_width[plan_.tables[t].width];
    }
    const auto default_name = [&](const SparseTablePlan::Table& table) {
      if (unnamed == 1) return std::string(kDefaultName);
      const std::string name = absl::StrCat(kDefaultName, "_", table.width);
      // Without collections no two unnamed tables of one key rule have the same width.
      if (of_width[table.width] == 1 || table.collections.empty()) return name;
      return absl::StrCat(name, "_", NamesOf(table.collections, "_"));
    };
    absl::flat_hash_map<std::string, int> taken;  // by name: the table's first feature
    for (size_t t = 0; t < plan_.tables.size(); ++t) {
      SparseTablePlan::Table& table = plan_.tables[t];
      const Feature& first = job_.features(first_of_[t]);
      table.name = !first.table().empty() ? first.table()
                   : !common_[t].empty()  ? common_[t]
                                          : default_name(table);
      const char* const field = !first.table().empty()       ? "table"
                                : !first.embedding().empty() ? "embedding"
                                                             : "name";
      table.named_by = absl::StrCat("features[", first_of_[t], "].", field);
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
  const CollectionsByName by_feature_, by_embedding_;
  SparseTablePlan plan_;
  std::vector<uint32_t> widths_;  // by feature; 0: none
  std::map<Group, uint32_t> tables_;
  std::vector<int> first_of_;        // by table: its first feature
  std::vector<std::string> common_;  // by table: the embedding that all features name, or ""
  absl::flat_hash_map<std::string, int> first_of_embedding_, first_of_table_;
  absl::flat_hash_map<std::string, int> by_name_;  // features; empty until a check needs it
  std::map<int, std::set<std::string>> words_;     // vocabularies of features that others follow
};

}  // namespace

const std::string& EmbeddingNameOf(const Feature& feature) {
  return feature.embedding().empty() ? feature.name() : feature.embedding();
}

absl::StatusOr<SparseTablePlan> PlanSparseTables(const JobConfig& job, const FeatureUse& use) {
  return Planner(job, use).Run();
}

}  // namespace sluice
