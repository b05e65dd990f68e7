#include "common/table/placement.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {

PserverAddress PserverAt(const Route& route, uint32_t index) {
  const int at = static_cast<int>(index);
  PserverAddress pserver(route.pservers(at));
  if (at < route.pserver_ranks_size()) pserver.rank = route.pserver_ranks(at);
  return pserver;
}

Route PlaceShards(const TableLayouts& tables, const std::vector<std::string>& pservers,
                  uint64_t generation) {
  Route route;
  route.set_generation(generation);
  for (const std::string& address : pservers) route.add_pservers(address);

  struct Block {
    uint64_t bytes;
    uint32_t table, shard;
  };
  std::vector<Block> blocks;  // of dense tables
  uint32_t dealt = 0;         // shards of sparse tables
  for (uint32_t t = 0; t < tables.size(); ++t) {
    auto* owners = route.add_tables()->mutable_owner();
    owners->Resize(static_cast<int>(tables[t]->num_shards()), 0);
    for (uint32_t s = 0; s < tables[t]->num_shards(); ++s) {
      if (tables[t]->sparse()) {
        // Keys are hashed, so shards of one table are about equal. They are dealt in turn over all
        // sparse tables together, so that small tables do not all begin at the first pserver.
        owners->Set(static_cast<int>(s), dealt++ % static_cast<uint32_t>(pservers.size()));
      } else {
        blocks.push_back({tables[t]->ShardBytes(s), t, s});
      }
    }
  }
  // The sort is stable, so that blocks of equal size keep the order of table and shard and the
  // route is the same everywhere.
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.bytes > b.bytes; });

  // The largest block goes to the pserver with the least: at most 4/3 of the best possible load
  // (Graham 1969).
  using Load = std::pair<uint64_t, uint32_t>;  // bytes, pserver
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (uint32_t p = 0; p < pservers.size(); ++p) loads.push({0, p});
  for (const Block& block : blocks) {
    auto [bytes, owner] = loads.top();
    loads.pop();
    route.mutable_tables(static_cast<int>(block.table))
        ->set_owner(static_cast<int>(block.shard), owner);
    loads.push({bytes + block.bytes, owner});
  }
  return route;
}

Route MoveShards(const TableLayouts& tables, const Route& before,
                 const std::vector<std::string>& pservers, uint64_t generation) {
  Route route = before;
  route.clear_vacant();
  route.set_generation(generation);
  route.mutable_pservers()->Assign(pservers.begin(), pservers.end());
  // By former index: the index of the pserver now, or `none`. Shards of pservers that stay are not
  // moved, because moving costs a copy, and balance is worth less.
  const auto none = static_cast<uint32_t>(pservers.size());
  std::vector<uint32_t> now(before.pservers_size(), none);
  for (int i = 0; i < before.pservers_size(); ++i) {
    const auto at = std::find(pservers.begin(), pservers.end(), before.pservers(i));
    if (at != pservers.end()) now[i] = static_cast<uint32_t>(at - pservers.begin());
  }
  struct Moved {
    uint64_t bytes;  // 0: of a sparse table
    uint32_t table, shard;
  };
  std::vector<Moved> moved;
  std::vector<uint64_t> dense(pservers.size()), sparse(pservers.size());
  std::vector<std::vector<uint64_t>> of_table(tables.size(),
                                              std::vector<uint64_t>(pservers.size()));
  const auto give = [&](uint32_t t, uint32_t s, uint32_t owner) {
    route.mutable_tables(static_cast<int>(t))->set_owner(static_cast<int>(s), owner);
    if (tables[t]->sparse()) {
      ++sparse[owner];
      ++of_table[t][owner];
    } else {
      dense[owner] += tables[t]->ShardBytes(s);
    }
  };
  for (uint32_t t = 0; t < tables.size(); ++t) {
    for (uint32_t s = 0; s < tables[t]->num_shards(); ++s) {
      const uint32_t owner = now[route.tables(static_cast<int>(t)).owner(static_cast<int>(s))];
      if (owner != none) {
        give(t, s, owner);
      } else {
        moved.push_back({tables[t]->sparse() ? 0 : tables[t]->ShardBytes(s), t, s});
      }
    }
  }
  // Stable, as in PlaceShards.
  std::stable_sort(moved.begin(), moved.end(),
                   [](const Moved& a, const Moved& b) { return a.bytes > b.bytes; });
  for (const Moved& one : moved) {
    const bool is_sparse = tables[one.table]->sparse();
    const auto less = [&](uint32_t a, uint32_t b) {
      // Sparse shards are counted, because their rows are not known; dense blocks are weighed in
      // bytes.
      if (!is_sparse) return dense[a] < dense[b];
      const std::vector<uint64_t>& of_this = of_table[one.table];
      return std::pair(of_this[a], sparse[a]) < std::pair(of_this[b], sparse[b]);
    };
    uint32_t least = 0;
    for (uint32_t p = 1; p < pservers.size(); ++p) {
      if (less(p, least)) least = p;
    }
    give(one.table, one.shard, least);
  }
  return route;
}

absl::Status ValidateRoute(const Route& route, const TableLayouts& tables) {
  std::set<std::string> addresses;
  for (int i = 0; i < route.pservers_size(); ++i) {
    const auto& vacant = route.vacant();
    // The place of a pserver that has gone keeps its old address, which another one may have now.
    if (std::find(vacant.begin(), vacant.end(), static_cast<uint32_t>(i)) != vacant.end()) continue;
    const std::string& address = route.pservers(i);
    if (!addresses.insert(address).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("route ", route.generation(), ": pserver ", address, " is listed twice"));
    }
  }
  if (route.tables_size() != static_cast<int>(tables.size())) {
    return absl::InvalidArgumentError(absl::StrCat("route ", route.generation(), " has ",
                                                   route.tables_size(), " tables; the job has ",
                                                   tables.size()));
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto& owners = route.tables(static_cast<int>(t)).owner();
    if (owners.size() != static_cast<int>(tables[t]->num_shards())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "route ", route.generation(), ": table '", tables[t]->name(), "' has ",
          tables[t]->num_shards(), " shards; the route names owners of ", owners.size()));
    }
    for (int s = 0; s < owners.size(); ++s) {
      // Routes come over the network, and the owner is used as an index.
      if (owners[s] >= static_cast<uint32_t>(route.pservers_size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("route ", route.generation(), ": shard ", s, " of table '",
                         tables[t]->name(), "' belongs to pserver index ", owners[s],
                         "; the route has ", route.pservers_size(), " pservers"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice
