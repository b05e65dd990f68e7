// Streams of the Arrow C stream interface, for tests.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/arrow/arrow_c_data.h"
#include "tests/common/arrow/arrow_columns.h"
#include "tests/model/data/arrow_arrays.h"

namespace sluice {

// Batches as a stream; fails after them when `error` is not 0.
class TestStream {
 public:
  static ArrowArrayStream Of(std::vector<TestColumns> batches, int error = 0) {
    auto* const self = new TestStream;
    self->batches_ = std::move(batches);
    self->error_ = error;
    return {Schema, Next, LastError, Release, self};
  }

 private:
  static TestStream* Self(ArrowArrayStream* stream) {
    return static_cast<TestStream*>(stream->private_data);
  }
  static int Schema(ArrowArrayStream* stream, ArrowSchema* out) {
    *out = TestStructs::Schema(Self(stream)->batches_[0]).Take();
    return 0;
  }
  static int Next(ArrowArrayStream* stream, ArrowArray* out) {
    TestStream* const self = Self(stream);
    *out = {};
    if (self->next_ == self->batches_.size()) return self->error_;
    *out = TestStructs::Array(self->batches_[self->next_++]).Take();
    return 0;
  }
  static const char* LastError(ArrowArrayStream*) { return "the disk is gone"; }
  static void Release(ArrowArrayStream* stream) {
    delete Self(stream);
    stream->release = nullptr;
  }

  std::vector<TestColumns> batches_;
  size_t next_ = 0;
  int error_ = 0;
};

// A stream of one batch, which outlives it.
inline ArrowArrayStream StreamOf(ArrowStructs* structs) {
  ArrowArrayStream stream = {};
  stream.private_data = structs;
  stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
    *out = static_cast<ArrowStructs*>(self->private_data)->schema;
    return 0;
  };
  stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    *out = {};
    // Moved, as the interface's rules say, so that the next call ends the stream.
    std::swap(*out, static_cast<ArrowStructs*>(self->private_data)->array);
    return 0;
  };
  stream.release = [](ArrowArrayStream* self) { self->release = nullptr; };
  return stream;
}

}  // namespace sluice
