// sinter: operation graphs on the command line. 0: well, 1: a result is wrong, 2: bad usage or
// input, 3: a device, the compiler, memory or room for the output is missing.
#include <fmt/format.h>

#include <exception>
#include <iostream>

#include "commands.hpp"

namespace {

constexpr const char* kFooter =
    "Exit codes: 0 well, 1 a result is wrong, 2 bad usage or input, 3 device, compiler, memory or "
    "room for the output missing.\n"
    "Documents are regular files or pipes of at most 1,024 MiB; of an array no more is read than "
    "its "
    "header and its tensor say.";

int run(CLI::App& app, int argc, char** argv, const int& exit_code) {
  using namespace sinter::cli;
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      app.exit(e);
      std::cout.flush();
      return kOk;
    }
    print_error(fmt::format("{} (see sinter --help)", e.what()));
    return kBadInput;
  } catch (const std::exception& e) {  // no memory, no thread, no room on stdout
    if (!std::ferror(stdout)) print_error(e.what());
    return kMissing;
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sinter::cli;
  CLI::App app("Plans, runs, times and explains operation graphs (graph JSON).", "sinter");
  app.set_version_flag("--version", "sinter " SINTER_VERSION);
  app.require_subcommand(1);
  app.footer(kFooter);
  int exit_code = kOk;
  for (auto* add : {add_run, add_plan, add_explain, add_check, add_bench, add_tune, add_doctor})
    add(app, exit_code);
  const int code = run(app, argc, argv, exit_code);
  return stdout_complete() || code == kWrong || code == kBadInput ? code : kMissing;
}
