#include "cli/cluster/worker_devices.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class WorkerDevicesTest : public ::testing::Test {
 protected:
  WorkerDevicesTest() {
    unsetenv("SLUICE_DEVICE");
    unsetenv("CUDA_VISIBLE_DEVICES");
    spec_.name = "launch";
    spec_.flags = DeviceFlags();
  }
  ~WorkerDevicesTest() override { unsetenv("SLUICE_DEVICE"); }

  ParsedCommand Parse(const std::vector<std::string>& flags) { return *ParseCommand(spec_, flags); }
  std::string RefusedCount(const std::vector<std::string>& flags) {
    return std::string(WorkersOfGpus(Parse(flags)).status().message());
  }
  WorkerDevices Devices(const std::vector<std::string>& flags, uint32_t workers) {
    const auto devices = DevicesOfWorkers(Parse(flags), workers);
    EXPECT_TRUE(devices.ok()) << devices.status();
    return devices.ok() ? *devices : WorkerDevices();
  }
  // Returns the error of CheckDevices on a machine with `there` devices.
  static std::string Refused(const WorkerDevices& devices, int there) {
    std::vector<CudaDeviceInfo> list(there);
    for (int i = 0; i < there; ++i) list[i].ordinal = i, list[i].name = "Fake";
    return std::string(CheckDevices(devices, [&] { return list; }).message());
  }

  CommandSpec spec_;
};

TEST_F(WorkerDevicesTest, WorkersOnGpusComeBeforeWorkersOnTheCpu) {
  EXPECT_EQ(*WorkersOfGpus(Parse({"--gpus=0,2"})), 2u);
  const std::vector<std::string> mixed = {"--gpus=0,2", "--cpu_workers=2"};
  EXPECT_EQ(*WorkersOfGpus(Parse(mixed)), 4u);
  EXPECT_THAT(Devices(mixed, 4).by_rank, ElementsAre("cuda:0", "cuda:2", "cpu", "cpu"));
  EXPECT_THAT(std::string(DevicesOfWorkers(Parse(mixed), 3).status().message()),
              AllOf(StartsWith("--gpus=0,2: "), HasSubstr("--cpu_workers=2"),
                    HasSubstr("4 workers"), HasSubstr("worker_num 3")));
}

TEST_F(WorkerDevicesTest, WithoutGpusAllWorkersUseTheDeviceOfTheFlagOrTheVariable) {
  EXPECT_EQ(*WorkersOfGpus(Parse({})), 0u);
  EXPECT_THAT(Devices({}, 2).by_rank, ElementsAre("cpu", "cpu"));
  setenv("SLUICE_DEVICE", "auto", 1);
  EXPECT_THAT(Devices({}, 1).by_rank, ElementsAre("auto"));
  EXPECT_THAT(Devices({"--device=cuda"}, 1).by_rank, ElementsAre("cuda"));
  EXPECT_THAT(Devices({"--gpus=3"}, 1).by_rank, ElementsAre("cuda:3"));
  setenv("SLUICE_DEVICE", "gpu", 1);
  EXPECT_THAT(std::string(DevicesOfWorkers(Parse({}), 1).status().message()),
              AllOf(StartsWith("SLUICE_DEVICE=gpu: 'gpu'"), HasSubstr("cpu, cuda")));
}

TEST_F(WorkerDevicesTest, ContradictionsAndBadValuesAreRefused) {
  EXPECT_THAT(RefusedCount({"--gpus=0", "--device=cpu"}),
              AllOf(StartsWith("--gpus=0: "), HasSubstr("--device=cpu")));
  EXPECT_THAT(RefusedCount({"--cpu_workers=2"}),
              AllOf(HasSubstr("--gpus=LIST"), HasSubstr("--worker_num")));
  EXPECT_THAT(RefusedCount({"--gpus=0", "--cpu_workers=-1"}),
              AllOf(StartsWith("--cpu_workers=-1: "), HasSubstr("0 to 1000")));
  EXPECT_THAT(RefusedCount({"--gpus=0,x"}),
              AllOf(StartsWith("--gpus=0,x: 'x'"), HasSubstr("CUDA_VISIBLE_DEVICES"),
                    HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID")));
  EXPECT_THAT(RefusedCount({"--gpus=1,1"}), HasSubstr("device 1"));
  EXPECT_THAT(std::string(DevicesOfWorkers(Parse({"--device=gpu"}), 1).status().message()),
              StartsWith("--device=gpu: 'gpu'"));
}

TEST_F(WorkerDevicesTest, EachWorkerNeedsAnExistingDeviceOfItsOwn) {
  EXPECT_EQ(Refused(Devices({"--gpus=0,1", "--cpu_workers=5"}, 7), 2), "");
  EXPECT_EQ(Refused(Devices({"--device=cuda"}, 2), 2), "");
  EXPECT_EQ(Refused(Devices({"--device=auto"}, 9), 0), "");
  EXPECT_THAT(Refused(Devices({"--gpus=0,2"}, 2), 2),
              AllOf(StartsWith("--gpus=0,2: cuda:2 "), HasSubstr("cuda:0 (Fake), cuda:1 (Fake)")));
  EXPECT_THAT(Refused(Devices({"--device=cuda"}, 3), 1),
              AllOf(StartsWith("--device=cuda: 3 workers "), HasSubstr("only cuda:0")));
  EXPECT_THAT(Refused(Devices({"--device=cuda:0"}, 2), 2),
              AllOf(StartsWith("--device=cuda:0: 2 workers "), HasSubstr("--worker_num=1"),
                    HasSubstr("--gpus=LIST")));
  setenv("CUDA_VISIBLE_DEVICES", "3", 1);
  EXPECT_THAT(Refused(Devices({"--gpus=3"}, 1), 1), HasSubstr("CUDA_VISIBLE_DEVICES=\"3\""));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(WorkerDevicesTest, EachNumberedGpuOfAWorkerGetsALine) {
  std::vector<CudaDeviceInfo> there(2);
  for (int i = 0; i < 2; ++i) there[i].ordinal = i, there[i].name = "Fake", there[i].major = 9;
  const ListDevices list = [&] { return there; };
  std::string gpus;
  EXPECT_TRUE(CheckDevices(Devices({"--gpus=1,0", "--cpu_workers=1"}, 3), list, &gpus).ok());
  EXPECT_EQ(gpus, absl::StrCat("worker 0 on ", there[1].ToString(), "\nworker 1 on ",
                               there[0].ToString(), "\n"));
  gpus.clear();
  EXPECT_TRUE(CheckDevices(Devices({"--device=cuda"}, 2), list, &gpus).ok());
  EXPECT_EQ(gpus, "") << "each worker chooses its GPU itself";
}

TEST_F(WorkerDevicesTest, RuntimeIsAskedOnlyForCudaDevices) {
  const ListDevices none = [] { return absl::FailedPreconditionError("no driver"); };
  EXPECT_TRUE(CheckDevices(Devices({}, 2), none).ok());
  EXPECT_TRUE(CheckDevices(Devices({"--device=auto"}, 2), none).ok());
  const absl::Status refused = CheckDevices(Devices({"--gpus=0"}, 1), none);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), StartsWith("--gpus=0: no driver; "));
}

TEST_F(WorkerDevicesTest, WeightsOfValuesNeedTheCpu) {
  JobConfig job;
  job.add_features()->set_name("tags");
  const auto one = [] { return std::vector<CudaDeviceInfo>(1); };
  const auto none = []() -> absl::StatusOr<std::vector<CudaDeviceInfo>> {
    return absl::FailedPreconditionError("no driver");
  };
  const auto refused = [&](const char* device, const ListDevices& list) {
    const std::string flag = absl::StrCat("--device=", device);
    return std::string(CheckWeightsOnDevices(job, Devices({flag}, 1), list).message());
  };
  EXPECT_EQ(refused("cuda", one), "");
  job.mutable_features(0)->mutable_categorical()->set_weight_delimiter(":");
  for (const char* device : {"cuda", "cuda:0", "auto"}) {
    EXPECT_THAT(refused(device, one), AllOf(HasSubstr("\"tags\""), HasSubstr("--device=cpu")))
        << device;
  }
  EXPECT_EQ(refused("cpu", one), "");
  EXPECT_EQ(refused("auto", none), "") << "it computes on the CPU";
}

TEST_F(WorkerDevicesTest, SettingsOfGpusAreRefusedForWorkersOnTheCpu) {
  JobConfig job;
  job.mutable_train()->set_device_memory_fraction(0.5);
  EXPECT_THAT(std::string(CheckJobOnDevices(job, Devices({}, 2)).message()),
              StartsWith("train.device_memory_fraction: "));
  const WorkerDevices mixed = Devices({"--gpus=0", "--cpu_workers=1"}, 2);
  EXPECT_TRUE(CheckJobOnDevices(job, mixed).ok());
  EXPECT_TRUE(CheckJobOnDevices(job, Devices({"--device=auto"}, 2)).ok());
  job.mutable_train()->set_compute_dtype(TrainConfig::FP16);
  EXPECT_TRUE(CheckJobOnDevices(job, Devices({"--gpus=0,1"}, 2)).ok());
  EXPECT_THAT(std::string(CheckJobOnDevices(job, mixed).message()),
              StartsWith("train.compute_dtype: FP16"));
}

}  // namespace
}  // namespace sluice::cli
