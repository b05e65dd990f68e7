#include "model/table_files/array_reader.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::Status InArray(const std::string& place, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(place, " ", status.message()));
}

float HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                          : exponent == 31
                              ? (fraction == 0 ? INFINITY : NAN)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

void AppendUtf8(uint32_t point, std::string* text) {
  const auto add = [&](uint32_t byte) { *text += static_cast<char>(byte); };
  if (point < 0x80) return add(point);
  if (point < 0x800) {
    add(0xC0 | point >> 6);
  } else {
    if (point < 0x10000) {
      add(0xE0 | point >> 12);
    } else {
      add(0xF0 | point >> 18);
      add(0x80 | (point >> 12 & 0x3F));
    }
    add(0x80 | (point >> 6 & 0x3F));
  }
  add(0x80 | (point & 0x3F));
}

}  // namespace

absl::StatusOr<ArrayReader> ArrayReader::Open(const std::string& place,
                                              std::unique_ptr<ByteStream> stream) {
  ArrayReader reader;
  reader.place_ = place;
  auto header = ReadNpyHeader(stream.get());
  if (!header.ok()) return InArray(place, header.status());
  reader.header_ = *std::move(header);
  reader.stream_ = std::move(stream);
  return reader;
}

absl::Status ArrayReader::ReadItems(size_t n) {
  bytes_.resize(n * header_.item_bytes);
  auto got = stream_->Read(bytes_.data(), bytes_.size());
  if (!got.ok()) return InArray(place_, got.status());
  if (*got == bytes_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(place_, " is cut off; write the file again"));
}

absl::Status ArrayReader::CheckEnd() {
  char next;
  auto got = stream_->Read(&next, 1);
  if (!got.ok()) return InArray(place_, got.status());
  if (*got == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(place_, " has more bytes than its shape says; write the file again"));
}

absl::Status ArrayReader::ReadFloats(size_t rows, size_t width, size_t stride, float* to) {
  SLUICE_RETURN_IF_ERROR(ReadItems(rows * width));
  const char* from = bytes_.data();
  for (size_t i = 0; i < rows; ++i, to += stride, from += width * header_.item_bytes) {
    switch (header_.item_bytes) {
      case 4:
        std::memcpy(to, from, width * sizeof(float));
        break;
      case 8:
        for (size_t j = 0; j < width; ++j) {
          double value;
          std::memcpy(&value, from + j * sizeof(value), sizeof(value));
          to[j] = static_cast<float>(value);
        }
        break;
      default:
        for (size_t j = 0; j < width; ++j) {
          uint16_t half;
          std::memcpy(&half, from + j * sizeof(half), sizeof(half));
          to[j] = HalfToFloat(half);
        }
    }
  }
  return absl::OkStatus();
}

absl::Status ArrayReader::ReadIntegers(size_t n, std::vector<uint64_t>* to) {
  SLUICE_RETURN_IF_ERROR(ReadItems(n));
  const int unused = 64 - 8 * static_cast<int>(header_.item_bytes);
  for (size_t i = 0; i < n; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + i * header_.item_bytes, header_.item_bytes);
    if (header_.kind == 'i')
      value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
    to->push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ArrayReader::ReadIntegers(size_t n, std::vector<uint32_t>* to) {
  std::vector<uint64_t> wide;
  SLUICE_RETURN_IF_ERROR(ReadIntegers(n, &wide));
  for (const uint64_t value : wide) {
    if (value > UINT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(place_, " has ", value, "; it must be from 0 to ", UINT32_MAX));
    }
    to->push_back(static_cast<uint32_t>(value));
  }
  return absl::OkStatus();
}

absl::Status ArrayReader::ReadTexts(size_t n, std::vector<std::string>* to) {
  SLUICE_RETURN_IF_ERROR(ReadItems(n));
  for (size_t i = 0; i < n; ++i) {
    const char* const from = bytes_.data() + i * header_.item_bytes;
    std::string text;
    if (header_.kind == 'S') {
      text.assign(from, header_.item_bytes);
      text.resize(text.find_last_not_of('\0') + 1);
    } else {
      for (size_t at = 0; at < header_.item_bytes; at += sizeof(uint32_t)) {
        uint32_t point;
        std::memcpy(&point, from + at, sizeof(point));
        if (point == 0) break;
        AppendUtf8(point, &text);
      }
    }
    to->push_back(std::move(text));
  }
  return absl::OkStatus();
}

}  // namespace sluice
