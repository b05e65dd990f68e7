#include "model/profile/held_out.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/mix_hash.h"
#include "common/base/status_macros.h"
#include "model/data/file_columns.h"
#include "model/data/line_reader.h"
#include "model/data/text_reader.h"
#include "model/profile/row_cutter.h"

namespace sluice {
namespace {

// Whether the name of the file has one of the words, with no letter beside it.
bool NameHas(const std::string& path, const std::vector<std::string>& words) {
  const std::string name = absl::AsciiStrToLower(std::filesystem::path(path).filename().string());
  const auto letter = [&name](size_t i) { return i < name.size() && absl::ascii_isalpha(name[i]); };
  for (const std::string& word : words) {
    for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
      if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;
    }
  }
  return false;
}

// Collects text so that a file gets few large pieces.
class TextOut {
 public:
  static absl::StatusOr<std::unique_ptr<TextOut>> Start(const std::string& path, Env* env) {
    SLUICE_ASSIGN_OR_RETURN(auto file, env->StartFile(path));
    auto out = std::make_unique<TextOut>();
    out->file_ = std::move(file);
    return out;
  }
  absl::Status AddLine(std::string_view line) {
    absl::StrAppend(&text_, absl::string_view(line.data(), line.size()), "\n");
    return text_.size() < kPiece ? absl::OkStatus() : Flush();
  }
  absl::Status Finish() {
    SLUICE_RETURN_IF_ERROR(Flush());
    return file_->Finish();
  }

 private:
  static constexpr size_t kPiece = 1 << 20;
  absl::Status Flush() {
    const absl::Status added = file_->Append(text_);
    text_.clear();
    return added;
  }

  std::unique_ptr<NewFile> file_;
  std::string text_;
};

}  // namespace

FileRoles RolesOf(const std::vector<TableProfile::File>& files) {
  FileRoles roles;
  if (files.size() < 2) {
    for (const TableProfile::File& file : files) roles.train.push_back(file.path);
    return roles;
  }
  const auto deal = [&](const std::vector<std::string>& words) {
    for (const TableProfile::File& file : files)
      (NameHas(file.path, words) ? roles.eval : roles.train).push_back(file.path);
    if (!roles.eval.empty() && !roles.train.empty()) return true;
    roles.eval.clear();
    roles.train.clear();
    return false;
  };
  const std::vector<std::string> test = {"test", "tests", "testing"};
  if (deal({"valid", "validation", "val", "eval", "evaluation", "dev", "holdout"})) {
    roles.why = "the names of the files say which evaluate";
    std::vector<std::string> train;
    for (const std::string& path : roles.train)
      (NameHas(path, test) ? roles.unused : train).push_back(path);
    if (train.empty()) std::swap(train, roles.unused);
    roles.train = std::move(train);
    return roles;
  }
  if (deal(test)) {
    roles.why = "the names of the files say which evaluate";
    return roles;
  }
  uint64_t all = 0;
  for (const TableProfile::File& file : files) all += file.size;
  size_t chosen = files.size() - 1;
  roles.why = "the last file, in the order of the names, evaluates";
  if (files[chosen].size * 2 > all + 1) {
    for (size_t f = 0; f < files.size(); ++f) {
      if (files[f].size < files[chosen].size) chosen = f;
    }
    roles.why = "the smallest file evaluates";
  }
  for (size_t f = 0; f < files.size(); ++f)
    (f == chosen ? roles.eval : roles.train).push_back(files[f].path);
  return roles;
}

absl::StatusOr<HeldOut> HoldOutLines(const std::string& file, const TextShape& shape, double share,
                                     const std::string& train, const std::string& eval, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const auto cutter, RowCutter::Create(shape));
  SLUICE_ASSIGN_OR_RETURN(auto text, TextReader::Open(file, env, /*json=*/true));
  LineReader reader(std::move(text), cutter->rule());
  SLUICE_ASSIGN_OR_RETURN(auto to_train, TextOut::Start(train, env));
  SLUICE_ASSIGN_OR_RETURN(auto to_eval, TextOut::Start(eval, env));
  bool header = shape.data.csv().header();
  const auto limit = static_cast<uint64_t>(share * 0x1p32);
  HeldOut counts;
  LineReader::Line line;
  uint64_t number = 0;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, reader.Next(&line));
    if (!more) break;
    if (line.too_long) {
      ++counts.too_long;
      continue;
    }
    RemoveByteOrderMark(&line);
    if (cutter->Skips(line.text())) {
      if (!header) continue;
      // Comments may come before the header, and empty lines.
      std::string copy(line.text());
      if (!cutter->Cut(copy.data(), copy.size()).ok()) continue;
      header = false;
      SLUICE_RETURN_IF_ERROR(to_train->AddLine(line.text()));
      SLUICE_RETURN_IF_ERROR(to_eval->AddLine(line.text()));
      continue;
    }
    const bool held = MixHash(++number) >> 32 < limit;
    ++(held ? counts.eval_lines : counts.train_lines);
    SLUICE_RETURN_IF_ERROR((held ? to_eval : to_train)->AddLine(line.text()));
  }
  SLUICE_RETURN_IF_ERROR(to_train->Finish());
  if (const absl::Status finished = to_eval->Finish(); !finished.ok()) {
    env->RemoveFile(train).IgnoreError();
    return finished;
  }
  return counts;
}

}  // namespace sluice
