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
#include "common/places/store_files.h"
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

absl::Status OnlyRead(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is on a place that is only read; write to a path of this host"));
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
  store_ = std::make_unique<StoreFiles>(std::move(address), &to_stores_, credentials_.get());
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
  return {path.substr(0, path.find(':')), false, false, false};
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
  return files->Match(
      pattern, most_names,
      [this](const std::string& path, const FileIdentity& identity) { Remember(path, identity); });
}

absl::StatusOr<std::string> PlacesEnv::ReadFile(const std::string& path) {
  if (!HasScheme(path)) return options_.base->ReadFile(path);
  return ReadRange(path, 0, kMostFileBytes);
}

absl::StatusOr<std::string> PlacesEnv::ReadRange(const std::string& path, uint64_t offset,
                                                 uint64_t n) {
  if (!HasScheme(path)) return options_.base->ReadRange(path, offset, n);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> reader, NewReader(path));
  const uint64_t size = reader->info().identity.size;
  std::string bytes(offset >= size ? 0 : std::min(n, size - offset), '\0');
  reader->ExpectEnd(offset + bytes.size());
  for (size_t done = 0; done < bytes.size();) {
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            reader->ReadAt(offset + done, &bytes[done], bytes.size() - done));
    done += got;
  }
  return bytes;
}

absl::StatusOr<uint64_t> PlacesEnv::FileSize(const std::string& path) {
  if (!HasScheme(path)) return options_.base->FileSize(path);
  SLUICE_ASSIGN_OR_RETURN(const FileInfo info, Look(path));
  return info.identity.size;
}

bool PlacesEnv::Exists(const std::string& path) {
  return HasScheme(path) ? Look(path).ok() : options_.base->Exists(path);
}

absl::Status PlacesEnv::WriteFile(const std::string& path,
                                  absl::Span<const absl::string_view> pieces) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->WriteFile(path, pieces);
}

absl::StatusOr<std::unique_ptr<NewFile>> PlacesEnv::StartFile(const std::string& path) {
  if (HasScheme(path)) return OnlyRead(path);
  return options_.base->StartFile(path);
}

absl::Status PlacesEnv::AppendToFile(const std::string& path, absl::string_view bytes) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->AppendToFile(path, bytes);
}

absl::Status PlacesEnv::RenameFile(const std::string& from, const std::string& to) {
  if (HasScheme(from)) return OnlyRead(from);
  return HasScheme(to) ? OnlyRead(to) : options_.base->RenameFile(from, to);
}

absl::Status PlacesEnv::MakeDirs(const std::string& path) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->MakeDirs(path);
}

absl::Status PlacesEnv::MakeNewDir(const std::string& path) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->MakeNewDir(path);
}

absl::Status PlacesEnv::RemoveDir(const std::string& path) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->RemoveDir(path);
}

absl::StatusOr<std::vector<std::string>> PlacesEnv::List(const std::string& path) {
  if (HasScheme(path)) return OnlyRead(path);
  return options_.base->List(path);
}

absl::Status PlacesEnv::RemoveFile(const std::string& path) {
  return HasScheme(path) ? OnlyRead(path) : options_.base->RemoveFile(path);
}

absl::StatusOr<int> PlacesEnv::OpenFile(const std::string& path, int flags, uint32_t mode) {
  if (HasScheme(path)) return OnlyRead(path);
  return options_.base->OpenFile(path, flags, mode);
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
