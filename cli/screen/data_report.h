// Formats what `sluice data check` has found, for people and as JSON.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "model/profile/job_proposal.h"
#include "model/profile/label_choice.h"
#include "model/profile/table_profile.h"

namespace sluice::cli {

// Files, format and columns, in lines of at most 80 columns.
std::string TableText(const TableProfile& table);
// Label, assumptions, what is left out or suspicious.
std::string ProposalText(const TableProfile& table, const LabelChoice& label,
                         const JobProposal& proposal, const std::vector<std::string>& suspicious);

// All of it as one JSON object. `label` and `proposal` are null when there is no label, and
// `problem` says why. `job_text`: of the proposal.
std::string DataReportJson(const TableProfile& table, const LabelChoice* label,
                           const JobProposal* proposal, const std::vector<std::string>& suspicious,
                           const std::string& job_text, const std::string& problem);

}  // namespace sluice::cli
