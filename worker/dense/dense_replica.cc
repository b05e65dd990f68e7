#include "worker/dense/dense_replica.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/learning_rate.h"
#include "common/saved_model/manifest.h"
#include "common/saved_model/model_tables.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file_reader.h"
#include "common/saved_model/shard_image.h"
#include "common/saved_model/start_map.h"
#include "common/table/not_finite.h"

namespace sluice {
namespace {

constexpr size_t kReadBytes = 1 << 20;

absl::Status Damaged(const ShardFileReader& file, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat(file.path(), " is damaged: ", what, "; use another copy"));
}

}  // namespace

DenseReplica::DenseReplica(TableLayouts tables) : tables_(std::move(tables)) {
  for (const auto& table : tables_) {
    TableCopy& copy = copies_.emplace_back();
    copy.values.resize(table->elements());
    table->InitialElements(0, table->elements(), copy.values.data());
    copy.state.resize(table->elements() * table->state_floats());
    float* arrays[UpdateRule::kMaxState] = {};
    for (uint32_t k = 0; k < table->state_floats(); ++k)
      arrays[k] = copy.state.data() + k * table->elements();
    table->columns()[0].rule->InitState(arrays, table->elements());
  }
}

void DenseReplica::Update(size_t i, const float* gradient) {
  const TableLayout& table = *tables_[i];
  const TableLayout::Column& column = table.columns()[0];
  TableCopy& copy = copies_[i];
  const float rate = LearningRateAt(column.optimizer.schedule(), column.optimizer.learning_rate(),
                                    copy.schedule_base + closed_);
  // Counts updates, not steps: a step in which no rank had examples makes none.
  ++copy.count;
  // Block by block, as pservers do: rules work on pieces that stay in the cache.
  const uint64_t elements = table.elements(), block = table.block_elements();
  const size_t row = std::min(table.row_elements(), block);
  for (uint64_t at = 0; at < elements; at += block) {
    const size_t n = std::min(block, elements - at);
    float* arrays[UpdateRule::kMaxState] = {};
    for (uint32_t k = 0; k < table.state_floats(); ++k)
      arrays[k] = copy.state.data() + k * elements + at;
    if (column.rule->Apply(copy.values.data() + at, arrays,
                           reinterpret_cast<const UnalignedFloat*>(gradient + at), n,
                           std::min(row, n), rate, copy.count)) {
      continue;
    }
    for (uint32_t array = 0; array <= table.state_floats() && finite_.ok(); ++array) {
      const float* const values = array == 0 ? copy.values.data() + at : arrays[array - 1];
      const size_t bad = FirstNotFinite(values, n);
      if (bad < n) finite_ = ElementNotFinite(table, at + bad, array);
    }
  }
}

std::vector<absl::Span<float>> DenseReplica::Arrays() {
  std::vector<absl::Span<float>> arrays;
  for (TableCopy& copy : copies_) {
    arrays.push_back(absl::MakeSpan(copy.values));
    if (!copy.state.empty()) arrays.push_back(absl::MakeSpan(copy.state));
  }
  return arrays;
}

std::vector<uint64_t> DenseReplica::Counts() const {
  std::vector<uint64_t> counts = {closed_};
  for (const TableCopy& copy : copies_) {
    counts.push_back(copy.count);
    counts.push_back(copy.schedule_base);
  }
  return counts;
}

void DenseReplica::SetCounts(const std::vector<uint64_t>& counts) {
  closed_ = counts[0];
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].count = counts[1 + 2 * i];
    copies_[i].schedule_base = counts[2 + 2 * i];
  }
}

DenseReplica::Image DenseReplica::Copy(bool state) const {
  Image image;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const TableCopy& copy = copies_[i];
    // One array for values and state, as the files have them. It is shared by the blocks of the
    // table.
    auto values = std::make_shared<std::vector<float>>(copy.values);
    Image::Table& table = image.tables.emplace_back();
    table.layout = tables_[i];
    if (state) {
      values->insert(values->end(), copy.state.begin(), copy.state.end());
      ShardFacts& facts = table.facts.emplace();
      facts.set_count(copy.count);
      facts.set_updates(copy.count);
      facts.set_closed(closed_);
      facts.set_schedule_steps(copy.schedule_base + closed_);
    }
    table.values = std::move(values);
  }
  return image;
}

absl::StatusOr<std::vector<SavedFile>> DenseReplica::Write(const Image& image,
                                                           const std::string& directory,
                                                           const std::string& save_id, Env* env) {
  std::vector<SavedFile> files;
  for (const Image::Table& table : image.tables) {
    const TableLayout& layout = *table.layout;
    for (uint32_t block = 0; block < layout.num_files(); ++block) {
      CutState state;
      state.facts = table.facts;
      if (table.facts.has_value()) state.state_floats = layout.state_floats();
      std::vector<std::shared_ptr<const float>> arrays;
      for (uint32_t k = 0; k <= state.state_floats; ++k) {
        arrays.emplace_back(table.values, table.values->data() + k * layout.elements() +
                                              block * layout.block_elements());
      }
      const auto cut = CutOfElements(layout, block, std::move(arrays), std::move(state));
      absl::StatusOr<SavedFile> file =
          WriteShardFile(directory, layout, block, cut.get(), env, save_id);
      if (file.ok()) {
        files.push_back(*std::move(file));
        continue;
      }
      // Without this file there is no checkpoint, so the others would only take space.
      for (const SavedFile& written : files)
        env->RemoveFile(absl::StrCat(directory, "/", written.name())).IgnoreError();
      return file.status();
    }
  }
  return files;
}

absl::Status DenseReplica::Load(const Source& source, Env* env) {
  SLUICE_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(source.directory, env));
  std::vector<TableConfig> configs;
  for (const auto& table : tables_) configs.push_back(table->config());
  SLUICE_RETURN_IF_ERROR(source.new_job ? CheckStart(source.directory, manifest, configs, nullptr)
                         : source.state ? CheckTables(source.directory, manifest, configs)
                                        : CheckValues(source.directory, manifest, configs));
  if (source.state && !source.new_job)
    SLUICE_RETURN_IF_ERROR(CheckRules(source.directory, manifest, configs));
  if (source.state && !manifest.has_checkpoint()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.directory, " is a model, which has no optimizer state"));
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    const absl::Status loaded = LoadTable(source, manifest, i, env);
    if (absl::IsDataLoss(loaded) && source.state && !source.new_job) {
      return absl::DataLossError(absl::StrCat(
          loaded.message(), "; --allow_older resumes from the newest intact checkpoint"));
    }
    SLUICE_RETURN_IF_ERROR(loaded);
  }
  // A new job counts its steps from 0.
  if (source.state && !source.new_job) closed_ = manifest.checkpoint().global_step();
  return absl::OkStatus();
}

absl::Status DenseReplica::LoadTable(const Source& source, const Manifest& manifest, size_t i,
                                     Env* env) {
  TableConfig table = tables_[i]->config();
  // A job that continues has its own tables, whatever it once started from.
  if (source.state && !source.new_job) table.clear_start();
  const TableConfig* const saved = StartOf(manifest, table);
  if (saved == nullptr) return absl::OkStatus();  // a new job may have tables of its own
  SavedTable from = {saved, tables_[i], nullptr};
  if (table.has_start()) {
    SLUICE_ASSIGN_OR_RETURN(from.start, StartMap::Create(*saved, table));
    from.layout = from.start->saved_layout();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto files, FilesOfTable(source.directory, manifest, *saved));
  // Checked before any file is read, so that missing files are reported as such.
  const uint32_t blocks = from.layout->num_files();
  if (files.size() != blocks) {
    return absl::DataLossError(absl::StrCat(source.directory, ": table '", saved->name(), "' has ",
                                            files.size(), " files, but its ", blocks,
                                            " blocks need one each; use another copy"));
  }
  ShardFacts facts;
  for (uint32_t block = 0; block < files.size(); ++block)
    SLUICE_RETURN_IF_ERROR(LoadFile(source, from, *files[block], block, i, env, &facts));
  if (!source.state) return absl::OkStatus();
  TableCopy& copy = copies_[i];
  copy.count = facts.count();
  const bool geo = manifest.checkpoint().mode() == "geo";
  // A shard of Geo counts exchanges of many steps.
  const uint64_t schedule =
      source.new_job && geo
          ? manifest.checkpoint().global_step() / std::max(1u, manifest.checkpoint().worker_num())
          : facts.schedule_steps();
  const uint64_t closed = source.new_job ? 0 : facts.closed();
  copy.schedule_base = std::max(schedule, closed) - closed;
  return absl::OkStatus();
}

absl::Status DenseReplica::LoadFile(const Source& source, const SavedTable& from,
                                    const SavedFile& file, uint32_t block, size_t i, Env* env,
                                    ShardFacts* facts) {
  const TableLayout& table = *from.layout;
  TableCopy& copy = copies_[i];
  SLUICE_ASSIGN_OR_RETURN(const auto reader,
                          ShardFileReader::Open(env, source.directory, *from.config, file));
  const ShardFileHeader& header = reader->header();
  const uint64_t first = block * table.block_elements(), elements = table.ShardElements(block);
  if (header.first_element() != first || header.elements() != elements) {
    return Damaged(*reader, absl::StrCat("it has ", header.elements(), " elements from ",
                                         header.first_element(), " on, but block ", block, " has ",
                                         elements, " from ", first, " on"));
  }
  bool state = source.state;
  if (state) {
    if (!reader->has_state()) return Damaged(*reader, "it belongs to a model, not to a checkpoint");
    const uint32_t floats = header.state_floats(), wanted = table.state_floats();
    if (floats != wanted) {
      if (!source.new_job || (floats != 0 && wanted != 0)) {
        return Damaged(*reader, absl::StrCat("it has ", floats,
                                             " floats of optimizer state for each element, but "
                                             "the table has ",
                                             wanted));
      }
      // A new job may have another rule, whose state starts afresh.
      state = false;
    }
    if (source.step.has_value() && header.facts().closed() != *source.step) {
      return Damaged(*reader, absl::StrCat("it was cut after step ", header.facts().closed(),
                                           ", but the checkpoint is of step ", *source.step));
    }
    // All blocks of a sync checkpoint agree; those of other modes may differ.
    if (state) facts->set_count(std::max(facts->count(), header.facts().count()));
    facts->set_closed(std::max(facts->closed(), header.facts().closed()));
    facts->set_schedule_steps(std::max(facts->schedule_steps(), header.facts().schedule_steps()));
  }
  // The records are one array after the other: the values, then each float of state. A read may end
  // in the middle of an array.
  RunReader records(reader.get(), 0, reader->runs());
  for (uint64_t at = 0;;) {
    SLUICE_ASSIGN_OR_RETURN(const std::string bytes, records.Next(kReadBytes));
    if (bytes.empty()) return absl::OkStatus();
    const size_t n = bytes.size() / sizeof(float);
    for (size_t done = 0; done < n;) {
      const uint64_t array = at / elements, element = at % elements;  // array 0: the values
      const size_t length = std::min<uint64_t>(n - done, elements - element);
      float* const to = array == 0 ? copy.values.data()
                        : state    ? copy.state.data() + (array - 1) * tables_[i]->elements()
                                   : nullptr;
      const auto copy_run = [&](uint64_t offset, uint64_t to_element, uint64_t count) {
        std::memcpy(to + to_element, bytes.data() + (done + offset) * sizeof(float),
                    count * sizeof(float));
      };
      if (to != nullptr && from.start != nullptr) {
        from.start->ForEachRun(first + element, length, copy_run);
      } else if (to != nullptr) {
        copy_run(0, first + element, length);
      }
      done += length;
      at += length;
    }
  }
}

ReplicaWriter::~ReplicaWriter() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ReplicaWriter::Start(const DenseReplica& replica, std::string directory, std::string save_id,
                          Done done) {
  bool was_busy = false;
  {
    MutexLock lock(&mutex_);
    was_busy = std::exchange(busy_, true);
  }
  if (was_busy) {
    // The disk is slow: the scheduler has given the earlier checkpoint up meanwhile.
    done(absl::UnavailableError("the files of an earlier checkpoint are still being written"));
    return;
  }
  // Without the lock, since copying takes as long as the tables are large. `busy_` keeps other
  // calls away meanwhile.
  Files files{replica.Copy(/*state=*/true), std::move(directory), std::move(save_id),
              std::move(done)};
  MutexLock lock(&mutex_);
  next_ = std::move(files);
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
}

void ReplicaWriter::Run() {
  for (;;) {
    std::optional<Files> files;
    {
      MutexLock lock(&mutex_);
      while (!next_ && !ending_) changed_.Wait(&mutex_);
      if (!next_) return;
      files = std::exchange(next_, std::nullopt);
    }
    const absl::StatusOr<std::vector<SavedFile>> written =
        DenseReplica::Write(files->image, files->directory, files->save_id, env_);
    {
      MutexLock lock(&mutex_);
      // Before `done`, which may start the next files.
      busy_ = false;
    }
    files->done(written);
  }
}

}  // namespace sluice
