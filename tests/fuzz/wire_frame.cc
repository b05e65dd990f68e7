// Decodes a message of the data plane as a frame, a reply and a replica message, cut into slices of
// any size, and reads its payload in both wire forms.
//
// Checks: what decodes is the same after encoding it again, and the values of a payload do not
// depend on where its slices end.
#include <algorithm>
#include <vector>

#include "common/wire/frame.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

Message Cut(const std::string& bytes, size_t slice_bytes) {
  Message message;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes)
    message.push_back(Slice::FromString(bytes.substr(at, slice_bytes)));
  return message;
}

std::string RestOf(PayloadReader payload) {
  std::string bytes(payload.remaining(), '\0');
  payload.Copy(bytes.data(), bytes.size());
  return bytes;
}

void ReadPayload(const PayloadReader& payload, const std::string& bytes, uint32_t wire_bytes) {
  const size_t n = bytes.size() / wire_bytes;
  std::vector<float> cut(n), whole(n);
  PayloadReader in_slices = payload, in_one({Slice::FromString(bytes)}), only_checked = payload;
  const bool finite = ReadValues(&in_slices, wire_bytes, n, cut.data());
  FUZZ_CHECK(ReadValues(&in_one, wire_bytes, n, whole.data()) == finite);
  FUZZ_CHECK(CheckValues(&only_checked, wire_bytes, n) == finite);
  FUZZ_CHECK(in_slices.remaining() == in_one.remaining());
  FUZZ_CHECK(!finite || cut == whole);
  FUZZ_CHECK(finite == AllFinite(whole.data(), n));
  PayloadReader too_short = payload;
  FUZZ_CHECK(!ReadValues(&too_short, wire_bytes, n + 1, std::vector<float>(n + 1).data()));
}

template <class Decoded, class Encode>
void Check(absl::StatusOr<Decoded> decoded, absl::StatusOr<Decoded> (*decode)(Message),
           Encode encode, uint32_t wire_bytes) {
  if (!decoded.ok()) {
    FUZZ_CHECK(decoded.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const std::string payload = RestOf(decoded->payload);
  ReadPayload(decoded->payload, payload, wire_bytes);
  const auto again = decode(encode(decoded->header, {Slice::FromString(payload)}));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->header.SerializeAsString() == decoded->header.SerializeAsString());
  FUZZ_CHECK(RestOf(again->payload) == payload);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT
  FuzzedDataProvider input(data, size);
  const size_t slice_bytes = input.ConsumeIntegralInRange<size_t>(1, 96);
  const uint32_t wire_bytes = input.ConsumeBool() ? 4 : 2;
  const Message message = Cut(input.ConsumeRemainingBytesAsString(), slice_bytes);
  Check(DecodeFrame(message), &DecodeFrame, &EncodeFrame, wire_bytes);
  Check(DecodeReply(message), &DecodeReply, &EncodeReply, wire_bytes);
  Check(DecodeReplica(message), &DecodeReplica, &EncodeReplica, wire_bytes);
  return 0;
}
