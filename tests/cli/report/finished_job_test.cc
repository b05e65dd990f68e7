#include "cli/report/finished_job.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

using google::protobuf::Struct;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

class FinishedJobTest : public testing::Test {
 protected:
  FinishedJobTest() { std::filesystem::create_directories(dir_); }
  ~FinishedJobTest() override { std::filesystem::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(dir_, "/", name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  absl::StatusOr<std::string> Read() { return ReadFinishedJob(Env::Real(), dir_); }
  Struct Parsed() {
    const auto json = Read();
    EXPECT_TRUE(json.ok()) << json.status();
    Struct parsed;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json.value_or(""), &parsed).ok())
        << json.value_or("");
    return parsed;
  }

  const std::string dir_ = absl::StrCat(testing::TempDir(), "finished_job.", getpid());
};

constexpr char kResult[] = R"({"job": "a-1", "status": "done", "epochs_log": []})";

TEST_F(FinishedJobTest, HasResultCurvesAndConfiguration) {
  Write("result.json", R"({"job": "a-1", "status": "done", "eval": {"auc": 0.25, "log_loss": null},
                           "calibration_bins": [{"probability": 0.5}]})");
  Write("curves.jsonl",
        "{\"sluice_curves\": 1, \"job\": \"a-1\", \"ended\": true}\n"
        "{\"name\": \"train/loss\", \"x\": \"step\", \"points\": [[1, 0.5], [2, null]]}\n");
  Write("job.textproto", "# comment\nname: \"a\"\ntrain {\n  epochs: 3\n}\n");
  const Struct job = Parsed();
  const auto& result = job.fields().at("result").struct_value().fields();
  EXPECT_EQ(result.at("eval").struct_value().fields().at("auc").number_value(), 0.25);
  const auto& curve = job.fields().at("curves").list_value().values(0).struct_value().fields();
  EXPECT_EQ(curve.at("name").string_value(), "train/loss");
  EXPECT_EQ(curve.at("points").list_value().values_size(), 2);
  EXPECT_EQ(job.fields().at("config").list_value().values_size(), 2);
  EXPECT_EQ(job.fields().at("lacks").list_value().values_size(), 0);
}

TEST_F(FinishedJobTest, AFolderOfAnEarlierVersionShowsWithoutWhatItLacks) {
  Write("result.json", kResult);
  const Struct job = Parsed();
  EXPECT_EQ(job.fields().at("curves").list_value().values_size(), 0);
  EXPECT_EQ(job.fields().at("lacks").list_value().values_size(), 3);
}

TEST_F(FinishedJobTest, WhatIsNoFinishedJobIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(Read().status()));
  for (const char* text :
       {"{", "[]", "{}", "{\"job\": \"a\"}", "\"status\"", "{\"job\": 1, \"status\": 2}"}) {
    Write("result.json", text);
    EXPECT_TRUE(absl::IsInvalidArgument(Read().status())) << text;
    EXPECT_THAT(std::string(Read().status().message()), HasSubstr("result.json"));
  }
  std::string deep = R"({"job": "a", "status": "done", "x": )";
  Write("result.json", absl::StrCat(deep, std::string(500, '['), std::string(500, ']'), "}"));
  EXPECT_TRUE(absl::IsInvalidArgument(Read().status()));
  Write("result.json", kResult);
  Write("curves.jsonl", "{\"mine\": 1}\n");
  EXPECT_TRUE(absl::IsInvalidArgument(Read().status()));
  Write("curves.jsonl", "x,y\n1,2\n");
  EXPECT_THAT(std::string(Read().status().message()), HasSubstr("curves.jsonl"));
}

TEST_F(FinishedJobTest, TheCurvesAreThoseOfTheRunThatHasTheResult) {
  const auto curves = [](const char* name, bool ended) {
    return absl::StrCat(
        "{\"sluice_curves\": 1, \"job\": \"a\", \"ended\": ", ended ? "true" : "false",
        "}\n{\"name\": \"", name, "\", \"x\": \"step\", \"points\": []}\n");
  };
  Write("result.json", kResult);
  Write("curves.jsonl", curves("done", true));
  Write("rerun-1/curves.jsonl", curves("failed", true));
  Write("rerun-2/curves.jsonl", curves("killed", false));
  EXPECT_THAT(*Read(), AllOf(HasSubstr("\"failed\""), Not(HasSubstr("\"killed\""))));
  std::filesystem::remove(dir_ + "/rerun-1/curves.jsonl");
  EXPECT_THAT(*Read(), HasSubstr("\"curves\":[{\"name\":\"done\""));
}

TEST_F(FinishedJobTest, AJobThatEndedBeforeItBeganHasNoCurvesOfOthers) {
  const auto curves = [](const char* name, const char* instance) {
    return absl::StrCat("{\"sluice_curves\": 1, \"job\": \"a\", \"instance\": \"", instance,
                        "\", \"ended\": true}\n{\"name\": \"", name,
                        "\", \"x\": \"step\", \"points\": []}\n");
  };
  Write("result.json", R"({"job": "a", "status": "cancelled", "instance": "9"})");
  Write("curves.jsonl", curves("done", "7"));
  Write("rerun-1/curves.jsonl", curves("failed", "8"));
  EXPECT_THAT(*Read(), AllOf(HasSubstr("\"curves\":[]"), HasSubstr("ended before it trained")));
  Write("result.json", R"({"job": "a", "status": "done", "instance": "7"})");
  EXPECT_THAT(*Read(), HasSubstr("\"curves\":[{\"name\":\"done\""));
  // An earlier version wrote the curves, and this one the result.
  Write("curves.jsonl", "{\"sluice_curves\": 1, \"job\": \"a\", \"ended\": true}\n");
  EXPECT_THAT(*Read(), HasSubstr("\"curves\":[]"));
}

TEST_F(FinishedJobTest, LongLogsAndConfigurationsAreBounded) {
  std::string epochs, fields;
  for (int i = 1; i <= 100'001; ++i)
    absl::StrAppend(&epochs, i == 1 ? "" : ",", "{\"epoch\":", i, "}");
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&fields, "v: \"", i, "\"\n");
  Write("result.json",
        absl::StrCat(R"({"job": "a", "status": "done", "message": ")", std::string(100'000, 'm'),
                     "\", \"epochs_log\": [", epochs, "]}"));
  Write("job.textproto", fields);
  const Struct job = Parsed();
  const auto& log = job.fields().at("result").struct_value().fields().at("epochs_log").list_value();
  EXPECT_LE(log.values_size(), static_cast<int>(kMostEpochs) + 1);
  EXPECT_GT(log.values_size(), static_cast<int>(kMostEpochs) / 2);
  EXPECT_EQ(log.values(log.values_size() - 1).struct_value().fields().at("epoch").number_value(),
            100'001);
  EXPECT_EQ(job.fields().at("config").list_value().values_size(),
            static_cast<int>(kMostConfigFields));
  EXPECT_EQ(job.fields().at("config_left_out").number_value(), 10'000 - kMostConfigFields);
  EXPECT_LT(Read()->size(), 300'000u);
}

TEST_F(FinishedJobTest, NoTextIsMarkup) {
  Write("result.json", R"({"job": "</script><script>alert(1)</script>", "status": "<!--",
                           "</script>": 1, "data": {"features": [{"name": "<b>"}]}})");
  Write("curves.jsonl",
        "{\"sluice_curves\": 1, \"job\": \"a\", \"ended\": true}\n"
        "{\"name\": \"</script>\", \"x\": \"step\", \"points\": []}\n");
  Write("job.textproto", "name: \"</script>\"\n");
  EXPECT_THAT(*Read(), Not(HasSubstr("<")));
  EXPECT_EQ(Parsed().fields().at("result").struct_value().fields().at("job").string_value(),
            "</script><script>alert(1)</script>");
}

TEST_F(FinishedJobTest, NoSecretOfAnyFileIsShown) {
  Write("result.json", R"({"job": "a", "status": "failed",
    "message": "cannot read https://user:hunter2@host/x?sig=hunter2",
    "warnings": ["s3://b/k?X-Amz-Signature=hunter2", "set password=hunter2 first"],
    "api_token": "hunter2", "deep": [{"x": {"secret_key": "hunter2"}}],
    "recovery": {"events": [{"step": 1, "text": "AKIAIOSFODNN7EXAMPLE hunter"}]}})");
  Write("job.textproto",
        "name: \"a\"\n"
        "data {\n  train_files: \"https://host/a.csv?token=hunter2\"\n"
        "  train_files: \"http://hunter2@host/b.csv\"\n}\n"
        "model {\n  custom {\n    options: \"depth: 3 auth_token: \\\"hunter2\\\"\"\n  }\n}\n"
        "password: \"hunter2\"\n");
  // Files of the folder that are not read at all.
  Write("job.key", "hunter2");
  Write("checkpoints/step-1/MANIFEST", "hunter2");
  const std::string json = *Read();
  EXPECT_THAT(json, AllOf(Not(HasSubstr("hunter2")), Not(HasSubstr("AKIA"))));
  EXPECT_THAT(json, AllOf(HasSubstr("host/a.csv"), HasSubstr("depth: 3"),
                          HasSubstr("***@host/b.csv"), HasSubstr("s3://b/k?***")));
}

TEST(WithoutSecretsTest, RemovesWhatOpensSomething) {
  const std::string hidden = "Pa55";
  for (const std::string& text : std::vector<std::string>{
           "https://u:Pa55@host/path", "https://u:Pa/Pa55@host/path", "ftp://Pa55@host",
           "https://host/f?Pa55", "s3://bucket/key?versionId=Pa55", "PASSWORD=Pa55",
           "my_password : Pa55", "{\"secret\": \"Pa55\"}", "access_key_id='Pa55'",
           "Authorization: Bearer Pa55", "authorization=Basic Pa55, x", "token:Pa55;",
           "--api-key=Pa55", "-----BEGIN EC PRIVATE KEY-----\nPa55\n-----END EC PRIVATE KEY-----\n",
           "-----BEGIN PRIVATE KEY-----\nPa55", "at https://a.b/?x=1&y=Pa55 and token=Pa55"}) {
    EXPECT_THAT(WithoutSecrets(text), AllOf(Not(HasSubstr(hidden)), HasSubstr("***"))) << text;
  }
}

TEST(WithoutSecretsTest, LeavesEverythingElse) {
  for (const std::string& text : std::vector<std::string>{
           "", "s3://bucket/day=2026-11-01/part-?.csv", "https://host:8080/a/b.csv",
           "/data/user@host/x.csv", "tokens per second", "the secret of speed", "name: \"age\"",
           "s3://bucket/a@b.csv", "AKIASHORT", "hash_bucket: 100", "a?b=c"}) {
    EXPECT_EQ(WithoutSecrets(text), text);
  }
}

TEST(FieldsOfTest, NamesFieldsByPath) {
  EXPECT_THAT(
      FieldsOf("# Effective\nname: \"a: {\"\nfeatures {\n  name: \"x\"\n  categorical {\n  }\n}\n"
               "features {\n  name: \"y\"\n}\nhidden: [8, 4]\nseed: 1\nseed: 2\n"),
      ElementsAre(Pair("name", "\"a: {\""), Pair("features.name", "\"x\""),
                  Pair("features[1].name", "\"y\""), Pair("hidden", "[8, 4]"), Pair("seed", "1"),
                  Pair("seed[1]", "2")));
  EXPECT_THAT(FieldsOf("}\n}\nname: 1\n"), Contains(Pair("name", "1")));
}

}  // namespace
}  // namespace sluice::cli
