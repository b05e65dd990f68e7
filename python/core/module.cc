// sluice._core: binds the worker of a program to Python. No logic.
//
// The interpreter lock is released while this module waits, and taken again to look for signals.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/env.h"
#include "common/config/job_config.h"
#include "common/daemon/process_info.h"
#include "google/protobuf/text_format.h"
#include "python/core/arrow_rows.h"
#include "python/core/declaration.h"
#include "python/core/example_bindings.h"
#include "python/core/given_arrays.h"
#include "python/core/model_bindings.h"
#include "python/core/program_worker.h"
#include "python/core/shape_bindings.h"
#include "python/core/slot_columns.h"
#include "python/core/source_exchange.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sluice {
namespace {

// How often a wait looks for signals.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr int kLooksForJob = 50;  // of a program that fails before its first assignment

void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text(status.message());
  if (absl::IsInvalidArgument(status)) throw nb::value_error(text.c_str());
  throw std::runtime_error(text);
}

// The job is over, and not well. Becomes _core.JobEnded.
struct JobEnded : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename T>
T Checked(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Columns of an object with __arrow_c_stream__, for one rank.
class GivenRows {
 public:
  // `stream` is what the method returns. It is taken over, as the interface's rules say.
  GivenRows(const nb::capsule& stream, const JobConfig& job, const ArrowRows::Part& part) {
    ArrowArrayStream* const taken = StreamOf(stream);
    nb::gil_scoped_release release;
    rows_ = Checked(ArrowRows::Create(taken, job, part));
  }
  ~GivenRows() {
    // The stream may belong to Python. It then takes the lock itself.
    nb::gil_scoped_release release;
    rows_.reset();
  }
  // Null at the end. Without the interpreter lock.
  std::shared_ptr<GivenBatch> Next() { return Checked(rows_->Next()); }
  uint64_t rows() const { return rows_->rows(); }

 private:
  std::unique_ptr<ArrowRows> rows_;
};

// An array on memory of the turn. It owns nothing: the caller drops it with the turn.
template <typename T>
nb::object ArrayOn(const T* data, std::vector<size_t> shape) {
  // With a base, or nanobind would copy.
  nb::capsule base(data == nullptr ? static_cast<const void*>(&kLook) : data,
                   [](void*) noexcept {});
  return nb::cast(
      nb::ndarray<nb::numpy, T>(const_cast<T*>(data), shape.size(), shape.data(), base));
}

// One batch, until it is answered.
class Turn {
 public:
  Turn(const ProgramTurn* turn, std::shared_ptr<const ProgramShape> shape)
      : turn_(turn), shape_(std::move(shape)) {}

  bool trains() const { return get().trains(); }
  bool saves() const { return get().saves(); }
  bool begins() const { return get().begins; }
  nb::object restored() const {
    const std::string* const state = get().restored;
    return state == nullptr ? nb::none() : nb::object(nb::bytes(state->data(), state->size()));
  }
  bool ends_epoch() const { return get().ends_epoch(); }
  size_t examples() const { return batch().n; }
  uint64_t seed() const { return get().seed; }
  uint32_t epoch() const { return get().epoch; }
  uint64_t step() const { return input().step; }
  // The number of the batch, when the program has given it.
  uint64_t given_as() const { return batch().example_id.empty() ? 0 : batch().example_id[0]; }
  nb::object label() const { return ArrayOn(batch().label.data(), {batch().n}); }
  nb::object weight() const { return ArrayOn(batch().weight.data(), {batch().n}); }
  // Whether all weights are 1.
  bool unweighted() const {
    const std::vector<float>& weight = batch().weight;
    return std::all_of(weight.begin(), weight.end(), [](float one) { return one == 1; });
  }
  nb::object numbers() const {
    return ArrayOn(batch().numeric.data(), {batch().n, batch().num_numeric});
  }
  bool single() const { return get().rows->single(); }
  // With single(): [slots][examples].
  nb::object all_rows() const {
    return ArrayOn(get().rows->rows().data(), {batch().num_slots, batch().n});
  }
  nb::object slot_rows(size_t slot) const {
    const SlotRows& rows = *get().rows;
    return ArrayOn(rows.rows().data() + rows.begin(slot), {rows.end(slot) - rows.begin(slot)});
  }
  nb::object slot_offsets(size_t slot) const {
    return ArrayOn(get().rows->offsets(slot), {batch().n + 1});
  }
  nb::object rows(size_t table) const {
    const RowsInput& rows = input().rows.at(table);
    return ArrayOn(rows.values, {rows.n, shape_->tables.at(table).dim});
  }
  nb::object row_gradients(size_t table) const {
    return ArrayOn(get().gradients->rows(table),
                   {input().rows.at(table).n, shape_->tables.at(table).dim});
  }
  nb::object parameter(size_t i) const { return ArrayOn(input().dense.at(i), ShapeOf(i)); }
  nb::object parameter_gradient(size_t i) const {
    return ArrayOn(get().gradients->dense().at(i), ShapeOf(i));
  }
  // Where these arrays are, by parameter. Buffers come again, and so do the addresses.
  std::vector<uintptr_t> parameter_addresses() const { return Addresses(input().dense); }
  // The caller writes all of the gradients.
  std::vector<uintptr_t> gradient_addresses() const { return Addresses(get().gradients->dense()); }
  using GivenRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
  using TakenRows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
  // Copies the rows of a slot's values, one after another: `to` is [values][dim], from column
  // `first` of the table on.
  void CopyRows(size_t table, size_t slot, size_t first, const TakenRows& to) const {
    const SlotColumns at = ColumnsOf(table, slot, first, to);
    const float* const values = input().rows.at(table).values;
    nb::gil_scoped_release release;
    CopySlotRows(values, at, to.data());
  }
  // Adds gradients to those rows; gradients of equal values add up. Returns the first of `from`
  // that has a NaN or an infinite number, and adds nothing then; -1: none has.
  int64_t AddRowGradients(size_t table, size_t slot, size_t first, const GivenRows& from) const {
    const SlotColumns at = ColumnsOf(table, slot, first, from);
    TurnGradients* const turn = get().gradients;
    nb::gil_scoped_release release;
    float* const gradients = turn->rows(table);
    return AddSlotGradients(from.data(), at, gradients);
  }
  nb::object logits() const { return ArrayOn(get().logits, {batch().n}); }

  // Adds a value to what the step reports.
  void Log(const std::string& name, double value) { gradients()->logged.push_back({name, value}); }
  // Adds a metric of this evaluation batch.
  void Measure(const std::string& name, double sum, double weight) {
    get().sums->push_back({name, sum, weight});
  }

  NetGradients* gradients() const { return get().gradients->step(); }
  std::string* state() const { return get().state; }
  void Close() { turn_ = nullptr; }

 private:
  const ProgramTurn& get() const {
    if (turn_ == nullptr) throw std::runtime_error("the batch is over: its step has been made");
    return *turn_;
  }
  const NetInput& input() const {
    if (get().input == nullptr) throw std::runtime_error("the turn has no batch");
    return *get().input;
  }
  const Batch& batch() const { return *input().batch; }
  template <typename Array>
  SlotColumns ColumnsOf(size_t table, size_t slot, size_t first, const Array& array) const {
    const SlotRows& rows = *get().rows;
    SlotColumns at{rows.rows().data() + rows.begin(slot), rows.end(slot) - rows.begin(slot),
                   shape_->tables.at(table).dim, first, array.shape(1)};
    if (array.shape(0) != at.n || first + at.dim > at.row_dim)
      throw nb::value_error("the array is not of the slot's values and the collection's width");
    return at;
  }
  template <typename Pointer>
  static std::vector<uintptr_t> Addresses(const std::vector<Pointer>& arrays) {
    std::vector<uintptr_t> addresses;
    for (const Pointer array : arrays) addresses.push_back(reinterpret_cast<uintptr_t>(array));
    return addresses;
  }
  std::vector<size_t> ShapeOf(size_t i) const {
    const std::vector<uint64_t>& shape = shape_->parameters.at(i).shape;
    return {shape.begin(), shape.end()};
  }

  const ProgramTurn* turn_;
  const std::shared_ptr<const ProgramShape> shape_;
};

class Worker {
 public:
  Worker(const std::string& job, uint64_t epoch_steps) {
    JobConfig declared;
    // Text that DeclareJob has made.
    if (!google::protobuf::TextFormat::ParseFromString(job, &declared))
      throw nb::value_error("the job is not what declare() returns");
    nb::gil_scoped_release release;
    worker_ = Checked(ProgramWorker::Start(std::move(declared), epoch_steps));
    sources_ = worker_->sources();
    source_states_ = worker_->source_states();
  }

  // The next turn; None when the job has ended well. Raises JobEnded otherwise.
  nb::object Take() {
    for (;;) {
      absl::StatusOr<const ProgramTurn*> turn = nullptr;
      {
        nb::gil_scoped_release release;
        turn = worker().exchange()->Take(kLook);
      }
      if (absl::IsOutOfRange(turn.status())) return nb::none();
      if (!turn.ok()) throw JobEnded(std::string(turn.status().message()));
      if (*turn != nullptr) {
        turn_ = std::make_shared<Turn>(*turn, worker().place()->shape);
        return nb::cast(turn_);
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  // Waits at most so many seconds for the next turn. False: the job has ended well; None: there is
  // no turn yet. Raises JobEnded otherwise.
  nb::object Poll(double seconds) {
    absl::StatusOr<const ProgramTurn*> turn = nullptr;
    {
      nb::gil_scoped_release release;
      turn = worker().exchange()->Take(std::min(absl::Seconds(seconds), kLook));
    }
    if (absl::IsOutOfRange(turn.status())) return nb::bool_(false);
    if (!turn.ok()) throw JobEnded(std::string(turn.status().message()));
    if (*turn == nullptr) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return nb::none();
    }
    turn_ = std::make_shared<Turn>(*turn, worker().place()->shape);
    return nb::cast(turn_);
  }

  // Waits until the pservers have acknowledged this push and all before it (as
  // ParameterClient::acknowledged counts them), at most so many seconds. False: not yet. None: no
  // attempt of the job runs here. Raises JobEnded when the job is over.
  std::optional<bool> AwaitAcknowledged(uint64_t push, double seconds) {
    std::optional<uint64_t> newest;
    {
      nb::gil_scoped_release release;
      absl::Duration pause = absl::Microseconds(20), left = absl::Seconds(seconds);
      for (;;) {
        newest = worker().Acknowledged();
        if (!newest.has_value() || *newest >= push || left <= absl::ZeroDuration()) break;
        absl::SleepFor(pause);
        left -= pause;
        pause = std::min(2 * pause, absl::Milliseconds(1));
      }
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (newest.has_value()) return *newest >= push;
    const absl::Status going_on = worker().MayWait();
    if (!going_on.ok() && !absl::IsOutOfRange(going_on))
      throw JobEnded(std::string(going_on.message()));
    return std::nullopt;
  }

  // The gradients of the turn are in place. `loss_sum`: sum of weight x loss.
  void Answer(double loss_sum, double weight_sum) {
    OpenTurn().gradients()->loss_sum = loss_sum;
    OpenTurn().gradients()->weight_sum = weight_sum;
    Close();
  }
  // The turn makes no step: n_w = 0.
  void Skip() {
    OpenTurn().gradients()->skipped = true;
    Close();
  }
  // The logits of the turn are in place.
  void AnswerLogits() { Close(); }
  // What belongs to the end of the epoch is done; or it is not, because its attempt is over.
  void AnswerEnd(bool done) {
    Close(done ? absl::OkStatus() : absl::AbortedError("this attempt of the job is over"));
  }

  // What all ranks have given to the call, by rank; `rank` is the one that gives `data`. None: this
  // attempt of the job is over. The call is made again then, with the epoch. Raises JobEnded.
  nb::object Gather(uint32_t epochs_done, uint32_t number, const std::string& what, uint32_t rank,
                    const nb::bytes& data) {
    worker().BeginGather({epochs_done, number, what, {data.c_str(), data.size()}, rank});
    for (;;) {
      absl::StatusOr<std::optional<ProgramGroup::Given>> given = std::nullopt;
      {
        nb::gil_scoped_release release;
        given = worker().AwaitGather(kLook);
      }
      if (absl::IsAborted(given.status())) return nb::none();
      if (absl::IsCancelled(given.status())) throw JobEnded(std::string(given.status().message()));
      if (given.ok() && !given->has_value()) {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        continue;
      }
      const std::optional<ProgramGroup::Given> all = Checked(std::move(given));
      nb::list by_rank;
      for (const std::string& of_rank : *all)
        by_rank.append(nb::bytes(of_rank.data(), of_rank.size()));
      return by_rank;
    }
  }
  // Tells the others that this rank makes no more calls there.
  void Pass(uint32_t epochs_done, uint32_t number, const std::string& what) {
    worker().PassGather({epochs_done, number, what, "", std::nullopt});
  }

  // The program's state, for a turn that asks for it.
  void AnswerState(nb::bytes state) {
    OpenTurn().state()->assign(state.c_str(), state.size());
    Close();
  }
  // The program has a state beside the tables. Before the first Take.
  void KeepState() { worker().exchange()->KeepState(); }

  // ---- The thread of the program that reads its source. It may go on after Stop.

  // The next request: (number, "train", "evaluate" or "count", rank, number of workers, epoch,
  // first batch). None: the job is over, or, unless `wait`, there is no new request.
  using Request = std::tuple<uint64_t, std::string, uint32_t, uint32_t, uint32_t, uint64_t>;
  std::optional<Request> AwaitSource(bool wait) {
    const std::shared_ptr<SourceExchange> sources = sources_;
    nb::gil_scoped_release release;
    for (;;) {
      const absl::StatusOr<std::optional<SourceRequest>> request =
          sources->Await(wait ? kLook : absl::ZeroDuration());
      if (!request.ok() || (!wait && !request->has_value())) return std::nullopt;
      if (!request->has_value()) continue;
      const SourceRequest& r = **request;
      served_job_ = r.job;
      const char* const kind = r.kind == SourceRequest::kTrain      ? "train"
                               : r.kind == SourceRequest::kEvaluate ? "evaluate"
                                                                    : "count";
      return Request(r.number, kind, r.rank, r.world_size, r.epoch, r.start);
    }
  }
  void CountedSource(uint64_t number, uint64_t batches) { sources_->Counted(number, batches); }

  // False: nobody wants more batches of this request.
  bool GiveBatch(uint64_t number, uint64_t given_as, size_t examples,
                 const std::optional<GivenFloats>& label, const std::optional<GivenFloats>& weight,
                 const std::vector<GivenNumbers>& numbers, const std::vector<GivenValues>& values) {
    const std::shared_ptr<SourceExchange> sources = sources_;
    nb::gil_scoped_release release;
    auto batch =
        std::make_shared<GivenBatch>(CopyOfGiven(examples, label, weight, numbers, values));
    batch->given_as = given_as;
    return sources->Give(number, std::move(batch));
  }
  // The batch size for tables and the seed of the job, which flags of the launch may change.
  size_t BatchRows() const { return ServedJob().train().batch_size(); }
  uint64_t Seed() const { return ServedJob().train().seed(); }
  // The columns of an object with __arrow_c_stream__, for the newest request.
  std::shared_ptr<GivenRows> TableRows(const nb::capsule& stream, uint32_t rank,
                                       uint32_t world_size, uint64_t start) {
    return std::make_shared<GivenRows>(stream, ServedJob(),
                                       ArrowRows::Part{BatchRows(), rank, world_size, start});
  }
  // The same for the next batch of Arrow's columns. None: there are no more.
  std::optional<bool> GiveRows(uint64_t number, uint64_t given_as, GivenRows* rows) {
    const std::shared_ptr<SourceExchange> sources = sources_;
    nb::gil_scoped_release release;
    std::shared_ptr<GivenBatch> batch = rows->Next();
    if (batch == nullptr) return std::nullopt;
    batch->given_as = given_as;
    return sources->Give(number, std::move(batch));
  }
  void EndBatches(uint64_t number) { sources_->EndBatches(number); }
  // Keeps a state of the source, after so many batches of the epoch. False: it is too large.
  bool KeepSourceState(uint32_t epoch, uint64_t batches, const nb::bytes& state) {
    return source_states_->Keep({epoch, batches, std::string(state.c_str(), state.size())});
  }
  // The newest state from which the source can give its batch number `batches`: the number of
  // batches before it, and the state. None: there is none.
  std::optional<std::pair<uint64_t, nb::bytes>> SourceStateBefore(uint32_t epoch,
                                                                  uint64_t batches) {
    const std::optional<SourceState> state = source_states_->Before(epoch, batches);
    if (!state) return std::nullopt;
    return std::make_pair(state->batches, nb::bytes(state->bytes.data(), state->bytes.size()));
  }
  // The source cannot go on: the job fails. Not after Stop.
  void FailSource(const std::string& why) {
    nb::gil_scoped_release release;
    worker().FailSource(why);
  }

  // ---- The program's thread.

  // Returns whether there is a job, which fails. It may begin at this moment, or this process may
  // just have taken a rank over, so this waits a while for the assignment.
  bool Fail(const std::string& why) {
    if (turn_ != nullptr) turn_->Close();
    turn_ = nullptr;
    for (int looks = 0; looks < kLooksForJob && !worker().place().has_value(); ++looks) {
      {
        nb::gil_scoped_release release;
        absl::SleepFor(kLook);
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    const bool has_job = worker().place().has_value();
    nb::gil_scoped_release release;
    worker().Fail(why);
    return has_job;
  }
  // The program has left its loop; a turn that it has is no step.
  void Leave() {
    if (turn_ != nullptr) turn_->Close();
    turn_ = nullptr;
    nb::gil_scoped_release release;
    worker().Leave();
  }
  // Cancels the job.
  void Cancel() {
    absl::Status cancelled;
    {
      nb::gil_scoped_release release;
      cancelled = worker().Cancel();
    }
    Check(cancelled);
  }
  // Leaves the cluster. A second call changes nothing.
  void Stop() {
    nb::gil_scoped_release release;
    worker_ = nullptr;
  }
  // In a forked child of the worker's process, before anything else: the worker is the parent's.
  void Abandon() {
    turn_ = nullptr;
    if (worker_ == nullptr) return;
    worker_->CloseInForkedChild();
    // Never destroyed: that would wait for threads, which a fork does not copy.
    (void)worker_.release();
  }

  // (job id, rank, number of workers, whether the mode is async); waits for the assignment.
  std::tuple<std::string, uint32_t, uint32_t, bool> Place() {
    for (;;) {
      if (auto place = worker().place())
        return {place->job_id, place->rank, place->world_size, place->async()};
      {
        nb::gil_scoped_release release;
        absl::SleepFor(kLook);
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  // "sync", "async" or "geo". After Place.
  std::string ModeName() {
    const auto place = worker().place();
    if (!place.has_value()) throw std::runtime_error("the worker has no job yet");
    return place->mode == Mode::kSync ? "sync" : place->mode == Mode::kGeo ? "geo" : "async";
  }

  // How many epochs the job has, with what flags of the launch say. After Place.
  uint32_t Epochs() {
    const auto place = worker().place();
    if (!place.has_value()) throw std::runtime_error("the worker has no job yet");
    return place->epochs;
  }

  // Where the job writes; "" before the assignment.
  std::string OutputDir() {
    const auto place = worker().place();
    return place.has_value() ? place->output_dir : "";
  }

  std::vector<std::pair<std::string, std::vector<Lookup>>> Lookups() { return LookupsOf(*Shape()); }
  std::vector<std::pair<std::string, uint32_t>> Numbers() { return NumbersOf(*Shape()); }
  // The categorical features, in the order of the slots.
  std::vector<std::string> Features() {
    std::vector<std::string> names;
    for (const ProgramShape::Slot& slot : Shape()->slots) names.push_back(slot.feature);
    return names;
  }
  std::vector<std::string> Parameters() {
    const auto owner = Shape();
    std::vector<std::string> names;
    for (const ProgramShape::Parameter& parameter : owner->parameters)
      names.push_back(parameter.name);
    return names;
  }
  size_t Tables() { return Shape()->tables.size(); }

 private:
  const JobConfig& ServedJob() const {
    if (served_job_ == nullptr) throw std::runtime_error("no request asks for batches");
    return *served_job_;
  }
  ProgramWorker& worker() {
    if (worker_ == nullptr) throw std::runtime_error("the worker has left its job");
    return *worker_;
  }
  std::shared_ptr<const ProgramShape> Shape() {
    const auto place = worker().place();
    if (!place.has_value() || place->shape == nullptr)
      throw std::runtime_error("the worker has no job yet");
    return place->shape;
  }
  Turn& OpenTurn() {
    if (turn_ == nullptr) throw std::runtime_error("there is no batch to answer");
    return *turn_;
  }
  void Close(absl::Status result = absl::OkStatus()) {
    OpenTurn().Close();
    turn_ = nullptr;
    worker().exchange()->Answer(std::move(result));
  }

  std::unique_ptr<ProgramWorker> worker_;
  std::shared_ptr<SourceExchange> sources_;
  std::shared_ptr<SourceStates> source_states_;
  std::shared_ptr<const JobConfig> served_job_;  // of the newest request; its thread alone
  std::shared_ptr<Turn> turn_;
};

std::pair<std::string, std::string> Declare(const std::string& job, const std::string& base_dir,
                                            const std::string& program, bool source,
                                            bool eval_source, bool batches, bool table,
                                            std::vector<std::string> columns) {
  const JobConfig declared =
      Checked(DeclareJob(job, base_dir, program,
                         ProgramSources{source, eval_source, batches, table, std::move(columns)}));
  return {ToTextproto(declared), declared.model().program().digest()};
}

// The names of the columns of a table, by what __arrow_c_schema__ or __arrow_c_stream__ returns. A
// stream is taken over.
std::vector<std::string> ColumnNames(const nb::capsule& capsule) {
  ArrowOwner<ArrowSchema> schema;
  const ArrowSchema* of = nullptr;
  if (std::string_view(capsule.name() == nullptr ? "" : capsule.name()) == "arrow_schema") {
    of = static_cast<const ArrowSchema*>(capsule.data());
  } else {
    ArrowArrayStream stream = std::exchange(*StreamOf(capsule), ArrowArrayStream{});
    nb::gil_scoped_release release;
    if (stream.get_schema(&stream, schema.Fill()) == 0) of = &*schema;
    stream.release(&stream);
  }
  if (of == nullptr) throw nb::value_error("the source tells no columns");
  std::vector<std::string> names;
  for (const ArrowPath& path : Checked(ArrowPathsOf(*of))) names.push_back(path.name);
  return names;
}

using Values = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

void Offer(const std::string& dir, const std::string& job,
           const std::vector<std::pair<std::string, Values>>& values) {
  JobConfig declared;
  if (!google::protobuf::TextFormat::ParseFromString(job, &declared))
    throw nb::value_error("the job is not what declare() returns");
  std::vector<ParameterValues> parameters;
  for (const auto& [name, array] : values) parameters.push_back({name, array.data(), array.size()});
  nb::gil_scoped_release release;
  Check(OfferJob(dir, std::move(declared), parameters, Env::Real()));
}

bool IsOffered(const std::string& dir, const std::string& job) {
  JobConfig declared;
  if (!google::protobuf::TextFormat::ParseFromString(job, &declared))
    throw nb::value_error("the job is not what declare() returns");
  return Checked(CheckOffer(dir, declared, Env::Real()));
}

}  // namespace
}  // namespace sluice

NB_MODULE(_core, m) {
  using namespace sluice;
  m.doc() = "The worker of a program. Use sluice.torch.";
  nb::exception<JobEnded>(m, "JobEnded", PyExc_RuntimeError);
  nb::class_<GivenRows>(m, "ArrowRows").def_prop_ro("rows", &GivenRows::rows);
  m.def("version", [] { return SluiceVersion(); });
  m.def("declare", &Declare, "job"_a, "base_dir"_a, "program"_a, "source"_a = false,
        "eval_source"_a = false, "batches"_a = false, "table"_a = false,
        "columns"_a = std::vector<std::string>(),
        "Adds a program, in JSON, to a job in text format. Returns the job and its digest.");
  m.def("column_names", &ColumnNames, "capsule"_a,
        "The columns of a table, by its __arrow_c_schema__ or __arrow_c_stream__.");
  m.def("offer", &Offer, "dir"_a, "job"_a, "values"_a,
        "Writes the job and the first values of its parameters for the launcher.");
  m.def("is_offered", &IsOffered, "dir"_a, "job"_a,
        "Whether the job is there. Raises the first difference when it is another program's.");
  nb::class_<Turn>(m, "Turn")
      .def_prop_ro("trains", &Turn::trains)
      .def_prop_ro("saves", &Turn::saves)
      .def_prop_ro("begins", &Turn::begins)
      .def_prop_ro("restored", &Turn::restored)
      .def_prop_ro("ends_epoch", &Turn::ends_epoch)
      .def_prop_ro("examples", &Turn::examples)
      .def_prop_ro("seed", &Turn::seed)
      .def_prop_ro("epoch", &Turn::epoch)
      .def_prop_ro("step", &Turn::step)
      .def_prop_ro("given_as", &Turn::given_as)
      .def_prop_ro("single", &Turn::single)
      .def_prop_ro("unweighted", &Turn::unweighted)
      .def("label", &Turn::label)
      .def("weight", &Turn::weight)
      .def("numbers", &Turn::numbers)
      .def("all_rows", &Turn::all_rows)
      .def("slot_rows", &Turn::slot_rows, "slot"_a)
      .def("slot_offsets", &Turn::slot_offsets, "slot"_a)
      .def("rows", &Turn::rows, "table"_a)
      .def("row_gradients", &Turn::row_gradients, "table"_a)
      .def("parameter", &Turn::parameter, "i"_a)
      .def("parameter_gradient", &Turn::parameter_gradient, "i"_a)
      .def("parameter_addresses", &Turn::parameter_addresses)
      .def("gradient_addresses", &Turn::gradient_addresses)
      .def("copy_rows", &Turn::CopyRows, "table"_a, "slot"_a, "first"_a, "to"_a)
      .def("add_row_gradients", &Turn::AddRowGradients, "table"_a, "slot"_a, "first"_a,
           "gradients"_a)
      .def("logits", &Turn::logits)
      .def("log", &Turn::Log, "name"_a, "value"_a)
      .def("measure", &Turn::Measure, "name"_a, "sum"_a, "weight"_a);
  nb::class_<Worker>(m, "Worker")
      .def(nb::init<const std::string&, uint64_t>(), "job"_a, "epoch_steps"_a = 0)
      .def("take", &Worker::Take)
      .def("poll", &Worker::Poll, "seconds"_a)
      .def("await_acknowledged", &Worker::AwaitAcknowledged, "push"_a, "seconds"_a)
      .def("mode", &Worker::ModeName)
      .def("epochs", &Worker::Epochs)
      .def("answer", &Worker::Answer, "loss_sum"_a, "weight_sum"_a)
      .def("skip", &Worker::Skip)
      .def("answer_logits", &Worker::AnswerLogits)
      .def("answer_state", &Worker::AnswerState, "state"_a)
      .def("keep_state", &Worker::KeepState)
      .def("answer_end", &Worker::AnswerEnd, "done"_a)
      .def("gather", &Worker::Gather, "epochs_done"_a, "number"_a, "what"_a, "rank"_a, "data"_a)
      .def("pass_on", &Worker::Pass, "epochs_done"_a, "number"_a, "what"_a)
      .def("await_source", &Worker::AwaitSource, "wait"_a = true)
      .def("batch_rows", &Worker::BatchRows)
      .def("seed", &Worker::Seed)
      .def("table_rows", &Worker::TableRows, "stream"_a, "rank"_a, "world_size"_a, "start"_a)
      .def("counted_source", &Worker::CountedSource, "number"_a, "batches"_a)
      .def("keep_source_state", &Worker::KeepSourceState, "epoch"_a, "batches"_a, "state"_a)
      .def("source_state_before", &Worker::SourceStateBefore, "epoch"_a, "batches"_a)
      .def("give_batch", &Worker::GiveBatch, "number"_a, "given_as"_a, "examples"_a,
           "label"_a.none(), "weight"_a.none(), "numbers"_a, "values"_a)
      .def("end_batches", &Worker::EndBatches, "number"_a)
      .def("give_rows", &Worker::GiveRows, "number"_a, "given_as"_a, "rows"_a)
      .def("fail_source", &Worker::FailSource, "why"_a)
      .def("features", &Worker::Features)
      .def("fail", &Worker::Fail, "why"_a)
      .def("leave", &Worker::Leave)
      .def("cancel", &Worker::Cancel)
      .def("stop", &Worker::Stop)
      .def("abandon", &Worker::Abandon)
      .def("place", &Worker::Place)
      .def("output_dir", &Worker::OutputDir)
      .def("lookups", &Worker::Lookups)
      .def("numbers", &Worker::Numbers)
      .def("parameters", &Worker::Parameters)
      .def("tables", &Worker::Tables);
  BindExamples(m);
  BindModels(m);
}
