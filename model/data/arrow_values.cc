#include "model/data/arrow_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int64_t kSecondsADay = 24 * 60 * 60;

float HalfToFloat(uint16_t half) {
  const uint32_t exponent = (half >> 10) & 31, fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), static_cast<int>(exponent) - 25);
}

// The decimal text of a number of `width` bytes, little endian, two's complement, with `scale`
// digits behind the point.
void AppendDecimal(const uint8_t* bytes, size_t width, int scale, std::string* to) {
  uint32_t words[8] = {};
  std::memcpy(words, bytes, width);
  const size_t n = width / 4;
  const bool negative = (words[n - 1] >> 31) != 0;
  if (negative) {
    uint64_t carry = 1;
    for (size_t i = 0; i < n; ++i) {
      carry += static_cast<uint32_t>(~words[i]);
      words[i] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  char digits[96];  // the lowest first
  size_t count = 0, used = n;
  while (used > 0) {
    uint64_t rest = 0;
    for (size_t i = used; i-- > 0;) {
      rest = rest << 32 | words[i];
      words[i] = static_cast<uint32_t>(rest / 1'000'000'000);
      rest %= 1'000'000'000;
    }
    while (used > 0 && words[used - 1] == 0) --used;
    for (int d = 0; d < 9; ++d, rest /= 10) digits[count++] = static_cast<char>('0' + rest % 10);
  }
  while (count > 1 && digits[count - 1] == '0') --count;
  if (negative) *to += '-';
  const size_t behind = scale > 0 ? static_cast<size_t>(scale) : 0;
  if (count <= behind) {
    *to += "0.";
    to->append(behind - count, '0');
    while (count > 0) *to += digits[--count];
    return;
  }
  while (count > behind) *to += digits[--count];
  if (behind > 0) *to += '.';
  while (count > 0) *to += digits[--count];
  // A negative scale stands for zeros at the end.
  if (scale < 0 && !(to->back() == '0' && (to->size() == 1 || (*to)[to->size() - 2] == '-')))
    to->append(static_cast<size_t>(-scale), '0');
}

bool BitAt(const uint8_t* bits, size_t i) { return (bits[i >> 3] >> (i & 7) & 1) != 0; }

const uint8_t* ValidityOf(const ArrowArray& array) {
  if (array.null_count == 0 || array.n_buffers == 0 || array.buffers == nullptr) return nullptr;
  return static_cast<const uint8_t*>(array.buffers[0]);
}

int64_t FloorDivide(int64_t value, int64_t by) {
  const int64_t whole = value / by;
  return value % by < 0 ? whole - 1 : whole;
}

}  // namespace

bool MarkArrowNulls(const ArrowArray& array, size_t first, size_t n, std::vector<uint8_t>* absent) {
  const uint8_t* const validity = ValidityOf(array);
  if (validity == nullptr) return false;
  if (absent->size() != n) absent->assign(n, 0);
  for (size_t i = 0; i < n; ++i) (*absent)[i] |= BitAt(validity, first + i) ? 0 : 1;
  return true;
}

absl::Status ArrowContradiction(const char* what) {
  return absl::DataLossError(absl::StrCat("the columns in memory contradict themselves: ", what));
}

absl::Status ArrowValues::Instants(CellColumn* cells) const {
  cells->kind = Cell::Kind::kInstant;
  cells->integers = integers_.data();
  return absl::OkStatus();
}

absl::Status ArrowValues::Doubles(CellColumn* cells) const {
  cells->kind = Cell::Kind::kDouble;
  cells->doubles = doubles_.data();
  return absl::OkStatus();
}

absl::Status ArrowValues::SetTexts(CellColumn* cells) const {
  cells->kind = Cell::Kind::kText;
  cells->text = texts_.data();
  return absl::OkStatus();
}

template <typename T>
absl::Status ArrowValues::Integers(const ArrowArray& array, size_t first, size_t n,
                                   CellColumn* cells) {
  integers_.resize(n);
  const T* const from = ArrowBuffer<T>(array, 1) + first;
  std::copy(from, from + n, integers_.data());
  cells->kind = Cell::Kind::kInteger;
  cells->integers = integers_.data();
  return absl::OkStatus();
}

template <typename Offset>
absl::Status ArrowValues::Texts(const ArrowArray& array, size_t first, size_t n,
                                CellColumn* cells) {
  texts_.resize(n);
  const Offset* const offsets = ArrowBuffer<Offset>(array, 1) + first;
  const char* const bytes = ArrowBuffer<char>(array, 2);
  bool falls = n > 0 && offsets[0] < 0;
  for (size_t i = 0; i < n; ++i) {
    falls |= offsets[i + 1] < offsets[i];
    texts_[i] =
        std::string_view(bytes + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
  }
  if (falls) return ArrowContradiction("offsets of texts fall");
  return SetTexts(cells);
}

absl::Status ArrowValues::TextViews(const ArrowArray& array, size_t first, size_t n,
                                    CellColumn* cells) {
  struct View {
    int32_t size;
    char prefix[4];  // the whole text when it has 12 bytes at most
    int32_t buffer, offset;
  };
  static_assert(sizeof(View) == 16);
  texts_.resize(n);
  const char* const views = ArrowBuffer<char>(array, 1) + first * sizeof(View);
  const uint8_t* const validity = ValidityOf(array);
  for (size_t i = 0; i < n; ++i) {
    View view;
    std::memcpy(&view, views + i * sizeof(View), sizeof(View));
    texts_[i] = {};
    if (validity != nullptr && !BitAt(validity, first + i)) continue;
    const size_t size = static_cast<size_t>(std::max(view.size, 0));
    if (size <= 12) {
      texts_[i] = {views + i * sizeof(View) + 4, size};
      continue;
    }
    // Behind the buffers stands one with their sizes.
    if (view.buffer < 0 || view.buffer + 3 >= array.n_buffers || view.offset < 0)
      return ArrowContradiction("a text lies in no buffer");
    texts_[i] = {ArrowBuffer<char>(array, view.buffer + 2) + view.offset, size};
  }
  return SetTexts(cells);
}

absl::Status ArrowValues::Decimals(const ArrowArray& array, size_t first, size_t n,
                                   CellColumn* cells) {
  decimals_.clear();
  ends_.resize(n);
  texts_.resize(n);
  const uint8_t* const from = ArrowBuffer<uint8_t>(array, 1) + first * type_.width;
  std::string one;
  for (size_t i = 0; i < n; ++i) {
    one.clear();
    AppendDecimal(from + i * type_.width, type_.width, type_.scale, &one);
    decimals_ += one;
    ends_[i] = decimals_.size();
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    texts_[i] = std::string_view(decimals_).substr(begin, ends_[i] - begin);
  }
  return SetTexts(cells);
}

absl::Status ArrowValues::Read(const ArrowArray& array, size_t first, size_t n, CellColumn* cells) {
  switch (type_.store) {
    case ArrowStore::kNull:
      cells->kind = Cell::Kind::kMissing;
      return absl::OkStatus();
    case ArrowStore::kBool:
      unsigned_.resize(n);
      for (size_t i = 0; i < n; ++i)
        unsigned_[i] = BitAt(ArrowBuffer<uint8_t>(array, 1), first + i) ? 1 : 0;
      cells->kind = Cell::Kind::kUnsigned;
      cells->unsigned_integers = unsigned_.data();
      return absl::OkStatus();
    case ArrowStore::kInt8:
      return Integers<int8_t>(array, first, n, cells);
    case ArrowStore::kUint8:
      return Integers<uint8_t>(array, first, n, cells);
    case ArrowStore::kInt16:
      return Integers<int16_t>(array, first, n, cells);
    case ArrowStore::kUint16:
      return Integers<uint16_t>(array, first, n, cells);
    case ArrowStore::kInt32:
      return Integers<int32_t>(array, first, n, cells);
    case ArrowStore::kUint32:
      return Integers<uint32_t>(array, first, n, cells);
    case ArrowStore::kInt64:
      cells->kind = Cell::Kind::kInteger;
      cells->integers = ArrowBuffer<int64_t>(array, 1) + first;
      return absl::OkStatus();
    case ArrowStore::kUint64:
      cells->kind = Cell::Kind::kUnsigned;
      cells->unsigned_integers = ArrowBuffer<uint64_t>(array, 1) + first;
      return absl::OkStatus();
    case ArrowStore::kHalf:
      doubles_.resize(n);
      for (size_t i = 0; i < n; ++i)
        doubles_[i] = static_cast<double>(HalfToFloat(ArrowBuffer<uint16_t>(array, 1)[first + i]));
      return Doubles(cells);
    case ArrowStore::kFloat: {
      doubles_.resize(n);
      const float* const from = ArrowBuffer<float>(array, 1) + first;
      for (size_t i = 0; i < n; ++i) doubles_[i] = static_cast<double>(from[i]);
      return Doubles(cells);
    }
    case ArrowStore::kDouble:
      cells->kind = Cell::Kind::kDouble;
      cells->doubles = ArrowBuffer<double>(array, 1) + first;
      return absl::OkStatus();
    case ArrowStore::kText:
      return Texts<int32_t>(array, first, n, cells);
    case ArrowStore::kLargeText:
      return Texts<int64_t>(array, first, n, cells);
    case ArrowStore::kTextView:
      return TextViews(array, first, n, cells);
    case ArrowStore::kFixedText: {
      texts_.resize(n);
      const char* const from = ArrowBuffer<char>(array, 1) + first * type_.width;
      for (size_t i = 0; i < n; ++i) texts_[i] = {from + i * type_.width, type_.width};
      return SetTexts(cells);
    }
    case ArrowStore::kDays: {
      integers_.resize(n);
      const int32_t* const from = ArrowBuffer<int32_t>(array, 1) + first;
      for (size_t i = 0; i < n; ++i) integers_[i] = from[i] * kSecondsADay;
      return Instants(cells);
    }
    case ArrowStore::kTicks: {
      integers_.resize(n);
      const int64_t* const from = ArrowBuffer<int64_t>(array, 1) + first;
      for (size_t i = 0; i < n; ++i) integers_[i] = FloorDivide(from[i], type_.per_second);
      return Instants(cells);
    }
    case ArrowStore::kDecimal:
      return Decimals(array, first, n, cells);
    default:
      return ArrowContradiction("a type changed");
  }
}

}  // namespace sluice
