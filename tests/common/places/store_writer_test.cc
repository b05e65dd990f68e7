#include "common/places/store_writer.h"

#include "absl/strings/match.h"
#include "common/places/places_env.h"
#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_store.h"
#include "tests/common/saved_model/memory_env.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Through the Env, with the retries that it makes.
class StoreWriterTest : public ::testing::Test {
 protected:
  StoreWriterTest() {
    transport_.answer = [this](const HttpRequest& request) { return store_(request); };
    PlacesEnv::Options options;
    options.base = &base_;
    options.clock = &clock_;
    options.transport = &transport_;
    options.variable = [](const std::string& name) -> std::optional<std::string> {
      if (name == "AWS_SKIP_SIGNATURE") return "true";
      if (name == "AWS_ENDPOINT_URL") return "http://h:1";
      return std::nullopt;
    };
    options.part_bytes = 4;
    env_ = std::make_unique<PlacesEnv>(std::move(options));
  }
  // Loses the reply to the first request of that method.
  void LoseFirst(const std::string& method, const std::string& part_of_url = "") {
    store_.loses_reply = [method, part_of_url, lost = false](const HttpRequest& request) mutable {
      if (lost || request.method != method || !absl::StrContains(request.url, part_of_url))
        return false;
      return lost = true;
    };
  }

  FakeStore store_;
  MemoryEnv base_;
  FakeClock clock_;
  FakeTransport transport_;
  std::unique_ptr<PlacesEnv> env_;
};

TEST_F(StoreWriterTest, WritesReadsListsAndRemoves) {
  ASSERT_TRUE(env_->MakeDirs("s3://b/d").ok());
  ASSERT_TRUE(env_->WriteFile("s3://b/d/a", {"on", "e"}).ok());
  ASSERT_TRUE(env_->WriteFile("s3://b/d/empty", {}).ok());
  ASSERT_TRUE(env_->WriteFile("s3://b/d/e/f/g", {"x"}).ok());
  EXPECT_THAT(*env_->List("s3://b/d"), ElementsAre("a", "e", "empty"));
  EXPECT_EQ(env_->List("s3://b/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(*env_->ReadFile("s3://b/d/a"), "one");
  EXPECT_EQ(*env_->ReadFile("s3://b/d/empty"), "");
  EXPECT_EQ(*env_->FileSize("s3://b/d/a"), 3u);
  ASSERT_TRUE(env_->WriteFile("s3://b/d/a", {"two!"}).ok());
  EXPECT_EQ(*env_->ReadRange("s3://b/d/a", 1, 9), "wo!");
  ASSERT_TRUE(env_->RemoveFile("s3://b/d/a").ok());
  EXPECT_FALSE(env_->Exists("s3://b/d/a"));
  EXPECT_EQ(env_->ReadFile("s3://b/d/a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(env_->RemoveFile("s3://b/d/a").ok());
  EXPECT_THAT(std::string(env_->RenameFile("s3://b/d/a", "s3://b/d/b").message()),
              HasSubstr("rename"));
}

TEST_F(StoreWriterTest, AWriteByAnotherIsSeenAtOnce) {
  ASSERT_TRUE(env_->WriteFile("s3://b/a", {"mine"}).ok());
  ASSERT_EQ(*env_->ReadFile("s3://b/a"), "mine");
  store_.Put("b/a", "theirs");
  EXPECT_EQ(*env_->ReadFile("s3://b/a"), "theirs");
}

TEST_F(StoreWriterTest, ALargeFileIsUploadedInPartsAndAppearsWhenItIsWhole) {
  auto file = env_->StartFile("s3://b/a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("0123456789").ok());
  EXPECT_FALSE(env_->Exists("s3://b/a"));
  EXPECT_EQ(store_.open_uploads(), 1u);
  LoseFirst("POST", "uploadId=");  // the end of it
  ASSERT_TRUE((*file)->Append("ab").ok());
  const absl::Status finished = (*file)->Finish();
  EXPECT_TRUE(finished.ok()) << finished;
  EXPECT_EQ(*env_->ReadFile("s3://b/a"), "0123456789ab");
  EXPECT_EQ(store_.open_uploads(), 0u);
}

TEST_F(StoreWriterTest, AnOlderObjectIsNotTakenForAnUploadThatTheStoreHasLost) {
  // Of the same size, and in parts too.
  ASSERT_TRUE(env_->WriteFile("s3://b/a", {"old bytes of"}).ok());
  const auto there = store_.objects();
  transport_.answer = [this](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.method == "POST" && absl::StrContains(request.url, "uploadId="))
      return Answer(404, "<Error><Code>NoSuchUpload</Code></Error>");
    return store_(request);
  };
  EXPECT_FALSE(env_->WriteFile("s3://b/a", {"0123456789ab"}).ok());
  EXPECT_EQ(store_.objects(), there);
}

TEST_F(StoreWriterTest, AnEndOfAnUploadThatWasNotHeardIsFoundByAStoreThatIsBusy) {
  // The store refuses to tell of the object as often as one call asks. The lost end has made it.
  int refused = 0, most = 8;
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.method == "HEAD" && refused < most) {
      ++refused;
      return Answer(503);
    }
    absl::StatusOr<HttpResponse> answer = store_(request);
    if (request.method == "POST" && absl::StrContains(request.url, "uploadId=") && answer.ok() &&
        answer->status == 200)
      return absl::UnavailableError("the answer was lost");
    return answer;
  };
  EXPECT_TRUE(env_->WriteFile("s3://b/a", {"0123456789ab"}).ok());
  EXPECT_EQ(refused, most);
  EXPECT_EQ(store_.objects().at("b/a"), "0123456789ab");
  // One that stays busy is told as that, not as an upload that is gone.
  refused = 0;
  most = 1 << 30;
  const absl::Status away = env_->WriteFile("s3://b/c", {"0123456789ab"});
  EXPECT_FALSE(away.ok());
  EXPECT_THAT(std::string(away.message()), HasSubstr("busy"));
}

TEST_F(StoreWriterTest, AnUploadThatIsNotFinishedIsGivenUp) {
  {
    auto file = env_->StartFile("s3://b/a");
    ASSERT_TRUE((*file)->Append("0123456789").ok());
    EXPECT_EQ(store_.open_uploads(), 1u);
  }
  EXPECT_EQ(store_.open_uploads(), 0u);
  EXPECT_THAT(store_.objects(), IsEmpty());
}

TEST_F(StoreWriterTest, UploadsOfKilledProcessesAreGivenUpByTheirNames) {
  for (const char* name : {"b/d/a", "b/d/e/a", "b/d/keep", "b/da", "b/d/e/b"})
    store_.BeginUpload(name);
  std::vector<std::string> seen;
  const auto leftover = [&](const std::string& name) {
    seen.push_back(name);
    return name != "keep";
  };
  LoseFirst("DELETE");
  const absl::Status given_up = env_->GiveUpFiles("s3://b/d", leftover);
  EXPECT_TRUE(given_up.ok()) << given_up;
  EXPECT_THAT(seen, ElementsAre("a", "e/a", "keep", "e/b"));
  EXPECT_EQ(store_.open_uploads(), 2u);  // "keep" and the one of another folder
  EXPECT_TRUE(env_->GiveUpFiles("/here", leftover).ok());
}

TEST_F(StoreWriterTest, AStoreThatDoesNotListUploadsSaysWhy) {
  const auto all = [](const std::string&) { return true; };
  transport_.answer = [](const HttpRequest&) { return Answer(501); };
  EXPECT_TRUE(absl::IsUnimplemented(env_->GiveUpFiles("s3://b/d", all)));
  transport_.answer = [](const HttpRequest&) { return Answer(403); };
  EXPECT_THAT(std::string(env_->GiveUpFiles("s3://b/d", all).message()),
              HasSubstr("s3:ListBucketMultipartUploads"));
  transport_.answer = [](const HttpRequest&) {
    return Answer(200, "<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>");
  };
  EXPECT_FALSE(env_->GiveUpFiles("s3://b/d", all).ok());
}

TEST_F(StoreWriterTest, AnEndOfAnUploadThatFailsAfterItWasCarriedOutIsSuccess) {
  bool failed = false;
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    const auto answer = store_(request);
    if (failed || request.method != "POST" || !absl::StrContains(request.url, "uploadId="))
      return answer;
    failed = true;
    return Answer(503);
  };
  EXPECT_TRUE(env_->WriteFile("s3://b/a", {"0123456789"}).ok());
  EXPECT_TRUE(failed);
  EXPECT_EQ(store_.objects().at("b/a"), "0123456789");
}

TEST_F(StoreWriterTest, APartWithAnotherETagMakesNoFile) {
  int parts = 0;
  transport_.answer = [&](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    auto answer = store_(request);
    if (absl::StrContains(request.url, "partNumber=") && ++parts == 2)
      answer->headers["etag"] = "\"another\"";
    return answer;
  };
  const absl::Status written = env_->WriteFile("s3://b/a", {"0123456789"});
  EXPECT_THAT(std::string(written.message()), HasSubstr("InvalidPart"));
  EXPECT_THAT(store_.objects(), IsEmpty());
  EXPECT_EQ(store_.open_uploads(), 0u);
}

TEST_F(StoreWriterTest, OfTwoWhoPublishOneSucceeds) {
  const auto first = env_->Publish("s3://b/a", "one", std::nullopt);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(env_->Publish("s3://b/a", "two", std::nullopt).status().code(),
            absl::StatusCode::kAlreadyExists);
  const auto second = env_->Publish("s3://b/a", "two", *first);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(env_->Publish("s3://b/a", "three", *first).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(env_->Publish("s3://b/a", "four", env_->Look("s3://b/a")->identity).ok());
  ASSERT_TRUE(env_->RemoveFile("s3://b/a").ok());
  EXPECT_EQ(env_->Publish("s3://b/a", "five", *second).status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(store_.objects(), IsEmpty());
}

TEST_F(StoreWriterTest, ALostReplyToAPublicationIsSuccess) {
  LoseFirst("PUT");
  const auto first = env_->Publish("s3://b/a", "one", std::nullopt);
  ASSERT_TRUE(first.ok()) << first.status();
  LoseFirst("PUT");
  const auto second = env_->Publish("s3://b/a", "two", *first);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*env_->ReadFile("s3://b/a"), "two");
  // And not when somebody else has written meanwhile.
  store_.loses_reply = [this, lost = false](const HttpRequest& request) mutable {
    if (lost || request.method != "PUT") return false;
    return lost = true;
  };
  transport_.answer = [this](const HttpRequest& request) {
    auto answer = store_(request);
    if (!answer.ok()) store_.Put("b/a", "theirs");
    return answer;
  };
  EXPECT_EQ(env_->Publish("s3://b/a", "three", *second).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_THAT(store_.objects(), ElementsAre(Pair("b/a", "theirs")));
}

TEST_F(StoreWriterTest, AStoreWithoutConditionsIsNamed) {
  transport_.answer = [](const HttpRequest&) { return Answer(501); };
  EXPECT_EQ(env_->Publish("s3://b/a", "one", std::nullopt).status().code(),
            absl::StatusCode::kUnimplemented);
  transport_.answer = [](const HttpRequest&) {
    return Answer(403, "<Error><Code>AccessDenied</Code></Error>");
  };
  const absl::Status refused = env_->WriteFile("s3://b/a", {"x"});
  EXPECT_THAT(std::string(refused.message()), HasSubstr("s3:PutObject"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("s3://b/a"));
}

TEST_F(StoreWriterTest, AnErrorAfterTheStatusOfAnUploadIsOne) {
  transport_.answer = [this](const HttpRequest& request) -> absl::StatusOr<HttpResponse> {
    if (request.method == "POST" && absl::StrContains(request.url, "uploadId="))
      return Answer(200, "<Error><Code>InternalError</Code></Error>");
    return store_(request);
  };
  EXPECT_FALSE(env_->WriteFile("s3://b/a", {"0123456789"}).ok());
  EXPECT_EQ(store_.open_uploads(), 0u);
}

}  // namespace
}  // namespace sluice
