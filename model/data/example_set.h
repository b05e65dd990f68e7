// All examples of a job in order: pieces, parsed or mapped, seen as one sequence.
//
// Thread safety: const methods from any thread once all pieces are added.
#pragma once

#include <cstdint>
#include <vector>

#include "model/data/example_cache.h"
#include "model/features/batch.h"

namespace sluice {

class ExampleSet {
 public:
  // What `examples` views stays until the set is gone: by its owner, or by the caller.
  void Add(Examples examples);
  uint64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // Appends example `index` with that id. REQUIRES: index < size().
  void AppendTo(Batch* batch, uint64_t index) const;

 private:
  std::vector<Examples> pieces_;  // none empty
  std::vector<uint64_t> ends_;    // of each piece
};

}  // namespace sluice
