#include "common/security/job_passes.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/escaping.h"

namespace sluice {
namespace {

// Computed with Python's hmac module. Members of two versions must agree on it.
TEST(JobPassesTest, PassesAreHmacSha256OfTheDocumentedBytes) {
  const std::string cluster_key(32, 'k');
  const std::string job_key = JobPassKey(cluster_key, 0x0102030405060708);
  EXPECT_EQ(absl::BytesToHexString(job_key),
            "369b8e81c6ee3d664eebb5ab9a2e3f68b8b62c55e3a36d847fbcfe11c1477b97");
  const JobPasses passes(job_key);
  EXPECT_EQ(absl::BytesToHexString(passes.OfWorker(3, 77)),
            "6685a561cde5c349c232dda8961db3d3dd740c69dd961e86dbeb1e9e75a31494");
  EXPECT_EQ(absl::BytesToHexString(passes.OfPserver(1)),
            "c49ff98f0d731c4cfb4a811b6c6f2cefd439cad207d3db3ff81f3822ff2ca8c7");
  EXPECT_EQ(absl::BytesToHexString(passes.OfTables(1)),
            "e0f451417cb602cf90ed40f853413cf1ce72a6346aaa7f2ffc0787fcb7c2790c");
  EXPECT_EQ(absl::BytesToHexString(MemberSecret(cluster_key, 5, 9)),
            "be3003029f3f5cfdfe2f5d843c53614e920e159a5d4f17371c9845b77f1ab834");
}

TEST(JobPassesTest, APassFitsOnlyItsOwner) {
  const std::string cluster_key = NewPassKey();
  const JobPasses passes(JobPassKey(cluster_key, 5)), other_job(JobPassKey(cluster_key, 6));
  const std::string pass = passes.OfWorker(1, 9);
  EXPECT_TRUE(passes.CheckWorker(1, 9, pass).ok());
  std::string flipped = pass;
  flipped.back() ^= 1;
  for (const absl::Status& refused :
       {passes.CheckWorker(0, 9, pass), passes.CheckWorker(1, 8, pass),
        passes.CheckWorker(1, 10, pass), passes.CheckPserver(1, pass),
        other_job.CheckWorker(1, 9, pass), passes.CheckWorker(1, 9, ""),
        passes.CheckWorker(1, 9, pass.substr(0, 31)), passes.CheckWorker(1, 9, pass + "x"),
        passes.CheckWorker(1, 9, flipped)}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  }
  EXPECT_TRUE(passes.CheckTables(1, passes.OfTables(1)).ok());
  EXPECT_FALSE(passes.CheckTables(0, passes.OfTables(1)).ok());
  EXPECT_FALSE(passes.CheckTables(1, passes.OfPserver(1)).ok());
  EXPECT_TRUE(passes.CheckPserver(1, passes.OfPserver(1)).ok());
  EXPECT_FALSE(passes.CheckPserver(0, passes.OfPserver(1)).ok());
}

TEST(JobPassesTest, KeysAreLongAndDiffer) {
  std::set<std::string> keys;
  for (int i = 0; i < 10; ++i) keys.insert(NewPassKey());
  EXPECT_EQ(keys.size(), 10u);
  for (const std::string& key : keys) EXPECT_EQ(key.size(), 32u);
}

TEST(JobPassesTest, WithoutAKeyNobodyIsAccepted) {
  const JobPasses none(JobPassKey("", 5));
  EXPECT_EQ(none.OfWorker(0, 1), "");
  for (const char* pass : {"", "anything"}) {
    EXPECT_FALSE(none.CheckWorker(0, 1, pass).ok());
    EXPECT_FALSE(none.CheckPserver(0, pass).ok());
    EXPECT_FALSE(none.CheckTables(0, pass).ok());
  }
  EXPECT_FALSE(SameSecret(MemberSecret("", 1, 2), ""));
  EXPECT_TRUE(JobPasses::OfNoJob().CheckWorker(0, 1, "").ok());
}

TEST(JobPassesTest, ASecretIsOneOfAClusterAMemberAndALife) {
  const std::string key = NewPassKey();
  const std::string secret = MemberSecret(key, 1, 2);
  EXPECT_TRUE(SameSecret(MemberSecret(key, 1, 2), secret));
  for (const std::string& other :
       {MemberSecret(key, 2, 2), MemberSecret(key, 1, 3), MemberSecret(NewPassKey(), 1, 2)}) {
    EXPECT_FALSE(SameSecret(other, secret));
  }
}

}  // namespace
}  // namespace sluice
