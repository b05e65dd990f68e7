#include "common/places/answer_text.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

TEST(AnswerTextTest, XmlElementsAndTheirEntities) {
  const std::string xml =
      "<L><Contents><Key>a &amp; b&#xfc;&lt;</Key><ETag>&quot;1&quot;</ETag></Contents>"
      "<Contents><Key>c</Key></Contents><Open>";
  EXPECT_EQ(XmlText(xml, "Key"), "a & b\xc3\xbc<");
  EXPECT_EQ(XmlText(xml, "ETag"), "\"1\"");
  EXPECT_EQ(XmlText(xml, "None"), "");
  EXPECT_EQ(XmlText("<Open>x", "Open"), "");
  EXPECT_EQ(XmlElements(xml, "Contents").size(), 2u);
  EXPECT_THAT(XmlElements("<a>1</a><a>2</a><a>3", "a"), ElementsAre("1", "2"));
  EXPECT_EQ(XmlText("<a>&nonsense; &#99999999999; &</a>", "a"), "&nonsense; &#99999999999; &");
}

TEST(AnswerTextTest, OnlyPlainErrorCodesAreTaken) {
  EXPECT_EQ(ErrorCodeOf("<Error><Code>NoSuchKey</Code></Error>"), "NoSuchKey");
  EXPECT_EQ(ErrorCodeOf("<Error><Code>a secret, or a line\nend</Code></Error>"), "");
  EXPECT_EQ(ErrorCodeOf("<html>"), "");
}

TEST(AnswerTextTest, JsonTexts) {
  const std::string json = R"({"a" : "x\/y", "n": 3, "b":"z"})";
  EXPECT_EQ(JsonText(json, "a"), "x/y");
  EXPECT_EQ(JsonText(json, "b"), "z");
  EXPECT_EQ(JsonText(json, "n"), "");
  EXPECT_EQ(JsonText(json, "c"), "");
  EXPECT_EQ(JsonText(R"({"a": "open)", "a"), "");
}

}  // namespace
}  // namespace sluice
