// A worker as a pserver sees it: sends whole requests as bytes through an ExchangeHandler, and
// decodes the replies.
//
// Table 0 is dense "w" [4] with initial value 1; table 1 is sparse "e", columns "a" (dim 1) and "b"
// (dim 2) with initial value 0.25. All run SGD with learning rate 0.5.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/table/table_layout.h"
#include "common/transport/transport.h"
#include "common/wire/frame.h"
#include "proto/scheduler.pb.h"
#include "server/service/exchange_handler.h"

namespace sluice {

inline constexpr char kSelf[] = "127.0.0.1:7000";
inline constexpr float kInitialDense = 1.0f, kInitialSparse = 0.25f;

using Rows = std::map<uint64_t, std::vector<float>>;

// The route puts everything at kSelf, with generation 1.
JobSpec MakeSpec(uint32_t workers, bool a_sync, int k_steps, uint32_t num_shards = 4);
TableLayouts LayoutsOf(const JobSpec& spec);
// Real files, and unlimited memory.
JobResources TestResources(Clock* clock);

struct Answer {
  bool done = false;
  int code = 0;
  std::string message;
  uint64_t generation = 0, others = 0, checkpoint = 0;
  size_t messages = 0, largest_message = 0;
  std::vector<PartError> errors;
  std::vector<float> dense;   // table 0
  std::vector<float> sparse;  // table 1: rows in the order of the reply's parts
  std::vector<std::pair<uint32_t, uint32_t>> sparse_parts;  // (shard, rows)
};

// Thread safety: Send and Wait are safe from any thread. The fields are for tests with one thread.
class FakeStream : public Stream {
 public:
  void Send(Message message) override;
  void Close() override { closed = true; }
  // Waits until the answer to a request is complete, and returns it.
  const Answer& Wait(uint64_t id);
  bool Has(uint64_t id);  // the answer is complete
  bool closed = false;
  std::map<uint64_t, Answer> answers;  // by request id

 private:
  Mutex mutex_;
  CondVar done_;
};

class TestWorker {
 public:
  TestWorker(const JobSpec& spec, std::shared_ptr<JobTables> job, uint32_t rank,
             uint64_t incarnation = 1);

  struct PushArgs {
    uint64_t sequence = 1;
    double weight = 1;
    std::vector<float> dense;  // none: an empty part
    Rows rows;
    bool delta = false;
    uint64_t pulled_others = 0;
    uint64_t generation = 1;
    bool in_chunks = false;  // one message per part
    // Fused with the push:
    uint64_t commit = 0;
    uint64_t checkpoint = 0;  // with the commit
    bool pull_dense = false;
    uint64_t task_id = 0, task_end = 0;
  };
  // Each returns the request id; Get(id) is its answer so far.
  uint64_t Push(const PushArgs& args);
  // `examples`: of the commit's totals.
  uint64_t Commit(uint64_t sequence, bool pull_dense = true, uint64_t checkpoint = 0,
                  uint64_t examples = 0);
  uint64_t PullDense(uint64_t applied_sequence = 0, bool evaluation = false, uint64_t for_push = 0);
  uint64_t EndEpoch(uint32_t epoch);
  const Answer& Get(uint64_t id) { return stream_->answers[id]; }

  // Pull and return the values at once.
  std::vector<float> Dense();
  Rows Sparse(const std::vector<uint64_t>& keys);

  // Later messages are lent to the handler, as through shared memory: in two slices, of memory that
  // changes and goes after the call.
  void LendMessages() { lends_ = true; }
  // Applies to all later requests except pushes.
  void set_generation(uint64_t generation) { generation_ = generation; }
  // Returns a whole push request as one message.
  Message EncodePush(const PushArgs& args);
  void Disconnect() { handler_->OnClosed(); }
  const Answer& hello() { return stream_->answers[1]; }
  FakeStream* stream() { return stream_.get(); }
  ExchangeHandler* handler() { return handler_.get(); }

 private:
  struct Body {
    Parts parts;
    std::vector<std::string> arrays;  // one per part
  };
  Body PushBody(const PushArgs& args) const;
  // Keys grouped by shard.
  std::map<uint32_t, std::vector<uint64_t>> ByShard(const std::vector<uint64_t>& keys) const;
  void Send(const FrameHeader& header, const std::string& payload);
  void Deliver(Message message);

  const TableLayouts layouts_;
  std::shared_ptr<FakeStream> stream_;
  DataPlaneCounters counters_;
  std::unique_ptr<ExchangeHandler> handler_;
  uint64_t next_id_ = 1, generation_ = 1;
  bool lends_ = false;
};

}  // namespace sluice
