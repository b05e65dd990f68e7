#include "scheduler/route_change.h"

namespace sluice {

void PublishRouteChange(Job* job, Membership* members, CoreEffects* effects) {
  job->spec.clear_incarnations();
  for (const RankSlot& slot : job->ranks) job->spec.add_incarnations(slot.incarnation());
  Route* const route = job->spec.mutable_route();
  route->set_generation(route->generation() + 1);
  for (const uint64_t id : job->pservers) {
    if (Member* member = members->ById(id)) effects->DesiredChanged(member);
  }
}

}  // namespace sluice
