// A store in memory that answers S3's requests: whole objects with conditions, ranges, uploads in
// parts, removals and listings. A test can lose replies: the request is carried out, and no answer
// comes.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/sha256.h"
#include "tests/common/places/fake_transport.h"

namespace sluice {

class FakeStore {
 public:
  bool ignores_conditions = false, ignores_if_match = false;
  // When it returns true, the request is carried out and its answer is lost. May be null.
  std::function<bool(const HttpRequest&)> loses_reply;

  absl::StatusOr<HttpResponse> operator()(const HttpRequest& request) {
    MutexLock lock(&mutex_);
    const bool lost = loses_reply && loses_reply(request);
    HttpResponse answer = Carry(request);
    if (lost) return absl::UnavailableError("the answer was lost");
    return answer;
  }
  std::map<std::string, std::string> objects() {
    MutexLock lock(&mutex_);
    return objects_;
  }
  void Put(const std::string& path, const std::string& bytes) {
    MutexLock lock(&mutex_);
    objects_[path] = bytes;
  }
  void Clear() {
    MutexLock lock(&mutex_);
    objects_.clear();
  }
  size_t open_uploads() {
    MutexLock lock(&mutex_);
    return uploads_.size();
  }
  // As of a process that is then killed.
  void BeginUpload(const std::string& path) {
    MutexLock lock(&mutex_);
    Begin(path);
  }

 private:
  static std::string TagOf(const std::string& bytes) {
    return "\"" + Sha256Hex(bytes).substr(0, 8) + "\"";
  }
  static std::string Parameter(const std::string& query, const std::string& name) {
    for (const absl::string_view one : absl::StrSplit(query, '&'))
      if (absl::StartsWith(one, name + "=")) return std::string(one.substr(name.size() + 1));
    return "";
  }
  static std::string Decoded(const std::string& query, const std::string& name) {
    return absl::StrReplaceAll(Parameter(query, name), {{"%2F", "/"}});
  }
  static HttpResponse Refused(int status, const std::string& code) {
    return Answer(status, "<Error><Code>" + code + "</Code></Error>");
  }

  std::string Begin(const std::string& path) {
    const std::string upload = absl::StrCat("u", ++number_);
    uploads_[upload] = {};
    keys_[upload] = path;
    return upload;
  }

  HttpResponse Carry(const HttpRequest& request) {
    // "http://h:1/BUCKET/KEY?QUERY"; keys of these tests need no decoding.
    const size_t host = request.url.find('/', request.url.find("://") + 3);
    const size_t mark = std::min(request.url.find('?'), request.url.size());
    const std::string path = request.url.substr(host + 1, mark - host - 1);
    const std::string query = mark < request.url.size() ? request.url.substr(mark + 1) : "";
    if (absl::EndsWith(query, "uploads=") && request.method == "GET")
      return ListedUploads(path, Decoded(query, "prefix"), Decoded(query, "upload-id-marker"));
    if (!Parameter(query, "list-type").empty()) return Listed(path, Decoded(query, "prefix"));
    const std::string upload = Parameter(query, "uploadId");
    if (request.method == "POST" && upload.empty()) {
      const std::string begun = Begin(path);
      marks_[begun] = HeaderOf(request, kMark);
      return Answer(200, absl::StrCat("<UploadId>", begun, "</UploadId>"));
    }
    if (!upload.empty()) return OfUpload(request, path, upload, Parameter(query, "partNumber"));
    const auto found = objects_.find(path);
    if (request.method == "PUT") {
      const std::string match = HeaderOf(request, "If-Match");
      const bool refused =
          (!HeaderOf(request, "If-None-Match").empty() && found != objects_.end()) ||
          (!match.empty() && !ignores_if_match &&
           (found == objects_.end() || TagOf(found->second) != match));
      if (refused && !ignores_conditions) return Refused(412, "PreconditionFailed");
      objects_[path] = request.body;
      marked_.erase(path);
      return Answer(200, "", {{"etag", TagOf(request.body)}});
    }
    if (request.method == "DELETE") {
      objects_.erase(path);
      return Answer(204);
    }
    if (found == objects_.end()) return Refused(404, "NoSuchKey");
    HttpResponse answer = ServedFile{found->second, TagOf(found->second)}(request).value();
    if (request.method == "HEAD" && marked_.count(path) > 0) answer.headers[kMark] = marked_[path];
    return answer;
  }

  HttpResponse OfUpload(const HttpRequest& request, const std::string& path,
                        const std::string& upload, const std::string& part) {
    const auto found = uploads_.find(upload);
    if (found == uploads_.end()) return Refused(404, "NoSuchUpload");
    if (request.method == "PUT") {
      found->second[std::stoi(part)] = request.body;
      return Answer(200, "", {{"etag", TagOf(request.body)}});
    }
    if (request.method == "POST") {
      std::string whole;
      for (const auto& [number, bytes] : found->second) {
        if (!absl::StrContains(request.body, TagOf(bytes))) return Refused(400, "InvalidPart");
        whole += bytes;
      }
      objects_[path] = whole;
      marked_[path] = marks_[upload];
    }
    uploads_.erase(found);
    return Answer(request.method == "POST" ? 200 : 204);
  }

  // One upload on each page.
  HttpResponse ListedUploads(std::string bucket, const std::string& prefix,
                             const std::string& after) {
    if (!absl::EndsWith(bucket, "/")) bucket += "/";
    std::string text;
    for (const auto& [upload, parts] : uploads_) {
      const std::string& path = keys_[upload];
      if (upload <= after || !absl::StartsWith(path, bucket + prefix)) continue;
      const std::string key = path.substr(bucket.size());
      return Answer(200, absl::StrCat("<IsTruncated>true</IsTruncated><NextKeyMarker>", key,
                                      "</NextKeyMarker><NextUploadIdMarker>", upload,
                                      "</NextUploadIdMarker><Upload><Key>", key, "</Key><UploadId>",
                                      upload, "</UploadId></Upload>"));
    }
    return Answer(200, "<IsTruncated>false</IsTruncated>");
  }

  HttpResponse Listed(std::string bucket, const std::string& prefix) {
    if (!absl::EndsWith(bucket, "/")) bucket += "/";
    std::string text, last;
    for (const auto& [path, bytes] : objects_) {
      if (!absl::StartsWith(path, bucket + prefix)) continue;
      const std::string key = path.substr(bucket.size());
      const size_t slash = key.find('/', prefix.size());
      if (slash == std::string::npos) {
        absl::StrAppend(&text, "<Contents><Key>", key, "</Key><Size>", bytes.size(),
                        "</Size><ETag>", TagOf(bytes), "</ETag></Contents>");
      } else if (key.substr(0, slash + 1) != last) {
        last = key.substr(0, slash + 1);
        absl::StrAppend(&text, "<CommonPrefixes><Prefix>", last, "</Prefix></CommonPrefixes>");
      }
    }
    return Answer(200, text);
  }

  Mutex mutex_;
  std::map<std::string, std::string> objects_;  // "BUCKET/KEY"
  std::map<std::string, std::map<int, std::string>> uploads_;
  std::map<std::string, std::string> keys_;  // of the uploads, as in objects_
  static constexpr char kMark[] = "x-amz-meta-sluice-upload";
  std::map<std::string, std::string> marks_, marked_;  // of uploads, and of objects
  int number_ = 0;
};

}  // namespace sluice
