#include "cli/hosts/shipment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/child_process.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;

TEST(ShipmentTest, TakesLibrariesButTheLoadersAndCudas) {
  EXPECT_THAT(LibrariesToShip("\tlinux-vdso.so.1 (0x0)\n"
                              "\tlibgloo.so.0 => /lib/x86_64-linux-gnu/libgloo.so.0 (0x1)\n"
                              "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n"
                              "\tlibcrypto.so.3 => /lib/libcrypto.so.3 (0x2)\n"
                              "\tlibcublas.so.13 => /usr/local/cuda/lib/libcublas.so.13 (0x3)\n"
                              "\tlibstdc++.so.6 => /lib/libstdc++.so.6 (0x4)\n"
                              "\tlibgone.so => not found\n"
                              "\t/lib64/ld-linux-x86-64.so.2 (0x5)\n"),
              ElementsAre("/lib/x86_64-linux-gnu/libgloo.so.0", "/lib/libcrypto.so.3",
                          "/lib/libstdc++.so.6"));
}

TEST(ShipmentTest, LinksGoByTheirOwnNamesWhereverTheyLead) {
  const fs::path dir = fs::path(testing::TempDir()) / absl::StrCat("shipment.", getpid());
  for (const char* folder : {"bin", "python/sluice", "code/part", "shared"})
    fs::create_directories(dir / folder);
  // Any program with libraries stands for ours.
  const auto tar = FindExecutable("tar");
  ASSERT_TRUE(tar.ok()) << tar.status();
  for (const char* name : {"sluice", "sluice-scheduler", "sluice-pserver", "sluice-worker"})
    fs::create_symlink(*tar, dir / "bin" / name);
  for (const char* file : {"python/sluice/__init__.py", "code/part/own.py", "shared/common.py"})
    std::ofstream(dir / file) << "x = 1\n";
  fs::create_symlink("../shared/common.py", dir / "code/train.py");
  fs::create_symlink("../../shared/common.py", dir / "code/part/common.py");

  const auto shipment = PackShipment((dir / "bin").string(), (dir / "code/train.py").string());
  ASSERT_TRUE(shipment.ok()) << shipment.status();
  const std::string archive = (dir / "archive.tar.gz").string();
  std::ofstream(archive, std::ios::binary) << shipment->archive;
  FILE* const pipe = popen(absl::StrCat("tar -tzf ", archive).c_str(), "re");
  ASSERT_NE(pipe, nullptr);
  std::string text(64 << 10, '\0');
  text.resize(fread(text.data(), 1, text.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  const std::vector<std::string> names = absl::StrSplit(text, '\n');
  for (const char* name : {"bin/sluice", "python/sluice/__init__.py", "script/train.py",
                           "script/part/own.py", "script/part/common.py"})
    EXPECT_THAT(names, Contains(name));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace sluice::cli
