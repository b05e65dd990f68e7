// The gradients of one step as a program gives them, in the memory of the step.
//
// That memory holds anything at first. Most of it is written whole, so it is set to zero only where
// the program adds to it or leaves it alone.
//
// Thread safety: one thread at a time: the program's while it has the turn, else the training
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/net/dense_net.h"
#include "model/program/program_shape.h"

namespace sluice {

class TurnGradients {
 public:
  // `shape` outlives it.
  explicit TurnGradients(const ProgramShape* shape) : shape_(*shape) {}

  // Of the next step. `input` and `step` are used until Finish.
  void Begin(const NetInput& input, NetGradients* step) {
    input_ = &input;
    step_ = step;
    rows_given_.assign(shape_.tables.size(), false);
    dense_given_ = false;
  }
  // What the step has besides its gradients.
  NetGradients* step() { return step_; }

  // [U][dim] of a table, to which the program adds: zeros at first.
  float* rows(size_t table) {
    float* const values = step_->rows.at(table);
    if (!rows_given_[table])
      std::fill_n(values, input_->rows[table].n * shape_.tables[table].dim, 0.0f);
    rows_given_[table] = true;
    return values;
  }
  // By parameter, [elements]. The program that asks for them writes all of them whole, but for
  // those that are frozen.
  const std::vector<float*>& dense() {
    if (!dense_given_) SetToZero(/*all=*/false);
    dense_given_ = true;
    return step_->dense;
  }

  // Sets to zero what the program has not asked for.
  void Finish() {
    for (size_t t = 0; t < rows_given_.size(); ++t) rows(t);
    if (!dense_given_) SetToZero(/*all=*/true);
  }

 private:
  // The gradients of the frozen parameters, or of all. Those that go nowhere have no memory.
  void SetToZero(bool all) {
    for (size_t i = 0; i < shape_.parameters.size(); ++i) {
      const ProgramShape::Parameter& parameter = shape_.parameters[i];
      if (step_->dense[i] != nullptr && (all || parameter.frozen))
        std::fill_n(step_->dense[i], parameter.elements, 0.0f);
    }
  }

  const ProgramShape& shape_;
  const NetInput* input_ = nullptr;
  NetGradients* step_ = nullptr;
  std::vector<bool> rows_given_;
  bool dense_given_ = false;
};

}  // namespace sluice
