// Turns what Arrow reports and throws into the errors of the plugin's border.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstddef>
#include <string>

#include "arrow/status.h"
#include "parquet/exception.h"

namespace sluice_arrow {

// Calls `work`, which gives an arrow::Status, and turns exceptions into one.
template <typename Work>
arrow::Status Caught(const Work& work) {
  try {
    return work();
  } catch (const parquet::ParquetStatusException& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return arrow::Status::OutOfMemory("not enough memory");
  } catch (const std::exception& error) {
    return arrow::Status::Invalid(error.what());
  } catch (...) {
    return arrow::Status::Invalid("unknown error");
  }
}

// A status whose code is one of OK, Invalid, NotImplemented, IOError and OutOfMemory. IOError: a
// callback has failed. libparquet gives that code to damaged files, too.
arrow::Status Classified(const arrow::Status& status, bool callback_failed);

// The SluiceArrowError of a classified status, and its text in `error` [error_size].
int Report(const arrow::Status& classified, char* error, size_t error_size);

}  // namespace sluice_arrow
