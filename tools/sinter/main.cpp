// sinter: operation graphs on the command line. 0: well, 1: a result is wrong, 2: bad usage or
// input, 3: a device or the compiler is missing.
#include <fmt/format.h>

#include <exception>

#include "commands.hpp"

int main(int argc, char** argv) {
  using namespace sinter::cli;
  CLI::App app("Plans, runs, times and explains operation graphs (graph JSON).", "sinter");
  app.set_version_flag("--version", "sinter " SINTER_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 well, 1 a result is wrong, 2 bad usage or input, 3 device or compiler "
      "missing.");
  int exit_code = kOk;
  for (auto* add : {add_run, add_plan, add_explain, add_check, add_bench, add_tune, add_doctor})
    add(app, exit_code);
  try {
    app.parse(argc, argv);
    std::fflush(stdout);
    return exit_code;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    fmt::print(stderr, "error: {} (see sinter --help)\n", printable(e.what()));
    return kBadInput;
  } catch (const std::exception& e) {  // no memory, no thread
    fmt::print(stderr, "error: {}\n", printable(e.what()));
    return kMissing;
  }
}
