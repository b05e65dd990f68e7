#include "common/config/csv_options.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/data_format.h"

namespace sluice {
namespace {

constexpr size_t kMostDelimiterBytes = 16;

bool IsLineEndOrZero(char c) { return c == '\n' || c == '\r' || c == '\0'; }

// A text of the job in a message, with its tabs visible.
std::string Shown(const std::string& text) {
  return absl::StrCat("'", absl::CHexEscape(text), "'");
}

class CsvProblems {
 public:
  explicit CsvProblems(const DataConfig& data)
      : csv_(data.csv()), format_(FormatOf(data)), name_(DataConfig::Format_Name(data.format())) {}

  std::vector<ConfigProblem> Find() {
    if (format_.delimited) {
      Delimiter();
      Quote();
      Escape();
      DecimalMark();
    } else {
      OtherFormat();
    }
    return std::move(problems_);
  }

 private:
  void Add(const char* option, const std::string& text) {
    problems_.push_back({absl::StrCat("data.csv.", option), text});
  }

  std::string DelimiterOrDefault() const {
    return !csv_.delimiter().empty() ? csv_.delimiter() : format_.delimiter;
  }

  void Delimiter() {
    const std::string delimiter = DelimiterOrDefault();
    for (const char c : delimiter) {
      if (!IsLineEndOrZero(c)) continue;
      return Add("delimiter",
                 absl::StrCat(Shown(delimiter), " has a line end or a zero; use other characters"));
    }
    if (delimiter.size() > kMostDelimiterBytes) {
      Add("delimiter", absl::StrCat("has ", delimiter.size(), " characters; give at most ",
                                    kMostDelimiterBytes));
    }
    if (format_.fixed_delimiter && delimiter != format_.delimiter) {
      Add("delimiter",
          absl::StrCat(Shown(delimiter), " contradicts data.format ", name_, "; use format CSV"));
    }
  }

  // One character that is no part of the delimiter and has no other meaning.
  void OneCharacter(const char* option, const std::string& value) {
    if (value.size() != 1 || IsLineEndOrZero(value[0]) || value[0] == ' ' || value[0] == '\t') {
      Add(option, absl::StrCat(Shown(value),
                               " is not one character other than a blank or a line end; give one"));
    } else if (absl::StrContains(DelimiterOrDefault(), value)) {
      Add(option, absl::StrCat(Shown(value), " is also in data.csv.delimiter; change one of them"));
    }
  }

  void Quote() {
    const std::string quote = csv_.has_quote() ? csv_.quote() : "\"";
    if (!quote.empty()) OneCharacter("quote", quote);
  }

  void Escape() {
    if (csv_.escape().empty()) return;
    OneCharacter("escape", csv_.escape());
    if (csv_.escape() == (csv_.has_quote() ? csv_.quote() : "\"")) {
      Add("escape",
          absl::StrCat(Shown(csv_.escape()),
                       " is also the quote; remove escape: a doubled quote in a quoted cell "
                       "already stands for one quote"));
    }
  }

  void DecimalMark() {
    const std::string& mark = csv_.decimal_mark();
    if (mark.empty() || mark == ".") return;
    if (mark != ",") {
      Add("decimal_mark", absl::StrCat(Shown(mark), " is neither '.' nor ','; give one of them"));
    } else if (absl::StrContains(DelimiterOrDefault(), ',') && csv_.has_quote() &&
               csv_.quote().empty()) {
      Add("decimal_mark",
          "',' is also in data.csv.delimiter, and cells are not quoted; change one of them");
    }
  }

  void OtherFormat() {
    CsvFormat other = csv_;
    other.clear_missing();
    if (other.ByteSizeLong() == 0) return;
    problems_.push_back({"data.csv", absl::StrCat("has no effect with format ", name_,
                                                  ", except for missing; remove the rest")});
  }

  const CsvFormat& csv_;
  const DataFormat& format_;
  const std::string name_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> FindCsvProblems(const DataConfig& data) {
  return CsvProblems(data).Find();
}

absl::Status CheckNoCsvOptions(const DataConfig& data) {
  for (const ConfigProblem& problem : FindCsvProblems(data))
    return absl::InvalidArgumentError(absl::StrCat(problem.path, " ", problem.text));
  return absl::OkStatus();
}

}  // namespace sluice
