#include "common/arrow/arrow_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ArrowLibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/arrow_library_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Makes the file, with its folders, and gives the folder of the program in `folder`.
  std::string With(const std::string& file, const std::string& folder) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::filesystem::create_directories(root_ / folder);
    std::ofstream(root_ / file) << "not a library";
    return root_ / folder;
  }
  static std::string Refusal(const std::string& folder, const std::string& named = "") {
    const auto opened = OpenArrowLibrary(folder, named);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(opened.status().message());
  }

  std::filesystem::path root_;
};

TEST_F(ArrowLibraryTest, TheRefusalFitsTheInstallation) {
  EXPECT_THAT(Refusal(With("tree/CMakeCache.txt", "tree/bin")), HasSubstr("./dev arrow"));
  EXPECT_THAT(Refusal(With("tree/CMakeCache.txt", "tree/tests/bin")), HasSubstr("./dev arrow"));
  // The package of a tree is not an installed one.
  With("tree/python/sluice/py.typed", "tree/python/sluice");
  EXPECT_THAT(Refusal(root_ / "tree/python/sluice"), Not(HasSubstr("pip")));
  EXPECT_THAT(Refusal(With("site-packages/sluice/py.typed", "site-packages/sluice/bin")),
              HasSubstr("pip install sluice-ps-arrow"));
  EXPECT_THAT(Refusal(root_ / "site-packages/sluice"), HasSubstr("pip install sluice-ps-arrow"));
  EXPECT_THAT(Refusal(With("usr/lib/other", "usr/bin")), HasSubstr("folder lib"));
}

TEST_F(ArrowLibraryTest, ItIsFoundInEachInstallation) {
  for (const auto& [file, folder] : {
           std::pair("a/bin/sluice-arrow.so", "a/bin"),
           std::pair("b/lib/sluice-arrow.so", "b/bin"),
           std::pair("p/lib/sluice/sluice-arrow.so", "p/bin"),
           std::pair("c/bin/sluice-arrow.so", "c/tests/bin"),
           std::pair("d/bin/sluice-arrow.so", "d/python/sluice"),
           std::pair("e/sluice_arrow/sluice-arrow.so", "e/sluice"),
           std::pair("f/sluice_arrow/sluice-arrow.so", "f/sluice/bin"),
       }) {
    // Found, and then refused, for it is no library.
    EXPECT_THAT(Refusal(With(file, folder)), HasSubstr("does not work")) << file;
  }
}

TEST_F(ArrowLibraryTest, TheVariableNamesIt) {
  const std::string folder = With("bin/sluice-arrow.so", "bin");
  EXPECT_THAT(Refusal(folder, "/no/such/file.so"), HasSubstr("/no/such/file.so"));
  // A library, but another one.
  EXPECT_THAT(Refusal(folder, "libz.so.1"), HasSubstr("another library"));
}

}  // namespace
}  // namespace sluice
