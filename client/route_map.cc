#include "client/route_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::Status CheckRoute(const ShardIndex& index, const Route& route) {
  auto bad = [](absl::string_view what) {
    return absl::InternalError(absl::StrCat("the scheduler's route is wrong: ", what));
  };
  const TableLayouts& tables = index.tables();
  if (route.tables_size() != static_cast<int>(tables.size())) {
    return bad(absl::StrCat("it has ", route.tables_size(), " tables, the job ", tables.size()));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto& owner = route.tables(t).owner();
    if (owner.size() != static_cast<int>(tables[t]->num_shards())) {
      return bad(absl::StrCat("table '", tables[t]->name(), "' has ", owner.size(),
                              " shards there and ", tables[t]->num_shards(), " in the job"));
    }
    for (uint32_t pserver : owner) {
      if (pserver >= static_cast<uint32_t>(route.pservers_size())) {
        return bad(absl::StrCat("table '", tables[t]->name(), "' has a shard at pserver ", pserver,
                                " of ", route.pservers_size()));
      }
    }
  }
  return absl::OkStatus();
}

RouteMap::RouteMap(const ShardIndex* index) : index_(index), owners_(index->size(), 0) {}

RouteMap::Change RouteMap::Apply(const Route& route) {
  Change change;
  change.generation = route.generation() != route_.generation();
  change.moved.resize(index_->size());
  route_ = route;
  ++applied_;
  for (Link& link : links_) link.pserver = ShardIndex::kNone;
  std::vector<uint32_t> link_of(route.pservers_size(), ShardIndex::kNone);
  for (uint32_t flat = 0; flat < index_->size(); ++flat) {
    const uint32_t pserver =
        route.tables(index_->table_of(flat).id()).owner(index_->shard_of(flat));
    if (link_of[pserver] == ShardIndex::kNone) {
      link_of[pserver] = LinkTo(route.pservers(pserver));
      links_[link_of[pserver]].pserver = pserver;
    }
    change.moved[flat] = owners_[flat] != link_of[pserver];
    change.gained.resize(links_.size());
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

uint32_t RouteMap::LinkTo(const std::string& address) {
  for (uint32_t link = 0; link < links_.size(); ++link) {
    if (links_[link].address == address) return link;
  }
  links_.push_back({address});
  return static_cast<uint32_t>(links_.size() - 1);
}

std::string RouteMap::Name(uint32_t link) const {
  const Link& named = links_[link];
  return absl::StrCat("pserver ",
                      named.pserver == ShardIndex::kNone ? "?" : absl::StrCat(named.pserver),
                      " at ", named.address);
}

}  // namespace sluice
