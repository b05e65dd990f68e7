#include "common/wire/frame.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>

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

TEST(FrameTest, AHeaderThatWouldTakeMuchMemoryIsRefused) {
  const auto decoded = [](int parts, auto set) {
    FrameHeader header;
    for (int i = 0; i < parts; ++i) set(header.mutable_hello()->add_acknowledged());
    EXPECT_LE(header.ByteSizeLong(), kMaxHeaderBytes);
    EXPECT_GT(header.ByteSizeLong(), kMaxHeaderBytes / 2);
    return DecodeFrame(EncodeFrame(header, {}));
  };
  const auto empty = decoded(500000, [](Acknowledged*) {});
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(empty.status().message()), HasSubstr("memory"));
  // As long a header of what a rank may say.
  const auto full = decoded(45000, [](Acknowledged* part) {
    part->mutable_position()->set_incarnation(1000);
    part->mutable_position()->set_sequence(1000000);
    part->add_table(1);
    part->add_shard(70000);
  });
  EXPECT_TRUE(full.ok()) << full.status();
}

// `message` and all messages that may be in it.
void AddTypes(const google::protobuf::Message& message,
              std::set<const google::protobuf::Message*>* types) {
  if (!types->insert(&message).second) return;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* const part = message.GetDescriptor()->field(i)->message_type();
    if (part == nullptr) continue;
    AddTypes(*google::protobuf::MessageFactory::generated_factory()->GetPrototype(part), types);
  }
}

TEST(FrameTest, ShortHeadersNeedNoCheck) {
  std::set<const google::protobuf::Message*> types;
  AddTypes(FrameHeader::default_instance(), &types);
  AddTypes(ReplyHeader::default_instance(), &types);
  AddTypes(ReplicaHeader::default_instance(), &types);
  EXPECT_GT(types.size(), 10u);
  for (const auto* const type : types) {
    const size_t in_a_list = type->SpaceUsedLong() + 4 * sizeof(void*);
    EXPECT_LT(in_a_list, 256u) << type->GetTypeName();
  }
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

// Bytes that a peer can still write, in slices of at most `piece` bytes.
class LentBytes {
 public:
  LentBytes(std::string bytes, size_t piece) : bytes_(std::move(bytes)) {
    for (size_t at = 0; at < bytes_.size(); at += piece)
      slices_.emplace_back(bytes_.data() + at, std::min(piece, bytes_.size() - at), nullptr);
  }
  LentMessage message() const { return LentMessage(slices_); }
  void Overwrite() { std::fill(bytes_.begin(), bytes_.end(), '\xFF'); }
  char* data() { return bytes_.data(); }

 private:
  std::string bytes_;
  Message slices_;
};

TEST(LentMessageTest, HeadersAndKeptBytesOutliveTheLoan) {
  FrameHeader header;
  header.set_request_id(77);
  header.mutable_hello()->set_job_id("job-of-a-peer");
  const std::string bytes = Flat(EncodeFrame(header, {Slice::FromString("keys and values")}));
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    LentBytes lent(bytes, piece);
    absl::StatusOr<DecodedFrame> frame = DecodeLentFrame(lent.message());
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_TRUE(frame->payload.lent());
    EXPECT_EQ(frame->payload.remaining(), 15u);
    frame->payload.Skip(9);
    const Message kept = frame->payload.Keep(6);
    const Message copy = lent.message().Copy();
    lent.Overwrite();
    EXPECT_EQ(Flat(kept), "values");
    EXPECT_EQ(Flat(copy), bytes);
    EXPECT_EQ(frame->header.SerializeAsString(), header.SerializeAsString());
  }
}

TEST(LentMessageTest, AReplyIsDecodedAsWhenItIsNotLent) {
  ReplyHeader header;
  header.set_request_id(5);
  header.set_last(true);
  const std::string bytes = Flat(EncodeReply(header, {Slice::FromString("x")}));
  LentBytes lent(bytes, 1000), garbled("\x16 what is this", 1000);
  const absl::StatusOr<DecodedReply> reply = DecodeLentReply(lent.message());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->header.SerializeAsString(), header.SerializeAsString());
  EXPECT_EQ(DecodeLentReply(garbled.message()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LentMessageTest, ValuesAreThoseOfAMessageThatIsNotLent) {
  for (const uint32_t wire_bytes : {2u, 4u}) {
    for (const size_t n : {1u, 2047u, 2048u, 2049u, 10000u}) {
      std::vector<float> values = Values(n);
      for (const bool finite : {true, false}) {
        if (!finite) values[n * 3 / 4] = std::numeric_limits<float>::quiet_NaN();
        const std::string bytes = Flat({ValuesSlice(values.data(), n, wire_bytes, nullptr)});
        for (const size_t piece : {7u, 3001u, 1u << 20}) {
          std::vector<float> want(n), got(n);
          PayloadReader in_message({Slice::FromString(bytes)});
          ReadValues(&in_message, wire_bytes, n, want.data());
          LentBytes lent(bytes + "behind", piece);
          PayloadReader reader(lent.message());
          EXPECT_EQ(ReadValues(&reader, wire_bytes, n, got.data()), finite) << n;
          EXPECT_EQ(reader.remaining(), 6u);
          EXPECT_EQ(std::memcmp(got.data(), want.data(), n * sizeof(float)), 0) << n;
        }
      }
    }
  }
}

// A peer that changes a value while it is read gets either value into the array, but no NaN gets
// there as a value that was found finite.
TEST(LentMessageTest, ValuesThatChangeMeanwhileAreCheckedAsTheyWereRead) {
  constexpr size_t kValues = 4096;
  const std::vector<float> values = Values(kValues);
  LentBytes lent(std::string(reinterpret_cast<const char*>(values.data()), kValues * 4), 5000);
  std::atomic<bool> stop{false};
  std::thread peer([&] {
    auto* const exponent = reinterpret_cast<volatile uint8_t*>(lent.data()) + 4 * 1000 + 2;
    while (!stop) {
      exponent[0] = exponent[1] = 0xFF;
      exponent[0] = exponent[1] = 0;
    }
  });
  std::vector<float> got(kValues);
  // Enough of both for reads in between, or the peer had no processor.
  int finite = 0, other = 0;
  for (int i = 0; i < 300000 && std::min(finite, other) < 2000 && !HasFailure(); ++i) {
    PayloadReader reader(lent.message());
    const bool found_finite = ReadValues(&reader, 4, kValues, got.data());
    EXPECT_EQ(found_finite, static_cast<bool>(std::isfinite(got[1000]))) << "read " << i;
    ++(found_finite ? finite : other);
  }
  stop = true;
  peer.join();
}

TEST(LentMessageDeathTest, LentBytesAreNotCheckedInPlace) {
  LentBytes lent(std::string(16, 'x'), 1000);
  PayloadReader reader(lent.message());
  size_t size;
  uint8_t straddling[4];
  EXPECT_DEATH((void)CheckValues(&reader, 4, 4), "lent");
  EXPECT_DEATH((void)reader.Piece(4, &size), "lent");
  EXPECT_DEATH((void)reader.Values(1, 4, straddling, &size), "lent");
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
