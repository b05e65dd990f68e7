#include "model/profile/table_profile.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "model/data/file_columns.h"
#include "model/data/line_reader.h"
#include "model/data/partition_folders.h"
#include "model/data/text_reader.h"
#include "model/profile/parquet_profile.h"
#include "model/profile/row_cutter.h"
#include "model/profile/table_columns.h"

namespace sluice {
namespace {

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

class TableReader {
 public:
  TableReader(const ProfileLimits& limits, Env* env)
      : limits_(limits), env_(env), columns_(&table_, [this](size_t c, ColumnProfile* column) {
          if (cutter_->HasLists(c)) column->SetLists(RowCutter::kListDelimiter);
        }) {}

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
    SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::OpenStandardInput(/*json=*/true));
    bool whole;
    SLUICE_ASSIGN_OR_RETURN(std::string head, ReadHead(text.get(), &whole));
    SLUICE_ASSIGN_OR_RETURN(TextShape shape, GuessShape(text->path(), head, whole));
    SLUICE_RETURN_IF_ERROR(Start(std::move(shape)));
    auto again = std::make_unique<ReadAgain>(std::move(head), std::move(text));
    LineReader reader(std::move(again), cutter_->rule());
    return ReadLines(&reader, limits_.bytes, &table_.files[0], /*from_start=*/true);
  }

  absl::Status ReadFiles() {
    const std::vector<size_t> chosen = ChooseFiles(table_.files.size(), limits_.files);
    // Comments may begin any of the files, so all shapes are known before the first line is read.
    std::vector<TextShape> shapes;
    for (const size_t f : chosen) {
      TableProfile::File& file = table_.files[f];
      SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(file.path, env_, /*json=*/true));
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
    if (FormatOf(shape.data).numbered) {
      if (shape.columns.size() > first->columns.size()) *first = std::move(shape);
      return absl::OkStatus();
    }
    if (FormatOf(shape.data).names_in_lines) {
      AddNames(shape, first);
      return absl::OkStatus();
    }
    if (shape.columns != first->columns) {
      return differs(absl::StrCat("has ", shape.columns.size(), " columns, and not the same ones"));
    }
    if (first->data.csv().comment_prefix().empty() && !shape.data.csv().comment_prefix().empty()) {
      first->data.mutable_csv()->set_comment_prefix(shape.data.csv().comment_prefix());
    }
    for (int s = 0; s < shape.data.slots_size(); ++s)
      UniteSlots(shape.data.slots(s), first->data.mutable_slots(s));
    return absl::OkStatus();
  }

  // Adds the columns that only another file names.
  static void AddNames(const TextShape& shape, TextShape* first) {
    std::map<std::string, int> places;
    for (size_t c = 0; c < first->columns.size(); ++c) places[first->columns[c]] = c;
    for (size_t c = 0; c < shape.columns.size(); ++c) {
      const bool has_slot = static_cast<int>(c) < shape.data.slots_size();
      const auto known = places.find(shape.columns[c]);
      if (known == places.end()) {
        first->columns.push_back(shape.columns[c]);
        if (has_slot) *first->data.add_slots() = shape.data.slots(static_cast<int>(c));
      } else if (has_slot) {
        UniteSlots(shape.data.slots(static_cast<int>(c)), first->data.mutable_slots(known->second));
      }
    }
  }

  static void UniteSlots(const Slot& slot, Slot* to) {
    if (slot.type() == Slot::FLOAT) to->set_type(Slot::FLOAT);
    if (slot.dim() != to->dim()) to->clear_dim();
  }

  absl::Status ReadFile(uint64_t bytes, TableProfile::File* file) {
    const auto open = [&]() -> absl::StatusOr<std::unique_ptr<LineReader>> {
      SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(file->path, env_, /*json=*/true));
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
      columns_.Add(cutter_->columns(), cutter_->cells());
    } else {
      table_.bad.Add(number > 0 ? absl::StrCat(file->path, ":", number)
                                : absl::StrCat(file->path, " at byte ", line->offset),
                     cut);
    }
    return absl::OkStatus();
  }

  void Finish() {
    std::map<std::string, int> columns;  // by name
    for (const std::string& name : table_.shape.columns) {
      if (++columns[name] == 2) table_.duplicate_names.push_back(name);
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
  TableColumns columns_;
  std::unique_ptr<RowCutter> cutter_;
  std::string first_file_;
};

}  // namespace

absl::StatusOr<TableProfile> ProfileTable(const std::vector<std::string>& files,
                                          const ProfileLimits& limits, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const bool parquet, BeginsAsParquet(files, env));
  return parquet ? ProfileParquet(files, limits, env) : TableReader(limits, env).Read(files);
}

std::vector<ColumnProfile> FolderColumns(const std::vector<std::string>& patterns,
                                         const TableProfile& table) {
  DataConfig data;
  for (const std::string& pattern : patterns) data.add_train_files(pattern);
  std::vector<std::string> names;                           // in the order of the folders
  std::vector<std::map<std::string, std::string>> by_file;  // of the files with rows
  std::vector<uint64_t> rows;
  for (const TableProfile::File& file : table.files) {
    if (file.lines == 0) continue;
    rows.push_back(file.lines);
    by_file.emplace_back();
    for (auto& [name, value] : PartitionColumns(data, file.path)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      by_file.back()[name] = std::move(value);
    }
  }
  std::vector<ColumnProfile> columns;
  for (const std::string& name : names) {
    const bool own = std::any_of(table.columns.begin(), table.columns.end(),
                                 [&](const ColumnProfile& one) { return one.name() == name; });
    if (own) continue;
    std::vector<std::string> values;  // by file
    for (const auto& of_file : by_file) {
      const auto found = of_file.find(name);
      values.push_back(found == of_file.end() ? "" : found->second);
    }
    ColumnProfile& column = columns.emplace_back(name);
    column.LookAt(values);
    for (size_t f = 0; f < values.size(); ++f) {
      for (uint64_t r = 0; r < rows[f]; ++r) column.Add(values[f]);
    }
  }
  return columns;
}

}  // namespace sluice
