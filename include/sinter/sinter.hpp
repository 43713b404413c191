// Sinter: operation graphs with run-time fusion. Describing, compiling, executing; plan_cache.hpp
// and buffers.hpp stand beside it.
#pragma once
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
