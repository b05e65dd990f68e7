#include "common/admin/status_json.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/printable.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace sluice {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string NumberText(double value, int digits) {
  return std::isfinite(value) ? absl::StrFormat("%.*g", digits, value) : "null";
}

// JOB_RUNNING is "running": a word with which all names of the enumeration begin says nothing.
std::string WordOf(const EnumValueDescriptor& value) {
  std::string name = value.name();
  // Values of the job file keep the spelling that they have there.
  if (value.type()->file()->name() == "proto/config.proto") return name;
  const size_t word = name.find('_') + 1;  // 0: none
  for (int i = 0; i < value.type()->value_count(); ++i) {
    if (value.type()->value(i)->name().compare(0, word, name, 0, word) != 0)
      return absl::AsciiStrToLower(name);
  }
  return absl::AsciiStrToLower(name.substr(word));
}

class Writer {
 public:
  void WriteMessage(const Message& message, int depth) {
    const Reflection& reflection = *message.GetReflection();
    bool first = true;
    text += '{';
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const bool undefined = IsUndefined(message, field);
      if (!undefined && field.has_presence() && !reflection.HasField(message, &field)) continue;
      absl::StrAppend(&text, first ? "\n" : ",\n", std::string(depth + 1, ' '), "\"", field.name(),
                      "\": ");
      first = false;
      if (undefined) {
        text += "null";
      } else if (field.is_repeated()) {
        WriteList(message, field, depth + 1);
      } else {
        WriteValue(message, field, -1, depth + 1);
      }
    }
    text += first ? "}" : absl::StrCat("\n", std::string(depth, ' '), "}");
  }

  std::string text;

 private:
  // An evaluation shows each of its metrics, also one that it does not have.
  static bool IsUndefined(const Message& message, const FieldDescriptor& field) {
    return message.GetDescriptor()->name() == "EvalMetrics" && field.has_presence() &&
           field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE &&
           !message.GetReflection()->HasField(message, &field);
  }

  void WriteList(const Message& message, const FieldDescriptor& field, int depth) {
    const int size = message.GetReflection()->FieldSize(message, &field);
    text += '[';
    for (int i = 0; i < size; ++i) {
      absl::StrAppend(&text, i == 0 ? "\n" : ",\n", std::string(depth + 1, ' '));
      WriteValue(message, field, i, depth + 1);
    }
    text += size == 0 ? "]" : absl::StrCat("\n", std::string(depth, ' '), "]");
  }

  // `index`: -1 for a field that is not repeated.
  void WriteValue(const Message& message, const FieldDescriptor& field, int index, int depth) {
    const Reflection& r = *message.GetReflection();
    const FieldDescriptor* const f = &field;
    const bool one = index < 0;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        WriteMessage(one ? r.GetMessage(message, f) : r.GetRepeatedMessage(message, f, index),
                     depth);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        absl::StrAppend(
            &text, "\"",
            WordOf(one ? *r.GetEnum(message, f) : *r.GetRepeatedEnum(message, f, index)), "\"");
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string value =
            one ? r.GetString(message, f) : r.GetRepeatedString(message, f, index);
        const bool bytes = field.type() == FieldDescriptor::TYPE_BYTES;
        text += JsonQuoted(bytes ? absl::Base64Escape(value) : value);
        break;
      }
      case FieldDescriptor::CPPTYPE_BOOL:
        text +=
            (one ? r.GetBool(message, f) : r.GetRepeatedBool(message, f, index)) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        text +=
            NumberText(one ? r.GetDouble(message, f) : r.GetRepeatedDouble(message, f, index), 17);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        text += NumberText(one ? r.GetFloat(message, f) : r.GetRepeatedFloat(message, f, index), 9);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        absl::StrAppend(&text,
                        one ? r.GetInt32(message, f) : r.GetRepeatedInt32(message, f, index));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        absl::StrAppend(&text,
                        one ? r.GetInt64(message, f) : r.GetRepeatedInt64(message, f, index));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        absl::StrAppend(&text,
                        one ? r.GetUInt32(message, f) : r.GetRepeatedUInt32(message, f, index));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        absl::StrAppend(&text,
                        one ? r.GetUInt64(message, f) : r.GetRepeatedUInt64(message, f, index));
        break;
    }
  }
};

}  // namespace

std::string StatusJson(const Message& message) {
  Writer writer;
  writer.WriteMessage(message, 0);
  return writer.text + "\n";
}

}  // namespace sluice
