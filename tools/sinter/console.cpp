// Names and compiler messages come from outside, so what is printed cannot move the cursor or pass
// for another line.
#include "console.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "json/reader.hpp"
#include "sinter/base/text.hpp"

namespace sinter::cli {
namespace {

constexpr std::size_t kMostErrors = 20;  // that a person reads
constexpr std::size_t kMostName = 160;   // bytes

// What cannot be said on stderr cannot be said at all.
void print_to_stderr(const std::string& text) { (void)std::fputs(text.c_str(), stderr); }

// Bytes of the UTF-8 sequence at the front, 0 where there is none.
std::size_t sequence_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const std::size_t n = byte(0) < 0x80       ? 1
                        : byte(0) >> 5 == 6  ? 2
                        : byte(0) >> 4 == 14 ? 3
                        : byte(0) >> 3 == 30 ? 4
                                             : 0;
  if (n == 0 || n > s.size()) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if (byte(i) >> 6 != 2) return 0;
  return n;
}

int exit_code(Rule rule) {
  switch (rule) {
    case Rule::device_missing:
    case Rule::device_error:
    case Rule::compiler_missing:
    case Rule::compiler_error:
    case Rule::plan_target:
    case Rule::output_lost:
    case Rule::memory:
      return kMissing;
    case Rule::tuning:  // the fastest configuration gave a wrong result
      return kWrong;
    default:
      return kBadInput;
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const std::size_t n = sequence_length(text);
    // C1 controls come as 0xc2 0x80..0x9f.
    const bool control =
        c < 32 || c == 127 || (n == 2 && c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (n == 0 || control) {
      const std::size_t bytes = n == 0 ? 1 : n;
      for (std::size_t i = 0; i < bytes; ++i)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
      text.remove_prefix(bytes);
    } else {
      out += text.substr(0, n);
      text.remove_prefix(n);
    }
  }
  return out;
}

std::string printable_name(std::string_view name) {
  return printable(detail::shortened(name, kMostName));
}

int report(const Diagnostics& errors) {
  for (std::size_t i = 0; i < std::min(errors.size(), kMostErrors); ++i) {
    const Diagnostic& d = errors[i];
    const std::string message = d.message();
    // The compiler's messages have lines of their own, which follow further in.
    std::string line = "error: ";
    for (std::size_t begin = 0; begin <= message.size();) {
      const std::size_t end = d.rule == Rule::compiler_error
                                  ? std::min(message.find('\n', begin), message.size())
                                  : message.size();
      line += (begin ? "\n    " : "") + printable(message.substr(begin, end - begin));
      begin = end + 1;
    }
    print_to_stderr(line + "\n");
  }
  if (errors.size() > kMostErrors)
    note(fmt::format("note: {} more errors like these (sinter check --json lists them)",
                     errors.size() - kMostErrors));
  return errors.empty() ? kBadInput : exit_code(errors.front().rule);
}

void note(std::string_view text) { print_to_stderr(printable(text) + "\n"); }

void print_error(std::string_view text) { note("error: " + std::string(text)); }

std::string to_json(const Diagnostics& errors) {
  using json::json_string;
  std::string all;
  for (const auto& d : errors)
    all += fmt::format(
        "{}{{\"rule\": {}, \"says\": {}, \"node\": {}, \"tensor\": {}, \"attribute\": {}, "
        "\"seen\": {}, \"allowed\": {}, \"fix\": {}, \"file\": {}, \"line\": {}}}",
        all.empty() ? "" : ",\n  ", json_string(d.id()), json_string(info(d.rule).says),
        json_string(d.node), json_string(d.tensor), json_string(d.attribute), json_string(d.seen),
        json_string(d.allowed), json_string(d.fix), json_string(d.file), d.line);
  return "[" + all + "]";
}

bool is_stdout(std::string_view path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

bool stdout_complete() {
  const int before = errno;  // of an earlier write, where that one failed
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return true;
  Diagnostic d;
  d.rule = Rule::output_lost;
  d.attribute = "stdout";
  d.seen = std::strerror(errno ? errno : before);
  report({d});
  return false;
}

Progress::Progress(std::string_view text) : shown_(isatty(STDERR_FILENO) != 0) { show(text); }

void Progress::show(std::string_view text) const {
  if (!shown_) return;
  print_to_stderr("\r\x1b[K" + printable(detail::shortened(text, 100)) + " ...");
  std::fflush(stderr);
}

PlanOptions Progress::following(PlanOptions options) const {
  if (!shown_) return options;
  options.progress_context = const_cast<Progress*>(this);
  options.progress = [](void* self, const PlanProgress& at) {
    if (at.total < 2) return;
    const bool planning = at.stage == PlanProgress::Stage::planning;
    static_cast<const Progress*>(self)->show(
        fmt::format("{} {} of {} kernels", planning ? "planning" : "compiling", at.done, at.total));
  };
  return options;
}

Progress::~Progress() {
  if (!shown_) return;
  print_to_stderr("\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace sinter::cli
