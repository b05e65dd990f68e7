#include "common/security/handshake_watch.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/security/audit_log.h"
#include "common/security/handshake_failure.h"

namespace sluice {
namespace {

constexpr char kUnknown[] = "unknown";

// The client whose connection this thread has handed over last.
thread_local std::string t_client = kUnknown;

// The record of a session. OpenSSL uses a session on one thread at a time.
struct Note {
  std::string address;
  bool finished = false;  // the handshake
  int sent_alert = HandshakeEnd::kNoAlert, received_alert = HandshakeEnd::kNoAlert;
};

// Gets each record and message of a session. It stays after the handshake: OpenSSL calls it twice
// for one record, and does not expect it to be gone the second time.
void OnMessage(int sent, int, int type, const void* bytes, size_t size, SSL* session, void* note) {
  constexpr int kFatal = 2;
  Note* const to = static_cast<Note*>(note);
  if (SSL_is_init_finished(session)) {
    to->finished = true;
    return;
  }
  if (type != SSL3_RT_ALERT || size < 2) return;
  const auto* const alert = static_cast<const unsigned char*>(bytes);
  if (alert[0] != kFatal) return;
  (sent != 0 ? to->sent_alert : to->received_alert) = alert[1];
}

}  // namespace

// The watches of the process.
class HandshakeWatches {
 public:
  // Never destroyed: sessions may be freed while the process ends.
  static HandshakeWatches& OfProcess() {
    static HandshakeWatches& watches = *new HandshakeWatches;
    return watches;
  }

  void Add(const HandshakeWatch* watch) {
    MutexLock lock(&mutex_);
    watches_.insert(watch);
  }
  void Remove(const HandshakeWatch* watch) {
    MutexLock lock(&mutex_);
    watches_.erase(watch);
    while (telling_ > 0) told_.Wait(&mutex_);
  }

 private:
  HandshakeWatches() { SSL_get_ex_new_index(0, nullptr, &OnNew, nullptr, &OnFree); }

  static void OnNew(void* session, void*, CRYPTO_EX_DATA* data, int index, long, void*) {
    Note* const note = new Note;
    note->address = t_client;
    CRYPTO_set_ex_data(data, index, note);
    SSL_set_msg_callback(static_cast<SSL*>(session), &OnMessage);
    SSL_set_msg_callback_arg(static_cast<SSL*>(session), note);
  }

  static void OnFree(void* session, void* note, CRYPTO_EX_DATA*, int, long, void*) {
    const std::unique_ptr<Note> owned(static_cast<Note*>(note));
    if (owned != nullptr) OfProcess().OnEnd(*static_cast<SSL*>(session), *owned);
  }

  void OnEnd(const SSL& session, const Note& note) {
    if (note.finished || !SSL_is_server(&session) || SSL_get_state(&session) == TLS_ST_OK) return;
    BIO* const transport = SSL_get_rbio(&session);
    const bool is_of_grpc = transport != nullptr && BIO_method_type(transport) == BIO_TYPE_BIO;
    if (!is_of_grpc || BIO_number_read(transport) == 0) return;
    HandshakeEnd end;
    end.verify_result = SSL_get_verify_result(&session);
    end.state = SSL_get_state(&session);
    end.given_up = std::strcmp(SSL_state_string_long(&session), "error") == 0;
    end.sent_alert = note.sent_alert;
    end.received_alert = note.received_alert;
    Tell(note.address, HandshakeFailure(end));
  }

  void Tell(const std::string& address, const std::string& why) {
    std::set<const HandshakeWatch*> watches;
    {
      MutexLock lock(&mutex_);
      watches = watches_;
      ++telling_;  // keeps the watches
    }
    for (const HandshakeWatch* watch : watches) watch->on_failed_(address, why);
    MutexLock lock(&mutex_);
    if (--telling_ == 0) told_.NotifyAll();
  }

  Mutex mutex_;
  CondVar told_;
  std::set<const HandshakeWatch*> watches_ ABSL_GUARDED_BY(mutex_);
  int telling_ ABSL_GUARDED_BY(mutex_) = 0;
};

HandshakeWatch::HandshakeWatch(OnFailed on_failed) : on_failed_(std::move(on_failed)) {
  HandshakeWatches::OfProcess().Add(this);
}

HandshakeWatch::~HandshakeWatch() { HandshakeWatches::OfProcess().Remove(this); }

void HandshakeWatch::NoteClient(const std::string& address) { t_client = address; }

std::unique_ptr<HandshakeWatch> AuditFailedHandshakes(AuditLog* audit) {
  // Any client can make handshakes fail. Recording that on gRPC's thread would let a hung disk stop
  // the port.
  const auto queue = std::make_shared<AuditQueue>(audit);
  return std::make_unique<HandshakeWatch>(
      [queue](const std::string& address, const std::string& why) {
        queue->Refused(CallerOf(absl::UnauthenticatedError(why), address), kHandshakeMethod,
                       RefusalReason::kHandshake, why);
      });
}

}  // namespace sluice
