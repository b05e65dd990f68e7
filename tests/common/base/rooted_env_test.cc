#include "common/base/rooted_env.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/local_path.h"
#include "tests/common/base/hooked_env.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kRefused = absl::StatusCode::kPermissionDenied;

absl::StatusCode CodeOf(const absl::Status& status) { return status.code(); }
template <typename T>
absl::StatusCode CodeOf(const absl::StatusOr<T>& value) {
  return value.status().code();
}

// Folders data, output and outside, the last with the file `secret`.
class RootedEnvTest : public ::testing::Test {
 protected:
  RootedEnvTest() {
    std::string pattern = ::testing::TempDir() + "/rooted_env_test.XXXXXX";
    dir_ = fs::canonical(::mkdtemp(pattern.data()));
    for (const char* name : {"data", "output", "outside"}) fs::create_directory(At(name));
    Write("data/table", "rows");
    Write("outside/secret", "secret");
    auto env = RootedEnv::Create(Env::Real(), {{At("data")}, {At("output")}});
    EXPECT_TRUE(env.ok()) << env.status();
    env_ = *std::move(env);
  }
  ~RootedEnvTest() override { fs::remove_all(dir_); }

  std::string At(const std::string& name) const { return dir_ + "/" + name; }
  void Write(const std::string& name, absl::string_view text) {
    ASSERT_TRUE(Env::Real()->WriteFile(At(name), {text}).ok());
  }
  // Every call that reads the path is refused.
  void ExpectUnreadable(const std::string& path) {
    SCOPED_TRACE(path);
    EXPECT_EQ(CodeOf(env_->ReadFile(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->ReadRange(path, 0, 1)), kRefused);
    EXPECT_EQ(CodeOf(env_->FileSize(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->List(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->OpenFile(path, O_RDONLY)), kRefused);
    EXPECT_EQ(CodeOf(env_->OpenFile(path, O_PATH)), kRefused);
    EXPECT_FALSE(env_->Exists(path));
  }
  // Every call that changes the path is refused, and it keeps what it has.
  void ExpectUnwritable(const std::string& path) {
    SCOPED_TRACE(path);
    const bool existed = fs::exists(path);
    EXPECT_EQ(CodeOf(env_->WriteFile(path, {"x"})), kRefused);
    EXPECT_EQ(CodeOf(env_->StartFile(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->MakeNewDir(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->MakeDirs(path + "/deep")), kRefused);
    EXPECT_EQ(CodeOf(env_->RemoveFile(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->RemoveDir(path)), kRefused);
    EXPECT_EQ(CodeOf(env_->OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)), kRefused);
    EXPECT_EQ(CodeOf(env_->OpenFile(path, O_RDONLY | O_TRUNC)), kRefused);
    Write("output/mine", "mine");
    EXPECT_EQ(CodeOf(env_->RenameFile(At("output/mine"), path)), kRefused);
    EXPECT_EQ(CodeOf(env_->RenameFile(path, At("output/mine"))), kRefused);
    EXPECT_EQ(fs::exists(path), existed);
    ExpectSecretIsKept();
  }
  void ExpectSecretIsKept() {
    EXPECT_EQ(*Env::Real()->ReadFile(At("outside/secret")), "secret");
    EXPECT_THAT(*Env::Real()->List(At("outside")), ElementsAre("secret"));
  }

  std::string dir_;
  std::unique_ptr<RootedEnv> env_;
};

TEST_F(RootedEnvTest, FilesBelowAnOutputRootAreWrittenAndRead) {
  const std::string path = At("output/job/model/shard");
  ASSERT_TRUE(env_->MakeDirs(At("output/job/model")).ok());
  ASSERT_TRUE(env_->MakeDirs(At("output/job/model")).ok());  // again
  ASSERT_TRUE(env_->WriteFile(path, {"one", "two"}).ok());
  EXPECT_EQ(*env_->ReadFile(path), "onetwo");
  EXPECT_EQ(*env_->ReadRange(path, 2, 2), "et");
  EXPECT_EQ(*env_->FileSize(path), 6u);
  auto file = env_->StartFile(At("output/job/pieces"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("piece").ok());
  EXPECT_FALSE(env_->Exists(At("output/job/pieces")));
  ASSERT_TRUE((*file)->Finish().ok());
  ASSERT_TRUE(env_->RenameFile(At("output/job/pieces"), At("output/job/whole")).ok());
  EXPECT_THAT(*env_->List(At("output/job")), ElementsAre("model", "whole"));
  EXPECT_EQ(CodeOf(env_->MakeNewDir(At("output/job"))), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(env_->RemoveFile(path).ok());
  ASSERT_TRUE(env_->RemoveDir(At("output/job/model")).ok());
  EXPECT_EQ(CodeOf(env_->ReadFile(path)), absl::StatusCode::kNotFound);
}

TEST_F(RootedEnvTest, FilesBelowADataRootAreOnlyRead) {
  EXPECT_EQ(*env_->ReadFile(At("data/table")), "rows");
  EXPECT_THAT(*env_->List(At("data")), ElementsAre("table"));
  ExpectUnwritable(At("data/table"));
  EXPECT_EQ(*env_->ReadFile(At("data/table")), "rows");
}

TEST_F(RootedEnvTest, PathsOutsideOfTheRootsAreRefused) {
  ExpectUnreadable(At("outside/secret"));
  ExpectUnwritable(At("outside/secret"));
  ExpectUnwritable(At("outside/new"));
  ExpectUnreadable(dir_);
  ExpectUnreadable("/");
  ExpectUnreadable("");
}

TEST_F(RootedEnvTest, APipeIsRefusedWithoutWaitingForItsOtherEnd) {
  ASSERT_EQ(mkfifo(At("output/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(env_->ReadFile(At("output/pipe")).status()));
  EXPECT_FALSE(env_->OpenFile(At("output/pipe"), O_WRONLY).ok()) << "nobody reads it";
  const auto reader = env_->OpenFile(At("output/pipe"), O_RDONLY);
  ASSERT_TRUE(reader.ok()) << reader.status();
  close(*reader);
}

TEST_F(RootedEnvTest, ParentFoldersDoNotLeadOut) {
  fs::create_directory(At("output/job"));
  for (const char* way : {"output/../outside/secret", "output/job/../../outside/secret",
                          "output//job/.././../outside/secret"}) {
    ExpectUnreadable(At(way));
    ExpectUnwritable(At(way));
  }
  ExpectUnwritable(At("output/.."));
  // Beneath the root it is a way like any other.
  ASSERT_TRUE(env_->WriteFile(At("output/job/../file"), {"x"}).ok());
  EXPECT_EQ(*env_->ReadFile(At("output/file")), "x");
}

TEST_F(RootedEnvTest, LinksDoNotLeadOut) {
  fs::create_symlink(At("outside"), At("output/absolute"));
  fs::create_symlink("../outside", At("output/relative"));
  fs::create_symlink(At("outside/secret"), At("output/file"));
  ExpectUnreadable(At("output/absolute/secret"));
  ExpectUnwritable(At("output/absolute/secret"));
  ExpectUnreadable(At("output/relative/secret"));
  ExpectUnwritable(At("output/relative/secret"));
  ExpectUnreadable(At("output/file"));
  EXPECT_EQ(CodeOf(env_->OpenFile(At("output/file"), O_WRONLY | O_TRUNC)), kRefused);
  EXPECT_EQ(CodeOf(env_->MakeDirs(At("output/absolute"))), kRefused);
  // Replaces the link, not the file that it leads to.
  ASSERT_TRUE(env_->WriteFile(At("output/file"), {"new"}).ok());
  EXPECT_EQ(*env_->ReadFile(At("output/file")), "new");
  ExpectSecretIsKept();
}

TEST_F(RootedEnvTest, LinksThatStayBeneathTheRootAreFollowed) {
  ASSERT_TRUE(env_->MakeDirs(At("output/first")).ok());
  fs::create_symlink("first", At("output/latest"));
  ASSERT_TRUE(env_->WriteFile(At("output/latest/file"), {"x"}).ok());
  EXPECT_EQ(*env_->ReadFile(At("output/first/file")), "x");
}

TEST_F(RootedEnvTest, ALinkThatIsSwappedInLeadsNowhereElse) {
  fs::create_directory(At("output/real"));
  Write("output/real/secret", "mine");
  fs::create_symlink(At("outside"), At("output/link"));
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    const std::string real = At("output/real"), link = At("output/link");
    // Exchanges the two names in one step, so that `real` always exists.
    while (!stop) ::syscall(SYS_renameat2, AT_FDCWD, real.c_str(), AT_FDCWD, link.c_str(), 2);
  });
  int read = 0, refused = 0, others = 0;
  for (int i = 0; i < 20'000 || ((read == 0 || refused == 0) && i < 500'000); ++i) {
    const auto text = env_->ReadFile(At("output/real/secret"));
    if (text.ok() && *text == "mine") {
      ++read;
    } else if (text.status().code() == kRefused) {
      ++refused;
    } else {
      ++others;
    }
    if (i % 16 == 0) env_->WriteFile(At("output/real/new"), {"x"}).IgnoreError();
  }
  stop = true;
  swapper.join();
  EXPECT_EQ(others, 0);
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
  ExpectSecretIsKept();
}

TEST_F(RootedEnvTest, FilesAreTheSameOnlyWhereBothPathsAreBelowRoots) {
  fs::create_directory(At("output/job"));
  fs::create_symlink(At("output/job"), At("outside/link"));
  EXPECT_TRUE(IsSameFile(env_.get(), At("output/job"), At("output//job/")));
  EXPECT_TRUE(IsSameFile(Env::Real(), At("output/job"), At("outside/link")));
  EXPECT_FALSE(IsSameFile(env_.get(), At("output/job"), At("outside/link")));
  fs::remove(At("outside/link"));  // ExpectSecretIsKept
}

TEST_F(RootedEnvTest, AnotherFolderThatBeginsWithTheRootsNameIsOutside) {
  fs::create_directory(At("output2"));
  fs::create_directory(At("data2"));
  Write("data2/secret", "secret");
  ExpectUnwritable(At("output2/file"));
  ExpectUnreadable(At("data2/secret"));
}

TEST_F(RootedEnvTest, ARootIsKnownByBothItsNames) {
  fs::create_symlink(At("output"), At("name"));
  const auto env = RootedEnv::Create(Env::Real(), {{}, {At("name/")}});
  ASSERT_TRUE(env.ok()) << env.status();
  ASSERT_TRUE((*env)->WriteFile(At("name/a"), {"a"}).ok());
  EXPECT_EQ(*(*env)->ReadFile(At("output/a")), "a");
  // Now the name leads elsewhere, and the root is still the folder that it was.
  fs::remove(At("name"));
  fs::create_symlink(At("outside"), At("name"));
  ASSERT_TRUE((*env)->WriteFile(At("name/b"), {"b"}).ok());
  EXPECT_EQ(*(*env)->ReadFile(At("output/b")), "b");
  ExpectSecretIsKept();
}

TEST_F(RootedEnvTest, RootsMayLieInEachOther) {
  fs::create_directory(At("data/out"));
  const auto env = RootedEnv::Create(Env::Real(), {{At("data")}, {At("data/out")}});
  ASSERT_TRUE(env.ok()) << env.status();
  ASSERT_TRUE((*env)->WriteFile(At("data/out/file"), {"x"}).ok());
  EXPECT_EQ(*(*env)->ReadFile(At("data/out/../table")), "rows");
  EXPECT_EQ(CodeOf((*env)->WriteFile(At("data/out/../new"), {"x"})), kRefused);
}

// Answers for every URL.
class UrlEnv : public HookedEnv {
 public:
  absl::StatusOr<FileInfo> Look(const std::string& path) override {
    return HasScheme(path) ? FileInfo() : HookedEnv::Look(path);
  }
};

TEST_F(RootedEnvTest, UrlsAreOnlyReadBelowARootThatIsOne) {
  UrlEnv base;
  EXPECT_EQ(CodeOf(env_->Look("s3://bucket/a")), kRefused) << "no root is a URL";
  const auto env =
      RootedEnv::Create(&base, {{At("data"), "s3://bucket/data/", "https://h/d"}, {At("output")}});
  ASSERT_TRUE(env.ok()) << env.status();
  for (const char* url :
       {"s3://bucket/data/a", "s3://bucket/data/day=*/a", "s3://bucket/data/%2e./a",
        "https://h/d/a?b=c", "https://h/d/..a;b/a..", "s3://bucket/data/a#b"})
    EXPECT_TRUE((*env)->Look(url).ok()) << url;
  for (const char* url : {"s3://bucket/a",          "s3://bucket/database",
                          "s3://other/data/a",      "http://h/d/a",
                          "https://h/d/../a",       "https://h/d/%2E./a",
                          "https://h/d/..%2fa",     "https://h.evil/d/a",
                          "https://h/d2/a",         "https://h/d/..#x",
                          "https://h/d/..;",        "https://h/d/..;a=b/c",
                          "https://h/d/..",         "https://h/d/a#b",
                          "https://h/d/%2e%2e%3bx", "https://h/d/%252e%252e/x",
                          "s3://bucket/data/../a",  "s3://bucket/data/..",
                          "s3://bucket/data/./a",   "s3://bucket/data/\\.\\./a"}) {
    EXPECT_EQ(CodeOf((*env)->Look(url)), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->NewReader(url)), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->Match(url, 9)), kRefused) << url;
  }
  EXPECT_FALSE((*env)->WriteFile("s3://bucket/data/a", {"x"}).ok()) << "nothing is written there";
  EXPECT_FALSE(RootedEnv::Create(&base, {{"gs://bucket"}, {At("output")}}).ok());
}

// Takes every write.
class StoreEnv : public UrlEnv {
 public:
  absl::Status WriteFile(const std::string& path, absl::Span<const absl::string_view>) override {
    return HasScheme(path) ? absl::OkStatus() : absl::InternalError(path);
  }
  absl::StatusOr<FileIdentity> Publish(const std::string&, absl::string_view,
                                       const std::optional<FileIdentity>&) override {
    return FileIdentity();
  }
};

TEST_F(RootedEnvTest, AnOutputRootMayBeAFolderOfAStore) {
  StoreEnv base;
  EXPECT_FALSE(RootedEnv::Create(&base, {{}, {"https://h/out"}}).ok()) << "only read";
  auto env = RootedEnv::Create(&base, {{"s3://b/data"}, {"s3://b/out/"}});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_TRUE((*env)->WriteFile("s3://b/out/a", {"x"}).ok());
  EXPECT_TRUE((*env)->Publish("s3://b/out/a", "x", std::nullopt).ok());
  EXPECT_TRUE((*env)->Look("s3://b/out/a").ok());
  EXPECT_TRUE((*env)->Look("s3://b/data/a").ok());
  for (const char* url : {"s3://b/data/a", "s3://b/outer/a", "s3://b/out/../a", "s3://c/out/a"}) {
    EXPECT_EQ(CodeOf((*env)->WriteFile(url, {"x"})), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->Publish(url, "x", std::nullopt)), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->RemoveFile(url)), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->StartFile(url)), kRefused) << url;
    EXPECT_EQ(CodeOf((*env)->MakeDirs(url)), kRefused) << url;
  }
  EXPECT_EQ(CodeOf((*env)->WriteFile(At("output/a"), {"x"})), kRefused);
}

TEST_F(RootedEnvTest, UnusableRootsAreRefused) {
  const auto create = [](std::vector<std::string> data, std::vector<std::string> output) {
    return RootedEnv::Create(Env::Real(), {std::move(data), std::move(output)}).status();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(create({}, {At("none")}).code(), kInvalid);
  EXPECT_THAT(std::string(create({}, {At("none")}).message()),
              ::testing::AllOf(HasSubstr("--output_root"), HasSubstr(At("none"))));
  EXPECT_EQ(create({At("none")}, {At("output")}).code(), kInvalid);
  EXPECT_EQ(create({}, {At("outside/secret")}).code(), kInvalid);  // a file
  EXPECT_EQ(create({}, {"output"}).code(), kInvalid);
  EXPECT_EQ(create({At("data")}, {}).code(), kInvalid);
}

TEST_F(RootedEnvTest, ErrorsNameThePathTheRootsAndTheFlag) {
  const auto read = env_->ReadFile(At("outside/secret"));
  for (const std::string& part : {At("outside/secret"), At("data"), At("output"),
                                  std::string("--data_root"), std::string("--output_root")})
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(part));
  const auto write = env_->WriteFile(At("outside/new"), {"x"});
  for (const std::string& part : {At("outside/new"), At("output"), std::string("--output_root")})
    EXPECT_THAT(std::string(write.message()), HasSubstr(part));
  // Errors of the file system name the path as the caller does.
  fs::create_directory(At("output/folder"));
  const auto folder = env_->WriteFile(At("output/folder"), {"x"});
  EXPECT_THAT(std::string(folder.message()), HasSubstr(At("output/folder")));
}

}  // namespace
}  // namespace sluice
