// failpoint_worker: sluice-worker that kills itself before or after a change of files of
// checkpoints and models.
#include "tests/system/failpoint.h"
#include "tests/system/worker_main.h"

int main(int argc, char** argv) {
  sluice::HookedEnv env;
  sluice::SetFailpoint(&env);
  return sluice::RunWorker("a worker with a failpoint", &env, argc, argv);
}
