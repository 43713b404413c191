// The gradient of resampling. Pooling by maximum needs to know which element won: where the user
// kept no Index, the forward operation is run again for it. The other modes are linear in X, so
// that DY alone is read.
#include "lower/expansion.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter::lowering {
namespace {

// Positions in the window are below 128 in i8.
DataType index_type(const ResampleAttributes& a, int rank) {
  std::int64_t positions = 1;
  for (const std::int64_t n : shapes::resample_geometry(a, rank).window) positions *= n;
  return positions <= 128 ? i8 : i32;
}

}  // namespace

void resample_backward(Expansion& e) {
  ResampleAttributes a = e.attributes<ResampleAttributes>();
  a.generate_index.reset();
  Tensor index;
  if (a.mode == ResampleMode::maxpool) {
    index = e.input_in_memory(3);
    if (!index) {
      ResampleAttributes forward = a;
      forward.generate_index = true;
      index = e.typed(index_type(a, e.output_dim(0).size()),
                      e.named("index", resample(e.input_in_memory(1), forward).index));
    }
  }
  e.result(0, sinter::resample_backward(e.input_in_memory(0), a, e.output_dim(0), index));
}

}  // namespace sinter::lowering
