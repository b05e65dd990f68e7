// Plays strangers at the port of a rank whose group meets over TCP, and a process that answers in
// place of a rank: silence, pieces, any bytes, and greetings with one wrong field.
//
// Checks: strangers get no answer and never keep the right rank out; a rank takes nobody for
// another rank who does not show the secret of its card; everybody gets a status.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/collective/tcp_rendezvous.h"
#include "tests/common/collective/tcp_strangers.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr uint64_t kGeneration = 3;
constexpr size_t kGreetingBytes = 40;

CollectiveOptions Options(absl::Duration timeout) {
  CollectiveOptions options;
  options.bind_address = "127.0.0.1";
  options.timeout = timeout;
  return options;
}

std::string Greeting(uint32_t from, const CollectiveCard& to) {
  std::string greeting = "sluice-g";
  const uint64_t generation = to.generation();
  const uint32_t ranks[] = {from, to.rank()};
  greeting.append(reinterpret_cast<const char*>(&generation), sizeof(generation));
  greeting.append(reinterpret_cast<const char*>(ranks), sizeof(ranks));
  return greeting + to.nonce();
}

// Anything but the right greeting.
std::string Wrong(FuzzedDataProvider* input, std::string right) {
  switch (input->ConsumeIntegralInRange(0, 3)) {
    case 0:
      return input->ConsumeRandomLengthString(100);
    case 1:
      return right.substr(0, input->ConsumeIntegralInRange<size_t>(0, kGreetingBytes - 1));
    default: {
      const auto at = input->ConsumeIntegralInRange<size_t>(0, kGreetingBytes - 1);
      right[at] = static_cast<char>(right[at] ^ input->ConsumeIntegralInRange(1, 255));
      return right + input->ConsumeRandomLengthString(20);
    }
  }
}

// In pieces, as the network may cut them.
void Send(FuzzedDataProvider* input, const FileDescriptor& fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t size =
        std::min(bytes.size() - at, input->ConsumeIntegralInRange<size_t>(1, kGreetingBytes + 20));
    if (send(fd.get(), bytes.data() + at, size, MSG_NOSIGNAL) < 0) return;
    at += size;
  }
}

// Strangers come to rank 0 before the right rank does.
void WelcomeStrangers(FuzzedDataProvider* input) {
  const CollectiveOptions options = Options(absl::Seconds(30));  // the right rank comes in any case
  TcpRendezvous side_0(options), side_1(options);
  std::vector<CollectiveCard> cards = {NewCard("gloo", kGeneration, 0, 2, "host"),
                                       NewCard("gloo", kGeneration, 1, 2, "host")};
  cards[0].set_address(*side_0.Listen());
  cards[1].set_address(*side_1.Listen());
  std::vector<FileDescriptor> strangers;
  const int n = input->ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < n; ++i) {
    FileDescriptor stranger = ConnectAsStranger(cards[0].address());
    FUZZ_CHECK(stranger);
    Send(input, stranger, Wrong(input, Greeting(1, cards[0])));
    if (input->ConsumeBool()) strangers.push_back(std::move(stranger));
  }
  std::thread right([&] { FUZZ_CHECK(side_1.Join(cards[1], cards).ok()); });
  const auto joined = side_0.Join(cards[0], cards);
  right.join();
  FUZZ_CHECK(joined.ok() && !(*joined)[0] && (*joined)[1]);
  for (const FileDescriptor& stranger : strangers) FUZZ_CHECK(ReadToEnd(stranger).empty());
}

// Rank 1 connects to a process that listens in place of rank 0.
void MeetAnImpostor(FuzzedDataProvider* input) {
  TcpRendezvous side_1(Options(absl::Milliseconds(20)));
  std::vector<CollectiveCard> cards = {NewCard("gloo", kGeneration, 0, 2, "host"),
                                       NewCard("gloo", kGeneration, 1, 2, "host")};
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  FUZZ_CHECK(bind(listener.get(), reinterpret_cast<sockaddr*>(&at), length) == 0 &&
             listen(listener.get(), 1) == 0 &&
             getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0);
  cards[0].set_address("127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
  cards[1].set_address(*side_1.Listen());
  const bool answers = input->ConsumeBool(), ends = input->ConsumeBool();
  const std::string answer = Wrong(input, Greeting(0, cards[1]));
  FileDescriptor accepted;
  std::thread impostor([&] {
    accepted = FileDescriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (accepted && answers) Send(input, accepted, answer);
    if (ends) accepted = FileDescriptor();
  });
  const auto joined = side_1.Join(cards[1], cards);
  impostor.join();
  FUZZ_CHECK(!joined.ok());
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    sluice::WelcomeStrangers(&input);
  } else {
    sluice::MeetAnImpostor(&input);
  }
  return 0;
}
