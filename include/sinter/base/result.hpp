// A value or the diagnostics that say why there is none. No exception crosses the API.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "sinter/base/diagnostic.hpp"

namespace sinter {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Diagnostic d) { errors_.push_back(std::move(d)); }
  Result(Diagnostics d) : errors_(std::move(d)) {}

  explicit operator bool() const { return value_.has_value(); }
  bool ok() const { return value_.has_value(); }

  // Reading the value of a failed result is a mistake of the program: it prints the error and ends.
  T& value() & { return check(), *value_; }
  const T& value() const& { return check(), *value_; }
  T&& value() && { return check(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Diagnostics& errors() const { return errors_; }
  const Diagnostic& error() const {
    static const Diagnostic none;
    return errors_.empty() ? none : errors_.front();
  }

 private:
  void check() const {
    if (ok()) return;
    std::fprintf(stderr, "sinter: a failed result was used as a value: %s\n",
                 error().message().c_str());
    std::abort();
  }
  std::optional<T> value_;
  Diagnostics errors_;
};

struct Done {};  // the value of an operation that has none
using Status = Result<Done>;

// Hands the error of a failed Result to the caller.
#define SINTER_TRY(result)                                                       \
  do {                                                                           \
    if (auto& sinter_try_ = (result); !sinter_try_) return sinter_try_.errors(); \
  } while (0)

}  // namespace sinter
