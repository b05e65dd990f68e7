#include "model/table_files/arrow_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

template <typename Struct>
void ReleaseChildren(Struct* parent) {
  for (int64_t i = 0; i < parent->n_children; ++i) {
    // One that was moved away has no release.
    if (parent->children[i]->release != nullptr) parent->children[i]->release(parent->children[i]);
  }
}

// What an ArrowSchema and an ArrowArray point to.
struct SchemaNode {
  std::string name, format;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> pointers;
};
struct ArrayNode {
  ArrowColumn column;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
};

void ReleaseSchema(ArrowSchema* schema) {
  ReleaseChildren(schema);
  delete static_cast<SchemaNode*>(schema->private_data);
  schema->release = nullptr;
}

void ReleaseArray(ArrowArray* array) {
  ReleaseChildren(array);
  delete static_cast<ArrayNode*>(array->private_data);
  array->release = nullptr;
}

ArrowSchema SchemaOf(const ArrowColumn& column) {
  auto* const node = new SchemaNode{column.name, column.format, {}, {}};
  for (const ArrowColumn& child : column.children) node->children.push_back(SchemaOf(child));
  for (ArrowSchema& child : node->children) node->pointers.push_back(&child);
  ArrowSchema schema = {};
  schema.format = node->format.c_str();
  schema.name = node->name.c_str();
  schema.n_children = static_cast<int64_t>(node->children.size());
  schema.children = node->pointers.data();
  schema.release = &ReleaseSchema;
  schema.private_data = node;
  return schema;
}

ArrowArray ArrayOf(ArrowColumn column) {
  auto* const node = new ArrayNode;
  for (ArrowColumn& child : column.children) node->children.push_back(ArrayOf(std::move(child)));
  for (ArrowArray& child : node->children) node->pointers.push_back(&child);
  node->buffers.push_back(nullptr);  // no nulls
  node->buffers.insert(node->buffers.end(), column.buffers.begin(), column.buffers.end());
  node->column = std::move(column);
  ArrowArray array = {};
  array.length = static_cast<int64_t>(node->column.length);
  array.n_buffers = static_cast<int64_t>(node->buffers.size());
  array.buffers = node->buffers.data();
  array.n_children = static_cast<int64_t>(node->children.size());
  array.children = node->pointers.data();
  array.release = &ReleaseArray;
  array.private_data = node;
  return array;
}

template <typename Number>
ArrowColumn Numbers(const std::string& name, const char* format, std::vector<Number> values) {
  auto owner = std::make_shared<std::vector<Number>>(std::move(values));
  return {name, format, owner->size(), {owner->data()}, owner, {}};
}

ArrowColumn StructOf(std::vector<ArrowColumn> columns, uint64_t rows) {
  return {"", "+s", rows, {}, nullptr, std::move(columns)};
}

}  // namespace

ArrowColumn ArrowNumbers(const std::string& name, std::vector<uint64_t> values) {
  return Numbers(name, "L", std::move(values));
}

ArrowColumn ArrowNumbers(const std::string& name, std::vector<uint32_t> values) {
  return Numbers(name, "I", std::move(values));
}

ArrowColumn ArrowLists(const std::string& name, uint32_t dim, std::vector<float> values) {
  const uint64_t rows = values.size() / dim;
  return {name,    absl::StrCat("+w:", dim),
          rows,    {},
          nullptr, {Numbers("element", "f", std::move(values))}};
}

ArrowColumn ArrowTexts(const std::string& name, std::vector<int32_t> offsets, std::string text) {
  auto owner = std::make_shared<std::pair<std::vector<int32_t>, std::string>>(std::move(offsets),
                                                                              std::move(text));
  return {name,  "u", owner->first.size() - 1, {owner->first.data(), owner->second.data()},
          owner, {}};
}

ArrowOwner<ArrowSchema> ArrowSchemaOf(const std::vector<ArrowColumn>& columns) {
  return ArrowOwner<ArrowSchema>(SchemaOf(StructOf(columns, 0)));
}

ArrowOwner<ArrowArray> ArrowRowsOf(std::vector<ArrowColumn> columns, uint64_t rows) {
  return ArrowOwner<ArrowArray>(ArrayOf(StructOf(std::move(columns), rows)));
}

}  // namespace sluice
