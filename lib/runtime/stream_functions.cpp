#include "runtime/stream_functions.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace sinter {

Result<StreamFunctions> stream_functions(const Driver& driver) {
  StreamFunctions f;
  void* library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    void* address = library ? dlsym(library, name) : nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    if (!address && !missing) missing = name;
  };
  find(f.stream_create, "cuStreamCreate");
  find(f.stream_destroy, "cuStreamDestroy_v2");
  find(f.stream_synchronize, "cuStreamSynchronize");
  find(f.event_create, "cuEventCreate");
  find(f.event_destroy, "cuEventDestroy_v2");
  find(f.event_record, "cuEventRecord");
  find(f.event_synchronize, "cuEventSynchronize");
  find(f.event_elapsed_time, "cuEventElapsedTime");
  find(f.begin_capture, "cuStreamBeginCapture_v2");
  find(f.end_capture, "cuStreamEndCapture");
  find(f.graph_instantiate, "cuGraphInstantiateWithFlags");
  find(f.graph_launch, "cuGraphLaunch");
  find(f.graph_destroy, "cuGraphDestroy");
  find(f.exec_destroy, "cuGraphExecDestroy");
  if (!missing) return f;
  Diagnostic d;
  d.rule = Rule::device_missing;
  d.seen = driver.path + " without " + missing;
  return d;
}

}  // namespace sinter
