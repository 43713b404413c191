// The device that is planned for where its own numbers are not known: a large GPU.
#pragma once

namespace sinter {

inline constexpr int kMultiprocessors = 132;
// So many blocks keep each of them busy.
inline constexpr int kEnoughBlocks = 512;
// Column reductions: of rows up to this long a large block takes many at once, and one block a
// multiprocessor is enough.
inline constexpr int kShortRow = 256;
// Threads of a multiprocessor's blocks with column reductions; of light ones, in 48 registers each.
inline constexpr int kColumnThreads = 1024, kLightColumnThreads = 1280;

}  // namespace sinter
