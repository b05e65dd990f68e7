#include "worker/train/trainer.h"

#include "worker/train/async_trainer.h"
#include "worker/train/geo_trainer.h"
#include "worker/train/sync_trainer.h"

namespace sluice {

std::unique_ptr<Trainer> Trainer::Create(const JobContext& context) {
  switch (context.mode) {
    case Mode::kSync:
      return std::make_unique<SyncTrainer>(context);
    case Mode::kGeo:
      return std::make_unique<GeoTrainer>(context);
    case Mode::kAsync:
      break;
  }
  return std::make_unique<AsyncTrainer>(context);
}

}  // namespace sluice
