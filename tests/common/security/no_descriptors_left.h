// Takes all file descriptors of a test's process.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {

// While it lives, this process can open no further descriptor.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit now = before_;
    now.rlim_cur = 256;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    for (int fd; (fd = dup(STDERR_FILENO)) >= 0;) taken_.push_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  // From now on there is one.
  void GiveBackOne() {
    close(taken_.back());
    taken_.pop_back();
  }
  ~NoDescriptorsLeft() {
    for (const int fd : taken_) close(fd);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0);
  }

 private:
  rlimit before_ = {};
  std::vector<int> taken_;
};

}  // namespace sluice
