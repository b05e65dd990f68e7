#include "common/config/address.h"
#include "common/config/closest_name.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string ClusterConfigRefusal(const std::string& text) {
  ClusterConfig cluster;
  const absl::Status parsed = ParseTextproto(text, "cluster", &cluster, nullptr);
  if (!parsed.ok()) return std::string(parsed.message());
  const absl::Status status = ValidateClusterConfig(WithDefaults(cluster));
  return std::string(status.message());
}

TEST(ClusterConfigTest, GoodClustersPass) {
  EXPECT_EQ(ClusterConfigRefusal(""), "");
  EXPECT_EQ(
      ClusterConfigRefusal(
          "scheduler: '127.0.0.1:7000' pservers: ['127.0.0.1:0', '127.0.0.1:0'] worker_num: 2"),
      "");
  EXPECT_EQ(ClusterConfigRefusal(
                "scheduler: '10.0.0.1:7000' pservers: 'host-2:7001' security { insecure: true }"),
            "");
  EXPECT_EQ(ClusterConfigRefusal(
                "scheduler: 'a:7000,b:7000' pservers: 'b:7001' security { insecure: true }"),
            "");
}

TEST(ClusterConfigTest, DefaultsMatchTheReference) {
  const ClusterConfig cluster = WithDefaults(ClusterConfig());
  EXPECT_EQ(cluster.limits().lease_ms(), 10000);
  EXPECT_EQ(cluster.limits().heartbeat_ms(), 1000);
  EXPECT_EQ(cluster.limits().wait_s(), 120);
  EXPECT_EQ(cluster.limits().max_message_mib(), 64);
  EXPECT_EQ(cluster.limits().max_streams(), 1024);
  ClusterConfig large;
  large.set_worker_num(2000);
  large.add_pservers();
  EXPECT_EQ(WithDefaults(large).limits().max_streams(), 4002);
}

TEST(ClusterConfigTest, BadValuesAreRefusedWithFieldAndFix) {
  EXPECT_THAT(ClusterConfigRefusal("version: 3"), HasSubstr("version: 3"));
  EXPECT_EQ(ClusterConfigRefusal("security { data_root: '/a' output_root: '/b' }"), "");
  EXPECT_EQ(ClusterConfigRefusal("security { data_root: 'https://h/a' output_root: 's3://b/c' }"),
            "");
  EXPECT_THAT(ClusterConfigRefusal("security { output_root: 'https://h/a' }"),
              HasSubstr("output_root[0]: 'https://h/a'"));
  EXPECT_THAT(ClusterConfigRefusal("security { output_root: '/b' output_root: 'c' }"),
              HasSubstr("output_root[1]: 'c'"));
  EXPECT_THAT(ClusterConfigRefusal("security { data_root: '/a' }"), HasSubstr("--output_root"));
  EXPECT_THAT(ClusterConfigRefusal("scheduler: '127.0.0.1'"), HasSubstr("scheduler: '127.0.0.1'"));
  EXPECT_THAT(ClusterConfigRefusal("scheduler: '10.0.0.1:7000'"), HasSubstr("insecure: true"));
  EXPECT_THAT(ClusterConfigRefusal("pservers: ['127.0.0.1:70', '127.0.0.1:70']"),
              HasSubstr("pservers[1]: '127.0.0.1:70'"));
  EXPECT_THAT(ClusterConfigRefusal("scheduler: '127.0.0.1:70' pservers: '127.0.0.1:70'"),
              HasSubstr("pservers[0]"));
  EXPECT_THAT(
      ClusterConfigRefusal("scheduler: '127.0.0.1:69,127.0.0.1:70' pservers: '127.0.0.1:70'"),
      HasSubstr("pservers[0]"));
  EXPECT_THAT(ClusterConfigRefusal("scheduler: '127.0.0.1:70,b:70'"), HasSubstr("insecure: true"));
  EXPECT_THAT(ClusterConfigRefusal("limits { lease_ms: 1000 heartbeat_ms: 900 }"),
              HasSubstr("at most 500"));
  EXPECT_THAT(ClusterConfigRefusal("limits { max_message_mib: 1 }"),
              HasSubstr("limits.max_message_mib: 1"));
  EXPECT_THAT(ClusterConfigRefusal("limits { wait_s: 0 }"), HasSubstr("limits.wait_s: 0"));
  EXPECT_THAT(ClusterConfigRefusal("worker_num: 1 transport: 'tcp'"),
              HasSubstr("transport: 'tcp'"));
  EXPECT_EQ(ClusterConfigRefusal("worker_num: 1 transport: 'shm'"), "");
  EXPECT_THAT(ClusterConfigRefusal("worker_num: 1 worker_devices: 'gpu'"),
              HasSubstr("worker_devices[0]: 'gpu'"));
  EXPECT_THAT(ClusterConfigRefusal("worker_num: 1 worker_devices: ['cpu', 'cuda']"),
              HasSubstr("2 devices for 1 worker slots"));
  EXPECT_THAT(ClusterConfigRefusal("workernum: 2"), HasSubstr("did you mean 'worker_num'?"));
}

TEST(AddressTest, HostAndPortAreSeparated) {
  EXPECT_EQ(ParseAddress("host:80")->host, "host");
  EXPECT_EQ(ParseAddress("[::1]:80")->host, "::1");
  EXPECT_EQ(ParseAddress("[::1]:80")->port, 80);
  EXPECT_EQ(ToText({"::1", 80}), "[::1]:80");
  for (const char* bad : {"", ":", "a", "a:", ":80", "a:b", "a:65536", "a:-1", "a:+1", "::1:80",
                          "a b:1", "a/b:1", "[:80"}) {
    EXPECT_FALSE(ParseAddress(bad).ok()) << bad;
  }
}

TEST(AddressTest, LoopbackIsNumbersOrTheKnownName) {
  EXPECT_TRUE(IsLoopback("127.0.0.1"));
  EXPECT_TRUE(IsLoopback("127.1.2.3"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_TRUE(IsLoopback("localhost"));
  EXPECT_FALSE(IsLoopback("127.example.com"));
  EXPECT_FALSE(IsLoopback("0.0.0.0"));
  EXPECT_FALSE(IsLoopback("10.0.0.1"));
}

TEST(ClosestNameTest, NearNamesAreFoundAndFarOnesAreNot) {
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("trian", "train"), 1);
  EXPECT_EQ(ClosestName("batchsize", {"epochs", "batch_size"}), "batch_size");
  EXPECT_EQ(ClosestName("zzz", {"epochs", "batch_size"}), "");
  // Two more characters are a third of the word, three are too many.
  EXPECT_EQ(ClosestName("batch_si", {"epochs", "batch_size"}), "batch_size");
  EXPECT_EQ(ClosestName("batch_s", {"epochs", "batch_size"}), "");
}

}  // namespace
}  // namespace sluice
