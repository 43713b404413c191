// The device library as text, compiled into the library so that NVRTC needs no path at run time.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace sinter {

struct EmbeddedFile {     // both end with a zero behind them
  std::string_view name;  // as it is included: "sinter/device/family/pointwise.cuh"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();  // sorted by name
std::string_view embedded_digest();              // 32 hex digits over all names and texts
// The files that a text includes, and those that these include, each once.
std::vector<EmbeddedFile> included_files(std::string_view text);

}  // namespace sinter
