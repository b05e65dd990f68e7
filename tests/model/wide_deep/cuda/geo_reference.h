// Geo's arithmetic in plain loops over UpdateRule. The tests compare devices with it.
#pragma once

#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "common/optimizer/learning_rate.h"
#include "common/table/table_layout.h"
#include "gtest/gtest.h"
#include "tests/common/optimizer/rule_cases.h"

namespace sluice::cuda {

inline const std::vector<OptimizerConfig>& GeoRules() {
  static const std::vector<OptimizerConfig>* const rules = [] {
    auto* parsed = new std::vector<OptimizerConfig>;
    // With clipping and schedules. Tests name these by index.
    for (const char* text : {
             "sgd {} learning_rate: 0.1 weight_decay: 0.01",
             "momentum {} learning_rate: 0.05 clip_row_norm: 1.5",
             "momentum { nesterov: true momentum: 0.8 } learning_rate: 0.02 clip_value: 0.4",
             "adam {} learning_rate: 0.01 weight_decay: 0.02 clip_row_norm: 1",
             "ftrl { l1: 0.02 l2: 0.1 } learning_rate: 0.1",
             "adagrad { initial_accumulator: 0.1 } learning_rate: 0.05",
             "adam { beta1: 0.8 } learning_rate: 0.01 clip_value: 0.6 clip_row_norm: 0.9 "
             "schedule { exponential { steps: 50 rate: 0.9 } }",
             "ftrl {} learning_rate: 0.1 schedule { polynomial { steps: 500 } }",  // the rate falls
                                                                                   // to 0
         }) {
      parsed->emplace_back();
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &parsed->back()));
    }
    for (const RuleCase& rule : RuleCases()) parsed->push_back(ParseOptimizer(rule.job));
    return parsed;
  }();
  return *rules;
}

// The values that a worker keeps for a row or a dense table.
struct GeoReference {
  std::vector<float> local, base, state;
  uint64_t count = 0;
  bool there = false;
};

// One sparse table with a column group a rule, dense tables of these shapes with `dense_rule`.
inline TableLayouts GeoLayouts(const std::vector<std::vector<uint64_t>>& shapes,
                               const std::vector<OptimizerConfig>& rules,
                               const std::vector<uint32_t>& dims,
                               const OptimizerConfig& dense_rule) {
  google::protobuf::RepeatedPtrField<TableConfig> tables;
  TableConfig* rows = tables.Add();
  rows->set_name("rows");
  rows->set_kind(TableConfig::SPARSE);
  rows->set_num_shards(4);
  for (size_t c = 0; c < rules.size(); ++c) {
    ColumnGroup* column = rows->add_columns();
    column->set_name("c" + std::to_string(c));
    column->set_dim(dims[c]);
    *column->mutable_optimizer() = rules[c];
    column->mutable_initializer()->set_constant(0);
  }
  for (const std::vector<uint64_t>& shape : shapes) {
    TableConfig* dense = tables.Add();
    dense->set_name("dense" + std::to_string(tables.size()));
    dense->set_kind(TableConfig::DENSE);
    for (const uint64_t n : shape) dense->add_shape(n);
    *dense->mutable_optimizer() = dense_rule;
    dense->mutable_initializer()->set_constant(0);
  }
  auto layouts = CreateTableLayouts(tables, 1);
  EXPECT_TRUE(layouts.ok()) << layouts.status();
  return *layouts;
}

// Zeros with fresh state, for n dense elements or for a row (n = dim).
inline GeoReference FreshReference(const TableLayout& layout, size_t n) {
  GeoReference values;
  values.local.resize(n), values.base.resize(n);
  values.state.resize(layout.sparse() ? layout.state_floats()
                                      : n * layout.columns()[0].rule->state_floats());
  for (const TableLayout::Column& column : layout.columns()) {
    const size_t dim = layout.sparse() ? column.dim : n;
    float* state[UpdateRule::kMaxState] = {};
    for (int i = 0; i < column.rule->state_floats(); ++i)
      state[i] = values.state.data() + column.state_begin + i * dim;
    column.rule->InitState(state, dim);
  }
  return values;
}

// Makes one update as the pserver and the worker's CPU do.
inline void UpdateReference(const TableLayout& layout, const float* g, uint64_t step,
                            uint64_t count, GeoReference* values) {
  for (const TableLayout::Column& column : layout.columns()) {
    const size_t dim = layout.sparse() ? column.dim : values->local.size();
    float* state[UpdateRule::kMaxState] = {};
    for (int i = 0; i < column.rule->state_floats(); ++i)
      state[i] = values->state.data() + column.state_begin + i * dim;
    column.rule->Apply(
        values->local.data() + column.begin, state, g + column.begin, dim,
        layout.sparse() ? dim : layout.row_elements(),
        LearningRateAt(column.optimizer.schedule(), column.optimizer.learning_rate(), step), count);
  }
}

}  // namespace sluice::cuda
