// The tuning file: {"format": "sinter.tuning", "version": 1, "best": {PROBLEM: CONFIGURATION, ..}}.
#pragma once
#include <string>

#include "plan/tuning.hpp"
#include "sinter/base/result.hpp"

namespace sinter {

// An empty path is the file that SINTER_TUNING_FILE names; no tuning where that is not set either,
// and none where the file does not exist yet. json-syntax and json-field errors otherwise.
Result<Tuning> read_tuning(const std::string& path);

// Adds to what the file holds; writes a new file and renames it.
Status add_to_tuning(const std::string& path, const Tuning& more);

}  // namespace sinter
