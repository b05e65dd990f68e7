#include "model/profile/table_profile.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/file_columns.h"
#include "model/data/line_reader.h"
#include "model/data/text_reader.h"
#include "model/profile/row_cutter.h"

namespace sluice {
namespace {

constexpr size_t kFirstRows = 1000;  // from which a column learns what it may hold
constexpr size_t kFirstBytes = 16 << 20;
constexpr size_t kPlaces = 8;  // of a plain file that is read in part
// Compressed text is about so many times as long as its file.
constexpr double kUsualRatio = 4;

// A text whose first bytes were already read.
class ReadAgain final : public TextReader {
 public:
  ReadAgain(std::string head, std::unique_ptr<TextReader> rest)
      : TextReader(rest->path(), rest->identity()),
        head_(std::move(head)),
        rest_(std::move(rest)) {}
  bool compressed() const override { return rest_->compressed(); }
  absl::Status SkipTo(uint64_t) override {
    return absl::UnimplementedError("this text is read from front to back");
  }

 protected:
  absl::StatusOr<size_t> ReadSome(char* to, size_t n) override {
    if (taken_ == head_.size()) return rest_->Read(to, n);
    n = head_.copy(to, n, taken_);
    taken_ += n;
    return n;
  }

 private:
  const std::string head_;
  size_t taken_ = 0;
  const std::unique_ptr<TextReader> rest_;
};

absl::StatusOr<std::string> ReadHead(TextReader* text, bool* whole) {
  std::string head(kShapeBytes, '\0');
  size_t size = 0;
  *whole = false;
  while (size < head.size() && !*whole) {
    SLUICE_ASSIGN_OR_RETURN(const size_t got, text->Read(head.data() + size, head.size() - size));
    size += got;
    *whole = got == 0;
  }
  head.resize(size);
  return head;
}

// Adds rows to the columns of a table.
class Columns {
 public:
  explicit Columns(TableProfile* table) : table_(table) {}

  void Add(const RowCutter& cutter) {
    const std::vector<std::string_view>& cells = cutter.cells();
    table_->rows.Add(cells);
    if (first_.size() < kFirstRows && !looked_) {
      first_.emplace_back(cells.begin(), cells.end());
      for (const std::string_view cell : cells) first_bytes_ += cell.size();
      if (first_.size() == kFirstRows || first_bytes_ > kFirstBytes) Look(cutter.columns());
      return;
    }
    Grow(cutter.columns());
    for (size_t c = 0; c < cells.size(); ++c) table_->columns[c].Add(cells[c]);
    ++rows_;
  }

  // Adds the rows that wait. REQUIRES: no row comes after.
  void Look(const std::vector<std::string>& names) {
    if (looked_) return;
    looked_ = true;
    Grow(names);
    for (size_t c = 0; c < names.size(); ++c) {
      std::vector<std::string> cells;
      for (const std::vector<std::string>& row : first_) {
        if (c < row.size()) cells.push_back(row[c]);
      }
      table_->columns[c].LookAt(cells);
      for (size_t r = 0; r < first_.size(); ++r)
        table_->columns[c].Add(c < first_[r].size() ? std::string_view(first_[r][c]) : "");
    }
    rows_ = first_.size();
    first_.clear();
  }

 private:
  void Grow(const std::vector<std::string>& names) {
    while (table_->columns.size() < names.size()) {
      table_->columns.emplace_back(names[table_->columns.size()]);
      table_->columns.back().AddMissing(rows_);
    }
  }

  TableProfile* const table_;
  std::vector<std::vector<std::string>> first_;
  size_t first_bytes_ = 0;
  bool looked_ = false;
  uint64_t rows_ = 0;
};

class TableReader {
 public:
  TableReader(const ProfileLimits& limits, Env* env)
      : limits_(limits), env_(env), columns_(&table_) {}

  absl::StatusOr<TableProfile> Read(const std::vector<std::string>& files) {
    for (const std::string& path : files) {
      table_.files.push_back({path});
      if (path == kStandardInputFile) continue;
      SLUICE_ASSIGN_OR_RETURN(const FileIdentity identity, IdentifyFile(path, env_));
      table_.files.back().size = identity.size;
    }
    if (files.size() == 1 && files[0] == kStandardInputFile) {
      SLUICE_RETURN_IF_ERROR(ReadStandardInput());
    } else {
      SLUICE_RETURN_IF_ERROR(ReadFiles());
    }
    columns_.Look(cutter_->columns());
    Finish();
    return std::move(table_);
  }

 private:
  absl::Status Start(TextShape shape) {
    table_.shape = std::move(shape);
    SLUICE_ASSIGN_OR_RETURN(cutter_, RowCutter::Create(table_.shape));
    return absl::OkStatus();
  }

  absl::Status ReadStandardInput() {
    SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::OpenStandardInput());
    bool whole;
    SLUICE_ASSIGN_OR_RETURN(std::string head, ReadHead(text.get(), &whole));
    SLUICE_ASSIGN_OR_RETURN(TextShape shape, GuessShape(text->path(), head, whole));
    SLUICE_RETURN_IF_ERROR(Start(std::move(shape)));
    auto again = std::make_unique<ReadAgain>(std::move(head), std::move(text));
    LineReader reader(std::move(again), cutter_->rule());
    return ReadLines(&reader, limits_.bytes, &table_.files[0], /*from_start=*/true);
  }

  absl::Status ReadFiles() {
    std::vector<size_t> chosen;
    const size_t n = std::min(limits_.files, table_.files.size());
    for (size_t i = 0; i < n; ++i)
      chosen.push_back(n == 1 ? 0 : i * (table_.files.size() - 1) / (n - 1));
    // Comments may begin any of the files, so all shapes are known before the first line is read.
    std::vector<TextShape> shapes;
    for (const size_t f : chosen) {
      TableProfile::File& file = table_.files[f];
      SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(file.path, env_));
      file.compressed = text->compressed();
      bool whole;
      SLUICE_ASSIGN_OR_RETURN(const std::string head, ReadHead(text.get(), &whole));
      if (head.empty() && table_.files.size() > 1) {
        table_.shape.notes.push_back(absl::StrCat(file.path, " is empty"));
        file.looked_at = file.whole = true;
        continue;
      }
      SLUICE_ASSIGN_OR_RETURN(TextShape shape, GuessShape(file.path, head, whole));
      file.looked_at = true;
      if (shapes.empty()) {
        shapes.push_back(std::move(shape));
        first_file_ = file.path;
      } else {
        SLUICE_RETURN_IF_ERROR(Unite(file.path, std::move(shape), &shapes[0]));
      }
    }
    if (shapes.empty())
      return absl::InvalidArgumentError("all data files are empty; give files with lines");
    shapes[0].notes.insert(shapes[0].notes.end(), table_.shape.notes.begin(),
                           table_.shape.notes.end());
    SLUICE_RETURN_IF_ERROR(Start(std::move(shapes[0])));
    uint64_t left = limits_.bytes;
    for (size_t i = 0; i < chosen.size(); ++i) {
      TableProfile::File& file = table_.files[chosen[i]];
      if (file.whole) continue;
      const uint64_t before = table_.text_bytes;
      SLUICE_RETURN_IF_ERROR(ReadFile(left / (chosen.size() - i), &file));
      left -= std::min(left, table_.text_bytes - before);
    }
    return absl::OkStatus();
  }

  // Adds what the shape of another file says to that of the first one.
  absl::Status Unite(const std::string& path, TextShape shape, TextShape* first) {
    const auto differs = [&](const std::string& how) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file ", path, " ", how, " as ", first_file_,
                       "; the files of a job have one format: check them one by one"));
    };
    if (shape.data.format() != first->data.format()) return differs("has not the same format");
    if (shape.data.csv().header() != first->data.csv().header())
      return differs(shape.data.csv().header() ? "has a header, and so not the same first line"
                                               : "has no header line, and so not the same columns");
    if (FormatOf(shape.data).numbered) return absl::OkStatus();
    if (shape.columns != first->columns) {
      return differs(absl::StrCat("has ", shape.columns.size(), " columns, and not the same ones"));
    }
    if (first->data.csv().comment_prefix().empty() && !shape.data.csv().comment_prefix().empty()) {
      first->data.mutable_csv()->set_comment_prefix(shape.data.csv().comment_prefix());
    }
    for (int s = 0; s < shape.data.slots_size(); ++s) {
      Slot* const slot = first->data.mutable_slots(s);
      if (shape.data.slots(s).type() == Slot::FLOAT) slot->set_type(Slot::FLOAT);
      if (shape.data.slots(s).dim() != slot->dim()) slot->clear_dim();
    }
    return absl::OkStatus();
  }

  absl::Status ReadFile(uint64_t bytes, TableProfile::File* file) {
    const auto open = [&]() -> absl::StatusOr<std::unique_ptr<LineReader>> {
      SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(file->path, env_));
      return std::make_unique<LineReader>(std::move(text), cutter_->rule());
    };
    SLUICE_ASSIGN_OR_RETURN(auto reader, open());
    if (file->compressed || file->size <= bytes) return ReadLines(reader.get(), bytes, file, true);
    for (size_t place = 0; place < kPlaces; ++place) {
      const uint64_t offset = file->size / kPlaces * place;
      if (!reader->CanSeek(offset)) continue;
      if (place > 0) SLUICE_RETURN_IF_ERROR(reader->Seek(offset));
      SLUICE_RETURN_IF_ERROR(ReadLines(reader.get(), bytes / kPlaces, file, place == 0));
    }
    file->whole = false;
    return absl::OkStatus();
  }

  // Reads lines up to `bytes` of text from here.
  absl::Status ReadLines(LineReader* reader, uint64_t bytes, TableProfile::File* file,
                         bool from_start) {
    const uint64_t begin = reader->next_offset();
    uint64_t number = 1;
    file->looked_at = true;
    while (reader->next_offset() - begin < bytes) {
      LineReader::Line line;
      SLUICE_ASSIGN_OR_RETURN(const bool more, reader->Next(&line));
      if (!more) {
        file->whole = from_start;
        break;
      }
      SLUICE_RETURN_IF_ERROR(AddLine(&line, from_start ? number : 0, file));
      number += line.line_ends;
    }
    file->text_bytes += reader->next_offset() - begin;
    table_.text_bytes += reader->next_offset() - begin;
    return absl::OkStatus();
  }

  // `number`: 0 when it is not known.
  absl::Status AddLine(LineReader::Line* line, uint64_t number, TableProfile::File* file) {
    absl::Status cut = absl::InvalidArgumentError(
        absl::StrCat("the line is longer than ", LineReader::kMaxLineBytes, " bytes"));
    if (!line->too_long) {
      RemoveByteOrderMark(line);
      if (cutter_->Skips(line->text())) return absl::OkStatus();
      cut = cutter_->Cut(line->data, line->size);
      if (absl::IsResourceExhausted(cut))
        return absl::InvalidArgumentError(
            absl::StrCat("data file ", file->path, ": ", cut.message()));
    }
    ++table_.lines;
    ++file->lines;
    if (cut.ok()) {
      columns_.Add(*cutter_);
    } else {
      table_.bad.Add(number > 0 ? absl::StrCat(file->path, ":", number)
                                : absl::StrCat(file->path, " at byte ", line->offset),
                     cut);
    }
    return absl::OkStatus();
  }

  void Finish() {
    std::set<std::string> names;
    for (const std::string& name : table_.shape.columns) {
      if (!names.insert(name).second) table_.duplicate_names.push_back(name);
    }
    double all_bytes = 0;
    for (TableProfile::File& file : table_.files) {
      table_.whole = table_.whole && file.whole;
      all_bytes += file.whole
                       ? static_cast<double>(file.text_bytes)
                       : static_cast<double>(file.size) * (file.compressed ? kUsualRatio : 1);
    }
    table_.all_lines = table_.lines;
    if (table_.whole || table_.text_bytes == 0) return;
    const double lines =
        static_cast<double>(table_.lines) * all_bytes / static_cast<double>(table_.text_bytes);
    table_.all_lines = std::max(table_.lines, static_cast<uint64_t>(lines));
  }

  const ProfileLimits limits_;
  Env* const env_;
  TableProfile table_;
  Columns columns_;
  std::unique_ptr<RowCutter> cutter_;
  std::string first_file_;
};

}  // namespace

absl::StatusOr<TableProfile> ProfileTable(const std::vector<std::string>& files,
                                          const ProfileLimits& limits, Env* env) {
  return TableReader(limits, env).Read(files);
}

}  // namespace sluice
