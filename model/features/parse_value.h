// Cells to numbers: strict, so that a shifted column is a bad line and not a silent zero.
//
// Thread safety: free functions.
#pragma once

#include <string_view>

#include "proto/config.pb.h"

namespace sluice {

// The whole cell as a finite number: "12", "-1.5e3", "+2". False for "", "12a", "nan", "inf",
// "1e999", " 1".
bool ParseNumber(std::string_view cell, double* value);

// The part of a date "YYYY-MM-DD[ HH:MM[:SS]]" in the proleptic Gregorian calendar. False when the
// cell is no such date, or has no time and `part` needs one. REQUIRES: part != WHOLE.
bool ParseDatePart(std::string_view cell, DatePart part, int* value);

}  // namespace sluice
