#include "common/base/local_path.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

std::string OfMistypedUrl(absl::string_view path) {
  const size_t end = path.find(":/");
  return absl::StrCat("is a URL with one slash; write ", path.substr(0, end), "://",
                      path.substr(end + 2), ", or ./", path, " for a folder of this name");
}

}  // namespace

bool HasScheme(absl::string_view path) {
  const size_t end = path.find("://");
  if (end == absl::string_view::npos || end == 0 || !absl::ascii_isalpha(path[0])) return false;
  // RFC 3986, section 3.1.
  return std::all_of(path.begin(), path.begin() + end, [](char c) {
    return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.';
  });
}

bool IsMistypedUrl(absl::string_view path) {
  for (const absl::string_view scheme : {"s3:/", "http:/", "https:/"}) {
    if (absl::StartsWith(path, scheme) && !HasScheme(path)) return true;
  }
  return false;
}

std::string SchemeProblem(absl::string_view path) {
  if (!HasScheme(path)) return "";
  const absl::string_view scheme = path.substr(0, path.find(':'));
  const absl::string_view rest = path.substr(scheme.size() + 3);
  if (absl::AsciiStrToLower(scheme) == "file") {
    return absl::StrCat(
        "is a URL; give the path itself: ", rest.empty() || rest[0] != '/' ? "/" : "", rest);
  }
  return absl::StrCat("is a URL, and ", scheme,
                      ":// is not supported here: files and folders are "
                      "those of this host and of mounted file systems (such as NFS), and only data "
                      "files and outputs of jobs may also be on a store (s3://), and data files on "
                      "a web server; give a path");
}

std::string OutputUrlProblem(absl::string_view path) {
  if (IsMistypedUrl(path)) return OfMistypedUrl(path);
  if (!HasScheme(path)) return "";
  const absl::string_view scheme = path.substr(0, path.find(':'));
  if (scheme == "s3") return "";
  if (scheme == "http" || scheme == "https") {
    return absl::StrCat("is a URL, and web servers are only read, for data; give a path, or ",
                        "s3://BUCKET/FOLDER of a store");
  }
  return DataUrlProblem(path);
}

std::string DataUrlProblem(absl::string_view path) {
  if (IsMistypedUrl(path)) return OfMistypedUrl(path);
  if (!HasScheme(path)) return "";
  const absl::string_view scheme = path.substr(0, path.find(':'));
  const absl::string_view rest = path.substr(scheme.size() + 3);
  if (scheme == "s3" || scheme == "http" || scheme == "https") return "";
  const std::string lower = absl::AsciiStrToLower(scheme);
  if (lower == "file") return SchemeProblem(path);
  const std::string no = absl::StrCat("is a URL, and ", scheme, ":// is not supported; ");
  if (lower == "s3" || lower == "http" || lower == "https" || lower == "s3a" || lower == "s3n")
    return absl::StrCat(no, "write ", lower[0] == 's' ? "s3" : lower, "://", rest);
  if (lower == "gs") {
    return absl::StrCat(no,
                        "Google Cloud Storage speaks S3's protocol: make an HMAC key, set "
                        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
                        "AWS_ENDPOINT_URL=https://storage.googleapis.com, and write s3://",
                        rest);
  }
  for (const char* store : {"oss", "cos", "cosn", "obs", "bos", "r2", "tos", "minio"}) {
    if (lower == store) {
      return absl::StrCat(no,
                          "the store speaks S3's protocol: set AWS_ENDPOINT_URL to its "
                          "endpoint, and write s3://",
                          rest);
    }
  }
  for (const char* store : {"abfs", "abfss", "wasb", "wasbs", "az", "adl"}) {
    if (lower == store) {
      return absl::StrCat(no,
                          "mount the container (blobfuse2) and give the path, or copy the files "
                          "(azcopy)");
    }
  }
  if (lower == "hdfs" || lower == "viewfs" || lower == "webhdfs") {
    return absl::StrCat(no,
                        "mount HDFS (its NFS gateway or FUSE) and give the path, or copy the "
                        "files (hdfs dfs -get, hadoop distcp to s3a://)");
  }
  return absl::StrCat(no,
                      "data is read from paths of this host and of mounted file systems, and "
                      "from s3://, https:// and http://; copy or mount what the URL names");
}

}  // namespace sluice
