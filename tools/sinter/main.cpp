// sinter: operation graphs on the command line. 0: success, 1: a result is wrong, 2: bad usage or
// input, 3: a device, the compiler, memory or room for the output is missing.
#include <fmt/format.h>

#include <exception>
#include <iostream>
#include <span>

#include "base/edit_distance.hpp"
#include "commands.hpp"
#include "runtime/large_pages.hpp"

namespace {

constexpr const char* kFooter =
    "Exit codes: 0 success, 1 a result is wrong, 2 bad usage or input, 3 device, compiler, memory "
    "or room for the output missing.\n"
    "Documents are regular files or pipes of at most 1,024 MiB; of an array no more is read than "
    "its header and its tensor say.";

// "unknown option 'word'; did you mean ..."; of a command that resembles none the list of them.
// Nothing where the nearest is not known.
std::string nearest(const CLI::App& app, std::span<char* const> words) {
  const auto used = app.get_subcommands();
  std::vector<std::string> names;
  if (used.empty())
    for (const auto* c : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(c->get_name());
  else
    for (const auto* o : used.front()->get_options())
      for (const auto& name : o->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  for (std::string_view word : words) {
    if (!used.empty() && !word.starts_with("--")) continue;
    word = word.substr(0, word.find('='));
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string text = sinter::suggestion(word, known);
    const char* const kind = used.empty() && !word.starts_with('-') ? "command" : "option";
    if (!text.empty())
      return fmt::format("unknown {} '{}'; {}", kind, sinter::cli::printable_name(word), text);
    if (used.empty() && !word.starts_with('-'))
      return fmt::format("unknown command '{}'; commands are {}", sinter::cli::printable_name(word),
                         fmt::join(known, ", "));
    return {};
  }
  return {};
}

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
    const bool misspelt = dynamic_cast<const CLI::RequiredError*>(&e) != nullptr ||
                          dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr;
    const std::span<char* const> words(argv + 1, argv + std::max(argc, 1));
    const std::string unknown = misspelt ? nearest(app, words) : std::string();
    print_error(fmt::format("{} (see sinter --help)", unknown.empty() ? e.what() : unknown));
    return kBadInput;
  } catch (const std::exception& e) {  // no memory, no thread, no room on stdout
    if (!std::ferror(stdout)) print_error(e.what());
    return kMissing;
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sinter::cli;
  sinter::grow_heaps_in_large_steps();
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
