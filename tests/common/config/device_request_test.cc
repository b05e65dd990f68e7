#include "common/config/device_request.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DeviceRequestTest, EachKindOfRequestIsParsed) {
  EXPECT_EQ(ParseDeviceRequest("cpu")->kind, DeviceRequest::kCpu);
  EXPECT_EQ(ParseDeviceRequest("auto")->kind, DeviceRequest::kAuto);
  EXPECT_EQ(ParseDeviceRequest("cuda")->kind, DeviceRequest::kNextCuda);
  const auto second = ParseDeviceRequest("cuda:12");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->kind, DeviceRequest::kCuda);
  EXPECT_EQ(second->ordinal, 12);
}

TEST(DeviceRequestTest, OtherWordsAreRefusedWithTheChoices) {
  for (const char* text : {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:+1", "cuda: 1", "cuda:x",
                           "cuda:1024", "cuda:99999999999", "cuda:0,1", "auto "}) {
    const absl::Status status = ParseDeviceRequest(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:N"));
  }
}

TEST(DeviceRequestTest, ListsRefuseDuplicates) {
  EXPECT_THAT(*ParseDeviceList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseDeviceList("2,0,11"), ElementsAre(2, 0, 11));
  EXPECT_THAT(std::string(ParseDeviceList("0,1,0").status().message()), HasSubstr("device 0"));
  for (const char* text : {"", ",", "0,", "0,x", "0-3", "all", "-1", "0, 1", "cuda:0"}) {
    EXPECT_EQ(ParseDeviceList(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice
