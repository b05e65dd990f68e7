#include "common/base/url_roots.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(UrlRootsTest, PartsThatMayLeadOutAreFoundInEachForm) {
  for (const char* url :
       {"https://h/d/..", "https://h/../d", "https://h/d/%2E%2e/a", "https://h/d/..;a=b/c",
        "https://h/d/..%3Ba", "https://h/d/..#x", "https://h/d/..?x", "https://h/d/%252e%252e/a",
        "https://h/d/..%2fa", "https://h/d/..%5ca", "https://h/d/..\\a", "s3://b/d/../a",
        "s3://b/d/.\\./a"})
    EXPECT_TRUE(MayLeadOut(url)) << url;
  for (const char* url : {"https://h/d/a..b", "https://h/d/..a/...", "https://h/d/a?b=..",
                          "s3://b/d/%2e%2e/a", "s3://b/d/a%2fb", "s3://b/d/.a"})
    EXPECT_FALSE(MayLeadOut(url)) << url;
}

TEST(UrlRootsTest, ARootEndsAtASlash) {
  const std::vector<std::string> roots = {"https://h/d", "s3://b"};
  for (const char* url : {"https://h/d", "https://h/d/a", "s3://b/k"})
    EXPECT_TRUE(IsBelowUrlRoot(url, roots)) << url;
  for (const char* url : {"https://h/d2", "https://h/", "https://h.x/d/a", "http://h/d/a",
                          "s3://b2/k", "s3://b/../k"})
    EXPECT_FALSE(IsBelowUrlRoot(url, roots)) << url;
  EXPECT_FALSE(IsBelowUrlRoot("s3://b/k", {}));
}

TEST(UrlRootsTest, RedirectsAreFreeUntilTheyAreConfined) {
  EXPECT_TRUE(RedirectIsAllowed("https://g/a"));
  ConfineRedirects({"https://h/d"});
  EXPECT_FALSE(RedirectIsAllowed("https://g/a"));
  EXPECT_TRUE(RedirectIsAllowed("https://h/d/a"));
}

}  // namespace
}  // namespace sluice
