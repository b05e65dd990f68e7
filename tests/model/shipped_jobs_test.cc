// Checks that the jobs in configs/ match the data in data/. Runs in the root of the tree.
#include <fstream>
#include <sstream>

#include "common/config/job_config.h"
#include "gmock/gmock.h"
#include "model/built_in_models.h"
#include "model/data/data_source.h"
#include "model/data/file_columns.h"
#include "model/model_spec.h"
#include "tests/model/data/files_for_test.h"
#include "tests/model/features/schema_for_test.h"

namespace sluice {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Shipped {
  JobConfig job;
  std::shared_ptr<const FeatureSchema> schema;
  std::unique_ptr<DataSource> data;
};

Shipped ShippedJob(const std::string& name) {
  Shipped shipped;
  auto job =
      LoadJobConfig("configs/" + name + ".textproto", {}, BuiltInSpecs(), nullptr, &ColumnsOfData);
  EXPECT_TRUE(job.ok()) << job.status();
  if (job.ok()) shipped.job = *std::move(job);
  const auto model = ModelSpec::Create(shipped.job, BuiltInSpecs());
  EXPECT_TRUE(model.ok()) << model.status();
  if (model.ok()) shipped.schema = (*model)->schema();
  auto data = DataSource::Create(shipped.job.data(), shipped.schema, Env::Real());
  EXPECT_TRUE(data.ok()) << data.status();
  if (data.ok()) shipped.data = std::move(*data);
  return shipped;
}

void ExpectExamples(const Shipped& adult, const std::string& path, size_t examples,
                    double positives) {
  Batch batch = EmptyBatch(*adult.schema);
  BadLines bad;
  const absl::Status status = adult.data->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(bad.count, 0u) << bad.Describe();
  EXPECT_EQ(batch.n, examples);
  double sum = 0;
  for (const float label : batch.label) sum += label;
  EXPECT_EQ(sum, positives);
}

TEST(ShippedJobsTest, EveryAdultLineIsAnExample) {
  const Shipped adult = ShippedJob("adult_wide_deep");
  ExpectExamples(adult, "data/adult/adult.data.gz", 32561, 7841);
  ExpectExamples(adult, "data/adult/adult.test.gz", 16281, 3846);
}

TEST(ShippedJobsTest, CriteoHasAllItsFeatures) {
  const Shipped criteo = ShippedJob("criteo_wide_deep");
  EXPECT_EQ(criteo.schema->numerics().size(), 13u);
  EXPECT_EQ(criteo.schema->slots().size(), 26u);
  EXPECT_EQ(criteo.schema->columns().size(), 2 + 39u);
}

TEST(ShippedJobsTest, FlightsReadsTheDatesOfItsFile) {
  const Shipped flights = ShippedJob("flights_wide_deep");
  const TempFolder folder;
  const std::string path =
      folder.Write("a.csv",
                   "date,delay,distance,origin,destination\n"
                   "2001-01-01 00:01,33,2176,LAS,PHL\n2001-06-30 12:00,-4,215,ATL,SAV\n");
  Batch batch = EmptyBatch(*flights.schema);
  BadLines bad;
  ASSERT_TRUE(flights.data->ReadPiece(path, 0, UINT64_MAX, true, &batch, &bad).ok());
  EXPECT_EQ(bad.count, 0u) << bad.Describe();
  EXPECT_THAT(batch.label, ::testing::ElementsAre(1, 0));
  EXPECT_EQ(batch.keys.size(), 2 * flights.schema->slots().size());
  EXPECT_EQ(batch.numeric[3], 0.5f);  // noon
}

TEST(ShippedJobsTest, TheClusterOfTwoHostsParses) {
  ClusterConfig cluster;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      ReadText("configs/two_hosts_cluster.textproto"), &cluster));
  EXPECT_EQ(cluster.pservers_size(), 2);
  EXPECT_EQ(cluster.worker_num(), 2u);
  EXPECT_TRUE(cluster.security().insecure());
}

}  // namespace
}  // namespace sluice
