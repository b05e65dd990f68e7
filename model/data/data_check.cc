#include "model/data/data_check.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/config/closest_name.h"
#include "model/data/bad_lines.h"
#include "model/data/data_source.h"
#include "model/data/expand_files.h"
#include "model/data/file_columns.h"
#include "model/data/wait_together.h"
#include "model/features/cell.h"
#include "model/features/data_summary.h"

namespace sluice {
namespace {

constexpr size_t kShownProblems = 20;
constexpr size_t kFilesTogether = 16;
constexpr uint64_t kTellingExamples = 1000;  // so many with one label are said

// A kind of problem, and where it was found first.
struct Problem {
  std::string kind;
  std::string first;
  uint64_t count = 0;
};

// Problems by kind, in the order in which they were found.
class Problems {
 public:
  void Add(std::string kind, const std::string& first) {
    const auto known = std::find_if(all_.begin(), all_.end(),
                                    [&kind](const Problem& p) { return p.kind == kind; });
    if (known != all_.end()) {
      ++known->count;
    } else {
      all_.push_back({std::move(kind), first, 1});
    }
  }
  // The most frequent first; equal ones in the order in which they were found.
  std::vector<Problem> Sorted() const {
    std::vector<Problem> sorted = all_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Problem& a, const Problem& b) { return a.count > b.count; });
    return sorted;
  }

 private:
  std::vector<Problem> all_;
};

// Places of `n` files of a list of `size`: the first, the last, and others evenly between them.
std::vector<size_t> Choose(size_t size, size_t n) {
  std::vector<size_t> chosen;
  n = std::min(n, size);
  for (size_t i = 0; i < n; ++i) chosen.push_back(n == 1 ? 0 : i * (size - 1) / (n - 1));
  return chosen;
}

// The check of the files of one field.
class FieldCheck {
 public:
  FieldCheck(const char* field, const DataSource& data, const DataCheckOptions& options,
             bool header, Clock* clock, absl::Time until)
      : field_(field),
        data_(data),
        options_(options),
        header_(header),
        clock_(clock),
        until_(until) {}

  void Check(const std::vector<std::string>& files) {
    files_ = files.size();
    std::vector<bool> sound(files.size(), true);
    ReadSome(files, options_.opened_files, [&](size_t f) -> std::function<void()> {
      const absl::Status status = data_.CheckColumns(files[f], /*need_label=*/true);
      return [this, &files, &sound, f, status] {
        ++opened_;
        sound[f] = Note(files[f], status);
      };
    });
    ReadSome(files, options_.sampled_files, [&](size_t f) -> std::function<void()> {
      // Lines of a file with other columns would only repeat what is known.
      return sound[f] ? ReadLines(files[f]) : [] {};
    });
  }

  // Leaves out the kinds of problems that are in *known, and adds its own.
  void Report(uint64_t max_bad_lines, std::set<std::string>* known, DataCheckReport* report) const {
    for (const Problem& problem : of_files_.Sorted()) {
      if (!known->insert(problem.kind).second) continue;
      report->errors.push_back(absl::StrCat(field_, ": ", problem.first));
      if (problem.count > 1)
        absl::StrAppend(&report->errors.back(), " (", problem.count, " of ", opened_, " files)");
    }
    const bool allowed = bad_lines_ <= max_bad_lines;
    std::vector<std::string>* const to = allowed ? &report->warnings : &report->errors;
    for (const Problem& problem : of_lines_.Sorted()) {
      if (to->size() == kShownProblems) {
        to->push_back(absl::StrCat(field_, ": further problems are left out"));
        break;
      }
      // An error is reported even if the other field already reported it as a warning.
      if (!known->insert(absl::StrCat(allowed ? "allowed " : "", problem.kind)).second) continue;
      to->push_back(absl::StrCat(field_, ": ", problem.first, " (", problem.count, " of ", lines_,
                                 lines_ == 1 ? " line" : " lines", ")"));
    }
    report->coverage.push_back(Coverage());
  }

  // Finds the columns that no line has a value of, by `columns` of the schema. They would teach
  // nothing, which is an error in training where all lines were looked at, or where the name of one
  // that no line names is likely misspelled. Otherwise later lines may have them.
  void CheckNames(bool training, const std::vector<std::string>& columns, const DataConfig& data,
                  Env* env, DataCheckReport* report) const {
    std::vector<std::string> names;
    std::vector<std::string> wrong, doubtful;  // columns
    std::string near;                          // of the first that is wrong
    // A missing label is a problem of its line.
    for (size_t c = kWeightColumn; c < with_value_.size(); ++c) {
      if (columns[c].empty() || with_value_[c] > 0) continue;
      std::string meant;
      if (named_[c] == 0) {
        if (names.empty()) names = ColumnsReader(env)(data).value_or(std::vector<std::string>());
        if (std::find(names.begin(), names.end(), columns[c]) == names.end())
          meant = DidYouMean(columns[c], names);
      }
      if (!training || (meant.empty() && !LookedAtAll())) {
        doubtful.push_back(columns[c]);
        continue;
      }
      if (wrong.empty()) near = meant;
      wrong.push_back(columns[c]);
    }
    const auto note = [&](const std::vector<std::string>& absent, const std::string& rest,
                          std::vector<std::string>* to) {
      if (absent.empty()) return;
      to->push_back(absl::StrCat(
          field_, ": none of the ", lines_, " lines that were looked at has a value of ",
          QuotedCell(absent[0]), ", which the job uses",
          absent.size() > 1 ? absl::StrCat(" (nor of ", absent.size() - 1, " other columns)") : "",
          rest));
    };
    note(wrong, near + "; correct its name, or remove what uses it", &report->errors);
    note(doubtful, "; check its name, unless it is rare", &report->warnings);
  }

  // Checks what only the examples together show.
  void CheckWhole(bool training, const DataConfig& data, DataCheckReport* report) const {
    const uint64_t examples = lines_ - bad_lines_;
    if (!LookedAtAll()) {
      if (examples < kTellingExamples || (positive_ > 0 && positive_ < examples)) return;
      report->warnings.push_back(absl::StrCat(
          field_, ": none of the ", examples, " examples that were looked at has label ",
          positive_ == 0 ? 1 : 0, "; check data.label, unless the data is sorted by it"));
      return;
    }
    if (examples == 0) {
      if (!report->errors.empty()) return;
      report->errors.push_back(absl::StrCat(field_, ": the ", training ? "training" : "evaluation",
                                            " data has no examples; correct ", field_,
                                            training ? "" : ", or remove it"));
      return;
    }
    if (training && weighted_ == 0) {
      report->errors.push_back(absl::StrCat(field_, ": nothing would be learned: each of the ",
                                            examples, examples == 1 ? " example" : " examples",
                                            " has weight 0; ", RemedyOfZeroWeights(data)));
    }
    if (positive_ > 0 && positive_ < examples) return;
    report->warnings.push_back(absl::StrCat(
        field_, ": no example has label ", positive_ == 0 ? 1 : 0,
        training ? "" : ", so the AUC is not defined", "; check data.label and the files"));
  }

 private:
  bool TimeIsUp() const { return clock_->Now() >= until_; }
  bool LookedAtAll() const { return sampled_ == files_ && !cut_short_; }

  // Calls read(f) for up to `n` of the files until the time is up, and what it returns in the order
  // of the files. Files that are far away are read side by side.
  void ReadSome(const std::vector<std::string>& files, size_t n,
                const std::function<std::function<void()>(size_t f)>& read) {
    const std::vector<size_t> chosen = Choose(files.size(), n);
    for (size_t begin = 0; begin < chosen.size() && !TimeIsUp();) {
      // The first file by itself: the others are compared with it.
      const bool alone = begin == 0 || data_.env()->PlaceOf(files[chosen[begin]]).map;
      std::vector<std::function<void()>> notes(
          alone ? 1 : std::min(kFilesTogether, chosen.size() - begin));
      WaitTogether(notes.size(), [&](size_t i) { notes[i] = read(chosen[begin + i]); });
      for (const auto& note : notes) note();
      begin += notes.size();
    }
  }

  // True when the status is OK.
  bool Note(const std::string& file, const absl::Status& status) {
    if (status.ok()) return true;
    if (options_.other_reader && absl::IsPermissionDenied(status)) return false;
    // Files with one fault differ only in their names.
    const std::string message(status.message());
    of_files_.Add(KindOfBadLine(absl::StrReplaceAll(message, {{file, "*"}})), message);
    return false;
  }

  // Changes nothing: the call that it returns notes what was found. `file` outlives both.
  std::function<void()> ReadLines(const std::string& file) {
    std::vector<std::pair<uint64_t, absl::Status>> problems;
    auto checked = data_.CheckBeginning(
        file, options_.bytes, options_.lines,
        [&problems](uint64_t line, const absl::Status& why) { problems.emplace_back(line, why); });
    return [this, &file, checked = std::move(checked), problems = std::move(problems)] {
      NoteLines(file, checked, problems);
    };
  }

  void NoteLines(const std::string& file, const absl::StatusOr<DataSource::Beginning>& checked,
                 const std::vector<std::pair<uint64_t, absl::Status>>& problems) {
    uint64_t last_bad = 0;  // a line may have several problems
    for (const auto& [line, why] : problems) {
      if (line != last_bad) ++bad_lines_;
      last_bad = line;
      of_lines_.Add(KindOfBadLine(why.message()),
                    absl::StrCat(file, ":", line, ": ", why.message()));
    }
    if (!Note(file, checked.status())) return;
    ++sampled_;
    lines_ += checked->lines;
    positive_ += checked->positive;
    weighted_ += checked->weighted;
    AddCounts(checked->named, &named_);
    AddCounts(checked->with_value, &with_value_);
    cut_short_ = cut_short_ || !checked->whole;
  }

  static void AddCounts(const std::vector<uint64_t>& counts, std::vector<uint64_t>* sum) {
    sum->resize(std::max(sum->size(), counts.size()));
    for (size_t c = 0; c < counts.size(); ++c) (*sum)[c] += counts[c];
  }

  std::string Coverage() const {
    std::string text =
        absl::StrCat(field_, ": ", lines_, lines_ == 1 ? " line" : " lines", " of ", sampled_,
                     " of ", files_, files_ == 1 ? " file" : " files", " checked");
    if (cut_short_) absl::StrAppend(&text, ", at most ", options_.lines, " of each");
    if (sampled_ < files_) absl::StrAppend(&text, "; ", files_ - sampled_, " not looked at");
    if (sampled_ < files_ && opened_ > sampled_)
      absl::StrAppend(&text,
                      header_ ? ", but for the columns of " : ", but for the first bytes of ",
                      opened_ - sampled_);
    return text;
  }

  const char* const field_;
  const DataSource& data_;
  const DataCheckOptions& options_;
  const bool header_;  // the files have header lines
  Clock* const clock_;
  const absl::Time until_;
  size_t files_ = 0, opened_ = 0, sampled_ = 0;
  uint64_t lines_ = 0, bad_lines_ = 0;        // looked at; malformed among them
  uint64_t positive_ = 0, weighted_ = 0;      // examples with label 1; with a weight above 0
  std::vector<uint64_t> named_, with_value_;  // by column (DataSource::Beginning)
  bool cut_short_ = false;                    // a sampled file has more lines
  Problems of_files_, of_lines_;
};

}  // namespace

DataCheckReport CheckData(const JobConfig& job, const std::shared_ptr<const FeatureSchema>& schema,
                          Env* env, Clock* clock, const DataCheckOptions& options) {
  DataCheckReport report;
  const auto data = DataSource::Create(job.data(), schema, env);
  if (!data.ok()) {
    report.errors.emplace_back(data.status().message());
    return report;
  }
  const absl::Time until = clock->Now() + options.time;
  std::set<std::string> known;
  const auto check = [&](bool training,
                         const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    const char* const field = training ? "data.train_files" : "data.eval_files";
    if (patterns.empty()) return;
    const auto files = ExpandFiles(patterns, env);
    if (options.other_reader && absl::IsPermissionDenied(files.status())) {
      report.coverage.push_back(absl::StrCat(field, ": not looked at: ", files.status().message()));
      return;
    }
    if (!files.ok()) {
      report.errors.push_back(absl::StrCat(field, ": ", files.status().message()));
      return;
    }
    FieldCheck of_field(field, **data, options, job.data().csv().header(), clock, until);
    of_field.Check(*files);
    of_field.Report(job.data().max_bad_lines(), &known, &report);
    of_field.CheckNames(training, schema->columns(), job.data(), env, &report);
    of_field.CheckWhole(training, job.data(), &report);
  };
  if (!job.evaluate_only()) check(/*training=*/true, job.data().train_files());
  check(/*training=*/false, job.data().eval_files());
  return report;
}

}  // namespace sluice
