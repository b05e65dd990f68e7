// Sends the programs to hosts that lack them (`sluice launch --ship`): what `./dev bundle` packs of
// the programs that run here, with the shared libraries that they load.
//
// They are kept on a host in ~/.cache/sluice/DIGEST and sent only once; the three newest stay.
//
// Thread safety: free functions; one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/hosts/host_link.h"
#include "cli/hosts/host_list.h"
#include "common/base/clock.h"

namespace sluice::cli {

struct Shipment {
  std::string digest;   // SHA-256 over the names and contents of its files, in hexadecimal
  std::string archive;  // a tar file, compressed with gzip
};

// The shared libraries in the output of the loader (LD_TRACE_LOADED_OBJECTS) that a shipment takes
// along: all but the C library's, which belong to the host's loader, and those of CUDA.
std::vector<std::string> LibrariesToShip(const std::string& loader_output);

// Packs the programs in `folder` with their libraries. `script`: a Python program of the user, with
// whose folder goes the package sluice; "": none. INVALID_ARGUMENT: the folder of the script is too
// large, or there is no package. INTERNAL: `tar` or the loader has failed.
absl::StatusOr<Shipment> PackShipment(const std::string& folder, const std::string& script = "");

// The command of sh that runs the guard of a shipment that a host has.
std::string ShippedGuardCommand(const std::string& digest);

// Sends the shipment to the hosts that do not have it, to some at the same time. `note` gets a line
// when something is sent. INVALID_ARGUMENT: what went wrong, a line for each host. CANCELLED:
// StopIsPending.
absl::Status Ship(const std::vector<HostSpec>& hosts, const Shipment& shipment, HostLinks* links,
                  Clock* clock, const std::function<void(const std::string&)>& note);

}  // namespace sluice::cli
