#include "common/places/places_env.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_transport.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlacesEnvTest : public ::testing::Test {
 protected:
  PlacesEnvTest() {
    transport_.answer = [this](const HttpRequest& request) { return file_(request); };
    PlacesEnv::Options options;
    options.base = &base_;
    options.clock = &clock_;
    options.transport = &transport_;
    options.variable = [](const std::string& name) -> std::optional<std::string> {
      if (name == "AWS_SKIP_SIGNATURE") return "true";
      return std::nullopt;
    };
    env_ = std::make_unique<PlacesEnv>(std::move(options));
  }

  ServedFile file_{"some text"};
  MemoryEnv base_;
  FakeClock clock_;
  FakeTransport transport_;
  std::unique_ptr<PlacesEnv> env_;
};

TEST_F(PlacesEnvTest, ThePartBeforeTheColonChoosesThePlace) {
  ASSERT_TRUE(env_->WriteFile("/a", {"here"}).ok());
  EXPECT_EQ(*env_->ReadFile("/a"), "here");
  for (const char* url : {"s3://b/k", "https://h/k", "http://h/k"}) {
    EXPECT_EQ(*env_->ReadFile(url), "some text") << url;
    EXPECT_EQ(*env_->FileSize(url), 9u);
    EXPECT_EQ(*env_->ReadRange(url, 5, 100), "text");
    EXPECT_THAT(env_->Match(url, 10)->paths, ElementsAre(url));
    EXPECT_FALSE(env_->PlaceOf(url).rename);
  }
  EXPECT_EQ(env_->PlaceOf("/a").name, "local");
  EXPECT_THAT(std::string(env_->Look("gs://b/k").status().message()), HasSubstr("gs://"));
}

// Commands take UNAVAILABLE for a scheduler that does not answer, and workers for a lost member.
TEST_F(PlacesEnvTest, APlaceThatIsAwayIsNoSchedulerThatIs) {
  transport_.answer = [](const HttpRequest&) { return absl::UnavailableError("no answer"); };
  for (const char* url : {"s3://b/*", "s3://b/k", "https://h/k"}) {
    const absl::Status away = env_->Match(url, 10).status();
    EXPECT_TRUE(absl::IsInternal(away)) << url << ": " << away;
    EXPECT_THAT(std::string(away.message()), HasSubstr("no answer"));
  }
}

TEST_F(PlacesEnvTest, NothingIsWrittenToWebServersAndWhatGrowsIsLocal) {
  const std::string url = "https://h/k";
  EXPECT_FALSE(env_->PlaceOf(url).write);
  EXPECT_TRUE(env_->PlaceOf("s3://b/k").write);
  EXPECT_FALSE(env_->Publish(url, "x", std::nullopt).ok());
  EXPECT_FALSE(env_->AppendToFile("s3://b/k", "x").ok());
  EXPECT_FALSE(env_->MakeNewDir("s3://b/k").ok());
  EXPECT_FALSE(env_->RenameFile("/a", "s3://b/k").ok());
  EXPECT_FALSE(env_->OpenFile("s3://b/k", 0, 0).ok());
  EXPECT_FALSE(env_->WriteFile(url, {"x"}).ok());
  EXPECT_FALSE(env_->StartFile(url).ok());
  EXPECT_FALSE(env_->AppendToFile(url, "x").ok());
  EXPECT_FALSE(env_->MakeDirs(url).ok());
  EXPECT_FALSE(env_->MakeNewDir(url).ok());
  EXPECT_FALSE(env_->RenameFile("/a", url).ok());
  EXPECT_FALSE(env_->RemoveFile(url).ok());
  EXPECT_FALSE(env_->OpenFile(url, 0, 0).ok());
  EXPECT_TRUE(transport_.requests().empty());
}

TEST_F(PlacesEnvTest, AVersionIsAskedForAgainAfterAWhileAndAfterAFailedRead) {
  const std::string url = "s3://b/k";
  const FileIdentity first = env_->Look(url)->identity;
  file_.tag = "\"2\"";
  clock_.Advance(PlacesEnv::kVersionHolds - absl::Seconds(1));
  EXPECT_TRUE(env_->Look(url)->identity == first);
  EXPECT_EQ(env_->ReadRange(url, 0, 9).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(env_->Look(url)->identity == first);
  file_.tag = "\"3\"";
  clock_.Advance(PlacesEnv::kVersionHolds);
  EXPECT_EQ(env_->Look(url)->identity.tag, "\"3\"");
}

TEST_F(PlacesEnvTest, AChangeIsSeenWhileTheOldVersionIsInMemory) {
  const std::string url = "s3://b/k";
  ASSERT_EQ(*env_->ReadRange(url, 0, 99), "some text");
  file_ = {"other text", "\"2\""};
  // The second epoch comes from memory, and says nothing about what is there now.
  clock_.Advance(PlacesEnv::kVersionHolds - absl::Seconds(1));
  ASSERT_EQ(*env_->ReadRange(url, 0, 99), "some text");
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(env_->Look(url)->identity.tag, "\"2\"");
  EXPECT_EQ(*env_->ReadFile(url), "other text");
}

TEST_F(PlacesEnvTest, AStopEndsAllRequests) {
  env_->Stop();
  const size_t before = transport_.requests().size();
  for (const char* url : {"s3://b/k", "https://h/k"})
    EXPECT_EQ(env_->ReadFile(url).status().code(), absl::StatusCode::kInternal) << url;
  EXPECT_EQ(transport_.requests().size(), before);
}

TEST_F(PlacesEnvTest, ReadsOfManyThreadsEndAtAStop) {
  std::vector<std::thread> threads;
  for (const std::string place : {"s3://b/", "https://h/"}) {
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([this, place] {
        for (int n = 0; env_->ReadFile(place + std::to_string(n)).ok();) ++n;
      });
    }
  }
  while (transport_.requests().size() < 40) std::this_thread::yield();
  env_->Stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(env_->ReadFile("s3://b/k").status().code(), absl::StatusCode::kInternal);
}

TEST_F(PlacesEnvTest, WebServersMayBeRefused) {
  PlacesEnv::Options options;
  options.base = &base_;
  options.clock = &clock_;
  options.transport = &transport_;
  options.variable = [](const std::string&) { return std::optional<std::string>("true"); };
  options.no_web = "not from here";
  PlacesEnv env(std::move(options));
  EXPECT_EQ(env.Look("https://h/k").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(transport_.requests().empty());
}

TEST_F(PlacesEnvTest, UseIsCountedByPlace) {
  ASSERT_TRUE(env_->ReadFile("s3://b/k").ok());
  EXPECT_EQ(env_->use().at("s3")->requests, 2u);
  EXPECT_EQ(env_->use().at("s3")->bytes, 9u);
  EXPECT_EQ(env_->use().at("http")->requests, 0u);
}

}  // namespace
}  // namespace sluice
