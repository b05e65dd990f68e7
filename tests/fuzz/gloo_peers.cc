// Plays the other rank of a group over Gloo after it has been let in: the messages and values of
// the operations that this rank runs, in Gloo's format, with any of them changed, left out,
// repeated or cut short, and any bytes between them. Then it closes the connection or stays silent.
//
// Checks: this rank always gets a status; values that an operation only sends never change; after
// an error nothing is written to the arrays; a peer that changes nothing gets every operation
// through, with the right results.
#include "common/collective/gloo_peers.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/collective/gloo_engine.h"
#include "common/collective/tcp_rendezvous.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/gloo_script.h"

// Gloo's thread waits up to 10 ms for events, and closing a connection waits for the end of that.
// Gloo calls this function in place of the C library's, so that more inputs run in a second.
extern "C" __attribute__((visibility("default"))) int epoll_wait(int fd, epoll_event* events,
                                                                 int size, int timeout_ms) {
  return epoll_pwait(fd, events, size, timeout_ms < 0 ? 1 : std::min(timeout_ms, 1), nullptr);
}

namespace sluice {
namespace {

constexpr uint64_t kGeneration = 3;
// How long a peer that has changed something waits for what may never come.
constexpr int kPatienceMs = 20;

uint64_t AnyNumber(FuzzedDataProvider* input) {
  switch (input->ConsumeIntegralInRange(0, 3)) {
    case 0:
      return input->ConsumeIntegral<uint64_t>();
    case 1:
      return ~input->ConsumeIntegralInRange<uint64_t>(0, 100);
    default:
      return input->ConsumeIntegralInRange<uint64_t>(0, 300);
  }
}

// In the preambles, the header or the first values.
void ChangeAWord(FuzzedDataProvider* input, std::string* bytes) {
  const size_t words =
      std::min<size_t>(bytes->size(), 2 * sizeof(GlooPreamble) + kGlooHeaderBytes + 16) / 4;
  if (words < 2) return;
  const size_t at = 4 * input->ConsumeIntegralInRange<size_t>(0, words - 2);
  const bool wide = input->ConsumeBool(), adds = input->ConsumeBool();
  const size_t width = wide ? sizeof(uint64_t) : sizeof(uint32_t);
  uint64_t value = 0;
  std::memcpy(&value, bytes->data() + at, width);
  value = adds ? value + static_cast<uint64_t>(input->ConsumeIntegralInRange<int64_t>(-70, 70))
               : AnyNumber(input);
  std::memcpy(bytes->data() + at, &value, width);
}

std::string AnyNoticeOrValues(FuzzedDataProvider* input) {
  GlooPreamble preamble;
  preamble.opcode = input->ConsumeIntegralInRange<uint64_t>(0, 4);
  preamble.slot = input->ConsumeIntegralInRange<uint64_t>(0, 5);
  preamble.length = AnyNumber(input);
  preamble.offset = input->ConsumeBool() ? AnyNumber(input) : 0;
  preamble.roffset = input->ConsumeBool() ? AnyNumber(input) : 0;
  const auto size = input->ConsumeIntegralInRange<size_t>(0, 300);
  preamble.bytes = input->ConsumeBool() ? AnyNumber(input) : sizeof(preamble) + size;
  std::string bytes;
  AppendBytes(preamble, &bytes);
  return bytes + std::string(size, 'v');
}

std::string LastWords(FuzzedDataProvider* input) {
  OperationHeader header;
  header.kind = input->ConsumeIntegralInRange(0, 7) == 7
                    ? input->ConsumeIntegral<uint32_t>()
                    : static_cast<uint32_t>(OperationHeader::kFailed);
  header.op = input->ConsumeIntegralInRange<uint32_t>(0, 6);
  header.root = static_cast<uint32_t>(AnyNumber(input));
  std::string bytes;
  AppendBytes(header, &bytes);
  return GlooValues(kGlooLastWordsSlot, bytes);
}

// Returns whether the peer is no longer a right one.
bool Change(FuzzedDataProvider* input, std::vector<Piece>* pieces) {
  bool changed = false;
  for (size_t i = 0; i < pieces->size(); ++i) {
    Piece& piece = (*pieces)[i];
    const int what = input->ConsumeIntegralInRange(0, 19);
    switch (what) {
      case 1:
        ChangeAWord(input, &piece.bytes);
        break;
      case 2:
        piece.bytes.clear();
        break;
      case 3:
        piece.bytes = input->ConsumeRandomLengthString(100) + piece.bytes;
        break;
      case 4:
        piece.bytes.resize(input->ConsumeIntegralInRange<size_t>(0, piece.bytes.size()));
        pieces->resize(i + 1);
        return true;
      case 5:
        piece.bytes = AnyNoticeOrValues(input) + piece.bytes;
        break;
      case 6:
        piece.bytes += piece.bytes;
        break;
      case 7:
        piece.receive = piece.brought = 0;
        break;
      case 8:
        piece.bytes = LastWords(input) + piece.bytes;
        break;
      case 9:
        piece.in_halves = true;
        continue;
      default:
        continue;
    }
    changed = true;
  }
  const std::string more = input->ConsumeRandomLengthString(200);
  if (more.empty()) return changed;
  pieces->push_back({more, 0, 0, false});
  return true;
}

// The other rank, on a thread of its own.
class OtherRank {
 public:
  // `stays`: until this rank closes the connection.
  OtherRank(const CollectiveOptions& options, uint32_t rank, bool right, bool stays)
      : right_(right), stays_(stays), rendezvous_(options) {
    card_ = NewCard("gloo", kGeneration, rank, kRanks, "host");
    card_.set_address(*rendezvous_.Listen());
  }
  const CollectiveCard& card() const { return card_; }

  void Serve(const std::vector<CollectiveCard>& cards, const std::vector<Piece>& pieces) {
    auto joined = rendezvous_.Join(card_, cards);
    FUZZ_CHECK(joined.ok() || !right_);
    if (!joined.ok()) return;
    connection_ = std::move((*joined)[1 - card_.rank()]);
    for (const Piece& piece : pieces) {
      if (piece.receive != 0 && Await(&posted_[piece.receive], 1)) --posted_[piece.receive];
      Await(&brought_, piece.brought);
      const size_t half = piece.in_halves ? piece.bytes.size() / 2 : 0;
      if (half > 0) {
        Send(piece.bytes.substr(0, half));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      Send(piece.bytes.substr(half));
    }
    if (!right_ && !stays_) shutdown(connection_.get(), SHUT_WR);
    // This rank fails, or has done all, and closes the connection.
    while (!closed_) FUZZ_CHECK(Hear(POLLIN, 20000) || closed_);
    // Where this rank has closed first, its port is free at once instead of after a minute.
    const linger at_once = {1, 0};
    setsockopt(connection_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

 private:
  // Until the counter is at least n. False: in vain.
  bool Await(const size_t* counter, size_t n) {
    while (*counter < n) {
      if (closed_ || impatient_) return false;
      if (Hear(POLLIN, right_ ? 20000 : kPatienceMs)) continue;
      FUZZ_CHECK(!right_);
      impatient_ = true;
    }
    return true;
  }
  void Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size() && !closed_;) {
      const ssize_t sent = send(connection_.get(), bytes.data() + at, bytes.size() - at,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        at += static_cast<size_t>(sent);
      } else if (errno == EAGAIN || errno == EINTR) {
        FUZZ_CHECK(Hear(POLLIN | POLLOUT, 20000) || closed_);
      } else {
        return;
      }
    }
  }
  // Waits until the socket is ready, and reads what has come. False: in vain.
  bool Hear(int16_t events, int timeout_ms) {
    pollfd state = {connection_.get(), events, 0};
    const int ready = poll(&state, 1, timeout_ms);
    if (ready < 0) return errno == EINTR;
    if (ready == 0) return false;
    if ((state.revents & ~POLLOUT) == 0) return true;
    char part[64 << 10];
    const ssize_t size = recv(connection_.get(), part, sizeof(part), MSG_DONTWAIT);
    if (size > 0) {
      Understand(part, static_cast<size_t>(size));
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
      closed_ = true;
    }
    return true;
  }
  void Understand(const char* bytes, size_t size) {
    while (size > 0) {
      const size_t step = std::min(
          size, heard_ < sizeof(preamble_) ? sizeof(preamble_) - heard_ : preamble_.bytes - heard_);
      if (heard_ < sizeof(preamble_))
        std::memcpy(reinterpret_cast<char*>(&preamble_) + heard_, bytes, step);
      bytes += step;
      size -= step;
      heard_ += step;
      if (heard_ < sizeof(preamble_) || heard_ < preamble_.bytes) continue;
      FUZZ_CHECK(heard_ == preamble_.bytes);
      if (preamble_.opcode == GlooPreamble::kReceiveReady) ++posted_[preamble_.slot];
      if (preamble_.opcode == GlooPreamble::kValues && preamble_.slot == kGlooBroughtSlot)
        ++brought_;
      heard_ = 0;
    }
  }

  const bool right_, stays_;
  TcpRendezvous rendezvous_;
  CollectiveCard card_;
  FileDescriptor connection_;
  GlooPreamble preamble_;
  size_t heard_ = 0;                   // of the preamble and its values
  std::map<uint64_t, size_t> posted_;  // by slot: receives without values so far
  size_t brought_ = 0;
  bool closed_ = false, impatient_ = false;
};

Operation AnyOperation(FuzzedDataProvider* input) {
  // Inline up to 64 KiB of a message; then in parts; the last one in two pieces of a part.
  constexpr size_t kSizes[] = {1, 0, 7, 100, 16384, 16385, 32769, 34000, 70000};
  const size_t n = input->PickValueInArray(kSizes);
  const auto kind = static_cast<OperationHeader::Kind>(input->ConsumeIntegralInRange<uint32_t>(
      OperationHeader::kWeightedMean, OperationHeader::kBarrier));
  const auto op = static_cast<Collective::Op>(input->ConsumeIntegralInRange(0, 3));
  Operation operation;
  switch (kind) {
    case OperationHeader::kWeightedMean: {
      const int weights = input->ConsumeIntegralInRange(0, 3);
      const auto wire = static_cast<Collective::Wire>(input->ConsumeIntegralInRange(0, 1));
      operation.header = WeightedMeanHeader(5, n, weights & 1 ? 0 : 1, wire);
      operation.weight_of_peer = weights & 2 ? 0 : 1;
      break;
    }
    case OperationHeader::kAllGather:
      operation.header = AllGatherHeader(n);
      break;
    case OperationHeader::kBroadcast:
      operation.header =
          BroadcastHeader(n * sizeof(float), input->ConsumeIntegralInRange<uint32_t>(0, 1));
      break;
    case OperationHeader::kBarrier:
      operation.header = BarrierHeader();
      break;
    default:
      operation.header = ReductionHeader(kind, n, op);
  }
  return operation;
}

// The array of an operation has exactly its values, so that the sanitizer notices writes beyond it.
class Array {
 public:
  Array(const Operation& operation, uint32_t self)
      : operation_(operation),
        self_(self),
        n_(operation.bytes() / sizeof(float)),
        values_(new float[n_]) {
    for (size_t i = 0; i < n_; ++i) values_[i] = ValueOf(false, i);
  }

  absl::Status Run(CollectiveEngine* engine) {
    const OperationHeader& header = operation_.header;
    const absl::Span<float> values(values_.get(), n_);
    if (header.kind == OperationHeader::kBarrier) return engine->Barrier(header);
    if (header.kind == OperationHeader::kAllGather) return engine->AllGather(header, values);
    if (header.kind != OperationHeader::kBroadcast) return engine->Reduce(header, values);
    return engine->Broadcast(
        header, absl::MakeSpan(reinterpret_cast<uint8_t*>(values_.get()), operation_.bytes()));
  }
  void CheckWhatIsOnlySent() const {
    const OperationHeader& header = operation_.header;
    ArrayPart part;
    if (header.kind == OperationHeader::kAllGather) part = PartOf(n_, kRanks, self_);
    if (operation_.is_broadcast() && header.root == self_) part = {0, n_};
    for (size_t i = part.begin; i < part.end; ++i) FUZZ_CHECK(values_[i] == ValueOf(false, i));
  }
  void CheckResult() const {
    const OperationHeader& header = operation_.header;
    if (header.kind == OperationHeader::kBarrier) return;
    const ArrayPart own = PartOf(n_, kRanks, self_);
    for (size_t i = 0; i < n_; ++i) {
      const bool in_own = i >= own.begin && i < own.end;
      if (header.kind == OperationHeader::kReduceScatter && !in_own) continue;
      float right = ReducedValue(operation_, i);
      if (operation_.is_broadcast()) right = ValueOf(header.root != self_, i);
      if (header.kind == OperationHeader::kAllGather) right = ValueOf(!in_own, i);
      FUZZ_CHECK(values_[i] == right);
    }
  }
  // Bits, as the peer may have brought NaNs.
  std::string bits() const {
    return std::string(reinterpret_cast<const char*>(values_.get()), n_ * sizeof(float));
  }

 private:
  const Operation operation_;
  const uint32_t self_;
  const size_t n_;
  std::unique_ptr<float[]> values_;
};

bool IsErrorOfAGroup(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsInvalidArgument(status) || absl::IsDataLoss(status);
}

CollectiveOptions Options(bool right) {
  // Ports of 250 addresses in turn, as there may be hundreds of groups a second.
  static uint32_t groups = 0;
  CollectiveOptions options;
  options.bind_address = absl::StrCat("127.0.1.", 1 + groups++ % 250);
  options.timeout = right ? absl::Seconds(20) : absl::Milliseconds(100);
  return options;
}

void MeetAPeer(FuzzedDataProvider* input) {
  const auto self = input->ConsumeIntegralInRange<uint32_t>(0, 1);
  std::vector<Operation> operations(input->ConsumeIntegralInRange<size_t>(1, 3));
  Script script(1 - self);
  for (Operation& operation : operations) {
    operation = AnyOperation(input);
    script.AddOperation(operation);
  }
  const bool stays = input->ConsumeIntegralInRange(0, 15) == 15;
  const bool abandons = input->ConsumeIntegralInRange(0, 7) == 7;
  const bool right = !Change(input, script.pieces());

  const CollectiveOptions options = Options(right);
  auto engine = *MakeGlooEngine(options);
  const std::string card = *engine->Listen(kGeneration, self, kRanks);
  OtherRank other_rank(options, 1 - self, right, stays);
  std::vector<CollectiveCard> cards(kRanks);
  FUZZ_CHECK(cards[self].ParseFromString(card));
  cards[1 - self] = other_rank.card();
  std::thread other([&] { other_rank.Serve(cards, *script.pieces()); });
  const absl::Status joined = engine->Join(
      kGeneration, {cards[0].SerializeAsString(), cards[1].SerializeAsString()}, {0, 1});
  FUZZ_CHECK(joined.ok() || !right);  // a busy machine may be late

  std::vector<Array> arrays;
  arrays.reserve(operations.size());
  absl::Status status = joined;
  std::string bits;
  for (size_t i = 0; i < operations.size() && status.ok(); ++i) {
    arrays.emplace_back(operations[i], self);
    status = arrays.back().Run(engine.get());
    arrays.back().CheckWhatIsOnlySent();
    FUZZ_CHECK(engine->WaitingFor().empty());
    if (right) {
      FUZZ_CHECK(status.ok());
      arrays.back().CheckResult();
    }
    bits = arrays.back().bits();
  }
  FUZZ_CHECK(status.ok() || IsErrorOfAGroup(status));
  if (joined.ok() && !right && (abandons || !status.ok()))
    engine->Abandon(status.ok() ? absl::UnavailableError("enough") : status);
  engine->Leave();
  other.join();
  if (arrays.empty()) return;
  FUZZ_CHECK(arrays.back().bits() == bits);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::MeetAPeer(&input);
  return 0;
}
