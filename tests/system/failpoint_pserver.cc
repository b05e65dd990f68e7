// failpoint_pserver: sluice-pserver that kills itself before or after a change of files.
#include "tests/system/failpoint.h"
#include "tests/system/pserver_main.h"

int main(int argc, char** argv) {
  sluice::HookedEnv env;
  sluice::SetFailpoint(&env);
  return sluice::RunPserver("a pserver with a failpoint", &env, argc, argv);
}
