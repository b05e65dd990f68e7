#include "worker/step/source_state_file.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/own_data.h"

namespace sluice {

absl::Status PutSourceState(const SourceState& state, GeoStateWriter* to) {
  SLUICE_RETURN_IF_ERROR(to->Put(state.epoch));
  SLUICE_RETURN_IF_ERROR(to->Put(state.batches));
  SLUICE_RETURN_IF_ERROR(to->Put(uint64_t{state.bytes.size()}));
  return to->Append(state.bytes.data(), state.bytes.size());
}

absl::StatusOr<SourceState> GetSourceState(GeoStateReader* from) {
  SourceState state;
  uint64_t bytes = 0;
  SLUICE_RETURN_IF_ERROR(from->Get(&state.epoch));
  SLUICE_RETURN_IF_ERROR(from->Get(&state.batches));
  SLUICE_RETURN_IF_ERROR(from->Get(&bytes));
  // Before anything is allocated.
  if (bytes > SourceStates::kMaxBytes)
    return from->Damaged(absl::StrCat("it says that the state has ", bytes, " bytes"));
  state.bytes.resize(bytes);
  SLUICE_RETURN_IF_ERROR(from->Read(state.bytes.data(), bytes));
  return state;
}

absl::StatusOr<SavedFile> WriteSourceState(const SourceState& state, Env* env,
                                           const std::string& directory, uint32_t rank,
                                           const std::string& save_id) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<GeoStateWriter> file,
                          GeoStateWriter::Create(env, directory, rank, save_id));
  SLUICE_RETURN_IF_ERROR(PutSourceState(state, file.get()));
  return file->Finish();
}

absl::StatusOr<SourceState> ReadSourceState(Env* env, const std::string& directory,
                                            const SavedFile& saved) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<GeoStateReader> file,
                          GeoStateReader::Open(env, directory, saved));
  SLUICE_ASSIGN_OR_RETURN(SourceState state, GetSourceState(file.get()));
  SLUICE_RETURN_IF_ERROR(file->Finish());
  return state;
}

absl::Status AddSourceState(const JobContext& context, uint32_t epoch, uint64_t batches,
                            const std::string& directory, const std::string& save_id,
                            WorkerState* part) {
  SourceStates* const states = context.own_data == nullptr ? nullptr : context.own_data->states();
  if (states == nullptr) return absl::OkStatus();
  const std::optional<SourceState> newest = states->Before(epoch, batches);
  if (!newest) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(*part->mutable_file(),
                          WriteSourceState(*newest, context.env, directory, context.rank, save_id));
  return absl::OkStatus();
}

}  // namespace sluice
