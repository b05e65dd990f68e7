// The cells of one example: text, as the lines of most formats have it, or typed values. Typed
// cells spare binary formats, JSON and arrays in memory the way through text.
//
// A typed cell means what its text would mean: an integer and a bool (0, 1) hash as decimal text,
// and a number becomes a float once. A double is a category only where it is whole and below 2^53;
// it then hashes as the integer. Missing are kMissing, a double that is NaN, an empty text, and a
// text among csv.missing.
//
// Memory: a cell borrows its text and its list.
//
// Thread safety: values; the functions are safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

class Cell {
 public:
  enum class Kind : uint8_t {
    kMissing,
    kText,
    kInteger,
    kUnsigned,
    kDouble,
    kBool,
    kInstant,
    kList
  };

  Cell() = default;  // missing
  static Cell Text(std::string_view text) {
    Cell cell(Kind::kText, text.size());
    cell.text_ = text.data();
    return cell;
  }
  static Cell Integer(int64_t value) {
    Cell cell(Kind::kInteger, 0);
    cell.integer_ = value;
    return cell;
  }
  static Cell Unsigned(uint64_t value) {
    Cell cell(Kind::kUnsigned, 0);
    cell.unsigned_ = value;
    return cell;
  }
  static Cell Double(double value) {
    Cell cell(Kind::kDouble, 0);
    cell.double_ = value;
    return cell;
  }
  static Cell Bool(bool value) {
    Cell cell(Kind::kBool, 0);
    cell.unsigned_ = value ? 1 : 0;
    return cell;
  }
  static Cell Instant(int64_t seconds) {
    Cell cell(Kind::kInstant, 0);
    cell.integer_ = seconds;
    return cell;
  }
  // Several values of a categorical feature: `values` [size], no lists among them; missing ones are
  // skipped. `weights` [size] are those of the values when they are pooled; null: each is 1.
  static Cell List(const Cell* values, size_t size, const double* weights = nullptr) {
    Cell cell(Kind::kList, size);
    cell.list_ = values;
    cell.weights_ = weights;
    return cell;
  }

  Kind kind() const { return kind_; }
  // REQUIRES of all: the kind.
  std::string_view text() const { return {text_, size_}; }
  int64_t integer() const { return integer_; }             // kInteger, kInstant
  uint64_t unsigned_integer() const { return unsigned_; }  // kUnsigned, kBool
  double number() const { return double_; }
  size_t size() const { return size_; }  // of a list
  const Cell* values() const { return list_; }
  const double* weights() const { return weights_; }

 private:
  Cell(Kind kind, size_t size) : kind_(kind), size_(size) {}

  Kind kind_ = Kind::kMissing;
  size_t size_ = 0;
  union {
    const char* text_;
    int64_t integer_;
    uint64_t unsigned_ = 0;
    double double_;
    const Cell* list_;
  };
  const double* weights_ = nullptr;
};

// Memory for the text of a number.
struct NumberText {
  char bytes[32];
};
inline std::string_view TextOf(std::string_view cell, NumberText*) { return cell; }
// Numbers in the fewest digits that give them back, instants in seconds. Of a missing cell "", and
// of a list "[...]".
std::string_view TextOf(const Cell& cell, NumberText* memory);

// The cells of an example in the order of FeatureSchema::columns(), all of one kind.
struct ExampleCells {
  const std::string_view* text = nullptr;  // null: they are `typed`
  const bool* missing = nullptr;           // with `text`: which of them are absent
  const Cell* typed = nullptr;
  bool* scratch = nullptr;  // with `typed`: [columns], memory that readers of the cells may change
};

}  // namespace sluice
