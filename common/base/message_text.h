// The strings of a message and of the messages in it, whatever its type. Fields of type `bytes` are
// not text.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <functional>
#include <string>

namespace google::protobuf {
class FieldDescriptor;
class Message;
}  // namespace google::protobuf

namespace sluice {

// Calls see(field, text) for each string until it returns false. Returns whether all returned true.
using SeeText =
    std::function<bool(const google::protobuf::FieldDescriptor* field, const std::string& text)>;
bool EachText(const google::protobuf::Message& message, const SeeText& see);

// Replaces each string by what `change` returns.
using ChangeText = std::function<std::string(const google::protobuf::FieldDescriptor* field,
                                             const std::string& text)>;
void ChangeTexts(google::protobuf::Message* message, const ChangeText& change);

// Makes each string fit for one line of a terminal (PrintableLine).
void MakePrintable(google::protobuf::Message* message);

}  // namespace sluice
