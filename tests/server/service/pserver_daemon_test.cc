#include "server/service/pserver_daemon.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/transport/grpc_convert.h"
#include "common/transport/grpc_transport.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Takes every pserver as a member, and has no orders.
class IdleScheduler : public Scheduler::Service {
 public:
  IdleScheduler() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~IdleScheduler() override { server_->Shutdown(GrpcDeadline(absl::ZeroDuration())); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  grpc::Status Register(grpc::ServerContext*, const RegisterRequest*,
                        RegisterReply* reply) override {
    reply->set_member_id(1);
    reply->set_secret("secret");
    reply->set_lease_ms(20'000);
    reply->set_heartbeat_ms(20);
    return grpc::Status::OK;
  }
  grpc::Status Poll(grpc::ServerContext*, const PollRequest*, PollReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest*, LeaveReply*) override {
    return grpc::Status::OK;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class PserverDaemonTest : public testing::Test {
 protected:
  PserverDaemonTest() : dir_(absl::StrCat(testing::TempDir(), "pserver_daemon_test-", getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~PserverDaemonTest() override {
    daemon_.reset();
    std::filesystem::remove_all(dir_);
  }

  void Start(const std::string& scheduler) {
    PserverDaemon::Options options;
    options.identity.role = ROLE_PSERVER;
    options.identity.bind = options.identity.admin_bind = "127.0.0.1:0";
    options.identity.scheduler = scheduler;
    options.identity.log_dir = dir_;
    options.identity.cluster.mutable_limits()->set_wait_s(120);
    options.clock = Clock::Real();
    options.env = Env::Real();
    options.available_memory = [this]() -> uint64_t {
      looks_.Change([this] { ++number_of_looks_; });
      return available_;
    };
    options.log = [](const std::string&) {};
    options.on_end = [](const absl::Status&) {};
    auto daemon = PserverDaemon::Start(std::move(options));
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }
  // The address of the data port, as the daemon has written it.
  std::string Address() const {
    const std::string text = *Env::Real()->ReadFile(dir_ + "/endpoints.log");
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() > 2 && words[0] == "pserver") return words[2];
    }
    ADD_FAILURE() << "no pserver in " << text;
    return "";
  }
  // Waits for reports that began after this call.
  bool AwaitReports() {
    const int before = looks();
    // The first one may have looked before the memory changed, and set the bound later.
    return looks_.Await([&] { return number_of_looks_ >= before + 3; });
  }
  int looks() {
    int number = 0;
    looks_.Change([&] { number = number_of_looks_; });
    return number;
  }

  const std::string dir_;
  std::atomic<uint64_t> available_{1024 * kMiB};
  Watched looks_;
  int number_of_looks_ = 0;  // at the memory; guarded by looks_
  std::unique_ptr<PserverDaemon> daemon_;
};

TEST_F(PserverDaemonTest, MessagesMayTakeHalfOfTheMemoryThatIsLeftAtEachReport) {
  const IdleScheduler scheduler;
  Start(scheduler.address());
  EXPECT_EQ(daemon_->MaxReceivedBytesForTest(), 512 * kMiB);
  for (const auto& [available, bound] : {std::make_pair(256 * kMiB, 128 * kMiB),
                                         {0, 64 * kMiB},  // one whole message, whatever there is
                                         {8192 * kMiB, 512 * kMiB}}) {  // no more than at the start
    available_ = available;
    ASSERT_TRUE(AwaitReports()) << available;
    EXPECT_EQ(daemon_->MaxReceivedBytesForTest(), bound) << available;
  }
}

TEST_F(PserverDaemonTest, AnswersOnStreamsTakeTheirMemoryFromWhatIsLeft) {
  Start("127.0.0.1:1");  // nobody is there, so no report looks at the memory
  const int before = looks();
  GrpcTransport transport;
  RecordingClient client(&transport, Address());
  client.Send("no frame, which is refused with an answer");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_GT(looks(), before);
}

}  // namespace
}  // namespace sluice
