// Several rows a thread at once, for kernels whose rows are short (Config::rows_at_once): so that
// enough of memory is in flight.
#pragma once
#include "sinter/device/core/device.cuh"

namespace sinter::rowwise {

// What a thread has of as many rows of successive blocks, worked on side by side.
template <class Row, int count>
struct Several : Row {
  Several<Row, count - 1> others;

  template <class Args>
  SINTER_DEVICE Several(const Args& args) : Row(args), others(args) {}
  template <class... Phases>
  SINTER_DEVICE void prefetch(typename Row::Index block) {
    Row::template prefetch<Phases...>(block);
    others.template prefetch<Phases...>(block + 1);
  }
  template <class... Phases>
  SINTER_DEVICE void begin(typename Row::Index block) {
    Row::template begin<Phases...>(block);
    others.template begin<Phases...>(block + 1);
  }
  template <class Phase>
  SINTER_DEVICE void run_phase() {
    Row::template run_phase<Phase>();
    others.template run_phase<Phase>();
  }
  template <class Phase, class Next>
  SINTER_DEVICE void run_segments() {
    Row::template run_segments<Phase, Next>();
    others.template run_segments<Phase, Next>();
  }
};
template <class Row>
struct Several<Row, 1> : Row {
  using Row::Row;
};

}  // namespace sinter::rowwise
