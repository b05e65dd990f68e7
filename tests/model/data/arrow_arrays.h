// Arrays of any type of the Arrow C data interface, made by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/arrow/arrow_c_data.h"
#include "common/arrow/parquet.h"

namespace sluice {

// A type and its values. The array begins `skipped` values before the first one that counts.
struct ArrowNode {
  std::string format, name;
  int64_t length = 0;                // without `skipped`
  int64_t skipped = 0;               // the array's offset
  std::vector<bool> valid;           // [skipped + length]; empty: all are
  std::vector<std::string> buffers;  // behind the validity
  std::vector<ArrowNode> children;
  std::shared_ptr<ArrowNode> dictionary;

  template <typename T>
  static ArrowNode Of(std::string format, std::string name,
                      const std::vector<std::optional<T>>& values, int64_t skipped = 0) {
    ArrowNode node{std::move(format), std::move(name)};
    node.skipped = skipped;
    node.length = static_cast<int64_t>(values.size()) - skipped;
    node.buffers.resize(1);
    for (const auto& value : values) {
      const T number = value.value_or(T());
      node.buffers[0].append(reinterpret_cast<const char*>(&number), sizeof number);
      node.valid.push_back(value.has_value());
    }
    return node;
  }
  template <typename Offset>
  static ArrowNode Texts(std::string format, std::string name,
                         const std::vector<std::optional<std::string>>& values,
                         int64_t skipped = 0) {
    std::vector<std::optional<Offset>> offsets = {Offset{0}};
    std::string bytes;
    for (const auto& value : values) {
      bytes += value.value_or("");
      offsets.push_back(static_cast<Offset>(bytes.size()));
    }
    ArrowNode node = Of<Offset>(std::move(format), std::move(name), offsets, skipped);
    --node.length;
    node.valid.clear();
    for (const auto& value : values) node.valid.push_back(value.has_value());
    node.buffers.push_back(bytes);
    return node;
  }
  // Lists of the given sizes; nothing: a null list, behind which two values are left out.
  template <typename Offset>
  static ArrowNode Lists(std::string format, std::string name,
                         const std::vector<std::optional<Offset>>& sizes, ArrowNode values,
                         int64_t skipped = 0) {
    std::vector<std::optional<Offset>> offsets = {Offset{0}};
    for (const auto& size : sizes)
      offsets.push_back(static_cast<Offset>(*offsets.back() + size.value_or(2)));
    ArrowNode node = Of<Offset>(std::move(format), std::move(name), offsets, skipped);
    --node.length;
    node.valid.clear();
    for (const auto& size : sizes) node.valid.push_back(size.has_value());
    node.children.push_back(std::move(values));
    return node;
  }
  static ArrowNode Struct(std::string name, int64_t length, std::vector<ArrowNode> children) {
    ArrowNode node{"+s", std::move(name), length};
    node.children = std::move(children);
    return node;
  }
};

// The structs of a node. They live as long as this.
class ArrowStructs {
 public:
  explicit ArrowStructs(ArrowNode node) : node_(std::move(node)) {
    for (const ArrowNode& child : node_.children)
      children_.push_back(std::make_unique<ArrowStructs>(child));
    for (const auto& child : children_) {
      schemas_.push_back(&child->schema);
      arrays_.push_back(&child->array);
    }
    if (node_.dictionary != nullptr)
      dictionary_ = std::make_unique<ArrowStructs>(*node_.dictionary);
    validity_.assign(node_.valid.size() / 8 + 1, '\0');
    int64_t nulls = 0;
    for (size_t i = 0; i < node_.valid.size(); ++i) {
      if (node_.valid[i]) validity_[i / 8] = static_cast<char>(validity_[i / 8] | 1 << i % 8);
      nulls += static_cast<int64_t>(i) >= node_.skipped && !node_.valid[i];
    }
    buffers_.push_back(nulls == 0 ? nullptr : validity_.data());
    for (const std::string& buffer : node_.buffers) buffers_.push_back(buffer.data());
    schema = {node_.format.c_str(),
              node_.name.c_str(),
              nullptr,
              ARROW_FLAG_NULLABLE,
              static_cast<int64_t>(schemas_.size()),
              schemas_.data(),
              dictionary_ == nullptr ? nullptr : &dictionary_->schema,
              [](ArrowSchema* s) { s->release = nullptr; },
              nullptr};
    array = {node_.length,
             nulls,
             node_.skipped,
             static_cast<int64_t>(buffers_.size()),
             static_cast<int64_t>(arrays_.size()),
             buffers_.data(),
             arrays_.data(),
             dictionary_ == nullptr ? nullptr : &dictionary_->array,
             [](ArrowArray* a) { a->release = nullptr; },
             nullptr};
  }

  ArrowSchema schema;
  ArrowArray array;

 private:
  const ArrowNode node_;
  std::vector<std::unique_ptr<ArrowStructs>> children_;
  std::unique_ptr<ArrowStructs> dictionary_;
  std::vector<ArrowSchema*> schemas_;
  std::vector<ArrowArray*> arrays_;
  std::string validity_;
  std::vector<const void*> buffers_;
};

}  // namespace sluice
