#include "common/places/store_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/places/answer_text.h"
#include "common/places/url.h"

namespace sluice {
namespace {

using Use = StoreRequests::Use;

constexpr char kBytes[] = "Content-Type: application/octet-stream";
// Metadata of an object by which the process that uploaded it in parts knows it again.
constexpr char kUploadMark[] = "x-amz-meta-sluice-upload";
// A store answers when the bytes are safe, which takes it longer than to send some.
constexpr absl::Duration kQuietTime = absl::Seconds(60);

std::string PartQuery(int number, const std::string& upload) {
  return absl::StrCat("partNumber=", number, "&uploadId=", EncodeUrlValue(upload));
}

std::string InXml(absl::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

absl::StatusOr<HttpResponse> StoreWriter::SendPut(const StorePath& path, std::string bytes,
                                                  const std::string& condition,
                                                  std::string* source) const {
  HttpRequest request;
  request.method = "PUT";
  request.url = requests_.UrlOf(path, "");
  request.headers = {kBytes};
  if (!condition.empty()) request.headers.push_back(condition);
  request.body = std::move(bytes);
  request.quiet_time = kQuietTime;
  return requests_.Send(std::move(request), source);
}

absl::Status StoreWriter::Put(const std::string& path, std::string bytes) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer,
                          SendPut(parts, std::move(bytes), /*condition=*/"", &source));
  if (answer.status == 200) return absl::OkStatus();
  return requests_.Explain(parts, answer, source, Use::kWrite);
}

absl::StatusOr<FileIdentity> StoreWriter::Publish(const std::string& path, absl::string_view bytes,
                                                  const std::optional<FileIdentity>& expected) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(
      const HttpResponse answer,
      SendPut(parts, std::string(bytes),
              expected ? absl::StrCat("If-Match: ", expected->tag) : "If-None-Match: *", &source));
  if (answer.status == 200) {
    const std::string tag = answer.Header("etag");
    if (!tag.empty()) return IdentityOfVersion(bytes.size(), tag);
    return files_->Identify(path);
  }
  if (answer.status == 501) {
    return absl::UnimplementedError(
        "the store does not know conditional writes (If-None-Match, If-Match), so it could not "
        "tell two writers apart; use another store, or a newer version of it");
  }
  // A store says 404 when the version that was expected is gone.
  const bool lost =
      answer.status == 412 || answer.status == 409 ||
      (answer.status == 404 && expected && ErrorCodeOf(answer.body) != "NoSuchBucket");
  if (!lost) return requests_.Explain(parts, answer, source, Use::kWrite);
  const absl::StatusOr<FileIdentity> there = files_->Identify(path);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  if (there.ok() && there->size == bytes.size()) {
    std::string held;
    if (there->size > 0) {
      const auto read = files_->ReadRange(path, *there, 0, there->size);
      // FAILED_PRECONDITION: it has changed once more.
      if (!read.ok() && !absl::IsFailedPrecondition(read.status())) return read.status();
      held = read.value_or("");
    }
    if (held == bytes) return *there;
  }
  if (!expected && there.ok()) return absl::AlreadyExistsError("the object exists");
  return absl::AbortedError(there.ok() ? "the object has another version now"
                                       : "the object is gone, or is being written");
}

absl::Status StoreWriter::Remove(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  HttpRequest request;
  request.method = "DELETE";
  request.url = requests_.UrlOf(parts, "");
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
  const bool gone = answer.status == 404 && ErrorCodeOf(answer.body) != "NoSuchBucket";
  if (answer.status == 204 || answer.status == 200 || gone) return absl::OkStatus();
  return requests_.Explain(parts, answer, source, Use::kWrite);
}

absl::StatusOr<std::string> StoreWriter::BeginUpload(const StorePath& path,
                                                     const std::string& mark) const {
  HttpRequest request;
  request.method = "POST";
  request.url = requests_.UrlOf(path, "uploads=");
  request.headers = {kBytes, absl::StrCat(kUploadMark, ": ", mark)};
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
  if (answer.status != 200) return requests_.Explain(path, answer, source, Use::kWrite);
  std::string upload = XmlText(answer.body, "UploadId");
  if (!upload.empty()) return upload;
  return absl::FailedPreconditionError("the store takes no upload in parts");
}

absl::StatusOr<std::string> StoreWriter::PutPart(const StorePath& path, const std::string& upload,
                                                 int number, std::string bytes) const {
  HttpRequest request;
  request.method = "PUT";
  request.url = requests_.UrlOf(path, PartQuery(number, upload));
  request.headers = {kBytes};
  request.body = std::move(bytes);
  request.quiet_time = kQuietTime;
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
  if (answer.status != 200) return requests_.Explain(path, answer, source, Use::kWrite);
  std::string tag = answer.Header("etag");
  if (!tag.empty()) return tag;
  return absl::FailedPreconditionError("the store names no ETag for a part of an upload");
}

absl::StatusOr<bool> StoreWriter::IsMarked(const StorePath& path, const std::string& mark) const {
  HttpRequest request;
  request.method = "HEAD";
  request.url = requests_.UrlOf(path, "");
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
  if (answer.status == 200) return answer.Header(kUploadMark) == mark;
  if (answer.status == 404) return false;
  return requests_.Explain(path, answer, source);
}

absl::Status StoreWriter::EndUpload(const std::string& path, const std::string& upload,
                                    const std::string& mark,
                                    const std::vector<std::string>& tags) const {
  SLUICE_ASSIGN_OR_RETURN(const StorePath parts, ParseStorePath(path));
  std::string list = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < tags.size(); ++i) {
    absl::StrAppend(&list, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>", InXml(tags[i]),
                    "</ETag></Part>");
  }
  absl::StrAppend(&list, "</CompleteMultipartUpload>");
  HttpRequest request;
  request.method = "POST";
  request.url = requests_.UrlOf(parts, absl::StrCat("uploadId=", EncodeUrlValue(upload)));
  request.headers = {"Content-Type: application/xml"};
  request.body = std::move(list);
  request.quiet_time = absl::Seconds(300);  // the store may have to copy the parts
  constexpr int kTries = 3;
  for (int i = 1;; ++i) {
    std::string source;
    SLUICE_ASSIGN_OR_RETURN(HttpResponse answer, requests_.Send(request, &source));
    // The status is sent before the work is done: an error may follow it.
    const std::string code = ErrorCodeOf(answer.body);
    if (answer.status == 200 && code.empty()) return absl::OkStatus();
    if (answer.status == 404 && code == "NoSuchUpload") {
      // An earlier try may have ended it, and its reply was lost. The object may also be an older
      // one of the name, or one that somebody else has written since.
      const absl::StatusOr<bool> ended = IsMarked(parts, mark);
      if (ended.ok() && *ended) return absl::OkStatus();
      if (absl::IsUnavailable(ended.status()) && i < kTries) continue;
      if (!ended.ok()) return ended.status();
    }
    if (answer.status == 200 && i < kTries) continue;
    if (answer.status == 200) answer.status = 500;
    return requests_.Explain(parts, answer, source, Use::kWrite);
  }
}

absl::Status StoreWriter::GiveUp(const StorePath& path, const std::string& upload) const {
  HttpRequest request;
  request.method = "DELETE";
  request.url = requests_.UrlOf(path, absl::StrCat("uploadId=", EncodeUrlValue(upload)));
  std::string source;
  SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
  // 404: it has ended, or somebody else has given it up.
  if (answer.status == 204 || answer.status == 200 || answer.status == 404) return absl::OkStatus();
  return requests_.Explain(path, answer, source, Use::kWrite);
}

absl::Status StoreWriter::GiveUpUploads(
    const std::string& folder, const std::function<bool(const std::string&)>& is_leftover) {
  SLUICE_ASSIGN_OR_RETURN(const StorePath path, ParseStorePath(folder));
  const std::string prefix = path.key.back() == '/' ? path.key : path.key + "/";
  struct Upload {
    std::string key, id;
  };
  std::vector<Upload> leftovers;
  std::string markers[2];  // the last key and upload of a page
  while (true) {
    HttpRequest request;
    // The parameters by name, as the signature wants them.
    std::string query = absl::StrCat("prefix=", EncodeUrlValue(prefix));
    if (!markers[0].empty()) {
      query = absl::StrCat("key-marker=", EncodeUrlValue(markers[0]), "&", query,
                           "&upload-id-marker=", EncodeUrlValue(markers[1]));
    }
    request.url = requests_.UrlOf({path.bucket, ""}, absl::StrCat(query, "&uploads="));
    std::string source;
    SLUICE_ASSIGN_OR_RETURN(const HttpResponse answer, requests_.Send(std::move(request), &source));
    if (answer.status == 501) return absl::UnimplementedError("the store lists no uploads");
    if (answer.status == 403) {
      return absl::PermissionDeniedError(
          absl::StrCat("the store refuses to list unfinished uploads (HTTP 403); it needs "
                       "s3:ListBucketMultipartUploads; the credentials come from ",
                       source));
    }
    if (answer.status != 200) return requests_.Explain(path, answer, source);
    for (const absl::string_view one : XmlElements(answer.body, "Upload")) {
      Upload upload{XmlText(one, "Key"), XmlText(one, "UploadId")};
      if (absl::StartsWith(upload.key, prefix) && is_leftover(upload.key.substr(prefix.size())))
        leftovers.push_back(std::move(upload));
    }
    if (XmlText(answer.body, "IsTruncated") != "true") break;
    std::string next[2] = {XmlText(answer.body, "NextKeyMarker"),
                           XmlText(answer.body, "NextUploadIdMarker")};
    if (next[0].empty() || std::equal(next, next + 2, markers))
      return absl::FailedPreconditionError("the store's list of uploads does not go on");
    std::move(next, next + 2, markers);
  }
  absl::Status given_up;
  for (const Upload& one : leftovers) given_up.Update(GiveUp({path.bucket, one.key}, one.id));
  return given_up;
}

class StoreWriter::File : public NewFile {
 public:
  File(StoreWriter* writer, std::string path, StorePath parts, std::function<void()> finished)
      : writer_(writer),
        path_(std::move(path)),
        parts_(std::move(parts)),
        finished_(std::move(finished)) {}
  ~File() override {
    if (!upload_.empty()) writer_->GiveUp(parts_, upload_).IgnoreError();
  }

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      // The last part is sent by Finish, so that a file of one part is no upload in parts.
      if (held_.size() == writer_->part_bytes_) SLUICE_RETURN_IF_ERROR(SendHeld());
      const size_t n = std::min(bytes.size(), writer_->part_bytes_ - held_.size());
      held_.append(bytes.data(), n);
      bytes.remove_prefix(n);
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (upload_.empty()) {
      SLUICE_RETURN_IF_ERROR(Named(writer_->Put(path_, std::move(held_))));
    } else {
      SLUICE_RETURN_IF_ERROR(SendHeld());
      SLUICE_RETURN_IF_ERROR(Named(writer_->EndUpload(path_, upload_, mark_, tags_)));
      upload_.clear();
    }
    finished_();
    return absl::OkStatus();
  }

 private:
  absl::Status Named(const absl::Status& status) const {
    if (status.ok()) return status;
    const absl::Status error = AsFileError(status);
    return absl::Status(error.code(), absl::StrCat("write ", path_, ": ", error.message()));
  }

  absl::Status SendHeld() {
    if (tags_.size() == kMostParts) {
      return absl::ResourceExhaustedError(
          absl::StrCat("write ", path_, ": it has more than ", sent_,
                       " bytes, which stores do not take; give the table more shards"));
    }
    if (upload_.empty()) {
      auto upload = writer_->BeginUpload(parts_, mark_);
      if (!upload.ok()) return Named(upload.status());
      upload_ = *std::move(upload);
    }
    const size_t n = held_.size();
    auto tag =
        writer_->PutPart(parts_, upload_, static_cast<int>(tags_.size()) + 1, std::move(held_));
    held_.clear();
    if (!tag.ok()) return Named(tag.status());
    tags_.push_back(*std::move(tag));
    sent_ += n;
    return absl::OkStatus();
  }

  StoreWriter* const writer_;
  const std::string path_;
  const StorePath parts_;
  const std::function<void()> finished_;
  const std::string mark_ = absl::StrCat(RandomId());
  std::string held_, upload_;
  std::vector<std::string> tags_;
  uint64_t sent_ = 0;
};

absl::StatusOr<std::unique_ptr<NewFile>> StoreWriter::Start(const std::string& path,
                                                            std::function<void()> finished) {
  SLUICE_ASSIGN_OR_RETURN(StorePath parts, ParseStorePath(path));
  return std::make_unique<File>(this, path, std::move(parts), std::move(finished));
}

}  // namespace sluice
