#include "graph.hpp"

NB_MODULE(_sinter, m) {
  m.doc() = "The parts of the package sinter that are written in C++.";
  sinter::python::bind_errors(m);
  sinter::python::bind_table(m);
  sinter::python::bind_graph(m);
  sinter::python::bind_runtime(m);
  sinter::python::bind_arrays(m);
}
