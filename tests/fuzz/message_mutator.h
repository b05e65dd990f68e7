// Changes fields of protobuf messages at random, for fuzzers whose input is the text of a message.
//
// Changed bytes seldom make another message that still parses. Changed fields always do, so that
// the fuzzer reaches the checks behind the parser.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "google/protobuf/message.h"
#include "tests/fuzz/fuzz.h"

// libFuzzer's own mutations of bytes. Weak, because programs that only replay inputs lack it.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size,
                                                         size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed);

namespace sluice {

class MessageMutator {
 public:
  using Message = google::protobuf::Message;
  using FieldDescriptor = google::protobuf::FieldDescriptor;

  explicit MessageMutator(unsigned int seed) : random_(seed) {}

  // Sets, clears, adds or removes one field of the message or of one below it.
  void Mutate(Message* message) {
    const google::protobuf::Descriptor& type = *message->GetDescriptor();
    if (type.field_count() == 0) return;
    const FieldDescriptor& field = *type.field(static_cast<int>(Below(type.field_count())));
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (field.is_repeated()) return MutateList(field, message);
    if (Below(8) == 0) return reflection.ClearField(message, &field);
    if (field.message_type() != nullptr) {
      const bool is_new = !reflection.HasField(*message, &field);
      Message* const below = reflection.MutableMessage(message, &field);
      if (!is_new || Below(2) == 0) Mutate(below);
      return;
    }
    SetScalar(field, message, /*add=*/false);
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  template <class T, size_t kSize>
  T OneOf(const T (&values)[kSize]) {
    return values[Below(kSize)];
  }

  void MutateList(const FieldDescriptor& field, Message* message) {
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    const int size = reflection.FieldSize(*message, &field);
    const uint32_t choice = Below(8);
    if (size > 0 && choice == 0) return reflection.RemoveLast(message, &field);
    if (size > 1 && choice == 1) {
      const int other = static_cast<int>(Below(static_cast<uint32_t>(size)));
      return reflection.SwapElements(message, &field, other, size - 1);
    }
    if (field.message_type() == nullptr) return SetScalar(field, message, /*add=*/true);
    if (size > 0 && choice < 7) {
      const int index = static_cast<int>(Below(static_cast<uint32_t>(size)));
      return Mutate(reflection.MutableRepeatedMessage(message, &field, index));
    }
    // Two fields, because few elements are valid without a name.
    Message* const added = reflection.AddMessage(message, &field);
    Mutate(added);
    Mutate(added);
  }

  template <class T>
  T Integer() {
    const T values[] = {0,
                        1,
                        2,
                        3,
                        5,
                        8,
                        64,
                        1000,
                        100000,
                        std::numeric_limits<T>::max(),
                        static_cast<T>(random_())};
    return OneOf(values);
  }
  double Real() {
    const double values[] = {0,
                             1,
                             -1,
                             0.5,
                             0.9,
                             2,
                             100,
                             1e-9,
                             1e30,
                             -0.0,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
    return OneOf(values);
  }
  // Few, so that different fields name the same thing.
  std::string Text() {
    const char* const values[] = {"",
                                  "a",
                                  "b",
                                  "y",
                                  "x*",
                                  "c{1..3}",
                                  ",",
                                  "\t",
                                  "/d/a",
                                  "/d/b.gz",
                                  "out",
                                  "a.b",
                                  "1",
                                  "*",
                                  "all",
                                  "wide",
                                  "h:1,h:2",
                                  "[::1]:7",
                                  "cuda",
                                  "|",
                                  "\n",
                                  "embedding",
                                  "etcd://h:2379/p"};
    return OneOf(values);
  }

  void SetScalar(const FieldDescriptor& field, Message* message, bool add) {
    const google::protobuf::Reflection& reflection = *message->GetReflection();
#define SLUICE_SET(Type, value)                             \
  return add ? reflection.Add##Type(message, &field, value) \
             : reflection.Set##Type(message, &field, value)
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        SLUICE_SET(Bool, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_INT32:
        SLUICE_SET(Int32, Integer<int32_t>());
      case FieldDescriptor::CPPTYPE_INT64:
        SLUICE_SET(Int64, Integer<int64_t>());
      case FieldDescriptor::CPPTYPE_UINT32:
        SLUICE_SET(UInt32, Integer<uint32_t>());
      case FieldDescriptor::CPPTYPE_UINT64:
        SLUICE_SET(UInt64, Integer<uint64_t>());
      case FieldDescriptor::CPPTYPE_FLOAT:
        SLUICE_SET(Float, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        SLUICE_SET(Double, Real());
      case FieldDescriptor::CPPTYPE_STRING:
        SLUICE_SET(String, Text());
      case FieldDescriptor::CPPTYPE_ENUM: {
        const google::protobuf::EnumDescriptor& type = *field.enum_type();
        const auto* const value =
            type.value(static_cast<int>(Below(static_cast<uint32_t>(type.value_count()))));
        SLUICE_SET(Enum, value);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
#undef SLUICE_SET
  }

  std::minstd_rand random_;
};

// The body of LLVMFuzzerCustomMutator: changes bytes, or one to four fields of a text that is a
// `TextMessage`. What begins with a zero byte is no part of the text.
template <class TextMessage>
size_t MutateText(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  TextMessage message;
  const bool of_fields =
      seed % 4 != 0 && ParseTextproto(input.substr(0, end), "input", &message, nullptr).ok();
  if (!of_fields) return LLVMFuzzerMutate(data, size, max_size);
  MessageMutator mutator(seed);
  for (unsigned int i = 0; i <= seed / 4 % 4; ++i) mutator.Mutate(&message);
  const std::string changed = ToTextproto(message) + input.substr(end);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(changed.begin(), changed.end(), data);
  return changed.size();
}

}  // namespace sluice
