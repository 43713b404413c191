// What this machine offers and what it lacks, for people and as plain data. Works when nothing else
// does: every part that fails becomes a line that says why and how to get it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runtime/disk_cache.hpp"

namespace sinter {

struct DoctorReport {
  struct Library {
    std::string path;     // empty: not found
    std::string version;  // "13.0"
    std::string problem;  // empty: works
  };
  struct Gpu {
    int ordinal = 0;
    std::string name{}, target{};
    std::string problem{};
    std::int64_t memory_bytes = 0;
    int sms = 0;
  };
  struct Trial {
    std::string target;
    double milliseconds = 0;
    std::string problem{};
  };
  std::string version;  // of this library
  Library driver, nvrtc;
  Trial trial{};              // one small kernel, compiled afresh
  std::string cpu_problem{};  // of a small graph on the CPU backend; empty: it gave the right sum
  std::vector<Gpu> gpus{};
  CacheStatus cache{};
  std::vector<std::pair<std::string, std::string>> environment{};  // the variables that are set
  std::vector<std::string> unknown_variables{};

  bool can_compile() const { return nvrtc.problem.empty() && trial.problem.empty(); }
  bool can_execute() const { return driver.problem.empty() && !gpus.empty(); }
  bool can_run_on_cpu() const { return cpu_problem.empty(); }
  // What a machine that does everything would have besides, and what then would work.
  std::vector<std::string> missing() const;
};

DoctorReport examine();
std::string doctor_text(const DoctorReport& report);

}  // namespace sinter
