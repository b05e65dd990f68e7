#include "common/wire/frame.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Flat(const Message& message) {
  std::string bytes;
  for (const Slice& s : message) bytes.append(reinterpret_cast<const char*>(s.data()), s.size());
  return bytes;
}

// Every slice is a heap block of its own, so that the address sanitizer reports reads beyond it.
Message Cut(const std::string& bytes, size_t piece) {
  Message message;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    message.push_back(Slice::FromString(bytes.substr(i, piece)));
  }
  return message;
}

Message CutAtRandom(const std::string& bytes, std::mt19937* random) {
  Message message;
  for (size_t i = 0; i < bytes.size();) {
    const size_t n = (*random)() % 8;  // 0: empty slices are legal
    message.push_back(Slice::FromString(bytes.substr(i, n)));
    i += n;
  }
  return message;
}

FrameHeader SampleHeader() {
  FrameHeader header;
  header.set_request_id(300);
  header.set_generation(7);
  header.set_last(true);
  header.mutable_push()->set_sequence(12);
  header.mutable_push()->set_weight(128.5);
  for (uint32_t i = 0; i < 40; ++i) {
    header.mutable_push()->mutable_parts()->add_table(i);
    header.mutable_push()->mutable_parts()->add_shard(i * 3);
    header.mutable_push()->mutable_parts()->add_rows(i * 1000);
  }
  return header;
}

ReplyHeader SampleReply() {
  ReplyHeader header;
  header.set_request_id(300);
  header.set_last(true);
  header.set_code(9);
  header.set_message("generation 6 is not 7");
  return header;
}

std::string ReadAll(PayloadReader* reader) {
  std::string bytes(reader->remaining(), '\0');
  reader->Copy(&bytes[0], bytes.size());
  return bytes;
}

TEST(FrameTest, GeneratedMessageReadsWhatWeEncode) {
  const std::string payload = "raw bytes of values";
  Frame frame;
  ASSERT_TRUE(
      frame.ParseFromString(Flat(EncodeFrame(SampleHeader(), {Slice::FromString(payload)}))));
  EXPECT_EQ(frame.magic(), kFrameMagic);
  EXPECT_EQ(frame.header().SerializeAsString(), SampleHeader().SerializeAsString());
  EXPECT_EQ(frame.payload(), payload);

  ReplyFrame reply;
  ASSERT_TRUE(
      reply.ParseFromString(Flat(EncodeReply(SampleReply(), {Slice::FromString(payload)}))));
  EXPECT_EQ(reply.header().message(), "generation 6 is not 7");
  EXPECT_EQ(reply.payload(), payload);
}

TEST(FrameTest, EncodesTheBytesOfTheGeneratedMessage) {
  Frame frame;
  frame.set_magic(kFrameMagic);
  *frame.mutable_header() = SampleHeader();
  EXPECT_EQ(Flat(EncodeFrame(SampleHeader(), {})), frame.SerializeAsString());
  frame.set_payload(std::string(70000, 'x'));
  EXPECT_EQ(Flat(EncodeFrame(SampleHeader(), {Slice::FromString(frame.payload())})),
            frame.SerializeAsString());
  EXPECT_EQ(Flat(EncodeFrame(FrameHeader(), {})), std::string("\x0D\x53\x4C\x55\x31\x12\x00", 7));
}

TEST(FrameTest, DecodesTheGeneratedMessageInSlicesOfAnySize) {
  Frame frame;
  frame.set_magic(kFrameMagic);
  *frame.mutable_header() = SampleHeader();
  frame.set_payload("0123456789abcdefghij");
  for (size_t piece = 1; piece <= 7; ++piece) {
    auto decoded = DecodeFrame(Cut(frame.SerializeAsString(), piece));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->header.SerializeAsString(), SampleHeader().SerializeAsString());
    EXPECT_EQ(ReadAll(&decoded->payload), "0123456789abcdefghij");
  }
  ReplyFrame reply;
  reply.set_magic(kFrameMagic);
  *reply.mutable_header() = SampleReply();
  for (size_t piece = 1; piece <= 7; ++piece) {
    auto decoded = DecodeReply(Cut(reply.SerializeAsString(), piece));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->header.code(), 9);
    EXPECT_EQ(decoded->payload.remaining(), 0u);
  }
}

TEST(FrameTest, PayloadSlicesAreSharedNotCopied) {
  const Slice first = Slice::FromString("first"), second = Slice::FromString("second");
  const Message message = EncodeFrame(SampleHeader(), {first, second});
  ASSERT_EQ(message.size(), 3u);
  EXPECT_EQ(message[1].data(), first.data());
  EXPECT_EQ(message[2].data(), second.data());
  auto decoded = DecodeFrame(message);
  ASSERT_TRUE(decoded.ok());
  size_t size;
  EXPECT_EQ(decoded->payload.Piece(100, &size), first.data());
  EXPECT_EQ(size, 5u);
}

std::string ErrorOf(const std::string& bytes) {
  auto decoded = DecodeFrame(Cut(bytes, 3));
  if (decoded.ok()) return "";
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

TEST(FrameTest, ErrorsNameTheWrongBytes) {
  const std::string magic = "\x0D\x53\x4C\x55\x31";
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("\x16\x03\x01"),
              AllOf(HasSubstr("0x16"), HasSubstr("0x0d"), HasSubstr("TLS")));
  EXPECT_THAT(ErrorOf("GET / HTTP/1.1"), AllOf(HasSubstr("0x47"), Not(HasSubstr("TLS"))));
  EXPECT_THAT(ErrorOf("\x0D\x53\x4C\x55\x32\x12"), HasSubstr("magic 0x32554c53"));
  EXPECT_THAT(ErrorOf("\x0D\x53"), HasSubstr("magic"));
  EXPECT_THAT(ErrorOf(magic), HasSubstr("header"));
  EXPECT_THAT(ErrorOf(magic + "\x1A"),
              AllOf(HasSubstr("header"), HasSubstr("0x1a"), HasSubstr("0x12")));
  EXPECT_THAT(ErrorOf(magic + "\x12\x80\x80"),
              AllOf(HasSubstr("length"), HasSubstr("header"), HasSubstr("2 bytes")));
  EXPECT_THAT(ErrorOf(magic + "\x12" + std::string(11, '\x80')), HasSubstr("10 bytes"));
  const std::string limit = std::to_string(kMaxHeaderBytes);
  EXPECT_THAT(ErrorOf(magic + "\x12\x81\x80\x40"),
              AllOf(HasSubstr("header"), HasSubstr("1048577 bytes"), HasSubstr(limit)));
  EXPECT_THAT(ErrorOf(magic + "\x12" + std::string(9, '\xFF') + "\x01"), HasSubstr(limit));
  EXPECT_THAT(ErrorOf(magic + "\x12\x05" + "ab"),
              AllOf(HasSubstr("header"), HasSubstr("5 bytes"), HasSubstr("only 2")));
  EXPECT_THAT(ErrorOf(magic + "\x12\x02\xFF\xFF"), HasSubstr("sluice.FrameHeader"));
  EXPECT_THAT(ErrorOf(magic + std::string("\x12\x00", 2) + "\x12"),
              AllOf(HasSubstr("payload"), HasSubstr("0x1a"), HasSubstr("0x12")));
  EXPECT_THAT(ErrorOf(magic + std::string("\x12\x00", 2) + "\x1A\x03xx"),
              AllOf(HasSubstr("payload"), HasSubstr("3 bytes"), HasSubstr("2 follow")));
  EXPECT_THAT(ErrorOf(magic + std::string("\x12\x00", 2) + "\x1A\x03xxxx"),
              AllOf(HasSubstr("payload"), HasSubstr("3 bytes"), HasSubstr("4 follow")));
  EXPECT_EQ(ErrorOf(magic + std::string("\x12\x00\x1A\x00", 4)), "");
}

TEST(FrameTest, RandomAndMutatedBytesNeverCrash) {
  const unsigned seed = 20240817;
  std::mt19937 random(seed);
  const std::string good =
      Flat(EncodeFrame(SampleHeader(), {Slice::FromString(std::string(50, 'v'))}));
  size_t accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    if (round % 4 == 0) {
      bytes.resize(random() % 64);
      for (char& c : bytes) c = static_cast<char>(random());
      if (round % 8 == 0 && bytes.size() > 6) bytes.replace(0, 6, good, 0, 6);
    } else {
      bytes = good.substr(0, round % 3 == 0 ? random() % good.size() : good.size());
      for (unsigned i = random() % 4; i > 0 && !bytes.empty(); --i) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    }
    auto frame = DecodeFrame(CutAtRandom(bytes, &random));
    auto reply = DecodeReply(CutAtRandom(bytes, &random));
    if (frame.ok()) {
      ++accepted;
      ASSERT_LE(ReadAll(&frame->payload).size(), bytes.size()) << "seed " << seed;
    } else {
      ASSERT_EQ(frame.status().code(), absl::StatusCode::kInvalidArgument);
    }
    if (reply.ok()) ReadAll(&reply->payload);
  }
  EXPECT_GT(accepted, 50u);  // a frame whose values were mutated is still legal
}

TEST(PayloadReaderTest, SkipAndPieceWalkAcrossSlices) {
  PayloadReader reader({Slice(), Slice::FromString("abc"), Slice(), Slice::FromString("defg")});
  ASSERT_EQ(reader.remaining(), 7u);
  size_t size;
  const uint8_t* piece = reader.Piece(2, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(piece), size), "ab");
  reader.Skip(2);
  piece = reader.Piece(100, &size);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(piece), size), "efg");
  EXPECT_EQ(reader.Piece(1, &size), nullptr);
  EXPECT_EQ(size, 0u);
  reader.Skip(10);
  EXPECT_EQ(reader.remaining(), 0u);
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

TEST(Bf16Test, RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(0.0f), 0x0000);
  EXPECT_EQ(FloatToBf16(-0.0f), 0x8000);
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(-2.5f), 0xC020);
  EXPECT_EQ(FloatToBf16(FromBits(0x3F808000)), 0x3F80);  // halfway; the even value is below
  EXPECT_EQ(FloatToBf16(FromBits(0x3F818000)), 0x3F82);  // halfway; the even value is above
  EXPECT_EQ(FloatToBf16(FromBits(0x3F808001)), 0x3F81);
  EXPECT_EQ(FloatToBf16(FromBits(0x3F807FFF)), 0x3F80);
  EXPECT_EQ(FloatToBf16(FromBits(0x3FFFFFFF)), 0x4000);  // carries into the exponent
  EXPECT_EQ(FloatToBf16(FromBits(0x00018000)), 0x0002);  // subnormal
  EXPECT_EQ(FloatToBf16(FromBits(0x7F7FFFFF)), 0x7F80);  // beyond the largest: Inf, as IEEE rounds
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::infinity()), 0x7F80);
  EXPECT_EQ(FloatToBf16(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(FromBits(0x7F800001)))));  // low bits only
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(FromBits(0xFFFFFFFF)))));
}

TEST(Bf16Test, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToBf16(value), bits);
  }
}

std::vector<float> Values(size_t n) {
  std::vector<float> values(n);
  std::mt19937 random(5);
  for (float& v : values) v = static_cast<float>(random()) / 1e9f - 2.0f;
  return values;
}

TEST(ValuesTest, ValuesStraddlingSlicesAreRead) {
  const std::vector<float> values = Values(101);
  for (uint32_t wire_bytes : {2u, 4u}) {
    const std::string bytes = Flat({ValuesSlice(values.data(), 101, wire_bytes, nullptr)});
    ASSERT_EQ(bytes.size(), 101 * wire_bytes);
    for (size_t piece = 1; piece <= 9; ++piece) {
      PayloadReader reader(Cut("?" + bytes + "!", piece));
      reader.Skip(1);
      std::vector<float> got(101, -1.0f);
      ASSERT_TRUE(ReadValues(&reader, wire_bytes, 101, got.data()));
      EXPECT_EQ(reader.remaining(), 1u);
      for (size_t i = 0; i < got.size(); ++i) {
        const float want = wire_bytes == 4 ? values[i] : Bf16ToFloat(FloatToBf16(values[i]));
        ASSERT_EQ(got[i], want) << i << " in slices of " << piece;
      }
    }
  }
}

TEST(ValuesTest, FindsEveryValueThatIsNotFinite) {
  const float bad[] = {std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN(), FromBits(0x7F800001)};
  for (uint32_t wire_bytes : {2u, 4u}) {
    for (size_t at = 0; at < 37; ++at) {
      std::vector<float> values = Values(37), got(37);
      values[at] = bad[at % 4];
      EXPECT_FALSE(AllFinite(values.data(), values.size())) << at;
      const std::string bytes = Flat({ValuesSlice(values.data(), 37, wire_bytes, nullptr)});
      for (size_t piece : {3u, 5u, 1000u}) {
        PayloadReader reader(Cut(bytes, piece));
        EXPECT_FALSE(ReadValues(&reader, wire_bytes, 37, got.data())) << at;
        EXPECT_EQ(reader.remaining(), 0u);
      }
    }
  }
  // Finite values pass even when their bits together cover the whole exponent.
  std::vector<float> edge = {FromBits(0x7F7FFFFF), FromBits(0x00800000), FromBits(0xFF7FFFFF)},
                     got(3);
  PayloadReader reader({ValuesSlice(edge.data(), 3, 4, nullptr)});
  EXPECT_TRUE(ReadValues(&reader, 4, 3, got.data()));
  EXPECT_EQ(got, edge);
  EXPECT_TRUE(AllFinite(edge.data(), 3));
}

TEST(ValuesTest, RefusesAShortPayload) {
  float got[4];
  PayloadReader reader({Slice::FromString(std::string(15, '\0'))});
  EXPECT_FALSE(ReadValues(&reader, 4, 4, got));
  EXPECT_EQ(reader.remaining(), 15u);
  EXPECT_FALSE(ReadValues(&reader, 4, std::numeric_limits<size_t>::max() / 2, got));
}

TEST(ValuesTest, FourByteSliceSharesItsOwner) {
  auto owner = std::make_shared<std::vector<float>>(Values(8));
  const Slice slice = ValuesSlice(owner->data(), 8, 4, owner);
  EXPECT_EQ(static_cast<const void*>(slice.data()), static_cast<const void*>(owner->data()));
  EXPECT_EQ(owner.use_count(), 2);
}

}  // namespace
}  // namespace sluice
