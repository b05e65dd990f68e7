#include "common/security/job_passes.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstddef>
#include <initializer_list>
#include <new>

#include "absl/strings/str_cat.h"
#include "common/security/refusal_reason.h"

namespace sluice {
namespace {

constexpr size_t kKeyBytes = 32;

std::string Hmac(absl::string_view key, absl::string_view what,
                 std::initializer_list<uint64_t> numbers) {
  std::string text(what);
  // In a fixed width and order, so that no two lists of numbers give the same text.
  for (const uint64_t number : numbers) {
    for (int shift = 0; shift < 64; shift += 8) text.push_back(static_cast<char>(number >> shift));
  }
  std::string mac(kKeyBytes, '\0');
  unsigned int size = 0;
  const unsigned char* const made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size);
  // HMAC fails when memory runs out; do not continue with an empty key.
  if (made == nullptr || size != kKeyBytes) throw std::bad_alloc();
  return mac;
}

}  // namespace

// Takes the same time wherever the two differ, so that nobody can guess a pass byte by byte.
bool SameSecret(absl::string_view a, absl::string_view b) {
  return !a.empty() && a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string NewPassKey() {
  std::string key(kKeyBytes, '\0');
  // getrandom returns so few bytes whole or, when a signal interrupts it, not at all.
  while (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
  }
  return key;
}

std::string JobPassKey(absl::string_view cluster_key, uint64_t instance) {
  return cluster_key.empty() ? std::string() : Hmac(cluster_key, "job", {instance});
}

std::string MemberSecret(absl::string_view cluster_key, uint64_t member_id, uint64_t life) {
  return cluster_key.empty() ? std::string() : Hmac(cluster_key, "member", {member_id, life});
}

std::string JobPasses::OfWorker(uint32_t rank, uint64_t incarnation) const {
  return key_.empty() ? std::string() : Hmac(key_, "worker", {rank, incarnation});
}

std::string JobPasses::OfPserver(uint32_t index) const {
  return key_.empty() ? std::string() : Hmac(key_, "pserver", {index});
}

std::string JobPasses::OfTables(uint32_t rank) const {
  return key_.empty() ? std::string() : Hmac(key_, "tables", {rank});
}

absl::Status JobPasses::CheckWorker(uint32_t rank, uint64_t incarnation,
                                    absl::string_view pass) const {
  if (Fits(OfWorker(rank, incarnation), pass)) return absl::OkStatus();
  return Because(
      RefusalReason::kPass,
      absl::PermissionDeniedError(absl::StrCat(
          "the caller does not have the pass of rank ", rank, " in incarnation ", incarnation,
          "; only the worker to which the scheduler has assigned this rank may use it")));
}

absl::Status JobPasses::CheckPserver(uint32_t index, absl::string_view pass) const {
  if (Fits(OfPserver(index), pass)) return absl::OkStatus();
  return Because(RefusalReason::kPass,
                 absl::PermissionDeniedError(absl::StrCat(
                     "the caller does not have the pass of pserver ", index,
                     " of this job; only pservers of the job may keep or read copies")));
}

absl::Status JobPasses::CheckTables(uint32_t rank, absl::string_view pass) const {
  if (Fits(OfTables(rank), pass)) return absl::OkStatus();
  return Because(RefusalReason::kPass,
                 absl::PermissionDeniedError(absl::StrCat(
                     "pserver ", rank,
                     " does not have the key of this job's passes; only a pserver of the job may "
                     "keep its tables")));
}

}  // namespace sluice
