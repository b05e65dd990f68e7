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

// The costs of a step of `job` from a run of it on `sample` with one pserver. Sets neither who
// measured (threads, cores, transport), nor frames, Geo and kept tables. REQUIRES: run.readings is
// not empty.
PlanCosts StepCosts(const JobConfig& job, const DataSample& sample, const MeasuredRun& run);

// Sets the costs of a frame from a run with one pserver and one with `pservers`. Pservers share the
// bytes of a step; what more of them cost is the frames. It is the small difference of two
// measurements, so the usual cost is taken when they vary by more. Only steps that both runs have
// reached are compared: the first steps make most of the rows, which costs pservers more.
void SetFrameCosts(const MeasuredRun& one, const MeasuredRun& many, int pservers, PlanCosts* costs);

void SetGeoCosts(const StepMeans& means, uint32_t k_steps, PlanCosts* costs);

}  // namespace sluice::plan
