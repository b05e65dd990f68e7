// Thrown when a table cannot take a change: memory has run out, or the change needs a row beyond
// TableConfig.max_rows.
//
// NoRoom is a bad_alloc, so code that handles a change cut short by memory also handles it. Its
// text names the table and says what to do.
//
// Thread safety: as std::exception.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/shards/shard.h"

namespace sluice {

class NoRoom : public std::bad_alloc {
 public:
  explicit NoRoom(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

// Runs `change` on the shard. A bad_alloc that is not yet a NoRoom becomes one.
template <typename Change>
void NamingTable(const Shard& shard, Change change) {
  try {
    change();
  } catch (const NoRoom&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw NoRoom(
        absl::StrCat("no memory for table '", shard.table().name(), "' (shard ", shard.index(),
                     "); use more pservers or a machine with more memory",
                     shard.table().sparse() ? ", or limit the table's rows (max_rows)" : ""));
  }
}

}  // namespace sluice
