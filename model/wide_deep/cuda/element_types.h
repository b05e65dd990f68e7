// Calls a template for the type of an Element that is only known at run time.
#pragma once

#include "model/net/cuda/half_types.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda {

// Calls body(T{}) with the type T of `element`.
template <typename Body>
void WithType(Element element, const Body& body) {
  switch (element) {
    case Element::kF32:
      return body(float{});
    case Element::kBf16:
      return body(Bf16{});
    case Element::kFp16:
      return body(Fp16{});
  }
}

}  // namespace sluice::cuda
