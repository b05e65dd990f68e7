#include "common/collective/rank_card.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/boot_id.h"
#include "common/base/random_id.h"

namespace sluice {
namespace {

constexpr size_t kNonceBytes = 16;

std::string NewNonce() {
  const uint64_t words[] = {RandomId(), RandomId()};
  return std::string(reinterpret_cast<const char*>(words), kNonceBytes);
}

// Names a namespace of this process, such as "net:[4026531840]"; "" where it cannot be read.
std::string NamespaceOf(const char* kind) {
  char name[128] = "";
  const std::string path = absl::StrCat("/proc/self/ns/", kind);
  if (readlink(path.c_str(), name, sizeof(name) - 1) <= 0) return "";
  return name;
}

}  // namespace

std::string HostOfThisProcess() {
  // Two processes with the same text reach each other's abstract sockets and pass their user
  // checks: same kernel, network namespace, user namespace and user.
  return absl::StrCat(BootId(), "/", NamespaceOf("net"), "/", NamespaceOf("user"),
                      "/user:", geteuid());
}

bool ShareLoopback(const std::string& host, const std::string& other) {
  const auto network = [](const std::string& of) {
    return of.substr(0, of.find('/', of.find('/') + 1));
  };
  return network(host) == network(other);
}

CollectiveCard NewCard(const char* engine, uint64_t generation, uint32_t self, uint32_t ranks,
                       const std::string& host) {
  CollectiveCard card;
  card.set_engine(engine);
  card.set_generation(generation);
  card.set_rank(self);
  card.set_ranks(ranks);
  card.set_host(host);
  card.set_nonce(NewNonce());
  return card;
}

absl::StatusOr<std::vector<CollectiveCard>> ParseCards(const char* engine, uint64_t generation,
                                                       const std::vector<std::string>& peers,
                                                       const std::vector<uint32_t>& members) {
  std::vector<CollectiveCard> cards(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    // Cards come from other workers through the scheduler. Each must be the one that was asked for,
    // or ranks would pair up wrongly.
    const uint32_t rank = members[i];
    CollectiveCard& card = cards[i];
    const auto refuse = [&](const std::string& why) {
      return absl::InvalidArgumentError(
          absl::StrCat("the card of rank ", rank, " of the ", engine, " group ", why));
    };
    if (peers[rank].size() > kMaxCardBytes || !card.ParseFromString(peers[rank]) ||
        card.nonce().size() != kNonceBytes) {
      return refuse("cannot be read");
    }
    if (card.engine() != engine) return refuse(absl::StrCat("is of engine ", card.engine()));
    if (card.generation() != generation) {
      return refuse(absl::StrCat("is of generation ", card.generation(), ", not ", generation));
    }
    if (card.rank() != rank || card.ranks() != peers.size()) {
      return refuse(absl::StrCat("is of rank ", card.rank(), " of ", card.ranks(), ", not of ",
                                 peers.size()));
    }
  }
  return cards;
}

uint32_t PlaceIn(const std::vector<uint32_t>& members, uint32_t rank) {
  return static_cast<uint32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace sluice
