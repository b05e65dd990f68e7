// Runs one fuzzer on files and on the files of folders, without libFuzzer: the regression test of
// its corpus in builds of any compiler. An input that needs more than 5 s of processor time fails.
//
// All fuzzers are in this program. CMake renames the function of each, LLVMFuzzerTestOneInput, to
// Replay_NAME, and lists the names in fuzzers.inc.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

#define FUZZER(name) extern "C" int Replay_##name(const uint8_t* data, size_t size);
#include "fuzzers.inc"
#undef FUZZER

namespace {

namespace fs = std::filesystem;

constexpr double kMostSeconds = 5;

// Processor time of this process so far, which does not depend on the load of the machine.
double ProcessorSeconds() {
  rusage used = {};
  FUZZ_CHECK(getrusage(RUSAGE_SELF, &used) == 0);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

using Fuzzer = int (*)(const uint8_t* data, size_t size);

Fuzzer FuzzerNamed(const std::string& wanted) {
#define FUZZER(name) \
  if (wanted == #name) return Replay_##name;
#include "fuzzers.inc"
#undef FUZZER
  return nullptr;
}

std::vector<std::string> FilesOf(int argc, char** argv) {
  std::vector<std::string> files;
  for (int i = 2; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      files.push_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const Fuzzer fuzzer = argc > 1 ? FuzzerNamed(argv[1]) : nullptr;
  const std::vector<std::string> files = FilesOf(argc, argv);
  if (fuzzer == nullptr || files.empty()) {
    std::fprintf(stderr, "usage: %s FUZZER FILE|FOLDER...; no such fuzzer, or no files\n", argv[0]);
    return 2;
  }
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    FUZZ_CHECK(!in.bad());
    // Before the input runs, so that the last line names the input of a crash.
    std::printf("%s: %zu bytes\n", file.c_str(), bytes.size());
    std::fflush(stdout);
    const double begun = ProcessorSeconds();
    fuzzer(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    FUZZ_CHECK(ProcessorSeconds() - begun < kMostSeconds * SLUICE_TIME_SCALE);
  }
  std::printf("replayed %zu inputs\n", files.size());
  return 0;
}
