#include "model/table_files/npy.h"

#include <memory>

#include "gmock/gmock.h"
#include "model/table_files/byte_stream.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StringStream : public ByteStream {
 public:
  explicit StringStream(std::string bytes) : bytes_(std::move(bytes)) {}
  absl::StatusOr<size_t> Read(void* to, size_t n) override {
    const size_t got = bytes_.copy(static_cast<char*>(to), n, at_);
    at_ += got;
    return got;
  }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

absl::StatusOr<NpyHeader> Parse(const std::string& dictionary) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  const uint16_t length = static_cast<uint16_t>(dictionary.size());
  bytes.append(reinterpret_cast<const char*>(&length), 2);
  StringStream stream(bytes + dictionary);
  return ReadNpyHeader(&stream);
}

TEST(NpyTest, WhatIsWrittenIsRead) {
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{}, {5}, {5, 3}, {12345678901, 16}}) {
    const std::string bytes = EncodeNpyHeader("<f4", shape);
    EXPECT_EQ(bytes.size() % 64, 0u);
    StringStream stream(bytes);
    const auto header = ReadNpyHeader(&stream);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->shape, shape);
    EXPECT_EQ(header->kind, 'f');
    EXPECT_EQ(header->item_bytes, 4u);
  }
}

TEST(NpyTest, HeadersOfOtherWritersAreRead) {
  const auto header = Parse("{'shape':(3,),'fortran_order':True,'descr':'|S5'}\n");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->shape, ElementsAre(3));
  EXPECT_EQ(header->item_bytes, 5u);
  EXPECT_EQ(Parse("{'descr': '<U7', 'fortran_order': False, 'shape': (2,), }")->item_bytes, 28u);
}

TEST(NpyTest, OtherArraysAreRefusedWithAWayOut) {
  const auto refused = [](const std::string& dictionary) {
    const auto header = Parse(dictionary);
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << dictionary;
    return std::string(header.status().message());
  };
  EXPECT_THAT(refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}"),
              HasSubstr("little-endian"));
  EXPECT_THAT(refused("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}"), HasSubstr("|O"));
  EXPECT_THAT(refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}"),
              HasSubstr("ascontiguousarray"));
  EXPECT_THAT(refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}"),
              HasSubstr("fields"));
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 2)}");
  refused("{'descr': '<f4', 'fortran_order': False}");
  refused("");
  StringStream cut(EncodeNpyHeader("<f4", {3}).substr(0, 40));
  EXPECT_FALSE(ReadNpyHeader(&cut).ok());
}

}  // namespace
}  // namespace sluice
