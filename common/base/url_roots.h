// The data roots that are URLs (--data_root=https://HOST/...): which URLs lie below them.
//
// Thread safety: safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// True when parts of the URL's path, such as "..", may lead a server out of the folder that the URL
// begins with.
bool MayLeadOut(const std::string& url);
// True when the URL lies below one of `roots`, which have no slashes at their ends, and does not
// lead out of it.
bool IsBelowUrlRoot(const std::string& url, const std::vector<std::string>& roots);

// From now on, servers may redirect the reads of this process only to URLs below `roots`; to none
// when there are none. A daemon calls it at its start, when it has roots.
void ConfineRedirects(std::vector<std::string> roots);
// True for all URLs until ConfineRedirects is called.
bool RedirectIsAllowed(const std::string& url);

}  // namespace sluice
