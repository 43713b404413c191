// How a copy is run: one element a thread.
#pragma once
#include "schedule/launch.hpp"

namespace sinter {

struct CopyConfig : Launch {};

}  // namespace sinter
