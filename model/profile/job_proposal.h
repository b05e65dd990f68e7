// Proposes a job for a table: features for its columns, label, model, optimizers, training.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/profile/label_choice.h"
#include "model/profile/table_profile.h"
#include "proto/config.pb.h"

namespace sluice {

struct JobProposal {
  JobConfig job;  // complete but for data.train_files and data.eval_files
  // For each of job.features(), what its column holds.
  std::vector<std::string> feature_notes;
  // Columns without a feature, and why.
  std::vector<std::pair<std::string, std::string>> left_out;
  std::vector<std::string> assumptions;  // sentences
};

// What may be wrong with the columns of the table: constant ones, ones that are distinct in nearly
// each row, ones that tell the label nearly alone. Sentences that name the column.
std::vector<std::string> SuspiciousColumns(const TableProfile& table, const LabelChoice& label);

// `name`: of the job.
JobProposal ProposeJob(const TableProfile& table, const LabelChoice& label,
                       const std::string& name);

// The proposal as a job file with comments. `header` lines become comments at its beginning.
std::string JobText(const JobProposal& proposal, const std::vector<std::string>& header);

}  // namespace sluice
