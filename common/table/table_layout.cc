#include "common/table/table_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Bounds on what a config may ask for: a shard costs memory at the scheduler and in every Route.
constexpr uint64_t kMaxShards = 1 << 20;
constexpr uint64_t kMaxBlockElements = kMaxBlockBytes / sizeof(float);
constexpr size_t kMaxNameLength = 200;  // a name is part of a file name
// A shard's sketch is in the header of its file (ShardFileReader).
constexpr uint64_t kMaxSketchBytes = 16 << 20;

absl::Status Refuse(const TableConfig& config, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("table '", config.name(), "': ", message));
}

absl::Status In(const TableConfig& config, absl::string_view part, const absl::Status& status) {
  return status.ok() ? status : Refuse(config, absl::StrCat(part, status.message()));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         absl::string_view("_.-/:").find(c) != absl::string_view::npos;
}

absl::Status ValidateName(const TableConfig& config) {
  const std::string& name = config.name();
  if (name.empty() || name.size() > kMaxNameLength ||
      !std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return Refuse(config, absl::StrCat("the name must have 1 to ", kMaxNameLength,
                                       " of the characters [A-Za-z0-9_.:/-]"));
  }
  return absl::OkStatus();
}

absl::Status ValidatePolicy(const TableConfig& config) {
  if (config.update_at() == TableConfig::COLLECTIVE && config.kind() != TableConfig::DENSE) {
    return Refuse(config, "only dense tables can have update_at COLLECTIVE; use PSERVER");
  }
  if (config.update_at() == TableConfig::WORKER && config.wire_type() == TableConfig::BF16) {
    return Refuse(config, "wire_type BF16 would round Geo's deltas; use F32 with update_at WORKER");
  }
  return absl::OkStatus();
}

// The product of the shape's extents. Refuses shapes that could need more than kMaxShards blocks.
absl::StatusOr<uint64_t> CountElements(const TableConfig& config) {
  if (config.shape().empty())
    return Refuse(config, "a dense table needs a shape, e.g. shape: [100, 50]");
  uint64_t elements = 1;
  for (uint64_t extent : config.shape()) {
    if (extent == 0) return Refuse(config, "every extent of the shape must be at least 1");
    if (__builtin_mul_overflow(elements, extent, &elements) ||
        elements > kMaxShards * kMaxBlockElements / 2) {
      return Refuse(config, absl::StrCat("the shape has more than ",
                                         kMaxShards * kMaxBlockElements / 2, " elements"));
    }
  }
  return elements;
}

constexpr double kTwoPi = 6.28318530717958647692;

void FillUniform(double min, double max, uint64_t stream, uint64_t first, size_t n, float* out) {
  const double width = max - min;
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(min + width * HashToUnit(CombineHash(stream, first + i)));
  }
}

// Box and Muller's method. Each position draws its own pair of uniform numbers and uses only the
// cosine, so that a value never depends on its neighbour.
void FillNormal(double mean, double stddev, uint64_t stream, uint64_t first, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint64_t h = CombineHash(stream, first + i);
    const double u =
        static_cast<double>((h >> 11) + 1) * 0x1p-53;  // (0, 1]: the logarithm is finite
    const double angle = kTwoPi * (static_cast<double>(CombineHash(h, 1) >> 11) * 0x1p-53);
    out[i] = static_cast<float>(mean + stddev * std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
}

void FillSymmetric(double bound, uint64_t stream, uint64_t first, size_t n, float* out) {
  FillUniform(-bound, bound, stream, first, n, out);
}

absl::Status RefuseInitializer(absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("initializer.", message));
}

// INVALID_ARGUMENT names the field and the fix. An absent initializer means zeros.
absl::Status ValidateInitializer(const Initializer& initializer) {
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      if (!std::isfinite(initializer.constant())) {
        return RefuseInitializer(
            absl::StrCat("constant must be finite; it is ", initializer.constant()));
      }
      break;
    case Initializer::kUniform: {
      const auto& u = initializer.uniform();
      if (!std::isfinite(u.min()) || !std::isfinite(u.max()) || u.min() > u.max()) {
        return RefuseInitializer(absl::StrCat("uniform needs finite min <= max; min is ", u.min(),
                                              ", max is ", u.max()));
      }
      break;
    }
    case Initializer::kNormal: {
      const auto& normal = initializer.normal();
      if (!std::isfinite(normal.mean()) || !std::isfinite(normal.stddev()) || normal.stddev() < 0) {
        return RefuseInitializer(
            absl::StrCat("normal needs a finite mean and stddev >= 0; mean is ", normal.mean(),
                         ", stddev is ", normal.stddev()));
      }
      break;
    }
    case Initializer::kHeUniform:
      if (initializer.he_uniform().fan_in() == 0)
        return RefuseInitializer("he_uniform.fan_in must be at least 1");
      break;
    case Initializer::kLecunUniform:
      if (initializer.lecun_uniform().fan_in() == 0)
        return RefuseInitializer("lecun_uniform.fan_in must be at least 1");
      break;
    case Initializer::KIND_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

// Sets out[i] to the value at position first + i of `stream`, for i < n. A value is a function of
// the stream's hash and the position, so any process can make any piece of a table, in any order.
// REQUIRES: ValidateInitializer accepts the initializer.
void FillInitial(const Initializer& initializer, uint64_t stream, uint64_t first, size_t n,
                 float* out) {
  switch (initializer.kind_case()) {
    case Initializer::kConstant:
      std::fill_n(out, n, initializer.constant());
      return;
    case Initializer::kUniform:
      FillUniform(initializer.uniform().min(), initializer.uniform().max(), stream, first, n, out);
      return;
    case Initializer::kNormal:
      FillNormal(initializer.normal().mean(), initializer.normal().stddev(), stream, first, n, out);
      return;
    case Initializer::kHeUniform:
      FillSymmetric(std::sqrt(6.0 / initializer.he_uniform().fan_in()), stream, first, n, out);
      return;
    case Initializer::kLecunUniform:
      FillSymmetric(std::sqrt(1.0 / initializer.lecun_uniform().fan_in()), stream, first, n, out);
      return;
    case Initializer::KIND_NOT_SET:
      std::fill_n(out, n, 0.0f);
      return;
  }
}

}  // namespace

absl::Status TableLayout::InitDense() {
  if (config_.columns_size() > 0) {
    return Refuse(config_, "a dense table has no columns; set shape, initializer and optimizer");
  }
  SLUICE_ASSIGN_OR_RETURN(elements_, CountElements(config_));
  row_elements_ = config_.shape(config_.shape_size() - 1);
  // Whole rows, so that clip_row_norm sees a row in one shard.
  const bool whole_rows = row_elements_ <= kMaxBlockElements;
  if (!whole_rows && config_.optimizer().clip_row_norm() > 0) {
    return Refuse(config_, absl::StrCat("clip_row_norm needs rows of at most ", kMaxBlockElements,
                                        " elements; the last extent of the shape is ",
                                        row_elements_, "; use clip_value or clip_global_norm"));
  }
  block_elements_ =
      whole_rows ? kMaxBlockElements / row_elements_ * row_elements_ : kMaxBlockElements;
  block_elements_ = std::min(block_elements_, elements_);
  num_files_ = static_cast<uint32_t>((elements_ + block_elements_ - 1) / block_elements_);
  // The number of blocks follows from the size alone. So a saved model fits any job with this
  // table.
  if (config_.num_shards() != 0 && config_.num_shards() != num_files_) {
    return Refuse(config_, absl::StrCat("num_shards is ", config_.num_shards(),
                                        ", but a dense table of this size has ", num_files_,
                                        "; remove num_shards"));
  }
  Column column;
  column.name = config_.name();
  SLUICE_RETURN_IF_ERROR(
      In(config_, "", FillColumn(config_.initializer(), config_.optimizer(), &column)));
  state_floats_ = column.rule->state_floats();
  columns_.push_back(std::move(column));
  return absl::OkStatus();
}

absl::Status TableLayout::InitSparse() {
  if (config_.shape_size() > 0 || config_.has_initializer() || config_.has_optimizer()) {
    return Refuse(
        config_,
        "a sparse table itself has no shape, initializer or optimizer; set them in columns");
  }
  if (config_.columns_size() == 0)
    return Refuse(config_, "a sparse table needs columns { name dim ... }");
  num_files_ = config_.num_shards();
  if (num_files_ == 0 || num_files_ > kMaxShards) {
    return Refuse(config_, absl::StrCat("num_shards must be between 1 and ", kMaxShards, "; it is ",
                                        num_files_));
  }
  uint64_t weights = 0, state = 0;
  std::set<std::string> names;
  for (const ColumnGroup& group : config_.columns()) {
    const std::string part = absl::StrCat("column '", group.name(), "': ");
    if (!names.insert(group.name()).second)
      return Refuse(config_, absl::StrCat(part, "the name is used twice"));
    Column column;
    column.name = group.name();
    column.begin = static_cast<uint32_t>(weights);
    column.dim = group.dim();
    column.state_begin = static_cast<uint32_t>(state);
    SLUICE_RETURN_IF_ERROR(
        In(config_, part, FillColumn(group.initializer(), group.optimizer(), &column)));
    weights += group.dim();
    // In 64 bits: the sum of the columns' widths cannot wrap around before this check stops it.
    if (group.dim() == 0 || weights > kMaxBlockElements) {
      return Refuse(config_, absl::StrCat(part, "dim must be at least 1 and a row at most ",
                                          kMaxBlockElements, " weights; dim is ", group.dim(),
                                          " and the row has ", weights));
    }
    state += static_cast<uint64_t>(column.rule->state_floats()) * group.dim();
    columns_.push_back(std::move(column));
  }
  dim_ = static_cast<uint32_t>(weights);
  state_floats_ = static_cast<uint32_t>(state);
  return InitRowLimit();
}

absl::Status TableLayout::InitRowLimit() {
  constexpr double kGiB = 1 << 30;
  if (config_.max_rows() > 0) {
    row_limit_ = config_.max_rows();
  } else if (config_.max_gib() > 0) {
    row_limit_ =
        static_cast<uint64_t>(config_.max_gib() * kGiB / static_cast<double>(most_row_bytes()));
  }
  if (row_limit_ == 0) return Refuse(config_, "max_gib is less than one row; raise it");
  if (config_.has_admit() && sketch_bytes() > kMaxSketchBytes) {
    return Refuse(config_, absl::StrCat("admit: a shard's part of the sketch would have ",
                                        sketch_bytes() >> 10, " KiB, and can have ",
                                        kMaxSketchBytes >> 10, "; lower sketch_kib to ",
                                        (kMaxSketchBytes >> 10) * num_files_, " or less"));
  }
  return absl::OkStatus();
}

uint64_t TableLayout::sketch_bytes() const {
  constexpr uint64_t kDefaultKib = 65536;
  const uint64_t kib =
      config_.admit().sketch_kib() == 0 ? kDefaultKib : config_.admit().sketch_kib();
  return (kib << 10) / num_files_;
}

uint64_t TableLayout::most_row_bytes() const {
  constexpr uint64_t kHeader = 24, kIndex = 20;
  const uint64_t floats = uint64_t{dim_} + state_floats_;
  return kHeader + kIndex + (floats + 1) / 2 * 8;
}

uint64_t TableLayout::RowLimitOf(uint32_t shard) const {
  if (row_limit_ == UINT64_MAX) return UINT64_MAX;
  return row_limit_ / num_files_ + (shard < row_limit_ % num_files_ ? 1 : 0);
}

absl::Status TableLayout::FillColumn(const Initializer& initializer,
                                     const OptimizerConfig& optimizer, Column* column) {
  SLUICE_RETURN_IF_ERROR(ValidateInitializer(initializer));
  SLUICE_ASSIGN_OR_RETURN(column->rule, UpdateRule::Create(optimizer));
  column->initializer = initializer;
  column->optimizer = WithDefaults(optimizer);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TableLayout>> TableLayout::Create(uint32_t id,
                                                                       const TableConfig& config,
                                                                       uint64_t seed) {
  SLUICE_RETURN_IF_ERROR(ValidateName(config));
  SLUICE_RETURN_IF_ERROR(ValidatePolicy(config));
  std::shared_ptr<TableLayout> layout(new TableLayout);
  layout->id_ = id;
  layout->config_ = config;
  // From the name, not from the id: adding a table to a job does not change the initial values of
  // the others.
  layout->stream_ = CombineHash(seed, HashBytes({config.name().data(), config.name().size()}, 0));
  switch (config.kind()) {
    case TableConfig::DENSE:
      SLUICE_RETURN_IF_ERROR(layout->InitDense());
      break;
    case TableConfig::SPARSE:
      SLUICE_RETURN_IF_ERROR(layout->InitSparse());
      break;
    default:
      return Refuse(config, "kind must be DENSE or SPARSE");
  }
  return std::shared_ptr<const TableLayout>(std::move(layout));
}

uint64_t TableLayout::ShardElements(uint32_t shard) const {
  const uint64_t begin = shard * block_elements_;
  return begin >= elements_ ? 0 : std::min(block_elements_, elements_ - begin);
}

void TableLayout::InitialRow(uint64_t key, float* weights) const {
  // A row's values depend on its key alone, so it does not matter who creates it, nor when.
  const uint64_t row_stream = CombineHash(stream_, key);
  for (const Column& column : columns_) {
    FillInitial(column.initializer, row_stream, column.begin, column.dim, weights + column.begin);
  }
}

void TableLayout::RowBeforeUpdates(uint64_t key, float* weights) const {
  if (config_.admit().before() == AdmitConfig::ZERO) {
    std::fill_n(weights, dim_, 0.0f);
  } else {
    InitialRow(key, weights);
  }
}

void TableLayout::InitialElements(uint64_t first, uint64_t n, float* weights) const {
  FillInitial(columns_[0].initializer, stream_, first, n, weights);
}

uint64_t TableLayout::ShardBytes(uint32_t shard) const {
  const uint64_t state = config_.update_at() == TableConfig::WORKER ? 0 : state_floats_;
  return ShardElements(shard) * (1 + state) * sizeof(float);
}

absl::StatusOr<TableLayouts> CreateTableLayouts(
    const google::protobuf::RepeatedPtrField<TableConfig>& tables, uint64_t seed) {
  TableLayouts layouts;
  std::map<std::string, std::string> names;  // from the form in file names to the table's name
  for (const TableConfig& config : tables) {
    std::string key = config.name();
    // As ShardFileName does: two such tables would write into one file.
    std::replace(key.begin(), key.end(), '/', '.');
    const auto [it, added] = names.emplace(key, config.name());
    if (!added) {
      return Refuse(config, absl::StrCat("its name is taken by table '", it->second,
                                         "' ('/' and '.' count as equal); rename one of them"));
    }
    SLUICE_ASSIGN_OR_RETURN(
        auto layout, TableLayout::Create(static_cast<uint32_t>(layouts.size()), config, seed));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace sluice
