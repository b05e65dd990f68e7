// slow_disk_pserver: sluice-pserver on a disk where every read of a shard file takes --read_ms.
#include <chrono>
#include <thread>

#include "tests/system/pserver_main.h"

DEFINE_int32(read_ms, 100, "milliseconds of one read");

namespace sluice {
namespace {

class SlowEnv : public Env {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    return real_->ReadFile(path);
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(FLAGS_read_ms));
    return real_->ReadRange(path, offset, n);
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    return real_->FileSize(path);
  }
  absl::Status WriteFile(const std::string& path,
                         absl::Span<const absl::string_view> pieces) override {
    return real_->WriteFile(path, pieces);
  }
  absl::Status RenameFile(const std::string& from, const std::string& to) override {
    return real_->RenameFile(from, to);
  }
  absl::Status MakeDirs(const std::string& path) override { return real_->MakeDirs(path); }
  absl::Status MakeNewDir(const std::string& path) override { return real_->MakeNewDir(path); }
  absl::Status RemoveDir(const std::string& path) override { return real_->RemoveDir(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  absl::Status RemoveFile(const std::string& path) override { return real_->RemoveFile(path); }

 private:
  Env* const real_ = Env::Real();
};

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::SlowEnv env;
  return sluice::RunPserver("a pserver on a slow disk", &env, argc, argv);
}
