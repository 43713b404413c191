// What the sub-commands share towards the terminal: exit codes, errors one a line, progress.
#pragma once
#include <string>
#include <string_view>

#include "sinter/base/diagnostic.hpp"

namespace sinter::cli {

enum ExitCode : int {
  kOk = 0,
  kWrong = 1,     // a result or a check is wrong
  kBadInput = 2,  // of the command line, a document or an array
  kMissing = 3,   // device, driver or compiler
};

// Names come from documents: control characters and bytes that are no UTF-8 are shown escaped.
std::string printable(std::string_view text);

// Prints each diagnostic as a line "error: ..." and gives the exit code that fits the first.
int report(const Diagnostics& errors);
void note(std::string_view text);  // a line on stderr

// One line on a terminal that says what takes long; nothing where stderr is no terminal.
class Progress {
 public:
  explicit Progress(std::string_view text);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

 private:
  bool shown_;
};

}  // namespace sinter::cli
