// libnvrtc, opened at run time from a documented list of places; what was tried is kept, so that
// an error can say how to get it.
#pragma once
#include <nvrtc.h>

#include <string>
#include <vector>

#include "sinter/base/result.hpp"

namespace sinter {

struct Nvrtc {
  std::string path;         // of the library that was opened
  std::string fingerprint;  // its version and size: part of every cache key
  int major = 0, minor = 0;

  decltype(&::nvrtcVersion) version = nullptr;
  decltype(&::nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&::nvrtcCreateProgram) create_program = nullptr;
  decltype(&::nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&::nvrtcCompileProgram) compile_program = nullptr;
  decltype(&::nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&::nvrtcGetCUBIN) get_cubin = nullptr;
  decltype(&::nvrtcGetProgramLogSize) get_log_size = nullptr;
  decltype(&::nvrtcGetProgramLog) get_log = nullptr;
};

// The paths to try: SINTER_NVRTC alone where it is set; else the loader's names, then the
// directories of CUDA_HOME and CUDA_PATH, then /usr/local/cuda.
std::vector<std::string> nvrtc_paths();
Result<Nvrtc> open_nvrtc(const std::vector<std::string>& paths);

// The process's NVRTC, opened by the first call and kept to the end; the error is kept too.
Result<const Nvrtc*> nvrtc();

}  // namespace sinter
