#include "common/base/bounded_parse.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <string>

#include "proto/scheduler.pb.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;

constexpr size_t kNoLimit = SIZE_MAX / 2;
constexpr size_t kMiB = 1 << 20;

std::string Repeated(const std::string& unit, size_t bytes) {
  std::string wire;
  while (wire.size() < bytes) wire += unit;
  return wire;
}

// Fills in some fields, with lists of a few entries.
void FillRandomly(google::protobuf::Message* message, std::mt19937* random, int depth) {
  const auto* const reflection = message->GetReflection();
  const auto one_in = [random](uint32_t n) { return (*random)() % n == 0; };
  for (int f = 0; f < message->GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(f);
    if (one_in(3)) continue;
    const int n = field->is_repeated() ? static_cast<int>((*random)() % 12) : 1;
    for (int i = 0; i < n; ++i) {
      const bool list = field->is_repeated();
      const auto number = static_cast<uint32_t>((*random)() >> ((*random)() % 32));
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (depth > 5) break;
          FillRandomly(list ? reflection->AddMessage(message, field)
                            : reflection->MutableMessage(message, field),
                       random, depth + 1);
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          const std::string text((*random)() % 40, 'x');
          list ? reflection->AddString(message, field, text)
               : reflection->SetString(message, field, text);
          break;
        }
        case FieldDescriptor::CPPTYPE_UINT64:
          list ? reflection->AddUInt64(message, field, number)
               : reflection->SetUInt64(message, field, number);
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          list ? reflection->AddUInt32(message, field, number)
               : reflection->SetUInt32(message, field, number);
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          list ? reflection->AddInt64(message, field, -int64_t{number})
               : reflection->SetInt64(message, field, -int64_t{number});
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          list ? reflection->AddDouble(message, field, number)
               : reflection->SetDouble(message, field, number);
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          list ? reflection->AddEnumValue(message, field, 1)
               : reflection->SetEnumValue(message, field, 1);
          break;
        default:
          break;
      }
    }
  }
}

// Each request that has lists, with what a parser makes of it.
template <class Request>
void ExpectEstimates(const std::string& wire) {
  Request parsed;
  const bool valid = parsed.ParseFromString(wire);
  const auto estimate = EstimateParsedBytes(wire, Request(), kNoLimit);
  if (!valid) return;
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_GE(*estimate, parsed.SpaceUsedLong());
  Request again;
  EXPECT_TRUE(ParseWithin(*estimate, wire, &again).ok());
  EXPECT_EQ(again.SerializeAsString(), parsed.SerializeAsString());
  EXPECT_FALSE(ParseWithin(*estimate - 1, wire, &again).ok());
}

TEST(BoundedParseTest, TheEstimateBoundsWhatTheMessageTakes) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    PollRequest poll;
    NextPhaseRequest phase;
    SubmitJobRequest job;
    RegisterRequest self;
    for (google::protobuf::Message* message :
         std::initializer_list<google::protobuf::Message*>{&poll, &phase, &job, &self})
      FillRandomly(message, &random, 0);
    ExpectEstimates<PollRequest>(poll.SerializeAsString());
    ExpectEstimates<NextPhaseRequest>(phase.SerializeAsString());
    ExpectEstimates<SubmitJobRequest>(job.SerializeAsString());
    ExpectEstimates<RegisterRequest>(self.SerializeAsString());
    // As another message: many fields are unknown, or have other types.
    ExpectEstimates<NextPhaseRequest>(poll.SerializeAsString());
    ExpectEstimates<RegisterRequest>(phase.SerializeAsString());
    ExpectEstimates<PollRequest>(job.SerializeAsString());
  }
}

TEST(BoundedParseTest, DamagedMessagesAreJudgedAsProtobufJudgesThem) {
  const google::protobuf::LogSilencer silencer;
  std::mt19937 random(8);
  for (int i = 0; i < 30; ++i) {
    PollRequest poll;
    FillRandomly(&poll, &random, 2);
    const std::string wire = poll.SerializeAsString();
    for (int j = 0; j < 200; ++j) {
      std::string damaged = wire.substr(0, random() % (wire.size() + 1));
      if (j % 2 == 0) damaged = wire;
      for (int k = 0; k < j % 4 && !damaged.empty(); ++k)
        damaged[random() % damaged.size()] = static_cast<char>(random());
      ExpectEstimates<PollRequest>(damaged);
    }
  }
}

TEST(BoundedParseTest, ShortObjectsThatTakeMuchMemoryAreRefused) {
  const struct {
    const char* what;
    std::string unit;
  } cases[] = {
      {"empty traces", std::string("\x3a\x00", 2)},
      {"empty hosted jobs", std::string("\x22\x00", 2)},
      {"empty losses of a progress", std::string("\x2a\x02\x52\x00", 4)},
      {"unknown numbers", std::string("\xf8\x06\x01", 3)},
      {"unknown texts", std::string("\xfa\x06\x00", 3)},
      {"unknown groups", std::string("\xfb\x06\xfc\x06", 4)},
      {"numbers in the place of text", std::string("\x48\x01", 2)},
  };
  for (const auto& one : cases) {
    const std::string wire = Repeated(one.unit, kMiB);
    PollRequest poll;
    poll.set_member_id(7);
    const absl::Status refused = ParseWithin(4 * kMiB, wire, &poll);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << one.what << ": " << refused;
    EXPECT_EQ(poll.member_id(), 7u) << one.what << ": it was parsed";
    EXPECT_TRUE(absl::IsResourceExhausted(EstimateParsedBytes(wire, poll, 4 * kMiB).status()))
        << one.what;
    PollRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(wire)) << one.what;
    const auto estimate = EstimateParsedBytes(wire, poll, kNoLimit);
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_GE(*estimate, parsed.SpaceUsedLong()) << one.what;
  }
}

TEST(BoundedParseTest, NestingIsBounded) {
  const auto nested = [](int depth) {
    return Repeated("\xfb\x06", 2 * depth) + Repeated("\xfc\x06", 2 * depth);
  };
  PollRequest poll;
  EXPECT_TRUE(ParseWithin(kMiB, nested(50), &poll).ok());
  for (const int depth : {101, 100'000}) {
    const auto refused = EstimateParsedBytes(nested(depth), poll, kNoLimit).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
}

TEST(BoundedParseTest, ListsOfNumbersCountPackedAndUnpacked) {
  NextPhaseRequest phase;
  EvalSums* const sums = phase.mutable_report()->mutable_eval();
  for (int i = 0; i < 1000; ++i) sums->add_positive_weight(1);
  const std::string packed = sums->SerializeAsString();
  const std::string unpacked = Repeated(std::string("\x20\x01", 2), 2000);
  for (const std::string& wire : {packed, unpacked}) {
    const auto estimate = EstimateParsedBytes(wire, EvalSums(), kNoLimit);
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    EXPECT_GE(*estimate, 8'000u);
    EXPECT_LE(*estimate, 20'000u);
    EvalSums parsed;
    ASSERT_TRUE(ParseWithin(*estimate, wire, &parsed).ok());
    EXPECT_EQ(parsed.positive_weight_size(), 1000);
  }
}

TEST(BoundedParseTest, TruncatedAndMalformedMessagesAreRefused) {
  for (const std::string& wire :
       {std::string("\x0a"), std::string("\x3a\x05\x0a", 3), std::string("\xff"),
        std::string("\x00", 1), std::string("\xfb\x06"), std::string("\xfc\x06"),
        std::string("\x3a\x02\x0a\x05", 4), std::string("\x0f\x01"), std::string(12, '\xff'),
        std::string("\xfd\x06\x01\x02", 4)}) {
    PollRequest poll;
    EXPECT_TRUE(absl::IsInvalidArgument(EstimateParsedBytes(wire, poll, kNoLimit).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(ParseWithin(kMiB, wire, &poll)));
  }
}

}  // namespace
}  // namespace sluice
