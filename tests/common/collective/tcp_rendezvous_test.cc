#include "common/collective/tcp_rendezvous.h"

#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "tests/common/collective/tcp_strangers.h"

namespace sluice {
namespace {

struct Ranks {
  explicit Ranks(uint32_t n, absl::Duration timeout = absl::Seconds(60)) : joined(n) {
    CollectiveOptions options;
    options.bind_address = "127.0.0.1";
    options.timeout = timeout;
    for (uint32_t r = 0; r < n; ++r) {
      sides.push_back(std::make_unique<TcpRendezvous>(options));
      cards.push_back(NewCard("gloo", 1, r, n, "host"));
      cards.back().set_address(*sides.back()->Listen());
    }
  }
  void Join(uint32_t rank) { joined[rank] = sides[rank]->Join(cards[rank], cards); }
  void JoinAll() {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < sides.size(); ++r) threads.emplace_back([this, r] { Join(r); });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::unique_ptr<TcpRendezvous>> sides;
  std::vector<CollectiveCard> cards;
  std::vector<absl::StatusOr<std::vector<FileDescriptor>>> joined;
};

// The greeting of the header, from rank 1 to rank 0.
std::string GreetingTo(const CollectiveCard& card) {
  std::string greeting = "sluice-g";
  const uint64_t generation = card.generation();
  const uint32_t ranks[] = {1, 0};
  greeting.append(reinterpret_cast<const char*>(&generation), sizeof(generation));
  greeting.append(reinterpret_cast<const char*>(ranks), sizeof(ranks));
  return greeting + card.nonce();
}

void SendAll(const FileDescriptor& fd, const std::string& bytes) {
  (void)send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

TEST(TcpRendezvousTest, EveryTwoRanksAreConnected) {
  Ranks ranks(4);
  ranks.JoinAll();
  for (uint32_t a = 0; a < 4; ++a) {
    ASSERT_TRUE(ranks.joined[a].ok()) << ranks.joined[a].status();
    for (uint32_t b = 0; b < 4; ++b) {
      ASSERT_EQ(static_cast<bool>((*ranks.joined[a])[b]), a != b);
      if (a != b) SendAll((*ranks.joined[a])[b], std::string(1, static_cast<char>(10 * a + b)));
    }
  }
  for (uint32_t a = 0; a < 4; ++a) {
    for (uint32_t b = 0; b < 4; ++b) {
      char byte = 0;
      if (a == b) continue;
      // The connection carried nothing else.
      pollfd state = {(*ranks.joined[a])[b].get(), POLLIN, 0};
      ASSERT_EQ(poll(&state, 1, 60'000), 1);
      ASSERT_EQ(recv(state.fd, &byte, 1, 0), 1);
      EXPECT_EQ(byte, static_cast<char>(10 * b + a));
    }
  }
}

TEST(TcpRendezvousTest, NobodyListensOnceAllHaveJoinedOrLeft) {
  Ranks ranks(2);
  ranks.JoinAll();
  EXPECT_FALSE(ConnectAsStranger(ranks.cards[0].address()));
  EXPECT_FALSE(ConnectAsStranger(ranks.cards[1].address()));
  Ranks others(2);
  EXPECT_TRUE(ConnectAsStranger(others.cards[0].address()));
  others.sides[0]->Leave();
  EXPECT_FALSE(ConnectAsStranger(others.cards[0].address()));
}

TEST(TcpRendezvousTest, ALoopbackAddressOfAnotherHostIsNamedWithItsCause) {
  Ranks ranks(2);
  ranks.sides[0]->Leave();  // nobody listens there on this host
  ranks.cards[0].set_host("another");
  ranks.Join(1);
  ASSERT_FALSE(ranks.joined[1].ok());
  const std::string message(ranks.joined[1].status().message());
  for (const char* part : {"rank 0", ranks.cards[0].address().c_str(), "--scheduler"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(TcpRendezvousTest, StrangersAreTurnedAwayWithoutAnAnswer) {
  Ranks ranks(2);
  std::vector<FileDescriptor> strangers;
  const std::string true_greeting = GreetingTo(ranks.cards[0]);
  // Each byte counts: the magic, generation, ranks and the nonce.
  for (size_t at = 0; at < true_greeting.size(); ++at) {
    std::string greeting = true_greeting;
    greeting[at] = static_cast<char>(greeting[at] ^ 1);
    strangers.push_back(ConnectAsStranger(ranks.cards[0].address()));
    ASSERT_TRUE(strangers.back());
    SendAll(strangers.back(), greeting);
  }
  strangers.push_back(ConnectAsStranger(ranks.cards[0].address()));
  SendAll(strangers.back(), std::string(100000, 'x'));
  std::thread join([&] { ranks.Join(0); });
  for (const FileDescriptor& stranger : strangers) EXPECT_EQ(ReadToEnd(stranger), "");
  ranks.Join(1);
  join.join();
  EXPECT_TRUE(ranks.joined[0].ok()) << ranks.joined[0].status();
  EXPECT_TRUE(ranks.joined[1].ok()) << ranks.joined[1].status();
}

TEST(TcpRendezvousTest, AGreetingIsGoodForOneConnection) {
  Ranks ranks(3, absl::Seconds(3));
  const FileDescriptor first = ConnectAsStranger(ranks.cards[0].address());
  SendAll(first, GreetingTo(ranks.cards[0]));
  std::thread join([&] { ranks.Join(0); });
  pollfd state = {first.get(), POLLIN, 0};
  EXPECT_EQ(poll(&state, 1, 60'000), 1);
  char answer[40];
  ASSERT_EQ(recv(first.get(), answer, sizeof(answer), MSG_WAITALL), 40);
  EXPECT_EQ(std::string(answer + 24, 16), ranks.cards[1].nonce());
  const FileDescriptor second = ConnectAsStranger(ranks.cards[0].address());
  SendAll(second, GreetingTo(ranks.cards[0]));
  EXPECT_EQ(ReadToEnd(second), "");
  join.join();
  EXPECT_EQ(ranks.joined[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RankAtFault(ranks.joined[0].status()), 2u);
}

TEST(TcpRendezvousTest, TheOldestOfTooManySilentStrangersMakesRoom) {
  Ranks ranks(2);
  std::vector<FileDescriptor> strangers;
  std::thread join([&] { ranks.Join(0); });
  for (size_t i = 0; i < 5 * kMaxStrangers; ++i) {
    strangers.push_back(ConnectAsStranger(ranks.cards[0].address()));
    ASSERT_TRUE(strangers.back());
  }
  EXPECT_EQ(ReadToEnd(strangers[0]), "");
  ranks.Join(1);
  join.join();
  EXPECT_TRUE(ranks.joined[0].ok()) << ranks.joined[0].status();
  EXPECT_TRUE(ranks.joined[1].ok()) << ranks.joined[1].status();
}

TEST(TcpRendezvousTest, AProcessThatTookOverAPortIsFoundOut) {
  Ranks ranks(2);
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(any);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &length);
  ranks.cards[0].set_address(absl::StrCat("127.0.0.1:", ntohs(any.sin_port)));
  std::thread join([&] { ranks.Join(1); });
  FileDescriptor accepted(accept(listener.get(), nullptr, nullptr));
  char greeting[40];
  ASSERT_EQ(recv(accepted.get(), greeting, sizeof(greeting), MSG_WAITALL), 40);
  SendAll(accepted, std::string(greeting, sizeof(greeting)));  // it knows no other secret
  join.join();
  EXPECT_EQ(ranks.joined[1].status().code(), absl::StatusCode::kInvalidArgument)
      << ranks.joined[1].status();
}

TEST(TcpRendezvousTest, RanksThatAreGoneOrSilentAreNamed) {
  Ranks ranks(3, absl::Milliseconds(300));
  ranks.sides[0]->Leave();
  ranks.Join(1);
  EXPECT_EQ(ranks.joined[1].status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RankAtFault(ranks.joined[1].status()), 0u);
  Ranks silent(3, absl::Milliseconds(300));
  silent.Join(2);
  EXPECT_EQ(silent.joined[2].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RankAtFault(silent.joined[2].status()), 0u);
}

TEST(TcpRendezvousTest, CardsWithoutAGoodAddressAreRefused) {
  for (const char* address : {"", "127.0.0.1", "no-such-host.invalid:1", "127.0.0.1:99999"}) {
    Ranks ranks(2);
    ranks.cards[0].set_address(address);
    ranks.Join(1);
    EXPECT_EQ(ranks.joined[1].status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST(TcpRendezvousTest, AnAddressOfAnotherHostIsRefused) {
  CollectiveOptions options;
  for (const char* address : {"203.0.113.1", "no-such-host.invalid"}) {
    options.bind_address = address;
    EXPECT_EQ(TcpRendezvous(options).Listen().status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TcpRendezvousTest, CancelEndsJoin) {
  Ranks ranks(2);
  std::thread join([&] { ranks.Join(0); });
  ranks.sides[0]->Cancel();
  join.join();
  EXPECT_EQ(ranks.joined[0].status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice
