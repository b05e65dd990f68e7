#include "model/data/row_copy.h"

#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

struct SchemaParts {
  std::string format, name;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
  ArrowSchema dictionary = {};
};

void ReleaseCopy(ArrowSchema* schema) {
  auto* const parts = static_cast<SchemaParts*>(schema->private_data);
  for (ArrowSchema& child : parts->children) {
    if (child.release != nullptr) child.release(&child);
  }
  if (parts->dictionary.release != nullptr) parts->dictionary.release(&parts->dictionary);
  delete parts;
  schema->release = nullptr;
}

// Without its metadata.
ArrowSchema CopyOf(const ArrowSchema& from) {
  auto* const parts = new SchemaParts{from.format, from.name == nullptr ? "" : from.name};
  for (int64_t i = 0; i < from.n_children; ++i)
    parts->children.push_back(CopyOf(*from.children[i]));
  for (ArrowSchema& child : parts->children) parts->pointers.push_back(&child);
  ArrowSchema copy = {};
  copy.format = parts->format.c_str();
  copy.name = parts->name.c_str();
  copy.flags = from.flags;
  copy.n_children = from.n_children;
  copy.children = parts->pointers.data();
  if (from.dictionary != nullptr) {
    parts->dictionary = CopyOf(*from.dictionary);
    copy.dictionary = &parts->dictionary;
  }
  copy.release = ReleaseCopy;
  copy.private_data = parts;
  return copy;
}

struct SliceParts {
  SharedRows rows;  // whose memory the slice borrows
  std::vector<ArrowArray> columns;
  std::vector<ArrowArray*> pointers;
  const void* no_nulls = nullptr;
};

void ReleaseSlice(ArrowArray* slice) {
  delete static_cast<SliceParts*>(slice->private_data);
  slice->release = nullptr;
}

void ReleaseColumn(ArrowArray* column) { column->release = nullptr; }

}  // namespace

ArrowOwner<ArrowSchema> CopyOfSchema(const ArrowSchema& schema) {
  return ArrowOwner<ArrowSchema>(CopyOf(schema));
}

ArrowOwner<ArrowArray> SliceOfRows(const SharedRows& rows, int64_t begin, int64_t n) {
  const ArrowArray& all = **rows;
  auto* const parts = new SliceParts{rows};
  for (int64_t c = 0; c < all.n_children; ++c) {
    ArrowArray column = *all.children[c];
    column.offset += all.offset + begin;
    column.length = n;
    if (column.null_count != 0) column.null_count = -1;  // not counted
    column.release = ReleaseColumn;
    column.private_data = nullptr;
    parts->columns.push_back(column);
  }
  for (ArrowArray& column : parts->columns) parts->pointers.push_back(&column);
  ArrowArray slice = {};
  slice.length = n;
  slice.n_buffers = 1;
  slice.buffers = &parts->no_nulls;
  slice.n_children = all.n_children;
  slice.children = parts->pointers.data();
  slice.release = ReleaseSlice;
  slice.private_data = parts;
  return ArrowOwner<ArrowArray>(slice);
}

}  // namespace sluice
