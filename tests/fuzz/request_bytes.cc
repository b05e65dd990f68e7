// Parses bytes as the request of one of the calls of the scheduler or of a pserver: the first byte
// chooses it.
//
// Checks: a message takes no more memory than was estimated before it was parsed; the bound is kept
// to; what protobuf takes is refused for its size alone.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/bounded_parse.h"
#include "proto/pserver.pb.h"
#include "proto/scheduler.pb.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

using google::protobuf::Message;
using google::protobuf::ServiceDescriptor;

constexpr size_t kNoLimit = SIZE_MAX / 2;
constexpr size_t kBound = 4096;

void AddRequests(const ServiceDescriptor& service, std::vector<const Message*>* requests) {
  for (int i = 0; i < service.method_count(); ++i) {
    const auto* const method = service.method(i);
    if (method->client_streaming()) continue;
    requests->push_back(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->input_type()));
  }
}

const std::vector<const Message*>& Requests() {
  static const std::vector<const Message*>& requests = *[] {
    google::protobuf::SetLogHandler(nullptr);  // of strings that are not UTF-8
    auto* const all = new std::vector<const Message*>;
    AddRequests(*PollRequest::descriptor()->file()->FindServiceByName("Scheduler"), all);
    AddRequests(*SaveShardsRequest::descriptor()->file()->FindServiceByName("Pserver"), all);
    return all;
  }();
  return requests;
}

void Parse(const Message& prototype, const std::string& wire) {
  const auto estimate = EstimateParsedBytes(wire, prototype, kNoLimit);
  const std::unique_ptr<Message> message(prototype.New());
  const bool parsed = message->ParseFromString(wire);
  if (parsed) {
    FUZZ_CHECK(estimate.ok());
    FUZZ_CHECK(message->SpaceUsedLong() <= *estimate);
  }
  const std::unique_ptr<Message> bounded(prototype.New());
  const absl::Status within = ParseWithin(kBound, wire, bounded.get());
  FUZZ_CHECK(within.ok() == (parsed && *estimate <= kBound));
  if (within.ok()) {
    FUZZ_CHECK(bounded->SpaceUsedLong() <= kBound);
  } else {
    FUZZ_CHECK(within.code() == absl::StatusCode::kInvalidArgument);
    // Bytes that are too large for the bound are not parsed at all.
    FUZZ_CHECK((estimate.ok() && *estimate <= kBound) || bounded->ByteSizeLong() == 0);
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto& requests = sluice::Requests();
  sluice::Parse(*requests[data[0] % requests.size()],
                std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  return 0;
}
