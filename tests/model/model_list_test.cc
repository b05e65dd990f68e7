#include "model/model_list.h"

#include "common/config/config_problem.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Fills in its name, and answers each question with a problem that names the question.
class NamedRules : public ModelRules {
 public:
  explicit NamedRules(std::string name) : name_(std::move(name)) {}
  void FillDefaults(JobConfig* job) const override { job->set_name(name_); }
  ModelParts PartsOf(const JobConfig&) const override {
    ModelParts parts;
    parts.no_wide = name_;
    return parts;
  }
  std::vector<ConfigProblem> FindProblems(const JobConfig&) const override {
    return {{name_ + ".problem", "is wrong"}};
  }
  std::vector<ConfigProblem> FindUnused(const JobConfig&) const override {
    return {{name_ + ".unused", "has no effect"}};
  }

 private:
  const std::string name_;
};

ModelEntry Named(const std::string& name) { return {name, std::make_shared<NamedRules>(name)}; }

JobConfig ModelListJob(const std::string& model) {
  JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("model { " + model + " }", &job));
  return job;
}

std::vector<std::string> PathsOf(const std::vector<ConfigProblem>& problems) {
  std::vector<std::string> paths;
  for (const ConfigProblem& problem : problems) paths.push_back(problem.path);
  return paths;
}

TEST(ModelListTest, AppliesTheRulesOfTheJobsModel) {
  const ModelList models({Named("wide_deep"), Named("mine")});
  for (const auto& [text, name] : std::vector<std::pair<std::string, std::string>>{
           {"wide_deep {}", "wide_deep"}, {"custom { name: 'mine' }", "mine"}}) {
    JobConfig job = ModelListJob(text);
    EXPECT_EQ(ModelNameOf(job.model()), name);
    const auto entry = models.Find(job.model());
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->name, name);
    models.FillDefaults(&job);
    EXPECT_EQ(job.name(), name);
    EXPECT_EQ(models.PartsOf(job).no_wide, name);
    EXPECT_THAT(PathsOf(models.FindProblems(job)), ElementsAre(name + ".problem"));
    EXPECT_THAT(PathsOf(models.FindUnused(job)), ElementsAre(name + ".unused"));
  }
}

TEST(ModelListTest, AJobWhoseModelIsNotInTheListIsRefusedByItsField) {
  const ModelList models({Named("mine"), Named("wide_deep")});
  const ModelList others({Named("mine")});
  struct Case {
    const ModelList& models;
    std::string model, path;
  };
  for (const Case& c : {Case{models, "", "model"}, Case{others, "wide_deep {}", "model"},
                        Case{models, "custom { name: 'yours' }", "model.custom.name"},
                        Case{models, "custom {}", "model.custom.name"},
                        // A model with a field of its own is only reached by this field.
                        Case{models, "custom { name: 'wide_deep' }", "model.custom.name"}}) {
    JobConfig job = ModelListJob(c.model);
    const absl::Status status = c.models.Find(job.model()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.model;
    EXPECT_EQ(FieldOf(status), c.path) << c.model;
    EXPECT_THAT(PathsOf(c.models.FindProblems(job)), ElementsAre(c.path)) << c.model;
    EXPECT_THAT(c.models.FindUnused(job), IsEmpty());
    const std::string before = job.SerializeAsString();
    c.models.FillDefaults(&job);
    EXPECT_EQ(job.SerializeAsString(), before);
    EXPECT_TRUE(c.models.PartsOf(job).wide());
  }
}

TEST(ModelListTest, EveryModelWithAFieldIsInBothListsOfTheShippedPrograms) {
  const google::protobuf::OneofDescriptor& models =
      *ModelConfig::descriptor()->FindOneofByName("model");
  for (int i = 0; i < models.field_count(); ++i) {
    JobConfig job;
    ModelConfig* const config = job.mutable_model();
    config->GetReflection()->MutableMessage(config, models.field(i));
    if (config->has_custom()) continue;
    const auto spec = BuiltInSpecs().Find(*config), model = BuiltInModels().Find(*config);
    ASSERT_TRUE(spec.ok() && model.ok()) << models.field(i)->name();
    EXPECT_TRUE((*spec)->create_net == nullptr) << models.field(i)->name();
    // Only a program of the user has its network.
    EXPECT_EQ((*model)->create_net == nullptr, config->has_program()) << models.field(i)->name();
  }
}

}  // namespace
}  // namespace sluice
