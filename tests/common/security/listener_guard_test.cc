#include "common/security/listener_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <thread>

#include "common/security/accept_reserve.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

// A listener that does not block.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    KeepAcceptReserve();
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }

  void Listen() { EXPECT_EQ(listen(fd_, 16), 0); }
  int port() const { return port_; }
  int fd() const { return fd_; }
  // -1 with EAGAIN when nobody waits. A connection over loopback waits when connect has returned.
  int Accept() const { return accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }
  bool HasNone() const { return Accept() == -1 && errno == EAGAIN; }

 private:
  const int fd_;
  int port_ = 0;
};

bool IsClosed(int client) {
  char byte;
  pollfd waiting = {client, POLLIN, 0};
  return poll(&waiting, 1, 10'000) == 1 && recv(client, &byte, 1, 0) <= 0;
}

uint16_t PortOf(const sockaddr_storage& peer) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(peer).sin_port);
}

TEST(ListenerGuardTest, RefusedConnectionsAreClosedAndTheNextOneIsTaken) {
  int seen = 0;
  ListenerGuard guard([&](int, const sockaddr_storage&) { return ++seen == 3; });
  Listener listener;
  EXPECT_EQ(guard.Guard([&] { listener.Listen(); }), 1);
  const int first = ConnectTo(listener.port()), second = ConnectTo(listener.port());
  EXPECT_TRUE(listener.HasNone());
  EXPECT_TRUE(IsClosed(first) && IsClosed(second));
  const int third = ConnectTo(listener.port());
  const int accepted = listener.Accept();
  EXPECT_GE(accepted, 0);
  EXPECT_EQ(seen, 3);
  for (const int fd : {first, second, third, accepted}) close(fd);
}

TEST(ListenerGuardTest, TheCheckAndTheCallerOfAcceptGetThePeer) {
  uint16_t checked = 0;
  ListenerGuard guard([&](int, const sockaddr_storage& peer) {
    checked = PortOf(peer);
    return true;
  });
  Listener listener;
  guard.Guard([&] { listener.Listen(); });
  const int client = ConnectTo(listener.port());
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  const int accepted = accept(listener.fd(), reinterpret_cast<sockaddr*>(&peer), &size);
  ASSERT_GE(accepted, 0);
  EXPECT_EQ(size, sizeof(sockaddr_in));
  EXPECT_EQ(checked, PortOf(peer));
  EXPECT_NE(checked, 0);
  close(accepted);
  close(client);
}

TEST(ListenerGuardTest, OnlyTheListenersOfTheThreadThatStartsAreGuarded) {
  ListenerGuard guard([](int, const sockaddr_storage&) { return false; });
  Listener before, inside, of_another_thread, after;
  before.Listen();
  const int listeners = guard.Guard([&] {
    inside.Listen();
    std::thread([&] { of_another_thread.Listen(); }).join();
  });
  EXPECT_EQ(listeners, 1);
  after.Listen();
  for (const Listener* open : {&before, &of_another_thread, &after}) {
    const int client = ConnectTo(open->port()), accepted = open->Accept();
    EXPECT_GE(accepted, 0);
    close(accepted);
    close(client);
  }
  const int client = ConnectTo(inside.port());
  EXPECT_TRUE(inside.HasNone());
  close(client);
}

TEST(ListenerGuardTest, OfNestedGuardsTheInnerOneChecksFirstAndAllMustAdmit) {
  std::string checks;
  bool inner_admits = false;
  ListenerGuard outer([&](int, const sockaddr_storage&) {
    checks += "o";
    return true;
  });
  ListenerGuard inner([&](int, const sockaddr_storage&) {
    checks += "i";
    return inner_admits;
  });
  Listener both, outer_only;
  EXPECT_EQ(outer.Guard([&] {
    EXPECT_EQ(inner.Guard([&] { both.Listen(); }), 1);
    outer_only.Listen();
  }),
            2);
  const int refused = ConnectTo(both.port());
  EXPECT_TRUE(both.HasNone());
  EXPECT_EQ(checks, "i");
  inner_admits = true;
  const int served = ConnectTo(both.port()), other = ConnectTo(outer_only.port());
  const int accepted = both.Accept(), accepted_other = outer_only.Accept();
  EXPECT_GE(accepted, 0);
  EXPECT_GE(accepted_other, 0);
  EXPECT_EQ(checks, "iioo");
  for (const int fd : {refused, served, other, accepted, accepted_other}) close(fd);
}

TEST(ListenerGuardTest, AListenerThatOutlivesItsGuardAdmitsNobody) {
  Listener listener;
  {
    ListenerGuard guard([](int, const sockaddr_storage&) { return true; });
    guard.Guard([&] { listener.Listen(); });
  }
  const int client = ConnectTo(listener.port());
  EXPECT_TRUE(listener.HasNone());
  EXPECT_TRUE(IsClosed(client));
  close(client);
}

TEST(ListenerGuardTest, ADescriptorThatIsUsedAgainHasNoGuard) {
  int descriptor = -1;
  ListenerGuard guard([](int, const sockaddr_storage&) { return false; });
  {
    Listener guarded;
    descriptor = guarded.fd();
    guard.Guard([&] { guarded.Listen(); });
  }
  Listener listener;
  ASSERT_EQ(listener.fd(), descriptor);
  listener.Listen();
  const int client = ConnectTo(listener.port()), accepted = listener.Accept();
  EXPECT_GE(accepted, 0);
  close(accepted);
  close(client);
}

TEST(ListenerGuardTest, TheGuardEndsAfterItsChecks) {
  std::atomic<bool> checking{false}, go_on{false}, returned{false};
  Listener listener;
  std::optional<ListenerGuard> guard(std::in_place, [&](int, const sockaddr_storage&) {
    checking = true;
    while (!go_on) std::this_thread::yield();
    returned = true;
    return true;
  });
  guard->Guard([&] { listener.Listen(); });
  const int client = ConnectTo(listener.port());
  std::thread accepts([&] { close(listener.Accept()); });
  while (!checking) std::this_thread::yield();
  std::thread releases([&] { go_on = true; });
  guard.reset();
  EXPECT_TRUE(returned);
  accepts.join();
  releases.join();
  close(client);
}

}  // namespace
}  // namespace sluice
