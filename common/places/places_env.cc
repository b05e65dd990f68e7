#include "common/places/places_env.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/local_path.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/places/curl_transport.h"
#include "common/places/remote_reader.h"
#include "common/places/web_files.h"

namespace sluice {
namespace {

constexpr size_t kMostSeen = 200'000;  // versions; then all are asked for again

std::optional<std::string> Environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

double DrawBelowOne() {
  return static_cast<double>(RandomId() >> 10) / static_cast<double>(1LL << 53);
}

RetryingTransport::Options Retries(const PlacesEnv::Options& options, PlaceUse* use) {
  RetryingTransport::Options retries;
  retries.tries = options.tries;
  retries.draw = &DrawBelowOne;
  retries.clock = options.clock;
  retries.use = use;
  return retries;
}

absl::Status NotHere(absl::string_view operation, const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(operation, " ", path, ": ", why));
}

absl::Status NotLocal(absl::string_view operation, const std::string& path) {
  return NotHere(operation, path,
                 "stores and servers have no such files; give a path of this host");
}

absl::Status Named(absl::string_view operation, const std::string& path,
                   const absl::Status& status) {
  if (status.ok()) return status;
  const absl::Status error = AsFileError(status);
  return absl::Status(error.code(), absl::StrCat(operation, " ", path, ": ", error.message()));
}

}  // namespace

PlacesEnv::PlacesEnv(Options options)
    : options_(std::move(options)),
      use_({{"http", &of_web_}, {"s3", &of_stores_}}),
      to_stores_(options_.transport, Retries(options_, &of_stores_)),
      to_web_(options_.transport, Retries(options_, &of_web_)),
      web_(std::make_unique<WebFiles>(&to_web_)),
      cache_(options_.cache) {}

PlacesEnv::~PlacesEnv() { Stop(); }

std::unique_ptr<PlacesEnv> PlacesEnv::Real(int tries, const std::string& no_web) {
  auto curl = std::make_unique<CurlTransport>(Environment("AWS_CA_BUNDLE").value_or(""));
  Options options;
  options.base = Env::Real();
  options.clock = Clock::Real();
  options.transport = curl.get();
  options.variable = &Environment;
  options.tries = tries;
  options.no_web = no_web;
  auto env = std::make_unique<PlacesEnv>(std::move(options));
  env->own_transport_ = std::move(curl);
  return env;
}

void PlacesEnv::Stop() {
  to_stores_.Stop();
  to_web_.Stop();
  {
    MutexLock lock(&mutex_);
    if (to_services_ != nullptr) to_services_->Stop();
  }
  if (own_transport_ != nullptr) static_cast<CurlTransport*>(own_transport_.get())->Stop();
}

absl::Status PlacesEnv::MakeStore() {
  const auto profile = ProfileConfig(options_.variable, options_.base);
  SLUICE_ASSIGN_OR_RETURN(StoreAddress address, StoreAddressOf(options_.variable, profile));
  CredentialSource::Options of_credentials;
  of_credentials.variable = options_.variable;
  of_credentials.env = options_.base;
  of_credentials.clock = options_.clock;
  of_credentials.region = address.region;
  // Few tries: where nobody answers, there is no such service.
  RetryingTransport::Options retries = Retries(options_, &of_stores_);
  retries.tries = 2;
  to_services_ = std::make_unique<RetryingTransport>(options_.transport, retries);
  of_credentials.transport = to_services_.get();
  credentials_ = std::make_unique<CredentialSource>(std::move(of_credentials));
  store_ = std::make_unique<StoreFiles>(address, &to_stores_, credentials_.get());
  writer_ = std::make_unique<StoreWriter>(std::move(address), &to_stores_, credentials_.get(),
                                          store_.get(), options_.part_bytes);
  return absl::OkStatus();
}

absl::StatusOr<RemoteFiles*> PlacesEnv::FilesOf(const std::string& path) {
  if (const std::string problem = DataUrlProblem(path); !problem.empty())
    return absl::InvalidArgumentError(absl::StrCat("it ", problem));
  if (!absl::StartsWith(path, "s3://")) {
    if (!options_.no_web.empty()) return absl::PermissionDeniedError(options_.no_web);
    return web_.get();
  }
  MutexLock lock(&mutex_);
  if (store_ == nullptr) SLUICE_RETURN_IF_ERROR(MakeStore());
  return store_.get();
}

void PlacesEnv::Remember(const std::string& path, const FileIdentity& identity) {
  MutexLock lock(&mutex_);
  if (seen_.size() >= kMostSeen) seen_.clear();
  seen_[path] = {identity, options_.clock->Now()};
}

void PlacesEnv::Forget(const std::string& path) {
  MutexLock lock(&mutex_);
  seen_.erase(path);
}

FilePlace PlacesEnv::PlaceOf(const std::string& path) {
  if (!HasScheme(path)) return options_.base->PlaceOf(path);
  return {path.substr(0, path.find(':')), false, false, false, absl::StartsWith(path, "s3://")};
}

absl::StatusOr<FileInfo> PlacesEnv::Look(const std::string& path) {
  if (!HasScheme(path)) return options_.base->Look(path);
  SLUICE_ASSIGN_OR_RETURN(RemoteFiles* const files, FilesOf(path));
  {
    MutexLock lock(&mutex_);
    const auto seen = seen_.find(path);
    if (seen != seen_.end() && options_.clock->Now() - seen->second.at < kVersionHolds)
      return FileInfo{FileInfo::Kind::kFile, seen->second.identity};
  }
  const auto identity = files->Identify(path);
  if (!identity.ok()) return AsFileError(identity.status());
  Remember(path, *identity);
  return FileInfo{FileInfo::Kind::kFile, *identity};
}

absl::StatusOr<std::unique_ptr<FileReader>> PlacesEnv::NewReader(const std::string& path) {
  if (!HasScheme(path)) return options_.base->NewReader(path);
  SLUICE_ASSIGN_OR_RETURN(FileInfo info, Look(path));
  SLUICE_ASSIGN_OR_RETURN(RemoteFiles* const files, FilesOf(path));
  const FileIdentity identity = info.identity;
  return std::make_unique<RemoteReader>(RangeCache::File{files, path, identity}, &cache_,
                                        [this, path, identity](const absl::Status& status) {
                                          // A part that came now is of that version, and one that
                                          // is refused of another.
                                          status.ok() ? Remember(path, identity) : Forget(path);
                                        });
}

absl::StatusOr<FileMatches> PlacesEnv::Match(const std::string& pattern, size_t most_names) {
  if (!HasScheme(pattern)) return options_.base->Match(pattern, most_names);
  SLUICE_ASSIGN_OR_RETURN(RemoteFiles* const files, FilesOf(pattern));
  auto matches = files->Match(
      pattern, most_names,
      [this](const std::string& path, const FileIdentity& identity) { Remember(path, identity); });
  if (!matches.ok()) return AsFileError(matches.status());
  return matches;
}

absl::StatusOr<std::string> PlacesEnv::ReadFile(const std::string& path) {
  if (!HasScheme(path)) return options_.base->ReadFile(path);
  constexpr int kTries = 5;  // somebody may replace the file between the requests
  for (int i = 1;; ++i) {
    Forget(path);
    SLUICE_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
    if (size > kMostFileBytes) {
      return NotHere("read", path,
                     absl::StrCat("it has ", size, " bytes, and no file that is read as a whole ",
                                  "has more than ", kMostFileBytes));
    }
    auto bytes = ReadRange(path, 0, size);
    if (!absl::IsFailedPrecondition(bytes.status()) || i == kTries) return bytes;
  }
}

absl::StatusOr<std::string> PlacesEnv::ReadRange(const std::string& path, uint64_t offset,
                                                 uint64_t n) {
  if (!HasScheme(path)) return options_.base->ReadRange(path, offset, n);
  const auto reader = NewReader(path);
  if (!reader.ok()) return Named("open", path, reader.status());
  const uint64_t size = (*reader)->info().identity.size;
  std::string bytes(offset >= size ? 0 : std::min(n, size - offset), '\0');
  (*reader)->ExpectEnd(offset + bytes.size());
  for (size_t done = 0; done < bytes.size();) {
    const auto got = (*reader)->ReadAt(offset + done, &bytes[done], bytes.size() - done);
    if (!got.ok()) return Named("read", path, got.status());
    done += *got;
  }
  return bytes;
}

absl::StatusOr<uint64_t> PlacesEnv::FileSize(const std::string& path) {
  if (!HasScheme(path)) return options_.base->FileSize(path);
  const auto info = Look(path);
  if (!info.ok()) return Named("stat", path, info.status());
  return info->identity.size;
}

bool PlacesEnv::Exists(const std::string& path) {
  if (!HasScheme(path)) return options_.base->Exists(path);
  Forget(path);
  return Look(path).ok();
}

absl::StatusOr<PlacesEnv::Store> PlacesEnv::StoreOf(absl::string_view operation,
                                                    const std::string& path) {
  const auto files = FilesOf(path);
  if (!files.ok()) return Named(operation, path, files.status());
  if (!PlaceOf(path).write) {
    return NotHere(operation, path,
                   "web servers are only read; give a path of this host, or s3://BUCKET/KEY");
  }
  MutexLock lock(&mutex_);
  return Store{store_.get(), writer_.get()};
}

absl::Status PlacesEnv::WriteFile(const std::string& path,
                                  absl::Span<const absl::string_view> pieces) {
  if (!HasScheme(path)) return options_.base->WriteFile(path, pieces);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file, StartFile(path));
  for (const absl::string_view piece : pieces) SLUICE_RETURN_IF_ERROR(file->Append(piece));
  return file->Finish();
}

absl::StatusOr<std::unique_ptr<NewFile>> PlacesEnv::StartFile(const std::string& path) {
  if (!HasScheme(path)) return options_.base->StartFile(path);
  SLUICE_ASSIGN_OR_RETURN(const Store store, StoreOf("write", path));
  auto file = store.writer->Start(path, [this, path] { Forget(path); });
  if (!file.ok()) return Named("write", path, file.status());
  return file;
}

absl::Status PlacesEnv::AppendToFile(const std::string& path, absl::string_view bytes) {
  if (!HasScheme(path)) return options_.base->AppendToFile(path, bytes);
  return NotLocal("append to", path);
}

absl::Status PlacesEnv::RenameFile(const std::string& from, const std::string& to) {
  if (!HasScheme(from) && !HasScheme(to)) return options_.base->RenameFile(from, to);
  return NotHere("rename to", to, "stores and servers rename no files");
}

absl::StatusOr<FileIdentity> PlacesEnv::Publish(const std::string& path, absl::string_view bytes,
                                                const std::optional<FileIdentity>& expected) {
  if (!HasScheme(path)) return options_.base->Publish(path, bytes, expected);
  SLUICE_ASSIGN_OR_RETURN(const Store store, StoreOf("publish", path));
  Forget(path);
  auto identity = store.writer->Publish(path, bytes, expected);
  if (!identity.ok()) return Named("publish", path, identity.status());
  Remember(path, *identity);
  return identity;
}

absl::Status PlacesEnv::GiveUpFiles(const std::string& folder,
                                    const std::function<bool(const std::string&)>& is_leftover) {
  if (!HasScheme(folder)) return options_.base->GiveUpFiles(folder, is_leftover);
  SLUICE_ASSIGN_OR_RETURN(const Store store, StoreOf("list uploads below", folder));
  return Named("list uploads below", folder, store.writer->GiveUpUploads(folder, is_leftover));
}

absl::Status PlacesEnv::MakeDirs(const std::string& path) {
  if (!HasScheme(path)) return options_.base->MakeDirs(path);
  return StoreOf("make folder", path).status();
}

absl::Status PlacesEnv::MakeNewDir(const std::string& path) {
  return HasScheme(path) ? NotLocal("make folder", path) : options_.base->MakeNewDir(path);
}

absl::Status PlacesEnv::RemoveDir(const std::string& path) {
  return HasScheme(path) ? absl::OkStatus() : options_.base->RemoveDir(path);
}

absl::StatusOr<std::vector<std::string>> PlacesEnv::List(const std::string& path) {
  if (!HasScheme(path)) return options_.base->List(path);
  SLUICE_ASSIGN_OR_RETURN(const Store store, StoreOf("list", path));
  auto names = store.files->NamesIn(path);
  if (!names.ok()) return Named("list", path, names.status());
  return names;
}

absl::Status PlacesEnv::RemoveFile(const std::string& path) {
  if (!HasScheme(path)) return options_.base->RemoveFile(path);
  SLUICE_ASSIGN_OR_RETURN(const Store store, StoreOf("remove", path));
  Forget(path);
  return Named("remove", path, store.writer->Remove(path));
}

absl::StatusOr<int> PlacesEnv::OpenFile(const std::string& path, int flags, uint32_t mode) {
  if (!HasScheme(path)) return options_.base->OpenFile(path, flags, mode);
  return absl::FailedPreconditionError(
      "stores and servers have no such files; give a path of this host");
}

PlacesEnv* AllPlaces() {
  static PlacesEnv* const places = [] {
    // Fewer tries than a job has: somebody waits for the answer.
    auto* const made = PlacesEnv::Real(/*tries=*/4).release();
    // Requests that were sent ahead must not use the TLS library while it is taken down.
    std::atexit([] { AllPlaces()->Stop(); });
    return made;
  }();
  return places;
}

}  // namespace sluice
