// Takes single values out of the XML and JSON answers of stores and of services that give
// credentials. Anything may be in them: what does not have the expected form is "".
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sluice {

// The text of the first element of that name, without its entities; "" when there is none.
std::string XmlText(absl::string_view xml, absl::string_view element);
// The content of each element of that name, with its entities and inner tags unchanged.
std::vector<absl::string_view> XmlElements(absl::string_view xml, absl::string_view element);
// The code of an S3 or STS error, such as "NoSuchKey": letters and digits only.
std::string ErrorCodeOf(absl::string_view xml);
// The value of the first member of that name that is a text; "" when there is none.
std::string JsonText(absl::string_view json, absl::string_view member);

}  // namespace sluice
