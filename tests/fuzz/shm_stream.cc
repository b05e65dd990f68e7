// Drives one end of a stream through shared memory beside a peer that writes anything into the
// memory and the socket at any moment, also between the messages of one turn. Other inputs are the
// two ends of a ring with memory that changes between their calls, and the handshake.
//
// Checks: while the peer is honest, exactly its messages arrive, in order. Whatever it does, no
// message is longer than allowed, the stream ends exactly once and delivers nothing after that, and
// it ends within some turns once the peer is gone. What is kept of a message that lies in the ring
// stays as it is when the ring changes, and values that were found finite are. A ring never offers
// more than it holds.
#include "common/shm_transport/shm_stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_thread.h"
#include "common/wire/frame.h"
#include "proto/pserver.pb.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr size_t kMostMessageBytes = 3000;  // of the peer; up to half of a ring they are lent
constexpr size_t kMostSentBytes = 20000;
constexpr size_t kMostTurns = 4096;

UnixListener* Listener(std::string* name) {
  static const std::string* const own = new std::string(absl::StrCat("sluice-fuzz-", getpid()));
  static UnixListener* const listener = new UnixListener(*UnixListener::Listen(*own));
  *name = *own;
  while (listener->Accept().ok()) continue;  // whoever is left of the input before
  return listener;
}

// Streams here are run by hand: the thread only takes their posts.
const std::shared_ptr<ShmThread>& IdleThread() {
  static const auto* const thread =
      new std::shared_ptr<ShmThread>(std::make_shared<ShmThread>(absl::Hours(1)));
  return *thread;
}

std::atomic<uint64_t>* Word64(RingControl* control, bool written) {
  return written ? &control->written : &control->read;
}
std::atomic<uint32_t>* Word32(RingControl* control, bool writer) {
  return writer ? &control->writer_waits : &control->reader_sleeps;
}

// Changes one of the words that both ends share. Most new positions are near the old ones.
void ChangeWord(FuzzedDataProvider* input, RingControl* control) {
  const bool first = input->ConsumeBool();
  const int how = input->ConsumeIntegralInRange<int>(0, 2);
  if (how == 0) return Word32(control, first)->store(input->ConsumeIntegral<uint32_t>());
  std::atomic<uint64_t>* const word = Word64(control, first);
  if (how == 1) return word->store(input->ConsumeIntegral<uint64_t>());
  word->store(word->load() + static_cast<uint64_t>(input->ConsumeIntegral<int16_t>()));
}

// The stream under test, and the peer at the other mapping of its memory.
class Pair {
 public:
  Pair(FuzzedDataProvider* input, bool server)
      : input_(input), server_(server), ring_bytes_(kMinRingBytes << input->ConsumeBool()) {
    std::string name;
    UnixListener* const listener = Listener(&name);
    ShmLink own;
    peer_.socket = *UnixConnection::Connect(name);
    own.socket = *listener->Accept();
    peer_.memory = *SealedMemory::Create("fuzz", ShmLink::MemoryBytes(ring_bytes_));
    own.memory = *SealedMemory::Map(FileDescriptor(dup(peer_.memory.fd())), peer_.memory.size());
    own.ring_bytes = peer_.ring_bytes = ring_bytes_;
    writer_ = std::make_unique<RingWriter>(peer_.control(server), peer_.data(server), ring_bytes_);
    reader_ =
        std::make_unique<RingReader>(peer_.control(!server), peer_.data(!server), ring_bytes_);
    auto host = std::make_shared<ShmStream::Host>();
    host->max_message_bytes = kMostMessageBytes;
    host->max_queued_bytes = 4 * kMostSentBytes;
    host->keepalive_time = host->keepalive_timeout = absl::Seconds(10);
    host->first_message_timeout = absl::Seconds(30);
    stream_ =
        std::make_shared<ShmStream>(server ? ShmStream::Side::kServer : ShmStream::Side::kClient,
                                    std::move(own), std::move(host), IdleThread());
    ShmStream::Events events;
    events.on_message = [this](Message message) { OnMessage(std::move(message)); };
    if (input->ConsumeBool())
      events.on_lent = [this](const LentMessage& message) { OnLent(message); };
    events.on_closed = [this](const absl::Status&) { ++closed_; };
    events.on_finished = [this] { ++finished_; };
    stream_->SetEvents(std::move(events));
  }

  void Run() {
    while (input_->remaining_bytes() > 0) Step();
    if (honest_ && !done_) DrainHonestPeer();
    const bool whole = honest_ && !ended_here_;
    peer_.socket = UnixConnection();
    for (size_t turn = 0; !done_; ++turn) {
      FUZZ_CHECK(turn < kMostTurns);
      stream_->ReadSocket(now_);
      Turn();
    }
    FUZZ_CHECK(closed_ == 1 && finished_ == 1);
    FUZZ_CHECK(!whole || received_ == sent_);
  }

 private:
  void OnMessage(Message message) {
    FUZZ_CHECK(closed_ == 0);
    FUZZ_CHECK(MessageSize(message) <= kMostMessageBytes);
    std::string bytes = Flat(message);
    if (honest_) FUZZ_CHECK(received_ < sent_ && bytes == text(received_));
    ++received_;
    // The memory changes while the stream is in the middle of a turn.
    for (; meanwhile_ > 0 && input_->remaining_bytes() > 0; --meanwhile_) Disturb();
    if (answers_) stream_->Send({Slice::FromString(std::move(bytes))});
  }

  // The message lies in the ring, which changes while it is read.
  void OnLent(const LentMessage& message) {
    FUZZ_CHECK(message.size() <= ring_bytes_ / 2);
    PayloadReader reader(message);
    reader.Skip(input_->ConsumeIntegralInRange<size_t>(0, message.size()));
    const size_t n = input_->ConsumeIntegralInRange<size_t>(0, reader.remaining());
    const Message kept = reader.Keep(n);
    const std::string before = Flat(kept);
    // Header and values are decoded from what they were when they were copied.
    if (meanwhile_ > 0 && input_->ConsumeBool()) Disturb();
    absl::StatusOr<DecodedFrame> frame = DecodeLentFrame(message);
    if (frame.ok()) {
      std::vector<float> values(frame->payload.remaining() / sizeof(float));
      if (ReadValues(&frame->payload, sizeof(float), values.size(), values.data()))
        FUZZ_CHECK(AllFinite(values.data(), values.size()));
    }
    OnMessage(message.Copy());
    FUZZ_CHECK(Flat(kept) == before);
  }

  static std::string Flat(const Message& message) {
    std::string bytes;
    for (const Slice& slice : message)
      bytes.append(reinterpret_cast<const char*>(slice.data()), slice.size());
    return bytes;
  }

  // The bytes of the peer's n-th message.
  std::string text(size_t n) const {
    return std::string(sizes_[n], static_cast<char>('a' + n % 26));
  }

  void Turn() {
    if (done_ || stream_->Run(now_) != ShmStream::Outcome::kDone) return;
    stream_->Finish();
    done_ = true;
  }

  void DrainHonestPeer() {
    stream_->WakeUp();
    for (size_t turn = 0; turn < kMostTurns && received_ < sent_ && !done_; ++turn) Turn();
  }

  // Acts as a hostile peer, which can write anywhere in the shared memory.
  void Disturb() {
    honest_ = false;
    const int what = input_->ConsumeIntegralInRange<int>(0, 3);
    if (what <= 1) return ChangeWord(input_, peer_.control(what == 0));
    const size_t at = input_->ConsumeIntegralInRange<size_t>(0, peer_.memory.size() - 1);
    const std::string bytes = input_->ConsumeRandomLengthString(64);
    std::memcpy(peer_.memory.data() + at, bytes.data(),
                std::min(bytes.size(), peer_.memory.size() - at));
  }

  bool Write(const std::string& bytes) {
    const absl::StatusOr<size_t> room = writer_->Room();
    if (!room.ok() || *room < bytes.size()) return false;
    writer_->Write(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (writer_->Publish()) Packet("w");
    return true;
  }
  void WriteHead(uint32_t kind, uint32_t zero, uint64_t bytes, const std::string& rest) {
    FrameHead head;
    head.kind = kind, head.zero = zero, head.bytes = bytes;
    Write(std::string(reinterpret_cast<const char*>(&head), sizeof head) + rest);
  }
  void WriteMessage() {
    sizes_.push_back(input_->ConsumeIntegralInRange<size_t>(0, kMostMessageBytes));
    FrameHead head;
    head.kind = FrameHead::kMessage;
    head.bytes = sizes_.back();
    if (Write(std::string(reinterpret_cast<const char*>(&head), sizeof head) + text(sent_))) {
      ++sent_;
    } else {
      sizes_.pop_back();
    }
  }
  void Packet(const std::string& bytes) {
    if (peer_.socket) {
      (void)send(peer_.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  // The peer reads what it was sent, as far as positions are possible.
  void ReadAnswers() {
    const absl::StatusOr<size_t> available = reader_->Available();
    if (!available.ok()) return;
    std::vector<uint8_t> bytes(*available);
    reader_->Read(bytes.data(), bytes.size());
    if (reader_->Publish()) Packet("w");
  }

  void Step() {
    switch (input_->ConsumeIntegralInRange<int>(0, 15)) {
      case 0:
      case 1:
        return WriteMessage();
      case 2: {
        honest_ = false;
        const uint32_t kind = input_->ConsumeIntegralInRange<uint32_t>(0, 3);
        const uint32_t zero = input_->ConsumeBool() ? 0 : input_->ConsumeIntegral<uint32_t>();
        const uint64_t bytes = input_->ConsumeBool() ? input_->ConsumeIntegral<uint16_t>()
                                                     : input_->ConsumeIntegral<uint64_t>();
        // The whole of what it announces, as far as the ring has room for it.
        const std::string rest = input_->ConsumeBool()
                                     ? std::string(std::min<uint64_t>(bytes, ring_bytes_), 'r')
                                     : input_->ConsumeRandomLengthString(100);
        return WriteHead(kind, zero, bytes, rest);
      }
      case 3:
        return Disturb();
      case 4: {
        const std::string packet = input_->ConsumeRandomLengthString(40);
        honest_ = honest_ && (packet == "w" || packet == "o" || packet == "p");
        return Packet(packet);
      }
      case 5:
        meanwhile_ = input_->ConsumeIntegralInRange<int>(0, 3);
        return;
      case 6:
        answers_ = ended_here_ = true;  // perhaps: too much may be queued
        return;
      case 7:
        return ReadAnswers();
      default:
        return done_ ? (void)input_->ConsumeBool() : StepOfStream();
    }
  }

  // Makes one of the calls that the stream's thread and its users make.
  void StepOfStream() {
    switch (input_->ConsumeIntegralInRange<int>(0, 7)) {
      case 0:
      case 1:
      case 2:
        return Turn();
      case 3:
        if (stream_->Sleep()) stream_->WakeUp();
        return;
      case 4:
        stream_->ReadSocket(now_);
        return;
      case 5:
        now_ += std::chrono::milliseconds(input_->ConsumeIntegral<uint16_t>());
        stream_->CheckPeer(now_);
        ended_here_ = true;  // perhaps: the peer does not answer pings
        return;
      case 6: {
        const size_t bytes = input_->ConsumeIntegralInRange<size_t>(0, kMostSentBytes);
        stream_->Send({Slice::FromString(std::string(bytes, 's'))});
        ended_here_ = true;  // perhaps: too much may be queued
        return;
      }
      default:
        ended_here_ = true;
        if (input_->ConsumeBool()) return stream_->Close();
        stream_->Abort(absl::CancelledError("by the fuzzer"));
    }
  }

  FuzzedDataProvider* const input_;
  const bool server_;
  const size_t ring_bytes_;
  ShmLink peer_;
  std::unique_ptr<RingWriter> writer_;  // of the peer
  std::unique_ptr<RingReader> reader_;
  std::shared_ptr<ShmStream> stream_;
  ShmStream::Time now_ = std::chrono::steady_clock::now();
  bool honest_ = true, ended_here_ = false, answers_ = false, done_ = false;
  int meanwhile_ = 0;  // disturbances during the next message
  std::vector<size_t> sizes_;
  size_t sent_ = 0, received_ = 0;
  int closed_ = 0, finished_ = 0;
};

// One end of a ring in memory of exactly its size, so that a sanitizer sees each byte outside.
void RunRing(FuzzedDataProvider* input) {
  const size_t capacity = size_t{1} << input->ConsumeIntegralInRange<int>(0, 12);
  const auto control = std::make_unique<RingControl>();
  control->written = control->read = 0;
  control->writer_waits = control->reader_sleeps = 0;
  const std::unique_ptr<uint8_t[]> data(new uint8_t[capacity]());
  RingWriter writer(control.get(), data.get(), capacity);
  RingReader reader(control.get(), data.get(), capacity);
  std::vector<uint8_t> bytes(capacity);
  while (input->remaining_bytes() > 0) {
    const int what = input->ConsumeIntegralInRange<int>(0, 5);
    if (what <= 1) {
      ChangeWord(input, control.get());
    } else if (what == 2) {
      (void)reader.Publish();
      (void)writer.Publish();
    } else {
      const absl::StatusOr<size_t> most = what == 3 ? reader.Available() : writer.Room();
      if (!most.ok()) {
        FUZZ_CHECK(absl::IsDataLoss(most.status()));
        continue;
      }
      FUZZ_CHECK(*most <= capacity);
      const size_t n = input->ConsumeIntegralInRange<size_t>(0, *most);
      if (input->ConsumeBool()) ChangeWord(input, control.get());
      if (what == 3 && input->ConsumeBool()) {
        uint8_t* to = bytes.data();
        for (const RingReader::Piece& piece : reader.Peek(n)) {
          CopyOnce(to, piece.data, piece.size);
          to += piece.size;
        }
        FUZZ_CHECK(to == bytes.data() + n);
        reader.Skip(n);
      } else {
        what == 3 ? reader.Read(bytes.data(), n) : writer.Write(bytes.data(), n);
      }
    }
  }
}

// A descriptor as a peer may send it.
FileDescriptor AnyDescriptor(FuzzedDataProvider* input) {
  const size_t right = ShmLink::MemoryBytes(kMinRingBytes);
  const size_t size = input->ConsumeBool() ? right : input->ConsumeIntegralInRange(1, 1 << 16);
  const int kind = input->ConsumeIntegralInRange<int>(0, 4);
  if (kind == 0) return FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (kind >= 3) return FileDescriptor(dup(SealedMemory::Create("fuzz", size)->fd()));
  FileDescriptor fd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FUZZ_CHECK(ftruncate(fd.get(), static_cast<off_t>(size)) == 0);
  if (kind == 2) FUZZ_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return fd;
}

void RunHello(FuzzedDataProvider* input) {
  ShmHello hello;
  if (input->ConsumeBool()) hello.magic = input->ConsumeIntegral<uint32_t>();
  if (input->ConsumeBool()) hello.protocol = input->ConsumeIntegral<uint32_t>();
  hello.ring_bytes = input->ConsumeBool() ? kMinRingBytes : input->ConsumeIntegral<uint64_t>();
  UnixConnection::Packet packet;
  packet.bytes.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
  packet.bytes.resize(input->ConsumeIntegralInRange<size_t>(0, sizeof hello));
  const std::string rest = input->ConsumeRandomLengthString(40);
  packet.bytes += rest;
  const size_t descriptors = input->ConsumeIntegralInRange<size_t>(0, 2);
  for (size_t i = 0; i < descriptors; ++i) packet.descriptors.push_back(AnyDescriptor(input));
  std::string token;
  const absl::StatusOr<ShmLink> link = ReadHello(std::move(packet), kMinRingBytes, &token);
  if (!link.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(link.status()));
    return;
  }
  FUZZ_CHECK(link->memory.size() == ShmLink::MemoryBytes(kMinRingBytes));
  // All of it can be read.
  FUZZ_CHECK(std::memchr(link->memory.data(), 1, link->memory.size()) == nullptr);
}

// A pserver that answers whatever it likes.
class AnyPserver : public Transport {
 public:
  explicit AnyPserver(std::string reply) : reply_(std::move(reply)) {}
  std::unique_ptr<Stream> Connect(const PserverAddress&, StreamCallbacks) override {
    return nullptr;
  }
  absl::StatusOr<std::string> Call(const PserverAddress&, const std::string&, const std::string&,
                                   absl::Duration) override {
    return reply_;
  }

 private:
  const std::string reply_;
};

void RunAnswers(FuzzedDataProvider* input) {
  OpenSharedMemoryReply reply;
  std::string name;
  UnixListener* const listener = Listener(&name);
  reply.set_socket(input->ConsumeBool() ? name : std::string(200, 'n'));
  reply.set_token(input->ConsumeRandomLengthString(40));
  reply.set_ring_bytes(input->ConsumeBool() ? kMinRingBytes : input->ConsumeIntegral<uint64_t>());
  std::string bytes = reply.SerializeAsString();
  if (input->ConsumeBool()) bytes += input->ConsumeRandomLengthString(20);
  const bool closes = input->ConsumeBool();
  const std::string answer = input->ConsumeRemainingBytesAsString().substr(0, 2000);
  AnyPserver pserver(bytes);
  std::atomic<bool> over{false};
  std::thread peer([&] {
    while (!over) {
      absl::StatusOr<UnixConnection> socket = listener->Accept();
      if (!socket.ok()) {
        sched_yield();
        continue;
      }
      if (!closes && !answer.empty()) socket->Send(answer).IgnoreError();
    }
  });
  const absl::StatusOr<ShmLink> link = OpenShmLink(&pserver, "pserver", "boot", absl::Seconds(2));
  over = true;
  peer.join();
  FUZZ_CHECK(!link.ok() || (answer == "k" && !closes));
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange<int>(0, 7)) {
    case 0:
      RunRing(&input);
      break;
    case 1:
      RunHello(&input);
      break;
    case 2:
      RunAnswers(&input);
      break;
    default: {
      const bool server = input.ConsumeBool();
      Pair(&input, server).Run();
    }
  }
  return 0;
}
