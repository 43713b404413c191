#include "tuning/tuning_file.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "array/file.hpp"
#include "base/env.hpp"
#include "json/fields.hpp"
#include "json/reader.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

Result<Tuning> tuning_from_json(std::string_view text, std::string_view file) {
  auto document = json::parse(text, file);
  SINTER_TRY(document);
  json::Fields fields(file);
  Tuning tuning;
  const auto read = [&] {
    static constexpr std::string_view keys[] = {"format", "version", "best"};
    if (!fields.is(json::Kind::object, *document, {}) || !fields.only(*document, {}, keys))
      return false;
    for (auto key : keys)
      if (!fields.required(*document, {}, key, Rule::json_field)) return false;
    std::string format;
    std::int64_t version = 0;
    if (!fields.read(*document->find("format"), {"", "", "format"}, format) ||
        !fields.read(*document->find("version"), {"", "", "version"}, version))
      return false;
    if (format != "sinter.tuning" || version != 1)
      return fields.fail(Rule::json_field, {"", "", "format"}, document->line,
                         fmt::format("'{}' version {}", format, version),
                         "'sinter.tuning' version 1");
    const json::Value& best = *document->find("best");
    if (!fields.is(json::Kind::object, best, {"", "", "best"})) return false;
    for (const auto& m : best.members)
      if (!fields.read(m.value, {"", "", m.key}, tuning.best[m.key])) return false;
    return true;
  };
  if (!read()) return fields.errors();
  return tuning;
}

}  // namespace

Result<Tuning> read_tuning(const std::string& given) {
  const std::string path = given.empty() ? env_value("SINTER_TUNING_FILE") : given;
  if (path.empty() || !std::filesystem::exists(path)) return Tuning{};
  auto text = read_file(path, kMostBytes);
  SINTER_TRY(text);
  return tuning_from_json(*text, path);
}

Status add_to_tuning(const std::string& path, const Tuning& more) {
  auto all = read_tuning(path);
  SINTER_TRY(all);
  for (const auto& [problem, configuration] : more.best) all->best[problem] = configuration;
  std::string text = "{\n  \"format\": \"sinter.tuning\", \"version\": 1,\n  \"best\": {";
  const char* separator = "\n";
  for (const auto& [problem, configuration] : all->best) {
    text += fmt::format("{}    {}: {}", separator, json::json_string(problem),
                        json::json_string(configuration));
    separator = ",\n";
  }
  return write_file(path, text + "\n  }\n}\n");
}

}  // namespace sinter
