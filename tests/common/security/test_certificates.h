// Certificates for tests, made by a CA in a folder of its own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/base/clock.h"
#include "common/security/cert_authority.h"
#include "gtest/gtest.h"

namespace sluice {

class TestCertificates {
 public:
  // A new CA. Different names are different CAs. Several processes may run a test at once.
  explicit TestCertificates(const std::string& name)
      : folder_(testing::TempDir() + "/certificates-" + name + "-" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    const absl::Status made = MakeAuthority(Options(Clock::Real()->WallNow() + absl::Hours(1)));
    EXPECT_TRUE(made.ok()) << made;
  }

  ~TestCertificates() { std::filesystem::remove_all(folder_); }
  TestCertificates(const TestCertificates&) = delete;
  TestCertificates& operator=(const TestCertificates&) = delete;

  // A certificate of this role. `name`: see PeerIdentity.
  TlsFiles Of(PeerRole role, const std::string& name = "") const {
    return Of(role, name, Clock::Real()->WallNow() + absl::Hours(1));
  }
  TlsFiles Of(PeerRole role, const std::string& name, absl::Time not_after) const {
    const std::string stem = std::string(PeerRoleName(role)) + (name.empty() ? "" : "-") + name;
    const absl::Status made = MakeCertificate(Options(not_after), {role, name, {}}, stem);
    EXPECT_TRUE(made.ok()) << made;
    return FilesOf(folder_, stem);
  }
  const std::string& folder() const { return folder_; }

 private:
  CertAuthorityOptions Options(absl::Time not_after) const {
    CertAuthorityOptions options;
    options.folder = folder_;
    options.not_before = Clock::Real()->WallNow() - absl::Hours(1);
    options.not_after = not_after;
    return options;
  }

  const std::string folder_;
};

}  // namespace sluice
