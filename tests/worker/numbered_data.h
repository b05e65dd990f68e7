// Data without features or files. The label of an example identifies it.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/fakes.h"
#include "worker/data/batch_source.h"

namespace sluice {

// A model with an empty schema.
class EmptySchema : public SlotsSchema {
 public:
  EmptySchema() : SlotsSchema({}) {}
};

class SchemaModel : public FakeModel {
 public:
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }

 private:
  const std::shared_ptr<const FeatureSchema> schema_ = std::make_shared<EmptySchema>();
};

// A schema that counts one example in all data that was read.
class OneExampleModel : public FakeModel {
  class Schema : public EmptySchema {
    DataSummary Summarize(const DataCounts&) const override {
      DataSummary summary;
      summary.set_examples(1);
      return summary;
    }
  };

 public:
  const std::shared_ptr<const FeatureSchema>& schema() const override { return schema_; }

 private:
  const std::shared_ptr<const FeatureSchema> schema_ = std::make_shared<Schema>();
};

inline void AppendNumbered(uint64_t i, Batch* batch) {
  ++batch->n;
  batch->label.push_back(static_cast<float>(i));
  batch->weight.push_back(1);
  batch->example_id.push_back(i);
}

// "Text" whose lines are one byte long. Line i of file "f" is example i; line i of another file F
// is example F * 100000 + i.
class NumberedData : public DataSource {
 public:
  NumberedData() : DataSource(Env::Real()) {}
  absl::StatusOr<uint64_t> TextBytes(const std::string&) const override { return 1000; }
  absl::StatusOr<std::vector<uint64_t>> CountLines(const std::string&, uint64_t, uint64_t,
                                                   uint64_t) const override {
    return absl::UnimplementedError("the test gives the counts");
  }
  absl::Status ReadPiece(const std::string& path, uint64_t begin, uint64_t end, bool,
                         Batch* examples, BadLines* bad) const override {
    const std::string name = by_name ? path.substr(path.rfind('/') + 1) : path;
    const uint64_t first = name == "f" ? 0 : std::stoull(name) * 100000;
    for (uint64_t i = begin; i < std::min(end, text_end); ++i) {
      if (bad_examples.count(first + i) == 0) {
        AppendNumbered(first + i, examples);
      } else {
        bad->Add(path, absl::InvalidArgumentError("bad"));
      }
    }
    bad->count += bad_lines;
    reads.emplace_back(path, begin);
    buffers.insert(examples);
    return absl::OkStatus();
  }

  void FetchAhead(absl::Span<const FilePieces> files) const override {
    for (const FilePieces& file : files) fetched_ahead.push_back(file.pieces.front().begin);
  }

  bool by_name = false;                                         // files are in some folder
  uint64_t bad_lines = 0;                                       // additional ones in each piece
  std::set<uint64_t> bad_examples;                              // these are malformed
  uint64_t text_end = UINT64_MAX;                               // of each file
  mutable std::vector<std::pair<std::string, uint64_t>> reads;  // file and begin
  mutable std::vector<uint64_t> fetched_ahead;                  // begins of first pieces
  mutable std::set<const Batch*> buffers;                       // that pieces were read into
};

// False at the end.
inline bool FillNext(BatchSource* source, PreparedBatch* prepared) {
  const absl::StatusOr<BatchSource::Fill> fill = source->Next();
  EXPECT_TRUE(fill.ok()) << fill.status();
  if (!fill.ok() || !*fill) return false;
  const absl::Status filled = (*fill)(prepared);
  EXPECT_TRUE(filled.ok()) << filled;
  return true;
}

}  // namespace sluice
