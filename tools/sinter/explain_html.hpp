// What `sinter explain --html` writes: the page of explain_page with one plan's data.
#pragma once
#include <span>
#include <string>

#include "embed/embedded.hpp"

namespace sinter {

std::span<const EmbeddedFile> explain_page_files();  // of explain_page; sorted by name

namespace cli {

// `json`: what explain_json says.
std::string explain_html(const std::string& json);

}  // namespace cli
}  // namespace sinter
