// The suite that every transport must pass. The test of each transport instantiates it.
#pragma once

#include "tests/common/transport/stream_end_conformance.h"
#include "tests/common/transport/stream_message_conformance.h"
#include "tests/common/transport/transport_harness.h"
