// Binds saved models and the text of jobs (sluice.load_model, sluice.Job) to Python. No logic.
#pragma once

#include <nanobind/nanobind.h>

namespace sluice {

void BindModels(nanobind::module_& module);

}  // namespace sluice
