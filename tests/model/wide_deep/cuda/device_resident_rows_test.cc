// Tests rows that stay on the device, with the device's own classes on an emulated device. A step
// that reads rows by slot gives the same bits as a step that uploads them.
#include "model/wide_deep/cuda/device_resident_rows.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "tests/model/wide_deep/cuda/emulated_tables.h"
#include "tests/model/wide_deep/cuda/resident_cases.h"

namespace sluice::cuda {
namespace {

MakeNet EmulatedRowsDevice(Element element = Element::kF32) {
  return [element](const WideDeepShape& shape) {
    return std::make_unique<EmulatedNet>(shape, element);
  };
}

TEST(DeviceResidentRowsTest, AStepGivesTheSameBitsAsWithUploadedRows) {
  for (const size_t rows : {1, 31, 32, 33, 257})
    ExpectResidentRowsGiveTheSameBits(EmulatedRowsDevice(), SmallShape(), 20, rows, 1);
}

TEST(DeviceResidentRowsTest, SixteenBitsDropoutAndOddWidthsGiveTheSameBits) {
  WideDeepShape shape = WideShape({33, 20}, 17);
  shape.dropout = 0.4f;
  for (const Element element : {Element::kF32, Element::kBf16, Element::kFp16})
    ExpectResidentRowsGiveTheSameBits(EmulatedRowsDevice(element), shape, 10, 100, 1);
}

TEST(DeviceResidentRowsTest, TheLastWriteIsRead) { ExpectTheLastWriteIsRead(EmulatedRowsDevice()); }

TEST(DeviceResidentRowsTest, MissingSlotsAreRefused) {
  ExpectSlotsThatAreNotThereAreRefused(EmulatedRowsDevice());
}

TEST(DeviceResidentRowsTest, RowsThatDoNotFitAreRefused) {
  EmulatedNet net(SmallShape());
  net.table_device = [] {
    auto memory = std::make_shared<EmulatedMemory>();
    memory->limit = 1000;
    return std::make_unique<EmulatedTableDevice>(std::move(memory));
  };
  EXPECT_TRUE(net.MakeResidentRows(0, 62).ok());  // rows of 4 floats
  EXPECT_EQ(net.MakeResidentRows(0, 63).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sluice::cuda
