#include "common/saved_model/manifest.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/shard_file.h"

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
                                          "; restore the file, or use another copy of its folder"));
}

// The bytes that the last line's checksum covers. Empty when the last line is not one of a
// checksum.
absl::string_view CheckedText(const std::string& text, uint32_t* crc) {
  // By text and not by protobuf: the checksum covers the bytes before it, also those that do not
  // parse.
  const size_t line = absl::string_view(text).rfind(kChecksumLine);
  if (line == absl::string_view::npos) return {};
  absl::string_view number = absl::string_view(text).substr(line + kChecksumLine.size());
  if (!absl::ConsumeSuffix(&number, "\n") || !absl::SimpleAtoi(number, crc) ||
      // One spelling only. A damaged digit must not turn into a space that the parser skips.
      absl::StrCat(*crc) != number)
    return {};
  return absl::string_view(text).substr(0, line + 1);
}

// Checks the place in a chain, which decides what a delta is applied to.
absl::Status CheckExport(const std::string& path, const Manifest& manifest) {
  const ExportFacts& facts = manifest.export_();
  if (manifest.has_checkpoint()) return Damaged(path, "a checkpoint is no member of an export");
  if (facts.to() <= facts.from()) {
    return Damaged(path,
                   absl::StrCat("it would lead from cut ", facts.from(), " to cut ", facts.to()));
  }
  if (facts.chain().size() != 64) return Damaged(path, "its chain digest is not 64 digits");
  if (!IsDelta(manifest)) return absl::OkStatus();
  if (manifest.version() != kDeltaVersion || facts.digest().size() != 64)
    return Damaged(path, "its digest is not 64 digits, or its version is not that of a delta");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<const SavedFile*>> FilesOfTable(const std::string& dir,
                                                           const Manifest& manifest,
                                                           const TableConfig& table) {
  auto damaged = [&](uint32_t shard, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("model ", dir, ": ", ShardFileName(table.name(), shard),
                                            " ", what, "; save the model again"));
  };
  // In the order of the shards, which readers need; the manifest may list them in any.
  std::map<uint32_t, const SavedFile*> by_shard;
  for (const SavedFile& file : manifest.files()) {
    uint32_t shard = 0;
    if (!ParseShardFileName(file.name(), table.name(), &shard)) continue;
    if (!by_shard.emplace(shard, &file).second) return damaged(shard, "is listed twice");
  }
  // A sparse table's config tells how many shards there must be. A dense table's does not, but its
  // blocks must fill the tensor, which their readers check.
  const size_t shards = table.kind() == TableConfig::SPARSE ? table.num_shards() : by_shard.size();
  std::vector<const SavedFile*> files;
  for (const auto& [shard, file] : by_shard) {
    if (shard != files.size()) return damaged(static_cast<uint32_t>(files.size()), "is not listed");
    if (shard >= shards)
      return damaged(shard, absl::StrCat("is listed, but the table has ", shards, " shards"));
    files.push_back(file);
  }
  if (files.empty() || files.size() < shards) {
    return damaged(static_cast<uint32_t>(files.size()), "is not listed");
  }
  return files;
}

absl::Status CheckManifest(const std::string& path, const Manifest& manifest) {
  if (manifest.version() == 0)
    return absl::DataLossError(absl::StrCat(path, " is damaged: it has no version"));
  // Not DATA_LOSS: the file is whole, and a newer program reads it.
  const uint32_t newest = IsDelta(manifest) ? kDeltaVersion : kModelVersion;
  if (manifest.version() > newest) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has version ", manifest.version(), "; this program reads versions 1 to ", newest));
  }
  if (manifest.has_export_()) SLUICE_RETURN_IF_ERROR(CheckExport(path, manifest));
  // In version 1 and 2 the digest is the last field of the text, so a truncated text lacks it.
  const bool needs_digest = !manifest.has_checkpoint() && !IsDelta(manifest);
  if (needs_digest && manifest.model_digest().size() != 64) {
    return absl::DataLossError(
        absl::StrCat(path, " is damaged: its model_digest is not 64 digits"));
  }
  std::set<std::string> names;
  for (const TableConfig& table : manifest.tables()) {
    if (!names.insert(ShardFileName(table.name(), 0)).second) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged: table '", table.name(), "' is listed twice"));
    }
    if (table.kind() != TableConfig::DENSE && table.kind() != TableConfig::SPARSE) {
      return absl::DataLossError(
          absl::StrCat(path, " is damaged: table '", table.name(), "' has no kind"));
    }
    SLUICE_RETURN_IF_ERROR(FilesOfTable(path, manifest, table).status());
  }
  return absl::OkStatus();
}

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
