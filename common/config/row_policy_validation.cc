// The checks of tables { max_gib evict admit }, which bound a table and choose its rows.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/config/job_validation.h"
#include "common/config/mode.h"

namespace sluice {
namespace {

constexpr double kMaxGib = 1 << 20;
constexpr double kMaxHalfLifeDays = 36500;
// The sketch has counters of 16 bits.
constexpr uint32_t kMaxAfter = 65535;
constexpr uint32_t kLeastSketchKib = 1024, kMostSketchKib = 1 << 22;

class RowPolicyCheck {
 public:
  RowPolicyCheck(const JobConfig& job, int index)
      : job_(job), table_(job.tables(index)), path_(absl::StrCat("tables[", index, "]")) {}

  std::vector<ConfigProblem> Run() {
    Limit();
    if (table_.has_evict()) Evict(path_ + ".evict", table_.evict());
    if (table_.has_admit()) Admit(path_ + ".admit", table_.admit());
    return std::move(problems_);
  }

 private:
  void Add(const std::string& path, const std::string& text) { problems_.push_back({path, text}); }

  void Limit() {
    const double gib = table_.max_gib();
    if (gib == 0) return;
    // Written so that NaN is refused, too.
    if (!(gib > 0 && gib <= kMaxGib)) {
      Add(path_ + ".max_gib", absl::StrCat(gib, " is not in the range 0 to ", kMaxGib,
                                           "; give the GiB of all rows of the table"));
    }
    if (table_.max_rows() > 0) {
      Add(path_ + ".max_gib",
          absl::StrCat("contradicts max_rows ", table_.max_rows(), ": keep one of them"));
    }
  }

  void RefuseGeo(const std::string& path) {
    if (ModeOf(job_.strategy()) != Mode::kGeo) return;
    Add(path, "is refused in Geo, where workers keep rows, too; remove it, or give k_steps 0");
  }

  void Evict(const std::string& path, const EvictConfig& evict) {
    RefuseGeo(path);
    if (table_.max_rows() == 0 && table_.max_gib() == 0) {
      Add(path, "needs a limit at which it begins; give max_rows or max_gib of the table");
    }
    const double days = evict.half_life_days();
    if (days == 0) return;
    const std::string half_life = path + ".half_life_days";
    if (!(days > 0 && days <= kMaxHalfLifeDays)) {
      Add(half_life, absl::StrCat(days, " is not in the range 0 to ", kMaxHalfLifeDays,
                                  "; give the days in which a count halves"));
    }
    if (evict.score() != EvictConfig::COUNT) {
      Add(half_life, absl::StrCat("only has an effect with score COUNT, and score is ",
                                  EvictConfig::Score_Name(evict.score()), "; remove one of them"));
    }
    if (job_.data().day().empty()) {
      Add(half_life,
          "needs the day of the data; set data.day, or name train_files whose paths have one "
          "day=YYYY-MM-DD");
    }
  }

  void Admit(const std::string& path, const AdmitConfig& admit) {
    RefuseGeo(path);
    const double probability = admit.probability();
    if (admit.after() != 0 && probability != 0) {
      Add(path, "after contradicts probability; keep one of them");
    } else if (admit.after() == 0 && probability == 0) {
      Add(path, "needs after or probability; give after: 3, say, or remove admit");
    }
    if (admit.after() == 1 || admit.after() > kMaxAfter) {
      Add(path + ".after", absl::StrCat(admit.after(), " is not in the range 2 to ", kMaxAfter,
                                        "; 1 would admit every key at once"));
    }
    if (probability != 0 && !(probability > 0 && probability < 1)) {
      Add(path + ".probability", absl::StrCat(probability, " is not between 0 and 1; 1 would ",
                                              "admit every key at once"));
    }
    const uint32_t kib = admit.sketch_kib();
    if (kib != 0 && (kib < kLeastSketchKib || kib > kMostSketchKib)) {
      Add(path + ".sketch_kib", absl::StrCat(kib, " is not in the range ", kLeastSketchKib, " to ",
                                             kMostSketchKib, "; 0 means the default, 65536"));
    }
  }

  const JobConfig& job_;
  const TableConfig& table_;
  const std::string path_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> FindRowPolicyProblems(const JobConfig& job, int index) {
  return RowPolicyCheck(job, index).Run();
}

}  // namespace sluice
