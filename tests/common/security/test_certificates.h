// Certificates for tests, made by a CA in a folder of its own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/base/clock.h"
#include "common/security/cert_authority.h"
#include "gtest/gtest.h"
#include "tests/common/security/sign_with_names.h"

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
    CertAuthorityOptions options = Options(not_after);
    if (!name.empty()) {
      // A folder of its own: the file of a role has the same name for every process of the role.
      options.folder += "/" + name;
      std::filesystem::create_directory(options.folder);
      for (const char* file : {"/ca.pem", "/ca.key"}) {
        std::filesystem::copy_file(folder_ + file, options.folder + file,
                                   std::filesystem::copy_options::overwrite_existing);
      }
    }
    const absl::Status made = MakeCertificate(options, role, {});
    EXPECT_TRUE(made.ok()) << made;
    const TlsFiles files = FilesOf(options.folder, PeerRoleName(role));
    if (!name.empty()) SignWithNames(files, "URI:" + PeerUri(role, name));
    return files;
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
