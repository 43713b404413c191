#include "runtime/large_pages.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace sinter {
namespace {

constexpr int kHeapStep = 48 << 20;  // a heap of a thread has 64 MB
constexpr std::uintptr_t kLargePage = std::uintptr_t{2} << 20;

}  // namespace

void grow_heaps_in_large_steps() {
#ifdef __GLIBC__
  mallopt(M_TOP_PAD, kHeapStep);
  mallopt(M_TRIM_THRESHOLD, 2 * kHeapStep);  // what a compilation frees serves the next one
#endif
}

void ask_for_large_pages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  // A small block lies at the beginning of what is free in the heap. It is advice: a heap that is
  // shorter is given none, or as far as it goes.
  void* block = std::malloc(1);
  const auto first = (reinterpret_cast<std::uintptr_t>(block) + kLargePage - 1) & ~(kLargePage - 1);
  madvise(reinterpret_cast<void*>(first), kHeapStep - kLargePage, MADV_HUGEPAGE);
  std::free(block);
#endif
}

}  // namespace sinter
