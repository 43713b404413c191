// What tests read from the environment.
#pragma once
#include <cstdlib>
#include <string>

namespace sinter::test {

// A number, for longer or shorter runs.
inline int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

// The folder of the sources, where it lies now.
inline std::string source_tree() {
  const char* moved = std::getenv("SINTER_TEST_DATA");
  return moved ? moved : SINTER_SOURCE_DIR;
}

}  // namespace sinter::test
