// Finds and opens sluice-arrow.so (arrow_plugin.h) in the installation of this program.
//
// It is the first of these files: beside the program, in ../lib of its folder, in bin/ of a build
// tree, and in the Python package sluice_arrow beside the package sluice. For tests the variable
// SLUICE_ARROW names another file.
//
// The library is opened with RTLD_LOCAL: it brings functions of the same names as OpenSSL's, which
// must not replace those of the program. It stays open until the end of the process.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/arrow/arrow_plugin.h"

namespace sluice {

// FAILED_PRECONDITION: it is not there or does not fit; the message says how to get it in this kind
// of installation. A later call tries again.
absl::StatusOr<const SluiceArrowPlugin*> ArrowLibrary();

// The same for a program in `folder`. `named`: the value of SLUICE_ARROW, or "".
absl::StatusOr<const SluiceArrowPlugin*> OpenArrowLibrary(const std::string& folder,
                                                          const std::string& named);

}  // namespace sluice
