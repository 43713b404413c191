// Graph and plan files as arguments of the sub-commands.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sinter/compile.hpp"

namespace sinter::cli {

struct Document {
  Shared<Graph> graph;       // of a plan file: the graph that it embeds
  std::optional<Plan> plan;  // of a plan file only
};

// What a plan's kernels were chosen by: options that a plan file cannot be given any more.
struct PlanningOptions {
  bool no_fuse = false, deterministic = false;
  std::string architecture{};
};
// Empty unless the document is a plan and one of the options is given; else which one.
std::string planning_problem(const Document& document, const PlanningOptions& options);

// Told apart by their "format".
Result<Document> read_document(const std::string& path);

// "cpu" or a GPU's number; the current device where it is empty. The command line has checked the
// spelling with device_problem, which says what is wrong with it.
Result<Device> device_from(const std::string& text);
std::string device_problem(const std::string& text);
std::string device_name(Device device);

// Empty where the text has no minus sign, or, of positive_problem, a number that is not 0 either.
// (CLI11's own checks name the largest double, with its 309 digits.) What is no number the option
// refuses.
std::string negative_problem(const std::string& text);
std::string positive_problem(const std::string& text);

// Empty where the text is a list of targets that exist ("sm_90a", "sm_90a,sm_100a"); else which one
// is none, with the nearest that is.
std::string target_problem(const std::string& text);
std::vector<std::string> split_targets(const std::string& text);

}  // namespace sinter::cli
