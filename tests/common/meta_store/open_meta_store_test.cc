#include "common/meta_store/open_meta_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace sluice {
namespace {

TEST(OpenMetaStoreTest, OpensAFolder) {
  std::string pattern = ::testing::TempDir() + "/open_meta_store_test.XXXXXX";
  const std::string dir = ::mkdtemp(pattern.data());
  {
    const auto store = OpenMetaStore("rocksdb:" + dir + "/state", Env::Real(), Clock::Real());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(*(*store)->AcquireTerm(), 1u);
  }
  EXPECT_TRUE(std::filesystem::exists(dir + "/state/CURRENT"));
  std::filesystem::remove_all(dir);
}

TEST(OpenMetaStoreTest, OpensEtcdWithoutConnecting) {
  EtcdAccess plain;
  plain.allow_plain = true;
  for (const char* spec : {"etcd:127.0.0.1:1/sluice", "etcd:a:2379,b:2379,[::1]:2379/team/sluice-1",
                           "etcd:a:1/A.b_c"}) {
    EXPECT_TRUE(OpenMetaStore(spec, Env::Real(), Clock::Real(), {}, plain).ok()) << spec;
  }
}

TEST(OpenMetaStoreTest, PlainTextIsForLoopbackUnlessItIsAllowed) {
  for (const char* spec : {"etcd:127.0.0.1:1/sluice", "etcd:[::1]:1,localhost:1/sluice"})
    EXPECT_TRUE(OpenMetaStore(spec, Env::Real(), Clock::Real()).ok()) << spec;
  for (const char* spec : {"etcd:10.0.0.1:1/sluice", "etcd:127.0.0.1:1,b:1/sluice"}) {
    const absl::Status status = OpenMetaStore(spec, Env::Real(), Clock::Real()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec << ": " << status;
    for (const char* part : {"--etcd_ca", "--insecure"})
      EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
  }
}

TEST(OpenMetaStoreTest, RefusesOtherSpecsByName) {
  const std::string specs[] = {
      "",
      "rocksdb",
      "rocksdb:",
      "/var/lib/state",
      "etc:a:1/p",
      "etcd:",
      "etcd:a:1",
      "etcd:a:1/",
      "etcd:a:1//p",
      "etcd:a:1/p/",
      "etcd:a:1/p@q",
      "etcd:a:1/p q",
      "etcd:/p",
      "etcd:a/p",
      "etcd:a:/p",
      "etcd:a:0/p",
      "etcd:a:65536/p",
      "etcd:a:1,/p",
      "etcd:a:1,,b:1/p",
      "etcd:http://a:1/p",
      "etcd:a:1/" + std::string(129, 'p'),
  };
  for (const std::string& spec : specs) {
    const absl::Status status = OpenMetaStore(spec, Env::Real(), Clock::Real()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << spec << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("'" + spec + "'"));
  }
}

}  // namespace
}  // namespace sluice
