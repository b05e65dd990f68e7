// Checks which device a worker takes, on imaginary machines.
#include "worker/service/worker_device.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WorkerDeviceTest : public ::testing::Test {
 protected:
  // `number` devices with UUIDs of this process.
  explicit WorkerDeviceTest(int number = 2) {
    for (int i = 0; i < number; ++i) {
      CudaDeviceInfo info;
      info.ordinal = i;
      info.name = "Fake";
      info.uuid = absl::StrCat("GPU-test-", getpid(), "-", i);
      info.major = 9;
      info.driver = info.runtime = 13000;
      info.total_bytes = size_t{80} << 30;
      there_.push_back(info);
    }
    devices_.list = [this]() -> absl::StatusOr<std::vector<CudaDeviceInfo>> {
      if (!listed_.ok()) return listed_;
      return there_;
    };
    devices_.open = [this](int ordinal) -> absl::StatusOr<CudaDeviceInfo> {
      opened_.push_back(ordinal);
      if (ordinal >= static_cast<int>(there_.size())) return absl::NotFoundError("only two");
      if (ordinal == broken_) return absl::FailedPreconditionError("is broken");
      return there_[ordinal];
    };
  }
  absl::StatusOr<WorkerDevice> Take(const char* request) {
    return TakeDevice(*ParseDeviceRequest(request), devices_);
  }
  // Expects an error with `code` that says why and offers the CPU.
  static void ExpectNotTaken(const absl::StatusOr<WorkerDevice>& taken, absl::StatusCode code,
                             const char* why) {
    EXPECT_EQ(taken.status().code(), code);
    EXPECT_THAT(Name(taken), AllOf(HasSubstr(why), HasSubstr("--device=cpu")));
  }
  // Returns "cpu", "cuda:0" or the error.
  static std::string Name(const absl::StatusOr<WorkerDevice>& taken) {
    return taken.ok() ? NameOf(taken->device) : std::string(taken.status().message());
  }

  std::vector<CudaDeviceInfo> there_;
  absl::Status listed_;
  int broken_ = -1;
  std::vector<int> opened_;
  CudaDevices devices_;
};

TEST_F(WorkerDeviceTest, EachWorkerGetsTheNextFreeDevice) {
  const auto first = Take("cuda");
  ASSERT_EQ(Name(first), "cuda:0");
  EXPECT_THAT(first->line, AllOf(HasSubstr("cuda:0: Fake"), HasSubstr("80.0 GiB")));
  {
    const auto second = Take("cuda");
    ASSERT_EQ(Name(second), "cuda:1");
    const auto third = Take("cuda");
    EXPECT_EQ(third.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Name(third), AllOf(HasSubstr("cuda:0 (Fake)"), HasSubstr("cuda:1 (Fake)"),
                                   HasSubstr("--device=cpu")));
  }
  EXPECT_EQ(Name(Take("cuda")), "cuda:1");  // its worker has ended
}

TEST_F(WorkerDeviceTest, TakesANamedDeviceOrFails) {
  const auto second = Take("cuda:1");
  ASSERT_EQ(Name(second), "cuda:1");
  const auto again = Take("cuda:1");
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Name(again), AllOf(HasSubstr("cuda:1 (Fake)"), HasSubstr("another worker"),
                                 HasSubstr("--device=cuda")));
  EXPECT_EQ(Name(Take("cuda")), "cuda:0");
  ExpectNotTaken(Take("cuda:2"), absl::StatusCode::kNotFound, "only two");
}

// The same device has another ordinal in a process with another CUDA_VISIBLE_DEVICES.
TEST_F(WorkerDeviceTest, IdentifiesADeviceByItsUuid) {
  const auto first = Take("cuda:0");
  ASSERT_EQ(Name(first), "cuda:0");
  std::swap(there_[0].uuid, there_[1].uuid);
  EXPECT_EQ(Name(Take("cuda")), "cuda:0");
  EXPECT_THAT(Name(Take("cuda:1")), HasSubstr("another worker"));
}

TEST_F(WorkerDeviceTest, ReleasesAnUnusableDeviceAndTakesTheNextOne) {
  broken_ = 0;
  EXPECT_EQ(Name(Take("cuda")), "cuda:1");
  ExpectNotTaken(Take("cuda:0"), absl::StatusCode::kFailedPrecondition, "is broken");
  broken_ = -1;
  EXPECT_EQ(Name(Take("cuda:0")), "cuda:0");
}

TEST_F(WorkerDeviceTest, AutoTakesADeviceOrTheCpuAndSaysWhy) {
  const auto first = Take("auto");
  ASSERT_EQ(Name(first), "cuda:0");
  EXPECT_THAT(first->line, HasSubstr("device auto"));
  const auto second = Take("auto");
  ASSERT_EQ(Name(second), "cuda:1");
  const auto third = Take("auto");
  ASSERT_EQ(Name(third), "cpu");
  EXPECT_THAT(third->line, Not(HasSubstr("--device=cpu")));  // it is on the CPU already
  EXPECT_THAT(third->line, AllOf(HasSubstr("device auto"), HasSubstr("cuda:0 (Fake)")));
  listed_ = absl::FailedPreconditionError("no driver");
  const auto without_driver = Take("auto");
  EXPECT_EQ(Name(without_driver), "cpu");
  EXPECT_THAT(without_driver->line, HasSubstr("no driver"));
}

TEST_F(WorkerDeviceTest, ReturnsTheRuntimesErrorWithoutADriver) {
  listed_ = absl::FailedPreconditionError("no driver");
  ExpectNotTaken(Take("cuda"), absl::StatusCode::kFailedPrecondition, "no driver");
  ExpectNotTaken(Take("cuda:0"), absl::StatusCode::kFailedPrecondition, "no driver");
  DeviceRequest request = *ParseDeviceRequest("cuda");
  request.origin = "--device=cuda";
  ExpectNotTaken(TakeDevice(request, devices_), absl::StatusCode::kFailedPrecondition,
                 "--device=cuda: no driver");
}

TEST_F(WorkerDeviceTest, CpuDoesNotListDevices) {
  listed_ = absl::InternalError("must not be asked");
  const auto cpu = Take("cpu");
  EXPECT_EQ(Name(cpu), "cpu");
  EXPECT_TRUE(opened_.empty());
}

}  // namespace
}  // namespace sluice
