// A job with small tables, models of it, and files of arrays for them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/config/job_config.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/table_files/npy.h"
#include "model/table_files/table_export.h"
#include "model/table_files/table_import.h"
#include "model/table_files/zip_reader.h"
#include "model/table_files/zip_writer.h"

namespace sluice {

// Three sparse tables: embedding (wide 1, embedding 3; HASHED), ids (the same; RAW), and one whose
// feature has a vocabulary and hash_buckets.
inline constexpr char kTableFilesJob[] = R"(
  name: "job"
  data { format: CSV train_files: "t.csv" csv { header: true } label { column: "y" } }
  features { name: "age" numeric {} }
  features { name: "city" categorical {} }
  features { name: "id" categorical {} key: RAW embedding: "ids" }
  features { name: "shop" categorical { hash_buckets: 5 } table: "shops" }
  features { name: "kind" categorical { vocabulary: "a" vocabulary: "b" } table: "kinds" }
  model { wide_deep { hidden_units: 4 embedding_dim: 3 } }
  optimizers { wide { ftrl {} } embedding { adam {} } dense { adagrad {} } }
)";

// An array of an .npz.
struct TestArray {
  std::string name, descr;
  std::vector<uint64_t> shape;
  std::string bytes;
};

template <typename Number>
TestArray ArrayOf(const std::string& name, const std::string& descr, std::vector<uint64_t> shape,
                  const std::vector<Number>& values) {
  return {
      name, descr, std::move(shape),
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number))};
}

class TableFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "table_files_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    JobConfig job;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kTableFilesJob, &job));
    auto effective = EffectiveJobConfig(job, dir_, BuiltInSpecs());
    ASSERT_TRUE(effective.ok()) << effective.status();
    job_ = *effective;
    options_.job = &job_;
    options_.table = "embedding";
    options_.output = Path("model");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return absl::StrCat(dir_, "/", name); }

  std::string WriteText(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(env_->WriteFile(Path(name), {text}).ok());
    return Path(name);
  }

  std::string WriteNpzFile(const std::string& name, const std::vector<TestArray>& arrays) const {
    ZipWriter zip(*env_->StartFile(Path(name)));
    for (const TestArray& array : arrays) {
      EXPECT_TRUE(zip.Begin(array.name + ".npy").ok());
      EXPECT_TRUE(zip.Append(EncodeNpyHeader(array.descr, array.shape) + array.bytes).ok());
      EXPECT_TRUE(zip.End().ok());
    }
    EXPECT_TRUE(zip.Finish().ok());
    return Path(name);
  }

  // Rows with the keys 1 to n of table `embedding` or `ids`; all values are key + column / 10.
  std::vector<TestArray> Rows(uint64_t n) const {
    std::vector<uint64_t> keys;
    std::vector<float> wide, embedding;
    for (uint64_t key = 1; key <= n; ++key) {
      keys.push_back(key);
      wide.push_back(static_cast<float>(key));
      for (int i = 0; i < 3; ++i)
        embedding.push_back(static_cast<float>(key) + 0.1f * static_cast<float>(i));
    }
    return {ArrayOf("key", "<u8", {n}, keys), ArrayOf("wide", "<f4", {n, 1}, wide),
            ArrayOf("embedding", "<f4", {n, 3}, embedding)};
  }

  absl::StatusOr<ImportReport> Import(const std::vector<std::string>& files) {
    options_.files = files;
    return ImportTable(options_, BuiltInSpecs(), env_);
  }

  // The arrays of an exported .npz, by name: header and values.
  std::string ReadArray(const std::string& file, const std::string& name) const {
    auto zip = ZipReader::Open(*env_->NewReader(file));
    EXPECT_TRUE(zip.ok()) << zip.status();
    for (const ZipReader::Member& member : (*zip)->members()) {
      if (member.name != name + ".npy") continue;
      std::string bytes(member.bytes, '\0');
      EXPECT_TRUE((*(*zip)->Read(member))->Read(bytes.data(), bytes.size()).ok());
      return bytes;
    }
    return "";
  }

  Env* const env_ = Env::Real();
  std::string dir_;
  JobConfig job_;
  ImportOptions options_;
};

}  // namespace sluice
