#include "model/table_files/npz_export.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/shard_file_reader.h"
#include "model/table_files/npy.h"
#include "model/table_files/zip_writer.h"

namespace sluice {
namespace {

constexpr size_t kDenseReadBytes = 1 << 20;

template <typename Number>
absl::string_view BytesOf(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

// The code points of a text; those of bytes that are no UTF-8 are the bytes.
std::vector<uint32_t> CodePoints(absl::string_view text) {
  std::vector<uint32_t> points;
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[i + k]); };
    const uint8_t lead = byte(0);
    const size_t n = lead < 0x80   ? 1
                     : lead < 0xC2 ? 0
                     : lead < 0xE0 ? 2
                     : lead < 0xF0 ? 3
                     : lead < 0xF5 ? 4
                                   : 0;
    uint32_t point = n == 2 ? lead & 0x1F : n == 3 ? lead & 0x0F : lead & 0x07;
    bool whole = n > 0 && i + n <= text.size();
    for (size_t k = 1; whole && k < n; ++k) {
      whole = (byte(k) & 0xC0) == 0x80;
      point = point << 6 | (byte(k) & 0x3F);
    }
    if (n == 1 || !whole) point = lead;
    points.push_back(point);
    i += whole ? n : 1;
  }
  return points;
}

// Texts as NumPy has them: UTF-32 of one length, filled up with zeros.
class TextArray {
 public:
  explicit TextArray(size_t length) : length_(std::max<size_t>(1, length)) {}
  std::string descr() const { return absl::StrCat("<U", length_); }
  void Add(absl::string_view text) {
    std::vector<uint32_t> points = CodePoints(text);
    points.resize(length_);
    absl::StrAppend(&bytes_, BytesOf(points));
  }
  std::string Take() { return std::exchange(bytes_, std::string()); }

 private:
  const size_t length_;
  std::string bytes_;
};

class NpzExport {
 public:
  NpzExport(NamedRows* rows, uint64_t count, std::unique_ptr<NewFile> file)
      : rows_(*rows), count_(count), zip_(std::move(file)) {}

  absl::Status Write(const std::string& feature) {
    if (rows_.vocabulary() == nullptr) {
      SLUICE_RETURN_IF_ERROR(Column(kKeyColumn, "<u8", 0, [](const RowBlock& block) {
        return std::string(BytesOf(block.keys));
      }));
    } else {
      SLUICE_RETURN_IF_ERROR(WriteNames(feature));
    }
    for (const TableColumns::Floats& column : rows_.columns().floats())
      SLUICE_RETURN_IF_ERROR(WriteFloats(column));
    if (rows_.state()) {
      SLUICE_RETURN_IF_ERROR(Column(kCountColumn, "<u4", 0, [](const RowBlock& block) {
        return std::string(BytesOf(block.count));
      }));
      SLUICE_RETURN_IF_ERROR(Column(kLastSeenColumn, "<u8", 0, [](const RowBlock& block) {
        return std::string(BytesOf(block.last_seen));
      }));
    }
    return zip_.Finish();
  }

 private:
  // Reads all rows, and writes what `bytes_of` makes of each block. `width` 0: one value a row.
  absl::Status Column(const std::string& name, absl::string_view descr, uint64_t width,
                      const std::function<std::string(const RowBlock&)>& bytes_of) {
    std::vector<uint64_t> shape = {count_};
    if (width > 0) shape.push_back(width);
    SLUICE_RETURN_IF_ERROR(zip_.Begin(name + ".npy"));
    SLUICE_RETURN_IF_ERROR(zip_.Append(EncodeNpyHeader(descr, shape)));
    rows_.Rewind();
    while (true) {
      SLUICE_ASSIGN_OR_RETURN(const bool more, rows_.Next(&block_, &lines_));
      if (!more) return zip_.End();
      SLUICE_RETURN_IF_ERROR(zip_.Append(bytes_of(block_)));
    }
  }

  absl::Status WriteFloats(const TableColumns::Floats& column) {
    const size_t floats = rows_.columns().row_floats();
    return Column(column.name, "<f4", column.dim, [&](const RowBlock& block) {
      std::string bytes(block.size() * column.dim * sizeof(float), '\0');
      for (size_t i = 0; i < block.size(); ++i) {
        std::memcpy(bytes.data() + i * column.dim * sizeof(float),
                    block.floats.data() + i * floats + column.begin, column.dim * sizeof(float));
      }
      return bytes;
    });
  }

  absl::Status WriteNames(const std::string& feature) {
    const Vocabulary& vocabulary = *rows_.vocabulary();
    size_t longest = 0;
    for (size_t line = 0; line < vocabulary.size(); ++line)
      longest = std::max(longest, CodePoints(vocabulary.value(line)).size());
    TextArray values(longest);
    SLUICE_RETURN_IF_ERROR(Column(kValueColumn, values.descr(), 0, [&](const RowBlock&) {
      for (const uint32_t line : lines_) values.Add(vocabulary.value(line));
      return values.Take();
    }));
    TextArray features(CodePoints(feature).size());
    return Column(kFeatureColumn, features.descr(), 0, [&](const RowBlock& block) {
      for (size_t i = 0; i < block.size(); ++i) features.Add(feature);
      return features.Take();
    });
  }

  NamedRows& rows_;
  const uint64_t count_;
  ZipWriter zip_;
  RowBlock block_;
  std::vector<uint32_t> lines_;
};

// Appends elements [first, first + n) of a dense file's body; state array k follows the weights.
absl::Status AppendElements(const ShardFileReader& file, uint64_t first, uint64_t n,
                            ZipWriter* zip) {
  RunReader runs(&file, 0, file.runs());
  const uint64_t end = first + n;
  for (uint64_t at = 0;;) {
    SLUICE_ASSIGN_OR_RETURN(const std::string records, runs.Next(kDenseReadBytes));
    if (records.empty()) return absl::OkStatus();
    const uint64_t got = records.size() / sizeof(float);
    const uint64_t from = std::clamp(first, at, at + got), to = std::clamp(end, at, at + got);
    SLUICE_RETURN_IF_ERROR(zip->Append(absl::string_view(records).substr(
        (from - at) * sizeof(float), (to - from) * sizeof(float))));
    at += got;
  }
}

}  // namespace

absl::Status WriteNpz(NamedRows* rows, uint64_t count, const std::string& feature,
                      std::unique_ptr<NewFile> file) {
  return NpzExport(rows, count, std::move(file)).Write(feature);
}

absl::Status WriteDenseNpz(const std::string& dir, const Manifest& manifest,
                           const TableLayout& layout, bool state, Env* env,
                           std::unique_ptr<NewFile> file) {
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(dir, manifest, layout.config()));
  std::vector<std::unique_ptr<ShardFileReader>> readers;
  uint64_t elements = 0;
  for (const SavedFile* one : files) {
    SLUICE_ASSIGN_OR_RETURN(auto reader, ShardFileReader::Open(env, dir, layout.config(), *one));
    if (reader->header().first_element() != elements) {
      return absl::DataLossError(absl::StrCat(reader->path(), " is damaged: it begins at element ",
                                              reader->header().first_element(), ", not ",
                                              elements));
    }
    elements += reader->values();
    readers.push_back(std::move(reader));
  }
  if (elements != layout.elements()) {
    return absl::DataLossError(absl::StrCat("the files of table '", layout.name(), "' in ", dir,
                                            " have ", elements, " of ", layout.elements(),
                                            " elements"));
  }
  std::vector<std::string> names = {kWeightsColumn};
  // In Geo the workers have the state.
  if (state && readers[0]->header().state_floats() > 0) {
    for (const std::string& name : StateNames(layout.columns()[0].optimizer))
      names.push_back(absl::StrCat("state_", name));
  }
  const auto& extents = layout.config().shape();
  const std::vector<uint64_t> shape(extents.begin(), extents.end());
  ZipWriter zip(std::move(file));
  for (size_t array = 0; array < names.size(); ++array) {
    SLUICE_RETURN_IF_ERROR(zip.Begin(names[array] + ".npy"));
    SLUICE_RETURN_IF_ERROR(zip.Append(EncodeNpyHeader("<f4", shape)));
    for (const auto& reader : readers) {
      SLUICE_RETURN_IF_ERROR(
          AppendElements(*reader, array * reader->values(), reader->values(), &zip));
    }
    SLUICE_RETURN_IF_ERROR(zip.End());
  }
  return zip.Finish();
}

}  // namespace sluice
