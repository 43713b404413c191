#include "errors.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>
#include <unordered_set>

namespace sinter::python {

Where caller() {
  // Where holds a plain pointer, so the names of files stay until the process ends.
  static auto& files = *new std::unordered_set<std::string>;
  Where where;
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  for (; frame.is_valid() && !frame.is_none(); frame = frame.attr("f_back")) {
    const nb::object module = nb::dict(frame.attr("f_globals")).attr("get")("__name__", "");
    const auto name = nb::cast<std::string>(nb::str(module));
    if (name == "sinter" || name.starts_with("sinter.")) continue;
    where.file = files.insert(nb::cast<std::string>(frame.attr("f_code").attr("co_filename")))
                     .first->c_str();
    where.line = nb::cast<unsigned>(frame.attr("f_lineno"));
    break;
  }
  return where;
}

void raise(Diagnostics errors) {
  const Where where = caller();
  nb::list list;
  for (auto& d : errors) {
    if (d.file.empty()) {
      d.file = where.file;
      d.line = where.line;
    }
    list.append(nb::cast(std::move(d)));
  }
  const nb::object type = nb::module_::import_("sinter.error").attr("Error");
  PyErr_SetObject(type.ptr(), list.ptr());
  throw nb::python_error();
}

void bind_errors(nb::module_& m) {
  nb::class_<Diagnostic>(m, "Diagnostic", "One broken rule: where, what was seen, what is allowed.")
      .def_prop_ro("rule", &Diagnostic::id, "Id of the rule, such as matmul-contraction.")
      .def_ro("node", &Diagnostic::node)
      .def_ro("tensor", &Diagnostic::tensor)
      .def_ro("attribute", &Diagnostic::attribute, "Attribute, port or field.")
      .def_ro("seen", &Diagnostic::seen)
      .def_ro("allowed", &Diagnostic::allowed)
      .def_ro("fix", &Diagnostic::fix, "The smallest change that would pass, where one is known.")
      .def_ro("file", &Diagnostic::file, "Of the user's call, or of the document.")
      .def_ro("line", &Diagnostic::line)
      .def("__str__", &Diagnostic::message);
  // For checks that Python code makes: of arrays, of keywords.
  m.def(
      "fail",
      [](std::string_view rule, const std::string& node, const std::string& tensor,
         const std::string& attribute, const std::string& seen, const std::string& allowed,
         const std::string& fix) {
        Diagnostic d{.node = node,
                     .tensor = tensor,
                     .attribute = attribute,
                     .seen = seen,
                     .allowed = allowed,
                     .fix = fix};
        while (d.rule != Rule::last_ && d.id() != rule)
          d.rule = static_cast<Rule>(static_cast<int>(d.rule) + 1);
        if (d.rule == Rule::last_) throw nb::value_error("not the id of a rule");
        raise({std::move(d)});
      },
      nb::arg("rule"), nb::kw_only(), nb::arg("node") = "", nb::arg("tensor") = "",
      nb::arg("attribute") = "", nb::arg("seen") = "", nb::arg("allowed") = "",
      nb::arg("fix") = "");
}

}  // namespace sinter::python
