#include "cli/status_text.h"

#include <gmock/gmock.h>

namespace sluice::cli {
namespace {

using testing::ContainsRegex;

TEST(StatusTextTest, TablesSumUsedAndReservedMemoryOverAllPservers) {
  ClusterStatus status;
  JobStatus* job = status.add_jobs();
  job->set_job_id("job-1");
  job->set_state(JOB_RUNNING);
  for (int i = 0; i < 2; ++i) {
    MemberStatus* pserver = status.add_members();
    pserver->set_role(ROLE_PSERVER);
    HostedJob* hosted = pserver->add_hosted();
    hosted->set_job_id("job-1");
    TableStatus* table = hosted->add_tables();
    table->set_name("emb");
    table->set_kind(TableConfig::SPARSE);
    table->set_shards(4);
    table->set_rows(1000);
    table->set_bytes(512 << 10);
    table->set_reserved_bytes(2 << 20);
  }
  EXPECT_THAT(
      StatusText(status),
      ContainsRegex("table emb +sparse +8 shards +2,000 rows +1.0 MiB, 4.0 MiB reserved\n"));
}

}  // namespace
}  // namespace sluice::cli
