# Run by the build (cmake -P): writes OUTPUT with the texts of INPUTS under NAMES, both lists joined
# by '|', and FUNCTION, which returns them. Compilers limit the length of a string literal, so each text is cut in pieces,
# and what a constant expression may take: literals that know their length are not counted through.

string(REPLACE "|" ";" names "${NAMES}")
string(REPLACE "|" ";" inputs "${INPUTS}")
set(piece_length 14000)
set(rows "")
list(SORT names)
string(REPLACE "|" ";" given_names "${NAMES}")
foreach(name IN LISTS names)
  list(FIND given_names "${name}" position)
  list(GET inputs ${position} input)
  file(READ "${input}" text)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(start 0)
  while(start LESS length)
    string(SUBSTRING "${text}" ${start} ${piece_length} piece)
    string(APPEND pieces "\n     R\"sinter(${piece})sinter\"")
    math(EXPR start "${start} + ${piece_length}")
  endwhile()
  if(pieces STREQUAL "")
    set(pieces " \"\"")
  endif()
  string(APPEND rows "    {\"${name}\"sv,${pieces}sv},\n")
endforeach()

file(WRITE "${OUTPUT}"
"// Written by codegen/embed/write_embedded.cmake.
#include \"embed/embedded.hpp\"

namespace sinter {
namespace {
using namespace std::string_view_literals;
constexpr EmbeddedFile kFiles[] = {
${rows}};
}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() { return kFiles; }

}  // namespace sinter
")
