// The parts of a generated file that only convolutions on the tensor cores of sm_90a have.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "emit/kernel_names.hpp"
#include "emit/text_writer.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// The constants of the window, and which results exist.
void print_window(TextWriter& out, const WgmmaConfig& config);

// "sinter::contraction::Bound<56, sinter::Dims<0, 1>>, ..."
std::string bounds_of_results(const std::vector<ResultBound>& bounds);

// An operand that TMA loads by im2col, or out of the filter. `resident`: its pixels stay for all
// taps.
void print_window_operand(TextWriter& out, const KernelSpec& spec, const BoxedOperand& operand,
                          const ConvolutionWindow& window, bool resident,
                          std::string_view struct_name, std::string_view map);

}  // namespace sinter
