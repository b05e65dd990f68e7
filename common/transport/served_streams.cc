#include "common/transport/served_streams.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/security/peer_host.h"

namespace sluice {

std::string PeerOn(const AuditedCaller& caller) {
  return absl::StrCat(caller.role, " ", caller.name, "@", HostOfAddress(caller.address));
}

std::string CertificateOf(const AuditedCaller& caller) {
  // Without a certificate nothing is shared between hosts: each is bounded as a peer.
  if (caller.role == "none" || caller.role == "unverified") return "";
  return absl::StrCat(caller.role, " ", caller.name);
}

void RoomReports::NoRoom(const AuditedCaller& caller, const std::string& method,
                         const absl::Status& why) {
  Audit(caller, method, RefusalReason::kRoom, why);
  log_.Say(absl::StrCat(method, " of ", PeerOn(caller), ": ", why.message()));
}

void RoomReports::Cut(const AuditedCaller& caller, const std::string& method,
                      const absl::Status& why) {
  Audit(caller, method, RefusalReason::kRoom, why);
  cut_log_.Say(absl::StrCat("ended ", method, " of ", caller.address, ": ", why.message()));
  if (options_.on_cut) options_.on_cut(caller.address, why);
}

void RoomReports::Fault(const AuditedCaller& caller, const std::string& method,
                        const absl::Status& why) {
  Audit(caller, method, RefusalReason::kInvalid, why);
}

void RoomReports::Audit(const AuditedCaller& caller, const std::string& method,
                        RefusalReason reason, const absl::Status& why) {
  if (options_.audit != nullptr) options_.audit->Refused(caller, method, Because(reason, why));
}

ServedStreams::ServedStreams(const StreamBounds& bounds, RoomReports::Options reports)
    : bounds_(bounds),
      reports_(std::move(reports)),
      queued_(bounds.max_total_queued_bytes, bounds.take_memory),
      incoming_(bounds.max_total_incoming_bytes, bounds.take_memory),
      admission_(static_cast<size_t>(std::max(0, bounds.max_streams)),
                 bounds.max_silent_streams_per_peer, bounds.max_streams_per_peer) {}

absl::Status ServedStreams::Admit(ServedStream* stream, const void* owner,
                                  const AuditedCaller& caller, const std::string& method) {
  const absl::Status full = absl::ResourceExhaustedError(absl::StrCat(
      "the server has its maximum of ", bounds_.max_streams, " ", bounds_.what, ", or ",
      std::min<size_t>(bounds_.max_streams_per_peer, std::max(0, bounds_.max_streams)),
      " of one peer, or ", bounds_.max_silent_streams_per_peer,
      " of one peer that have sent nothing, or its certificate has more than a quarter of all; "
      "send the first message at once, or try again in a second"));
  std::vector<Held> given_up;
  bool admitted;
  {
    MutexLock lock(&mutex_);
    streams_[stream] = {owner, caller, method};
    try {
      admitted = TakePlace(stream, caller, &given_up);
    } catch (...) {  // no memory
      admission_.Closed(stream);
      streams_.erase(stream);
      throw;
    }
    if (!admitted) streams_.erase(stream);
  }
  // Without the lock: ending a stream may call handlers, and may come back to Remove.
  for (Held& other : given_up) {
    // If it is being ended for another reason, that has been reported.
    if (other.stream->ClaimCut()) reports_.NoRoom(other.entry.caller, other.entry.method, full);
    other.stream->Cut(full);  // its client may not be reading
  }
  if (!admitted) reports_.NoRoom(caller, method, full);
  return admitted ? absl::OkStatus() : full;
}

bool ServedStreams::TakePlace(ServedStream* stream, const AuditedCaller& caller,
                              std::vector<Held>* given_up) {
  const StreamAdmission::Opener opener = {PeerOn(caller), caller.address, CertificateOf(caller)};
  // Asked before the try, which changes the counts.
  const bool for_want_of_room = admission_.full() && !admission_.PeerIsFull(opener.peer);
  if (TryTakePlace(stream, opener, given_up)) return true;
  if (!for_want_of_room) return false;
  // A certificate with many streams may take the place of an ended one of its own alone.
  const bool has_many = admission_.HasMoreThanAQuarter(opener.certificate);
  if (!GiveUpEnded(has_many ? &opener.certificate : nullptr, given_up)) return false;
  return TryTakePlace(stream, opener, given_up);
}

bool ServedStreams::TryTakePlace(ServedStream* stream, const StreamAdmission::Opener& opener,
                                 std::vector<Held>* given_up) {
  bool admitted = true;
  for (const void* id : admission_.Open(stream, opener)) {
    if (id == stream) {
      admitted = false;
      continue;
    }
    const auto it = streams_.find(const_cast<ServedStream*>(static_cast<const ServedStream*>(id)));
    if (it == streams_.end()) continue;
    if (std::shared_ptr<ServedStream> held = it->first->Hold())
      given_up->push_back({std::move(held), it->second});
  }
  return admitted;
}

bool ServedStreams::GiveUpEnded(const std::string* of, std::vector<Held>* given_up) {
  // A walk over all streams is fine: it happens only when the table is full.
  for (const auto& [stream, entry] : streams_) {
    // One that was given up before stays in the table until its server has removed it.
    if (!stream->ending() || !admission_.IsOpen(stream)) continue;
    if (of != nullptr && !admission_.IsOf(stream, *of)) continue;
    std::shared_ptr<ServedStream> held = stream->Hold();
    if (held == nullptr) continue;
    admission_.Closed(stream);
    given_up->push_back({std::move(held), entry});
    return true;
  }
  return false;
}

void ServedStreams::Spoke(ServedStream* stream) {
  MutexLock lock(&mutex_);
  admission_.Spoke(stream);
}

void ServedStreams::GiveUpSilent(ServedStream* stream, const absl::Status& why) {
  if (const std::optional<Entry> entry = ClaimEntry(stream))
    reports_.NoRoom(entry->caller, entry->method, why);
  stream->Abort(why);
}

std::optional<ServedStreams::Entry> ServedStreams::ClaimEntry(ServedStream* stream) {
  if (!stream->ClaimCut()) return std::nullopt;
  MutexLock lock(&mutex_);
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return std::nullopt;
  return it->second;
}

void ServedStreams::Remove(ServedStream* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
  admission_.Closed(stream);
}

ServedStreams::Largest ServedStreams::FindLargest(size_t (ServedStream::*bytes_of)()) {
  Largest found;
  MutexLock lock(&mutex_);
  ServedStream* largest = nullptr;
  for (const auto& [stream, entry] : streams_) {
    // Takes the stream's lock, below that of the table (see the header).
    const size_t bytes = (stream->*bytes_of)();
    found.of_all += bytes;
    if (bytes <= found.bytes) continue;
    found.bytes = bytes;
    largest = stream;
  }
  // One that is about to be removed holds nothing any more.
  if (largest != nullptr) found.stream = largest->Hold();
  return found;
}

void ServedStreams::CutMostQueued() {
  // Again until all fits: others may have queued more meanwhile. A stream that is cut holds nothing
  // any more, so this ends.
  while (true) {
    const Largest largest = FindLargest(&ServedStream::queued_bytes);
    if (largest.of_all <= queued_.max() || largest.stream == nullptr) return;
    Cut(largest.stream.get(),
        absl::ResourceExhaustedError(absl::StrCat(
            "this stream has ", largest.bytes,
            " bytes queued, the most of all, and all together have more than ", queued_.max(),
            " (limits.max_queued_mib, of streams, or what memory the process has left); read "
            "faster, or connect again")));
  }
}

void ServedStreams::CutMostIncoming(size_t needed) {
  while (true) {
    const Largest largest = FindLargest(&ServedStream::incoming_bytes);
    if (largest.of_all + needed <= incoming_.max() || largest.stream == nullptr) return;
    Cut(largest.stream.get(),
        absl::ResourceExhaustedError(absl::StrCat(
            "this stream has ", largest.bytes,
            " bytes of a message whose end has not come, the most of all, and all together have ",
            incoming_.max(), "; send whole messages, or connect again")));
  }
}

void ServedStreams::Cut(ServedStream* stream, const absl::Status& why) {
  if (const std::optional<Entry> entry = ClaimEntry(stream))
    reports_.Cut(entry->caller, entry->method, why);
  stream->Cut(why);
}

void ServedStreams::EndFaulty(ServedStream* stream, const absl::Status& why) {
  if (const std::optional<Entry> entry = ClaimEntry(stream))
    reports_.Fault(entry->caller, entry->method, why);
  stream->Abort(why);
}

void ServedStreams::AbortAll(const void* owner, const absl::Status& status) {
  std::vector<std::shared_ptr<ServedStream>> streams;
  {
    MutexLock lock(&mutex_);
    for (const auto& [stream, entry] : streams_) {
      if (entry.owner != owner) continue;
      if (std::shared_ptr<ServedStream> held = stream->Hold()) streams.push_back(std::move(held));
    }
  }
  // Held above, so that none ends meanwhile; aborted without the lock, as in Admit.
  for (const auto& stream : streams) stream->Abort(status);
}

int ServedStreams::CountOf(const void* owner) {
  MutexLock lock(&mutex_);
  return static_cast<int>(
      std::count_if(streams_.begin(), streams_.end(),
                    [owner](const auto& stream) { return stream.second.owner == owner; }));
}

}  // namespace sluice
