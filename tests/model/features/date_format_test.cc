#include "model/features/date_format.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// -1: the cell is no such date.
int Part(std::string_view cell, DatePart part, const std::string& format = "") {
  const auto date = DateFormat::Create(format, part);
  EXPECT_TRUE(date.ok()) << date.status();
  int value;
  return date.ok() && date->Parse(cell, &value) ? value : -1;
}

std::string FormatError(const std::string& format, DatePart part) {
  const auto date = DateFormat::Create(format, part);
  EXPECT_EQ(date.status().code(), absl::StatusCode::kInvalidArgument) << format;
  return std::string(date.status().message());
}

TEST(DateFormatTest, TakesEveryPart) {
  EXPECT_EQ(Part("2001-06-30 23:05", YEAR), 2001);
  EXPECT_EQ(Part("2001-06-30 23:05", MONTH), 6);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_MONTH), 30);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_YEAR), 181);
  EXPECT_EQ(Part("2001-06-30 23:05", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("2001-06-30 23:05", HOUR), 23);
  EXPECT_EQ(Part("2001-06-30 23:05", MINUTE_OF_DAY), 1385);
  EXPECT_EQ(Part("2001-06-30T23:05:59", HOUR), 23);
  EXPECT_EQ(Part("2001-06-30", MONTH), 6);
}

TEST(DateFormatTest, KnowsTheCalendar) {
  EXPECT_EQ(Part("2001-01-01", DAY_OF_WEEK), 1);
  EXPECT_EQ(Part("1970-01-01", DAY_OF_WEEK), 4);
  EXPECT_EQ(Part("2000-02-29", DAY_OF_WEEK), 2);
  EXPECT_EQ(Part("2026-11-21", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("0000-01-01", DAY_OF_WEEK), 6);
  EXPECT_EQ(Part("2000-12-31", DAY_OF_YEAR), 366);
  EXPECT_EQ(Part("1900-12-31", DAY_OF_YEAR), 365);
}

TEST(DateFormatTest, RefusesCellsThatAreNotDates) {
  for (const char* cell : {"", "2001", "2001-13-01", "2001-00-01", "2001-02-29", "2001-01-00",
                           "2001-1-1", "2001-01-01 ", "2001-01-01 24:00", "2001-01-01 10:60",
                           "2001-01-01 10:00:61", "2001-01-01 10:00:00X", "2001-01-01x10:00",
                           "01-01-2001 00:00", "2001-01-01 1:00", "2001-01-01 10:00:"}) {
    EXPECT_EQ(Part(cell, YEAR), -1) << cell;
  }
}

TEST(DateFormatTest, RefusesTimePartsOfCellsWithoutATime) {
  EXPECT_EQ(Part("2001-01-01", HOUR), -1);
  EXPECT_EQ(Part("2001-01-01", MINUTE_OF_DAY), -1);
}

TEST(DateFormatTest, OffsetsLeadToUtc) {
  EXPECT_EQ(Part("2001-06-30 23:05:09Z", HOUR), 23);
  EXPECT_EQ(Part("2001-06-30T23:05:09.125Z", MINUTE_OF_DAY), 1385);
  EXPECT_EQ(Part("2001-06-30T23:05:09.125+02:00", HOUR), 21);
  EXPECT_EQ(Part("2001-06-30T23:05-02:00", HOUR), 1);
  EXPECT_EQ(Part("2001-06-30T23:05-0200", DAY_OF_MONTH), 1);
  EXPECT_EQ(Part("2001-12-31T23:05 -02", YEAR), 2002);
  EXPECT_EQ(Part("2000-01-01 00:30+05:30", DAY_OF_WEEK), 5);
  EXPECT_EQ(Part("2000-01-01 00:30+05:30", DAY_OF_YEAR), 365);
  EXPECT_EQ(Part("2001-06-30 23:05+2", HOUR), -1);
}

TEST(DateFormatTest, FormsOfTheUserAreRead) {
  EXPECT_EQ(Part("14102107", HOUR, "%y%m%d%H"), 7);
  EXPECT_EQ(Part("14102107", DAY_OF_WEEK, "%y%m%d%H"), 2);
  EXPECT_EQ(Part("69010100", YEAR, "%y%m%d%H"), 1969);
  EXPECT_EQ(Part("3/9/2014 7:05", MONTH, "%d/%m/%Y %H:%M"), 9);
  EXPECT_EQ(Part("2014/10/21", DAY_OF_MONTH, "%Y/%m/%d"), 21);
  EXPECT_EQ(Part("21 Oct 2014", MONTH, "%d %b %Y"), 10);
  EXPECT_EQ(Part("21-october-2014", DAY_OF_YEAR, "%d-%b-%Y"), 294);
  EXPECT_EQ(Part("2014-060", MONTH, "%Y-%j"), 3);
  EXPECT_EQ(Part("10/Oct/2000:13:55:36 -0700", HOUR, "%d/%b/%Y:%H:%M:%S %z"), 20);
  EXPECT_EQ(Part("100% 5", HOUR, "100%% %H"), 5);
  for (const char* cell : {"", "141021", "1410210x", "14102107 ", "14132107", "14102124"})
    EXPECT_EQ(Part(cell, HOUR, "%y%m%d%H"), -1) << cell;
}

TEST(DateFormatTest, WithoutAYearEveryDayOfAnyYearIsADate) {
  EXPECT_EQ(Part("29.02.", DAY_OF_MONTH, "%d.%m."), 29);
  EXPECT_EQ(Part("Feb 29 10:05", HOUR, "%b %d %H:%M"), 10);
  EXPECT_EQ(Part("29.02. 23:30 -0100", DAY_OF_MONTH, "%d.%m. %H:%M %z"), 1);
  EXPECT_EQ(Part("30.02.", DAY_OF_MONTH, "%d.%m."), -1);
  EXPECT_EQ(Part("29.02.01", DAY_OF_MONTH, "%d.%m.%y"), -1);
}

TEST(DateFormatTest, NumbersSince1970AreRead) {
  EXPECT_EQ(Part("978494244", HOUR, "EPOCH_S"), 3);  // 2001-01-03 03:57:24
  EXPECT_EQ(Part("978494244", DAY_OF_WEEK, "EPOCH_S"), 3);
  EXPECT_EQ(Part("978494244.75", MINUTE_OF_DAY, "EPOCH_S"), 237);
  EXPECT_EQ(Part("978494244750", YEAR, "EPOCH_MS"), 2001);
  EXPECT_EQ(Part("0", DAY_OF_YEAR, "EPOCH_S"), 1);
  EXPECT_EQ(Part("-1", HOUR, "EPOCH_S"), 23);
  EXPECT_EQ(Part("1e300", YEAR, "EPOCH_S"), -1);
  EXPECT_EQ(Part("2001-01-03", YEAR, "EPOCH_S"), -1);
}

TEST(DateFormatTest, InstantsAreSecondsSince1970) {
  const auto instant = [](const char* cell, const char* format) -> int64_t {
    int64_t seconds;
    return DateFormat::Create(format, DAY_OF_YEAR)->ParseInstant(cell, &seconds) ? seconds : -1;
  };
  EXPECT_EQ(instant("2001-01-03", ""), 978480000);
  EXPECT_EQ(instant("2001-01-03 03:57:24", ""), 978494244);
  EXPECT_EQ(instant("2001-01-03T03:57:24+02:00", ""), 978487044);
  EXPECT_EQ(instant("2001-003", "%Y-%j"), 978480000);
  EXPECT_EQ(instant("978494244750", "EPOCH_MS"), 978494244);
  EXPECT_EQ(instant("2001-02-30", ""), -1);
}

TEST(DateFormatTest, FormsThatCannotGiveThePartAreRefused) {
  EXPECT_THAT(FormatError("%Y-%m-%d", HOUR), HasSubstr("lacks %H"));
  EXPECT_THAT(FormatError("%H:%M", DAY_OF_WEEK), HasSubstr("lacks %Y"));
  EXPECT_THAT(FormatError("%Y", MONTH), HasSubstr("lacks %m"));
  EXPECT_THAT(FormatError("%Y-%q", YEAR), AllOf(HasSubstr("%q"), HasSubstr("%b %z")));
  EXPECT_THAT(FormatError("%Y-%", YEAR), HasSubstr("%b %z"));
  EXPECT_THAT(FormatError("%Y-%Y", YEAR), HasSubstr("twice"));
  EXPECT_THAT(FormatError("epoch_s", YEAR), HasSubstr("EPOCH_S"));
}

TEST(DateFormatTest, ProblemsNameTheOptionThatFits) {
  const auto problem = [](const std::string& cell) {
    return DateFormat::Create("", HOUR)->ProblemOf(cell);
  };
  EXPECT_THAT(problem("978494244"), AllOf(HasSubstr("date_format"), HasSubstr("EPOCH_S")));
  EXPECT_THAT(problem("978494244000"), HasSubstr("date_format"));
  EXPECT_THAT(problem("14102107"), HasSubstr("%y%m%d%H"));
  EXPECT_THAT(problem("21/10/2014"), HasSubstr("%d/%m/%Y"));
  EXPECT_THAT(problem("02/28/2023 5:06"),
              AllOf(HasSubstr("\"%m/%d/%Y %H:%M\""), Not(HasSubstr("%d/%m/%Y"))));
  EXPECT_THAT(problem("1677560760000"), HasSubstr("EPOCH_MS"));
  EXPECT_THAT(DateFormat::Create("EPOCH_S", HOUR)->ProblemOf("1677560760000"),
              HasSubstr("EPOCH_MS"));
  EXPECT_THAT(DateFormat::Create("%Y", YEAR)->ProblemOf("5"), Not(HasSubstr("perhaps")));
}

TEST(DateFormatTest, FormatsThatFitACellReadIt) {
  EXPECT_THAT(DateFormat::FittingFormats("01/02/2023", MONTH), ElementsAre("%m/%d/%Y", "%d/%m/%Y"));
  EXPECT_THAT(DateFormat::FittingFormats("01/02/2023", HOUR), IsEmpty());
  EXPECT_THAT(DateFormat::FittingFormats("no date", YEAR), IsEmpty());
}

}  // namespace
}  // namespace sluice
