// sinter doctor: what this machine offers and what it lacks.
#include "runtime/doctor.hpp"

#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "json/reader.hpp"

namespace sinter::cli {
namespace {

using json::json_string;

std::string library_json(const DoctorReport::Library& l) {
  return fmt::format("{{\"path\": {}, \"version\": {}, \"problem\": {}}}", json_string(l.path),
                     json_string(l.version), json_string(l.problem));
}

std::string doctor_json(const DoctorReport& r) {
  std::string gpus, environment, unknown;
  for (const auto& g : r.gpus)
    gpus += fmt::format(
        "{}{{\"ordinal\": {}, \"name\": {}, \"target\": {}, \"memory_bytes\": {}, "
        "\"sms\": {}, \"problem\": {}}}",
        gpus.empty() ? "" : ", ", g.ordinal, json_string(g.name), json_string(g.target),
        g.memory_bytes, g.sms, json_string(g.problem));
  for (const auto& [key, value] : r.environment)
    environment += fmt::format("{}{}: {}", environment.empty() ? "" : ", ", json_string(key),
                               json_string(value));
  for (const auto& variable : r.unknown_variables)
    unknown += (unknown.empty() ? "" : ", ") + json_string(variable);
  std::string missing;
  for (const auto& m : r.missing()) missing += (missing.empty() ? "" : ", ") + json_string(m);
  const auto& c = r.cache;
  return fmt::format(
      "{{\"version\": {},\n \"can_compile\": {}, \"can_execute\": {}, \"can_run_on_cpu\": {},\n"
      " \"missing\": [{}],\n \"driver\": {},\n"
      " \"nvrtc\": {},\n"
      " \"trial\": {{\"target\": {}, \"milliseconds\": {}, \"problem\": {}}},\n"
      " \"gpus\": [{}],\n"
      " \"cache\": {{\"directory\": {}, \"usable\": {}, \"reason\": {}, \"entries\": {}, "
      "\"bytes\": {}, \"limit_bytes\": {}}},\n"
      " \"environment\": {{{}}},\n \"unknown_variables\": [{}]}}\n",
      json_string(r.version), r.can_compile(), r.can_execute(), r.can_run_on_cpu(), missing,
      library_json(r.driver), library_json(r.nvrtc), json_string(r.trial.target),
      json::number(r.trial.milliseconds), json_string(r.trial.problem), gpus,
      json_string(c.directory), c.usable, json_string(c.reason), c.entries, c.bytes, c.limit_bytes,
      environment, unknown);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine offers and lacks");
  command->add_flag("--json", *json, "For programs");
  command->callback([json, &exit_code] {
    const DoctorReport r = examine();
    fmt::print("{}", *json ? doctor_json(r) : doctor_text(r));
    // Everything works without a GPU and without NVRTC, if slower; the report says what is missing.
    exit_code = r.can_run_on_cpu() ? kOk : kMissing;
  });
}

}  // namespace sinter::cli
