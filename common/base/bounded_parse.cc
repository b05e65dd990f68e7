#include "common/base/bounded_parse.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// As protobuf's own limit. It also bounds the recursion of the walk.
constexpr int kMaxDepth = 100;

// Memory that allocators and protobuf's containers need in addition to the values.
constexpr size_t kAllocation = 16;
constexpr size_t kString = sizeof(std::string) + 2 * kAllocation;
constexpr size_t kPointer = 2 * sizeof(void*);  // lists grow by doubling
constexpr size_t kList = 64;                    // the first elements of a list
constexpr size_t kUnknownField = 96;            // with its share of the list of unknown fields

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kEnd = 4,
  kFixed32 = 5
};

bool IsBytes(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING ||
         field.type() == FieldDescriptor::TYPE_BYTES;
}

WireType WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return kFixed64;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return kBytes;
    case FieldDescriptor::TYPE_GROUP:
      return kGroup;
    default:
      return kVarint;
  }
}

// Memory of one value of a list of numbers.
size_t WidthOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return 8;
    case FieldDescriptor::CPPTYPE_BOOL:
      return 1;
    default:
      return 4;
  }
}

class Walk {
 public:
  Walk(const google::protobuf::Message& prototype, size_t max_bytes)
      : factory_(prototype.GetReflection()->GetMessageFactory()), max_bytes_(max_bytes) {}

  absl::StatusOr<size_t> Estimate(absl::string_view wire, const Descriptor& type) {
    // Only adds up: what a field that comes twice replaces is counted twice. The estimate may be
    // too high, never too low.
    bytes_ = SizeOf(type);
    in_ = wire;
    SLUICE_RETURN_IF_ERROR(Fields(&type, 0, 0));
    SLUICE_RETURN_IF_ERROR(CheckBytes());
    return bytes_;
  }

 private:
  static absl::Status Malformed(absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("it is no valid protobuf: ", what));
  }

  // The fields up to the end of the message, or of the unknown group with the number `group`. A
  // null `type`: all of them are unknown.
  absl::Status Fields(const Descriptor* type, uint32_t group, int depth) {
    if (depth > kMaxDepth)
      return Malformed(absl::StrCat("it is nested more than ", kMaxDepth, " deep"));
    uint32_t last = 0;  // the number of the field before
    while (!in_.empty()) {
      uint64_t long_tag;
      if (!Varint(&long_tag)) return Malformed("a tag is truncated");
      const auto tag = static_cast<uint32_t>(long_tag);  // as protobuf does
      const uint32_t number = tag >> 3;
      if (number == 0) return Malformed("a field has the number 0");
      const auto wire_type = static_cast<WireType>(tag & 7);
      if (wire_type == kEnd)
        return number == group ? absl::OkStatus() : Malformed("a group ends that did not begin");
      const FieldDescriptor* const field =
          type == nullptr ? nullptr : type->FindFieldByNumber(static_cast<int>(number));
      SLUICE_RETURN_IF_ERROR(Field(field, number, wire_type, number == last, depth));
      SLUICE_RETURN_IF_ERROR(CheckBytes());
      last = number;
    }
    return group == 0 ? absl::OkStatus() : Malformed("a group has no end");
  }

  absl::Status CheckBytes() const {
    if (bytes_ <= max_bytes_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("parsed, it would take more memory than the ", max_bytes_, " bytes allowed"));
  }

  // `continues`: the field before had the same number.
  absl::Status Field(const FieldDescriptor* field, uint32_t number, WireType wire_type,
                     bool continues, int depth) {
    if (field != nullptr && field->is_repeated() && !continues) bytes_ += kList;
    if (field != nullptr && field->is_packable() && wire_type == kBytes) return Packed(*field);
    // protobuf keeps a known number with another type among the unknown fields.
    if (field == nullptr || WireTypeOf(*field) != wire_type)
      return Unknown(number, wire_type, depth);
    if (wire_type != kBytes) {
      // Lists grow by doubling, so that half of one may be empty.
      if (field->is_repeated()) bytes_ += 2 * WidthOf(*field);
      return Number(wire_type);
    }
    absl::string_view value;
    if (!Bytes(&value)) return Malformed("a field is truncated");
    if (field->is_repeated()) bytes_ += kPointer;
    if (IsBytes(*field)) {
      bytes_ += kString + value.size();
      return absl::OkStatus();
    }
    bytes_ += SizeOf(*field->message_type()) + kAllocation;
    const absl::string_view rest = in_;
    in_ = value;
    SLUICE_RETURN_IF_ERROR(Fields(field->message_type(), 0, depth + 1));
    in_ = rest;
    return absl::OkStatus();
  }

  absl::Status Unknown(uint32_t number, WireType wire_type, int depth) {
    bytes_ += kUnknownField;
    if (wire_type == kGroup) return Fields(nullptr, number, depth + 1);
    if (wire_type != kBytes) return Number(wire_type);
    absl::string_view value;
    if (!Bytes(&value)) return Malformed("a field is truncated");
    bytes_ += kString + value.size();
    return absl::OkStatus();
  }

  absl::Status Packed(const FieldDescriptor& field) {
    absl::string_view values;
    if (!Bytes(&values)) return Malformed("a list is truncated");
    const WireType wire_type = WireTypeOf(field);
    // A varint ends with the only byte whose highest bit is not set.
    const size_t n =
        wire_type == kFixed64 ? values.size() / 8
        : wire_type == kFixed32
            ? values.size() / 4
            : static_cast<size_t>(std::count_if(values.begin(), values.end(),
                                                [](char c) { return (c & 0x80) == 0; }));
    bytes_ += 2 * n * WidthOf(field);
    return absl::OkStatus();
  }

  absl::Status Number(WireType wire_type) {
    uint64_t value;
    const size_t size = wire_type == kFixed64 ? 8 : 4;
    if (wire_type == kVarint)
      return Varint(&value) ? absl::OkStatus() : Malformed("a number is truncated");
    if (wire_type != kFixed64 && wire_type != kFixed32) return Malformed("a tag has no such type");
    if (in_.size() < size) return Malformed("a number is truncated");
    in_.remove_prefix(size);
    return absl::OkStatus();
  }

  bool Bytes(absl::string_view* value) {
    uint64_t size;
    // A length beyond the end is refused before anything is allocated for it.
    if (!Varint(&size) || size > in_.size()) return false;
    *value = in_.substr(0, size);
    in_.remove_prefix(size);
    return true;
  }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (size_t i = 0; i < 10 && i < in_.size(); ++i) {
      const auto byte = static_cast<unsigned char>(in_[i]);
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte >= 0x80) continue;
      in_.remove_prefix(i + 1);
      return true;
    }
    return false;
  }

  // Bytes of an empty message of this type.
  size_t SizeOf(const Descriptor& type) {
    size_t& size = sizes_[&type];
    if (size == 0) size = factory_->GetPrototype(&type)->SpaceUsedLong();
    return size;
  }

  google::protobuf::MessageFactory* const factory_;
  const size_t max_bytes_;
  std::unordered_map<const Descriptor*, size_t> sizes_;
  absl::string_view in_;  // what is left of the innermost message
  size_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<size_t> EstimateParsedBytes(absl::string_view wire,
                                           const google::protobuf::Message& prototype,
                                           size_t max_bytes) {
  return Walk(prototype, max_bytes).Estimate(wire, *prototype.GetDescriptor());
}

absl::Status ParseWithin(size_t max_bytes, absl::string_view wire,
                         google::protobuf::Message* message) {
  const absl::Status estimated = EstimateParsedBytes(wire, *message, max_bytes).status();
  const bool parsed = estimated.ok() && wire.size() <= INT_MAX &&
                      message->ParseFromArray(wire.data(), static_cast<int>(wire.size()));
  if (parsed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the ", wire.size(), " bytes of a ", message->GetDescriptor()->name(),
      " are refused: ", estimated.ok() ? "they are no valid protobuf" : estimated.message()));
}

}  // namespace sluice
