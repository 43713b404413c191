// Graphs and tensors as Python objects.
#pragma once
#include <mutex>

#include "attributes.hpp"

namespace sinter::python {

// A graph with the lock that keeps threads apart: planning runs without the GIL and names tensors.
struct GraphObject {
  Shared<Graph> graph;
  Shared<std::mutex> mutex = Shared<std::mutex>::make();
};

// A tensor keeps its graph alive.
struct TensorObject {
  GraphObject owner;
  TensorId id;
};

// Locks a graph. Waiting is done without the GIL, which the thread that has the lock may want.
class GraphLock {
 public:
  explicit GraphLock(const GraphObject& owner) : mutex_(*owner.mutex) {
    if (mutex_.try_lock()) return;
    nb::gil_scoped_release release;
    mutex_.lock();
  }
  ~GraphLock() { mutex_.unlock(); }
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;

 private:
  std::mutex& mutex_;
};

nb::tuple tuple_of(const Dims& dims);
// Python's "cpu", an ordinal, or None for what is there.
Device device_from(nb::handle v);

void bind_graph(nb::module_& m);
void bind_runtime(nb::module_& m);
void bind_plan_cache(nb::module_& m);
void bind_arrays(nb::module_& m);
void bind_table(nb::module_& m);

}  // namespace sinter::python
