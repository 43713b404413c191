// What {fmt} does not define in its headers, once, instead of in every file that formats, where it
// takes as long as many such files do. Its namespace is the library's own (CMakeLists.txt), so that
// a program may link another {fmt}.
#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
#endif
