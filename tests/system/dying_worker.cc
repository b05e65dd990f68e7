// dying_worker: sluice-worker that kills or stops itself, is late, or whose group breaks, at one
// moment of a step.
//
// DIE_AT, EVENT:N, N from 1, says when:
//   mean       before it starts its weighted mean number N
//   reduced    after it has got the result of number N
//   gather     before it exchanges its records number N with the other ranks
//   gathered   after it has got those of all ranks
//   broadcast  before it takes part in broadcast number N
//   send       before it sends its message number N to a pserver
//   hang       it stops, as by SIGSTOP, before it starts its weighted mean number N
//   late       it begins its weighted mean number N 4 s late
//   break      its group breaks in weighted mean number N, and the process lives
//   broken     its group breaks in weighted mean number N and in every later one
// DIE_ONCE: a file that it makes first, but for broken; nothing happens if the file is there
// already.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/system/worker_main.h"

namespace sluice {
namespace {

// The moment at which the process dies or its group breaks.
class Moment {
 public:
  Moment(std::string event, uint64_t number, std::string once)
      : event_(std::move(event)), number_(number), once_(std::move(once)) {}
  // Dies if this is the moment.
  void Reach(const char* event) {
    if (!Comes(event)) return;
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  // Stops or waits if the weighted mean that begins now is to hang or to be late.
  void Delay() {
    if (Comes("hang")) ::kill(::getpid(), SIGSTOP);
    if (Comes("late")) std::this_thread::sleep_for(std::chrono::seconds(4));
  }
  // True when the group breaks in the weighted mean that begins now.
  bool Breaks() {
    if (event_ != "broken") return Comes("break");
    return count_.fetch_add(1) + 1 >= number_;
  }

 private:
  bool Comes(const char* event) {
    return event_ == event && count_.fetch_add(1) + 1 == number_ &&
           ::open(once_.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0666) >= 0;
  }

  const std::string event_;
  const uint64_t number_;
  const std::string once_;
  std::atomic<uint64_t> count_{0};
};

class DyingCollective : public Collective {
 public:
  DyingCollective(std::unique_ptr<Collective> inner, Moment* moment)
      : inner_(std::move(inner)), moment_(moment) {}
  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override {
    broken_ = false;
    return inner_->Listen(generation, self, ranks);
  }
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    uint32_t self) override {
    return inner_->Join(generation, peers, self);
  }
  void Leave() override { inner_->Leave(); }
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight, Wire wire) override {
    moment_->Reach("mean");
    moment_->Delay();
    if (moment_->Breaks()) {
      broken_ = true;
      inner_->Cancel();  // the other ranks see it leave
    }
    return inner_->WeightedMean(step, values, weight, wire);
  }
  absl::Status Wait(Ticket ticket) override {
    const absl::Status status = inner_->Wait(ticket);
    if (broken_) return absl::UnavailableError("the connection to another rank broke");
    if (status.ok()) moment_->Reach("reduced");
    return status;
  }
  absl::Status AllReduce(absl::Span<float> values, Op op) override {
    return inner_->AllReduce(values, op);
  }
  absl::Status ReduceScatter(absl::Span<float> values, Op op) override {
    return inner_->ReduceScatter(values, op);
  }
  absl::Status AllGather(absl::Span<float> values) override {
    moment_->Reach("gather");
    const absl::Status status = inner_->AllGather(values);
    if (status.ok()) moment_->Reach("gathered");
    return status;
  }
  absl::Status Broadcast(absl::Span<uint8_t> bytes, uint32_t root) override {
    moment_->Reach("broadcast");
    return inner_->Broadcast(bytes, root);
  }
  absl::Status Barrier() override { return inner_->Barrier(); }
  void Cancel() override { inner_->Cancel(); }
  std::string WaitingFor() const override { return inner_->WaitingFor(); }
  const char* name() const override { return inner_->name(); }

 private:
  const std::unique_ptr<Collective> inner_;
  Moment* const moment_;
  bool broken_ = false;
};

class DyingStream : public Stream {
 public:
  DyingStream(std::unique_ptr<Stream> inner, Moment* moment)
      : inner_(std::move(inner)), moment_(moment) {}
  void Send(Message message) override {
    moment_->Reach("send");
    inner_->Send(std::move(message));
  }
  void Close() override { inner_->Close(); }

 private:
  const std::unique_ptr<Stream> inner_;
  Moment* const moment_;
};

class DyingTransport : public Transport {
 public:
  DyingTransport(Transport* inner, Moment* moment) : inner_(inner), moment_(moment) {}
  std::unique_ptr<Stream> Connect(const PserverAddress& to, StreamCallbacks callbacks) override {
    return std::make_unique<DyingStream>(inner_->Connect(to, std::move(callbacks)), moment_);
  }
  absl::StatusOr<std::string> Call(const PserverAddress& to, const std::string& method,
                                   const std::string& request, absl::Duration timeout) override {
    return inner_->Call(to, method, request, timeout);
  }

 private:
  Transport* const inner_;
  Moment* const moment_;
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::unique_ptr<sluice::Moment> moment;
  const auto prepare = [&moment](sluice::WorkerServer::Options* options)
      -> absl::StatusOr<std::unique_ptr<sluice::Transport>> {
    const std::pair<std::string, std::string> at = absl::StrSplit(sluice::Variable("DIE_AT"), ':');
    uint64_t number = 0;
    if (!absl::SimpleAtoi(at.second, &number) || sluice::Variable("DIE_ONCE").empty())
      return absl::InvalidArgumentError("DIE_AT and DIE_ONCE must say when to die");
    moment = std::make_unique<sluice::Moment>(at.first, number, sluice::Variable("DIE_ONCE"));
    options->threads = 1;
    options->wrap_collective = [&moment](std::unique_ptr<sluice::Collective> inner) {
      return std::make_unique<sluice::DyingCollective>(std::move(inner), moment.get());
    };
    return std::make_unique<sluice::DyingTransport>(options->transport, moment.get());
  };
  return sluice::RunWorker("a worker that dies", sluice::Env::Real(), argc, argv, prepare);
}
