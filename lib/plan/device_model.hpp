// The device that is planned for where its own numbers are not known: a large GPU.
#pragma once

namespace sinter {

inline constexpr int kMultiprocessors = 132;
// So many blocks keep each of them busy.
inline constexpr int kEnoughBlocks = 512;

}  // namespace sinter
