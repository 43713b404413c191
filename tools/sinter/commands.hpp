// The sub-commands, a file each. Each adds itself to the application and stores its exit code.
#pragma once
#include <CLI/CLI.hpp>

#include "console.hpp"
#include "sinter/base/result.hpp"

namespace sinter::cli {

void add_run(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

inline int finish(const Result<int>& result) { return result ? *result : report(result.errors()); }

}  // namespace sinter::cli
