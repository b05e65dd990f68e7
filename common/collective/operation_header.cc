#include "common/collective/operation_header.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

const char* NameOf(uint32_t kind) {
  switch (kind) {
    case OperationHeader::kWeightedMean:
      return "weighted mean";
    case OperationHeader::kAllReduce:
      return "all-reduce";
    case OperationHeader::kReduceScatter:
      return "reduce-scatter";
    case OperationHeader::kAllGather:
      return "all-gather";
    case OperationHeader::kBroadcast:
      return "broadcast";
    case OperationHeader::kBarrier:
      return "barrier";
  }
  return "unknown operation";
}

// With its sizes, for comparison.
std::string DescribeFully(const OperationHeader& h) {
  std::string text = absl::StrCat(Describe(h), " of ", h.n,
                                  h.kind == OperationHeader::kBroadcast ? " bytes" : " elements");
  if (h.kind == OperationHeader::kBroadcast) absl::StrAppend(&text, " from rank ", h.root);
  if (h.kind == OperationHeader::kAllReduce || h.kind == OperationHeader::kReduceScatter)
    absl::StrAppend(&text, " by operation ", h.op);
  if (h.wire != 0) absl::StrAppend(&text, h.in_bf16() ? " in bfloat16" : " in an unknown form");
  return text;
}

// Only weighted means have another form than f32.
uint32_t MostWire(const OperationHeader& h) {
  return h.kind == OperationHeader::kWeightedMean ? static_cast<uint32_t>(Collective::Wire::kBf16)
                                                  : 0;
}

bool ValidWeight(double weight) {
  // Products with denormal weights lose bits, and processors that flush denormals make them 0.
  const float w = static_cast<float>(weight);
  return weight == 0 || (w > 0 && std::isnormal(w));
}

OperationHeader NewHeader(OperationHeader::Kind kind, size_t n) {
  OperationHeader header;
  header.kind = kind;
  header.n = n;
  header.step = OperationHeader::kNoStep;
  return header;
}

}  // namespace

OperationHeader WeightedMeanHeader(uint64_t step, size_t n, double weight, Collective::Wire wire) {
  OperationHeader header = NewHeader(OperationHeader::kWeightedMean, n);
  header.step = step;
  header.weight = weight;
  header.wire = static_cast<uint32_t>(wire);
  return header;
}

OperationHeader ReductionHeader(OperationHeader::Kind kind, size_t n, Collective::Op op) {
  OperationHeader header = NewHeader(kind, n);
  header.op = static_cast<uint32_t>(op);
  return header;
}

OperationHeader AllGatherHeader(size_t n) { return NewHeader(OperationHeader::kAllGather, n); }

OperationHeader BroadcastHeader(size_t bytes, uint32_t root) {
  OperationHeader header = NewHeader(OperationHeader::kBroadcast, bytes);
  header.root = root;
  return header;
}

OperationHeader BarrierHeader() { return NewHeader(OperationHeader::kBarrier, 0); }

std::string Describe(const OperationHeader& header) {
  std::string text = absl::StrCat("the ", NameOf(header.kind));
  if (header.step != OperationHeader::kNoStep) absl::StrAppend(&text, " of step ", header.step);
  return text;
}

absl::Status CheckAgreement(absl::Span<const OperationHeader> of_ranks) {
  // Headers come from other processes. Each field that is used as an index or an enumerator is
  // checked before it is compared, so that agreeing nonsense is refused, too.
  const OperationHeader& first = of_ranks[0];
  if (first.kind < OperationHeader::kWeightedMean || first.kind > OperationHeader::kBarrier ||
      first.op > static_cast<uint32_t>(Collective::Op::kMax) || first.root >= of_ranks.size() ||
      first.wire > MostWire(first)) {
    return absl::InvalidArgumentError(absl::StrCat("rank 0 asks for ", DescribeFully(first),
                                                   ", which is not possible in a group of ",
                                                   of_ranks.size()));
  }
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const OperationHeader& h = of_ranks[rank];
    if (h.kind != first.kind || h.op != first.op || h.root != first.root || h.n != first.n ||
        h.step != first.step || h.wire != first.wire) {
      return absl::InvalidArgumentError(absl::StrCat("the ranks disagree: rank 0 makes ",
                                                     DescribeFully(first), ", but rank ", rank,
                                                     " makes ", DescribeFully(h)));
    }
    if (!ValidWeight(h.weight)) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " gives ", Describe(h), " the weight ", h.weight,
                       ", which is neither 0 nor a positive normal f32 number"));
    }
  }
  // Each weight is finite, but the sum divides all values.
  if (!std::isfinite(TotalWeight(of_ranks))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sum of the weights of ", Describe(first), " is too large for f32"));
  }
  return absl::OkStatus();
}

float TotalWeight(absl::Span<const OperationHeader> of_ranks) {
  // In double and in the order of the ranks: the same divisor on all of them.
  double total = 0;
  for (const OperationHeader& h : of_ranks) total += h.weight;
  return static_cast<float>(total);
}

void GatheredHeaders::Put(size_t place, const OperationHeader& header) {
  std::memcpy(&floats_[place * kFloats], &header, sizeof header);
}

OperationHeader GatheredHeaders::At(size_t place) const {
  OperationHeader header;
  std::memcpy(static_cast<void*>(&header), &floats_[place * kFloats], sizeof header);
  return header;
}

}  // namespace sluice
