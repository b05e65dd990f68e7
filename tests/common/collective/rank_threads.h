// The ranks of a collective group as threads of the test's process.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/collective/make_collective.h"
#include "gtest/gtest.h"

namespace sluice {

// The options of a rank. With the engine nccl, each rank has a CUDA device of its own.
inline CollectiveOptions OptionsOfRank(const std::string& engine, CollectiveOptions options,
                                       uint32_t rank, const std::vector<std::string>& hosts) {
  if (options.bind_address.empty()) options.bind_address = "127.0.0.1";
  options.host_for_test = hosts.empty() ? "" : hosts[rank];
  if (engine == "nccl") options.cuda_device = static_cast<int>(rank);
  return options;
}

// Whether a group of so many ranks can be made here; says why not.
inline bool CanMake(const std::string& engine, uint32_t ranks) {
  const absl::Status status =
      MakeCollective(engine, OptionsOfRank(engine, {}, ranks - 1, {})).status();
  if (!status.ok())
    printf("no group of %u ranks over %s: %s\n", ranks, engine.c_str(), status.ToString().c_str());
  return status.ok();
}

class RankThreads {
 public:
  using Work = std::function<absl::Status(uint32_t rank, Collective& collective)>;

  // `hosts[r]` is rank r's host; empty: all are on one.
  RankThreads(const std::string& engine, uint32_t ranks, CollectiveOptions options = {},
              const std::vector<std::string>& hosts = {}) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      auto made = MakeCollective(engine, OptionsOfRank(engine, options, rank, hosts));
      EXPECT_TRUE(made.ok()) << made.status();
      collectives_.push_back(*std::move(made));
    }
  }

  uint32_t ranks() const { return static_cast<uint32_t>(collectives_.size()); }
  Collective& rank(uint32_t r) { return *collectives_[r]; }

  std::vector<std::string> Listen(uint64_t generation) {
    std::vector<std::string> cards;
    for (uint32_t r = 0; r < ranks(); ++r) {
      auto card = rank(r).Listen(generation, r, ranks());
      EXPECT_TRUE(card.ok()) << card.status();
      cards.push_back(card.ok() ? *card : "");
    }
    return cards;
  }

  void Join(uint64_t generation = 1) {
    const std::vector<std::string> cards = Listen(generation);
    ExpectOk([&](uint32_t r, Collective& c) { return c.Join(generation, cards, r); });
  }

  // Runs `work` on a thread for each rank.
  std::vector<absl::Status> Run(const Work& work) {
    std::vector<absl::Status> results(ranks());
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < ranks(); ++r)
      threads.emplace_back([&, r] { results[r] = work(r, rank(r)); });
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  void ExpectOk(const Work& work) {
    const std::vector<absl::Status> results = Run(work);
    for (uint32_t r = 0; r < ranks(); ++r) EXPECT_TRUE(results[r].ok()) << r << results[r];
  }

 private:
  std::vector<std::unique_ptr<Collective>> collectives_;
};

}  // namespace sluice
