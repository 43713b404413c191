// The device library as text, compiled into the library so that NVRTC needs no path at run time.
#pragma once
#include <span>
#include <string_view>

namespace sinter {

struct EmbeddedFile {
  std::string_view name;  // as it is included: "sinter/device/family/pointwise.cuh"
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();  // sorted by name
std::string_view embedded_digest();              // 32 hex digits over all names and texts

}  // namespace sinter
