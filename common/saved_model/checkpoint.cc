#include "common/saved_model/checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/crc32c.h"
#include "common/base/file_origin.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr absl::string_view kFolder = "step-";

// False when `name` is not step-N, as CheckpointFolder writes it.
bool ParseStep(absl::string_view name, uint64_t* step) {
  return absl::ConsumePrefix(&name, kFolder) && absl::SimpleAtoi(name, step) &&
         absl::StrCat(*step) == name;
}

std::string ManifestPath(const std::string& dir) { return absl::StrCat(dir, "/MANIFEST"); }

// DATA_LOSS: the folder, whose MANIFEST was not found, had one. Looks in the order in which a
// removal by another process changes the folder, and then for a manifest that was put in force
// meanwhile.
absl::Status CheckManifestLost(const std::string& dir, Env* env) {
  // A prepared manifest is one that was never put in force, and a folder without a job file holds
  // no checkpoint yet.
  if (env->Exists(absl::StrCat(dir, "/MANIFEST.prepared")) ||
      !IsOwnFile(env, absl::StrCat(dir, "/job.textproto"), FileKind::kJobConfig) ||
      env->Exists(ManifestPath(dir))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(ManifestPath(dir),
                   " is missing from a checkpoint that was complete; restore "
                   "the file, or remove the folder"));
}

// A folder whose manifest cannot be read.
struct BadFolder {
  uint64_t step = 0;
  std::string dir;
  absl::Status why;
};

struct Folders {
  std::vector<CheckpointInfo> checkpoints;                 // newest first
  std::vector<BadFolder> bad;                              // the highest step first
  std::vector<std::pair<uint64_t, std::string>> unlisted;  // step and folder, without a manifest
};

bool IsNewer(const CheckpointInfo& a, const CheckpointInfo& b) {
  const CheckpointState& state_a = a.manifest.checkpoint();
  const CheckpointState& state_b = b.manifest.checkpoint();
  // Not by step: after a rollback, a later checkpoint may have a lower one.
  if (state_a.order() != state_b.order()) return state_a.order() > state_b.order();
  if (state_a.unix_time() != state_b.unix_time()) return state_a.unix_time() > state_b.unix_time();
  return a.step > b.step;
}

Folders FindFolders(const std::string& root, Env* env) {
  Folders folders;
  const auto names = env->List(root);
  if (!names.ok()) {
    // An unreadable folder may hold checkpoints, so it must not look as if there were none.
    if (!absl::IsNotFound(names.status())) folders.bad.push_back({0, root, names.status()});
    return folders;
  }
  for (const std::string& name : *names) {
    uint64_t step = 0;
    if (!ParseStep(name, &step)) continue;
    const std::string dir = absl::StrCat(root, "/", name);
    absl::StatusOr<Manifest> manifest = ReadManifest(dir, env);
    // Only the manifest makes a checkpoint: it is written last, when all files are durable.
    if (manifest.ok()) {
      if (manifest->has_checkpoint())
        folders.checkpoints.push_back({dir, step, *std::move(manifest)});
    } else if (absl::IsNotFound(manifest.status())) {
      const absl::Status lost = CheckManifestLost(dir, env);
      if (lost.ok()) folders.unlisted.emplace_back(step, dir);
      if (!lost.ok()) folders.bad.push_back({step, dir, lost});
    } else {
      folders.bad.push_back({step, dir, manifest.status()});
    }
  }
  std::sort(folders.checkpoints.begin(), folders.checkpoints.end(), IsNewer);
  std::sort(folders.bad.begin(), folders.bad.end(),
            [](const BadFolder& a, const BadFolder& b) { return a.step > b.step; });
  return folders;
}

// Removes a checkpoint that is in nobody's way any more. An error when its manifest stays.
absl::Status Remove(const std::string& dir, Env* env) {
  RemoveModel(dir, env);
  if (!env->Exists(ManifestPath(dir))) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot remove the old checkpoint ", dir,
                                          "; remove it by hand, and check its permissions"));
}

// A manifest with only the names of those files in `dir` that tell their saves.
absl::StatusOr<Manifest> NamesIn(const std::string& dir, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, env->List(dir));
  Manifest manifest;
  for (const std::string& name : names) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    if (std::any_of(parts.begin(), parts.end(), IsSaveId)) manifest.add_files()->set_name(name);
  }
  return manifest;
}

// False when the folder's files are of saves that are not wanted.
bool MayBeWanted(const BadFolder& bad, const std::function<bool(const Manifest&)>& wanted,
                 Env* env) {
  const auto names = NamesIn(bad.dir, env);
  // Without such a file the folder may be of any save.
  return !names.ok() || names->files().empty() || wanted(*names);
}

// How many rows of a sparse table, or elements of a dense one, are NaN or infinite.
uint64_t CountNotFinite(const ShardFileReader& file, const std::string& records) {
  const size_t begin = file.sparse() ? file.weights_offset() : 0;
  const size_t floats = (file.record_bytes() - begin) / sizeof(float);
  uint64_t count = 0;
  for (size_t at = begin; at < records.size(); at += file.record_bytes()) {
    const auto* const values = reinterpret_cast<const UnalignedFloat*>(records.data() + at);
    count += FirstNotFinite(values, floats) < floats;
  }
  return count;
}

// Adds to *not_finite what CountNotFinite counts.
absl::Status VerifyShard(const std::string& dir, const TableConfig& table, const SavedFile& file,
                         Env* env, uint64_t* not_finite) {
  constexpr size_t kReadBytes = 1 << 20;
  SLUICE_ASSIGN_OR_RETURN(const auto reader, ShardFileReader::Open(env, dir, table, file));
  RunReader runs(reader.get(), 0, reader->runs());
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kReadBytes));
    if (records.empty()) return absl::OkStatus();
    *not_finite += CountNotFinite(*reader, records);
  }
}

// As VerifyCheckpoint; values that are not finite are DATA_LOSS, too.
absl::Status VerifyToContinue(const std::string& dir, Env* env) {
  std::vector<std::string> not_finite;
  SLUICE_RETURN_IF_ERROR(VerifyCheckpoint(dir, env, nullptr, &not_finite));
  if (not_finite.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(dir, ": ", absl::StrJoin(not_finite, "; ")));
}

// Compares the bytes of a file with its checksum in the manifest.
absl::Status VerifyBytes(const std::string& dir, const SavedFile& file, Env* env) {
  constexpr uint64_t kReadBytes = 1 << 20;
  const std::string path = absl::StrCat(dir, "/", file.name());
  const auto size = env->FileSize(path);
  const auto damaged = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(path, what, "; use another checkpoint"));
  };
  if (absl::IsNotFound(size.status())) return damaged(" is missing");
  SLUICE_RETURN_IF_ERROR(size.status());
  if (*size != file.bytes()) {
    return damaged(absl::StrCat(" is damaged: it has ", *size, " of ", file.bytes(), " bytes"));
  }
  uint32_t crc = 0;
  for (uint64_t at = 0; at < *size; at += kReadBytes) {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, env->ReadRange(path, at, kReadBytes));
    crc = ExtendCrc32c(crc, bytes.data(), bytes.size());
  }
  return crc == file.crc32c() ? absl::OkStatus() : damaged(" is damaged: its checksum is wrong");
}

// The inverse of MixHash: each shift is undone by further shifts, each product by the factor's
// inverse modulo 2^64.
uint64_t UndoMixHash(uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642B2D24D8EC3u;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96DE1B173F119089u;
  return x ^ (x >> 30) ^ (x >> 60);
}

// Models of epochs have numbers that no checkpoint reaches.
constexpr uint64_t kFirstEpochNumber = uint64_t{1} << 63;

}  // namespace

bool IsCheckpointName(absl::string_view name) {
  uint64_t step = 0;
  return ParseStep(name, &step);
}

std::string CheckpointFolder(const std::string& root, uint64_t step) {
  return absl::StrCat(root, "/", kFolder, step);
}

std::string CheckpointSaveId(uint64_t instance, uint64_t number) {
  // MixHash is a bijection: no two numbers of an instance give the same id.
  return absl::StrFormat("%016x", MixHash(MixHash(instance) + number));
}

std::string ModelSaveId(uint64_t instance) {
  return absl::StrCat(absl::Hex(instance, absl::kZeroPad16));
}

std::string EpochSaveId(uint64_t instance, uint32_t epoch) {
  return CheckpointSaveId(instance, kFirstEpochNumber + epoch);
}

bool IsModelSaveId(const JobConfig& job, uint64_t instance, const std::string& save_id) {
  if (job.checkpoint().save() != CheckpointConfig::BEST) return save_id == ModelSaveId(instance);
  const std::optional<uint64_t> number = CheckpointNumber(instance, save_id);
  return number && *number >= kFirstEpochNumber &&
         *number - kFirstEpochNumber < job.train().epochs();
}

std::optional<uint64_t> CheckpointNumber(uint64_t instance, const std::string& save_id) {
  uint64_t mixed = 0;
  if (!absl::SimpleHexAtoi(save_id, &mixed)) return std::nullopt;
  const uint64_t number = UndoMixHash(mixed) - MixHash(instance);
  // The parser also takes other spellings of the number.
  if (CheckpointSaveId(instance, number) != save_id) return std::nullopt;
  return number;
}

std::string SaveIdOfCheckpoint(const Manifest& manifest) {
  for (const SavedFile& file : manifest.files()) {
    absl::string_view id = file.name();  // job.SAVE_ID.textproto
    if (absl::ConsumePrefix(&id, "job.") && absl::ConsumeSuffix(&id, ".textproto"))
      return std::string(id);
  }
  return "";
}

std::vector<CheckpointInfo> ListCheckpoints(const std::string& root, Env* env,
                                            std::vector<absl::Status>* damaged) {
  Folders folders = FindFolders(root, env);
  for (const BadFolder& bad : folders.bad) {
    if (damaged != nullptr) damaged->push_back(bad.why);
  }
  return std::move(folders.checkpoints);
}

std::vector<std::string> ListUnfinishedCheckpoints(const std::string& root, Env* env) {
  std::vector<std::string> dirs;
  for (const auto& [step, dir] : FindFolders(root, env).unlisted) dirs.push_back(dir);
  return dirs;
}

absl::Status CheckCheckpoint(const CheckpointInfo& checkpoint, Env* env) {
  SLUICE_RETURN_IF_ERROR(CheckSizes(checkpoint.dir, checkpoint.manifest, env));
  // Reads the manifest again, with its checksum.
  return ReadModelJob(checkpoint.dir, env).status();
}

absl::Status VerifyCheckpoint(
    const std::string& dir, Env* env,
    const std::function<void(const std::string& name, const absl::Status& why)>& damage,
    std::vector<std::string>* not_finite) {
  absl::Status first;
  const auto note = [&](const std::string& name, const absl::Status& why) {
    if (why.ok()) return;
    if (damage) damage(name, why);
    if (first.ok()) first = why;
  };
  const absl::StatusOr<Manifest> manifest = ReadManifest(dir, env);
  if (absl::IsNotFound(manifest.status())) {
    // A removal begins with the manifest. That is not damage.
    note("MANIFEST", CheckManifestLost(dir, env));
    return first.ok() ? manifest.status() : first;
  }
  if (!manifest.ok()) {
    note("MANIFEST", manifest.status());
    return first;
  }
  if (!manifest->has_checkpoint()) {
    return absl::NotFoundError(absl::StrCat(
        dir, " holds a model, not a checkpoint; give a folder step-N of a job's checkpoints"));
  }
  for (const TableConfig& table : manifest->tables()) {
    SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, *manifest, table));
    uint64_t bad = 0;
    for (const SavedFile* file : files)
      note(file->name(), VerifyShard(dir, table, *file, env, &bad));
    if (bad == 0 || not_finite == nullptr) continue;
    const bool one = bad == 1;
    not_finite->push_back(absl::StrCat("table '", table.name(), "' holds ", bad,
                                       table.kind() == TableConfig::SPARSE
                                           ? (one ? " row" : " rows")
                                           : (one ? " value" : " values"),
                                       one ? " that is" : " that are", " not finite"));
  }
  for (const SavedFile& file : manifest->files()) {
    if (IsWorkerFileName(file.name())) note(file.name(), VerifyBytes(dir, file, env));
  }
  note("job.textproto", ReadModelJob(dir, env).status());
  return first;
}

absl::StatusOr<CheckpointInfo> ChooseCheckpoint(
    const std::string& root, bool allow_older, Env* env, std::vector<std::string>* skipped,
    const std::function<bool(const Manifest&)>& wanted) {
  Folders folders = FindFolders(root, env);
  if (wanted) {
    auto& all = folders.checkpoints;
    const auto unwanted = [&](const CheckpointInfo& one) { return !wanted(one.manifest); };
    all.erase(std::remove_if(all.begin(), all.end(), unwanted), all.end());
    auto& bad = folders.bad;
    const auto other = [&](const BadFolder& one) { return !MayBeWanted(one, wanted, env); };
    bad.erase(std::remove_if(bad.begin(), bad.end(), other), bad.end());
  }
  absl::Status first;
  std::vector<std::string> damaged;
  const auto refuse = [&](const absl::Status& why) {
    if (first.ok()) first = why;
    if (allow_older && skipped != nullptr) skipped->push_back(std::string(why.message()));
  };
  for (const BadFolder& bad : folders.bad) {
    // A damaged folder that is older than the newest good one is in nobody's way.
    if (!folders.checkpoints.empty() && bad.step < folders.checkpoints.front().step) continue;
    refuse(bad.why);
  }
  for (CheckpointInfo& checkpoint : folders.checkpoints) {
    // An older checkpoint loses training. Only the user may decide that.
    if (!first.ok() && !allow_older) break;
    // With --allow_older there is something to fall back to, so all bytes are read before this one
    // is chosen.
    const absl::Status status =
        allow_older ? VerifyToContinue(checkpoint.dir, env) : CheckCheckpoint(checkpoint, env);
    if (status.ok()) {
      checkpoint.damaged = std::move(damaged);
      return std::move(checkpoint);
    }
    refuse(status);
    if (std::string id = SaveIdOfCheckpoint(checkpoint.manifest);
        absl::IsDataLoss(status) && !id.empty())
      damaged.push_back(std::move(id));
  }
  if (first.ok()) {
    return absl::NotFoundError(absl::StrCat("there is no complete checkpoint in ", root));
  }
  const char* const fix = allow_older ? "; no checkpoint in that folder is intact"
                                      : "; or resume from an older checkpoint with --allow_older";
  return absl::Status(first.code(), absl::StrCat(first.message(), fix));
}

absl::StatusOr<CheckpointInfo> FindCheckpoint(const std::string& given, bool verify, Env* env,
                                              std::vector<std::string>* skipped) {
  std::string dir = given;
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  if (env->Exists(ManifestPath(dir))) {
    SLUICE_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(dir, env));
    if (!manifest.has_checkpoint()) {
      return absl::InvalidArgumentError(absl::StrCat(
          dir,
          " is a saved model, which has no optimizer state; give a folder step-N of a job's "
          "checkpoints, or start from its values with initial_model"));
    }
    const uint64_t step = manifest.global_step();
    CheckpointInfo found{dir, step, std::move(manifest)};
    SLUICE_RETURN_IF_ERROR(CheckCheckpoint(found, env));
    return found;
  }
  // A user may give the folder of the checkpoints, or that of the job's output.
  for (const std::string& root : {dir, absl::StrCat(dir, "/checkpoints")}) {
    Folders folders = FindFolders(root, env);
    if (folders.checkpoints.empty() && folders.bad.empty()) continue;
    if (verify) return ChooseCheckpoint(root, /*allow_older=*/true, env, skipped);
    if (folders.checkpoints.empty()) return folders.bad.front().why;
    return std::move(folders.checkpoints.front());
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no complete checkpoint in ", dir,
      " (a job that ends well leaves one of its end, but not with checkpoint.at_end: false or "
      "checkpoint.keep: 0); give a folder step-N, a folder of checkpoints, or the output_dir of a "
      "job that made some"));
}

absl::Status CommitCheckpoint(const std::string& dir, const JobConfig& job, Manifest manifest,
                              Env* env, const std::string& save_id,
                              const std::function<absl::Status()>& owned) {
  SLUICE_RETURN_IF_ERROR(PrepareCheckpoint(dir, job, std::move(manifest), env, save_id));
  return CommitModel(dir, env, save_id, owned);
}

absl::Status RemoveOldCheckpoints(const std::string& root, uint32_t keep, Env* env,
                                  const std::vector<std::string>& damaged) {
  const Folders folders = FindFolders(root, env);
  // The last one is never removed, whatever the options say.
  keep = std::max(1u, keep);
  if (folders.checkpoints.empty()) return absl::OkStatus();
  uint64_t lowest = UINT64_MAX;  // step of those that stay
  absl::Status status;
  uint32_t intact = 0;
  for (const CheckpointInfo& checkpoint : folders.checkpoints) {
    if (intact < keep) {
      lowest = std::min(lowest, checkpoint.step);
      // A damaged one does not count: it must not push out the last that can be read.
      intact +=
          std::count(damaged.begin(), damaged.end(), SaveIdOfCheckpoint(checkpoint.manifest)) == 0;
      continue;
    }
    status.Update(Remove(checkpoint.dir, env));
  }
  for (const auto& [step, dir] : folders.unlisted) {
    // Folders without a manifest at higher steps may be under construction.
    if (step < lowest) RemoveModel(dir, env);
  }
  return status;
}

absl::Status RemoveOtherCheckpoints(const std::string& root, Env* env,
                                    const std::function<bool(const Manifest&)>& wanted) {
  const Folders folders = FindFolders(root, env);
  const auto stays = [&](const CheckpointInfo& one) { return wanted(one.manifest); };
  if (!std::any_of(folders.checkpoints.begin(), folders.checkpoints.end(), stays))
    return absl::OkStatus();
  absl::Status status;
  for (const CheckpointInfo& checkpoint : folders.checkpoints) {
    if (!stays(checkpoint)) status.Update(Remove(checkpoint.dir, env));
  }
  for (const auto& [step, dir] : folders.unlisted) {
    // The next checkpoint of this job may be under construction.
    const auto names = NamesIn(dir, env);
    if (names.ok() && !wanted(*names)) RemoveModel(dir, env);
  }
  return status;
}

}  // namespace sluice
