// Recognizes how a text of data is written, from its beginning: the format, the delimiter, quotes,
// a header line, comments.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/config.pb.h"

namespace sluice {

// As many first bytes of a text as GuessShape looks at.
inline constexpr size_t kShapeBytes = 1 << 20;

struct TextShape {
  // `format`, `csv` (with header or columns, without missing) and `slots`. CSV and TSV name all
  // columns; columns of files without a header are c1, c2, ...
  DataConfig data;
  // Of a line. LIBSVM and LIBFFM: the label alone, "label"; JSON_LINES: the keys of the first
  // lines.
  std::vector<std::string> columns;
  std::vector<std::string> notes;  // what was assumed, a sentence each
  // Lines of the text whose number of cells is that of the columns, as a share.
  double fitting = 1;
};

// `head`: the beginning of the decompressed text; `whole`: it is all of the text. INVALID_ARGUMENT,
// naming `path`, when it has no line, or its lines have one column only.
absl::StatusOr<TextShape> GuessShape(const std::string& path, std::string_view head, bool whole);

}  // namespace sluice
