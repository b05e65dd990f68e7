#include "common/saved_model/model_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest_files.h"

namespace sluice {
namespace {

// The first version whose manifests have a checksum.
constexpr uint32_t kChecksumVersion = 3;
constexpr absl::string_view kChecksumLine = "\ncrc32c: ";

// Keeps the first error of a text, with its line and column.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty())
      text_ = absl::StrCat("line ", line + 1, " column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", what,
                                          "; restore the file, or use another copy of the model"));
}

// The bytes that the last line's checksum covers. Empty when the last line is not one of a
// checksum.
absl::string_view CheckedText(const std::string& text, uint32_t* crc) {
  const size_t line = absl::string_view(text).rfind(kChecksumLine);
  if (line == absl::string_view::npos) return {};
  absl::string_view number = absl::string_view(text).substr(line + kChecksumLine.size());
  if (!absl::ConsumeSuffix(&number, "\n") || !absl::SimpleAtoi(number, crc) ||
      absl::StrCat(*crc) != number)
    return {};
  return absl::string_view(text).substr(0, line + 1);
}

}  // namespace

absl::Status ParseModelText(const std::string& path, const std::string& text,
                            google::protobuf::Message* message) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return Damaged(path, error.text());
}

absl::StatusOr<std::string> PrintModelText(const std::string& path,
                                           const google::protobuf::Message& message) {
  std::string text;
  if (google::protobuf::TextFormat::PrintToString(message, &text)) return text;
  return absl::InternalError(absl::StrCat("cannot print ", path));
}

absl::StatusOr<Manifest> ParseManifest(const std::string& path, const std::string& text) {
  // A checksum is checked whatever the version, which may be what is damaged.
  uint32_t crc = 0;
  const absl::string_view checked = CheckedText(text, &crc);
  if (!checked.empty() && Crc32c(checked.data(), checked.size()) != crc)
    return Damaged(path, "its checksum is wrong");
  Manifest manifest;
  SLUICE_RETURN_IF_ERROR(ParseModelText(path, text, &manifest));
  if (checked.empty() && manifest.version() >= kChecksumVersion)
    return Damaged(path, "it does not end with its checksum");
  manifest.clear_crc32c();
  SLUICE_RETURN_IF_ERROR(CheckManifest(path, manifest));
  return manifest;
}

absl::StatusOr<std::string> PrintManifest(const std::string& path, const Manifest& manifest) {
  SLUICE_ASSIGN_OR_RETURN(std::string text, PrintModelText(path, manifest));
  const uint32_t crc = Crc32c(text.data(), text.size());
  absl::StrAppend(&text, kChecksumLine.substr(1), crc, "\n");
  return text;
}

}  // namespace sluice
