// CRC-32C (Castagnoli), the checksum of files and frames.
//
// Uses the SSE 4.2 instruction where the processor has it; the values are the same.
//
// Source: RFC 3720, appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

// The checksum of the bytes that `crc` covers, followed by [data, data + n). Start with crc = 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t n);

inline uint32_t Crc32c(const void* data, size_t n) { return ExtendCrc32c(0, data, n); }

// Combine the checksums of two pieces without reading their bytes:
//   Crc32c(A followed by B) == CombineCrc32c(Crc32c(A), Crc32c(B), ShiftCrc32c(bytes of B))
// A shift takes about a microsecond to compute: reuse it for pieces of the same length.
uint32_t ShiftCrc32c(uint64_t bytes);
uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint32_t shift_of_b);

// The implementation without special instructions, for comparison.
uint32_t ExtendCrc32cPortableForTest(uint32_t crc, const void* data, size_t n);

}  // namespace sluice
