#include "common/saved_model/saved_model.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest_files.h"
#include "common/saved_model/shard_file.h"

namespace sluice {
namespace {

constexpr char kManifest[] = "MANIFEST";
constexpr char kJob[] = "job.textproto";
constexpr size_t kReadBytes = 1 << 20;

absl::string_view Bytes(const void* data, size_t n) { return {static_cast<const char*>(data), n}; }

absl::Status CheckValues(const TableLayout& table, uint32_t shard, const ShardValues& values) {
  auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " of table '", table.name(), "' cannot be saved: ", what));
  };
  if (shard >= table.num_shards())
    return refuse(absl::StrCat("the table has ", table.num_shards(), " shards"));
  if (!table.sparse()) {
    if (values.first_element != shard * table.block_elements() ||
        values.weights.size() != table.ShardElements(shard)) {
      return refuse(absl::StrCat("it has ", values.weights.size(), " elements from ",
                                 values.first_element, " on, expected ", table.ShardElements(shard),
                                 " from ", shard * table.block_elements(), " on"));
    }
    return absl::OkStatus();
  }
  if (values.weights.size() != values.keys.size() * table.dim()) {
    return refuse(absl::StrCat("it has ", values.weights.size(), " weights for ",
                               values.keys.size(), " rows of ", table.dim()));
  }
  for (size_t i = 1; i < values.keys.size(); ++i) {
    if (values.keys[i] <= values.keys[i - 1]) {
      return refuse(absl::StrCat("key ", values.keys[i], " follows key ", values.keys[i - 1]));
    }
  }
  return absl::OkStatus();
}

// Rows as they lie in the file: key, then weights.
std::string EncodeRows(const ShardValues& values, uint32_t dim) {
  const size_t weight_bytes = dim * sizeof(float);
  std::string body((sizeof(uint64_t) + weight_bytes) * values.keys.size(), '\0');
  char* out = body.data();
  for (size_t i = 0; i < values.keys.size(); ++i) {
    std::memcpy(out, &values.keys[i], sizeof(uint64_t));
    std::memcpy(out + sizeof(uint64_t), &values.weights[i * dim], weight_bytes);
    out += sizeof(uint64_t) + weight_bytes;
  }
  return body;
}

// The first error of a text, with its place.
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

absl::Status ParseText(const std::string& path, const std::string& text,
                       google::protobuf::Message* message) {
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", error.text()));
}

absl::Status WriteText(Env* env, const std::string& path,
                       const google::protobuf::Message& message) {
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(message, &text)) {
    return absl::InternalError(absl::StrCat("cannot print ", path));
  }
  return env->WriteFile(path, {text});
}

// Why there is no MANIFEST.
absl::Status NoModel(Env* env, const std::string& dir) {
  const absl::StatusOr<std::vector<std::string>> names = env->List(dir);
  if (!names.ok()) {
    return absl::NotFoundError(absl::StrCat(dir, " is no saved model (", names.status().message(),
                                            "); name the folder `model` of a job's output folder"));
  }
  if (std::any_of(names->begin(), names->end(), IsShardFile)) {
    return absl::NotFoundError(absl::StrCat(dir,
                                            " holds an unfinished model: saving it did not reach "
                                            "its MANIFEST; use another model, or train again"));
  }
  return absl::NotFoundError(absl::StrCat(
      dir,
      " is no saved model: it has no MANIFEST; name the folder `model` of a job's output folder"));
}

// What a save before this one, or one that was cut off, left.
absl::Status RemoveLeftovers(Env* env, const std::string& dir, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const SavedFile& file : manifest.files()) listed.insert(file.name());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->List(dir));
  for (const std::string& name : names) {
    const bool ours = IsShardFile(name) || absl::EndsWith(name, kUnfinishedSuffix);
    if (!ours || listed.count(name) > 0) continue;
    const absl::Status removed = env->RemoveFile(absl::StrCat(dir, "/", name));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, const ShardValues& values, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckValues(table, shard, values));
  ShardFileHeader header;
  header.set_table(table.name());
  header.set_kind(table.config().kind());
  header.set_shard(shard);
  std::string rows;
  absl::string_view body;
  if (table.sparse()) {
    header.set_rows(values.keys.size());
    header.set_dim(table.dim());
    rows = EncodeRows(values, table.dim());
    body = rows;
  } else {
    header.set_first_element(values.first_element);
    header.set_elements(values.weights.size());
    body = Bytes(values.weights.data(), values.weights.size() * sizeof(float));
  }
  const std::string front = EncodeShardFileHeader(header);
  SavedFile file;
  file.set_name(ShardFileName(table.name(), shard));
  file.set_bytes(front.size() + body.size());
  file.set_crc32c(ExtendCrc32c(Crc32c(front.data(), front.size()), body.data(), body.size()));
  SLUICE_RETURN_IF_ERROR(env->MakeDirs(dir));
  SLUICE_RETURN_IF_ERROR(env->WriteFile(absl::StrCat(dir, "/", file.name()), {front, body}));
  return file;
}

absl::StatusOr<ShardValues> ReadShardFile(const std::string& dir, const TableConfig& table,
                                          const SavedFile& file, uint32_t* shard, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, table, file));
  const ShardFileHeader& header = reader->header();
  const size_t dim = header.dim();
  *shard = header.shard();
  ShardValues values;
  values.first_element = header.first_element();
  values.keys.reserve(header.rows());
  // Bounded by the file's size, which the reader has compared with the header.
  values.weights.reserve(header.elements() + header.rows() * dim);
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, reader->NextRecords(kReadBytes));
    if (records.empty()) return values;
    const bool sparse = table.kind() == TableConfig::SPARSE;
    const size_t key_bytes = sparse ? sizeof(uint64_t) : 0;
    // A dense record has one element: take all at once.
    const size_t step = sparse ? reader->record_bytes() : records.size();
    for (size_t offset = 0; offset < records.size(); offset += step) {
      if (sparse) {
        uint64_t key;
        std::memcpy(&key, records.data() + offset, sizeof(key));
        if (!values.keys.empty() && key <= values.keys.back()) {
          return absl::DataLossError(absl::StrCat(reader->path(), " is damaged: key ", key,
                                                  " follows key ", values.keys.back()));
        }
        values.keys.push_back(key);
      }
      const size_t before = values.weights.size(), bytes = step - key_bytes;
      values.weights.resize(before + bytes / sizeof(float));
      std::memcpy(values.weights.data() + before, records.data() + offset + key_bytes, bytes);
    }
  }
}

absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job,
                                     Manifest manifest, Env* env) {
  manifest.set_version(kModelVersion);
  std::sort(manifest.mutable_files()->begin(), manifest.mutable_files()->end(),
            [](const SavedFile& a, const SavedFile& b) { return a.name() < b.name(); });
  SLUICE_ASSIGN_OR_RETURN(*manifest.mutable_model_digest(), ModelDigest(dir, manifest, env));
  const std::string path = absl::StrCat(dir, "/", kManifest);
  SLUICE_RETURN_IF_ERROR(CheckManifest(path, manifest));
  SLUICE_RETURN_IF_ERROR(env->MakeDirs(dir));
  SLUICE_RETURN_IF_ERROR(WriteText(env, absl::StrCat(dir, "/", kJob), job));
  SLUICE_RETURN_IF_ERROR(WriteText(env, path, manifest));
  SLUICE_RETURN_IF_ERROR(RemoveLeftovers(env, dir, manifest));
  return manifest;
}

absl::StatusOr<Manifest> ReadManifest(const std::string& dir, Env* env) {
  const std::string path = absl::StrCat(dir, "/", kManifest);
  const absl::StatusOr<std::string> text = env->ReadFile(path);
  if (absl::IsNotFound(text.status())) return NoModel(env, dir);
  if (!text.ok()) return text.status();
  Manifest manifest;
  SLUICE_RETURN_IF_ERROR(ParseText(path, *text, &manifest));
  SLUICE_RETURN_IF_ERROR(CheckManifest(path, manifest));
  return manifest;
}

absl::StatusOr<JobConfig> ReadModelJob(const std::string& dir, Env* env) {
  const std::string path = absl::StrCat(dir, "/", kJob);
  SLUICE_ASSIGN_OR_RETURN(const std::string text, env->ReadFile(path));
  JobConfig job;
  SLUICE_RETURN_IF_ERROR(ParseText(path, text, &job));
  return job;
}

absl::Status VisitShards(const std::string& dir, const Manifest& manifest, const std::string& name,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit,
                         Env* env) {
  const auto table = std::find_if(manifest.tables().begin(), manifest.tables().end(),
                                  [&](const TableConfig& t) { return t.name() == name; });
  if (table == manifest.tables().end()) {
    return absl::NotFoundError(absl::StrCat("model ", dir, " has no table '", name, "'"));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, *table));
  for (const SavedFile* file : files) {
    uint32_t shard = 0;
    SLUICE_ASSIGN_OR_RETURN(ShardValues values, ReadShardFile(dir, *table, *file, &shard, env));
    SLUICE_RETURN_IF_ERROR(visit(shard, std::move(values)));
  }
  return absl::OkStatus();
}

}  // namespace sluice
