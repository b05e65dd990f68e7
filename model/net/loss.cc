#include "model/net/dense_net.h"
#include "model/net/log_loss.h"

namespace sluice {

float Sigmoid(float logit) { return static_cast<float>(SigmoidOf(logit)); }

double LogLoss(float logit, float label) { return LogLossOf(logit, label); }

}  // namespace sluice
