// Opening a library that may not be there, with the loader's reason kept for the error text.
#pragma once
#include <dlfcn.h>

#include <string>
#include <string_view>

namespace sinter {

// Null when the loader refuses; `why` is then "path: reason".
inline void* open_library(const std::string& path, std::string& why) {
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = dlerror();
  why = reason ? reason : "not found";
  if (!std::string_view(why).starts_with(path)) why = path + ": " + why;
  return nullptr;
}

}  // namespace sinter
