// Tests of the device: they say why they do nothing where there is none.
#pragma once

#include "gtest/gtest.h"
#include "model/net/cuda/cuda_device.h"

// Skips the test, with the reason, when no CUDA device can be used.
#define SLUICE_NEEDS_GPU()                                                           \
  if (const auto sluice_devices = ::sluice::ListCudaDevices(); !sluice_devices.ok()) \
  GTEST_SKIP() << "needs a GPU: " << sluice_devices.status().message()
