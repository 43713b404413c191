// pointwise.hpp and the table of its structs once more, in the namespace of the device library.
#include "golden/device_formulas.hpp"

#include <utility>

#include "reference/bounded_math.hpp"
#include "sinter/ops/op_table.hpp"
#include "support/device_on_host.hpp"

#define __CUDACC_RTC__  // the device's functions, not those of a host program
namespace on_device {
namespace sinter {
using ::sinter::info;
using ::sinter::PointwiseMode;
}  // namespace sinter
#include "reference/apply.hpp"
}  // namespace on_device

namespace sinter::test {
namespace {

template <class T>
T value(PointwiseMode mode, const T* operands, const T* params) {
  T r = 0;
  on_device::sinter::with_formula(mode, [&]<class Formula>(Formula) {
    r = on_device::sinter::reference::apply<Formula>(operands, params);
  });
  return r;
}

}  // namespace

float device_formula(PointwiseMode mode, const float* operands, const float* params) {
  return value(mode, operands, params);
}
double device_formula(PointwiseMode mode, const double* operands, const double* params) {
  return value(mode, operands, params);
}

}  // namespace sinter::test
