#include "common/saved_model/saved_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"
#include "common/saved_model/export_chain.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/shard_file.h"
#include "common/saved_model/shard_file_reader.h"

namespace sluice {
namespace {

constexpr char kManifest[] = "MANIFEST";
// The final name of the job's file of the model in force, whichever save wrote it.
constexpr char kJob[] = "job.textproto";
constexpr size_t kReadBytes = 1 << 20;

absl::Status CheckValues(const TableLayout& table, uint32_t shard, const ShardValues& values) {
  auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", shard, " of table '", table.name(), "' cannot be saved: ", what));
  };
  if (shard >= table.num_files())
    return refuse(absl::StrCat("the table has ", table.num_files(), " shards"));
  if (!table.sparse()) {
    if (values.first_element != shard * table.block_elements() ||
        values.weights.size() != table.ShardElements(shard)) {
      return refuse(absl::StrCat("it has ", values.weights.size(), " elements from element ",
                                 values.first_element, " on, not ", table.ShardElements(shard),
                                 " from element ", shard * table.block_elements(), " on"));
    }
    return absl::OkStatus();
  }
  if (values.weights.size() != values.keys.size() * table.dim()) {
    return refuse(absl::StrCat("it has ", values.weights.size(), " weights for ",
                               values.keys.size(), " rows of ", table.dim(), " weights"));
  }
  for (size_t i = 1; i < values.keys.size(); ++i) {
    if (values.keys[i] <= values.keys[i - 1]) {
      return refuse(absl::StrCat("key ", values.keys[i], " follows key ", values.keys[i - 1]));
    }
  }
  return absl::OkStatus();
}

// Rows in memory. `values` must outlive them.
class RowsOfValues : public ShardRows {
 public:
  RowsOfValues(const ShardValues& values, uint32_t dim) : values_(values), dim_(dim) {}
  uint64_t size() const override { return values_.keys.size(); }
  absl::StatusOr<size_t> ReadKeys(uint64_t first, size_t n, uint64_t* keys,
                                  uint32_t* rows) override {
    std::copy_n(values_.keys.data() + first, n, keys);
    std::iota(rows, rows + n, static_cast<uint32_t>(first));
    return n;
  }
  absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
    for (size_t i = 0; i < n; ++i, to += stride) {
      std::memcpy(to, values_.weights.data() + size_t{rows[i]} * dim_, dim_ * sizeof(float));
    }
    return absl::OkStatus();
  }

 private:
  const ShardValues& values_;
  const size_t dim_;
};

// Appends the records of a file, as ValueReader gives them.
void AppendRecords(const ShardFileReader& file, const std::string& records, size_t record_bytes,
                   ShardValues* values) {
  const size_t key_bytes = file.sparse() ? sizeof(uint64_t) : 0;
  // A dense record has one element and no key, so all records are copied at once.
  const size_t step = file.sparse() ? record_bytes : records.size();
  const size_t floats = (step - key_bytes) / sizeof(float);
  size_t at = values->weights.size();
  values->weights.resize(at + records.size() / step * floats);
  for (size_t offset = 0; offset < records.size(); offset += step, at += floats) {
    if (file.sparse()) {
      uint64_t key;
      std::memcpy(&key, records.data() + offset, sizeof(key));
      values->keys.push_back(key);
    }
    std::memcpy(values->weights.data() + at, records.data() + offset + key_bytes,
                floats * sizeof(float));
  }
}

// Visits all values of a file in pieces, at least once.
absl::Status VisitValues(const ShardFileReader& file,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit) {
  ValueReader runs(&file, 0, file.runs());
  uint64_t element = file.header().first_element();
  for (bool any = false;; any = true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kReadBytes));
    if (records.empty() && any) return absl::OkStatus();
    ShardValues piece;
    piece.first_element = element;
    if (!records.empty()) AppendRecords(file, records, runs.record_bytes(), &piece);
    if (!file.sparse()) element += piece.weights.size();
    SLUICE_RETURN_IF_ERROR(visit(file.header().shard(), std::move(piece)));
    if (records.empty()) return absl::OkStatus();
  }
}

// Opens and visits each shard file of table `name`.
absl::Status VisitFiles(const std::string& dir, const Manifest& manifest, const std::string& name,
                        Env* env,
                        const std::function<absl::Status(const ShardFileReader&)>& visit) {
  const auto table = std::find_if(manifest.tables().begin(), manifest.tables().end(),
                                  [&](const TableConfig& t) { return t.name() == name; });
  if (table == manifest.tables().end()) {
    return absl::NotFoundError(absl::StrCat("model ", dir, " has no table '", name, "'"));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, *table));
  for (const SavedFile* file : files) {
    SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, *table, *file));
    SLUICE_RETURN_IF_ERROR(visit(*reader));
  }
  return absl::OkStatus();
}

// Says why `dir`, which has no MANIFEST, is not a saved model.
absl::Status NoModel(Env* env, const std::string& dir) {
  const absl::StatusOr<std::vector<std::string>> names = env->List(dir);
  if (!names.ok()) {
    return absl::NotFoundError(absl::StrCat(dir, " is not a saved model (",
                                            names.status().message(),
                                            "); give the folder `model` of a job's output folder"));
  }
  if (std::any_of(names->begin(), names->end(), IsShardFile)) {
    return absl::NotFoundError(absl::StrCat(dir,
                                            " holds an unfinished model: its save ended before "
                                            "the MANIFEST was written; use another model, or train "
                                            "again"));
  }
  const auto has = [&](const char* name) {
    return std::find(names->begin(), names->end(), name) != names->end();
  };
  std::string fix = "give the folder `model` of a job's output folder";
  if (has("model") || has("checkpoints")) {
    fix = absl::StrCat(
        "it is the output folder of a job; give ", has("model") ? dir + "/model" : "",
        has("model") && has("checkpoints") ? ", or " : "",
        has("checkpoints") ? absl::StrCat("a checkpoint, ", dir, "/checkpoints/step-N") : "");
  }
  return absl::NotFoundError(absl::StrCat(dir, " is not a saved model: it has no MANIFEST; ", fix));
}

std::string ManifestName(const std::string& save_id) {
  return absl::StrCat(kManifest, ".", save_id.empty() ? "prepared" : save_id);
}

constexpr char kRemovedId[] = "0000000000000000";  // of the job's file while a model is removed

std::string JobFileName(const std::string& save_id) {
  return save_id.empty() ? kJob : absl::StrCat("job.", save_id, ".textproto");
}

bool IsJobFileName(const std::string& name) {
  return absl::StartsWith(name, "job.") && absl::EndsWith(name, "textproto") &&
         !absl::StrContains(name, "/");
}

// The job's file among the manifest's files. Null for a model that was saved without one.
const SavedFile* JobFileOf(const Manifest& manifest) {
  const auto file = std::find_if(manifest.files().begin(), manifest.files().end(),
                                 [](const SavedFile& one) { return IsJobFileName(one.name()); });
  return file == manifest.files().end() ? nullptr : &*file;
}

// The kind of file that a save writes under this name. None for names that only begin or end like
// one, such as those of copies that people make.
std::optional<FileKind> KindOfName(const std::string& name) {
  if (IsShardFileName(name)) return FileKind::kShard;
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (name == ManifestName("") ||
      (parts.size() == 2 && name == ManifestName(parts[1]) && IsSaveId(parts[1])))
    return FileKind::kManifest;
  if (IsWorkerFileName(name)) return FileKind::kGeoState;
  if (parts.size() == 3 && IsSaveId(parts[1]) && name == JobFileName(parts[1]))
    return FileKind::kJobConfig;
  return std::nullopt;
}

// True when Sluice wrote the file as part of some save. A file that WriteFile has not finished is
// recognised by its name, <name>.<pid>.<number>.unfinished, which nobody else gives, because its
// contents may not be there yet.
bool IsOfASave(Env* env, const std::string& dir, const std::string& name) {
  if (const auto kind = KindOfName(name); kind.has_value())
    return IsOwnFile(env, absl::StrCat(dir, "/", name), *kind);
  const std::string finished = FinishedName(name);
  return finished == kManifest || finished == kJob || KindOfName(finished).has_value();
}

// Removes the files of earlier and interrupted saves, as far as it can.
void RemoveLeftovers(Env* env, const std::string& dir, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const SavedFile& file : manifest.files()) listed.insert(file.name());
  const auto names = env->List(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (listed.count(name) > 0 || !IsOfASave(env, dir, name)) continue;
    env->RemoveFile(absl::StrCat(dir, "/", name)).IgnoreError();
  }
}

// Adds the job's file to the manifest, in its format's version and order, and returns its text.
absl::StatusOr<std::string> AddJobFile(const std::string& dir, const JobConfig& job,
                                       const std::string& save_id, Manifest* manifest) {
  manifest->set_version(IsDelta(*manifest) ? kDeltaVersion : kModelVersion);
  SLUICE_ASSIGN_OR_RETURN(std::string text, PrintModelText(dir, job));
  text.insert(0, kOwnConfigLine);
  SavedFile* const file = manifest->add_files();
  file->set_name(JobFileName(save_id));
  file->set_bytes(text.size());
  file->set_crc32c(Crc32c(text.data(), text.size()));
  std::sort(manifest->mutable_files()->begin(), manifest->mutable_files()->end(),
            [](const SavedFile& a, const SavedFile& b) { return a.name() < b.name(); });
  return text;
}

// Puts a manifest in force where files take no other name. The job's file keeps that of its save.
absl::Status PublishManifest(const std::string& dir, const std::string& text, Env* env,
                             const std::function<absl::Status()>& owned) {
  const std::string path = absl::StrCat(dir, "/", kManifest);
  std::optional<FileIdentity> earlier;
  (void)env->Exists(path);  // asks the place; Look may know an older version
  if (const auto there = env->Look(path); there.ok()) {
    earlier = there->identity;
  } else if (!absl::IsNotFound(there.status())) {
    return absl::Status(there.status().code(),
                        absl::StrCat("publish ", path, ": ", there.status().message()));
  }
  // After the look: what the next owner publishes makes the condition fail.
  if (owned != nullptr) SLUICE_RETURN_IF_ERROR(owned());
  const absl::Status put = env->Publish(path, text, earlier).status();
  if (!absl::IsAborted(put) && !absl::IsAlreadyExists(put)) return put;
  return absl::AbortedError(absl::StrCat(path, " was written by somebody else at this moment (",
                                         put.message(), "); only one job may write to a folder"));
}

// Writes the job's file and the manifest of a save next to the ones in force.
absl::Status WritePrepared(const std::string& dir, const std::string& job_text,
                           const Manifest& manifest, Env* env, const std::string& save_id) {
  const std::string path = absl::StrCat(dir, "/", ManifestName(save_id));
  SLUICE_RETURN_IF_ERROR(CheckManifest(path, manifest));
  SLUICE_ASSIGN_OR_RETURN(const std::string text, PrintManifest(path, manifest));
  // The folder may be one that a killed process made and did not sync; this syncs it.
  SLUICE_RETURN_IF_ERROR(env->MakeDirs(dir));
  SLUICE_RETURN_IF_ERROR(env->WriteFile(absl::StrCat(dir, "/", JobFileName(save_id)), {job_text}));
  return env->WriteFile(path, {text});
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewFile>> StartFileIn(const std::string& dir,
                                                     const std::string& name, Env* env) {
  constexpr int kAttempts = 3;  // the folder can be removed between the calls
  for (int attempt = 1;; ++attempt) {
    // MakeDirs syncs every folder of the path, which is slow for each file. WritePrepared calls it
    // for a folder that exists.
    const bool there = !env->PlaceOf(dir).rename || env->Exists(dir);
    const absl::Status made = there ? absl::OkStatus() : env->MakeDirs(dir);
    auto file = made.ok() ? env->StartFile(absl::StrCat(dir, "/", name)) : made;
    if (file.ok() || !absl::IsNotFound(file.status()) || attempt == kAttempts) return file;
  }
}

std::string WorkerFileName(uint32_t rank, const std::string& save_id) {
  return absl::StrCat("worker-", rank, ".", save_id);
}

bool IsWorkerFileName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  absl::string_view rank = parts[0];
  uint32_t number = 0;
  return parts.size() == 2 && IsSaveId(parts[1]) && absl::ConsumePrefix(&rank, "worker-") &&
         absl::SimpleAtoi(rank, &number) && name == WorkerFileName(number, parts[1]);
}

absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, ShardCut* cut, Env* env,
                                         const std::string& save_id) {
  if (!save_id.empty() && !IsSaveId(save_id)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "save_id '", save_id, "' is not valid; it must have 16 lower-case hexadecimal digits"));
  }
  SavedFile file;
  file.set_name(ShardFileName(table.name(), shard, save_id));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> out, StartFileIn(dir, file.name(), env));
  std::string chunk;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, cut->Next(&chunk));
    if (!more) break;
    SLUICE_RETURN_IF_ERROR(out->Append(chunk));
    file.set_bytes(file.bytes() + chunk.size());
    file.set_crc32c(ExtendCrc32c(file.crc32c(), chunk.data(), chunk.size()));
  }
  SLUICE_RETURN_IF_ERROR(out->Finish());
  return file;
}

absl::StatusOr<SavedFile> WriteShardFile(const std::string& dir, const TableLayout& table,
                                         uint32_t shard, const ShardValues& values, Env* env,
                                         const std::string& save_id) {
  SLUICE_RETURN_IF_ERROR(CheckValues(table, shard, values));
  const std::unique_ptr<ShardCut> cut =
      table.sparse()
          ? CutOfRows(table, shard, std::make_unique<RowsOfValues>(values, table.dim()))
          : CutOfElements(
                table, shard,
                {std::shared_ptr<const float>(std::shared_ptr<void>(),  // `values` owns it
                                              values.weights.data())});
  return WriteShardFile(dir, table, shard, cut.get(), env, save_id);
}

// Everything is checked before anything is written: ModelDigest reads all shard files.
absl::StatusOr<Manifest> PrepareModel(const std::string& dir, const JobConfig& job,
                                      Manifest manifest, Env* env, const std::string& save_id) {
  SLUICE_ASSIGN_OR_RETURN(const std::string job_text, AddJobFile(dir, job, save_id, &manifest));
  if (IsDelta(manifest)) {
    ExportFacts* const facts = manifest.mutable_export_();
    SLUICE_ASSIGN_OR_RETURN(*facts->mutable_digest(), DeltaDigest(dir, manifest, env));
    facts->set_chain(ChainDigest(facts->chain(), facts->digest()));
  } else {
    SLUICE_ASSIGN_OR_RETURN(*manifest.mutable_model_digest(), ModelDigest(dir, manifest, env));
    if (manifest.has_export_() && manifest.export_().chain().empty())
      manifest.mutable_export_()->set_chain(manifest.model_digest());
  }
  SLUICE_RETURN_IF_ERROR(WritePrepared(dir, job_text, manifest, env, save_id));
  return manifest;
}

absl::Status PrepareCheckpoint(const std::string& dir, const JobConfig& job, Manifest manifest,
                               Env* env, const std::string& save_id) {
  SLUICE_RETURN_IF_ERROR(CheckSizes(dir, manifest, env));
  SLUICE_ASSIGN_OR_RETURN(const std::string job_text, AddJobFile(dir, job, save_id, &manifest));
  return WritePrepared(dir, job_text, manifest, env, save_id);
}

absl::Status CheckSizes(const std::string& dir, const Manifest& manifest, Env* env) {
  for (const SavedFile& file : manifest.files()) {
    // Its name changes when the save is complete; ReadModelJob finds and checks it.
    if (IsJobFileName(file.name())) continue;
    const std::string path = absl::StrCat(dir, "/", file.name());
    if (!IsShardFileName(file.name()) && !IsWorkerFileName(file.name())) {
      return absl::DataLossError(absl::StrCat(path,
                                              " is not a file of a save, but the manifest names "
                                              "it; use another copy"));
    }
    const absl::StatusOr<uint64_t> size = env->FileSize(path);
    if (!size.ok() && !absl::IsNotFound(size.status())) return size.status();
    if (size.ok() && *size == file.bytes()) continue;
    return absl::DataLossError(absl::StrCat(
        path,
        size.ok() ? absl::StrCat(" is damaged: it has ", *size, " of ", file.bytes(), " bytes")
                  : " is missing",
        "; restore the file, or use another copy of its folder"));
  }
  return absl::OkStatus();
}

absl::Status CommitModel(const std::string& dir, Env* env, const std::string& save_id,
                         const std::function<absl::Status()>& owned) {
  const std::string prepared = absl::StrCat(dir, "/", ManifestName(save_id));
  SLUICE_ASSIGN_OR_RETURN(const std::string text, env->ReadFile(prepared));
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(prepared, text));
  if (!env->PlaceOf(dir).rename) {
    SLUICE_RETURN_IF_ERROR(PublishManifest(dir, text, env, owned));
    // To a writer that has lost the folder the files of the next one would look like leftovers.
    if (owned == nullptr || owned().ok()) RemoveLeftovers(env, dir, manifest);
    return absl::OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(env->RenameFile(prepared, absl::StrCat(dir, "/", kManifest)));
  // The new model is in force now. A failure below only wastes space or leaves the job's file under
  // its name in the save, where ReadModelJob finds it.
  if (const SavedFile* job = JobFileOf(manifest); job != nullptr && job->name() != kJob) {
    env->RenameFile(absl::StrCat(dir, "/", job->name()), absl::StrCat(dir, "/", kJob))
        .IgnoreError();
  }
  RemoveLeftovers(env, dir, manifest);
  return absl::OkStatus();
}

std::vector<PreparedSave> ListPrepared(const std::string& dir, Env* env) {
  std::vector<PreparedSave> saves;
  const auto names = env->List(dir);
  if (!names.ok()) return saves;
  for (const std::string& name : *names) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    if (parts.size() != 2 || !IsSaveId(parts[1]) || name != ManifestName(parts[1])) continue;
    const std::string path = absl::StrCat(dir, "/", name);
    const auto text = env->ReadFile(path);
    if (!text.ok()) continue;
    // Where files take no other name, the prepared manifest stays until the save has ended.
    if (!env->PlaceOf(dir).rename &&
        env->ReadFile(absl::StrCat(dir, "/", kManifest)).value_or("") == *text) {
      continue;
    }
    auto manifest = ParseManifest(path, *text);
    if (manifest.ok()) saves.push_back({parts[1], *std::move(manifest)});
  }
  return saves;
}

absl::Status CheckSaved(const std::string& dir, const std::string& save_id, Env* env) {
  for (const PreparedSave& save : ListPrepared(dir, env)) {
    if (save.save_id == save_id) return CheckSizes(dir, save.manifest, env);
  }
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(dir, env));
  const auto is_of_save = [&](const SavedFile& file) {
    return !save_id.empty() && absl::StrContains(file.name(), save_id);
  };
  if (std::any_of(manifest.files().begin(), manifest.files().end(), is_of_save))
    return CheckSizes(dir, manifest, env);
  return absl::NotFoundError(absl::StrCat(dir, " holds another model"));
}

void RemoveModel(const std::string& dir, Env* env) {
  // Without its manifest the folder is no model: a crash later leaves no half of one. A rename is
  // durable before the first file goes, which a removal is not. A full disk may refuse the rename.
  const std::string manifest = absl::StrCat(dir, "/", kManifest);
  const bool renames = env->PlaceOf(dir).rename;  // elsewhere a removal is durable at once
  if (IsOwnFile(env, manifest, FileKind::kManifest) &&
      !(renames && env->RenameFile(manifest, absl::StrCat(dir, "/", ManifestName(""))).ok()) &&
      !env->RemoveFile(manifest).ok()) {
    return;
  }
  // The job's file must not outlive the manifest under its final name: a checkpoint that has lost
  // its manifest looks so. It is first renamed to a name of an unfinished save, durably.
  const std::string job = absl::StrCat(dir, "/", kJob);
  if (IsOwnFile(env, job, FileKind::kJobConfig) &&
      !(renames && env->RenameFile(job, absl::StrCat(dir, "/", JobFileName(kRemovedId))).ok())) {
    env->RemoveFile(job).IgnoreError();
  }
  const auto names = env->List(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (IsOfASave(env, dir, name)) env->RemoveFile(absl::StrCat(dir, "/", name)).IgnoreError();
  }
  env->RemoveDir(dir).IgnoreError();  // fails when somebody else's file is there
}

absl::Status GiveUpSaves(const std::string& dir,
                         const std::function<bool(const std::string&)>& holds_saves, Env* env) {
  return env->GiveUpFiles(dir, [&](const std::string& name) {
    const size_t slash = name.find('/');
    const bool here = slash == std::string::npos
                          ? holds_saves == nullptr
                          : holds_saves && holds_saves(name.substr(0, slash));
    // Deeper names are those of a job whose folder is below this one.
    return here && KindOfName(name.substr(slash + 1)).has_value();
  });
}

void DiscardModel(const std::string& dir, Env* env, const std::string& save_id) {
  if (save_id.empty()) return;
  const auto of_save = [mark = absl::StrCat(".", save_id)](const std::string& name) {
    return absl::StrContains(name, mark);
  };
  // A store bills for them, but nobody sees them: the next owner of the folder tries again.
  env->GiveUpFiles(
         dir,
         [&](const std::string& name) { return of_save(name) && KindOfName(name).has_value(); })
      .IgnoreError();
  const auto names = env->List(dir);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!of_save(name) || !IsOfASave(env, dir, name)) continue;
    env->RemoveFile(absl::StrCat(dir, "/", name)).IgnoreError();
  }
}

absl::StatusOr<Manifest> FinishModel(const std::string& dir, const JobConfig& job,
                                     Manifest manifest, Env* env, const std::string& save_id) {
  SLUICE_ASSIGN_OR_RETURN(manifest, PrepareModel(dir, job, std::move(manifest), env, save_id));
  SLUICE_RETURN_IF_ERROR(CommitModel(dir, env, save_id));
  return manifest;
}

absl::StatusOr<Manifest> ReadManifest(const std::string& dir, Env* env) {
  const std::string path = absl::StrCat(dir, "/", kManifest);
  const absl::StatusOr<std::string> text = env->ReadFile(path);
  if (absl::IsNotFound(text.status())) return NoModel(env, dir);
  if (!text.ok()) return text.status();
  SLUICE_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(path, *text));
  if (!IsDelta(manifest)) return manifest;
  return absl::FailedPreconditionError(absl::StrCat(
      dir,
      " is a delta, which has only the rows that changed; `sluice delta apply` makes a "
      "model of its base and its deltas"));
}

absl::StatusOr<JobConfig> ReadModelJob(const std::string& dir, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(dir, env));
  return ReadExportJob(dir, manifest, env);
}

absl::StatusOr<JobConfig> ReadExportJob(const std::string& dir, const Manifest& manifest,
                                        Env* env) {
  const SavedFile* const file = JobFileOf(manifest);
  std::string path = absl::StrCat(dir, "/", file == nullptr ? kJob : file->name());
  absl::StatusOr<std::string> text = env->ReadFile(path);
  if (absl::IsNotFound(text.status())) {  // CommitModel has given the file its final name
    path = absl::StrCat(dir, "/", kJob);
    text = env->ReadFile(path);
  }
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(absl::StrCat("model ", dir, ": ", path,
                                            " is missing; restore it, or use another copy of the "
                                            "model"));
  }
  if (!text.ok()) return text.status();
  if (file != nullptr &&
      (text->size() != file->bytes() || Crc32c(text->data(), text->size()) != file->crc32c())) {
    return absl::DataLossError(absl::StrCat(path,
                                            " is not the file that the model was saved with; "
                                            "restore it, or use another copy of the model"));
  }
  JobConfig job;
  SLUICE_RETURN_IF_ERROR(ParseModelText(path, *text, &job));
  return job;
}

absl::Status VisitShards(const std::string& dir, const Manifest& manifest, const std::string& name,
                         Env* env,
                         const std::function<absl::Status(uint32_t shard, ShardValues)>& visit) {
  return VisitFiles(dir, manifest, name, env,
                    [&](const ShardFileReader& file) { return VisitValues(file, visit); });
}

absl::StatusOr<uint64_t> CountRecords(const std::string& dir, const Manifest& manifest,
                                      const std::string& name, Env* env) {
  uint64_t records = 0;
  SLUICE_RETURN_IF_ERROR(VisitFiles(dir, manifest, name, env, [&](const ShardFileReader& file) {
    records += file.values();
    return absl::OkStatus();
  }));
  return records;
}

}  // namespace sluice
