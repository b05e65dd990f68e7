// The Prometheus metrics of what a daemon has asked of places (stores, web servers), with the label
// place.
//
// Thread safety: safe from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/places/place_use.h"

namespace prometheus {
class Registry;
}

namespace sluice {

class PlaceMetrics {
 public:
  // `prefix`: of the names, such as "sluice_worker". `registry` outlives this.
  PlaceMetrics(prometheus::Registry* registry, const std::string& prefix);
  ~PlaceMetrics();
  // Sets the series of places by their names. A place that was not asked has none.
  void Set(const std::map<std::string, const PlaceUse*>& places);

 private:
  struct Families;
  Mutex mutex_;
  const std::unique_ptr<Families> families_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace sluice
