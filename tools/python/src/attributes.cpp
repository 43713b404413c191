#include "attributes.hpp"

#include <nanobind/stl/string.h>

#include <type_traits>

namespace sinter::python {
namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Each read() says whether the value fits; kind() names what does.
std::string kind(const bool&) { return "bool"; }
std::string kind(const std::int64_t&) { return "int"; }
std::string kind(const double&) { return "float"; }
std::string kind(const Dims&) { return "Sequence[int]"; }
template <class E>
requires(std::is_enum_v<E>) std::string kind(const E&) { return "str"; }
template <class T>
std::string kind(const std::optional<T>&) {
  return kind(T{});
}

bool read(nb::handle v, bool& out) {
  if (!PyBool_Check(v.ptr())) return false;
  out = v.is(nb::handle(Py_True));
  return true;
}
bool read(nb::handle v, std::int64_t& out) {
  if (PyBool_Check(v.ptr()) || !PyIndex_Check(v.ptr())) return false;
  const auto index = nb::steal(PyNumber_Index(v.ptr()));
  int overflow = 0;
  out = index.is_valid() ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow) : 0;
  return index.is_valid() && overflow == 0;
}
bool read(nb::handle v, double& out) {
  if (PyBool_Check(v.ptr()) || PyUnicode_Check(v.ptr()) || !PyNumber_Check(v.ptr())) return false;
  out = PyFloat_AsDouble(v.ptr());
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}
bool read(nb::handle v, Dims& out) {
  if (!PySequence_Check(v.ptr()) || PyUnicode_Check(v.ptr())) return false;
  if (nb::len(v) < 1 || nb::len(v) > static_cast<std::size_t>(kMaxRank)) return false;
  out = {};
  for (nb::handle item : v) {
    std::int64_t n = 0;
    if (!read(item, n)) return false;
    out.push_back(n);
  }
  return true;
}
template <class E>
requires(std::is_enum_v<E>) bool read(nb::handle v, E& out) {
  if (!PyUnicode_Check(v.ptr())) return false;
  const auto found = enum_from_name<E>(nb::cast<std::string>(v));
  if (found) out = *found;
  return found.has_value();
}
template <class T>
bool read(nb::handle v, std::optional<T>& out) {
  T value{};
  if (!read(v, value)) return false;
  out = value;
  return true;
}

template <class T>
nb::list choices(const T& member) {
  nb::list names;
  if constexpr (IsOptional<T>::value) {
    return choices(typename T::value_type{});
  } else if constexpr (std::is_enum_v<T>) {
    for (auto n : EnumNames<T>::names) names.append(std::string(n));
  }
  return names;
}

template <class T>
nb::object value(const T& member) {
  if constexpr (IsOptional<T>::value) {
    return member ? value(*member) : nb::none();
  } else if constexpr (std::is_enum_v<T>) {
    return nb::cast(std::string(name(member)));
  } else if constexpr (std::is_same_v<T, Dims>) {
    return nb::none();  // an attribute that was not given
  } else {
    return nb::cast(member);
  }
}

template <class A, class Visit>
void visit_fields(A& attributes, const Visit& visit) {
  std::visit([&](auto& a) { std::decay_t<decltype(a)>::fields(a, visit); }, attributes);
}

std::string joined(const nb::list& names) {
  return nb::cast<std::string>(nb::str(", ").attr("join")(names));
}

std::string seen(nb::handle v) { return nb::cast<std::string>(nb::repr(v)); }

}  // namespace

Dims dims_from(nb::handle v, std::string_view what) {
  Dims dims;
  if (v.is_none() || read(v, dims)) return dims;
  const bool list = PySequence_Check(v.ptr()) && !PyUnicode_Check(v.ptr());
  raise({Diagnostic{.rule = list && nb::len(v) > 8 ? Rule::tensor_rank : Rule::attribute_value,
                    .attribute = std::string(what),
                    .seen = seen(v),
                    .allowed = "1 to 8 integers"}});
}

DataType data_type_from(nb::handle v, std::string_view what) {
  if (v.is_none()) return DataType::none;
  if (PyUnicode_Check(v.ptr()))
    if (const auto type = data_type_from_name(nb::cast<std::string>(v))) return *type;
  std::string all;
  for (const auto& t : kDataTypes)
    if (t.bytes) all += (all.empty() ? "" : ", ") + std::string(t.name);
  raise({Diagnostic{.rule = Rule::tensor_data_type,
                    .attribute = std::string(what),
                    .seen = seen(v),
                    .allowed = all}});
}

Attributes attributes_from(OpKind op, const nb::dict& values, const std::string& node) {
  Attributes attributes = default_attributes(op);
  Diagnostics errors;
  nb::list known;
  visit_fields(attributes, [&](const char* field, auto& member) {
    known.append(field);
    if (!values.contains(field)) return;
    const nb::object v = values[field];
    if (v.is_none() || read(v, member)) return;
    const auto names = choices(member);
    errors.push_back({.rule = Rule::attribute_value,
                      .node = node,
                      .attribute = field,
                      .seen = seen(v),
                      .allowed = nb::len(names) ? joined(names) : kind(member)});
  });
  for (const auto& [key, v] : values)
    if (!known.attr("__contains__")(key).equal(nb::bool_(true)))
      errors.push_back({.rule = Rule::attribute_unknown,
                        .node = node,
                        .attribute = nb::cast<std::string>(key),
                        .seen = seen(v),
                        .allowed = nb::len(known) ? joined(known) : "no attributes"});
  if (!errors.empty()) raise(std::move(errors));
  return attributes;
}

nb::list describe_attributes(OpKind op) {
  nb::list rows;
  const Attributes attributes = default_attributes(op);
  visit_fields(attributes, [&](const char* field, const auto& member) {
    rows.append(nb::make_tuple(field, kind(member), value(member), choices(member)));
  });
  return rows;
}

nb::list attributes_of(PointwiseMode mode) {
  nb::list names;
  const PointwiseAttributes a;
  const auto& taken = info(mode);
  PointwiseAttributes::fields(a, [&](const char* field, const auto& member) {
    if constexpr (std::is_same_v<std::decay_t<decltype(member)>, double>)
      for (int i = 0; i < taken.params; ++i)
        if (&(a.*taken.param[i]) == &member) names.append(field);
    if (mode == PointwiseMode::gen_index && std::string_view(field) == "axis") names.append(field);
  });
  return names;
}

}  // namespace sinter::python
