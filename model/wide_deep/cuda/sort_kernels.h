// Stable radix sort of the batch's keys by unique row. The result lists the cells that touch each
// row, in batch order.
//
// A pass sorts by kSortBits bits, the least significant first. Each block of kSortThreads threads
// has a tile of kSortTile keys; each thread has kSortItems consecutive keys. A pass counts the
// digits of each tile, scans the counts (digit major) and places the keys. Each thread counts and
// places its keys one after another, so equal keys keep their order and nothing is atomic.
//
// Thread safety: each function is called by one thread of a block; the calls of a phase touch
// different memory.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sluice::cuda {

constexpr uint32_t kSortBits = 6;
constexpr uint32_t kSortDigits = 1u << kSortBits;
constexpr uint32_t kSortThreads = 128;
constexpr uint32_t kSortItems = 16;
constexpr uint32_t kSortTile = kSortThreads * kSortItems;
// Distance between the counters of two digits. It is not a multiple of the number of memory banks,
// so threads that each scan a digit do not collide.
constexpr uint32_t kSortStride = kSortThreads + 2;

SLUICE_HD inline uint32_t SortTiles(uint32_t keys) { return (keys + kSortTile - 1) / kSortTile; }
// Passes that order rows in [0, rows).
SLUICE_HD inline uint32_t SortPasses(uint32_t rows) {
  uint32_t passes = 1;
  for (uint32_t top = rows > 0 ? (rows - 1) >> kSortBits : 0; top != 0; top >>= kSortBits) ++passes;
  return passes;
}
SLUICE_HD inline uint32_t DigitOf(uint32_t row, uint32_t pass) {
  return (row >> (pass * kSortBits)) & (kSortDigits - 1);
}

// Sets cells[k] = cell for each key k of the cell (example * num_slots + slot).
SLUICE_HD inline void ExpandCell(const uint32_t* key_offsets, uint32_t cell, uint32_t* cells) {
  for (uint32_t k = key_offsets[cell]; k < key_offsets[cell + 1]; ++k) cells[k] = cell;
}

// Counts the thread's keys. counters: [kSortDigits][kSortStride], zero in column `thread`.
SLUICE_HD inline void CountKeys(const uint32_t* rows, uint32_t keys, uint32_t pass, uint32_t tile,
                                uint32_t thread, uint16_t* counters) {
  const uint32_t begin = tile * kSortTile + thread * kSortItems;
  for (uint32_t k = begin; k < begin + kSortItems && k < keys; ++k)
    ++counters[DigitOf(rows[k], pass) * kSortStride + thread];
}

// Replaces each counter of a digit by the sum of the counters before it; returns the tile's count.
SLUICE_HD inline uint32_t ScanDigit(uint32_t digit, uint16_t* counters) {
  uint32_t sum = 0;
  for (uint32_t t = 0; t < kSortThreads; ++t) {
    uint16_t* counter = counters + digit * kSortStride + t;
    const uint32_t count = *counter;
    *counter = static_cast<uint16_t>(sum);
    sum += count;
  }
  return sum;
}

// Places the thread's keys. counters: after ScanDigit. first: [kSortDigits], the position of the
// tile's first key of each digit.
SLUICE_HD inline void PlaceKeys(const uint32_t* rows, const uint32_t* cells, uint32_t keys,
                                uint32_t pass, uint32_t tile, uint32_t thread,
                                const uint32_t* first, uint16_t* counters, uint32_t* out_rows,
                                uint32_t* out_cells) {
  const uint32_t begin = tile * kSortTile + thread * kSortItems;
  for (uint32_t k = begin; k < begin + kSortItems && k < keys; ++k) {
    const uint32_t row = rows[k], digit = DigitOf(row, pass);
    const uint32_t to = first[digit] + counters[digit * kSortStride + thread]++;
    out_rows[to] = row;
    out_cells[to] = cells[k];
  }
}

// The scan of counts [kSortDigits][tiles] by `threads` threads of one block: each thread sums its
// stretch of the counts, the sums are scanned, and each thread then writes its stretch.
SLUICE_HD inline uint32_t StretchBegin(uint32_t count, uint32_t threads, uint32_t thread) {
  const uint32_t each = (count + threads - 1) / threads, begin = each * thread;
  return begin < count ? begin : count;
}
SLUICE_HD inline uint32_t SumStretch(const uint32_t* counts, uint32_t begin, uint32_t end) {
  uint32_t sum = 0;
  for (uint32_t i = begin; i < end; ++i) sum += counts[i];
  return sum;
}
SLUICE_HD inline void ScanStretch(uint32_t* counts, uint32_t begin, uint32_t end, uint32_t before) {
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

// The first position in the sorted rows whose row is at least `row`.
SLUICE_HD inline uint32_t FirstOfRow(const uint32_t* rows, uint32_t keys, uint32_t row) {
  uint32_t begin = 0, end = keys;
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (rows[middle] < row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace sluice::cuda
