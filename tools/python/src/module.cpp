#include "graph.hpp"

NB_MODULE(_sinter, m) {
  nanobind::set_leak_warnings(false);  // caches of PyTorch keep plans until the process ends
  m.doc() = "The parts of the package sinter that are written in C++.";
  m.attr("__version__") = SINTER_VERSION;
  sinter::python::bind_errors(m);
  sinter::python::bind_table(m);
  sinter::python::bind_graph(m);
  sinter::python::bind_runtime(m);
  sinter::python::bind_plan_cache(m);
  sinter::python::bind_arrays(m);
}
