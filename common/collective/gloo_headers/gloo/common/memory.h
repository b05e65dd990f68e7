// The pointers to buffers that the headers of Gloo's TCP transport mention. Debian's libgloo-dev
// leaves this header of Gloo out; cmake/gloo.cmake uses this one only in that case.
//
// Invariants: the layout is Gloo's. Nothing of ours uses these pointers, except that gloo_pair.cc
// copies some.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr final {
 private:
  std::shared_ptr<T> pointer_;
};

template <typename T>
class WeakNonOwningPtr final {
 private:
  std::weak_ptr<T> pointer_;
};

template <typename T>
class ShareableNonOwningPtr final {
 private:
  std::shared_ptr<T> pointer_;
};

}  // namespace gloo
