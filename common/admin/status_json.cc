#include "common/admin/status_json.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/json_util.h"

namespace sluice {
namespace {

// Quotes inside strings are escaped, so these patterns match only field names.
constexpr char kAuc[] = "\"auc\": ";
constexpr char kFirst[] = "\"auc_error_bound\": ";  // the first field of an evaluation

void WriteUndefinedAsNull(std::string* json) {
  std::vector<std::pair<std::string, std::string>> replaced;
  for (const char* metric : {"auc_error_bound", "log_loss", "accuracy", "mae", "rmse",
                             "calibration", "auc_standard_error", "positive_rate"}) {
    replaced.emplace_back(absl::StrCat("\"", metric, "\": \"NaN\""),
                          absl::StrCat("\"", metric, "\": null"));
  }
  absl::StrReplaceAll(replaced, json);
}

// An evaluation is written as lines with the indentation of kFirst. JSON puts `auc` after the other
// fields and may omit it.
void WriteMissingAuc(std::string* json) {
  size_t at = 0;
  while ((at = json->find(kFirst, at)) != std::string::npos) {
    const size_t line = json->rfind('\n', at);
    const std::string begin = json->substr(line, at - line);  // line end and indentation
    const size_t end = json->find(begin.substr(0, begin.size() - 1) + "}", at);
    if (!absl::StrContains(absl::string_view(*json).substr(at, end - at), begin + kAuc)) {
      const std::string missing = absl::StrCat(kAuc, "null,", begin);
      json->insert(at, missing);
      at += missing.size();
    }
    at += sizeof(kFirst) - 1;
  }
}

}  // namespace

absl::StatusOr<std::string> StatusJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions print;
  print.add_whitespace = true;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, print);
  if (!printed.ok()) {
    return absl::InternalError(
        absl::StrCat("the status has no JSON form: ", std::string(printed.ToString())));
  }
  WriteUndefinedAsNull(&json);
  WriteMissingAuc(&json);
  return json;
}

}  // namespace sluice
