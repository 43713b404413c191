// A value with several owners: copies of a Shared are owners of one value, the last one ends it. It
// takes the place of std::shared_ptr because <memory> alone would make including the library a
// quarter dearer.
#pragma once
#include <utility>

namespace sinter {

// Owners may be copied and dropped by several threads at once, as with std::shared_ptr. T may be
// incomplete but where make() is called.
template <class T>
class Shared {
 public:
  Shared() = default;
  template <class... Arguments>
  static Shared make(Arguments&&... arguments) {
    struct Box : Count {
      T value;
    };
    auto* box = new Box{{1, [](Count* count) { delete static_cast<Box*>(count); }},
                        T(std::forward<Arguments>(arguments)...)};
    return Shared(box, &box->value);
  }

  Shared(const Shared& other) : count_(other.count_), value_(other.value_) {
    if (count_) __atomic_add_fetch(&count_->owners, 1, __ATOMIC_RELAXED);
  }
  Shared(Shared&& other) noexcept
      : count_(std::exchange(other.count_, nullptr)),
        value_(std::exchange(other.value_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(count_, other.count_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Shared() {  // the compiler's own atomics: <atomic> is no lighter than <memory>
    if (count_ && __atomic_sub_fetch(&count_->owners, 1, __ATOMIC_ACQ_REL) == 0)
      count_->end(count_);
  }

  explicit operator bool() const { return value_ != nullptr; }
  T* get() const { return value_; }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  struct Count {
    long owners;
    void (*end)(Count*);  // knows the type of the value, which the owners need not
  };
  Shared(Count* count, T* value) : count_(count), value_(value) {}

  Count* count_ = nullptr;
  T* value_ = nullptr;
};

}  // namespace sinter
