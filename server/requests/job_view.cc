#include "server/requests/job_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/table/placement.h"
#include "common/wire/train_position.h"

namespace sluice {

int64_t OwnerIndex(const Route& route, const std::string& address) {
  const auto at = std::find(route.pservers().begin(), route.pservers().end(), address);
  return at == route.pservers().end() ? -1 : at - route.pservers().begin();
}

std::shared_ptr<const JobView> FirstView(const TableLayouts& layouts, const UpdatePolicy& policy,
                                         const Route& route, const std::string& address,
                                         const ShardLimits& limits) {
  auto view = std::make_shared<JobView>();
  view->generation = route.generation();
  view->active_ranks.assign(policy.worker_num, true);
  view->shards.resize(layouts.size());
  const int64_t self = OwnerIndex(route, address);
  for (size_t t = 0; t < layouts.size(); ++t) {
    view->shards[t].resize(layouts[t]->num_shards());
    for (uint32_t s = 0; s < layouts[t]->num_shards(); ++s) {
      if (static_cast<int64_t>(route.tables(t).owner(s)) != self) continue;
      view->shards[t][s] = MakeShard(layouts[t], s, policy, limits);
    }
  }
  return view;
}

absl::StatusOr<std::shared_ptr<JobView>> NextView(const JobView& view, const TableLayouts& layouts,
                                                  const Route& route, const std::string& address) {
  SLUICE_RETURN_IF_ERROR(ValidateRoute(route, layouts));
  const int64_t self = OwnerIndex(route, address);
  for (size_t t = 0; t < layouts.size(); ++t) {
    for (uint32_t s = 0; s < layouts[t]->num_shards(); ++s) {
      const bool wanted = static_cast<int64_t>(route.tables(t).owner(s)) == self;
      if (wanted == (view.FindShard(t, s) != nullptr)) continue;
      // Nothing transfers the rows of an open job: a shard that moved here would be empty, and one
      // that moved away would lose its updates.
      return absl::FailedPreconditionError(absl::StrCat(
          "route generation ", route.generation(), " moves shard ", s, " of table '",
          layouts[t]->name(), "' ", wanted ? "to" : "from", " pserver ", address,
          ", but shards of a running job cannot move; cancel the job and submit it again"));
    }
  }
  // The new view shares the shards, so requests admitted with the old one change the same values.
  auto next = std::make_shared<JobView>(view);
  next->generation = route.generation();
  // They were those of the old generation. JobTables::FenceRanks reads them again, after the fence.
  next->positions.clear();
  return next;
}

std::vector<RankPosition> LeastPositions(const JobView& view) {
  // The least, because a rank may skip only examples that every shard holds.
  std::vector<RankPosition> least;
  view.ForEachShard([&](Shard* shard) {
    std::vector<RankPosition> held = shard->Positions();
    if (least.empty()) {
      least = std::move(held);
      return;
    }
    for (size_t r = 0; r < least.size(); ++r) {
      KeepLeast(held[r], &least[r]);
    }
  });
  return least;
}

}  // namespace sluice
