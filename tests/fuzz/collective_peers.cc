// Plays the other rank of a group that shares memory: its card, its hello or welcome with any
// memory, and anything in that memory while this rank joins and works. Also compares any headers of
// operations.
//
// Checks: this rank always gets a status; strangers never keep the right rank out; headers agree
// only when they are equal and possible.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/collective/operation_header.h"
#include "common/collective/rank_card.h"
#include "common/collective/shm_engine.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/message_mutator.h"

namespace sluice {
namespace {

constexpr uint64_t kGeneration = 3;
constexpr uint32_t kRanks = 2;
constexpr size_t kMostValues = 9000;  // of an operation: more than one chunk
constexpr size_t kChunkBytes = 16 << 10;

CollectiveOptions Quick() {
  CollectiveOptions options;
  options.timeout = absl::Milliseconds(20);
  options.chunk_bytes = kChunkBytes;
  return options;
}

template <class T>
T Changed(T message, FuzzedDataProvider* input) {
  const int times = input->ConsumeIntegralInRange(0, 2);
  for (int i = 0; i < times; ++i)
    MessageMutator(input->ConsumeIntegral<uint16_t>()).Mutate(&message);
  return message;
}

std::string AnyBytes(FuzzedDataProvider* input) { return input->ConsumeRandomLengthString(80); }

// Cards of three ranks in any state.
void ReadCards(FuzzedDataProvider* input) {
  std::vector<std::string> peers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const std::string right =
        Changed(NewCard("shm", kGeneration, rank, 3, "here"), input).SerializeAsString();
    peers.push_back(input->ConsumeIntegralInRange(0, 3) == 0 ? AnyBytes(input) : right);
  }
  const auto cards = ParseCards("shm", kGeneration, peers, {0, 2});
  if (!cards.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(cards.status()));
    return;
  }
  FUZZ_CHECK(cards->size() == 2 && (*cards)[1].rank() == 2 && (*cards)[0].ranks() == 3);
}

OperationHeader AnyHeader(FuzzedDataProvider* input) {
  OperationHeader header;
  header.kind = input->ConsumeIntegralInRange<uint32_t>(0, 7);
  header.op = input->ConsumeIntegralInRange<uint32_t>(0, 4);
  header.root = input->ConsumeIntegralInRange<uint32_t>(0, 2);
  header.n = input->ConsumeIntegralInRange<uint64_t>(0, 2);
  header.wire = input->ConsumeIntegralInRange<uint32_t>(0, 2);
  if (input->ConsumeIntegralInRange(0, 3) == 0)
    header.weight = input->ConsumeFloatingPoint<double>();
  return header;
}

void CompareHeaders(FuzzedDataProvider* input) {
  const OperationHeader first = AnyHeader(input);
  std::vector<OperationHeader> headers(input->ConsumeIntegralInRange<size_t>(1, 3), first);
  for (OperationHeader& header : headers) {
    // Mostly one field, so that nothing else keeps the ranks from agreeing.
    const int field = input->ConsumeIntegralInRange(0, 6);
    const OperationHeader other = AnyHeader(input);
    if (field == 0) header = other;
    if (field == 1) header.n = other.n;
    if (field == 2) header.root = other.root;
    if (field == 3) header.weight = other.weight;
    if (field == 4) header.op = other.op;
  }
  const absl::Status agreed = CheckAgreement(headers);
  if (!agreed.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(agreed));
    return;
  }
  for (const OperationHeader& header : headers) {
    FUZZ_CHECK(header.kind == headers[0].kind && header.n == headers[0].n &&
               header.op == headers[0].op && header.root < headers.size() && header.weight >= 0);
  }
  FUZZ_CHECK(std::isfinite(TotalWeight(headers)));
}

// Strangers show anything to rank 0 before the right rank comes.
void WelcomeStrangers(FuzzedDataProvider* input) {
  CollectiveOptions options = Quick();
  options.timeout = absl::Seconds(30);  // the right rank comes in any case
  ShmRendezvous rank_0(options), rank_1(options);
  const CollectiveCard card_0 = *rank_0.Listen(kGeneration, 0, kRanks);
  const CollectiveCard card_1 = *rank_1.Listen(kGeneration, 1, kRanks);
  std::vector<UnixConnection> strangers;
  const int n = input->ConsumeIntegralInRange(0, 6);
  for (int i = 0; i < n; ++i) {
    CollectiveHello hello;
    hello.set_generation(kGeneration);
    hello.set_rank(1);
    hello.set_nonce(std::string(16, 'n'));
    const std::string bytes =
        input->ConsumeBool() ? AnyBytes(input) : Changed(hello, input).SerializeAsString();
    UnixConnection stranger = *UnixConnection::Connect(card_0.socket());
    if (!bytes.empty()) stranger.Send(bytes).IgnoreError();
    if (input->ConsumeBool()) strangers.push_back(std::move(stranger));
  }
  std::thread right([&] { FUZZ_CHECK(rank_1.Join({card_0, card_1}).ok()); });
  FUZZ_CHECK(rank_0.Join({card_0, card_1}).ok());
  right.join();
}

// Memory as rank 0 would give it, or of another size, or that could still shrink.
FileDescriptor Memory(size_t bytes, bool sealed) {
  FileDescriptor fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FUZZ_CHECK(fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  if (sealed)
    FUZZ_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  return fd;
}

// Rank 0, which answers rank 1 with a welcome, and then writes into the memory.
class RankZero {
 public:
  RankZero(FuzzedDataProvider* input, const CollectiveCard& own)
      : card_(own), listener_(*UnixListener::Listen(own.socket())) {
    const ShmLayout layout = ShmLayout::ForChunks(kChunkBytes, kRanks);
    CollectiveWelcome welcome;
    welcome.set_piece_bytes(layout.piece_bytes);
    welcome.set_slots(layout.slots);
    bytes_ = input->ConsumeIntegralInRange(0, 7) == 0
                 ? AnyBytes(input)
                 : (input->ConsumeBool() ? Changed(welcome, input) : welcome).SerializeAsString();
    size_t size = layout.total_bytes();
    if (input->ConsumeIntegralInRange(0, 7) == 0)
      size = input->ConsumeIntegralInRange<size_t>(1, size + 4096);
    memory_ = Memory(size, input->ConsumeIntegralInRange(0, 7) > 0);
    descriptors_ =
        input->ConsumeIntegralInRange(0, 7) == 0 ? input->ConsumeIntegralInRange(0, 3) : 1;
    Fill(input, size);
    ends_ = input->ConsumeBool();
  }
  // On its own thread, until rank 1 has connected.
  void Serve() {
    for (int i = 0; i < 200 && !peer_; ++i) {
      auto accepted = listener_.Accept();
      if (accepted.ok()) peer_ = *std::move(accepted);
      if (!peer_) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (!peer_) return;
    peer_.Receive(absl::Milliseconds(20)).status().IgnoreError();
    if (!bytes_.empty())
      peer_.Send(bytes_, std::vector<int>(static_cast<size_t>(descriptors_), memory_.get()))
          .IgnoreError();
    if (ends_) peer_ = UnixConnection();
  }

 private:
  // The words of the board: mostly small positions, so that rank 1 goes on.
  void Fill(FuzzedDataProvider* input, size_t size) {
    const int words = input->ConsumeIntegralInRange(0, 24);
    for (int i = 0; i < words; ++i) {
      const size_t at = 8 * input->ConsumeIntegralInRange<size_t>(0, 127);
      uint64_t value = input->ConsumeIntegralInRange<uint64_t>(0, 12);
      if (input->ConsumeIntegralInRange(0, 7) == 0) value = input->ConsumeIntegral<uint64_t>();
      Write(&value, sizeof(value), at, size);
    }
    const int headers = input->ConsumeIntegralInRange(0, 4);
    for (int slot = 0; slot < headers; ++slot) {
      const OperationHeader header = AnyHeader(input);
      // After the control words and one line for each rank.
      Write(&header, sizeof(header), 64 * (4 + kRanks + static_cast<size_t>(slot) * kRanks), size);
    }
  }
  void Write(const void* from, size_t n, size_t at, size_t size) {
    if (at + n <= size)
      FUZZ_CHECK(pwrite(memory_.get(), from, n, static_cast<off_t>(at)) == static_cast<ssize_t>(n));
  }

  const CollectiveCard card_;
  UnixListener listener_;
  UnixConnection peer_;
  FileDescriptor memory_;
  std::string bytes_;
  int descriptors_ = 1;
  bool ends_ = false;
};

absl::Status Operate(FuzzedDataProvider* input, ShmEngine* engine) {
  const auto n = input->ConsumeIntegralInRange<size_t>(0, kMostValues);
  // The array has exactly n values, so that the sanitizer notices writes beyond it.
  const std::unique_ptr<float[]> values(new float[n]());
  const absl::Span<float> span(values.get(), n);
  const auto op = static_cast<Collective::Op>(input->ConsumeIntegralInRange(0, 3));
  switch (input->ConsumeIntegralInRange(0, 6)) {
    case 0: {
      const auto wire =
          static_cast<Collective::Wire>(input->ConsumeIntegralInRange<uint32_t>(0, 1));
      return engine->Reduce(WeightedMeanHeader(0, n, 1, wire), span);
    }
    case 1:
      return engine->Reduce(ReductionHeader(OperationHeader::kAllReduce, n, op), span);
    case 2:
      return engine->Reduce(ReductionHeader(OperationHeader::kReduceScatter, n, op), span);
    case 3:
      return engine->AllGather(AllGatherHeader(n), span);
    case 4: {
      const absl::Span<uint8_t> bytes(reinterpret_cast<uint8_t*>(values.get()), n * sizeof(float));
      return engine->Broadcast(
          BroadcastHeader(bytes.size(), input->ConsumeIntegralInRange<uint32_t>(0, 1)), bytes);
    }
    default:
      return engine->Barrier(BarrierHeader());
  }
}

// This process is rank 1.
void JoinAndWork(FuzzedDataProvider* input) {
  static uint64_t number = 0;
  ShmEngine engine(Quick());
  const auto own = engine.Listen(kGeneration, 1, kRanks);
  FUZZ_CHECK(own.ok());
  CollectiveCard card = NewCard("shm", kGeneration, 0, kRanks, HostOfThisProcess());
  card.set_socket(absl::StrCat("sluice-fuzz-collective-", getpid(), "-", ++number));
  RankZero rank_0(input, card);
  if (input->ConsumeIntegralInRange(0, 15) == 0) card = Changed(card, input);
  std::thread other([&rank_0] { rank_0.Serve(); });
  const absl::Status joined = engine.Join(kGeneration, {card.SerializeAsString(), *own}, {0, 1});
  const int operations = joined.ok() ? input->ConsumeIntegralInRange(0, 4) : 0;
  for (int i = 0; i < operations; ++i) {
    if (!Operate(input, &engine).ok()) break;
    engine.WaitingFor();
  }
  other.join();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange(0, 7)) {
    case 0:
      ReadCards(&input);
      break;
    case 1:
      CompareHeaders(&input);
      break;
    case 2:
    case 3:
      WelcomeStrangers(&input);
      break;
    default:
      JoinAndWork(&input);
  }
  return 0;
}
