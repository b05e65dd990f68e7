#include "cli/hosts/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As the operator of TFJob writes it, with the names of a headless service.
Variables TfJob(const std::string& type, int index, bool chief = true) {
  return {{"TF_CONFIG",
           absl::StrCat(R"({"cluster":{)", chief ? R"("chief":["j-chief-0.ns.svc:2222"],)" : "",
                        R"("ps":["j-ps-0.ns.svc:2222","j-ps-1.ns.svc:2222"],)",
                        R"("worker":["j-worker-0.ns.svc:2222","j-worker-1.ns.svc:2222"]},)",
                        R"("task":{"type":")", type, R"(","index":)", index,
                        R"(},"environment":"cloud"})")}};
}

// As the operator of PaddleJob sets it.
Variables PaddleJob(const std::string& role, int index, const std::string& ip) {
  return {{"TRAINING_ROLE", role},
          {"PADDLE_TRAINING_ROLE", role},
          {"PADDLE_TRAINER_ID", absl::StrCat(index)},
          {"POD_IP", ip},
          {"PADDLE_PORT", "2379"},
          {"TRAINER_PORTS_NUM", "20"},
          {"PADDLE_PSERVERS_IP_PORT_LIST", "10.1.0.1:2379,10.1.0.2:2379"},
          {"PADDLE_TRAINER_ENDPOINTS", "10.1.0.3:2379,10.1.0.4:2379"},
          {"PADDLE_TRAINERS", "10.1.0.3,10.1.0.4"},
          {"PADDLE_TRAINERS_NUM", "2"}};
}

Variables Slurm(int task, int node, int local) {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_PROCID", absl::StrCat(task)},
          {"SLURM_NTASKS", "4"},
          {"SLURM_NODEID", absl::StrCat(node)},
          {"SLURM_LOCALID", absl::StrCat(local)},
          {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
}

TEST(PlaceTest, TheChiefOfATfJobRunsTheSchedulerAndLeads) {
  const auto place = PlaceOf(TfJob("chief", 0), 0);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->scheduler, "j-chief-0.ns.svc:2222");
  EXPECT_THAT(place->pservers, ElementsAre("j-ps-0.ns.svc:2222", "j-ps-1.ns.svc:2222"));
  EXPECT_EQ(place->worker_num, 3U);
  EXPECT_THAT(place->daemons,
              ElementsAre(Place::Daemon{ROLE_SCHEDULER, 0}, Place::Daemon{ROLE_WORKER, 0}));
  EXPECT_TRUE(place->leads);
}

TEST(PlaceTest, TheOthersOfATfJob) {
  EXPECT_THAT(PlaceOf(TfJob("worker", 1), 0)->daemons, ElementsAre(Place::Daemon{ROLE_WORKER, 2}));
  EXPECT_FALSE(PlaceOf(TfJob("worker", 0), 0)->leads);
  EXPECT_THAT(PlaceOf(TfJob("ps", 1), 0)->daemons, ElementsAre(Place::Daemon{ROLE_PSERVER, 1}));
  EXPECT_THAT(PlaceOf(TfJob("evaluator", 0), 0)->daemons, IsEmpty());
  // Without a chief, worker 0 leads.
  const auto first = PlaceOf(TfJob("worker", 0, false), 0);
  EXPECT_TRUE(first->leads);
  EXPECT_EQ(first->scheduler, "j-worker-0.ns.svc:2222");
  EXPECT_EQ(first->worker_num, 2U);
}

TEST(PlaceTest, RefusesATfConfigThatNamesNoPlace) {
  for (const char* text :
       {"x", "[]", "{}", R"({"cluster":{},"task":{"type":"ps","index":0}})",
        R"({"cluster":{"worker":["a"]},"task":{"type":"worker","index":0}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":1}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":-1}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"cook","index":0}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":"x"}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":"nan"}})",
        R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0.5}})",
        R"({"sparseCluster":{"worker":{"0":"a:1"}},"task":{"type":"worker","index":0}})"}) {
    const auto place = PlaceOf({{"TF_CONFIG", text}}, 0);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(place.status().message(), HasSubstr("TF_CONFIG")) << text;
  }
}

TEST(PlaceTest, APaddleJobHasItsSchedulerBesidePserver0) {
  const auto first = PlaceOf(PaddleJob("PSERVER", 0, "10.1.0.1"), 0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->scheduler, "10.1.0.1:2380");
  EXPECT_THAT(first->daemons,
              ElementsAre(Place::Daemon{ROLE_SCHEDULER, 0}, Place::Daemon{ROLE_PSERVER, 0}));
  EXPECT_FALSE(first->leads);
  EXPECT_THAT(PlaceOf(PaddleJob("PSERVER", 1, "10.1.0.2"), 0)->daemons,
              ElementsAre(Place::Daemon{ROLE_PSERVER, 1}));
  const auto trainer = PlaceOf(PaddleJob("TRAINER", 0, "10.1.0.3"), 0);
  EXPECT_THAT(trainer->daemons, ElementsAre(Place::Daemon{ROLE_WORKER, 0}));
  EXPECT_TRUE(trainer->leads);
  EXPECT_EQ(trainer->worker_num, 2U);
  EXPECT_FALSE(PlaceOf(PaddleJob("TRAINER", 1, "10.1.0.4"), 0)->leads);
}

TEST(PlaceTest, PserversOfOneHostLeaveAPortForTheScheduler) {
  Variables variables = PaddleJob("PSERVER", 0, "127.0.0.1");
  variables["PADDLE_PSERVERS_IP_PORT_LIST"] = "127.0.0.1:2379,127.0.0.1:2380";
  EXPECT_EQ(PlaceOf(variables, 0)->scheduler, "127.0.0.1:2381");
}

TEST(PlaceTest, RefusesVariablesOfPaddleThatContradictEachOther) {
  EXPECT_FALSE(PlaceOf(PaddleJob("PSERVER", 0, "10.9.9.9"), 0).ok());
  EXPECT_FALSE(PlaceOf(PaddleJob("TRAINER", 2, "10.1.0.3"), 0).ok());
  EXPECT_FALSE(PlaceOf(PaddleJob("COOK", 0, "10.1.0.3"), 0).ok());
  Variables last_port = PaddleJob("TRAINER", 0, "10.1.0.3");
  last_port["PADDLE_PSERVERS_IP_PORT_LIST"] = "10.1.0.1:65535";
  EXPECT_EQ(PlaceOf(last_port, 0).status().code(), absl::StatusCode::kInvalidArgument);
  Variables variables = PaddleJob("TRAINER", 0, "10.1.0.3");
  variables.erase("PADDLE_PSERVERS_IP_PORT_LIST");
  EXPECT_FALSE(PlaceOf(variables, 0).ok());
}

TEST(PlaceTest, TasksOfSlurmAreWorkersAndTheFirstOfANodeIsAPserverToo) {
  const auto first = PlaceOf(Slurm(0, 0, 0), 0);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->scheduler, "gpu07:19422");
  EXPECT_THAT(first->pservers, ElementsAre("gpu07:19423", "gpu08:19423"));
  EXPECT_THAT(first->daemons,
              ElementsAre(Place::Daemon{ROLE_SCHEDULER, 0}, Place::Daemon{ROLE_PSERVER, 0},
                          Place::Daemon{ROLE_WORKER, 0}));
  EXPECT_TRUE(first->leads);
  EXPECT_THAT(PlaceOf(Slurm(2, 1, 0), 0)->daemons,
              ElementsAre(Place::Daemon{ROLE_PSERVER, 1}, Place::Daemon{ROLE_WORKER, 2}));
  EXPECT_THAT(PlaceOf(Slurm(3, 1, 1), 7100)->daemons, ElementsAre(Place::Daemon{ROLE_WORKER, 3}));
  EXPECT_EQ(PlaceOf(Slurm(3, 1, 1), 7100)->scheduler, "gpu07:7100");
  EXPECT_FALSE(PlaceOf(Slurm(4, 1, 1), 0).ok());
  EXPECT_FALSE(PlaceOf(Slurm(1, 2, 0), 0).ok());
}

TEST(PlaceTest, ReadsSlurmsListsOfHosts) {
  EXPECT_THAT(*ExpandHostList("gpu[01-03,7],login,r[1-2]n[08-09]x"),
              ElementsAre("gpu01", "gpu02", "gpu03", "gpu7", "login", "r1n08x", "r1n09x", "r2n08x",
                          "r2n09x"));
  for (const char* list : {"", "a,,b", "a[1", "a[]", "a[3-1]", "a[1-2-3]", "a[x]", "a[0-99999999]",
                           "a[0-999]b[0-999]"}) {
    EXPECT_FALSE(ExpandHostList(list).ok()) << list;
  }
}

TEST(PlaceTest, NoPlaceIsSaid) {
  EXPECT_EQ(PlaceOf({{"HOME", "/"}}, 0).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::cli
