// Lets Gloo exchange values over a connection that was made, and checked, without it.
//
// Gloo's own pairs listen for whoever connects first, and end the process when bytes that they get
// are malformed. These pairs get their connection from TcpRendezvous, and malformed bytes close it.
//
// Thread safety: free functions; each as Gloo's, whose thread reads the connection.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/shared_memory/file_descriptor.h"

namespace gloo::transport {
class Context;
}

namespace sluice {

// A context of Gloo without pairs and without open ports. Throws std::exception.
std::shared_ptr<gloo::transport::Context> MakeGlooContext(uint32_t self, uint32_t ranks,
                                                          absl::Duration timeout);

// Makes the pair of `rank`, which is connected at once. Throws std::exception.
// REQUIRES: `context` comes from MakeGlooContext.
void AddGlooPair(gloo::transport::Context* context, uint32_t rank, FileDescriptor connection);

}  // namespace sluice
