// Runs hidden test cases of this program in a child process with another environment: what is
// opened once a process (driver, compiler, cache) can only be tested so.
#pragma once
#include <string>
#include <utility>
#include <vector>

struct ChildRun {
  bool passed = false;  // at least one case ran and all passed
  std::string output;
};

// `tag` without brackets. An empty value removes the variable.
ChildRun run_hidden_cases(const std::string& tag,
                          const std::vector<std::pair<std::string, std::string>>& environment);

std::string program_directory();  // of this program
