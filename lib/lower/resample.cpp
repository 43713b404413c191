// The gradient of resampling. Pooling by maximum needs to know which element won: where the user
// kept no Index, the forward operation is run again for it. The other modes are linear in X, so
// that DY alone is read.
#include "lower/expansion.hpp"

namespace sinter::lowering {

void resample_backward(Expansion& e) {
  ResampleAttributes a = e.attributes<ResampleAttributes>();
  a.generate_index.reset();
  Tensor index;
  if (a.mode == ResampleMode::maxpool) {
    index = e.input(3);
    if (!index) {
      ResampleAttributes forward = a;
      forward.generate_index = true;
      index = e.named("index", resample(e.input(1), forward).index);
    }
  }
  e.result(0, sinter::resample_backward(e.input(0), a, e.output_dim(0), index));
}

}  // namespace sinter::lowering
