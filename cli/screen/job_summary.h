// Summarizes a job in a few lines, which launch and submit print before it runs.
//
// Thread safety: free functions. They look at data files and at an earlier result.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice::cli {

// "adult: async, 2 workers x batch 512, 8 epochs, seed 0": what the job will do, in one line.
std::string Describe(const JobConfig& job);
// "512", or "512 x 4 merged" with gradient_merge_steps 4.
std::string BatchText(const JobConfig& job);

// Lines "note: ..." about effects of this job's options that a user may not expect.
std::vector<std::string> NotesOn(const JobConfig& job);

// "data: CSV, train on 1 file (480.8 KiB), evaluate on ...". Files that are not on this host are
// listed by name only.
std::string DescribeData(const JobConfig& job);
// "model: wide_deep, 17 features, 8 tables: 9,451 dense values, rows of 9 values in embedding".
// REQUIRES: the job is effective.
std::string DescribeModel(const JobConfig& job);
// "table item: rows of 17 values for item, bought": a line for each sparse table (the first 16,
// with the first 8 features of each). None if the only table is "embedding", as in most models.
// REQUIRES: the job is effective.
std::vector<std::string> DescribeSparseTables(const JobConfig& job);
// The lines of DescribeModel and DescribeSparseTables.
std::vector<std::string> ModelLines(const JobConfig& job);
// "output: DIR; effective configuration: DIR/job.textproto". A job without
// output_dir writes to a folder named after `job_id`.
std::string DescribeOutput(const JobConfig& job, const std::string& job_id);

// Prints `head`, the notes, the data, the model and its sparse tables, one line each.
void PrintJob(const std::string& head, const JobConfig& job, std::ostream* out);

}  // namespace sluice::cli
