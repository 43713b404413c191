// The names of GPU architectures that code is made for: "sm_80", "sm_90a", "sm_100f".
#pragma once
#include <span>
#include <string_view>

namespace sinter {

// What a diagnostic allows where the text is no target.
inline constexpr const char* kTargetExamples = "sm_80, sm_90a and the like";
// The first that has what all kernels use (asynchronous copies, bf16).
inline constexpr const char* kOldestTarget = "sm_80";
// The one whose kernels have the most configurations to choose among.
inline constexpr const char* kTunedTarget = "sm_90a";

// "sm_" and two or three digits, with "a" or "f" behind them where the target has one: nothing else
// may reach the compiler's options.
bool valid_target(std::string_view target);

// The targets that exist, in the order of their numbers, from the oldest on.
std::span<const std::string_view> known_targets();
// The one of them whose name is most like the text; empty where none is like it.
std::string_view nearest_target(std::string_view text);

// Whether code that uses the engines of `architecture` runs on `target`. That of a target with a
// letter runs there only; other code also on every later one. An empty architecture fits all.
bool target_fits(std::string_view architecture, std::string_view target);

// Whether a kernel may start there while the one ahead of it ends (programmatic dependent launch).
// Asked of the GPU that runs a plan, whichever it was made for.
bool has_dependent_launch(std::string_view target);

}  // namespace sinter
