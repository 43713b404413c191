// Lines of text with indentation: the only way in which the generator makes source.
#pragma once
#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace sinter {

class TextWriter {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void blank() { text_ += '\n'; }
  // One line of another writer's, with its end, at this one's indentation.
  void take(const std::string& line) {
    text_.append(static_cast<std::size_t>(2 * depth_), ' ');
    text_ += line;
  }
  // Opens a block; `close` ends it.
  template <class... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    line(format, std::forward<Args>(args)...);
    ++depth_;
  }
  void close(std::string_view end) {
    --depth_;
    line("{}", end);
  }
  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace sinter
