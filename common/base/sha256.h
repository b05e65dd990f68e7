// SHA-256 of a stream of bytes, through OpenSSL.
//
// Thread safety: one thread.
//
// Source: FIPS 180-4.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t n);
  // 64 lowercase hexadecimal digits. Ends the stream: this is the last call.
  std::string Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The digest of one piece of memory.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace sluice
