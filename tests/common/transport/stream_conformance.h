// What every transport must do: one suite, instantiated in the test of each.
#pragma once

#include "tests/common/transport/stream_end_conformance.h"
#include "tests/common/transport/stream_message_conformance.h"
#include "tests/common/transport/transport_harness.h"
