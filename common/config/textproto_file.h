// Reads a textproto file and remembers the line of each field.
//
// Thread safety:
//   free functions.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"

namespace sluice {

using FieldLocations = google::protobuf::TextFormat::ParseInfoTree;

// INVALID_ARGUMENT with "name:line:column: ..." for the first error; an unknown field lists the
// fields that exist there. `locations` may be null.
absl::Status ParseTextproto(const std::string& text, const std::string& name,
                            google::protobuf::Message* message, FieldLocations* locations);

// NOT_FOUND or INVALID_ARGUMENT when the file cannot be read.
absl::Status ReadTextprotoFile(const std::string& file, google::protobuf::Message* message,
                               FieldLocations* locations);

// The line (from 1) of the field at `path`, such as "features[2].name". If the file does not have
// the field, the line of the nearest message around it; 0 if it has none of these either.
int LineOfField(const FieldLocations& locations, const google::protobuf::Message& message,
                const std::string& path);

}  // namespace sluice
