// Turns measured runs into the costs of a job's step.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "cli/plan/data_sample.h"
#include "cli/plan/measured_run.h"
#include "proto/config.pb.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

// The costs of a step of `job` from a run of it on `sample` with one pserver. Leaves unset the
// fields about the measuring host (threads, cores, transport), frames, Geo and kept tables.
// REQUIRES: run.readings is not empty.
PlanCosts StepCosts(const JobConfig& job, const DataSample& sample, const MeasuredRun& run);

// Sets the costs of a frame from a run with one pserver and one with `pservers`. The bytes of a
// step are divided among the pservers, so each further pserver costs one frame. This is a small
// difference of two measurements: when they vary by more, the usual cost is used instead. Compares
// only steps that both runs have reached, because early steps make most rows and cost pservers
// more.
void SetFrameCosts(const MeasuredRun& one, const MeasuredRun& many, int pservers, PlanCosts* costs);

void SetGeoCosts(const StepMeans& means, uint32_t k_steps, PlanCosts* costs);

}  // namespace sluice::plan
