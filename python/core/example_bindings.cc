#include "python/core/example_bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/text_format.h"
#include "python/core/example_batches.h"
#include "python/core/given_arrays.h"
#include "python/core/shape_bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sluice {
namespace {

template <typename T>
T ExamplesOrRaise(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  const std::string text(value.status().message());
  const absl::StatusCode code = value.status().code();
  if (code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kNotFound)
    throw nb::value_error(text.c_str());
  throw std::runtime_error(text);
}

// A batch, as Python sees it. Arrays keep it alive.
class Examples {
 public:
  explicit Examples(std::unique_ptr<KeyedBatch> batch) : batch_(std::move(batch)) {}

  size_t examples() const { return of().n; }
  bool single() const { return batch_->rows().single(); }
  nb::object label() const { return On(of().label.data(), {of().n}); }
  nb::object weight() const { return On(of().weight.data(), {of().n}); }
  nb::object numbers() const { return On(of().numeric.data(), {of().n, of().num_numeric}); }
  nb::object all_rows() const { return On(batch_->rows().rows().data(), {of().num_slots, of().n}); }
  nb::object slot_rows(size_t slot) const {
    const SlotRows& rows = batch_->rows();
    return On(rows.rows().data() + rows.begin(slot), {rows.end(slot) - rows.begin(slot)});
  }
  nb::object slot_offsets(size_t slot) const {
    return On(batch_->rows().offsets(slot), {of().n + 1});
  }
  nb::object keys(size_t table) const {
    return On(batch_->keys(table).data(), {batch_->keys(table).size()});
  }

 private:
  const Batch& of() const { return batch_->examples(); }
  template <typename T>
  nb::object On(const T* data, std::vector<size_t> shape) const {
    static T none;  // for an array without elements, which needs an address all the same
    return nb::cast(nb::ndarray<nb::numpy, T>(data == nullptr ? &none : const_cast<T*>(data),
                                              shape.size(), shape.data(), nb::find(*this)));
  }

  const std::unique_ptr<const KeyedBatch> batch_;
};

// The examples of files, batch by batch.
class Files {
 public:
  explicit Files(std::unique_ptr<FileBatches> files) : files_(std::move(files)) {}

  // None at the end.
  std::unique_ptr<Examples> Next() {
    nb::gil_scoped_release release;
    std::unique_ptr<KeyedBatch> batch = ExamplesOrRaise(files_->Next());
    return batch == nullptr ? nullptr : std::make_unique<Examples>(std::move(batch));
  }
  uint64_t bad_lines() const { return files_->bad_lines(); }

 private:
  const std::unique_ptr<FileBatches> files_;
};

// The examples of a table, batch by batch.
class Table {
 public:
  explicit Table(std::unique_ptr<TableBatches> rows) : rows_(std::move(rows)) {}
  ~Table() {
    // The stream may belong to Python. It then takes the lock itself.
    nb::gil_scoped_release release;
    rows_.reset();
  }

  // None at the end.
  std::unique_ptr<Examples> Next() {
    nb::gil_scoped_release release;
    std::unique_ptr<KeyedBatch> batch = ExamplesOrRaise(rows_->Next());
    return batch == nullptr ? nullptr : std::make_unique<Examples>(std::move(batch));
  }

 private:
  std::unique_ptr<TableBatches> rows_;
};

class Source {
 public:
  explicit Source(const std::string& text) {
    JobConfig job;
    // Text that a saved model's reader has made.
    if (!google::protobuf::TextFormat::ParseFromString(text, &job))
      throw nb::value_error("the job is not one in text format");
    batches_ = ExamplesOrRaise(ExampleBatches::Create(std::move(job)));
  }
  const ProgramShape& shape() const { return batches_->shape(); }
  std::vector<std::pair<std::string, uint32_t>> numbers() const { return NumbersOf(shape()); }
  std::unique_ptr<Examples> FromColumns(const std::vector<ExampleBatches::Column>& columns) const {
    return std::make_unique<Examples>(ExamplesOrRaise(batches_->FromColumns(columns)));
  }
  std::vector<std::string> vector_columns() const { return batches_->VectorColumns(); }
  bool own_data() const { return batches_->own_data(); }
  // The categorical features, in the order of the slots.
  std::vector<std::string> features() const {
    std::vector<std::string> names;
    for (const ProgramShape::Slot& slot : shape().slots) names.push_back(slot.feature);
    return names;
  }
  std::unique_ptr<Examples> FromGiven(size_t examples, const std::optional<GivenFloats>& label,
                                      const std::optional<GivenFloats>& weight,
                                      const std::vector<GivenNumbers>& numbers,
                                      const std::vector<GivenValues>& values) const {
    return std::make_unique<Examples>(ExamplesOrRaise(
        batches_->FromGiven(CopyOfGiven(examples, label, weight, numbers, values))));
  }
  std::unique_ptr<Files> Read(const std::vector<std::string>& files, size_t batch_size) const {
    nb::gil_scoped_release release;
    return std::make_unique<Files>(
        ExamplesOrRaise(ExampleBatches::Read(batches_, files, batch_size)));
  }
  std::unique_ptr<Table> ReadTable(const nb::capsule& stream, size_t batch_size) const {
    ArrowArrayStream* const taken = StreamOf(stream);
    nb::gil_scoped_release release;
    return std::make_unique<Table>(
        ExamplesOrRaise(ExampleBatches::ReadTable(batches_, taken, batch_size)));
  }

 private:
  std::shared_ptr<const ExampleBatches> batches_;
};

}  // namespace

void BindExamples(nb::module_& m) {
  nb::class_<Examples>(m, "Examples")
      .def_prop_ro("examples", &Examples::examples)
      .def_prop_ro("single", &Examples::single)
      .def("label", &Examples::label)
      .def("weight", &Examples::weight)
      .def("numbers", &Examples::numbers)
      .def("all_rows", &Examples::all_rows)
      .def("slot_rows", &Examples::slot_rows, "slot"_a)
      .def("slot_offsets", &Examples::slot_offsets, "slot"_a)
      .def("keys", &Examples::keys, "table"_a);
  nb::class_<Files>(m, "ExampleFiles")
      .def("next", &Files::Next)
      .def_prop_ro("bad_lines", &Files::bad_lines);
  nb::class_<Table>(m, "ExampleTable").def("next", &Table::Next);
  nb::class_<Source>(m, "ExampleSource", "The features of a program's job, without a cluster.")
      .def(nb::init<const std::string&>(), "job"_a)
      .def("lookups", [](const Source& source) { return LookupsOf(source.shape()); })
      .def("collections", [](const Source& source) { return CollectionsOf(source.shape()); })
      .def("parameters", [](const Source& source) { return ParametersOf(source.shape()); })
      .def("tables", [](const Source& source) { return TableNamesOf(source.shape()); })
      .def("numbers", &Source::numbers)
      .def("from_columns", &Source::FromColumns, "columns"_a)
      .def("vector_columns", &Source::vector_columns)
      .def_prop_ro("own_data", &Source::own_data)
      .def("features", &Source::features)
      .def("from_given", &Source::FromGiven, "examples"_a, "label"_a.none(), "weight"_a.none(),
           "numbers"_a, "values"_a)
      .def("read", &Source::Read, "files"_a, "batch_size"_a)
      .def("read_table", &Source::ReadTable, "stream"_a, "batch_size"_a);
}

}  // namespace sluice
