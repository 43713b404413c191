#include "runtime/nvrtc.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/env.hpp"
#include "runtime/shared_library.hpp"

namespace sinter {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

template <class F>
bool find(void* library, const char* name, F& function, std::string& absent) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function && absent.empty()) absent = name;
  return function != nullptr;
}

// The name of the first function that the library lacks, or nothing.
std::string resolve(void* library, Nvrtc& n) {
  std::string absent;
  find(library, "nvrtcVersion", n.version, absent);
  find(library, "nvrtcGetErrorString", n.get_error_string, absent);
  find(library, "nvrtcCreateProgram", n.create_program, absent);
  find(library, "nvrtcDestroyProgram", n.destroy_program, absent);
  find(library, "nvrtcCompileProgram", n.compile_program, absent);
  find(library, "nvrtcGetCUBINSize", n.get_cubin_size, absent);
  find(library, "nvrtcGetCUBIN", n.get_cubin, absent);
  find(library, "nvrtcGetProgramLogSize", n.get_log_size, absent);
  find(library, "nvrtcGetProgramLog", n.get_log, absent);
  return absent;
}

// Builds of one version differ in their code, which nvrtcVersion does not tell; the size does.
void identify(Nvrtc& n) {
  Dl_info where{};
  if (dladdr(reinterpret_cast<void*>(n.version), &where) && where.dli_fname)
    n.path = where.dli_fname;
  struct stat s {};
  const long long size = stat(n.path.c_str(), &s) == 0 ? static_cast<long long>(s.st_size) : 0;
  n.version(&n.major, &n.minor);
  n.fingerprint = fmt::format("nvrtc {}.{} {}", n.major, n.minor, size);
}

// NVRTC opens its built-in functions by name at its first compilation, and not every build of it
// looks beside itself for them. Opened here, they are found under that name.
void open_builtins(const Nvrtc& n) {
  const auto slash = n.path.rfind('/');
  if (slash == std::string::npos) return;
  std::string why;
  open_library(
      fmt::format("{}/libnvrtc-builtins.so.{}.{}", n.path.substr(0, slash), n.major, n.minor), why);
}

}  // namespace

std::vector<std::string> nvrtc_paths() {
  if (auto path = env_value("SINTER_NVRTC"); !path.empty()) return {path};
  std::vector<std::string> paths(std::begin(kNames), std::end(kNames));
  std::vector<std::string> directories;
  for (const char* root : {"CUDA_HOME", "CUDA_PATH"})
    if (auto value = env_value(root); !value.empty()) directories.push_back(value + "/lib64");
  directories.push_back("/usr/local/cuda/lib64");
  directories.push_back("/usr/local/cuda/targets/x86_64-linux/lib");
  for (const auto& directory : directories)
    for (const char* name : kNames) paths.push_back(directory + "/" + name);
  return paths;
}

Result<Nvrtc> open_nvrtc(const std::vector<std::string>& paths) {
  std::string tried;
  for (const auto& path : paths) {
    if (!tried.empty()) tried += "; ";
    std::string why;
    void* library = open_library(path, why);
    if (!library) {
      tried += why;
      continue;
    }
    Nvrtc n;
    if (const auto absent = resolve(library, n); !absent.empty()) {
      tried += fmt::format("{} has no {}", path, absent);
      dlclose(library);
      continue;
    }
    identify(n);
    open_builtins(n);
    return n;
  }
  return Diagnostic{.rule = Rule::compiler_missing,
                    .seen = tried,
                    .fix =
                        "install NVRTC 12 or newer (part of the CUDA toolkit), or name it in "
                        "SINTER_NVRTC"};
}

Result<const Nvrtc*> nvrtc() {
  static const auto* opened = new Result<Nvrtc>(open_nvrtc(nvrtc_paths()));
  if (!*opened) return opened->errors();
  return &**opened;
}

}  // namespace sinter
