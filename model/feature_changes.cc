#include "model/feature_changes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/saved_model/start_map.h"
#include "model/features/cell.h"
#include "model/features/feature_schema.h"

namespace sluice {
namespace {

using InputRows = ModelSpec::InputRows;
using InputTable = ModelSpec::InputTable;
using FeatureNames = std::vector<std::string>;

constexpr size_t kNamedFeatures = 20;  // most in one list of a note

std::string ListedFeatures(const FeatureNames& names) {
  const size_t named = std::min(names.size(), kNamedFeatures);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + named, ", ",
                    [](std::string* to, const std::string& name) { to->append(name); });
  if (named < names.size()) absl::StrAppend(&text, " and ", names.size() - named, " more");
  return text;
}

FeatureNames FeaturesOf(const JobConfig& job) {
  FeatureNames names;
  for (const Feature& feature : job.features()) names.push_back(feature.name());
  return names;
}

// Those of `names` that are not among `others`, quoted.
FeatureNames NamesWithout(const FeatureNames& names, const FeatureNames& others) {
  const std::set<std::string> taken(others.begin(), others.end());
  FeatureNames left;
  for (const std::string& name : names) {
    if (taken.count(name) == 0) left.push_back(QuotedCell(name));
  }
  return left;
}

const TableConfig* SavedTable(const Manifest& manifest, const std::string& name) {
  TableConfig table;
  table.set_name(name);
  return StartOf(manifest, table);
}

// The positions of `order`, of which no two are equal, that are not part of its longest ascending
// subsequence: moving these alone puts all in order.
std::set<size_t> OutOfOrder(const std::vector<size_t>& order) {
  std::vector<size_t>
      ends;  // [length - 1]: where the subsequence of that length with least end ends
  std::vector<size_t> before(order.size(), SIZE_MAX);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto place =
        std::lower_bound(ends.begin(), ends.end(), order[i],
                         [&](size_t end, size_t value) { return order[end] < value; });
    if (place != ends.begin()) before[i] = *(place - 1);
    if (place == ends.end()) {
      ends.push_back(i);
    } else {
      *place = i;
    }
  }
  std::set<size_t> out;
  for (size_t i = 0; i < order.size(); ++i) out.insert(i);
  for (size_t i = ends.empty() ? SIZE_MAX : ends.back(); i != SIZE_MAX; i = before[i]) out.erase(i);
  return out;
}

// Follows the features of one job to another.
class Following {
 public:
  Following(const JobModel& saved, const JobModel& job, const Manifest& manifest,
            std::vector<TableConfig>* tables)
      : saved_(saved), job_(job), manifest_(manifest), tables_(*tables) {}

  FeatureChanges Run() {
    if (!SharesFeatures()) return std::move(changes_);
    FollowSparse();
    const auto from = *saved_.spec->input_tables(), to = *job_.spec->input_tables();
    for (const auto& [name, inputs] : to) {
      const auto was = from.find(name);
      FollowDense(name, was == from.end() ? InputTable() : was->second, inputs);
    }
    NoteFeatures();
    NoteTables();
    return std::move(changes_);
  }

 private:
  void Refuse(std::string why) { changes_.refused.push_back(std::move(why)); }

  // A job without any feature of the model's has named the wrong model.
  bool SharesFeatures() {
    const FeatureNames now = FeaturesOf(*job_.job);
    if (NamesWithout(now, FeaturesOf(*saved_.job)).size() < now.size()) return true;
    Refuse("no feature of this job is in the model's job");
    return false;
  }

  TableConfig* TableOf(const std::string& name) {
    const auto found = std::find_if(tables_.begin(), tables_.end(),
                                    [&](const TableConfig& table) { return table.name() == name; });
    return found == tables_.end() ? nullptr : &*found;
  }

  // The sparse table of each feature that has rows there.
  static std::map<std::string, std::string> SparseTables(const ModelSpec& spec) {
    std::map<std::string, std::string> tables;
    for (const FeatureSchema::Slot& slot : spec.schema()->slots()) {
      if (slot.rows.empty() && slot.table < spec.sparse_tables().size())
        tables[slot.name] = spec.tables()[spec.sparse_tables()[slot.table]].name();
    }
    return tables;
  }

  // Features of a table that had rows in a saved table, by the name of that.
  using Sources = std::map<std::string, FeatureNames>;

  // Finds the saved table of each sparse table: the one that its features had, since the names of
  // tables may follow from widths (sparse_table_plan.h), else the one of its name.
  void FollowSparse() {
    const auto had = SparseTables(*saved_.spec), have = SparseTables(*job_.spec);
    std::map<std::string, Sources> tables;
    for (const auto& [feature, table] : have) {
      Sources& sources = tables[table];
      const auto was = had.find(feature);
      if (was != had.end()) sources[was->second].push_back(feature);
    }
    std::map<std::string, FeatureNames> heirs;  // by saved table: the tables that are made of it
    for (const auto& [table, sources] : tables) {
      const auto named = sources.find(table);
      const auto source = sources.size() == 1 ? sources.begin() : named;
      if (source != sources.end()) heirs[source->first].push_back(table);
      for (const auto& [from, features] : sources) {
        if (source == sources.end() || from != source->first) RefuseMove(features, from, table);
      }
    }
    for (const auto& [source, made] : heirs) {
      if (made.size() > 1) RefuseSplit(source, made, tables);
      for (const std::string& table : made) StartSparse(table, source);
    }
    for (const auto& [table, sources] : tables) {
      // All of its features are new. The rows of those that it had stay.
      const bool named = heirs.count(table) == 0 && SavedTable(manifest_, table) != nullptr;
      if (sources.empty()) StartSparse(table, named ? table : "");
    }
  }

  void RefuseMove(const FeatureNames& features, const std::string& from, const std::string& to) {
    const size_t more = features.size() - 1;
    Refuse(absl::StrCat(
        "feature ", QuotedCell(features[0]),
        more == 0 ? "" : absl::StrCat(" (and ", more, " more)"), ": its rows are in table ",
        QuotedCell(from), " in the model's job and in table ", QuotedCell(to),
        " in this one; rows of a shared table cannot be moved: give it another "
        "name, so that it starts afresh, or leave its `table`, key and width as they were"));
  }

  void RefuseSplit(const std::string& source, const FeatureNames& made,
                   const std::map<std::string, Sources>& tables) {
    FeatureNames parts;
    for (const std::string& table : made) {
      const FeatureNames& features = tables.at(table).at(source);
      parts.push_back(absl::StrCat(
          QuotedCell(features[0]),
          features.size() == 1 ? "" : absl::StrCat(" (and ", features.size() - 1, " more)"), " in ",
          QuotedCell(table)));
    }
    Refuse(absl::StrCat(
        "features that share table ", QuotedCell(source),
        " in the model's job have tables of their "
        "own in this one: ",
        ListedFeatures(parts),
        "; the rows of a table have one width, so widen all of "
        "its features, or give the one of another width a new name and a `table` of its own, where "
        "it starts afresh"));
  }

  // Sets the start of a sparse table that is new (no `source`), or whose saved table has another
  // name or other columns.
  void StartSparse(const std::string& name, const std::string& source) {
    TableConfig* const table = TableOf(name);
    if (table == nullptr) return;
    if (source.empty()) table->mutable_start();
    const TableConfig* const from = source.empty() ? nullptr : SavedTable(manifest_, source);
    if (from == nullptr) return;  // a table that the model should have is missed with the others
    const auto form = [](const TableConfig& t) {
      return absl::StrJoin(t.columns(), ",", [](std::string* to, const ColumnGroup& group) {
        absl::StrAppend(to, group.name(), ":", group.dim());
      });
    };
    if (source != name || form(*from) != form(*table)) table->mutable_start()->set_table(source);
  }

  // Sets the start of a dense table whose rows belong to inputs, if the inputs have changed.
  void FollowDense(const std::string& name, const InputTable& from, const InputTable& to) {
    TableConfig* const table = TableOf(name);
    const TableConfig* const saved = SavedTable(manifest_, name);
    if (table == nullptr) return;
    if (saved == nullptr) {
      if (from.inputs.empty()) table->mutable_start();  // new
      return;
    }
    // A table of another kind is refused with the tables (model_tables.h).
    if (saved->kind() != TableConfig::DENSE || saved->shape_size() == 0) return;
    TableStart start;
    start.set_table(name);
    bool same = from.inputs.size() == to.inputs.size();
    for (size_t i = 0; same && i < to.inputs.size(); ++i)
      same = from.inputs[i].input == to.inputs[i].input && from.inputs[i].rows == to.inputs[i].rows;
    const bool widened = to.embeddings && saved->shape_size() == 2 && table->shape_size() == 2 &&
                         saved->shape(1) < table->shape(1);
    if (same && !widened) return;
    if (!MapInputs(from, to, &start)) return;
    uint64_t rows = 0;
    for (const InputRows& input : from.inputs) rows += input.rows;
    if (rows != saved->shape(0)) {
      Refuse(absl::StrCat("table ", QuotedCell(name), " of the model has ", saved->shape(0),
                          " rows, but the features of its job have ", rows));
      return;
    }
    // Other shapes are refused with the tables (model_tables.h).
    if (!to.embeddings && saved->shape_size() == table->shape_size() &&
        !std::equal(saved->shape().begin() + 1, saved->shape().end(), table->shape().begin() + 1)) {
      return;
    }
    *table->mutable_start() = std::move(start);
  }

  // Adds the rows of the inputs that both have. False: one cannot be followed.
  bool MapInputs(const InputTable& from, const InputTable& to, TableStart* start) {
    struct Place {
      uint64_t row, rows;
      size_t index;
    };
    std::map<std::string, Place> saved;
    std::map<std::string, uint64_t> was, is;  // rows by feature
    uint64_t row = 0;
    for (const InputRows& input : from.inputs) {
      saved[input.input] = {row, input.rows, saved.size()};
      was[input.feature] += input.rows;
      row += input.rows;
    }
    std::vector<size_t> order;  // of the common inputs, in the order of this job
    std::vector<const InputRows*> common;
    row = 0;
    for (const InputRows& input : to.inputs) {
      const auto place = saved.find(input.input);
      is[input.feature] += input.rows;
      if (place != saved.end()) {
        AddRun(place->second.row, row, std::min(place->second.rows, input.rows), start);
        order.push_back(place->second.index);
        common.push_back(&input);
      }
      row += input.rows;
    }
    for (const InputRows* input : common) {
      const uint64_t rows = was[input->feature], now = is[input->feature];
      if (now < rows) {
        Refuse(absl::StrCat("feature ", QuotedCell(input->feature), " has ", rows,
                            " inputs or rows in the model's job and ", now,
                            " in this one; it may be widened, but not narrowed"));
        return false;
      }
      if (now > rows) widened_[input->feature] = absl::StrCat(rows, " to ", now);
    }
    for (const size_t i : OutOfOrder(order)) moved_.insert(common[i]->feature);
    return true;
  }

  static void AddRun(uint64_t from, uint64_t to, uint64_t count, TableStart* start) {
    if (start->rows_size() > 0) {
      TableStart::Run* const last = start->mutable_rows(start->rows_size() - 1);
      if (last->from() + last->count() == from && last->to() + last->count() == to) {
        last->set_count(last->count() + count);
        return;
      }
    }
    TableStart::Run* const run = start->add_rows();
    run->set_from(from), run->set_to(to), run->set_count(count);
  }

  void NoteFeatures() {
    const FeatureNames saved = FeaturesOf(*saved_.job), now = FeaturesOf(*job_.job);
    FeatureNames moved, widened, parts;
    for (const std::string& feature : moved_) moved.push_back(QuotedCell(feature));
    for (const auto& [feature, how] : widened_)
      widened.push_back(absl::StrCat(QuotedCell(feature), " (", how, ")"));
    const std::pair<const char*, FeatureNames> lists[] = {{"added", NamesWithout(now, saved)},
                                                          {"removed", NamesWithout(saved, now)},
                                                          {"moved", moved},
                                                          {"widened", widened}};
    for (const auto& [what, names] : lists) {
      if (!names.empty()) parts.push_back(absl::StrCat(what, ": ", ListedFeatures(names)));
    }
    if (!parts.empty())
      changes_.notes.push_back(absl::StrCat("features ", absl::StrJoin(parts, "; ")));
  }

  void NoteTables() {
    std::set<std::string> taken;
    for (const TableConfig& table : tables_) {
      const TableConfig* const from = StartOf(manifest_, table);
      if (from != nullptr) taken.insert(from->name());
      if (from == nullptr || !table.has_start()) continue;
      const auto map = StartMap::Create(*from, table);
      if (!map.ok()) continue;
      const StartMap::Counts& counts = (*map)->counts();
      const bool sparse = table.kind() == TableConfig::SPARSE;
      changes_.notes.push_back(absl::StrCat(
          "table '", table.name(), "'",
          from->name() == table.name() ? "" : absl::StrCat(" (was '", from->name(), "')"), ": ",
          counts.kept, sparse ? " columns" : " rows", " kept, ", counts.added, " initialized, ",
          counts.dropped, " dropped", sparse ? "; all of its rows stay" : ""));
    }
    for (const TableConfig& table : manifest_.tables()) {
      if (taken.count(table.name()) == 0)
        changes_.notes.push_back(absl::StrCat("table '", table.name(), "' is dropped"));
    }
  }

  const JobModel& saved_;
  const JobModel& job_;
  const Manifest& manifest_;
  std::vector<TableConfig>& tables_;
  std::set<std::string> moved_;
  std::map<std::string, std::string> widened_;  // feature: "8 to 16"
  FeatureChanges changes_;
};

}  // namespace

bool CanFollowFeatures(const ModelSpec& saved, const ModelSpec& job) {
  return saved.input_tables().has_value() && job.input_tables().has_value();
}

FeatureChanges FollowFeatures(const JobModel& saved, const JobModel& job, const Manifest& manifest,
                              std::vector<TableConfig>* tables) {
  return Following(saved, job, manifest, tables).Run();
}

}  // namespace sluice
