#include "python/core/model_bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "common/config/job_config.h"
#include "common/places/places_env.h"
#include "python/core/job_text.h"
#include "python/core/model_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sluice {
namespace {

template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  const std::string text(value.status().message());
  if (absl::IsInvalidArgument(value.status())) throw nb::value_error(text.c_str());
  if (absl::IsNotFound(value.status())) throw nb::key_error(text.c_str());
  throw std::runtime_error(text);
}

// An array that owns its values.
template <typename T>
nb::object Owned(std::vector<T> values, std::vector<size_t> shape) {
  auto owner = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = owner->data();
  nb::capsule base(owner.get(),
                   [](void* vector) noexcept { delete static_cast<std::vector<T>*>(vector); });
  (void)owner.release();  // the capsule's
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), base));
}

// A read-only array on memory of `rows`, which it keeps alive.
template <typename T>
nb::object ViewOf(std::shared_ptr<const SavedRows> rows, const std::vector<T>& values,
                  std::vector<size_t> shape) {
  auto owner = std::make_unique<std::shared_ptr<const SavedRows>>(std::move(rows));
  nb::capsule base(owner.get(), [](void* rows) noexcept {
    delete static_cast<std::shared_ptr<const SavedRows>*>(rows);
  });
  (void)owner.release();  // the capsule's
  return nb::cast(nb::ndarray<nb::numpy, const T>(values.data(), shape.size(), shape.data(), base));
}

using Keys = nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>;

absl::Span<const uint64_t> SpanOf(const Keys& keys) { return {keys.data(), keys.size()}; }

// A sparse table, as Python sees it.
struct Rows {
  std::shared_ptr<const SavedRows> rows;

  size_t dim() const { return rows->layout().dim(); }
  nb::object keys() const { return ViewOf(rows, rows->keys(), {rows->keys().size()}); }
  nb::object values() const { return ViewOf(rows, rows->values(), {rows->keys().size(), dim()}); }
  nb::object Find(const Keys& keys) const {
    std::vector<float> found(keys.size() * dim());
    rows->Find(SpanOf(keys), found.data());
    return Owned(std::move(found), {keys.size(), dim()});
  }
  nb::object Contains(const Keys& keys) const {
    const auto found = std::make_unique<bool[]>(keys.size());
    rows->Contains(SpanOf(keys), found.get());
    return Owned(std::vector<uint8_t>(found.get(), found.get() + keys.size()), {keys.size()});
  }
};

std::unique_ptr<ModelReader> OpenModel(const std::string& dir) {
  nb::gil_scoped_release release;
  return ValueOrRaise(ModelReader::Open(dir, AllPlaces()));
}

nb::bytes ReadFile(const std::string& path) {
  std::string bytes;
  {
    nb::gil_scoped_release release;
    bytes = ValueOrRaise(AllPlaces()->ReadFile(path));
  }
  return nb::bytes(bytes.data(), bytes.size());
}

// By table: its name, whether it is sparse, its shape (dense) or {dim} (sparse), and by column its
// name, first weight, number of weights and optimizer in text format.
using Column = std::tuple<std::string, uint32_t, uint32_t, std::string>;
using Table = std::tuple<std::string, bool, std::vector<uint64_t>, std::vector<Column>>;

std::vector<Table> TablesOf(const ModelReader& reader) {
  std::vector<Table> tables;
  for (const auto& layout : reader.layouts()) {
    std::vector<uint64_t> shape = {layout->dim()};
    if (!layout->sparse())
      shape.assign(layout->config().shape().begin(), layout->config().shape().end());
    std::vector<Column> columns;
    for (const TableLayout::Column& column : layout->columns())
      columns.emplace_back(column.name, column.begin, column.dim, ToTextproto(column.optimizer));
    tables.emplace_back(layout->name(), layout->sparse(), std::move(shape), std::move(columns));
  }
  return tables;
}

nb::object DenseOf(const ModelReader& reader, const std::string& table) {
  std::vector<float> values;
  {
    nb::gil_scoped_release release;
    values = ValueOrRaise(reader.ReadDense(table));
  }
  const size_t n = values.size();
  return Owned(std::move(values), {n});
}

Rows RowsOf(const ModelReader& reader, const std::string& table) {
  nb::gil_scoped_release release;
  return {ValueOrRaise(reader.ReadRows(table))};
}

nb::object KeysOf(const ModelReader& reader, const std::string& feature,
                  const std::vector<std::string>& values) {
  std::vector<uint64_t> keys = ValueOrRaise(reader.KeysOf(feature, values));
  const size_t n = keys.size();
  return Owned(std::move(keys), {n});
}

}  // namespace

void BindModels(nb::module_& m) {
  m.def(
      "merge_into_job",
      [](const std::string& job, const std::string& json) {
        return ValueOrRaise(MergeIntoJob(job, json));
      },
      "job"_a, "json"_a, "Merges a job in JSON into a job in text format.");
  m.def(
      "set_in_job",
      [](const std::string& job, const std::string& path, const std::string& value) {
        return ValueOrRaise(SetInJob(job, path, value));
      },
      "job"_a, "path"_a, "value"_a, "Sets a field of a job in text format.");
  m.def(
      "resolve_job",
      [](const std::string& job, const std::string& base_dir, const std::string& name) {
        return ValueOrRaise(ResolveJob(job, base_dir, name));
      },
      "job"_a, "base_dir"_a, "name"_a, "Makes the paths of a job absolute, and names it.");

  nb::class_<Rows>(m, "Rows")
      .def_prop_ro("dim", &Rows::dim)
      .def("keys", &Rows::keys)
      .def("values", &Rows::values)
      .def("find", &Rows::Find, "keys"_a)
      .def("contains", &Rows::Contains, "keys"_a);
  nb::class_<ModelReader>(m, "ModelReader")
      .def_prop_ro("job", [](const ModelReader& reader) { return ToTextproto(reader.job()); })
      .def_prop_ro("job_id", [](const ModelReader& reader) { return reader.manifest().job_id(); })
      .def_prop_ro("step",
                   [](const ModelReader& reader) { return reader.manifest().global_step(); })
      .def_prop_ro("epochs", [](const ModelReader& reader) { return reader.manifest().epochs(); })
      .def_prop_ro("digest",
                   [](const ModelReader& reader) { return reader.manifest().model_digest(); })
      .def("tables", &TablesOf)
      .def("dense", &DenseOf, "table"_a)
      .def("rows", &RowsOf, "table"_a)
      .def(
          "table_of",
          [](const ModelReader& reader, const std::string& feature) {
            return ValueOrRaise(reader.TableOf(feature));
          },
          "feature"_a)
      .def("keys_of", &KeysOf, "feature"_a, "values"_a);
  m.def("read_file", &ReadFile, "path"_a, "Reads a small file, also of a store.");
  m.def("open_model", &OpenModel, "dir"_a, "Opens the folder of a saved model or checkpoint.");
}

}  // namespace sluice
