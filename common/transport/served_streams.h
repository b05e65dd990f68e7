// The open streams of a process's servers, whatever their transport, and the bounds that hold for
// all of them together: how many may be open, and how many bytes they may hold. The open unary
// calls of a server have a table of their own, in which each is a stream of one message.
//
// Thread safety: safe from any thread. Lock order: the lock of this table, then that of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/limited_log.h"
#include "common/base/mutex.h"
#include "common/security/audit_log.h"
#include "common/transport/byte_budget.h"
#include "common/transport/stream_admission.h"

namespace sluice {

// Who opens streams and calls, for the limits: "worker 3@10.0.0.7", a certificate on a host
// (peer_host.h). Many processes may share a certificate.
std::string PeerOn(const AuditedCaller& caller);
// The same on all hosts, "worker 3". "" without a certificate.
std::string CertificateOf(const AuditedCaller& caller);

// Records which streams and calls a process refused, or ended, for want of room or for what their
// clients did to the transport: in the audit log, in the process log, and for the metrics.
//
// Thread safety: safe from any thread.
class RoomReports {
 public:
  struct Options {
    AuditLog* audit = nullptr;  // may be null; outlives the reports
    // Told of refusals, at most every 10 seconds, and of streams that are ended because their
    // clients do not read, at most as LimitedLog::OfCallers says. May be empty.
    std::function<void(const std::string&)> log;
    // Called for each of these streams. Must not block. May be empty.
    std::function<void(const std::string& address, const absl::Status& why)> on_cut;
  };
  explicit RoomReports(Options options)
      : options_(std::move(options)),
        log_(Clock::Real(), LimitedLog::Limits(), options_.log),
        cut_log_(Clock::Real(), LimitedLog::OfCallers(), options_.log) {}

  // A call was refused, or a stream was given up for others.
  void NoRoom(const AuditedCaller& caller, const std::string& method, const absl::Status& why);
  // A stream is ended because it holds too much.
  void Cut(const AuditedCaller& caller, const std::string& method, const absl::Status& why);
  // A stream is ended because its client breaks the rules of the transport.
  void Fault(const AuditedCaller& caller, const std::string& method, const absl::Status& why);

 private:
  void Audit(const AuditedCaller& caller, const std::string& method, RefusalReason reason,
             const absl::Status& why);

  const Options options_;
  LimitedLog log_, cut_log_;
};

// A server's end of a stream, as the table sees it. Every function is safe from any thread.
class ServedStream {
 public:
  // Keeps the stream alive. Null: it has ended, and is about to be removed.
  virtual std::shared_ptr<ServedStream> Hold() = 0;
  // The stream has ended, though its client may not have read everything yet.
  virtual bool ending() = 0;
  // Bytes of answers that Cut would drop. 0 once ClaimCut has returned true.
  virtual size_t queued_bytes() = 0;
  // Bytes that have arrived of an incomplete message. 0 after ClaimCut, and if the transport
  // bounds them itself.
  virtual size_t incoming_bytes() { return 0; }
  // True for one caller, who then reports why the stream ends. Cut or Abort follows.
  virtual bool ClaimCut() = 0;
  // Ends the stream with `status`, even if its client does not read what was sent before.
  virtual void Cut(const absl::Status& status) = 0;
  // Drops what is queued and ends the stream with `status`.
  virtual void Abort(const absl::Status& status) = 0;

 protected:
  ~ServedStream() = default;
};

struct StreamBounds {
  const char* what = "streams (limits.max_streams)";  // for messages
  // Beyond these, streams are given up with RESOURCE_EXHAUSTED, first those that have sent nothing
  // yet: see stream_admission.h. A peer is a certificate's role and name, on one host.
  int max_streams = 1024;
  size_t max_silent_streams_per_peer = 32;
  size_t max_streams_per_peer = SIZE_MAX;
  // A stream with more bytes queued ends with RESOURCE_EXHAUSTED: its client does not read.
  size_t max_queued_bytes = size_t{1} << 30;
  // While all streams together have more bytes queued, the one with the most is ended.
  size_t max_total_queued_bytes = size_t{16} << 30;
  // The same for messages whose end has not come, over transports that do not bound them.
  size_t max_total_incoming_bytes = size_t{1} << 30;
  // Asked before more of either is held; see ByteBudget. May be null.
  ByteBudget::TakeMemory take_memory;
};

// A stream that is ended by several callers at once, for several reasons, is reported once.
class ServedStreams {
 public:
  ServedStreams(const StreamBounds& bounds, RoomReports::Options reports);

  // Adds a stream of the server `owner`, which must Remove it before destroying it. Other streams
  // may be ended to make room. RESOURCE_EXHAUSTED: there is no room, and the stream is not added.
  absl::Status Admit(ServedStream* stream, const void* owner, const AuditedCaller& caller,
                     const std::string& method);
  // The stream's first message has come.
  void Spoke(ServedStream* stream);
  // Ends and reports a stream whose first message has not come in time.
  void GiveUpSilent(ServedStream* stream, const absl::Status& why);
  // Streams that are not here are ignored.
  void Remove(ServedStream* stream);

  // Cuts the streams with the most queued until all others are within the bound. Clients that do
  // not read have the most; one that is cut by mistake connects again.
  void CutMostQueued();
  // Cuts the streams with the most of an unfinished message, until there is room for `needed` once
  // those that are cut have given their bytes back.
  void CutMostIncoming(size_t needed);
  // Cuts this stream, even if it is being ended in a gentler way: its client may not be reading.
  void Cut(ServedStream* stream, const absl::Status& why);
  // Ends and reports a stream whose client breaks the rules of the transport.
  void EndFaulty(ServedStream* stream, const absl::Status& why);

  // Ends all streams of a server.
  void AbortAll(const void* owner, const absl::Status& status);
  int CountOf(const void* owner);

  // Bytes that Send has accepted and that are not yet handed over or lost.
  ByteBudget* queued() { return &queued_; }
  ByteBudget* incoming() { return &incoming_; }
  size_t max_queued_bytes() const { return bounds_.max_queued_bytes; }
  RoomReports* reports() { return &reports_; }

 private:
  struct Entry {
    const void* owner;
    AuditedCaller caller;
    std::string method;
  };
  // Returns the entry to report when a stream is about to be ended. Nothing: the stream is gone, or
  // has been reported.
  std::optional<Entry> ClaimEntry(ServedStream* stream);
  struct Held {
    std::shared_ptr<ServedStream> stream;
    Entry entry;
  };

  // Gives the stream a place, for which others may be given up. False: there is none.
  bool TakePlace(ServedStream* stream, const AuditedCaller& caller, std::vector<Held>* given_up)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryTakePlace(ServedStream* stream, const StreamAdmission::Opener& opener,
                    std::vector<Held>* given_up) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives up a stream that has ended, but whose client does not read the rest. `of`: only one of
  // this certificate; null: of any. Looks at all streams. False: there is none.
  bool GiveUpEnded(const std::string* of, std::vector<Held>* given_up)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stream with the most bytes; null when none has any.
  struct Largest {
    std::shared_ptr<ServedStream> stream;
    size_t bytes = 0;
    size_t of_all = 0;  // streams together
  };
  Largest FindLargest(size_t (ServedStream::*bytes_of)());

  const StreamBounds bounds_;
  RoomReports reports_;
  ByteBudget queued_, incoming_;
  Mutex mutex_;
  std::map<ServedStream*, Entry> streams_ ABSL_GUARDED_BY(mutex_);
  StreamAdmission admission_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
