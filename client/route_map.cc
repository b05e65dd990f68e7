#include "client/route_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/table/placement.h"

namespace sluice {

absl::Status CheckRoute(const ShardIndex& index, const Route& route) {
  const absl::Status valid = ValidateRoute(route, index.tables());
  if (valid.ok()) return valid;
  return absl::InternalError(absl::StrCat("the scheduler's route is wrong: ", valid.message()));
}

RouteMap::RouteMap(const ShardIndex* index) : index_(index), owners_(index->size(), 0) {}

RouteMap::Change RouteMap::Apply(const Route& route) {
  Change change;
  change.generation = route.generation() != route_.generation();
  change.moved.resize(index_->size());
  route_ = route;
  ++applied_;
  // Links are never removed, because streams, requests under way and counts by link (ReplyHeader's
  // `others`) keep their numbers. A link without shards is only marked as unused.
  for (Link& link : links_) link.pserver = ShardIndex::kNone;
  std::vector<uint32_t> link_of(route.pservers_size(), ShardIndex::kNone);
  for (uint32_t flat = 0; flat < index_->size(); ++flat) {
    const uint32_t pserver =
        route.tables(index_->table_of(flat).id()).owner(index_->shard_of(flat));
    if (link_of[pserver] == ShardIndex::kNone) {
      link_of[pserver] = LinkTo(PserverAt(route, pserver));
      links_[link_of[pserver]].pserver = pserver;
    }
    change.moved[flat] = owners_[flat] != link_of[pserver];
    change.gained.resize(links_.size());
    // The Hello of a stream names what the link's shards have acknowledged. A link that gains a
    // shard must therefore say hello again (ClientCore::ApplyRoute).
    if (change.moved[flat]) change.gained[link_of[pserver]] = true;
    owners_[flat] = link_of[pserver];
  }
  change.gained.resize(links_.size());
  return change;
}

bool RouteMap::vacant(uint32_t link) const {
  const auto& vacant = route_.vacant();
  return in_use(link) &&
         std::find(vacant.begin(), vacant.end(), links_[link].pserver) != vacant.end();
}

uint32_t RouteMap::LinkTo(const PserverAddress& to) {
  // By address and not by index: a process that takes over elsewhere needs a stream of its own.
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (links_[link].to == to) return link;
  }
  links_.push_back({to});
  return static_cast<uint32_t>(links_.size() - 1);
}

std::string RouteMap::Name(uint32_t link) const {
  const Link& named = links_[link];
  return absl::StrCat("pserver ",
                      named.pserver == ShardIndex::kNone ? "?" : absl::StrCat(named.pserver),
                      " at ", named.to.address);
}

}  // namespace sluice
