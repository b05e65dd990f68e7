// Sends a pserver any messages on a worker's stream: headers of any fields with payloads that fit
// or not, and raw bytes.
//
// Checks: every reply decodes; a stream is refused with an error and closed, never left without an
// answer.
#include <memory>

#include "server/requests/request_parts.h"
#include "server/service/exchange_handler.h"
#include "server/tables/job_tables.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/saved_model/memory_env.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/test_worker.h"

namespace sluice {
namespace {

constexpr int kMostMessages = 30;

class DecodingStream : public Stream {
 public:
  void Send(Message message) override {
    const auto reply = DecodeReply(std::move(message));
    FUZZ_CHECK(reply.ok());
    FUZZ_CHECK(!closed_);
    code_ = reply->header.code();
    ++replies_;
  }
  void Close() override {
    FUZZ_CHECK(code_ != 0);
    closed_ = true;
  }
  bool closed() const { return closed_; }
  int replies() const { return replies_; }

 private:
  int code_ = 0, replies_ = 0;
  bool closed_ = false;
};

// The number of bytes that the parts of the message need.
size_t PayloadBytes(const TableLayouts& layouts, const FrameHeader& header) {
  const auto bytes_of = [&](const Parts& parts, bool push) {
    size_t bytes = 0;
    for (int i = 0; i < std::min(parts.table_size(), parts.rows_size()); ++i) {
      if (parts.table(i) >= layouts.size()) continue;
      const TableLayout& layout = *layouts[parts.table(i)];
      const uint32_t rows = parts.rows(i) % 64;
      bytes += push ? PushPartBytes(layout, rows) : layout.sparse() ? 8 * rows : 0;
    }
    return bytes;
  };
  return bytes_of(header.push().parts(), true) + bytes_of(header.pull().parts(), false);
}

FrameHeader HelloOf(const JobSpec& spec, FuzzedDataProvider* input) {
  FrameHeader header;
  Hello* const hello = header.mutable_hello();
  hello->set_protocol(kDataProtocol);
  hello->set_job_id("job-1");
  hello->set_rank(input->ConsumeIntegralInRange(0, 1));
  hello->set_incarnation(1);
  hello->set_instance(spec.instance());
  header.set_last(true);
  return header;
}

// The next message: what the input says, in a frame or raw.
Message NextMessage(const TableLayouts& layouts, FuzzedDataProvider* input) {
  const bool raw = input->ConsumeIntegralInRange(0, 7) == 0;
  const bool fits = input->ConsumeBool();
  const std::string bytes = input->ConsumeRandomLengthString(400);
  if (raw) return {Slice::FromString(bytes)};
  FrameHeader header;
  if (!header.ParseFromString(bytes)) return {Slice::FromString(bytes)};
  if (input->ConsumeBool()) header.set_generation(1);
  std::string payload = input->ConsumeRandomLengthString(200);
  if (fits) payload.resize(PayloadBytes(layouts, header));
  return EncodeFrame(header, {Slice::FromString(payload)});
}

void Run(FuzzedDataProvider* input) {
  const int mode = input->ConsumeIntegralInRange(0, 2);
  JobSpec spec = MakeSpec(/*workers=*/2, /*a_sync=*/mode != 0, /*k_steps=*/mode == 2 ? 5 : 0);
  if (input->ConsumeBool()) {
    spec.mutable_tables(0)->set_wire_type(TableConfig::BF16);
    spec.mutable_tables(1)->set_wire_type(TableConfig::BF16);
  }
  FakeClock clock;
  MemoryEnv env;
  static CutWriter* const writer = new CutWriter;
  JobResources resources = TestResources(&clock);
  resources.env = &env;
  resources.cut_writer = writer;
  const auto job = JobTables::Open(spec, kSelf, resources);
  FUZZ_CHECK(job.ok());
  const TableLayouts layouts = LayoutsOf(spec);
  DataPlaneCounters counters;
  std::shared_ptr<DecodingStream> streams[2];
  std::unique_ptr<ExchangeHandler> handlers[2];
  for (int i = 0; i < kMostMessages && input->remaining_bytes() > 0; ++i) {
    const int n = input->ConsumeIntegralInRange(0, 1);
    if (streams[n] == nullptr || streams[n]->closed()) {
      handlers[n].reset();
      streams[n] = std::make_shared<DecodingStream>();
      handlers[n] = std::make_unique<ExchangeHandler>(
          streams[n], [&](const std::string& id) { return id == "job-1" ? *job : nullptr; },
          &counters);
      if (input->ConsumeIntegralInRange(0, 7) != 0) {
        handlers[n]->OnMessage(EncodeFrame(HelloOf(spec, input), {}));
        FUZZ_CHECK(streams[n]->replies() == 1);
      }
    }
    handlers[n]->OnMessage(NextMessage(layouts, input));
  }
  (*job)->Report();
  (*job)->Close();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  sluice::Run(&input);
  return 0;
}
