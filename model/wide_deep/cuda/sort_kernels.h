// Stable radix sort of the batch's keys by unique row: which cells touch a row, in batch order.
//
// kSortBits bits a pass, least significant first. A tile of kSortTile keys belongs to a block of
// kSortThreads threads, each with kSortItems keys in a row. A pass: count the digits of each tile;
// scan the counts (digit major); place. Each thread counts and places its keys one after another,
// so the order is that of the keys and nothing is atomic.
//
// Thread safety: functions of one thread of a block; the calls of a phase touch different memory.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sluice::cuda {

constexpr uint32_t kSortBits = 6;
constexpr uint32_t kSortDigits = 1u << kSortBits;
constexpr uint32_t kSortThreads = 128;
constexpr uint32_t kSortItems = 16;
constexpr uint32_t kSortTile = kSortThreads * kSortItems;
// Counters of a digit; not a multiple of the banks, for threads that each scan a digit.
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

// cells[k] = the cell (example * num_slots + slot) of key k, for one cell.
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

// Replaces the counters of a digit by the sums of those before; returns the tile's count.
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

// Places the thread's keys. counters: after ScanDigit; first: [kSortDigits], where the tile's keys
// of a digit go.
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

// The scan of counts [kSortDigits][tiles] by `threads` threads of one block: each sums its stretch,
// the sums are scanned, each writes its stretch.
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

// The first position whose row is at least `row`, in sorted rows.
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
