#include "model/profile/job_proposal.h"

#include <gmock/gmock.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config/job_config.h"
#include "common/config/textproto_file.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
#include "tests/model/data/files_for_test.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Proposed {
  JobProposal proposal;
  JobConfig job;  // of its text, effective
  std::vector<std::string> suspicious;

  const Feature* Find(const std::string& name) const {
    for (const Feature& feature : proposal.job.features()) {
      if (feature.name() == name) return &feature;
    }
    return nullptr;
  }
  std::string LeftOut(const std::string& column) const {
    for (const auto& [name, why] : proposal.left_out) {
      if (name == column) return why;
    }
    return "";
  }
};

// The proposal for rows of `header`; its text must be a job.
Proposed Propose(const std::string& header, const std::function<std::string(int)>& row,
                 const std::string& label = "label", int rows = 2000) {
  const TempFolder folder;
  std::string text = header.empty() ? "" : header + "\n";
  for (int i = 0; i < rows; ++i) absl::StrAppend(&text, row(i), "\n");
  const auto table = ProfileTable({folder.Write("d.csv", text)}, ProfileLimits(), Env::Real());
  EXPECT_TRUE(table.ok()) << table.status();
  const auto choice = ChooseLabel(*table, label);
  EXPECT_TRUE(choice.ok()) << choice.status();
  Proposed proposed;
  proposed.proposal = ProposeJob(*table, *choice, "d");
  proposed.suspicious = SuspiciousColumns(*table, *choice);
  proposed.proposal.job.mutable_data()->add_train_files("d.csv");
  proposed.proposal.job.mutable_data()->add_eval_files("d.csv");
  const std::string job = JobText(proposed.proposal, {"a header"});
  EXPECT_TRUE(ParseTextproto(job, "job", &proposed.job, nullptr).ok()) << job;
  const auto effective = EffectiveJobConfig(proposed.job, "", BuiltInSpecs());
  EXPECT_TRUE(effective.ok()) << effective.status() << job;
  if (!effective.ok()) return proposed;
  const auto spec = ModelSpec::Create(*effective, BuiltInSpecs());
  EXPECT_TRUE(spec.ok()) << spec.status() << job;
  return proposed;
}

TEST(JobProposalTest, EachKindOfColumnGetsItsFeature) {
  const Proposed p = Propose("label,amount,temp,age,city,when,tags,user_id,viewer.id", [](int i) {
    return absl::StrCat(i % 2, ",", i % 3 == 0 ? (i * 7919LL) % 100000 : 0, ".5,", i * 0.01 - 5,
                        ",", 18 + i % 60, ",", i % 11 == 0 ? "" : absl::StrCat("city", i % 40),
                        ",2020-0", 1 + i % 9, "-1", i % 9, " 0", i % 10, ":30,t", i % 5, "|u",
                        i % 7, ",", 1000000 + i % 700, ",", 1000000 + i % 800);
  });
  ASSERT_NE(p.Find("amount"), nullptr);
  EXPECT_TRUE(p.Find("amount")->numeric().log());
  EXPECT_TRUE(p.Find("amount")->numeric().has_z_score());
  EXPECT_GT(p.Find("amount")->numeric().boundaries_size(), 3);
  EXPECT_TRUE(p.Find("amount")->numeric().keep_numeric());
  EXPECT_FALSE(p.Find("temp")->numeric().log());
  EXPECT_NEAR(p.Find("temp")->numeric().z_score().mean(), 5, 0.1);
  EXPECT_TRUE(p.Find("age")->has_categorical());
  EXPECT_EQ(p.Find("age_number")->numeric().column(), "age");
  EXPECT_TRUE(p.Find("city")->categorical().missing_is_value());
  EXPECT_EQ(p.Find("when_hour")->categorical().date_part(), HOUR);
  EXPECT_EQ(p.Find("tags")->categorical().multi_value_delimiter(), "|");
  EXPECT_TRUE(p.Find("user_id")->has_categorical());
  EXPECT_EQ(p.Find("user_id_number"), nullptr);
  EXPECT_TRUE(p.Find("viewer.id")->has_categorical());
  EXPECT_EQ(p.proposal.job.data().max_bad_lines(), 0u);
}

TEST(JobProposalTest, ValuesFarFromZeroAreNotRoundedTogether) {
  // A longitude within a town, and seconds of one minute.
  const auto row = [](int i) {
    return absl::StrCat(i % 2, ",",
                        absl::StrFormat("%.6f", -122.4194 + (i * 7 % 1000 - 500) * 1e-5), ",",
                        absl::StrFormat("%.1f", 1712345678 + i * 7 % 60 + 0.5));
  };
  const Proposed p = Propose("label,longitude,time", row);
  ASSERT_NE(p.Find("longitude"), nullptr);
  const auto& longitude = p.Find("longitude")->numeric();
  EXPECT_NEAR(longitude.z_score().mean(), -122.4194, 0.01 * longitude.z_score().stddev());
  EXPECT_NEAR(longitude.z_score().stddev(), 0.0029, 0.0001);
  EXPECT_GE(longitude.boundaries_size(), 14);
  ASSERT_NE(p.Find("time"), nullptr);
  EXPECT_NEAR(p.Find("time")->numeric().z_score().mean(), 1712345678 + 30, 1);
}

TEST(JobProposalTest, CellsOfTheSameNumberOfFractionsAreVectors) {
  const Proposed p = Propose("label,bars,printed,uneven", [](int i) {
    return absl::StrCat(i % 2, ",", i * 0.25, "|", i % 7, "|0.5,\"[", i * 0.5, ", -1.5]\",",
                        i * 0.25, i % 2 == 0 ? "|2" : "");
  });
  ASSERT_NE(p.Find("bars"), nullptr);
  EXPECT_EQ(p.Find("bars")->numeric().dim(), 3u);
  EXPECT_EQ(p.Find("bars")->numeric().multi_value_delimiter(), "|");
  EXPECT_TRUE(p.Find("bars")->numeric().has_z_score());
  ASSERT_NE(p.Find("printed"), nullptr);
  EXPECT_EQ(p.Find("printed")->numeric().dim(), 2u);
  const Feature* const uneven = p.Find("uneven");
  EXPECT_TRUE(uneven == nullptr || !uneven->numeric().has_dim());
}

TEST(JobProposalTest, ColumnsWithoutUseAreLeftOutAndNamed) {
  const Proposed p = Propose("row,name,same,none,label,twice,twice,x", [](int i) {
    return absl::StrCat(i, ",person ", i * 31, ",k,,", i % 2, ",1,2,", i % 50);
  });
  EXPECT_THAT(p.LeftOut("row"), HasSubstr("each row"));
  EXPECT_THAT(p.LeftOut("name"), HasSubstr("each row"));
  EXPECT_THAT(p.LeftOut("same"), HasSubstr("one value"));
  EXPECT_THAT(p.LeftOut("none"), HasSubstr("missing"));
  EXPECT_THAT(p.LeftOut("twice"), HasSubstr("several columns"));
  EXPECT_EQ(p.Find("row"), nullptr);
  ASSERT_NE(p.Find("x"), nullptr);
  EXPECT_THAT(p.suspicious, ElementsAre(HasSubstr("twice")));
}

TEST(JobProposalTest, AColumnThatTellsTheLabelIsNamed) {
  const Proposed p = Propose("label,paid,x", [](int i) {
    return absl::StrCat(i % 2, ",", i % 2 ? 10 + i % 40 : i % 3, ",", (i * 7919) % 50);
  });
  EXPECT_THAT(p.suspicious, ElementsAre(AllOf(HasSubstr("\"paid\""), HasSubstr("AUC"))));
}

TEST(JobProposalTest, MissingSpellingsAndBadLinesGoIntoTheJob) {
  const Proposed p = Propose("label,x,c", [](int i) {
    return i == 1700   ? std::string("1,2")
           : i == 1800 ? std::string("1,oops,a")
                       : absl::StrCat(i % 2, ",", i % 9 == 0 ? "NA" : absl::StrCat(i * 0.5), ",",
                                      i % 8 == 0 ? "?" : absl::StrCat("c", i % 5));
  });
  EXPECT_THAT(p.proposal.job.data().csv().missing(), testing::UnorderedElementsAre("NA", "?"));
  EXPECT_EQ(p.proposal.job.data().max_bad_lines(), 2u);
  EXPECT_TRUE(p.Find("x")->numeric().has_default_value());
}

TEST(JobProposalTest, FormatsWithoutNamesGetAJobToo) {
  const Proposed libsvm = Propose(
      "",
      [](int i) {
        return absl::StrCat(i % 2 ? "+1" : "-1", " 1:", i % 13, " 2:", i * 0.5,
                            i % 3 ? " 5:1" : "");
      },
      "");
  EXPECT_EQ(libsvm.proposal.job.data().format(), DataConfig::LIBSVM);
  EXPECT_NE(libsvm.Find("5"), nullptr);
  const Proposed slots = Propose(
      "",
      [](int i) { return absl::StrCat("1 ", i % 2, " 2 ", i % 30, " ", i % 17, " 1 ", i * 0.25); },
      "");
  EXPECT_EQ(slots.proposal.job.data().format(), DataConfig::MULTI_SLOT);
  EXPECT_TRUE(slots.Find("slot_2")->has_categorical());
  EXPECT_TRUE(slots.Find("slot_3")->has_numeric());
  const Proposed criteo = Propose(
      "",
      [](int i) {
        std::string line = absl::StrCat(i % 2);
        for (int c = 1; c < 40; ++c)
          absl::StrAppend(&line, "\t", c <= 13 ? absl::StrCat(i) : "68fd1e64");
        return line;
      },
      "");
  EXPECT_EQ(criteo.proposal.job.data().format(), DataConfig::CRITEO_TSV);
  EXPECT_THAT(criteo.suspicious, IsEmpty());
  const Proposed ratings = Propose(
      "",
      [](int i) {
        return absl::StrCat(i % 90, "::", i * 7 % 111, "::", 1 + i * 13 % 5,
                            "::", 978300760 + i * 100000);
      },
      "");
  EXPECT_EQ(ratings.proposal.job.data().csv().delimiter(), "::");
  EXPECT_TRUE(ratings.proposal.job.data().label().has_positive_at_least());
}

}  // namespace
}  // namespace sluice
