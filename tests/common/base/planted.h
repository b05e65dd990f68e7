// What somebody who may write to a folder could put under a name that Sluice is about to use there.
//
// Thread safety: one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace sluice {

class Planted {
 public:
  // `victim`: the path of a file that nobody may change. Its folder exists.
  explicit Planted(std::string victim) : victim_(std::move(victim)) {
    std::ofstream(victim_) << kText;
  }
  void HardLink(const std::string& path) {
    EXPECT_EQ(::link(victim_.c_str(), path.c_str()), 0) << path;
  }
  void Link(const std::string& path) { std::filesystem::create_symlink(victim_, path); }
  void Pipe(const std::string& path) { EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0) << path; }

  bool VictimIsUnchanged() const {
    std::ifstream in(victim_);
    return std::string(std::istreambuf_iterator<char>(in), {}) == kText;
  }

 private:
  static constexpr char kText[] = "of somebody else";
  const std::string victim_;
};

}  // namespace sluice
