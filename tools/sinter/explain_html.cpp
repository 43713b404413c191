#include "explain_html.hpp"

#include <string_view>

namespace sinter::cli {
namespace {

std::string_view page_file(std::string_view name) {
  for (const auto& file : explain_page_files())
    if (file.name == name) return file.text;
  return {};
}

// Inside of <script> a parser looks for "</script" and "<!--" alone. JSON has '<' in strings only,
// where it can be spelt otherwise.
std::string in_script(const std::string& json) {
  std::string s;
  s.reserve(json.size());
  for (const char c : json)
    if (c == '<')
      s += "\\u003c";
    else
      s += c;
  return s;
}

}  // namespace

std::string explain_html(const std::string& json) {
  constexpr std::string_view style = "<link rel=\"stylesheet\" href=\"", script = "<script src=\"",
                             data = "<script id=\"data\" type=\"application/json\">";
  const std::string_view page = page_file("page.html");
  std::string s;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    const std::string_view line = page.substr(begin, end - begin);
    begin = end + 1;
    const auto referred = [&](std::string_view prefix) {
      const std::string_view rest = line.substr(prefix.size());
      return page_file(rest.substr(0, rest.find('"')));
    };
    if (line.starts_with(style))
      s.append("<style>\n").append(referred(style)).append("</style>\n");
    else if (line.starts_with(script))
      s.append("<script>\n").append(referred(script)).append("</script>\n");
    else if (line.starts_with(data))
      s.append(data).append(in_script(json)).append("</script>\n");
    else
      s.append(line).append("\n");
  }
  return s;
}

}  // namespace sinter::cli
