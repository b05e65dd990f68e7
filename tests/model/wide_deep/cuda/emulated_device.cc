#include "tests/model/wide_deep/cuda/emulated_device.h"

#include <ucontext.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace sluice::cuda::emulated {
namespace {

constexpr size_t kStack = size_t{128} << 10;

// A stack and the place where it continues. swapcontext makes a system call, so only the first
// switch to a stack uses it. All others use the compiler's own jumps, which only keep the frame and
// stack pointers. The address sanitizer cannot follow such jumps from stack to stack.
struct Context {
  ucontext_t begin;
  void* at[5];
  bool begun = false;
};

#ifdef __SANITIZE_ADDRESS__
void Switch(Context* from, Context* to) { swapcontext(&from->begin, &to->begin); }
#else
// The compiler does not allow the jump in the function of the setjmp.
[[noreturn]] __attribute__((noinline)) void Jump(Context* to) { __builtin_longjmp(to->at, 1); }
__attribute__((noinline)) void Switch(Context* from, Context* to) {
  from->begun = true;
  if (__builtin_setjmp(from->at) != 0) return;
  if (to->begun) Jump(to);
  setcontext(&to->begin);
}
#endif

// Runs threads one after another until one waits at a barrier; that thread keeps the fiber.
struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  dim3 thread;
};

Context scheduler;
std::deque<Fiber> fibers;  // a deque, so that addresses stay valid while it grows
std::vector<Fiber*> idle, waiting;
Fiber* running = nullptr;
unsigned next_thread = 0, threads = 0;
const std::function<void()>* body = nullptr;
std::vector<double> words;  // by thread

void SetThread(unsigned t) { threadIdx = dim3(t % blockDim.x, t / blockDim.x); }

void RunThreads() {
  for (;;) {
    while (next_thread < threads) {
      SetThread(next_thread++);
      (*body)();
    }
    idle.push_back(running);
    running = nullptr;
    Fiber* const self = idle.back();
    Switch(&self->context, &scheduler);
  }
}

void Start(Fiber* fiber) {
  ucontext_t& begin = fiber->context.begin;
  if (getcontext(&begin) != 0) std::abort();
  begin.uc_stack.ss_sp = fiber->stack.get();
  begin.uc_stack.ss_size = kStack;
  begin.uc_link = nullptr;
  makecontext(&begin, RunThreads, 0);
}

Fiber* TakeFiber() {
  if (idle.empty()) {
    fibers.emplace_back();
    Start(&fibers.back());
    return &fibers.back();
  }
  Fiber* const fiber = idle.back();
  idle.pop_back();
  return fiber;
}

void Resume(Fiber* fiber) {
  running = fiber;
  threadIdx = fiber->thread;
  Switch(&scheduler, &fiber->context);
}

void RunBlock() {
  next_thread = 0;
  while (next_thread < threads) Resume(TakeFiber());
  while (!waiting.empty()) {
    std::vector<Fiber*> round;
    round.swap(waiting);
    for (Fiber* fiber : round) Resume(fiber);
  }
}

}  // namespace

void Barrier() {
  Fiber* const self = running;
  self->thread = threadIdx;
  waiting.push_back(self);
  Switch(&self->context, &scheduler);
}

double* WarpWord(uint32_t lane) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  return &words[thread / 32 * 32 + lane];
}

void RunGrid(const dim3& grid, const dim3& block, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block;
  threads = block.x * block.y;
  // A real device refuses these sizes, too.
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.y > 65535) std::abort();
  body = &thread;
  words.assign((threads + 31) / 32 * 32, 0.0);
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      RunBlock();
    }
  }
}

}  // namespace sluice::cuda::emulated
