// The receiving half of a stream through shared memory: takes frames out of the ring.
//
// A frame of at most half of the ring waits there until it is complete. The listener gets it where
// it lies, and its room is given back after the call. Nothing is allocated for it.
//
// Longer frames are copied into memory of this process, in pieces, while they come. A peer that
// announces a long message makes the receiver allocate no more than a chunk ahead of what it sends.
//
// Thread safety: used by the stream's thread alone; incoming_bytes is safe from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/base/lent_message.h"
#include "common/base/slice.h"
#include "common/shm_transport/byte_ring.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/served_streams.h"

namespace sluice {

class ShmReceiver {
 public:
  class Listener {
   public:
    virtual void OnMessage(Message message) = 0;
    // A message that lies in the ring, where the peer can still write it. Nothing of it may be held
    // when the call returns: that is a broken invariant of this process, which ends then.
    virtual void OnLent(const LentMessage& message) = 0;
    // The peer sends nothing more. Nothing is read after this.
    virtual void OnEnd() = 0;
    // The peer broke the rules of the ring or its bounds.
    virtual void OnFault(const absl::Status& fault) = 0;
    // True: nothing more must be read.
    virtual bool failed() const = 0;

   protected:
    ~Listener() = default;
  };
  struct Bounds {
    size_t max_message_bytes = 0;  // a longer message is a fault, RESOURCE_EXHAUSTED
    size_t max_first_message_bytes = SIZE_MAX;
    // Bounds the memory of unfinished messages of all streams. May be null; outlives the receiver.
    ServedStreams* served = nullptr;
  };

  // `link` stays open until Finish, and `listener` longer.
  ShmReceiver(const ShmLink& link, bool from_client, const Bounds& bounds, Listener* listener);

  // Reads what there is, a part of it if it is much. False: nothing came that it could use.
  bool Read();
  // Announces that nobody looks at the ring any more until the socket is readable. False: there is
  // something to read after all.
  bool Sleep();
  // Takes the announcement back.
  void WakeUp() { reader_.CancelSleep(); }
  // Only what is there now is still read: whoever holds the memory could write to it for ever.
  void SetPeerGone();
  // Drops an unfinished frame. Nothing is read after this.
  void Finish();

  uint64_t frames() const { return frames_; }  // that were read to their end
  // The memory of the unfinished message. Bytes that are still in the ring do not count.
  size_t incoming_bytes() const { return incoming_bytes_.load(std::memory_order_relaxed); }

 private:
  // Reads the head of a frame, or some of its bytes. 0: there is too little to read.
  size_t ReadSome(size_t available);
  void BeginFrame();
  // False: there is no memory for it now. Others are cut, so there soon is.
  bool BeginChunk();
  void EndFrame();
  void LendFrame();
  size_t bytes_wanted() const;  // so many must be there before there is something to do
  void ReleaseIncoming();
  void PublishRead();
  void Tell(PacketKind kind);

  const int socket_;
  const Bounds bounds_;
  Listener* const listener_;
  RingReader reader_;
  FrameHead head_;
  bool in_frame_ = false;
  bool lends_frame_ = false;  // the frame waits in the ring until it is complete
  uint64_t frame_left_ = 0;   // bytes of the frame that are not read yet
  size_t frame_seen_ = 0;     // of a frame that is to be lent: the bytes that were there last
  const size_t max_lent_bytes_;
  const std::shared_ptr<const void> loan_;  // owns lent slices, so that those that are held show
  Message incoming_;                        // the full chunks of the frame
  std::shared_ptr<uint8_t[]> chunk_;
  size_t chunk_size_ = 0, chunk_filled_ = 0;
  // The memory of the frame's chunks, which counts against the bound of all streams. Relaxed: other
  // threads only compare the figures of streams.
  std::atomic<size_t> incoming_bytes_{0};
  bool read_unpublished_ = false;
  uint64_t frames_ = 0;
  bool ended_ = false;  // OnEnd or Finish was called
  bool peer_gone_ = false;
  size_t left_by_peer_ = 0;  // bytes to read that the peer had written before it went
};

}  // namespace sluice
