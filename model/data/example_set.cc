#include "model/data/example_set.h"

#include <algorithm>
#include <utility>

namespace sluice {

void ExampleSet::Add(Examples examples) {
  if (examples.view.n == 0) return;
  ends_.push_back(size() + examples.view.n);
  pieces_.push_back(std::move(examples));
}

void ExampleSet::AppendTo(Batch* batch, uint64_t index) const {
  const size_t piece = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
  const uint64_t begin = piece == 0 ? 0 : ends_[piece - 1];
  batch->Append(pieces_[piece].view, index - begin, index);
}

}  // namespace sluice
