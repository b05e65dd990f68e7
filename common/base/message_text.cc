#include "common/base/message_text.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <vector>

#include "common/base/printable.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

// The present fields that are or may hold strings.
std::vector<const FieldDescriptor*> FieldsWithText(const google::protobuf::Message& message) {
  std::vector<const FieldDescriptor*> fields, with_text;
  // Only the fields that are set: messages may be large, and most of them empty.
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() == FieldDescriptor::TYPE_STRING ||
        field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      with_text.push_back(field);
    }
  }
  return with_text;
}

bool IsText(const FieldDescriptor* field) { return field->type() == FieldDescriptor::TYPE_STRING; }

}  // namespace

bool EachText(const google::protobuf::Message& message, const SeeText& see) {
  const Reflection& reflection = *message.GetReflection();
  std::string scratch;
  for (const FieldDescriptor* field : FieldsWithText(message)) {
    if (!field->is_repeated()) {
      const bool go_on = IsText(field)
                             ? see(field, reflection.GetStringReference(message, field, &scratch))
                             : EachText(reflection.GetMessage(message, field), see);
      if (!go_on) return false;
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      const bool go_on =
          IsText(field)
              ? see(field, reflection.GetRepeatedStringReference(message, field, i, &scratch))
              : EachText(reflection.GetRepeatedMessage(message, field, i), see);
      if (!go_on) return false;
    }
  }
  return true;
}

void ChangeTexts(google::protobuf::Message* message, const ChangeText& change) {
  const Reflection& reflection = *message->GetReflection();
  for (const FieldDescriptor* field : FieldsWithText(*message)) {
    if (!field->is_repeated()) {
      if (IsText(field)) {
        reflection.SetString(message, field, change(field, reflection.GetString(*message, field)));
      } else {
        ChangeTexts(reflection.MutableMessage(message, field), change);
      }
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      if (IsText(field)) {
        reflection.SetRepeatedString(
            message, field, i, change(field, reflection.GetRepeatedString(*message, field, i)));
      } else {
        ChangeTexts(reflection.MutableRepeatedMessage(message, field, i), change);
      }
    }
  }
}

void MakePrintable(google::protobuf::Message* message) {
  ChangeTexts(message,
              [](const FieldDescriptor*, const std::string& text) { return PrintableLine(text); });
}

}  // namespace sluice
