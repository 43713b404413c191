// A compilation allocates 15 to 50 MB in small blocks, and at 4 KB a page the page faults take up
// to a tenth of its time. Where Linux gives pages of 2 MB to who asks for them
// (/sys/kernel/mm/transparent_hugepage), blocks come from those.
#pragma once

namespace sinter {

// The heaps of the process grow by kHeapStep, so that such a page fits in what they may write. It
// changes malloc for the whole process, so that a program asks for it and the library does not.
void grow_heaps_in_large_steps();

// For the calling thread's heap: what it has not touched yet comes in large pages.
void ask_for_large_pages();

}  // namespace sinter
