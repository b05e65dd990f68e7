#include "cli/report/finished_job.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/output_folder.h"

namespace sluice::cli {
namespace {

namespace dom = simdjson::dom;

// No job writes larger files: a result has a line for each epoch, and curves have bounded points.
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;
constexpr size_t kMostTextBytes = 2000;  // of one text
constexpr int kMostDepth = 32;

constexpr const char* kSecretNames[] = {"password",   "passwd",      "passphrase",    "secret",
                                        "token",      "credential",  "api_key",       "apikey",
                                        "access_key", "private_key", "authorization", "signature",
                                        "api-key",    "access-key"};

bool EndsWord(char c) {
  return absl::ascii_isspace(static_cast<unsigned char>(c)) ||
         absl::StrContains("\"'<>,;)]}\\`", c);
}

size_t EndOfWord(absl::string_view text, size_t at) {
  while (at < text.size() && !EndsWord(text[at])) ++at;
  return at;
}

// The address whose "://" is at `at`: without user, password and query.
std::string CleanAddress(absl::string_view text, size_t at, size_t end) {
  size_t scheme = at;
  while (scheme > 0 && absl::ascii_isalnum(static_cast<unsigned char>(text[scheme - 1]))) --scheme;
  const bool web = absl::StartsWithIgnoreCase(text.substr(scheme, at - scheme), "http");
  absl::string_view rest = text.substr(at + 3, end - at - 3);
  const size_t question = rest.find('?');
  absl::string_view place = rest.substr(0, question);
  std::string out = "://";
  // A password may hold a '/' that should have been escaped.
  const size_t slash = std::min(place.find('/'), place.size());
  const bool has_password = place.find(':') < slash;
  const size_t user_end = has_password ? place.rfind('@') : place.substr(0, slash).rfind('@');
  if (user_end != absl::string_view::npos) {
    out += "***@";
    place.remove_prefix(user_end + 1);
  }
  absl::StrAppend(&out, place);
  if (question == absl::string_view::npos) return out;
  // In other places than the web a '?' without '=' is part of a pattern of file names.
  const absl::string_view query = rest.substr(question);
  return absl::StrCat(out,
                      web || absl::StrContains(query, '=') ? absl::string_view("?***") : query);
}

// Where the value of a name such as "password" begins and ends, if a secret's name ends at `at`.
std::optional<std::pair<size_t, size_t>> SecretValue(absl::string_view text, size_t at) {
  // The rest of the name, and the quote behind it.
  while (at < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[at])) ||
                              absl::StrContains("_-.", text[at]))) {
    ++at;
  }
  while (at < text.size() && absl::StrContains("\"'\\ ", text[at])) ++at;
  if (at >= text.size() || (text[at] != '=' && text[at] != ':')) return std::nullopt;
  ++at;
  if (absl::StartsWith(text.substr(at), "//")) return std::nullopt;  // an address
  while (at < text.size() && absl::StrContains(" \"'\\", text[at])) ++at;
  size_t end = EndOfWord(text, at);
  for (const char* kind : {"bearer", "basic"}) {
    if (!absl::EqualsIgnoreCase(text.substr(at, end - at), kind)) continue;
    while (end < text.size() && text[end] == ' ') ++end;
    end = EndOfWord(text, end);
  }
  if (end == at) return std::nullopt;
  return std::pair(at, end);
}

bool IsAccessKey(absl::string_view word) {
  return word.size() == 20 && (absl::StartsWith(word, "AKIA") || absl::StartsWith(word, "ASIA")) &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return absl::ascii_isupper(c) || absl::ascii_isdigit(c);
         });
}

// A text as JSON that can stand in HTML.
std::string SafeText(absl::string_view text) {
  std::string clean = Printable(WithoutSecrets(text));
  if (clean.size() > kMostTextBytes) {
    size_t end = kMostTextBytes;
    while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xC0) == 0x80) --end;
    clean = absl::StrCat(clean.substr(0, end), "...");
  }
  return absl::StrReplaceAll(JsonQuoted(clean), {{"<", "\\u003c"}});
}

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

// A value whose own name may show that it is a secret.
std::string ValueOf(absl::string_view name, absl::string_view value) {
  const std::string both = WithoutSecrets(absl::StrCat(name, ": ", value));
  return both.substr(std::min(both.size(), name.size() + 2));
}

// False when it is nested too deeply.
bool Append(dom::element value, int depth, std::string* out) {
  if (depth > kMostDepth) return false;
  switch (value.type()) {
    case dom::element_type::OBJECT: {
      char before = '{';
      for (const dom::key_value_pair field : dom::object(value)) {
        const absl::string_view key = ToAbsl(field.key);
        absl::StrAppend(out, std::string(1, before), SafeText(key), ":");
        before = ',';
        std::string_view text;
        if (!field.value.get_string().get(text)) {
          out->append(SafeText(ValueOf(key, ToAbsl(text))));
        } else if (!Append(field.value, depth + 1, out)) {
          return false;
        }
      }
      out->append(before == '{' ? "{}" : "}");
      return true;
    }
    case dom::element_type::ARRAY: {
      char before = '[';
      for (const dom::element item : dom::array(value)) {
        out->push_back(before);
        if (!Append(item, depth + 1, out)) return false;
        before = ',';
      }
      out->append(before == '[' ? "[]" : "]");
      return true;
    }
    case dom::element_type::STRING:
      out->append(SafeText(ToAbsl(std::string_view(value))));
      return true;
    case dom::element_type::DOUBLE: {
      char text[64];
      const auto end = std::to_chars(text, text + sizeof(text), double(value));
      out->append(text, end.ptr);
      return true;
    }
    default:
      absl::StrAppend(out, simdjson::minify(value));
      return true;
  }
}

absl::Status Damaged(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " cannot be shown: ", why, "; leave this folder out"));
}

// Empty and OK: there is none.
absl::StatusOr<std::string> ReadBounded(Env* env, const std::string& path) {
  const auto size = env->FileSize(path);
  if (absl::IsNotFound(size.status())) return std::string();
  SLUICE_RETURN_IF_ERROR(size.status());
  if (*size > kMostFileBytes)
    return Damaged(path, absl::StrCat("it has ", *size, " bytes, which no job writes"));
  return env->ReadFile(path);
}

// Appends the list; if it is longer than `most`, only every n-th item and the last one.
bool AppendSpread(dom::array list, size_t most, std::string* out) {
  const size_t size = list.size();
  const size_t stride = (size + most - 1) / std::max<size_t>(most, 1);
  size_t at = 0;
  char before = '[';
  for (const dom::element item : list) {
    const bool kept = stride <= 1 || at % stride == 0 || at + 1 == size;
    ++at;
    if (!kept) continue;
    out->push_back(before);
    if (!Append(item, 1, out)) return false;
    before = ',';
  }
  out->append(before == '[' ? "[]" : "]");
  return true;
}

absl::StatusOr<std::string> ResultJsonOf(const std::string& path, const std::string& text) {
  dom::parser parser;
  dom::element whole;
  dom::object object;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(whole))
    return Damaged(path, absl::StrCat("it is no JSON: ", simdjson::error_message(error)));
  std::string_view status;
  if (whole.get_object().get(object) || object["job"].type().error() ||
      object["status"].get(status)) {
    return Damaged(path, "it is no result of a job");
  }
  std::string out;
  for (const dom::key_value_pair field : object) {
    absl::StrAppend(&out, out.empty() ? "{" : ",", SafeText(ToAbsl(field.key)), ":");
    dom::array list;
    std::string_view value;
    bool shown = true;
    if (!field.value.get_string().get(value)) {
      out += SafeText(ValueOf(ToAbsl(field.key), ToAbsl(value)));
    } else if (!field.value.get_array().get(list)) {
      shown = AppendSpread(list, kMostEpochs, &out);
    } else {
      shown = Append(field.value, 1, &out);
    }
    if (!shown) return Damaged(path, "it is nested too deeply");
  }
  return absl::StrCat(out, "}");
}

// The instance that the result names; "": an earlier version wrote it.
std::string InstanceOf(const std::string& result) {
  dom::parser parser;
  std::string_view instance;
  if (parser.parse(simdjson::padded_string(result))["instance"].get(instance)) return "";
  return std::string(instance);
}

// Returns the curves of the job that wrote the result. Runs that have not replaced the earlier ones
// are in rerun-N (scheduler/files/curve_files.h). Without an instance in the result they are those
// of the newest job that has ended in the folder.
absl::StatusOr<std::string> CurvesOf(Env* env, const std::string& folder,
                                     const std::string& result_instance) {
  std::vector<std::string> paths = {absl::StrCat(folder, "/", kCurvesFile)};
  for (int n = 1; env->Exists(absl::StrCat(folder, "/rerun-", n)); ++n)
    paths.push_back(absl::StrCat(folder, "/rerun-", n, "/", kCurvesFile));
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
    SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadBounded(env, *path));
    if (text.empty()) continue;
    dom::parser parser;
    std::string out;
    bool head = true, ended = false, other = false;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      dom::element one;
      dom::object object;
      if (parser.parse(simdjson::padded_string(line.data(), line.size())).get(one) ||
          one.get_object().get(object)) {
        return Damaged(*path, "a line is no object of JSON");
      }
      if (head) {
        uint64_t version;
        if (object["sluice_curves"].get(version)) return Damaged(*path, "Sluice did not write it");
        if (object["ended"].get(ended)) ended = false;
        std::string_view instance;
        if (object["instance"].get(instance)) instance = "";
        other = !result_instance.empty() && instance != std::string_view(result_instance);
        if (other) break;
        head = false;
        continue;
      }
      absl::StrAppend(&out, out.empty() ? "" : ",");
      if (!Append(one, 1, &out)) return Damaged(*path, "it is nested too deeply");
    }
    if (other) continue;
    // This run was killed, so the result belongs to the run before it.
    if (result_instance.empty() && !ended && path + 1 != paths.rend()) continue;
    return absl::StrCat("[", out, "]");
  }
  return std::string();
}

}  // namespace

std::string WithoutSecrets(absl::string_view text) {
  std::string out;
  size_t at = 0;
  // A key of several lines.
  constexpr absl::string_view kBegin = "-----BEGIN ", kEnd = "-----END ";
  while (at < text.size()) {
    const absl::string_view rest = text.substr(at);
    if (absl::StartsWith(rest, kBegin) && absl::StrContains(rest.substr(0, 64), "PRIVATE")) {
      const size_t end = rest.find(kEnd);
      out += "***";
      at = end == absl::string_view::npos ? text.size() : std::min(text.size(), at + end + 40);
      continue;
    }
    if (absl::StartsWith(rest, "://")) {
      const size_t end = EndOfWord(text, at);
      out += CleanAddress(text, at, end);
      at = end;
      continue;
    }
    const bool begins_word =
        at == 0 || !absl::ascii_isalnum(static_cast<unsigned char>(text[at - 1]));
    if (begins_word && IsAccessKey(rest.substr(0, 20)) &&
        (rest.size() == 20 || !absl::ascii_isalnum(static_cast<unsigned char>(rest[20])))) {
      out += "***";
      at += 20;
      continue;
    }
    std::optional<std::pair<size_t, size_t>> value;
    for (const char* name : kSecretNames) {
      if (absl::StartsWithIgnoreCase(rest, name))
        value = SecretValue(text, at + absl::string_view(name).size());
      if (value.has_value()) break;
    }
    if (value.has_value()) {
      absl::StrAppend(&out, text.substr(at, value->first - at), "***");
      at = value->second;
      continue;
    }
    out.push_back(text[at]);
    ++at;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> FieldsOf(absl::string_view textproto) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::vector<std::string> open;    // paths with their '.'
  std::map<std::string, int> seen;  // by path
  const auto numbered = [&](const std::string& path) {
    const int n = seen[path]++;
    return n == 0 ? path : absl::StrCat(path, "[", n, "]");
  };
  for (absl::string_view line : absl::StrSplit(textproto, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    const std::string before = open.empty() ? "" : open.back();
    if (line.empty() || line.front() == '#') continue;
    if (line == "}") {
      if (!open.empty()) open.pop_back();
    } else if (absl::ConsumeSuffix(&line, " {")) {
      open.push_back(absl::StrCat(numbered(absl::StrCat(before, line)), "."));
    } else if (const size_t colon = line.find(": "); colon != absl::string_view::npos) {
      const std::string path = numbered(absl::StrCat(before, line.substr(0, colon)));
      fields.emplace_back(path, std::string(line.substr(colon + 2)));
    }
  }
  return fields;
}

absl::StatusOr<std::string> ReadFinishedJob(Env* env, const std::string& folder) {
  std::string dir = folder;
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  const std::string result_path = absl::StrCat(dir, "/", kResultFile);
  SLUICE_ASSIGN_OR_RETURN(const std::string result_text, ReadBounded(env, result_path));
  if (result_text.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, " has no ", kResultFile,
                     ": no job has ended there; sluice status shows running jobs"));
  }
  SLUICE_ASSIGN_OR_RETURN(const std::string result, ResultJsonOf(result_path, result_text));
  SLUICE_ASSIGN_OR_RETURN(const std::string curves, CurvesOf(env, dir, InstanceOf(result_text)));
  SLUICE_ASSIGN_OR_RETURN(const std::string config, ReadBounded(env, dir + "/job.textproto"));
  std::string lacks, shown;
  const auto lack = [&lacks](const char* what) {
    absl::StrAppend(&lacks, lacks.empty() ? "" : ",", SafeText(what));
  };
  if (curves.empty())
    lack(
        "There is no curves.jsonl of this job: an earlier version made this folder, or the job "
        "ended before it trained.");
  if (config.empty()) lack("There is no job.textproto.");
  if (!absl::StrContains(result_text, "\"calibration_bins\""))
    lack("result.json has no calibration_bins: an earlier version made it.");
  const auto fields = FieldsOf(config);
  for (size_t i = 0; i < std::min(fields.size(), kMostConfigFields); ++i) {
    const auto& [path, value] = fields[i];
    absl::StrAppend(&shown, shown.empty() ? "" : ",", "[", SafeText(path), ",",
                    SafeText(ValueOf(path, value)), "]");
  }
  const size_t left_out = fields.size() - std::min(fields.size(), kMostConfigFields);
  return absl::StrCat("{\"folder\":", SafeText(folder), ",\"result\":", result,
                      ",\"curves\":", curves.empty() ? "[]" : curves, ",\"config\":[", shown,
                      "],\"config_left_out\":", left_out, ",\"lacks\":[", lacks, "]}");
}

}  // namespace sluice::cli
