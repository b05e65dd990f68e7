#include "model/data/arrow_types.h"

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

constexpr size_t kDeepestStructs = 16;
constexpr int kDeepestNames = 8;

std::string_view FormatOfSchema(const ArrowSchema& schema) {
  return schema.format == nullptr ? std::string_view() : std::string_view(schema.format);
}

std::string NameOfSchema(const ArrowSchema& schema) {
  return schema.name == nullptr ? std::string() : std::string(schema.name);
}

bool StartsWith(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

int64_t TicksASecond(char unit) {
  switch (unit) {
    case 'm':
      return 1000;
    case 'u':
      return 1'000'000;
    case 'n':
      return 1'000'000'000;
    default:
      return 1;
  }
}

ArrowValueType DecimalType(std::string_view format) {
  ArrowValueType type;
  // d:precision,scale[,bits]
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(format.data() + 2, format.size() - 2), ',');
  int scale = 0, bits = 128;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[1], &scale) ||
      (parts.size() > 2 && !absl::SimpleAtoi(parts[2], &bits)) || scale < -128 || scale > 128 ||
      (bits != 32 && bits != 64 && bits != 128 && bits != 256)) {
    return type;
  }
  type.store = ArrowStore::kDecimal;
  type.scale = scale;
  type.width = static_cast<size_t>(bits) / 8;
  return type;
}

// The type of the values of a column that has neither children nor a dictionary.
ArrowValueType PlainType(std::string_view format) {
  static constexpr std::pair<std::string_view, ArrowStore> kStores[] = {
      {"n", ArrowStore::kNull},      {"b", ArrowStore::kBool},      {"c", ArrowStore::kInt8},
      {"C", ArrowStore::kUint8},     {"s", ArrowStore::kInt16},     {"S", ArrowStore::kUint16},
      {"i", ArrowStore::kInt32},     {"I", ArrowStore::kUint32},    {"l", ArrowStore::kInt64},
      {"L", ArrowStore::kUint64},    {"e", ArrowStore::kHalf},      {"f", ArrowStore::kFloat},
      {"g", ArrowStore::kDouble},    {"u", ArrowStore::kText},      {"z", ArrowStore::kText},
      {"U", ArrowStore::kLargeText}, {"Z", ArrowStore::kLargeText}, {"vu", ArrowStore::kTextView},
      {"vz", ArrowStore::kTextView}, {"tdD", ArrowStore::kDays}};
  ArrowValueType type;
  for (const auto& [name, store] : kStores) {
    if (format == name) type.store = store;
  }
  if (format == "tdm") {
    type.store = ArrowStore::kTicks;
    type.per_second = 1000;
  } else if (StartsWith(format, "ts") && format.size() >= 3) {
    type.store = ArrowStore::kTicks;
    type.per_second = TicksASecond(format[2]);
  } else if (StartsWith(format, "w:")) {
    uint32_t width = 0;
    if (absl::SimpleAtoi(absl::string_view(format.data() + 2, format.size() - 2), &width)) {
      type.store = ArrowStore::kFixedText;
      type.width = width;
    }
  } else if (StartsWith(format, "d:")) {
    type = DecimalType(format);
  }
  return type;
}

bool IsIntegerStore(ArrowStore store) {
  return store >= ArrowStore::kInt8 && store <= ArrowStore::kUint64;
}
bool IsNumber(ArrowStore store) {
  return store >= ArrowStore::kBool && store <= ArrowStore::kDouble;
}

ArrowClass ClassOf(ArrowStore store) {
  if (store == ArrowStore::kNone) return ArrowClass::kUnreadable;
  if (store == ArrowStore::kNull) return ArrowClass::kNothing;
  if (IsNumber(store) || store == ArrowStore::kDecimal) return ArrowClass::kNumber;
  return IsArrowText(store) ? ArrowClass::kText : ArrowClass::kDate;
}

std::string TypeName(const ArrowSchema& schema, int depth = 0) {
  if (depth > kDeepestNames) return "...";
  const std::string_view format = FormatOfSchema(schema);
  if (schema.dictionary != nullptr) return TypeName(*schema.dictionary, depth + 1);
  const auto children = [&] {
    std::string text;
    for (int64_t i = 0; i < schema.n_children; ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", TypeName(*schema.children[i], depth + 1));
    return text;
  };
  if (format == "+m" && schema.n_children == 1) {
    const ArrowSchema& entry = *schema.children[0];
    std::string text = "map<";
    for (int64_t i = 0; i < entry.n_children; ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", TypeName(*entry.children[i], depth + 1));
    return text + ">";
  }
  if (format == "+s") return absl::StrCat("struct<", children(), ">");
  if (format == "+l" || format == "+L" || StartsWith(format, "+w") || StartsWith(format, "+v"))
    return absl::StrCat("list<", children(), ">");
  if (StartsWith(format, "+u")) return "union";
  if (StartsWith(format, "+r")) return "run_end_encoded";
  static constexpr const char* kNames[] = {
      "?",     "null",   "bool",  "int8",   "uint8", "int16",     "uint16",
      "int32", "uint32", "int64", "uint64", "half",  "float",     "double",
      "text",  "text",   "text",  "binary", "date",  "timestamp", "decimal"};
  const ArrowStore store = PlainType(format).store;
  if (store != ArrowStore::kNone) return kNames[static_cast<size_t>(store)];
  if (StartsWith(format, "tt")) return "time of day";
  if (StartsWith(format, "tD")) return "duration";
  if (StartsWith(format, "ti")) return "interval";
  return absl::StrCat("type \"", std::string(format), "\"");
}

void AddPaths(const ArrowSchema& schema, const std::string& prefix, std::vector<size_t> steps,
              std::vector<ArrowPath>* paths) {
  ArrowPath path;
  path.name = prefix + NameOfSchema(schema);
  path.type = TypeName(schema);
  if (FormatOfSchema(schema) == "+s" && steps.size() < kDeepestStructs) {
    for (int64_t i = 0; i < schema.n_children; ++i) {
      std::vector<size_t> next = steps;
      next.push_back(static_cast<size_t>(i));
      AddPaths(*schema.children[i], path.name + ".", std::move(next), paths);
    }
    return;
  }
  path.steps = std::move(steps);
  const ArrowListType list = ArrowListOf(schema);
  path.list = list.form != ArrowListType::Form::kNone;
  path.weighted = list.weighted;
  if (!path.list) {
    path.values = ClassOf(ArrowTypeOf(schema).store);
  } else if (!list.weighted) {
    path.values = ClassOf(ArrowTypeOf(*schema.children[0]).store);
  } else {
    const ArrowSchema& pair = *schema.children[0];
    const bool fits = pair.n_children == 2 && pair.children[1]->dictionary == nullptr &&
                      ClassOf(ArrowTypeOf(*pair.children[1]).store) == ArrowClass::kNumber;
    path.values = fits ? ClassOf(ArrowTypeOf(*pair.children[0]).store) : ArrowClass::kUnreadable;
  }
  paths->push_back(std::move(path));
}

template <typename T>
const T* Buffer(const ArrowArray& array, int64_t i) {
  return static_cast<const T*>(array.buffers[i]);
}

}  // namespace

ArrowValueType PlainArrowType(const ArrowSchema& schema) {
  return PlainType(FormatOfSchema(schema));
}

ArrowValueType ArrowTypeOf(const ArrowSchema& schema) {
  if (schema.n_children > 0) return {};
  if (schema.dictionary == nullptr) return PlainType(FormatOfSchema(schema));
  if (!IsIntegerStore(PlainType(FormatOfSchema(schema)).store) ||
      schema.dictionary->dictionary != nullptr || schema.dictionary->n_children > 0)
    return {};
  return PlainType(FormatOfSchema(*schema.dictionary));
}

ArrowListType ArrowListOf(const ArrowSchema& schema) {
  ArrowListType list;
  const std::string_view format = FormatOfSchema(schema);
  if (schema.n_children != 1 || schema.dictionary != nullptr) return list;
  uint32_t fixed = 0;
  if (format == "+l" || format == "+m") {
    list.form = ArrowListType::Form::kList;
  } else if (format == "+L") {
    list.form = ArrowListType::Form::kLargeList;
  } else if (StartsWith(format, "+w:") &&
             absl::SimpleAtoi(absl::string_view(format.data() + 3, format.size() - 3), &fixed)) {
    list.form = ArrowListType::Form::kFixedList;
    list.fixed = fixed;
  } else {
    return list;
  }
  list.weighted = FormatOfSchema(*schema.children[0]) == "+s";
  return list;
}

absl::StatusOr<std::vector<ArrowPath>> ArrowPathsOf(const ArrowSchema& schema) {
  if (FormatOfSchema(schema) != "+s")
    return absl::InvalidArgumentError("the data is not a table of columns");
  std::vector<ArrowPath> paths;
  for (int64_t i = 0; i < schema.n_children; ++i)
    AddPaths(*schema.children[i], "", {static_cast<size_t>(i)}, &paths);
  return paths;
}

uint64_t ArrowBytes(const ArrowSchema& schema, const ArrowArray& array) {
  const uint64_t length = static_cast<uint64_t>(array.length);
  uint64_t bytes = length / 8;  // which of them are null
  const auto add_offsets = [&](const auto* offsets) {
    bytes += (length + 1) * sizeof(*offsets);
    return length == 0 ? int64_t{0}
                       : static_cast<int64_t>(offsets[array.offset + array.length]) -
                             static_cast<int64_t>(offsets[array.offset]);
  };
  const ArrowValueType type = PlainType(FormatOfSchema(schema));
  switch (type.store) {
    case ArrowStore::kNone:
      if (FormatOfSchema(schema) == "+L") {
        bytes += 8 * length;
      } else if (ArrowListOf(schema).form == ArrowListType::Form::kList) {
        bytes += 4 * length;
      }
      break;
    case ArrowStore::kText:
      bytes += static_cast<uint64_t>(add_offsets(Buffer<int32_t>(array, 1)));
      break;
    case ArrowStore::kLargeText:
      bytes += static_cast<uint64_t>(add_offsets(Buffer<int64_t>(array, 1)));
      break;
    case ArrowStore::kTextView:
      bytes += 16 * length;
      // The last buffer has the sizes of those with the texts.
      for (int64_t i = 2; i + 1 < array.n_buffers; ++i)
        bytes += static_cast<uint64_t>(Buffer<int64_t>(array, array.n_buffers - 1)[i - 2]);
      break;
    case ArrowStore::kFixedText:
    case ArrowStore::kDecimal:
      bytes += type.width * length;
      break;
    default:
      bytes += 8 * length;  // narrower values are widened when they are read
  }
  for (int64_t i = 0; i < array.n_children; ++i)
    bytes += ArrowBytes(*schema.children[i], *array.children[i]);
  if (array.dictionary != nullptr) bytes += ArrowBytes(*schema.dictionary, *array.dictionary);
  return bytes;
}

}  // namespace sluice
