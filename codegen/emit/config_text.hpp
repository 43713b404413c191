// The structs of a generated file that hold constants and arguments.
#pragma once
#include "emit/engine_text.hpp"

namespace sinter {

void print_config(TextWriter& out, const EngineText& engine, const ScheduledKernel& kernel,
                  const KernelNames& names);
// `First`: what of the first of two products is known when the kernel is compiled, whose
// coordinates are FirstCoord; `bodies` run over its domain.
void print_product_config(TextWriter& out, const KernelSpec& first, bool wide_index,
                          const KernelNames& names, const std::vector<const BodyText*>& bodies);
void print_args(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                const std::vector<MapArgument>& maps);

}  // namespace sinter
