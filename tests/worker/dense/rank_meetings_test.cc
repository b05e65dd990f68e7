// The ranks that keep the dense tables, over shared memory: one is lost, and its next life takes
// part in the meeting of the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/collective/make_collective.h"
#include "tests/common/saved_model/memory_env.h"
#include "worker/dense/collective_dense_tables.h"

namespace sluice {
namespace {

using ::testing::Each;

class RankMeetingsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  RankMeetingsTest() {
    spec_.set_worker_num(kRanks);
    spec_.mutable_route()->set_generation(1);
    SyncConfigs* const sync = spec_.mutable_config()->mutable_strategy()->mutable_sync_configs();
    sync->set_fuse_mb(32);
    sync->set_fuse_layers(1);
    for (const uint64_t size : {2, 3}) {
      TableConfig* const table = spec_.add_tables();
      table->set_name(absl::StrCat("t", size));
      table->set_kind(TableConfig::DENSE);
      table->add_shape(size);
      table->mutable_optimizer()->mutable_adam();
      table->mutable_optimizer()->set_learning_rate(0.5);
      table->set_update_at(TableConfig::COLLECTIVE);
      gradients_.dense.emplace_back(size, 1.0f);
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) Begin(rank, /*rejoins=*/false);
  }
  void Begin(uint32_t rank, bool rejoins) {
    CollectiveOptions collective;
    collective.timeout = absl::Seconds(20);
    CollectiveDenseTables::Options options;
    options.tables = *CreateTableLayouts(spec_.tables(), 1);
    options.spec = &spec_;
    options.collective = *MakeCollective("shm", collective);
    options.env = &env_;
    options.rejoins = rejoins;
    options.group.rank = rank;
    options.group.incarnation = ++lives_;
    options.group.patience = patience_;
    tables_[rank] = *CollectiveDenseTables::Create(std::move(options));
  }
  RankMeetings& meetings(uint32_t rank) { return *tables_[rank]->meetings(); }
  RankGroupReport ReportOf(uint32_t rank) {
    PollRequest report;
    meetings(rank).AddTo(&report);
    return report.group();
  }
  // Runs `work` for each rank on a thread, while the scheduler hands out the cards of generation
  // `generation`.
  template <typename Work>
  std::vector<absl::Status> Run(const Work& work, uint64_t generation, uint64_t closed = 0) {
    std::vector<absl::Status> results(kRanks);
    std::vector<std::thread> threads;
    std::atomic<uint32_t> running{kRanks};
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        results[rank] = work(rank);
        --running;
      });
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) meetings(rank).Ask(generation, {});
    for (bool told = false; running > 0;) {
      RankGroupCards cards;
      cards.set_generation(generation);
      cards.set_closed_steps(closed);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const RankGroupReport report = ReportOf(rank);
        if (report.generation() == generation && !report.card().empty())
          cards.add_cards(report.card());
      }
      if (cards.cards_size() == kRanks && !told) {
        told = true;
        for (uint32_t rank = 0; rank < kRanks; ++rank) meetings(rank).Ask(generation, cards);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }
  void ExpectOk(const std::vector<absl::Status>& results) {
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      EXPECT_TRUE(results[rank].ok()) << rank << ": " << results[rank];
  }
  // Closes steps [0, steps) on all ranks.
  void Train(uint64_t steps) {
    ExpectOk(Run([&](uint32_t rank) { return meetings(rank).Meet(0); }, 1));
    ExpectOk(Run(
        [&](uint32_t rank) {
          for (uint64_t step = 0; step < steps; ++step) {
            const absl::Status status = Exchange(rank, step);
            if (!status.ok()) return status;
            EXPECT_TRUE(tables_[rank]->CloseStep(step + 1).ok());
          }
          return absl::OkStatus();
        },
        1));
  }
  absl::Status Exchange(uint32_t rank, uint64_t step) {
    return tables_[rank]->Exchange(step, &gradients_, rank + 1);
  }
  void Lose(uint32_t rank) {
    tables_[rank].reset();
    Begin(rank, /*rejoins=*/true);
  }
  std::vector<float> Values() {
    std::vector<float> values;
    for (const auto& tables : tables_) values.push_back(tables->ValuesOf({})[1][2]);
    return values;
  }
  // The values after so many steps without a loss. All gradients are 1.
  float Expected(uint64_t steps) {
    DenseReplica replica(*CreateTableLayouts(spec_.tables(), 1));
    for (uint64_t step = 0; step < steps; ++step) {
      for (size_t i = 0; i < 2; ++i) replica.Update(i, gradients_.dense[i].data());
      replica.CloseStep();
    }
    return replica.values(1)[2];
  }

  absl::Duration patience_ = absl::Seconds(20);
  JobSpec spec_;
  MemoryEnv env_;
  StepBuffers gradients_;  // all 1
  std::unique_ptr<CollectiveDenseTables> tables_[kRanks];
  uint64_t lives_ = 0;
};

TEST_F(RankMeetingsTest, ANewLifeGetsTablesAndOptimizerStateAndTheOpenStepIsReducedAnew) {
  Train(3);
  Lose(1);
  EXPECT_FALSE(ReportOf(1).holds_tables());
  ExpectOk(Run(
      [&](uint32_t rank) {
        if (rank == 1) {
          const absl::Status met = meetings(rank).Meet(3);
          if (!met.ok()) return met;
        }
        return Exchange(rank, 3);  // the others notice the loss here
      },
      2));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(meetings(rank).closed(), 3u);
    EXPECT_TRUE(ReportOf(rank).holds_tables());
    EXPECT_FALSE(ReportOf(rank).has_means()) << "when it left the earlier group";
    EXPECT_TRUE(tables_[rank]->CloseStep(4).ok());
  }
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, AGroupThatBreaksWhileGradientsAreUnderWayReducesThemAnew) {
  Train(3);
  for (const uint32_t rank : {0, 2}) {
    tables_[rank]->Ready(gradients_, rank + 1, 1);
    tables_[rank]->Send(3, &gradients_, rank + 1);
  }
  Lose(1);  // while the others wait for their pushes
  ExpectOk(Run(
      [&](uint32_t rank) {
        if (rank == 1) {
          const absl::Status met = meetings(rank).Meet(3);
          if (!met.ok()) return met;
          tables_[rank]->Send(3, &gradients_, rank + 1);
        }
        return Exchange(rank, 3);
      },
      2));
  for (const auto& tables : tables_) EXPECT_TRUE(tables->CloseStep(4).ok());
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, GradientsOfARankThatIsLostBeforeItsPushAreUsed) {
  Train(3);
  ExpectOk(Run(
      [&](uint32_t rank) {
        tables_[rank]->Send(3, &gradients_, rank + 1);
        return rank == 1 ? absl::OkStatus() : Exchange(rank, 3);
      },
      1));
  Lose(1);
  // The next life computes other gradients than the others have used.
  StepBuffers other;
  for (const std::vector<float>& ones : gradients_.dense) other.dense.emplace_back(ones.size(), 7);
  ExpectOk(Run(
      [&](uint32_t rank) {
        if (rank != 1) return meetings(rank).Recover(absl::UnavailableError("a rank ended"), 4);
        const absl::Status met = meetings(rank).Meet(3);
        if (!met.ok()) return met;
        tables_[rank]->Ready(other, rank + 1, 1);
        tables_[rank]->Send(3, &other, rank + 1);
        return tables_[rank]->Exchange(3, &other, rank + 1);
      },
      2));
  for (const auto& tables : tables_) EXPECT_TRUE(tables->CloseStep(4).ok());
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, GradientsOfAStepThatALostRankHasCommittedAreUsedAgain) {
  Train(3);
  ExpectOk(Run([&](uint32_t rank) { return Exchange(rank, 3); }, 1));
  Lose(0);
  ExpectOk(Run(
      [&](uint32_t rank) {
        return rank == 0 ? meetings(rank).Meet(4)
                         : meetings(rank).Recover(absl::UnavailableError("a rank ended"), 4);
      },
      2));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(meetings(rank).closed(), 3u) << "it is not closed yet";
    EXPECT_TRUE(meetings(rank).has_means());
    EXPECT_EQ(ReportOf(rank).has_means(), rank != 0);
    EXPECT_TRUE(tables_[rank]->CloseStep(4).ok());
  }
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, AStepThatOneRankKnowsToHaveClosedIsUpdatedOnceByAll) {
  Train(3);
  ExpectOk(Run([&](uint32_t rank) { return Exchange(rank, 3); }, 1));
  EXPECT_TRUE(tables_[2]->CloseStep(4).ok());  // ranks 0 and 1 are in doubt
  meetings(2).newest()->steps = 4;
  meetings(2).newest()->checkpoint = 6;
  meetings(2).newest()->totals.resize(kRanks);
  meetings(2).newest()->totals[1].set_loss_sum(0.25);
  Lose(1);
  ExpectOk(Run(
      [&](uint32_t rank) {
        return rank == 1 ? meetings(rank).Meet(0)
                         : meetings(rank).Recover(absl::UnavailableError("a rank ended"), 4);
      },
      2));
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(meetings(rank).closed(), 4u);
    EXPECT_FALSE(meetings(rank).has_means());
    EXPECT_EQ(meetings(rank).newest()->checkpoint, 6u);
    EXPECT_EQ(meetings(rank).newest()->totals[1].loss_sum(), 0.25);
    EXPECT_TRUE(tables_[rank]->CloseStep(4).ok());  // its own commit ends later
  }
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, AStepThatTheSchedulerKnowsToHaveClosedIsUpdatedByAll) {
  Train(3);
  ExpectOk(Run([&](uint32_t rank) { return Exchange(rank, 3); }, 1));
  Lose(1);
  ExpectOk(Run(
      [&](uint32_t rank) {
        return rank == 1 ? meetings(rank).Meet(0)
                         : meetings(rank).Recover(absl::UnavailableError("a rank ended"), 4);
      },
      2, /*closed=*/4));
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(meetings(rank).closed(), 4u);
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, RanksThatCannotContinueSayWhy) {
  Train(3);
  Lose(1);
  const auto results = Run(
      [&](uint32_t rank) {
        // An earlier life has committed a step of which nobody has the gradients.
        return rank == 1 ? meetings(rank).Meet(4)
                         : meetings(rank).Recover(absl::UnavailableError("a rank ended"), 4);
      },
      2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(absl::IsAborted(results[rank])) << results[rank];
    EXPECT_NE(ReportOf(rank).error(), "");
  }
}

TEST_F(RankMeetingsTest, RanksWhoseGroupFailsAlthoughNobodyIsLostGiveUp) {
  patience_ = absl::ZeroDuration();
  for (uint32_t rank = 0; rank < kRanks; ++rank) Begin(rank, /*rejoins=*/false);
  Train(3);
  const auto results = Run(
      [&](uint32_t rank) {
        if (rank != 1) return Exchange(rank, 3);
        meetings(rank).collective()->Leave();
        return absl::OkStatus();
      },
      1);
  for (const uint32_t rank : {0, 2}) {
    EXPECT_TRUE(absl::IsUnavailable(results[rank])) << results[rank];
    EXPECT_NE(ReportOf(rank).error(), "");
    EXPECT_TRUE(ReportOf(rank).holds_tables());
  }
  EXPECT_EQ(ReportOf(1).error(), "");
}

TEST_F(RankMeetingsTest, ARankThatIsCancelledDoesNotGiveUp) {
  patience_ = absl::InfiniteDuration();
  for (uint32_t rank = 0; rank < kRanks; ++rank) Begin(rank, /*rejoins=*/false);
  Train(1);
  std::thread canceller([&] {
    while (tables_[0]->WaitingFor().empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    tables_[0]->Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(meetings(0).Recover(absl::UnavailableError("it broke"), 2)));
  canceller.join();
  EXPECT_EQ(ReportOf(0).error(), "");
}

TEST_F(RankMeetingsTest, AStepAfterTheEndOfTrainingIsLeftOpenByAllAndLossesAreRecovered) {
  patience_ = absl::InfiniteDuration();
  for (uint32_t rank = 0; rank < kRanks; ++rank) Begin(rank, /*rejoins=*/false);
  Train(3);
  // Rank 1 has ended the job, and rank 2 hears of it after rank 0 has left the group.
  std::atomic<bool> left{false};
  const auto results = Run(
      [&](uint32_t rank) {
        if (rank == 1) {
          meetings(rank).EndAfter(3);
          while (tables_[0]->WaitingFor().empty() || tables_[2]->WaitingFor().empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          meetings(0).EndAfter(3);
          while (!left) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          meetings(2).EndAfter(3);
          return absl::OkStatus();
        }
        const absl::Status exchanged = Exchange(rank, 3);
        if (rank == 0) left = true;
        return exchanged;
      },
      1);
  EXPECT_TRUE(results[1].ok()) << results[1];
  for (const uint32_t rank : {0, 2}) {
    EXPECT_FALSE(results[rank].ok());
    EXPECT_FALSE(meetings(rank).NeverCloses(3));
    EXPECT_TRUE(meetings(rank).NeverCloses(4));
    EXPECT_EQ(ReportOf(rank).error(), "") << "nobody gives the job up";
  }
  Lose(2);
  meetings(2).EndAfter(3);
  ExpectOk(Run(
      [&](uint32_t rank) {
        return rank == 2 ? meetings(rank).Meet(3)
                         : meetings(rank).Recover(absl::UnavailableError("a rank ended"), 0);
      },
      2));
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_EQ(meetings(rank).closed(), 3u);
  EXPECT_THAT(Values(), Each(Expected(3)));
}

TEST_F(RankMeetingsTest, AKnownEndEndsTheExchangeOfALaterStepAtOnce) {
  Train(2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) meetings(rank).EndAfter(2);
  EXPECT_FALSE(Exchange(0, 2).ok());
  EXPECT_EQ(tables_[0]->WaitingFor(), "");
}

TEST_F(RankMeetingsTest, ARankThatIsCalledLeavesItsGroupAlsoWithoutAnError) {
  Train(3);
  // Rank 1 hangs: its group does not end by itself.
  const std::unique_ptr<CollectiveDenseTables> hung = std::move(tables_[1]);
  Begin(1, /*rejoins=*/true);
  ExpectOk(Run(
      [&](uint32_t rank) {
        if (rank == 1) {
          const absl::Status met = meetings(rank).Meet(3);
          if (!met.ok()) return met;
        }
        return Exchange(rank, 3);
      },
      2));
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(tables_[rank]->CloseStep(4).ok());
  EXPECT_THAT(Values(), Each(Expected(4)));
}

TEST_F(RankMeetingsTest, CancelEndsTheWaitForTheOthers) {
  std::thread canceller([&] {
    while (meetings(0).asked()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    tables_[0]->Cancel();
  });
  EXPECT_TRUE(absl::IsCancelled(meetings(0).Meet(0)));
  canceller.join();
}

}  // namespace
}  // namespace sluice
