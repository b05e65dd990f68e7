#include "cli/plan/data_sample.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/places/places_env.h"
#include "model/data/expand_files.h"
#include "model/data/line_format.h"
#include "model/data/line_reader.h"
#include "model/data/text_reader.h"

namespace sluice::plan {
namespace {

constexpr double kCompression = 3;  // about that of text

}  // namespace

absl::StatusOr<DataSample> CopyFirstLines(const DataConfig& data, const std::string& folder,
                                          uint64_t bytes) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                          ExpandFiles(data.train_files(), AllPlaces()));
  // Cells with line ends stay whole.
  SLUICE_ASSIGN_OR_RETURN(const RecordRule rule, RecordRuleOf(data));
  DataSample sample;
  double copied = 0, all = 0;  // bytes of text
  for (const std::string& path : paths) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<TextReader> text, OpenText(data, path, AllPlaces()));
    const double size = static_cast<double>(text->identity().size);
    // Decompressing the rest only to know its length would take longer than the measurement.
    const double estimate = size * (text->compressed() ? kCompression : 1);
    // Later files count for the share only; they are not read.
    if (copied >= static_cast<double>(bytes)) {
      sample.whole = false;
      all += estimate;
      continue;
    }
    // Numbers of the same length keep the order of the files when they are sorted by name.
    const std::string name = absl::StrCat(folder, "/part-", 100000 + sample.files.size());
    std::ofstream out(name, std::ios::binary);
    LineReader reader(std::move(text), rule);
    LineReader::Line line;
    double here = 0;
    bool more = true;
    while (copied + here < static_cast<double>(bytes)) {
      SLUICE_ASSIGN_OR_RETURN(more, reader.Next(&line));
      if (!more) break;
      // Training skips such a line as malformed. It would only count against max_bad_lines here, so
      // blank lines take its place.
      if (line.too_long) {
        out << std::string(line.line_ends, '\n');
        continue;
      }
      out << line.text() << '\n';
      here += static_cast<double>(line.size) + 1;
      ++sample.lines;
    }
    out.close();
    if (!out) {
      return absl::InternalError(
          absl::StrCat("cannot write ", name, "; is the disk full? (TMPDIR names another folder)"));
    }
    sample.files.push_back(name);
    sample.sources.push_back(path);
    sample.whole = sample.whole && !more;
    copied += here;
    // The length of a file that was read to its end is known; elsewhere at least what was copied.
    all += more ? std::max(estimate, here) : here;
  }
  if (all > 0) sample.share = std::min(1.0, copied / all);
  return sample;
}

absl::Status WithSourceNames(const absl::Status& status, const DataSample& sample) {
  std::vector<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < sample.files.size(); ++i)
    names.emplace_back(sample.files[i], sample.sources[i]);
  return absl::Status(status.code(), absl::StrReplaceAll(status.message(), names));
}

}  // namespace sluice::plan
