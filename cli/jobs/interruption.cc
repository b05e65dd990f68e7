#include "cli/jobs/interruption.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/jobs/watch_job.h"
#include "common/daemon/stop_signal.h"

namespace sluice::cli {

Interruption::Interruption(absl::Duration save_grace, bool live)
    : save_grace_(save_grace), live_(live), thread_([this] { Watch(); }) {}

Interruption::~Interruption() {
  over_ = true;
  thread_.join();
}

void Interruption::SetCheckpoint(std::string folder) {
  MutexLock lock(&mutex_);
  checkpoint_ = std::move(folder);
}

int Interruption::End(int job_code) {
  StopSignal::Stop(job_code);
  return code_.get_future().get();
}

void Interruption::Watch() {
  const int code = StopSignal::Wait();
  if (StopSignal::Received() != 0)
    StopSignal::AllowMore(static_cast<int>(absl::ToInt64Seconds(save_grace_)));
  came_ = true;
  code_.set_value(code);
  if (StopSignal::WaitForSecond([this] { return over_.load(); })) EndAtOnce();
}

void Interruption::EndAtOnce() {
  if (live_) [[maybe_unused]]
    const ssize_t written = write(STDOUT_FILENO, "\n", 1);
  std::string checkpoint;
  {
    MutexLock lock(&mutex_);
    checkpoint = checkpoint_;
  }
  PrintNote(checkpoint.empty()
                ? "ended at once; the job has no checkpoint"
                : absl::StrCat("ended at once; the newest checkpoint is ", checkpoint));
  std::fflush(stderr);
  raise(StopSignal::Received());
  // A second hang-up stays blocked.
  std::_Exit(128 + StopSignal::Received());
}

}  // namespace sluice::cli
