#include "cli/screen/stderr_lines.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/screen/progress.h"
#include "cli/screen/wrap.h"

namespace sluice::cli {

void PrintOnStderr(const std::string& text) {
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const size_t width = terminal ? TerminalWidth(STDERR_FILENO) : 0;
  std::string shown;
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    absl::StrAppend(&shown, terminal ? Wrapped(line, width) : std::string(line), "\n");
  // At once, so that lines of several threads do not mix.
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

}  // namespace sluice::cli
