#include "common/arrow/plugin/ranged_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "arrow/util/future.h"

namespace sluice_arrow {

void RangedFile::Plan(const std::vector<arrow::io::ReadRange>& ranges) {
  plan_.clear();
  for (const auto& range : ranges) plan_.push_back({range.offset, range.length, nullptr});
  std::sort(plan_.begin(), plan_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<SluiceArrowRange> said;
  for (const Range& range : plan_) said.push_back({range.begin, range.length});
  input_.plan(input_.context, said.data(), said.size());
}

arrow::Result<int64_t> RangedFile::Available(int64_t position, int64_t nbytes) const {
  // A damaged footer may name any place.
  if (position < 0 || nbytes < 0)
    return arrow::Status::Invalid("the footer names bytes outside of the file");
  if (position >= input_.size) return 0;
  return std::min(nbytes, input_.size - position);
}

arrow::Status RangedFile::Fetch(int64_t position, int64_t nbytes, void* out) {
  if (nbytes == 0) return arrow::Status::OK();
  if (input_.read_at(input_.context, position, nbytes, out) == 0) return arrow::Status::OK();
  failed_ = true;
  return arrow::Status::IOError("the file could not be read");
}

arrow::Result<const RangedFile::Range*> RangedFile::Planned(int64_t position, int64_t nbytes) {
  auto after =
      std::upper_bound(plan_.begin(), plan_.end(), position,
                       [](int64_t value, const Range& range) { return value < range.begin; });
  if (after == plan_.begin()) return nullptr;
  Range& range = *std::prev(after);
  if (nbytes > range.length || position - range.begin > range.length - nbytes) return nullptr;
  if (range.bytes == nullptr) {
    // libparquet plans within the file only as far as the footer tells the truth.
    ARROW_ASSIGN_OR_RAISE(const int64_t length, Available(range.begin, range.length));
    if (length < range.length)
      return arrow::Status::Invalid("the footer names bytes outside of the file");
    ARROW_ASSIGN_OR_RAISE(auto bytes, arrow::AllocateBuffer(length));
    ARROW_RETURN_NOT_OK(Fetch(range.begin, length, bytes->mutable_data()));
    range.bytes = std::move(bytes);
  }
  return &range;
}

arrow::Result<int64_t> RangedFile::ReadAt(int64_t position, int64_t nbytes, void* out) {
  ARROW_ASSIGN_OR_RAISE(nbytes, Available(position, nbytes));
  ARROW_ASSIGN_OR_RAISE(const Range* range, Planned(position, nbytes));
  if (range == nullptr) {
    ARROW_RETURN_NOT_OK(Fetch(position, nbytes, out));
  } else if (nbytes > 0) {
    std::memcpy(out, range->bytes->data() + (position - range->begin), nbytes);
  }
  return nbytes;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> RangedFile::ReadAt(int64_t position, int64_t nbytes) {
  ARROW_ASSIGN_OR_RAISE(nbytes, Available(position, nbytes));
  ARROW_ASSIGN_OR_RAISE(const Range* range, Planned(position, nbytes));
  if (range != nullptr) return arrow::SliceBuffer(range->bytes, position - range->begin, nbytes);
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> bytes, arrow::AllocateBuffer(nbytes));
  ARROW_RETURN_NOT_OK(Fetch(position, nbytes, bytes->mutable_data()));
  return bytes;
}

arrow::Future<std::shared_ptr<arrow::Buffer>> RangedFile::ReadAsync(const arrow::io::IOContext&,
                                                                    int64_t position,
                                                                    int64_t nbytes) {
  return arrow::Future<std::shared_ptr<arrow::Buffer>>::MakeFinished(ReadAt(position, nbytes));
}

arrow::Result<int64_t> RangedFile::Read(int64_t nbytes, void* out) {
  ARROW_ASSIGN_OR_RAISE(nbytes, ReadAt(position_, nbytes, out));
  position_ += nbytes;
  return nbytes;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> RangedFile::Read(int64_t nbytes) {
  ARROW_ASSIGN_OR_RAISE(auto bytes, ReadAt(position_, nbytes));
  position_ += bytes->size();
  return bytes;
}

arrow::Status RangedFile::Seek(int64_t position) {
  position_ = position;
  return arrow::Status::OK();
}

}  // namespace sluice_arrow
