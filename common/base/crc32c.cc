#include "common/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sluice {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
constexpr int kLanes = 8;                     // bytes per round of the portable path

using Tables = std::array<std::array<uint32_t, 256>, kLanes>;

// tables[k][b] is the checksum of byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (int k = 1; k < kLanes; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t Portable(uint32_t state, const uint8_t* p, size_t n) {
  // Slicing by 8: eight independent look-ups a round instead of eight that wait for each other.
  for (; n >= kLanes; p += kLanes, n -= kLanes) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    word ^= state;
    state = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      state ^= kTables[kLanes - 1 - lane][(word >> (8 * lane)) & 255];
    }
  }
  for (; n > 0; ++p, --n) state = (state >> 8) ^ kTables[0][(state ^ *p) & 255];
  return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Accelerated(uint32_t state, const uint8_t* p, size_t n) {
  uint64_t wide = state;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
  }
  state = static_cast<uint32_t>(wide);
  for (; n > 0; ++p, --n) state = _mm_crc32_u8(state, *p);
  return state;
}
#endif

// The product of two polynomials modulo the CRC's polynomial. Bits are reflected: bit 31 is x^0.
uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

using Engine = uint32_t (*)(uint32_t, const uint8_t*, size_t);

Engine ChooseEngine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Accelerated;
#endif
  return Portable;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t n) {
  // Chosen when it is first needed, because constructors of other files may compute checksums.
  static const Engine engine = ChooseEngine();
  return ~engine(~crc, static_cast<const uint8_t*>(data), n);
}

// Computes x^(8 * bytes) by repeated squaring.
uint32_t ShiftCrc32c(uint64_t bytes) {
  uint32_t shift = uint32_t{1} << 31, power = uint32_t{1} << 23;  // 1, x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) shift = Multiply(shift, power);
    power = Multiply(power, power);
  }
  return shift;
}

uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint32_t shift_of_b) {
  // Appending b's bytes shifts a by as many; the checksum is linear, so the rest adds.
  return Multiply(a, shift_of_b) ^ b;
}

uint32_t ExtendCrc32cPortableForTest(uint32_t crc, const void* data, size_t n) {
  return ~Portable(~crc, static_cast<const uint8_t*>(data), n);
}

}  // namespace sluice
