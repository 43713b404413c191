// Sinter: operation graphs with run-time fusion. Everything a program needs.
#pragma once
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "sinter/operations.hpp"
