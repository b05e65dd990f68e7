// Binds batches without a cluster (sluice.torch.load) to Python. No logic.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice {

void BindExamples(nanobind::module_& module);

}  // namespace sluice
