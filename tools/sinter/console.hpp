// What the sub-commands share towards the terminal: exit codes, errors one a line, progress.
#pragma once
#include <string>
#include <string_view>

#include "sinter/compile.hpp"

namespace sinter::cli {

enum ExitCode : int {
  kOk = 0,
  kWrong = 1,     // a result or a check is wrong
  kBadInput = 2,  // of the command line, a document, an array or the path of an output
  kMissing = 3,   // device, driver, compiler, memory, or room for the output
};

// Names come from documents: control characters and bytes that are no UTF-8 are shown escaped.
std::string printable(std::string_view text);
// The same of a name, of which no more is shown than a line holds.
std::string printable_name(std::string_view name);

// Prints each diagnostic as a line "error: ...", at most 20 of them and the number of the others,
// and gives the exit code that fits the first.
int report(const Diagnostics& errors);
void note(std::string_view text);         // a line on stderr
void print_error(std::string_view text);  // a line "error: ..." on stderr

// An array of objects with the fields of each diagnostic, all of them and uncut.
std::string to_json(const Diagnostics& errors);

// Of an output's path: what goes there shares its place in the file with what is printed.
bool is_stdout(std::string_view path);
// Whether all that was printed has arrived; reports it where it has not (a full disk).
bool stdout_complete();

// One line on a terminal that says what takes long; nothing where stderr is no terminal.
class Progress {
 public:
  explicit Progress(std::string_view text);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  // The same options, with planning and compilation shown on this line as they go on.
  PlanOptions following(PlanOptions options) const;

 private:
  void show(std::string_view text) const;
  bool shown_;
};

}  // namespace sinter::cli
