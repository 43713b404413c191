// The fake driver beside the test program, and what it recorded. Its cases run in a child process,
// because a process has one driver.
#pragma once
#include <dlfcn.h>

#include <cstdlib>

#include "support/child.hpp"
#include "support/fake_driver/fake_driver.hpp"

inline std::string fake_driver_path() { return program_directory() + "/libsinter_fake_driver.so"; }

// In the child: the state of the driver that the library opened.
inline FakeDriver& fake_gpu() {
  void* library = dlopen(std::getenv("SINTER_DRIVER"), RTLD_NOW);
  auto* state = reinterpret_cast<FakeDriver* (*)()>(dlsym(library, "fake_driver_state"));
  return *state();
}

// Lets one driver call fail for a scope.
class Failing {
 public:
  Failing(const char* call, int result) {
    fake_gpu().failing_call = call;
    fake_gpu().failing_result = result;
  }
  ~Failing() { fake_gpu().failing_call = nullptr; }
};
