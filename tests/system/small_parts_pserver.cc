// small_parts_pserver: sluice-pserver that uploads what has more than 4 KiB in parts of that size.
#include <cstdlib>
#include <optional>
#include <string>

#include "common/places/curl_transport.h"
#include "common/places/places_env.h"
#include "tests/system/pserver_main.h"

int main(int argc, char** argv) {
  sluice::CurlTransport transport("");
  sluice::PlacesEnv::Options options;
  options.base = sluice::Env::Real();
  options.clock = sluice::Clock::Real();
  options.transport = &transport;
  options.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  options.part_bytes = 4 << 10;
  sluice::PlacesEnv places(options);
  return sluice::RunPserver("a pserver that uploads in small parts", &places, argc, argv);
}
